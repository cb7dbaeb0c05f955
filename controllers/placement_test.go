// SPDX-License-Identifier: Apache-2.0

package controllers

import (
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
	w, cluster := clusterWorld(t)
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
		m := w.deployedMachine(name, true, spec)
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
		w.deployedMachine("worker", false, spec)
	})
}
