// SPDX-License-Identifier: Apache-2.0

package flows_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

const (
	servers = 5
	// rackPool has these servers alone, and rackPrefix begins their names.
	rackPool, rackPrefix = "default", "server-"
	// thiefName is a user of MAAS who is no administrator.
	thiefName = "capi"
	// thiefPause is the time between two tries of the thief.
	thiefPause = 200 * time.Millisecond
)

// MAAS has no call that leads from one deployment to the next without Ready. So the thief may win the race for one call;
// then the condition of the MaasMachine, or its event, says so, and the rollout goes on when the thief gives the server back.
func TestAFullRackIsUpgradedAmongThieves(t *testing.T) {
	for _, m := range rack() {
		if err := box.MAAS.HideDisk(m.SystemID, "sdb"); err != nil {
			t.Fatal(err)
		}
	}
	l := life.Begin(t, box, "rack")
	l.Apply(rolling(t))
	l.Available(servers)
	for _, m := range rack() {
		for _, name := range []string{"sda", "sdb"} {
			if err := box.MAAS.WriteDisk(m.SystemID, name, "data of "+m.SystemID); err != nil {
				t.Fatal(err)
			}
		}
	}
	controlPlanes, workers := l.MaasMachines()
	before := serversOf(controlPlanes)

	thief := begin(l)
	rolledOnce := l.Rolls(servers)
	upgrade(l, "KubeadmControlPlane", "rack-control-plane", "spec", "machineTemplate", "spec", "infrastructureRef", "name")
	upgrade(l, "MachineDeployment", "rack-md-0", "spec", "template", "spec", "infrastructureRef", "name")
	l.Wait("all machines to have the new image", func() (bool, string, error) {
		controlPlanes, workers = l.MaasMachines()
		all := slices.Concat(controlPlanes, workers)
		old := slices.ContainsFunc(all, func(m infrav1.MaasMachine) bool { return m.Spec.Image != newImage || !m.Status.Ready })
		return len(all) == servers && !old, fmt.Sprintf("%d machines", len(all)), nil
	})
	lost := thief.end()
	l.Available(servers)
	rolledOnce()
	if got := serversOf(slices.Concat(controlPlanes, workers)); got.Len() != servers {
		t.Errorf("the cluster has the servers %v, want all", sets.List(got))
	}
	if after := serversOf(controlPlanes); lost == 0 && !after.Equal(before) {
		t.Errorf("the control planes are on %v, and were on %v", sets.List(after), sets.List(before))
	}
	for _, m := range rack() {
		if m.Data["sdb"] != "data of "+m.SystemID || m.Data["sda"] != "" {
			t.Errorf("the disks of %s hold %v, want its data on sdb alone", m.SystemID, m.Data)
		}
	}
	t.Logf("the thief won %d times", lost)
	l.Delete()
}

// rack are the servers of the rack.
func rack() []simulator.MachineSnapshot {
	return slices.DeleteFunc(box.MAAS.Machines(), func(m simulator.MachineSnapshot) bool { return !strings.HasPrefix(m.Hostname, rackPrefix) })
}

// rolling is the flavor for bare metal, with machines that are kept, and rollouts that take a machine away first.
func rolling(t *testing.T) string {
	t.Helper()
	manifest, err := box.Flavor("", map[string]string{
		"CLUSTER_NAME": "rack", "NAMESPACE": life.Namespace, "MAAS_DNS_DOMAIN": dnsDomain, "MAAS_IMAGE": image, "KUBERNETES_VERSION": kubernetesVersion,
		"CONTROL_PLANE_MACHINE_RESOURCEPOOL": rackPool, "WORKER_MACHINE_RESOURCEPOOL": rackPool,
		"CONTROL_PLANE_MACHINE_COUNT": "3", "WORKER_MACHINE_COUNT": "2",
	})
	if err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{
		"      tags: []\n": "      tags: []\n      release: {keep: {}}\n",
		"  replicas: 3\n":  "  replicas: 3\n  rollout: {strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 0}}}\n",
		"  replicas: 2\n":  "  replicas: 2\n  rollout: {strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}}\n",
	} {
		manifest = strings.ReplaceAll(manifest, from, to)
	}
	return manifest
}

