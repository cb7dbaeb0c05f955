// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
)

// A former VM host has VMs without marks, until they are adopted: the records of MaasMachines know of them.
func TestVMsThatMayBeOnAnLXDHost(t *testing.T) {
	host := &infrav1.LXDHost{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "lxd-a", Annotations: map[string]string{infrav1.MAASAnnotation: "maas-1"}}}
	host.Spec.VMHost = &infrav1.VMHostReference{ID: 7}
	direct := host.DeepCopy()
	direct.Spec.VMHost = nil
	there := &existing{homes: clusters.HomesOf([]infrav1.MaasCluster{homeOf("ns", "here", "maas-1"), homeOf("ns", "there", "maas-2"), homeOf("ns", "new", "")})}
	for name, tc := range map[string]struct {
		host            *infrav1.LXDHost
		cluster, record string
		want            bool
	}{
		"made there":                           {direct, "here", `{"hosts":["lxdhost:ns/lxd-a"]}`, true},
		"made on another host":                 {direct, "here", `{"hosts":["lxdhost:ns/lxd-b"]}`, false},
		"composed on the VM host":              {host, "here", `{"hosts":["7/lxd-a"]}`, true},
		"composed on the VM host with the id":  {host, "here", `{"hosts":["7/renamed"]}`, true},
		"composed on another VM host":          {host, "here", `{"hosts":["8/lxd-a"]}`, false},
		"composed in another MAAS":             {host, "there", `{"hosts":["7/lxd-a"]}`, false},
		"composed where there was no VM host":  {direct, "here", `{"hosts":["7/lxd-a"]}`, false},
		"with a record that can't be read":     {host, "here", `{`, true},
		"that has no record":                   {host, "here", ``, false},
		"of a cluster whose MAAS is not known": {host, "new", `{"hosts":["7/lxd-a"]}`, false},
		"of a MaasCluster that is not there":   {host, "gone", `{"hosts":["7/lxd-a"]}`, true},
		"of one, on another VM host":           {host, "gone", `{"hosts":["8/lxd-a"]}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := &infrav1.MaasMachine{ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: "m", Labels: map[string]string{clusterv1.ClusterNameLabel: tc.cluster},
				Annotations: map[string]string{infrav1.RecordAnnotation: tc.record},
			}}
			if got := mayBeOn(m, tc.host, there); got != tc.want {
				t.Errorf("it may be there: %t, want %t", got, tc.want)
			}
		})
	}
}

// What a MaasMachine, and its MaasCluster, have just recorded holds the LXDHost, whatever the cache has.
func TestAVMThatIsBeingMadeHoldsItsLXDHost(t *testing.T) {
	host := &infrav1.LXDHost{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "lxd-a"}}
	cached := &infrav1.MaasMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m"}}
	cached.Spec.ProvisioningMode = infrav1.ProvisioningModeLXD
	now := cached.DeepCopy()
	now.Annotations = map[string]string{infrav1.RecordAnnotation: `{"hosts":["lxdhost:ns/lxd-a"]}`}
	for text, there := range map[string]*infrav1.MaasMachine{"[ns/m]": now, "[]": cached} {
		r := reconcilerOf(t, cached)
		r.APIReader = reconcilerOf(t, there).Client
		if names, err := r.machinesOn(t.Context(), host); err != nil || fmt.Sprint(names) != text {
			t.Errorf("there may be VMs of %v, want %s: %v", names, text, err)
		}
	}
	labels, inMAAS := map[string]string{clusterv1.ClusterNameLabel: "c"}, map[string]string{infrav1.MAASAnnotation: "maas-1"}
	host.Annotations, host.Spec.VMHost = inMAAS, &infrav1.VMHostReference{ID: 7}
	composed := now.DeepCopy()
	composed.Labels, composed.Annotations = labels, map[string]string{infrav1.RecordAnnotation: `{"hosts":["7/lxd-a"]}`}
	cluster := &infrav1.MaasCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", Labels: labels}}
	r := reconcilerOf(t, composed, cluster)
	cluster.Annotations, cluster.ResourceVersion = inMAAS, ""
	r.APIReader = reconcilerOf(t, composed, cluster).Client
	if names, err := r.machinesOn(t.Context(), host); err != nil || len(names) != 1 {
		t.Errorf("there may be VMs of %v, want that of the cluster which has just recorded its MAAS: %v", names, err)
	}
}

// Whoever may write a MaasMachine writes its record. In a namespace that a host does not allow, it holds neither the LXDHost's
// deletion nor its rotation, unless LXD shows a VM of its Cluster.
func TestMaasMachinesOfOtherNamespacesHoldNoLXDHost(t *testing.T) {
	host := &infrav1.LXDHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: "infra", Name: "lxd-1"},
		Spec:       infrav1.LXDHostSpec{Address: "10.0.0.1", AllowedNamespaces: []string{"friends"}},
	}
	withVM := host.DeepCopy()
	withVM.Status.Clusters = []infrav1.LXDClusterVMs{{Cluster: "tenant/c", Count: 1}, {Cluster: "other/c", Count: 1}}
	formerVMHost := host.DeepCopy()
	formerVMHost.Spec.VMHost, formerVMHost.Spec.CredentialsRef = &infrav1.VMHostReference{ID: 7}, &infrav1.LocalObjectReference{Name: "lxd"}
	for name, tc := range map[string]struct {
		host              *infrav1.LXDHost
		namespace, record string
		want              bool
	}{
		"an unreadable record":                      {host, "tenant", "{", false},
		"a record that names the host":              {host, "tenant", `{"hosts":["lxdhost:infra/lxd-1"]}`, false},
		"a record that names the former VM host":    {formerVMHost, "tenant", `{"hosts":["7/lxd-1"]}`, false},
		"an unreadable record, of the host's own":   {host, "infra", "{", true},
		"a record of a namespace that is allowed":   {host, "friends", `{"hosts":["lxdhost:infra/lxd-1"]}`, true},
		"a namespace that was allowed, with VMs":    {withVM, "tenant", `{"hosts":["lxdhost:infra/lxd-1"]}`, true},
		"with VMs of another Cluster of its name":   {withVM, "elsewhere", `{"hosts":["lxdhost:infra/lxd-1"]}`, false},
		"a record of that namespace, on other host": {withVM, "tenant", `{"hosts":["lxdhost:infra/lxd-2"]}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := &infrav1.MaasMachine{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: tc.namespace, Name: "m", Labels: map[string]string{clusterv1.ClusterNameLabel: "c"},
					Annotations: map[string]string{infrav1.RecordAnnotation: tc.record},
				},
				Spec: infrav1.MaasMachineSpec{ProvisioningMode: infrav1.ProvisioningModeLXD, SystemID: "abc123"},
			}
			if got := mayBeOn(m, tc.host, &existing{}); got != tc.want {
				t.Errorf("it holds the LXDHost: %t, want %t", got, tc.want)
			}
		})
	}
}

// homeOf returns the MaasCluster of a Cluster, which records its MAAS.
func homeOf(namespace, cluster, where string) infrav1.MaasCluster {
	return infrav1.MaasCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: cluster,
		Labels: map[string]string{clusterv1.ClusterNameLabel: cluster}, Annotations: map[string]string{infrav1.MAASAnnotation: where},
	}}
}
