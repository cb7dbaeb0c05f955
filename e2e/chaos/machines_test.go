// SPDX-License-Identifier: Apache-2.0

package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

// member is one machine's life.
type member struct {
	Name, Cluster string
	ControlPlane  bool
	VM            bool
	// Direct means that the VM is made through LXD's own API.
	Direct     bool
	StaticIP   string
	Commission bool
	Erase      string
	// Shape is what MAAS makes of the machine's disks or interfaces, in the spec's terms.
	Shape string
	// Fails is the operation that the next machine to do it fails, if not empty.
	Fails string
	// Cut is when the machine is deleted, in whatever state; 0 lets it be provisioned.
	Cut time.Duration
	// Remedied means that it is switched off and on, because its Node is not healthy.
	Remedied bool
	// Of is the MachineDeployment whose next Machine gets the machine, if not empty.
	Of string
	// Stays means that it is deleted with its cluster.
	Stays bool
}

// shapedPool has the machines that are made into shapes. Nothing keeps another user from one of them before it is as it
// was, so thieves take none there.
const shapedPool = "shaped"

var shapes = []string{
	"storage: {layout: lvm}",
	"interfaces: [{name: bond0, type: bond, parents: [enp1s0], mtu: 9000, linkMode: auto}]",
	"storage: {layout: lvm}, interfaces: [{name: br0, type: bridge, parents: [enp1s0], linkMode: auto}]",
}

// canBeDirect means that there are direct hosts.
var canBeDirect bool

// mostStatic is how many static addresses there are.
const mostStatic = 500

// newMember rolls the dice for a machine.
func newMember(roll *rand.Rand, cluster string, number, serial int) member {
	m := member{
		Name: fmt.Sprintf("%s-m%d", cluster, number), Cluster: cluster,
		ControlPlane: roll.IntN(2) == 0, VM: roll.IntN(100) < 55, Stays: roll.IntN(3) == 0,
	}
	if roll.IntN(3) == 0 {
		at := serial % mostStatic
		m.StaticIP = fmt.Sprintf("10.77.%d.%d", 1+at/250, 1+at%250)
	}
	if m.VM {
		m.Commission = roll.IntN(5) == 0
	} else if roll.IntN(4) == 0 {
		m.Erase = "quick"
	}
	if roll.IntN(10) < 3 {
		m.Cut = time.Duration(roll.IntN(6000)) * time.Millisecond
	}
	// What fails to be released is tried again after a minute.
	if failing := []string{"deploy", "deploy", "power", "commission", "test", "release", "erase"}; roll.IntN(8) == 0 {
		m.Fails = failing[roll.IntN(len(failing))]
	}
	m.Direct = m.VM && canBeDirect && roll.IntN(3) == 0
	if !m.VM && roll.IntN(3) == 0 {
		m.Shape, m.StaticIP = shapes[roll.IntN(len(shapes))], ""
	}
	m.Remedied = !m.ControlPlane && roll.IntN(3) == 0
	if keeps := roll.IntN(3) > 0; keeps && !m.VM && !m.ControlPlane && m.Erase == "" && m.Cut == 0 {
		m.Of = m.Name
	}
	return m
}

// anchor returns the control plane that a cluster always has. Names can be made to collide with those of VMs whose own
// name is no label.
func anchor(roll *rand.Rand, cluster string, number, serial int, does meddling) member {
	m := newMember(roll, cluster, number, serial)
	m.ControlPlane, m.Cut, m.Remedied, m.Stays, m.Of = true, 0, false, true, ""
	if does == madeOwner {
		m.VM, m.Direct, m.Erase, m.Shape, m.Name = true, false, "", "", m.Name+".anchor"
	}
	return m
}

func (m member) plain() sandbox.PlainMachine {
	mode := "bare-metal"
	if m.VM {
		mode = "lxd"
	}
	pool := "capi"
	if m.Shape != "" {
		pool = shapedPool
	}
	spec := "image: " + vmImage + ", resourcePool: " + pool + ", minCPU: 2, minMemory: 4096, minDiskSize: 20, provisioningMode: " + mode
	if m.Direct {
		spec = "image: " + vmImage + ", resourcePool: " + directPool + ", minCPU: 1, minMemory: 2048, minDiskSize: 8, provisioningMode: " + mode
	}
	if m.StaticIP != "" {
		spec += ", staticIP: " + m.StaticIP
	}
	if m.Shape != "" {
		spec += ", " + m.Shape
	}
	if m.Commission {
		spec += ", lxdConfig: {commission: true}"
	}
	switch {
	case m.Erase != "":
		spec += fmt.Sprintf(", release: {erase: %s}", m.Erase)
	case m.Of != "":
		spec += ", release: {keep: {}}"
	}
	return sandbox.PlainMachine{Name: m.Name, Worker: !m.ControlPlane, Spec: spec, Deployment: m.Of}
}

