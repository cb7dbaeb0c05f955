// SPDX-License-Identifier: Apache-2.0

package outage_test

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/audit"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

// patience bounds all waiting: some retries are a minute apart.
const patience = 2 * eventually.Limit

// cluster costs little: machines in the simulated MAAS with the objects of Cluster API, and nothing that runs on them. Errors fail the test.
type cluster struct {
	*testing.T
	key     client.ObjectKey // of the Cluster and of the MaasCluster
	auditor *audit.Auditor
	record  *life.Record // watches the DNS record of the API endpoint, until the cluster is deleted
	gone    bool
}

// cluster makes one with machines. It is deleted when the test ends, if the test did not do so, and what matters is shown when
// it failed.
func (w *world) cluster(namespace, name string, machines ...machine) *cluster {
	w.Helper()
	c := &cluster{T: w.T, key: client.ObjectKey{Namespace: namespace, Name: name}, auditor: w.auditor}
	w.Cleanup(func() {
		if w.Failed() {
			life.Dump(w.T, box)
		}
		if !c.gone {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(w.Context()), patience)
			defer cancel()
			if err := box.DeleteCluster(ctx, c.key); err != nil {
				w.Errorf("cleaning up: %v", err)
			}
		}
	})
	c.apply(c.plain().Manifest())
	maasCluster := &infrav1.MaasCluster{}
	c.wait("the API endpoint to have a name", func() (bool, string, error) {
		err := box.Client.Get(w.Context(), c.key, maasCluster)
		return maasCluster.Spec.ControlPlaneEndpoint.Host != "", sandbox.Conditions(maasCluster.Status.Conditions), err
	})
	c.record = life.WatchRecord(w.T, box.MAAS, maasCluster.Spec.ControlPlaneEndpoint.Host)
	c.add(machines...)
	return c
}

// add adds machines.
func (c *cluster) add(machines ...machine) {
	c.Helper()
	for _, m := range machines {
		c.apply(c.plain().Machines(m.plain()))
	}
}

func (c *cluster) apply(manifest string) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), patience)
	defer cancel()
	if err := box.ApplyYAML(ctx, strings.NewReader(manifest)); err != nil {
		c.Fatal(err)
	}
}

// wait waits for something that happens in time.
func (c *cluster) wait(what string, check func() (bool, string, error)) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), patience)
	defer cancel()
	if err := eventually.Wait(ctx, what, check); err != nil {
		c.Fatal(err)
	}
}

// maasMachine reads one; nil if it is gone.
func (c *cluster) maasMachine(name string) *infrav1.MaasMachine {
	c.Helper()
	m := &infrav1.MaasMachine{}
	err := box.Client.Get(c.Context(), client.ObjectKey{Namespace: c.key.Namespace, Name: name}, m)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		c.Fatal(err)
	}
	return m
}

// awaitRunning waits until machines are provisioned and Ready.
func (c *cluster) awaitRunning(names ...string) {
	c.Helper()
	for _, name := range names {
		c.await(name+" to run", name, func(m *infrav1.MaasMachine) bool {
			return ptr.Deref(m.Status.Initialization.Provisioned, false) && conditions.IsTrue(m, infrav1.ReadyCondition)
		})
	}
}

// awaitReason waits until a machine reports why it does not run. It returns the machine as it is then.
func (c *cluster) awaitReason(name, reason string) *infrav1.MaasMachine {
	c.Helper()
	return c.await(name+" to say "+reason, name, func(m *infrav1.MaasMachine) bool {
		return conditions.GetReason(m, infrav1.MachineDeployedCondition) == reason
	})
}

// await waits until is returns true for a MaasMachine, and returns the MaasMachine as it is then.
func (c *cluster) await(what, name string, is func(*infrav1.MaasMachine) bool) (m *infrav1.MaasMachine) {
	c.Helper()
	c.wait(what, func() (bool, string, error) {
		m = c.maasMachine(name)
		if m == nil {
			return false, "there is no such MaasMachine", nil
		}
		return is(m), sandbox.Conditions(m.Status.Conditions), nil
	})
	return m
}

// remove deletes a machine, and does not wait until it is gone. There is no Node to drain.
func (c *cluster) remove(name string) {
	c.Helper()
	machine := &clusterv1.Machine{}
	machine.Namespace, machine.Name = c.key.Namespace, name
	if err := box.Client.Delete(c.Context(), machine); client.IgnoreNotFound(err) != nil {
		c.Fatal(err)
	}
}

// awaitGone waits until machines that were removed are gone.
func (c *cluster) awaitGone(names ...string) {
	c.Helper()
	for _, name := range names {
		c.wait(name+" to be gone", func() (bool, string, error) {
			m := c.maasMachine(name)
			if m == nil {
				return true, "", nil
			}
			return false, sandbox.Conditions(m.Status.Conditions), nil
		})
	}
}

// delete deletes the cluster, and waits until it is gone.
func (c *cluster) delete() {
	c.Helper()
	if err := c.auditor.Learn(c.Context()); err != nil {
		c.Fatal(err)
	}
	c.record.End()
	ctx, cancel := context.WithTimeout(c.Context(), patience)
	defer cancel()
	if err := box.DeleteCluster(ctx, c.key); err != nil {
		c.Fatal(err)
	}
	c.gone = true
}

// settled waits until MAAS has what the cluster's objects require, and nothing else with its marks.
func (c *cluster) settled() {
	c.Helper()
	c.wait("MAAS and the objects to agree", func() (bool, string, error) {
		findings, err := c.auditor.Steady(c.Context(), audit.Who{Namespace: c.key.Namespace, Cluster: c.key.Name})
		return len(findings) == 0, fmt.Sprint(findings), err
	})
}

// events counts the events about a MaasMachine, by reason.
func (c *cluster) events(name string) map[string]int {
	c.Helper()
	list := &corev1.EventList{}
	if err := box.Client.List(c.Context(), list, client.InNamespace(c.key.Namespace)); err != nil {
		c.Fatal(err)
	}
	counts := map[string]int{}
	for _, event := range list.Items {
		if event.InvolvedObject.Kind != "MaasMachine" || event.InvolvedObject.Name != name {
			continue
		}
		times := max(1, int(event.Count))
		if event.Series != nil {
			times = int(event.Series.Count)
		}
		counts[event.Reason] += times
	}
	return counts
}

// machine describes a machine of a cluster.
type machine struct {
	// name of the Machine and of the MaasMachine. It is unique in the namespace.
	name string
	// worker is false for a control plane, whose address the API endpoint contains.
	worker bool
	// VM is composed on an LXD host; otherwise it is bare metal.
	vm bool
	// staticIP is as in the spec of a MaasMachine.
	staticIP string
	// cores that it has at least. Default: 2.
	cores int
}

const defaultCores = 2

// plain returns the cluster's manifest.
func (c *cluster) plain() sandbox.Plain { return sandbox.Plain{Key: c.key} }

func (m machine) plain() sandbox.PlainMachine {
	spec := fmt.Sprintf("image: u-2204-k8s-1.35, minCPU: %d, minMemory: 2048, minDiskSize: 20", cmp.Or(m.cores, defaultCores))
	if m.vm {
		spec += ", provisioningMode: lxd"
	}
	if m.staticIP != "" {
		spec += ", staticIP: " + m.staticIP
	}
	return sandbox.PlainMachine{Name: m.name, Worker: m.worker, Spec: spec}
}
