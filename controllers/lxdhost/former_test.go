// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// A former VM host has VMs without marks, until they are adopted: the records of MaasMachines know of them.
func TestVMsThatMayBeOnAnLXDHost(t *testing.T) {
	host := &infrav1.LXDHost{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "lxd-a", Annotations: map[string]string{infrav1.MAASAnnotation: "maas-1"}}}
	host.Spec.VMHost = &infrav1.VMHostReference{ID: 7}
	direct := host.DeepCopy()
	direct.Spec.VMHost = nil
	there := &existing{homes: map[client.ObjectKey]string{{Namespace: "ns", Name: "here"}: "maas-1", {Namespace: "ns", Name: "there"}: "maas-2"}}
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
		"of a cluster whose MAAS is not known": {host, "new", `{"hosts":["7/lxd-a"]}`, true},
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
