// SPDX-License-Identifier: Apache-2.0

package maasmachine

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/life"
	"github.com/capmaas/cluster-api-provider-maas/test/allkinds"
)

// A provider ID proves an earlier deployment only together with the system id, which is recorded before it.
func TestBlocker(t *testing.T) {
	const providerID = "maas://zone-a/abc123"
	for name, tc := range map[string]struct {
		spec        infrav1.MaasMachineSpec
		provisioned bool // the cluster's infrastructure
		data        bool // the bootstrap provider made the user data
		want        string
	}{
		"the infrastructure":                         {want: infrav1.WaitingForClusterInfrastructureReason},
		"the user data":                              {provisioned: true, want: infrav1.WaitingForBootstrapDataReason},
		"nothing":                                    {provisioned: true, data: true},
		"nothing: it was deployed before a move":     {spec: infrav1.MaasMachineSpec{SystemID: "abc123", ProviderID: providerID}},
		"the user data, though it has a system id":   {spec: infrav1.MaasMachineSpec{SystemID: "abc123"}, provisioned: true, want: infrav1.WaitingForBootstrapDataReason},
		"the infrastructure, with a provider ID":     {spec: infrav1.MaasMachineSpec{ProviderID: providerID}, want: infrav1.WaitingForClusterInfrastructureReason},
		"the user data, though it has a provider ID": {spec: infrav1.MaasMachineSpec{ProviderID: providerID}, provisioned: true, want: infrav1.WaitingForBootstrapDataReason},
	} {
		t.Run(name, func(t *testing.T) {
			m := &owners{
				cluster: &clusterv1.Cluster{}, machine: &clusterv1.Machine{}, maasMachine: &infrav1.MaasMachine{Spec: tc.spec}, maasCluster: &infrav1.MaasCluster{},
			}
			m.maasCluster.Annotations = map[string]string{infrav1.OwnerIDAnnotation: "abcdefghijkl"}
			m.cluster.Status.Initialization.InfrastructureProvisioned = ptr.To(tc.provisioned)
			if tc.data {
				m.machine.Spec.Bootstrap.DataSecretName = ptr.To("data")
			}
			got := ""
			if waiting := blocker(m); waiting != nil {
				got = waiting.Reason
			}
			if got != tc.want {
				t.Errorf("it waits: %q, want %q", got, tc.want)
			}
		})
	}
}

// A Machine that was made again under its name gets a MaasMachine of its own: the former one's takes nothing for it.
func TestTheMaasMachineOfAFormerMachineWaits(t *testing.T) {
	again := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "m", UID: "again"}, Spec: clusterv1.MachineSpec{ClusterName: "c"}}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "c"}}
	r := &Reconciler{Steps: life.Steps{Base: reconciler.Base{Client: fake.NewClientBuilder().WithScheme(allkinds.Scheme()).WithObjects(again, cluster).Build()}}}
	for uid, want := range map[types.UID]bool{"again": true, "former": false} {
		m := &infrav1.MaasMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "m", OwnerReferences: ownedBy("Machine", "m", uid)}}
		got, err := r.owners(t.Context(), m)
		if err != nil || (got != nil) != want {
			t.Errorf("the owners of the MaasMachine of the Machine %s are %v: %v", uid, got, err)
		}
	}
}

// When its Cluster is gone, a MaasMachine is given back in the MAAS, and under the owner id, that it was asked for: whoever
// may write a label gets nothing of another cluster by it.
func TestTheMaasClusterOfAMaasMachineIsNotFoundByALabel(t *testing.T) {
	const ours, theirs = "abcdefghijkl", "mnopqrstuvwx"
	maasCluster := func(name, id string) *infrav1.MaasCluster {
		return &infrav1.MaasCluster{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID(name), OwnerReferences: ownedBy("Cluster", name, types.UID("of "+name)),
			Labels:      map[string]string{clusterv1.ClusterNameLabel: name},
			Annotations: map[string]string{infrav1.OwnerIDAnnotation: id},
		}}
	}
	their := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "theirs"}, Spec: clusterv1.ClusterSpec{
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "MaasCluster", Name: "theirs"},
	}}
	for name, tc := range map[string]struct {
		owners []client.Object
		label  string
		id     string // recorded
		want   string // the MaasCluster
	}{
		"as Cluster API finds it":                {label: "theirs", id: theirs, owners: []client.Object{their}, want: "theirs"},
		"its Cluster is gone":                    {label: "ours", id: ours, want: "ours"},
		"another cluster's label":                {label: "theirs", id: ours, owners: []client.Object{their}, want: "ours"},
		"the label of one whose Cluster is gone": {label: "theirs", id: ours, want: "ours"},
		"a label, and nothing was asked for":     {label: "theirs"},
		"an owner id that nobody has":            {label: "theirs", id: "000000000000"},
	} {
		t.Run(name, func(t *testing.T) {
			there := append([]client.Object{maasCluster("ours", ours), maasCluster("theirs", theirs)}, tc.owners...)
			c := fake.NewClientBuilder().WithScheme(allkinds.Scheme()).WithObjects(there...).Build()
			m := &infrav1.MaasMachine{ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: "m", DeletionTimestamp: new(metav1.Now()), Labels: map[string]string{clusterv1.ClusterNameLabel: tc.label},
			}}
			if tc.id != "" {
				m.Annotations = map[string]string{infrav1.OwnerIDAnnotation: tc.id}
			}
			got, err := (&Reconciler{Steps: life.Steps{Base: reconciler.Base{Client: c}}}).owners(t.Context(), m)
			if err != nil {
				t.Fatal(err)
			}
			if found := ptr.Deref(got.maasCluster, infrav1.MaasCluster{}); found.Name != tc.want || got.original != nil {
				t.Errorf("it is given back as a machine of %q, want %q", found.Name, tc.want)
			}
		})
	}
}