// create makes the objects, and what fails before.
func (a *assault) create(ctx context.Context, m member) error {
	if m.Fails != "" {
		if err := a.failNext(ctx, m.Fails); err != nil {
			return err
		}
	}
	a.figures.add("machine lives", 1)
	if m.Shape != "" {
		a.figures.add("machine lives with "+m.Shape, 1)
	}
	plain := sandbox.Plain{Key: client.ObjectKey{Namespace: namespace, Name: m.Cluster}}
	manifest := plain.Machines(m.plain())
	if m.Of == m.Name {
		manifest += plain.Deployment(m.Of)
	}
	return box.ApplyYAML(ctx, strings.NewReader(manifest))
}

// handOver deletes a Machine, and makes the next one of its MachineDeployment, which gets the same machine unless the
// hardware failed or a thief had it. It returns the next one.
func (a *assault) handOver(ctx context.Context, m member) (next member, err error) {
	before := &infrav1.MaasMachine{}
	if err := box.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: m.Name}, before); err != nil {
		return m, fmt.Errorf("reading %s, whose machine is kept: %w", m.Name, err)
	}
	if err := a.remove(ctx, m.Name); err != nil {
		return m, err
	}
	next = m
	next.Name, next.Fails = m.Name+"-next", ""
	if err := a.create(ctx, next); err != nil {
		return next, err
	}
	if _, err := a.settle(ctx, next); err != nil {
		return next, err
	}
	object := a.view.maasMachine(next.Name)
	a.figures.add(fmt.Sprintf("machines for a next Machine (the one that was kept %t)", object.Spec.SystemID == before.Spec.SystemID), 1)
	return next, nil
}

// failNext makes the next machine that does an operation fail.
func (a *assault) failNext(ctx context.Context, operation string) error {
	body := fmt.Sprintf(`{"operation": %q, "message": "the hardware is broken"}`, operation)
	if err := box.Control(ctx, "fail-next", body); err != nil {
		return fmt.Errorf("letting %s fail: %w", operation, err)
	}
	a.figures.add("hardware that fails to "+operation, 1)
	return nil
}

// settle waits until a machine is provisioned, or reports a permanent reason why it is not.
func (a *assault) settle(ctx context.Context, m member) (provisioned bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, attack.limit)
	defer cancel()
	err = eventually.Wait(ctx, m.Name+" to be provisioned or to fail", func() (bool, string, error) {
		object := a.view.maasMachine(m.Name)
		if object == nil {
			return false, "not there yet", nil
		}
		provisioned = ptr.Deref(object.Status.Initialization.Provisioned, false) && conditions.IsTrue(object, infrav1.ReadyCondition)
		return provisioned || object.Status.FailureReason != "", sandbox.Conditions(object.Status.Conditions), nil
	})
	return provisioned, err
}

// remedy has a machine switched off and on.
func (a *assault) remedy(ctx context.Context, m member) error {
	ctx, cancel := context.WithTimeout(ctx, attack.limit)
	defer cancel()
	status, err := life.Remedy(ctx, box, client.ObjectKey{Namespace: namespace, Name: m.Name})
	a.figures.add(fmt.Sprintf("machines of unhealthy Nodes (VM %t, on a direct host %t), step %s", m.VM, m.Direct, status.Step), 1)
	return err
}

// remove deletes a machine and waits until its objects are gone.
func (a *assault) remove(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, attack.limit)
	defer cancel()
	machine := &clusterv1.Machine{}
	// A Machine that Cluster API has not seen yet is deleted by itself, and its MaasMachine stays.
	if err := eventually.Wait(ctx, "Cluster API to know "+name, func() (bool, string, error) {
		err := box.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, machine)
		return apierrors.IsNotFound(err) || controllerutil.ContainsFinalizer(machine, clusterv1.MachineFinalizer), "", client.IgnoreNotFound(err)
	}); err != nil {
		return err
	}
	machine.Namespace, machine.Name = namespace, name // Where it is gone nothing was read.
	if err := box.Client.Delete(ctx, machine); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting %s: %w", name, err)
	}
	return eventually.Wait(ctx, name+" to be gone", func() (bool, string, error) {
		object := a.view.maasMachine(name)
		if object != nil {
			return false, sandbox.Conditions(object.Status.Conditions), nil
		}
		// What was made a moment ago is not in view yet.
		for _, left := range []client.Object{&clusterv1.Machine{}, &infrav1.MaasMachine{}} {
			err := box.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, left)
			if client.IgnoreNotFound(err) != nil || err == nil {
				return false, "it is there", client.IgnoreNotFound(err)
			}
		}
		return true, "", nil
	})
}
