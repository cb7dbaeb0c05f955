// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// A VM counts on the VM host that its machine records, whatever has that host's name.
func TestVMsAreCountedOnTheirVMHost(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		named, record string
		want          bool
	}{
		"made there":                   {"lxd-a", `{"hosts":["7/lxd-a"]}`, true},
		"made there, with another too": {"lxd-a", `{"hosts":["7/lxd-a","8/lxd-b"]}`, true},
		"the host was renamed since":   {"lxd-a", `{"hosts":["7/former"]}`, true},
		"on a direct host of its name": {"lxd-a", `{"hosts":["lxdhost:team/lxd-a"],"runs":"lxdhost:team/lxd-a"}`, false},
		"on a VM host that had it":     {"lxd-a", `{"hosts":["8/lxd-a"]}`, false},
		"it has none yet":              {"", `{"hosts":["7/lxd-a"]}`, false},
		"nothing is recorded":          {"lxd-a", "", true},
		"its name alone is":            {"lxd-a", `{"hosts":["0/lxd-a"]}`, true},
		"nothing that can be read is":  {"lxd-a", "{", true},
		"nothing, and it is elsewhere": {"lxd-b", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &infrav1.MaasMachine{ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: "m", Labels: map[string]string{clusterv1.ClusterNameLabel: "c"},
				Annotations: map[string]string{infrav1.RecordAnnotation: tc.record},
			}}
			m.Spec.ProvisioningMode, m.Status.LXDHost = infrav1.ProvisioningModeLXD, tc.named
			there, err := readObjects(t.Context(), reconcilerOf(t, m).Client)
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]int32{}
			if tc.want {
				want["ns/c"] = 1
			}
			if diff := cmp.Diff(want, there.counts(&sighting{VMHost: maas.VMHost{ID: 7, Name: "lxd-a"}})); diff != "" {
				t.Errorf("the VMs by cluster differ (-want +got):\n%s", diff)
			}
		})
	}
}
