// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/allkinds"
)

const (
	ourGroup   = "infrastructure.cluster.x-k8s.io"
	otherGroup = "infrastructure.example.com"
)

// A name means nothing without its kind and group.
func TestReferences(t *testing.T) {
	for _, tc := range []struct {
		group, kind string
		cluster     bool
		machine     bool
	}{
		{group: ourGroup, kind: "MaasCluster", cluster: true},
		{group: ourGroup, kind: "MaasMachine", machine: true},
		{group: otherGroup, kind: "MaasCluster"},
		{group: otherGroup, kind: "MaasMachine"},
		{group: ourGroup, kind: "DockerCluster"},
		{},
	} {
		ref := clusterv1.ContractVersionedObjectReference{APIGroup: tc.group, Kind: tc.kind, Name: tc.kind}
		cluster := &clusterv1.Cluster{Spec: clusterv1.ClusterSpec{InfrastructureRef: ref}}
		c := fake.NewClientBuilder().WithScheme(allkinds.Scheme()).Build()
		if _, is := MaasClusterKey(cluster); is != tc.cluster || (len(Requests(t.Context(), c, cluster)) == 1) != tc.cluster {
			t.Errorf("%s of %q is a MaasCluster: %v", tc.kind, tc.group, is)
		}
		if _, is := MaasMachineKey(&clusterv1.Machine{Spec: clusterv1.MachineSpec{InfrastructureRef: ref}}); is != tc.machine {
			t.Errorf("%s of %q is a MaasMachine: %v", tc.kind, tc.group, is)
		}
	}
}

// Other projects have a kind Cluster as well.
func TestOwnersAreClusterAPIs(t *testing.T) {
	object := &metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "postgresql.cnpg.io/v1", Kind: "Cluster", Name: "a"},
		{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Machine", Name: "b"},
		{APIVersion: "cluster.x-k8s.io/v1beta1", Kind: "Cluster", Name: "c"},
	}}
	if got := OwnerName(object, "Cluster"); got != "c" {
		t.Errorf("the owner is %q", got)
	}
}

// An object that was made again under a name is not the owner that the former one was.
func TestAnOwnerIsTheObjectThatTheReferenceWasMadeFor(t *testing.T) {
	named := metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "now"}
	c := fake.NewClientBuilder().WithScheme(allkinds.Scheme()).WithObjects(&clusterv1.Machine{ObjectMeta: named}, &clusterv1.Cluster{ObjectMeta: named}).Build()
	for name, tc := range map[string]struct {
		group, owner string
		uid          types.UID
		is, gone     bool
	}{
		"it":               {group: clusterv1.GroupVersion.String(), owner: "a", uid: "now", is: true},
		"another version":  {group: clusterv1.GroupVersion.Group + "/v1beta1", owner: "a", uid: "now", is: true},
		"a former one":     {group: clusterv1.GroupVersion.String(), owner: "a", uid: "then", gone: true},
		"one that is gone": {group: clusterv1.GroupVersion.String(), owner: "b", uid: "b", gone: true},
		"of another group": {group: otherGroup + "/v1", owner: "a", uid: "now"},
	} {
		t.Run(name, func(t *testing.T) {
			object := &infrav1.MaasMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m", OwnerReferences: []metav1.OwnerReference{
				{APIVersion: tc.group, Kind: "Machine", Name: tc.owner, UID: tc.uid}, {APIVersion: tc.group, Kind: "Cluster", Name: tc.owner, UID: tc.uid},
			}}}
			machine, err := OwnerMachine(t.Context(), c, object)
			if (machine != nil) != tc.is || apierrors.IsNotFound(err) != tc.gone {
				t.Errorf("the Machine is %v: %v", machine, err)
			}
			cluster, err := OwnerCluster(t.Context(), c, object)
			if (cluster != nil) != tc.is || apierrors.IsNotFound(err) != tc.gone {
				t.Errorf("the Cluster is %v: %v", cluster, err)
			}
			if is := IsOwnedBy(object, MachineKind, &named); is != tc.is {
				t.Errorf("the Machine owns it: %v", is)
			}
		})
	}
}