func serversOf(machines []infrav1.MaasMachine) sets.Set[string] {
	ids := sets.New[string]()
	for _, m := range machines {
		ids.Insert(m.Spec.SystemID)
	}
	return ids
}

// upgrade makes a copy of the template of an object with the new image, and gives it to the object.
func upgrade(l *life.Life, kind, name string, path ...string) {
	l.Helper()
	ctx := l.Context()
	template := &infrav1.MaasMachineTemplate{}
	if err := box.Client.Get(ctx, client.ObjectKey{Namespace: life.Namespace, Name: name}, template); err != nil {
		l.Fatal(err)
	}
	next := &infrav1.MaasMachineTemplate{Spec: *template.Spec.DeepCopy()}
	next.Namespace, next.Name, next.Spec.Template.Spec.Image = template.Namespace, name+"-new", newImage
	if err := box.Client.Create(ctx, next); err != nil {
		l.Fatal(err)
	}
	object := &unstructured.Unstructured{}
	object.SetAPIVersion(map[string]string{
		"KubeadmControlPlane": "controlplane.cluster.x-k8s.io/v1beta2", "MachineDeployment": "cluster.x-k8s.io/v1beta2",
	}[kind])
	object.SetKind(kind)
	if err := box.Client.Get(ctx, client.ObjectKey{Namespace: life.Namespace, Name: name}, object); err != nil {
		l.Fatal(err)
	}
	before := object.DeepCopy()
	if err := unstructured.SetNestedField(object.Object, next.Name, path...); err != nil {
		l.Fatal(err)
	}
	if err := box.Client.Patch(ctx, object, client.MergeFrom(before)); err != nil {
		l.Fatal(err)
	}
}

// thief takes whatever is Ready, and gives it back when a MaasMachine says that it lost it.
type thief struct {
	*life.Life
	client *maas.Client
	stop   context.CancelFunc
	done   sync.WaitGroup
	hosts  []string // Otherwise MAAS would make a VM for the thief.
	lost   int
}

func begin(l *life.Life) *thief {
	l.Helper()
	users := box.MAAS.Users()
	at := slices.IndexFunc(users, func(u simulator.User) bool { return u.Name == thiefName })
	c, err := maas.NewClient(maas.Config{Endpoint: box.MAASURL, APIKey: users[at].Keys[0]})
	if err != nil {
		l.Fatal(err)
	}
	ctx, stop := context.WithCancel(l.Context())
	th := &thief{Life: l, client: c, stop: stop}
	for _, host := range box.MAAS.VMHosts() {
		th.hosts = append(th.hosts, host.Name)
	}
	th.done.Go(func() {
		wait.UntilWithContext(ctx, th.try, thiefPause)
	})
	l.Cleanup(func() { th.end() })
	return th
}

// end stops the thief, and returns how often it won.
func (th *thief) end() int {
	th.stop()
	th.done.Wait()
	th.client.Close()
	return th.lost
}

func (th *thief) try(ctx context.Context) {
	permit := maas.Unrecorded("a test")
	m, err := th.client.AllocateMachine(ctx, permit, maas.AllocateParams{Pool: rackPool, NotOnVMHosts: th.hosts})
	if err != nil {
		if !errors.Is(err, maas.Conflict) && ctx.Err() == nil {
			th.Errorf("the thief failed: %v", err)
		}
		return
	}
	th.lost++
	what := fmt.Sprintf("an event that the thief has %s (%s)", m.Hostname, m.SystemID)
	if err := eventually.Wait(ctx, what, func() (bool, string, error) { return th.isTold(ctx, m.SystemID), "none", nil }); err != nil {
		th.Error(err)
	}
	if _, err := th.client.ReleaseMachine(context.WithoutCancel(ctx), maas.UnrecordedRelease("a test"), m.SystemID, maas.ReleaseParams{}); err != nil {
		th.Errorf("the thief can't give %s back: %v", m.SystemID, err)
	}
}

// isTold reports whether an event says who has a server.
func (th *thief) isTold(ctx context.Context, systemID string) bool {
	list := &eventsv1.EventList{}
	if err := box.Client.List(ctx, list, client.InNamespace(life.Namespace)); err != nil {
		return false
	}
	return slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool {
		return e.Type == corev1.EventTypeWarning && e.Reason == infrav1.KeptMachineLostReason && strings.Contains(e.Note, systemID)
	})
}
