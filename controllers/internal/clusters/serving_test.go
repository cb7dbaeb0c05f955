// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"errors"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/test/allkinds"
)

// serving is a MaasCluster of namespace ns: change makes it one that serves a Cluster.
func serving(name string, change ...func(*infrav1.MaasCluster)) *infrav1.MaasCluster {
	m := &infrav1.MaasCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name),
		Annotations: map[string]string{infrav1.OwnerIDAnnotation: "id-" + name},
	}}
	for _, c := range change {
		c(m)
	}
	return m
}

func names(cluster string) func(*infrav1.MaasCluster) {
	return func(m *infrav1.MaasCluster) { m.Spec.ClusterName = cluster }
}

func ownedBy(cluster string, uid types.UID) func(*infrav1.MaasCluster) {
	return func(m *infrav1.MaasCluster) {
		m.Labels = map[string]string{clusterv1.ClusterNameLabel: cluster}
		m.OwnerReferences = append(m.OwnerReferences, metav1.OwnerReference{
			APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: cluster, UID: uid,
		})
	}
}

// serves is a MaasCluster that names c1, and that c1 owns.
func serves(name string, change ...func(*infrav1.MaasCluster)) *infrav1.MaasCluster {
	return serving(name, append([]func(*infrav1.MaasCluster){names("c1"), ownedBy("c1", "now")}, change...)...)
}

// A MaasCluster says itself which Cluster's machines it serves: no label, no owner, and nobody else's word decides.
func TestWhichMaasClusterAMachineIsOf(t *testing.T) {
	copied := func(m *infrav1.MaasCluster) { m.Annotations[infrav1.OwnerIDAnnotation] = "id-a" }
	newer := func(m *infrav1.MaasCluster) { m.CreationTimestamp = metav1.Unix(1, 0) }
	elsewhere := func(m *infrav1.MaasCluster) { m.Namespace = "other" }
	for name, tc := range map[string]struct {
		infrastructure string // the MaasCluster that is the Cluster's; "": another provider's
		there          []*infrav1.MaasCluster
		wants, asked   string // spec.maasClusterName, and the owner id that is recorded
		controlPlane   bool
		want           string // "": it waits
		gone           bool
	}{
		"the only one":                             {there: []*infrav1.MaasCluster{serves("a")}, want: "a"},
		"none":                                     {},
		"of another Cluster":                       {there: []*infrav1.MaasCluster{serving("a", names("c2"), ownedBy("c2", "c2"))}},
		"in another namespace":                     {there: []*infrav1.MaasCluster{serves("a", elsewhere)}},
		"a forged label and owner":                 {there: []*infrav1.MaasCluster{serving("a", ownedBy("c1", "now"))}},
		"a forged owner of another's":              {there: []*infrav1.MaasCluster{serving("a", names("c2"), ownedBy("c1", "now"))}},
		"not joined yet":                           {there: []*infrav1.MaasCluster{serving("a", names("c1"))}},
		"of a former Cluster":                      {there: []*infrav1.MaasCluster{serving("a", names("c1"), ownedBy("c1", "then"))}},
		"one of several":                           {there: []*infrav1.MaasCluster{serves("a"), serves("b")}},
		"the named one":                            {there: []*infrav1.MaasCluster{serves("a"), serves("b")}, wants: "b", want: "b"},
		"a named one that is not there":            {there: []*infrav1.MaasCluster{serves("a")}, wants: "b"},
		"a named one of another Cluster":           {there: []*infrav1.MaasCluster{serves("a"), serving("b", names("c2"))}, wants: "b"},
		"the one that was asked":                   {there: []*infrav1.MaasCluster{serves("a"), serves("b")}, asked: "id-b", want: "b"},
		"the original of a copy":                   {there: []*infrav1.MaasCluster{serves("a"), serves("b", copied, newer)}, asked: "id-a", want: "a"},
		"an owner id that is not there any more":   {there: []*infrav1.MaasCluster{serves("a")}, asked: "id-x", want: "a"},
		"the infrastructure":                       {infrastructure: "own", there: []*infrav1.MaasCluster{serving("own")}, want: "own"},
		"the infrastructure, beside another":       {infrastructure: "own", there: []*infrav1.MaasCluster{serving("own"), serves("a")}, want: "own"},
		"the infrastructure by its name":           {infrastructure: "own", there: []*infrav1.MaasCluster{serving("own"), serves("a")}, wants: "own", want: "own"},
		"beside the infrastructure":                {infrastructure: "own", there: []*infrav1.MaasCluster{serving("own"), serves("a")}, wants: "a", want: "a"},
		"a control plane beside it":                {infrastructure: "own", there: []*infrav1.MaasCluster{serving("own"), serves("a")}, wants: "a", controlPlane: true},
		"a control plane of the infrastructure":    {infrastructure: "own", there: []*infrav1.MaasCluster{serving("own"), serves("a")}, controlPlane: true, want: "own"},
		"a control plane in another provider's":    {there: []*infrav1.MaasCluster{serves("a")}, controlPlane: true, want: "a"},
		"the infrastructure is gone":               {infrastructure: "own", gone: true},
		"the infrastructure is gone, another not":  {infrastructure: "own", there: []*infrav1.MaasCluster{serves("a")}, gone: true},
		"the infrastructure, with a changed owner": {infrastructure: "own", there: []*infrav1.MaasCluster{serving("own")}, asked: "id-x", want: "own"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c1", UID: "now"}}
			cluster.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: otherGroup, Kind: "DevCluster", Name: "c1"}
			if tc.infrastructure != "" {
				cluster.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: ourGroup, Kind: "MaasCluster", Name: tc.infrastructure}
			}
			builder := fake.NewClientBuilder().WithScheme(allkinds.Scheme())
			for _, m := range tc.there {
				builder.WithObjects(m)
			}
			m := &infrav1.MaasMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m", Labels: map[string]string{clusterv1.ClusterNameLabel: "c1"}}}
			m.Spec.MaasClusterName = tc.wants
			if tc.asked != "" {
				m.Annotations = map[string]string{infrav1.OwnerIDAnnotation: tc.asked}
			}
			if tc.controlPlane {
				m.Labels[clusterv1.MachineControlPlaneLabel] = ""
			}
			found, err := MaasClusterOf(t.Context(), builder.Build(), cluster, m)
			var waits *report.NotReadyError
			switch {
			case tc.gone:
				if !apierrors.IsNotFound(err) {
					t.Errorf("it is of %v: %v", found, err)
				}
			case tc.want == "":
				if !errors.As(err, &waits) || waits.Message == "" || waits.RetryAfter == 0 {
					t.Errorf("it is of %v: %v", found, err)
				}
			case err != nil || found.Name != tc.want:
				t.Errorf("it is of %v, want %s: %v", found, tc.want, err)
			}
		})
	}
}

