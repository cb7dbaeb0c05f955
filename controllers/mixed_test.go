// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// otherCluster makes a Cluster whose infrastructure and control plane are another provider's, as Cluster API has it when
// these are there.
func (w *world) otherCluster() {
	w.t.Helper()
	w.cluster = &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: clusterName, Namespace: w.namespace}, Spec: clusterv1.ClusterSpec{
		InfrastructureRef:    clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "DevCluster", Name: clusterName},
		ControlPlaneRef:      clusterv1.ContractVersionedObjectReference{APIGroup: "controlplane.cluster.x-k8s.io", Kind: "KubeadmControlPlane", Name: clusterName},
		ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: "api.example.com", Port: 6443},
	}}
	w.create(w.cluster)
	w.patchStatus(w.cluster, func() { w.cluster.Status.Initialization.InfrastructureProvisioned = ptr.To(true) })
}

// serving makes a MaasCluster that names the Cluster.
func (w *world) serving(name, secret string) *infrav1.MaasCluster {
	w.t.Helper()
	c := &infrav1.MaasCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace}, Spec: infrav1.MaasClusterSpec{
		ClusterName: clusterName, CredentialsRef: &infrav1.LocalObjectReference{Name: secret},
	}}
	w.create(c)
	return c
}

// ready waits until a MaasCluster can have machines.
func (w *world) ready(c *infrav1.MaasCluster) {
	w.t.Helper()
	w.eventually(c, "ready", func() bool {
		return ptr.Deref(c.Status.Initialization.Provisioned, false) && conditions.IsTrue(c, infrav1.ReadyCondition)
	})
}

// mixedWorld is newWorld, with a Cluster of another provider, and a MaasCluster for its workers.
func mixedWorld(t *testing.T, change ...func(*world)) (*world, *infrav1.MaasCluster) {
	t.Helper()
	w := newWorld(t, change...)
	w.otherCluster()
	c := w.serving("workers", "maas")
	w.ready(c)
	return w, c
}

// waitsForOwner waits until a MaasCluster says that nothing is done for it.
func (w *world) waitsForOwner(c *infrav1.MaasCluster) {
	w.t.Helper()
	w.eventually(c, "without an owner", func() bool {
		return conditions.GetReason(c, infrav1.ReadyCondition) == infrav1.WaitingForOwnerReason
	})
}

// Workers of a Cluster whose infrastructure and control plane are another provider's live as all others do.
func TestWorkersOfAnotherProvidersCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.serving("workers", "maas")
	w.waitsForOwner(c) // Its Cluster comes later.
	w.otherCluster()
	w.ready(c)
	if ref := c.OwnerReferences; len(ref) != 1 || ref[0].UID != w.cluster.UID || ref[0].Controller != nil || c.Labels[clusterv1.ClusterNameLabel] != clusterName {
		t.Errorf("it is owned by %+v, and has the labels %v", ref, c.Labels)
	}
	if c.Spec.ControlPlaneEndpoint.Host != "" || len(c.Status.FailureDomains) != 3 {
		t.Errorf("it has the endpoint %+v, and the zones %+v", c.Spec.ControlPlaneEndpoint, c.Status.FailureDomains)
	}
	before := w.maas.State()
	metal, one := w.deployedMachine("md-0", false, infrav1.MaasMachineSpec{}), w.deployedMachine("md-1", false, vm)
	for _, m := range []*infrav1.MaasMachine{metal, one} {
		w.hasIdentity(m, w.registersNode(m))
	}
	if n := w.recordWrites(); n != 0 {
		t.Errorf("MAAS's DNS was written %d times", n)
	}
	// A person who deletes it is told what it waits for.
	w.beginDeletion(c)
	w.eventually(c, "waiting for its machines", func() bool {
		return conditions.GetReason(c, infrav1.DNSReadyCondition) == infrav1.DeletingReason
	})
	w.delete(metal)
	w.delete(one)
	w.goes(c)
	w.noVMs()
	w.unchanged(before)
}

