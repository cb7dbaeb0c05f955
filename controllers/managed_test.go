// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// newManaged makes a Cluster whose MaasCluster something else manages, which has done its part.
func (w *world) newManaged() *infrav1.MaasCluster {
	w.t.Helper()
	cluster := w.newCluster(func(c *infrav1.MaasCluster) {
		c.Annotations = map[string]string{clusterv1.ManagedByAnnotation: "terraform", infrav1.OwnerIDAnnotation: "0a1b2c3d4e5f"}
		c.Spec.ControlPlaneEndpoint = infrav1.APIEndpoint{Host: "api.example.com", Port: 6443}
	})
	w.patchStatus(cluster, func() { cluster.Status.Initialization.Provisioned = ptr.To(true) })
	w.provisioned(cluster)
	return cluster
}

// A cluster keeps to its MAAS, whoever manages its MaasCluster: other credentials are not used until they lead there.
func TestAClusterThatSomethingElseManagesKeepsToItsMAAS(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	home, homeURL, before := w.maas, w.maasURL, w.maas.State()
	cluster := w.newManaged()
	m := w.deployedMachine("m", true, vm)
	w.setEndpoint(w.startMAAS())
	other := w.maas.State()
	w.eventually(m, "the machine reports it", func() bool {
		return conditions.GetReason(m, infrav1.MachineDeployedCondition) == infrav1.CredentialsInvalidReason
	})
	w.beginDeletion(m)
	w.poke(m)
	w.eventually(m, "it stays", func() bool { return conditions.GetReason(m, infrav1.ReadyCondition) == infrav1.DeletingReason })
	w.unchanged(other)
	w.setEndpoint(strings.Replace(homeURL, "127.0.0.1", "localhost", 1))
	w.goes(m)
	if len(cluster.Finalizers) > 0 || len(cluster.Status.Conditions) > 0 {
		t.Errorf("the MaasCluster has the finalizers %v and the conditions %+v", cluster.Finalizers, cluster.Status.Conditions)
	}
	w.deleteCluster(cluster)
	w.maas = home
	w.unchanged(before)
}

// An evacuation knows the VMs of such a cluster, too.
func TestVMsOfAClusterThatSomethingElseManagesLeave(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withEvacuation)
	w.newManaged()
	host := w.lxdHost(w.hostName("lxd-a"))
	w.deployed(w.newOwned("alone", false, "zone-a", nil))
	w.change(host, func(s *infrav1.LXDHostSpec) { s.Evacuate = true })
	w.vmSays(host, "alone", infrav1.LXDVMHeld)
}

// Such a MaasCluster waits for nothing when it is deleted, so no server waits in its record.
func TestNoServerIsKeptInAMaasClusterThatSomethingElseManages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before := w.maas.State()
	cluster := w.newManaged()
	m := w.deployedMachine("first", false, withKeep(infrav1.MaasMachineSpec{}), of(w.deployment("md", 1)))
	w.delete(m)
	if n := w.keptIn(cluster); n != 0 {
		t.Errorf("%d servers are kept", n)
	}
	w.unchanged(before)
}

// Whoever takes a MaasCluster over can move it, as any other, and delete it: what the provider made for it goes with it.
func TestAMaasClusterThatSomethingElseTakesOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before := w.maas.State()
	cluster := w.provisionedCluster()
	m := w.deployedMachine("cp", true, vm)
	w.eventually(m, "attached", func() bool { return conditions.IsTrue(m, infrav1.DNSAttachedCondition) })
	w.annotate(cluster, clusterv1.ManagedByAnnotation, ptr.To("terraform"))
	if got := w.endpoint(cluster); len(got) != 1 {
		t.Errorf("the endpoint leads to %v, want what it was", got)
	}
	w.annotate(m, clusterv1.PausedAnnotation, ptr.To("")) // So that it stays on its way out.
	w.eventually(m, "paused", func() bool { return conditions.IsTrue(m, clusterv1.PausedCondition) })
	w.beginDeletion(m)
	w.pause(true)
	w.eventNames("cp")
	w.staysBlocked(cluster, "a machine goes")
	w.pause(false)
	w.annotate(m, clusterv1.PausedAnnotation, nil)
	w.goes(m)
	w.pause(true)
	w.eventually(cluster, "free to be moved", func() bool { return !blocksMove(cluster) })
	w.pause(false)
	w.deleteCluster(cluster)
	w.unchanged(before)
}

// Such a MaasCluster has no conditions: its machines tell why its MAAS can't be recorded.
func TestMachinesTellWhyTheirMAASIsNotRecorded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) { w.watchFilter = "blue" })
	w.setKey("admin:token:wrong")
	cluster := w.newManaged()
	m := w.newMachine("m", false, infrav1.MaasMachineSpec{}, func(m *metav1.ObjectMeta) { m.Labels[clusterv1.WatchLabel] = "blue" })
	w.eventually(m, "waiting for a key", func() bool {
		return conditions.GetReason(m, infrav1.MachineDeployedCondition) == infrav1.CredentialsInvalidReason
	})
	w.setKey("admin:token:secret")
	w.eventually(m, "waiting for the label", func() bool {
		return strings.Contains(conditions.GetMessage(m, infrav1.MachineDeployedCondition), clusterv1.WatchLabel)
	})
	w.patch(cluster, func() { cluster.Labels[clusterv1.WatchLabel] = "blue" })
	w.deployed(m)
	w.delete(m)
}