// Each machine is counted by one MaasCluster, so that none is kept by the machines of another one.
func TestMachinesOfAMaasCluster(t *testing.T) {
	machine := func(name, wants, asked string) *infrav1.MaasMachine {
		m := &infrav1.MaasMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: "c1"}}}
		m.Spec.MaasClusterName = wants
		if asked != "" {
			m.Annotations = map[string]string{infrav1.OwnerIDAnnotation: asked}
		}
		return m
	}
	machines := []client.Object{machine("unset", "", ""), machine("named-a", "a", ""), machine("of-b", "", "id-b")}
	a, b := serves("a"), serves("b")
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c1", UID: "now"}}
	gone := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c1"}}
	anew := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c1", UID: "anew"}}
	for name, tc := range map[string]struct {
		cluster *clusterv1.Cluster
		of      *infrav1.MaasCluster
		also    []client.Object
		want    []string
	}{
		"one of two":                           {cluster, a, []client.Object{b}, []string{"named-a"}},
		"the other":                            {cluster, b, []client.Object{a}, []string{"of-b"}},
		"the only one":                         {cluster, a, nil, []string{"named-a", "of-b", "unset"}},
		"its Cluster is gone":                  {gone, b, nil, []string{"of-b"}},
		"its Cluster was made anew":            {anew, a, []client.Object{b}, nil},
		"infrastructure whose Cluster is gone": {gone, serving("own", ownedBy("c1", "now")), []client.Object{b}, []string{"named-a", "unset"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := fake.NewClientBuilder().WithScheme(allkinds.Scheme()).WithObjects(machines...).WithObjects(tc.also...).WithObjects(tc.of).Build()
			found, err := MachinesOf(t.Context(), c, tc.cluster, tc.of)
			if err != nil {
				t.Fatal(err)
			}
			got := list.Each(found, func(m infrav1.MaasMachine) string { return m.Name })
			if !slices.Equal(got, tc.want) {
				t.Errorf("it has %v, want %v", got, tc.want)
			}
		})
	}
}