// Control planes are machines like others: the endpoint is not MAAS's business. Their failure domain, which is one of the
// other provider's, is used where it is a zone.
func TestControlPlanesOfAnotherProvidersCluster(t *testing.T) {
	t.Parallel()
	w, _ := mixedWorld(t)
	for domain, zone := range map[string]string{"fd4": "", "zone-b": "zone-b"} {
		m := w.newMachine("cp-"+domain, true, vm, func(meta *metav1.ObjectMeta) {
			meta.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
		})
		machine := w.machineOf(m.Name)
		w.patch(machine, func() { machine.Spec.FailureDomain = domain })
		w.annotate(m, clusterv1.PausedAnnotation, nil)
		w.deployed(m)
		if zone != "" && m.Status.FailureDomain != zone {
			t.Errorf("the control plane for %s is in zone %s", domain, m.Status.FailureDomain)
		}
	}
	if n := w.recordWrites(); n != 0 {
		t.Errorf("MAAS's DNS was written %d times", n)
	}
}

// Whatever is deleted first, MAAS gets everything back.
func TestAMixedClusterIsDeletedInAnyOrder(t *testing.T) {
	t.Parallel()
	for name, order := range map[string][]string{
		"the MaasCluster first":             {"maascluster", "machine", "cluster"},
		"the Cluster first":                 {"cluster", "machine", "maascluster"},
		"the Cluster, then the MaasCluster": {"cluster", "maascluster", "machine"},
		"the Secret first":                  {"secret", "machine", "maascluster", "cluster"},
		"the Machine's own Machine":         {"owner", "cluster", "maascluster", "machine"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, c := mixedWorld(t)
			m := w.deployedMachine("md-0", false, vm)
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "maas"}}
			all := map[string]client.Object{"maascluster": c, "machine": m, "cluster": w.cluster, "secret": secret, "owner": w.machineOf(m.Name)}
			for _, which := range order {
				w.beginDeletion(all[which])
			}
			w.goes(m)
			w.goes(c)
			if slices.Contains(order, "secret") {
				w.goes(secret)
			}
			w.noVMs()
		})
	}
}

// Two MAASes have machines of one Cluster.
func TestTwoMAASesHaveMachinesOfOneCluster(t *testing.T) {
	t.Parallel()
	w, a := mixedWorld(t, func(w *world) { w.meddles = "there are two MAASes" })
	first := w.maas
	w.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "maas-b", Namespace: w.namespace},
		StringData: map[string]string{"endpoint": w.startMAAS(), "apiKey": "admin:token:secret"},
	})
	second := w.maas
	early := w.deployedMachine("early", false, infrav1.MaasMachineSpec{})
	b := w.serving("workers-b", "maas-b")
	w.ready(b)
	anyOf := w.newMachine("any", false, vm)
	w.refusedWith(anyOf, infrav1.WaitingForClusterInfrastructureReason, "workers, workers-b", "maasClusterName")
	none := w.newMachine("none", false, infrav1.MaasMachineSpec{MaasClusterName: "workers-c"})
	w.refusedWith(none, infrav1.WaitingForClusterInfrastructureReason, "workers-c", "workers, workers-b")
	w.deployedMachine("in-b", false, infrav1.MaasMachineSpec{MaasClusterName: "workers-b"})
	inA := w.deployedMachine("in-a", false, infrav1.MaasMachineSpec{MaasClusterName: "workers"})
	owned := func(of *simulator.Simulator) (n int) {
		for _, m := range of.Machines() {
			if m.AgentName != "" {
				n++
			}
		}
		return n
	}
	if a, b := owned(first), owned(second); a != 2 || b != 1 {
		t.Errorf("the MAASes have %d and %d machines of the cluster, want 2 and 1", a, b)
	}
	// Each waits for its own machines alone.
	w.beginDeletion(a)
	w.delete(inA)
	w.delete(early)
	w.goes(a)
	w.deployed(anyOf) // b is the only one now.
	w.delete(none)
}

