// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
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
		if _, is := MaasClusterKey(cluster); is != tc.cluster || (len(Requests(cluster)) == 1) != tc.cluster {
			t.Errorf("%s of %q is a MaasCluster: %v, %v", tc.kind, tc.group, is, Requests(cluster))
		}
		if p := OtherInfrastructure(cluster); (p != nil) != (tc.kind != "" && !tc.cluster) {
			t.Errorf("%s of %q is another infrastructure: %v", tc.kind, tc.group, p)
		}
		if _, is := MaasMachineKey(&clusterv1.Machine{Spec: clusterv1.MachineSpec{InfrastructureRef: ref}}); is != tc.machine {
			t.Errorf("%s of %q is a MaasMachine: %v", tc.kind, tc.group, is)
		}
	}
}

func TestReferencesToTemplates(t *testing.T) {
	for name, tc := range map[string]struct {
		ref  map[string]string
		want string
	}{
		"by group":         {map[string]string{"apiGroup": ourGroup, "kind": "MaasMachineTemplate", "name": "a"}, "a"},
		"by version":       {map[string]string{"apiVersion": ourGroup + "/v1beta1", "kind": "MaasMachineTemplate", "name": "a"}, "a"},
		"another group":    {map[string]string{"apiGroup": otherGroup, "kind": "MaasMachineTemplate", "name": "a"}, ""},
		"in another's":     {map[string]string{"apiVersion": otherGroup + "/v1", "kind": "MaasMachineTemplate", "name": "a"}, ""},
		"another kind":     {map[string]string{"apiGroup": ourGroup, "kind": "DockerMachineTemplate", "name": "a"}, ""},
		"a broken version": {map[string]string{"apiVersion": "a/b/c", "kind": "MaasMachineTemplate", "name": "a"}, ""},
		"no reference":     {nil, ""},
	} {
		if got := MachineTemplate(tc.ref); got != tc.want {
			t.Errorf("%s: the template is %q, want %q", name, got, tc.want)
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
