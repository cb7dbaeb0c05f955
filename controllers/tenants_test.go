// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
)

// withTenant gives the manager a second namespace, which is another user's.
func withTenant(w *world) { w.second, w.hostInterval = w.namespace+"-tenant", readOften }

// rounds waits until the mirror has made some rounds: the LXDHost of another VM host was deleted, and is back.
func (w *world) rounds(n int) {
	w.t.Helper()
	for range n {
		witness := w.lxdHost(w.hostName("lxd-b"))
		w.hostSays(witness, infrav1.ReadyCondition, metav1.ConditionTrue, infrav1.ReadyReason)
		before := witness.UID
		w.beginDeletion(witness)
		w.await("the mirror has made another round", witness, func(ctx context.Context) bool {
			witness = w.lxdHost(w.hostName("lxd-b"))
			return w.client.Get(ctx, client.ObjectKeyFromObject(witness), witness) == nil && witness.UID != before
		})
	}
}

// staysInPlace checks that an LXDHost is the same after some rounds, and that there is none of its name in another namespace.
func (w *world) staysInPlace(host *infrav1.LXDHost, elsewhere string) {
	w.t.Helper()
	w.rounds(3)
	now, stolen := w.lxdHost(host.Name), &infrav1.LXDHost{}
	if err := w.client.Get(w.t.Context(), client.ObjectKeyFromObject(now), now); err != nil || now.UID != host.UID {
		w.t.Errorf("LXDHost %s/%s is no longer the same: %v", host.Namespace, host.Name, err)
	}
	if err := w.client.Get(w.t.Context(), client.ObjectKey{Namespace: elsewhere, Name: host.Name}, stolen); err == nil {
		w.t.Errorf("namespace %s has LXDHost %s (%+v) of MAAS %s", elsewhere, stolen.Name, stolen.Spec.VMHost, stolen.Annotations[infrav1.MAASAnnotation])
	}
}

// Whatever the objects of a tenant say, the LXDHost of another user's VM host stays where it is: also with the right to write
// status. Nothing of the tenant's is reconciled here, which has no credentials of this MAAS.
func TestATenantWhoClaimsAVMHostGetsNoLXDHost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withTenant)
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.second}})
	w.provisionedCluster()
	theirs := w.lxdHost(w.hostName("lxd-a"))
	w.hostSays(theirs, infrav1.ReadyCondition, metav1.ConditionTrue, infrav1.ReadyReason)
	labels := map[string]string{clusterv1.ClusterNameLabel: "evil"}
	w.create(&infrav1.MaasCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "evil", Namespace: w.second, Labels: labels, Annotations: map[string]string{
			infrav1.MAASAnnotation: theirs.Annotations[infrav1.MAASAnnotation] + "#00000000", infrav1.OwnerIDAnnotation: "abcdefghijkl",
		}},
		Spec: infrav1.MaasClusterSpec{DNSDomain: "maas.sim", CredentialsRef: &infrav1.LocalObjectReference{Name: "none"}},
	})
	claim := &infrav1.MaasMachine{
		ObjectMeta: metav1.ObjectMeta{Name: "evil-0", Namespace: w.second, Labels: labels},
		Spec:       infrav1.MaasMachineSpec{Image: "ubuntu/jammy", SystemID: theirs.Spec.VMHost.SystemID},
	}
	w.create(claim)
	w.patchStatus(claim, func() {
		conditions.Set(claim, metav1.Condition{Type: infrav1.MachineDeployedCondition, Status: metav1.ConditionTrue, Reason: "Deployed"})
	})
	w.staysInPlace(theirs, w.second)
	w.deployedMachine("vm-1", false, infrav1.MaasMachineSpec{ProvisioningMode: infrav1.ProvisioningModeLXD, FailureDomain: "zone-a"})
}

// A server of the tenant's shows the machine of the VM host, the VM host itself, and whatever proves it.
func TestATenantWithAMAASThatShowsAVMHostGetsNoLXDHostOfIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withTenant)
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.second}})
	w.provisionedCluster()
	theirs := w.lxdHost(w.hostName("lxd-a"))
	w.hostSays(theirs, infrav1.ReadyCondition, metav1.ConditionTrue, infrav1.ReadyReason)

	w.meddles = "the tenant's namespace has another MAAS than the one that is followed"
	evil := *w
	evil.namespace = w.second
	evil.region, _, _ = strings.Cut(strings.Replace(evil.region, "vm_hosts:", "  - {names: [metal-c], zone: zone-c, cores: 8, memory: 16384, disks: [100]}\nunused:", 1), "unused:")
	evil.maasURL = evil.startMAAS()
	evil.createCredentials()
	if id := evil.named("metal-c"); id != theirs.Spec.VMHost.SystemID {
		t.Fatalf("the simulator gave the tenant's machine the id %s, and not %s", id, theirs.Spec.VMHost.SystemID)
	}
	cluster := evil.newCluster()
	evil.provisioned(cluster)
	claim := evil.newMachine("evil-0", false, infrav1.MaasMachineSpec{SystemID: theirs.Spec.VMHost.SystemID})
	evil.deployed(claim)
	evil.patch(evil.cluster, func() { paused := true; evil.cluster.Spec.Paused = &paused })
	for _, object := range []interface {
		client.Object
		conditions.Getter
	}{cluster, claim} {
		evil.eventually(object, "paused", func() bool { return conditions.IsTrue(object, clusterv1.PausedCondition) })
	}
	evil.patch(cluster, func() {
		cluster.Annotations[infrav1.MAASAnnotation] = theirs.Annotations[infrav1.MAASAnnotation] + "#00000000"
	})
	w.staysInPlace(theirs, w.second)
}

// Only the object that the mirror made in its place says whether VMs are placed on a VM host. The policies of the chart keep
// tenants from writing such objects; here they are there all the same.
func TestAnotherLXDHostOfAVMHostDoesNotCount(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withTenant)
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.second}})
	w.provisionedCluster()
	theirs := w.lxdHost(w.hostName("lxd-a"))
	w.hostSays(theirs, infrav1.ReadyCondition, metav1.ConditionTrue, infrav1.ReadyReason)
	for i := range 9 {
		w.create(&infrav1.LXDHost{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.second, Name: fmt.Sprintf("a-forged-%d", i), Annotations: map[string]string{
				infrav1.MAASAnnotation: theirs.Annotations[infrav1.MAASAnnotation], clusterv1.PausedAnnotation: "",
			}},
			Spec: infrav1.LXDHostSpec{VMHost: theirs.Spec.VMHost.DeepCopy(), Unschedulable: true},
		})
	}
	w.rounds(2)
	for range 40 {
		for _, region := range w.scopes.Regions() {
			hosts, err := region.Machines.LXD().GetAvailableLXDHosts(t.Context(), lxd.VMSpec{Namespace: w.namespace})
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range hosts {
				if h.Name == "lxd-a" && (h.Object == nil || h.Object.Namespace != w.namespace) {
					t.Fatalf("the LXDHost of VM host lxd-a is %+v", h.Object)
				}
			}
		}
	}
}
