// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/quarantine"
)

func TestSupply(t *testing.T) {
	metal := func(name, zone string, status maas.Status, change ...func(*maas.Machine)) *maas.Machine {
		m := &maas.Machine{SystemID: "id-" + name, Hostname: name, Zone: maas.Ref{Name: zone}, Pool: maas.Ref{Name: "p"}, Status: status, CPUCount: 8}
		for _, c := range change {
			c(m)
		}
		return m
	}
	machines := []*maas.Machine{
		metal("ready", "a", maas.StatusReady), metal("cooling", "a", maas.StatusReady), metal("deployed", "a", maas.StatusDeployed),
		metal("quarantined", "a", maas.StatusReady, func(m *maas.Machine) { m.Tags = []string{quarantine.Tag} }),
		metal("failed", "a", maas.StatusFailedDeployment), metal("broken", "a", maas.StatusBroken), metal("new", "a", maas.StatusNew),
		metal("small", "a", maas.StatusReady, func(m *maas.Machine) { m.CPUCount = 2 }),
		metal("vm", "a", maas.StatusReady, func(m *maas.Machine) { m.Pod = &maas.Ref{ID: 1} }),
		metal("releasing", "b", maas.StatusReleasing),
		metal("other", "c", maas.StatusReady, func(m *maas.Machine) { m.Pool.Name = "q" }),
	}
	skipped := []string{"cooling", "deployed"}
	type supplies = map[string]Supply
	for name, tc := range map[string]struct {
		constraints maas.AllocateParams
		want        supplies
	}{
		"by zone and state": {
			maas.AllocateParams{MinCPU: 4, Pool: "p"},
			supplies{"a": {Ready: 1, InUse: 1, Broken: 2, CoolingDown: 2}, "b": {InUse: 1}},
		},
		"of a zone":       {maas.AllocateParams{Zone: "b"}, supplies{"b": {InUse: 1}}},
		"small ones, too": {maas.AllocateParams{Zone: "a"}, supplies{"a": {Ready: 2, InUse: 1, Broken: 2, CoolingDown: 2}}},
		"a certain one":   {maas.AllocateParams{SystemID: "id-ready"}, supplies{"a": {Ready: 1}}},
		"none":            {maas.AllocateParams{Tags: []string{"gpu"}}, supplies{}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, supply(machines, tc.constraints, skipped)); diff != "" {
				t.Errorf("the supply differs (-want +got):\n%s", diff)
			}
		})
	}
}

// TestEveryStateIsCountedOnce fails for a state of MAAS that nobody has thought of.
func TestEveryStateIsCountedOnce(t *testing.T) {
	uncounted := map[maas.Status]bool{
		maas.StatusNew: true, maas.StatusCommissioning: true, maas.StatusTesting: true, maas.StatusRetired: true,
	}
	for status := maas.StatusNew; status <= maas.StatusFailedTesting; status++ {
		got := supply([]*maas.Machine{{Status: status}}, maas.AllocateParams{}, nil)[""]
		n := 0
		for _, count := range got {
			n += count
		}
		if want := map[bool]int{true: 0, false: 1}[uncounted[status]]; n != want {
			t.Errorf("a machine in state %d is counted %d times, want %d", status, n, want)
		}
	}
}

func TestWhyNone(t *testing.T) {
	metal := func(status maas.Status, memory int, tags ...string) *maas.Machine {
		return &maas.Machine{Hostname: "m", Status: status, Memory: memory, Pool: maas.Ref{Name: "capi"}, Tags: tags, CPUCount: 8}
	}
	machines := []*maas.Machine{
		metal(maas.StatusReady, 16384), metal(maas.StatusReady, 32768), metal(maas.StatusDeployed, 65536), metal(maas.StatusDeployed, 65536),
		metal(maas.StatusDeployed, 65536), metal(maas.StatusBroken, 65536), metal(maas.StatusNew, 65536), metal(maas.StatusReady, 65536, quarantine.Tag),
	}
	for name, tc := range map[string]struct {
		machines []*maas.Machine
		wanted   maas.AllocateParams
		want     string
	}{
		"memory": {machines, maas.AllocateParams{MinMemory: 64000}, "8 machine(s): 3 in use; 2 with less than 64000 MiB of memory (spec.minMemory), at most 32768; " +
			"1 failed or broken; 1 left alone for a while; 1 not Ready yet, or retired: add or free one, or ask for less"},
		"pool":           {machines, maas.AllocateParams{Pool: "other", MinMemory: 64000}, "8 machine(s): 8 not in resource pool other (spec.resourcePool): add or free one, or ask for less"},
		"no tag":         {machines[:1], maas.AllocateParams{Tags: []string{"ssd"}}, "1 machine(s): 1 without the tag ssd (spec.tags): add or free one, or ask for less"},
		"a tag":          {machines[7:], maas.AllocateParams{NotTags: []string{quarantine.Tag}}, "1 machine(s): 1 with the tag " + quarantine.Tag + " (spec.notTags): add or free one, or ask for less"},
		"one fits":       {machines, maas.AllocateParams{}, ""},
		"there are none": {nil, maas.AllocateParams{}, "0 machine(s): MAAS has none, or shows none to the user of the API key: add or free one, or ask for less"},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, whyNone(tc.machines, tc.wanted, nil)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
