// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
)

// A VM is on the host that its machine records, whatever is called as its status says.
func TestTheHostOfAVM(t *testing.T) {
	t.Parallel()
	direct := func(namespace, name string, vmHost int) lxd.Host {
		return lxd.Host{Name: name, Object: &lxd.HostObject{Namespace: namespace, Name: name, Direct: true, VMHostID: vmHost}}
	}
	v := &view{hosts: []lxd.Host{
		direct("team-a", "lxd-a", 0), direct("team-b", "lxd-a", 0), direct("infra", "lxd-c", 7), {ID: 3, Name: "lxd-a"}, {ID: 4, Name: "lxd-d"},
	}}
	for name, tc := range map[string]struct {
		named, record string
		want          int // which host; -1: none that is known
	}{
		"a direct host":                        {"lxd-a", `{"hosts":["lxdhost:team-a/lxd-a"]}`, 0},
		"another one of its name":              {"lxd-a", `{"hosts":["lxdhost:team-b/lxd-a"]}`, 1},
		"where it runs, and one may have made": {"lxd-a", `{"hosts":["lxdhost:team-a/lxd-a","lxdhost:team-b/lxd-a"],"runs":"lxdhost:team-b/lxd-a"}`, 1},
		"what was a VM host with another name": {"LXD_C", `{"hosts":["7/LXD_C"]}`, 2},
		"a VM host":                            {"lxd-a", `{"hosts":["3/lxd-a"]}`, 3},
		"the one of two that the status names": {"lxd-a", `{"hosts":["3/lxd-a","4/lxd-d"]}`, 3},
		"the last of two":                      {"renamed", `{"hosts":["3/lxd-a","4/lxd-d"]}`, 4},
		"one that is gone":                     {"lxd-a", `{"hosts":["5/lxd-a"]}`, -1},
		"nothing is recorded":                  {"lxd-d", "", 4},
		"its name alone is":                    {"lxd-d", `{"hosts":["0/lxd-d"]}`, 4},
		"nothing that can be read is":          {"lxd-d", "{", 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &infrav1.MaasMachine{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{infrav1.RecordAnnotation: tc.record}}}
			m.Status.LXDHost = tc.named
			got := -1
			for at := range v.hosts {
				if v.hostOf(m) == &v.hosts[at] {
					got = at
				}
			}
			if got != tc.want {
				t.Errorf("it is on host %d, want %d", got, tc.want)
			}
		})
	}
}
