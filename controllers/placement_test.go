// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// vmWith returns a spec of a VM with an lxdConfig.
func vmWith(config infrav1.LXDMachineConfig) infrav1.MaasMachineSpec {
	return withSpec(vm, func(s *infrav1.MaasMachineSpec) { s.LXDConfig = &config })
}

func TestHostsThatCannotTakeAVMAreNotAskedTo(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		spec infrav1.MaasMachineSpec
		prep func(*world)
		text string
	}{
		"without the bridge": {
			vmWith(infrav1.LXDMachineConfig{Network: infrav1.LXDNetwork{Bridge: "nosuch"}}), func(*world) {}, "3 without bridge nosuch (lxd-a, lxd-b, lxd-c)",
		},
		"not in the subnet": {
			vmWith(infrav1.LXDMachineConfig{Network: infrav1.LXDNetwork{Devices: []infrav1.LXDNetworkDevice{{Name: "eth0", Subnet: "10.99.0.0/24"}}}}),
			func(*world) {}, "3 without an address in subnet 10.99.0.0/24 (lxd-a, lxd-b, lxd-c)",
		},
		"on machines without power": {
			withSpec(vm, func(s *infrav1.MaasMachineSpec) { s.FailureDomain = "zone-b" }),
			func(w *world) {
				w.maasCall(http.MethodPost, "machines/"+w.hostMachine("lxd-b")+"/?op=power_off", url.Values{})
			}, "1 on a machine that is powered off (lxd-b)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.provisioned(w.newCluster())
			tc.prep(w)
			m := w.newMachine("m", true, tc.spec)
			w.refused(m, infrav1.LXDHostSelectedCondition, infrav1.NoHostAvailableReason)
			if got := conditions.GetMessage(m, infrav1.LXDHostSelectedCondition); !strings.Contains(got, tc.text) {
				t.Errorf("the message is %q, want it to contain %q", got, tc.text)
			}
			if n := w.calls("compose"); n != 0 {
				t.Errorf("MAAS was asked for the VM %d times", n)
			}
			w.delete(m)
		})
	}
}

// hostMachine returns the system id of a VM host's machine.
func (w *world) hostMachine(host string) string {
	w.t.Helper()
	for _, m := range w.maas.Machines() {
		if m.Hostname == host {
			return m.SystemID
		}
	}
	w.t.Fatalf("VM host %s is on no machine", host)
	return ""
}

// calls counts the calls of an operation.
func (w *world) calls(op string) (n int) {
	for key, count := range w.maas.Calls().ByKey {
		if key.Op == op {
			n += count
		}
	}
	return n
}

func TestVMsThatMustBeApartNeverShareAHost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cluster := w.newCluster()
	w.provisioned(cluster)
	spec := vmWith(infrav1.LXDMachineConfig{AntiAffinity: infrav1.AntiAffinityRequired})
	w.controlPlane(spec)
	inEach := func(text string) func() bool {
		return func() bool {
			return slices.Equal(domainsText(cluster), []string{"zone-a " + text, "zone-b " + text, "zone-c " + text})
		}
	}
	w.eventually(cluster, "updated: each zone takes one", inEach("true map[hosts:1 room:1]"))
	hosts := map[string]bool{}
	for _, name := range []string{"a", "b", "c"} {
		m := w.newMachine(name, true, spec)
		w.deployed(m)
		hosts[m.Status.LXDHost] = true
	}
	if len(hosts) != 3 {
		t.Errorf("three control planes are on %v", hosts)
	}
	fourth := w.newMachine("d", true, spec)
	w.refused(fourth, infrav1.LXDHostSelectedCondition, infrav1.NoHostAvailableReason)
	if got := conditions.GetMessage(fourth, infrav1.LXDHostSelectedCondition); !strings.Contains(got, "3 with another VM of this cluster") {
		t.Errorf("the message is %q", got)
	}
	w.eventually(cluster, "updated: no zone takes another", inEach("false map[hosts:1 room:0]"))
	t.Run("nor do workers count for control planes", func(t *testing.T) {
		worker := w.newMachine("worker", false, spec)
		w.deployed(worker)
	})
}