// A MaasCluster consents in its spec: what others write on it gives no Cluster its machines.
func TestALabelAndAnOwnerMakeNoMaasClusterServe(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.otherCluster()
	theirs := &infrav1.MaasCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "theirs", Namespace: w.namespace, Labels: map[string]string{clusterv1.ClusterNameLabel: clusterName}},
		Spec:       infrav1.MaasClusterSpec{ClusterName: "c2", CredentialsRef: &infrav1.LocalObjectReference{Name: "maas"}},
	}
	w.own(w.cluster, theirs)
	w.create(theirs)
	plain := &infrav1.MaasCluster{ObjectMeta: *theirs.ObjectMeta.DeepCopy(), Spec: infrav1.MaasClusterSpec{CredentialsRef: theirs.Spec.CredentialsRef}}
	plain.Name, plain.ResourceVersion, plain.UID = "plain", "", ""
	w.create(plain)
	w.waitsForOwner(theirs)
	m := w.newMachine("md-0", false, infrav1.MaasMachineSpec{})
	w.refusedWith(m, infrav1.WaitingForClusterInfrastructureReason, "DevCluster", "spec.clusterName "+clusterName)
	w.delete(m)
	w.delete(theirs)
	w.delete(plain)
}

// A Cluster that was made anew under its name does not get what the former one has in MAAS, and that is given back.
func TestAClusterThatWasMadeAnewInheritsNoMaasCluster(t *testing.T) {
	t.Parallel()
	w, c := mixedWorld(t)
	m := w.deployedMachine("md-0", false, vm)
	// Nothing is collected with the former Cluster, as when its dependents are orphaned.
	machine := w.machineOf(m.Name)
	w.patch(machine, func() { machine.OwnerReferences = nil })
	w.patch(c, func() { c.OwnerReferences = nil })
	w.delete(w.cluster)
	w.otherCluster()
	w.waitsForOwner(c)
	again := w.newMachine("md-1", false, vm)
	w.refusedWith(again, infrav1.WaitingForClusterInfrastructureReason, "MaasCluster workers does not belong to Cluster "+clusterName)
	w.beginDeletion(c)
	w.delete(m)
	w.goes(c) // What waits for another one does not keep it.
	w.noVMs()
	w.ready(w.serving("workers", "maas"))
	w.deployed(again)
	// A person who knows that it is the same says so with the owner.
	c = &infrav1.MaasCluster{ObjectMeta: metav1.ObjectMeta{Name: "workers", Namespace: w.namespace}}
	w.must(w.client.Get(t.Context(), client.ObjectKeyFromObject(c), c))
	w.patch(c, func() { c.OwnerReferences = nil })
	w.waitsForOwner(c)
	w.patch(c, func() { w.own(w.cluster, c) })
	w.ready(c)
}

// A MaasCluster and its machines are paused with their Cluster, and can be moved then.
func TestAMaasClusterIsPausedWithTheClusterThatItServes(t *testing.T) {
	t.Parallel()
	w, c := mixedWorld(t)
	m := w.deployedMachine("md-0", false, vm)
	w.setPaused(c, true, m)
	w.eventually(c, "free to be moved", func() bool { return !blocksMove(c) })
	w.setPaused(c, false, m)
	w.eventually(c, "not to be moved", func() bool { return blocksMove(c) })
}

// A machine of choice that was never asked for goes, though it has no MaasCluster.
func TestAMachineOfChoiceWithoutAMaasClusterGoes(t *testing.T) {
	t.Parallel()
	w, _ := mixedWorld(t)
	before := w.maas.State()
	m := w.newMachine("md-0", false, infrav1.MaasMachineSpec{SystemID: "abc123", MaasClusterName: "other"})
	w.refusedWith(m, infrav1.WaitingForClusterInfrastructureReason, "spec.maasClusterName is other")
	w.delete(m)
	w.unchanged(before)
}
