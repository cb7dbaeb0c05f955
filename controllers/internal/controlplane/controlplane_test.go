// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/capmaas/cluster-api-provider-maas/test/allkinds"
)

// machine is a Machine of a control plane that is healthy, but for the changes.
func machine(change ...func(*clusterv1.Machine)) *clusterv1.Machine {
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
	m.Status.NodeRef.Name = "other"
	for _, condition := range append([]string{clusterv1.ReadyCondition}, MachineHealth...) {
		conditions.Set(m, metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: "Test"})
	}
	for _, c := range change {
		c(m)
	}
	return m
}

// A control plane works while more than half of its Machines do.
func TestQuorum(t *testing.T) {
	healthy := machine()
	joining := machine(func(m *clusterv1.Machine) { m.Status.NodeRef.Name = "" })
	sick := machine(func(m *clusterv1.Machine) {
		conditions.Set(m, metav1.Condition{Type: clusterv1.MachineHealthCheckSucceededCondition, Status: metav1.ConditionFalse, Reason: "Test"})
	})
	leaving := machine(func(m *clusterv1.Machine) { m.DeletionTimestamp = &metav1.Time{} })
	leaving.DeletionTimestamp.Time = leaving.CreationTimestamp.AddDate(1, 0, 0)
	off := machine(func(m *clusterv1.Machine) { m.Name = "off" })
	for name, tc := range map[string]struct {
		others []*clusterv1.Machine
		holds  bool
	}{
		"of two":                              {[]*clusterv1.Machine{healthy}, false},
		"of three":                            {[]*clusterv1.Machine{healthy, healthy}, true},
		"of three, another one is sick":       {[]*clusterv1.Machine{healthy, sick}, false},
		"of three, another one joins":         {[]*clusterv1.Machine{healthy, joining}, false},
		"of three, another one is off":        {[]*clusterv1.Machine{healthy, off}, false},
		"of five, another one is sick":        {[]*clusterv1.Machine{healthy, healthy, healthy, sick}, true},
		"of five, two others are sick or off": {[]*clusterv1.Machine{healthy, healthy, sick, off}, false},
		"of five, another one leaves":         {[]*clusterv1.Machine{healthy, healthy, healthy, leaving}, false},
	} {
		t.Run(name, func(t *testing.T) {
			why := quorum(tc.others, 1, func(m *clusterv1.Machine) bool { return m == off })
			if (why == "") != tc.holds {
				t.Errorf("the quorum holds: %v (%s), want %v", why == "", why, tc.holds)
			}
		})
	}
}

// That what makes a control plane can't be read says nothing of its health, so its quorum is not known.
func TestAControlPlaneThatCannotBeReadKeepsItsMachines(t *testing.T) {
	kind := schema.GroupResource{Group: controlplanev1.GroupVersion.Group, Resource: "kubeadmcontrolplanes"}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{controlplanev1.GroupVersion, clusterv1.GroupVersion})
	mapper.Add(controlplanev1.GroupVersion.WithKind("KubeadmControlPlane"), meta.RESTScopeNamespace)
	mapper.Add(clusterv1.GroupVersion.WithKind("Machine"), meta.RESTScopeNamespace)
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}}
	cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: kind.Group, Kind: "KubeadmControlPlane", Name: "cp"}
	var machines []client.Object
	for _, name := range []string{"a", "b", "c"} {
		m := machine()
		m.Namespace, m.Name, m.UID = "ns", name, types.UID(name)
		m.Labels = map[string]string{clusterv1.ClusterNameLabel: "c", clusterv1.MachineControlPlaneLabel: ""}
		machines = append(machines, m)
	}
	for name, tc := range map[string]struct {
		err   error
		named bool
		holds bool
	}{
		"it is there":           {nil, true, true},
		"it is not there":       {apierrors.NewNotFound(kind, "cp"), true, false},
		"it may not be read":    {apierrors.NewForbidden(kind, "cp", errors.New("no")), true, false},
		"its kind is not known": {&meta.NoKindMatchError{}, true, false},
		"there is none":         {nil, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientBuilder().WithScheme(allkinds.Scheme()).WithObjects(machines...).WithRESTMapper(mapper).WithInterceptorFuncs(interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
					if cp, is := o.(*unstructured.Unstructured); is && tc.err == nil {
						said := []any{map[string]any{"type": clusterv1.AvailableCondition, "status": "True", "reason": "Test"}}
						return unstructured.SetNestedSlice(cp.Object, said, "status", "conditions")
					}
					return tc.err
				},
			}).Build()
			cluster := cluster.DeepCopy()
			if !tc.named {
				cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{}
			}
			isFirst := func(m *clusterv1.Machine) bool { return m.Name == "a" }
			why, err := Quorum(t.Context(), c, c, cluster, "a", isFirst, func(*clusterv1.Machine) bool { return false })
			if err != nil || (why == "") != tc.holds {
				t.Errorf("the quorum holds: %v (%s), want %v: %v", why == "", why, tc.holds, err)
			}
		})
	}
}
