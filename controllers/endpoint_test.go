// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// kubeadm on the replacement needs the endpoint to initialize the cluster.
func TestTheFirstControlPlaneIsReplacedBeforeItJoins(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]infrav1.MaasMachineSpec{"bare metal": {}, "a VM": vm} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, cluster := clusterWorld(t)
			// Another machine: the record's link to a released one would be in use again when it is deployed again.
			spec.FailureDomain = "zone-a"
			first := w.newMachine("cp-0", true, spec)
			w.eventually(first, "in DNS", func() bool { return first.Status.DNSAttached })
			address := clusters.EndpointAddress(first)
			w.delete(first)
			spec.FailureDomain = "zone-b"
			second := w.newMachine("cp-1", true, spec)
			w.eventually(second, "in DNS", func() bool { return second.Status.DNSAttached })
			if clusters.EndpointAddress(second) != address {
				t.Fatalf("the replacement of %s has the address %s: MAAS gives the lowest one that is free", address, clusters.EndpointAddress(second))
			}
			w.await("the endpoint leads to the replacement", second, func(context.Context) bool {
				return slices.Equal(w.endpoint(cluster), []string{address})
			})
		})
	}
}

// pair makes two control planes, a VM and bare metal, whose addresses are in the endpoint's record.
func (w *world) pair(cluster *infrav1.MaasCluster) (first, second *infrav1.MaasMachine, both []string) {
	w.t.Helper()
	first, second = w.newMachine("cp-0", true, vm), w.newMachine("cp-1", true, infrav1.MaasMachineSpec{})
	for _, m := range []*infrav1.MaasMachine{first, second} {
		w.deployed(m)
		w.join(m)
		w.eventually(m, "in DNS", func() bool { return m.Status.DNSAttached })
		both = append(both, clusters.EndpointAddress(m))
	}
	slices.Sort(both)
	w.await("both are in the record", cluster, func(context.Context) bool { return slices.Equal(w.endpoint(cluster), both) })
	return first, second, both
}

// join makes a control plane a Node, as Cluster API does.
func (w *world) join(m *infrav1.MaasMachine) {
	w.t.Helper()
	machine := &clusterv1.Machine{}
	w.must(w.client.Get(w.t.Context(), client.ObjectKeyFromObject(m), machine))
	w.patchStatus(machine, func() { machine.Status.NodeRef = clusterv1.MachineNodeReference{Name: m.Name} })
}

// recordWrites counts the calls that changed the DNS record.
func (w *world) recordWrites() (n int) {
	for _, call := range w.maas.Calls().Log {
		if call.Method != http.MethodGet && strings.HasPrefix(call.Endpoint, "dnsresources") {
			n++
		}
	}
	return n
}

// A power blip changes nothing; a control plane that stays off leaves the record, and returns when it runs again.
// Workers are never in it.
func TestPowerOfControlPlanes(t *testing.T) {
	t.Parallel()
	w, cluster := clusterWorld(t)
	first, second, both := w.pair(cluster)
	w.node("md-0", false, infrav1.MaasMachineSpec{})
	w.maas.ResetCalls()
	for _, m := range []*infrav1.MaasMachine{first, second} {
		w.control("machines/"+m.Spec.SystemID+"/power", `{"power": "off"}`)
		w.refused(m, infrav1.MachineDeployedCondition, infrav1.PoweredOffReason)
		w.poke(cluster)
	}
	for _, m := range []*infrav1.MaasMachine{first, second} {
		w.control("machines/"+m.Spec.SystemID+"/power", `{"power": "on"}`)
		w.eventually(m, "well", func() bool { return m.Status.Ready })
	}
	if now := w.endpoint(cluster); !slices.Equal(now, both) || w.recordWrites() != 0 {
		t.Errorf("after a blip the endpoint leads to %v, with %d writes; want %v, none", now, w.recordWrites(), both)
	}
	w.control("machines/"+first.Spec.SystemID+"/power", `{"power": "off"}`)
	w.refused(first, infrav1.MachineDeployedCondition, infrav1.PoweredOffReason)
	w.offFor(first, 2*clusters.EndpointHold)
	left := []string{clusters.EndpointAddress(second)}
	w.await("the stopped control plane left", cluster, func(context.Context) bool { return slices.Equal(w.endpoint(cluster), left) })
	w.control("machines/"+first.Spec.SystemID+"/power", `{"power": "on"}`)
	w.await("the running control plane came back", cluster, func(context.Context) bool { return slices.Equal(w.endpoint(cluster), both) })
}

