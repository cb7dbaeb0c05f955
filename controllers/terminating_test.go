// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/ipam"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// deleteNamespace deletes the namespace, and then objects in it, as Kubernetes does. From then on Kubernetes makes nothing there.
func (w *world) deleteNamespace(all ...client.Object) {
	w.t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}
	w.beginDeletion(namespace)
	w.nothingIsMade(all...)
}

// nothingIsMade deletes objects of a namespace once nothing can be made there.
func (w *world) nothingIsMade(all ...client.Object) {
	w.t.Helper()
	w.await("nothing is made in the namespace", w.cluster, func(ctx context.Context) bool {
		probe := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, GenerateName: "probe-"}}
		err := w.client.Create(ctx, probe)
		return apierrors.IsForbidden(err) || apierrors.IsInvalid(err)
	})
	for _, object := range all {
		if err := w.client.Delete(w.t.Context(), object); client.IgnoreNotFound(err) != nil {
			w.t.Fatal(err)
		}
	}
}

// Whatever a namespace has is given back when it is deleted: nothing of that makes an object.
func TestMachinesAreGivenBackWithTheirNamespace(t *testing.T) {
	t.Parallel()
	machine := func(name string, spec infrav1.MaasMachineSpec) func(*world) []client.Object {
		return func(w *world) []client.Object {
			m := w.deployedMachine(name, spec.IsLXD(), spec)
			return []client.Object{m}
		}
	}
	pooled := func(spec infrav1.MaasMachineSpec) func(*world) []client.Object {
		return func(w *world) []client.Object {
			w.servePools()
			pool := ipam.NewPool(w.namespace, "pool", "10.77.0.60")
			w.create(pool)
			m := w.deployedMachine("m", false, fromPool(spec, "pool"))
			return []client.Object{m, w.claim(m), pool}
		}
	}
	for name, tc := range map[string]struct {
		cluster func(*infrav1.MaasCluster)
		make    func(*world) []client.Object
	}{
		"bare metal":            {make: machine("m", withSpec(shapes["lvm"], func(s *infrav1.MaasMachineSpec) { s.Interfaces = bonded }))},
		"bare metal, address":   {make: machine("m", infrav1.MaasMachineSpec{StaticIP: "10.77.0.50"})},
		"bare metal, pool":      {make: pooled(infrav1.MaasMachineSpec{})},
		"a VM, pool":            {make: pooled(vm)},
		"a VM, in the endpoint": {make: machine("cp-0", vm)},
		"a VM, virtual IP":      {cluster: somewhere, make: machine("cp-0", vm)},
		"a remediation": {make: func(w *world) []client.Object {
			m := w.node("md-0", false, infrav1.MaasMachineSpec{})
			remediation := w.remedy("md-0")
			w.eventually(remediation, "begun", func() bool { return remediation.Status.Requests > 0 })
			return []client.Object{remediation, w.machineOf("md-0"), m}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			before := w.maas.State()
			cluster := w.newCluster(func(c *infrav1.MaasCluster) {
				if tc.cluster != nil {
					tc.cluster(c)
				}
			})
			w.provisioned(cluster)
			all := tc.make(w)
			goes := w.heldByClusterAPI()
			w.deleteNamespace(append(all, w.cluster, cluster)...)
			for _, object := range append(all, cluster) {
				w.goes(object)
			}
			goes()
			w.unchanged(before)
		})
	}
}