// offFor sets back the time at which a machine was first seen off.
func (w *world) offFor(m *infrav1.MaasMachine, passed time.Duration) {
	w.t.Helper()
	w.changeRecord(m, func(d *record.MachineData) { d.Phase.Since = metav1.NewTime(time.Now().Add(-passed)) })
}

// A control plane leaves the record when its drain begins, not when its machine is released.
func TestADrainedControlPlaneLeavesTheEndpoint(t *testing.T) {
	t.Parallel()
	w, cluster := clusterWorld(t)
	first, second, _ := w.pair(cluster)
	machine := &clusterv1.Machine{}
	w.must(w.client.Get(t.Context(), client.ObjectKeyFromObject(first), machine))
	w.patch(machine, func() { machine.Finalizers = append(machine.Finalizers, "example.com/drain") })
	w.beginDeletion(machine)
	left := []string{clusters.EndpointAddress(second)}
	w.await("the one that is drained left", cluster, func(context.Context) bool { return slices.Equal(w.endpoint(cluster), left) })
	if now, _ := w.maas.Machine(first.Spec.SystemID); now.Status != "Deployed" {
		t.Errorf("its machine is %s already", now.Status)
	}
}

// A machine that can't be removed from the record is not released: the record would have the address of nothing, or of
// another user's machine.
func TestAControlPlaneIsKeptUntilItHasLeftTheEndpoint(t *testing.T) {
	t.Parallel()
	w, cluster := clusterWorld(t)
	first, second, both := w.pair(cluster)
	w.maas.SetHook(func(call simulator.Call, _ simulator.Phase) error {
		if call.Method != http.MethodGet && strings.HasPrefix(call.Endpoint, "dnsresources") {
			return errors.New("down")
		}
		return nil
	})
	w.beginDeletion(first)
	w.refused(first, infrav1.MachineDeployedCondition, infrav1.MAASUnavailableReason)
	if now, _ := w.maas.Machine(first.Spec.SystemID); now.Status != "Deployed" || !slices.Equal(w.endpoint(cluster), both) {
		t.Errorf("the machine is %s, the endpoint leads to %v", now.Status, w.endpoint(cluster))
	}
	w.maas.SetHook(nil)
	left := []string{clusters.EndpointAddress(second)}
	w.await("the other is left", cluster, func(context.Context) bool { return slices.Equal(w.endpoint(cluster), left) })
	w.goes(first)
}

// No event triggers a reconcile when a control plane has been off for long enough, and a MAAS that is away for a moment
// does not change when that is.
func TestAStoppedControlPlaneLeavesTheEndpointWithoutAnEvent(t *testing.T) {
	t.Parallel()
	w, cluster := clusterWorld(t)
	first, second, both := w.pair(cluster)
	w.control("machines/"+first.Spec.SystemID+"/power", `{"power": "off"}`)
	w.refused(first, infrav1.MachineDeployedCondition, infrav1.PoweredOffReason)
	w.offFor(first, clusters.EndpointHold-10*time.Second)
	if now := w.endpoint(cluster); !slices.Equal(now, both) {
		t.Errorf("the endpoint leads to %v already", now)
	}
	w.fault(simulator.Fault{DropBefore: true})
	w.eventually(first, "unknown", func() bool { return conditions.IsUnknown(first, infrav1.MachineDeployedCondition) })
	w.maas.ClearFaults()
	left := []string{clusters.EndpointAddress(second)}
	w.await("the stopped control plane left", cluster, func(context.Context) bool { return slices.Equal(w.endpoint(cluster), left) })
}

// Without a control plane, MAAS's link to a machine that was released goes: the next user's machine would fill it.
func TestTheEndpointWithoutAControlPlaneLeadsToNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) { w.region = contested })
	before := w.maas.State()
	cluster := w.provisionedCluster()
	m := w.deployedMachine("cp-0", true, infrav1.MaasMachineSpec{})
	w.eventually(m, "in the endpoint", func() bool { return m.Status.DNSAttached })
	w.delete(m)
	w.await("MAAS has no record", cluster, func(ctx context.Context) bool {
		records, err := w.maasClient().ListDNSResources(ctx, cluster.Spec.ControlPlaneEndpoint.Host)
		return err == nil && len(records) == 0
	})
	w.deleteCluster(cluster)
	w.unchanged(before)
}