// heldByClusterAPI gives the Cluster the finalizer that Cluster API takes off when nothing of the Cluster is left: IPAM providers
// do nothing for a Cluster that is gone.
func (w *world) heldByClusterAPI() (goes func()) {
	w.t.Helper()
	finalizers := func(list string) {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"finalizers": `+list+`}}`))
		w.must(w.client.Patch(w.t.Context(), w.cluster.DeepCopy(), patch))
	}
	finalizers(`["` + clusterv1.ClusterFinalizer + `"]`)
	return func() {
		w.t.Helper()
		finalizers("null")
		w.goes(w.cluster)
	}
}

// Neither a quota nor a policy of others that lets nobody make anything in a namespace holds a deletion there.
func TestADeletionCreatesNoObject(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]func(*world){"quota": (*world).quotaOfZero, "policy": (*world).policyAgainstCreation} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			before := w.maas.State()
			cluster := w.provisionedCluster()
			all := withSpec(shapes["lvm"], func(s *infrav1.MaasMachineSpec) { s.Interfaces = bonded })
			metal, composed := w.newMachine("m", false, all), w.newMachine("cp-0", true, vm)
			w.deployed(metal)
			w.deployed(composed)
			refuse(w)
			w.nothingIsMade(metal, composed, w.cluster, cluster)
			for _, object := range []client.Object{metal, composed, cluster} {
				w.goes(object)
			}
			w.unchanged(before)
		})
	}
}

// quotaOfZero lets the namespace have no more objects than none. Nobody counts them here.
func (w *world) quotaOfZero() {
	w.t.Helper()
	hard, used := corev1.ResourceList{}, corev1.ResourceList{}
	for _, kind := range []corev1.ResourceName{
		"count/configmaps", "count/secrets", "count/events.events.k8s.io", "count/ipaddressclaims.ipam.cluster.x-k8s.io",
		"count/maasmachines.infrastructure.cluster.x-k8s.io", "count/maasclusters.infrastructure.cluster.x-k8s.io", "count/lxdhosts.infrastructure.cluster.x-k8s.io",
	} {
		hard[kind], used[kind] = resource.MustParse("0"), resource.MustParse("0")
	}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "zero"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}
	w.create(quota)
	quota.Status = corev1.ResourceQuotaStatus{Hard: hard, Used: used}
	w.must(w.client.Status().Update(w.t.Context(), quota))
}

// policyAgainstCreation refuses all that is to be made in the namespace.
func (w *world) policyAgainstCreation() {
	w.t.Helper()
	name := "no-creation-in-" + w.namespace
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: ptr.To(admissionv1.Fail),
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create},
					Rule:       admissionv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*"}, Scope: ptr.To(admissionv1.NamespacedScope)},
				},
			}}},
			Validations: []admissionv1.Validation{{Expression: "false"}},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			MatchResources: &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: w.namespace}}},
		},
	}
	for _, object := range []client.Object{policy, binding} {
		w.create(object)
		w.t.Cleanup(func() { _ = w.client.Delete(context.WithoutCancel(w.t.Context()), object) })
	}
}

// A server that waits is given back as it was, though its namespace is being deleted, also by a new manager, and if what it needs
// is lost on the way.
func TestAServerThatIsKeptIsGivenBackWithItsNamespace(t *testing.T) {
	t.Parallel()
	all := withSpec(shapes["lvm"], func(s *infrav1.MaasMachineSpec) { s.Interfaces = bonded })
	for name, tc := range map[string]struct {
		spec    infrav1.MaasMachineSpec
		restart bool
		fault   *simulator.Fault
	}{
		"plain":                {},
		"all that is undone":   {spec: all},
		"over a restart":       {spec: all, restart: true},
		"an address":           {spec: infrav1.MaasMachineSpec{StaticIP: "10.77.0.50"}, restart: true},
		"the release is lost":  {spec: all, fault: &simulator.Fault{Op: "release", DropBefore: true, First: 1}},
		"its response is lost": {spec: all, restart: true, fault: &simulator.Fault{Op: "release", DropAfter: true, First: 1}},
		"MAAS is gone":         {spec: all, fault: &simulator.Fault{Op: "release", Status: 503, First: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(w *world) { w.region = oneServer })
			before := w.maas.State()
			cluster := w.provisionedCluster()
			_, id := w.keepsServer(tc.spec)
			w.waits(cluster, id)
			if tc.fault != nil {
				w.fault(*tc.fault)
			}
			w.deleteNamespace(w.cluster, cluster)
			if tc.restart {
				w.restart()
			}
			w.goes(cluster)
			if now, _ := w.maas.Machine(id); now.Status != "Ready" || now.AgentName != "" {
				t.Errorf("the server is %s, agent name %q", now.Status, now.AgentName)
			}
			w.unchanged(before)
		})
	}
}

// A key that is changed while all is being deleted is followed: what is left is given back with it.
func TestAKeyThatIsChangedDuringADeletionIsFollowed(t *testing.T) {
	t.Parallel()
	for name, kept := range map[string]bool{"a server": false, "a server that is kept": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(w *world) { w.region = oneServer }, withTwoKeys)
			before := w.maas.State()
			cluster := w.provisionedCluster()
			var all []client.Object
			var id string
			if kept {
				_, id = w.keepsServer(infrav1.MaasMachineSpec{})
			} else {
				m := w.deployedMachine("m", false, infrav1.MaasMachineSpec{})
				all, id = append(all, m), m.Spec.SystemID
			}
			w.maasCall("POST", "machines/"+id+"/?op=lock", nil)
			w.deleteNamespace(append(all, w.cluster, cluster)...)
			w.eventually(cluster, "waiting", func() bool {
				return conditions.GetReason(cluster, infrav1.DNSReadyCondition) == infrav1.DeletingReason
			})
			w.setKey("admin2:token2:secret2")
			old := cluster.Annotations[infrav1.MAASAnnotation]
			w.eventually(cluster, "following", func() bool { return cluster.Annotations[infrav1.MAASAnnotation] != old })
			w.maasCall("POST", "machines/"+id+"/?op=unlock", nil)
			for _, object := range append(all, cluster) {
				w.goes(object)
			}
			w.unchanged(before)
		})
	}
}

// A MaasCluster says what giving a server back waits for, and the server goes nowhere until then.
func TestAServerThatCannotBeGivenBackYetIsToldOf(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) { w.region = oneServer })
	before := w.maas.State()
	cluster := w.provisionedCluster()
	_, id := w.keepsServer(infrav1.MaasMachineSpec{})
	w.maasCall("POST", "machines/"+id+"/?op=lock", nil)
	w.deleteNamespace(w.cluster, cluster)
	w.eventually(cluster, "told of", func() bool {
		return strings.Contains(conditions.GetMessage(cluster, infrav1.DNSReadyCondition), "locked")
	})
	w.maasCall("POST", "machines/"+id+"/?op=unlock", nil)
	w.goes(cluster)
	w.unchanged(before)
}

// The record of a MaasCluster has no room, in the eyes of Kubernetes or by a policy: the server is given back instead of being kept.
func TestAServerThatCannotBeKeptIsGivenBack(t *testing.T) {
	t.Parallel()
	const limit = 256 << 10
	for name, room := range map[string]int{"no room at all": 200, "little room": 40 << 10} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, cluster := clusterWorld(t, func(w *world) { w.region = contested })
			before := w.maas.State()
			m := w.deployedMachine("first", false, withKeep(infrav1.MaasMachineSpec{StaticIP: "10.77.0.50"}), of(w.deployment("md", 1)))
			w.fill(cluster, limit-room)
			w.delete(m)
			if n := w.keptIn(cluster); n != 0 {
				t.Errorf("%d servers are kept", n)
			}
			w.deleteCluster(cluster)
			w.unchanged(before)
		})
	}
}

// fill gives an object annotations of a size, as people can.
func (w *world) fill(object client.Object, size int) {
	w.t.Helper()
	w.must(w.client.Get(w.t.Context(), client.ObjectKeyFromObject(object), object))
	w.patch(object, func() {
		annotations := object.GetAnnotations()
		for key, value := range annotations {
			size -= len(key) + len(value)
		}
		annotations["filler"] = strings.Repeat("x", size-len("filler"))
		object.SetAnnotations(annotations)
	})
}

// Annotations that leave no room for the record stop no deletion.
func TestAnObjectFullOfAnnotationsIsDeleted(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]infrav1.MaasMachineSpec{
		"bare metal": withSpec(shapes["lvm"], func(s *infrav1.MaasMachineSpec) { s.Interfaces = bonded }),
		"a VM":       vm,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, cluster := clusterWorld(t)
			before := w.maas.State()
			m := w.deployedMachine("m", false, spec)
			w.fill(m, 256<<10)
			w.fill(cluster, 256<<10)
			w.delete(m)
			w.deleteCluster(cluster)
			w.unchanged(before)
		})
	}
}
