// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/quarantine"
)

// Supply counts machines that meet constraints, by what can be done with them. Those that are Unready are in none.
type Supply map[Fate]int

var (
	inUse = []maas.Status{
		maas.StatusAllocated, maas.StatusDeploying, maas.StatusDeployed, maas.StatusReleasing, maas.StatusDiskErasing,
		maas.StatusRescueMode,
		maas.StatusEnteringRescueMode, maas.StatusExitingRescueMode, maas.StatusReserved,
	}
	broken = []maas.Status{
		maas.StatusBroken, maas.StatusMissing, maas.StatusFailedCommissioning, maas.StatusFailedTesting,
		maas.StatusFailedDeployment, maas.StatusReleasingFailed,
		maas.StatusFailedDiskErasing, maas.StatusFailedToEnterRescue, maas.StatusFailedToExitRescueMode,
	}
)

// Fate is what a machine can be used for now, in the words of a message.
type Fate string

// The fates. In use are also machines that are prepared or released; cooling down are those that are not allocated for
// a while: they are quarantined, or still have an address that was theirs.
const (
	Ready       Fate = "Ready"
	InUse       Fate = "in use"
	Broken      Fate = "failed or broken"
	CoolingDown Fate = "left alone for a while"
	Unready     Fate = "not Ready yet, or retired"
)

// fateOf returns what became of a machine. skipped are the hostnames of the machines that are not allocated, sorted.
func fateOf(m *maas.Machine, skipped []string) Fate {
	_, skip := slices.BinarySearch(skipped, m.Hostname)
	switch {
	case m.Status == maas.StatusReady && (skip || quarantine.Has(m)):
		return CoolingDown
	case m.Status == maas.StatusReady:
		return Ready
	case slices.Contains(inUse, m.Status):
		return InUse
	case slices.Contains(broken, m.Status):
		return Broken
	}
	return Unready
}

// Supply counts those of the machines that meet the constraints, by zone.
func (s *Service) Supply(machines []*maas.Machine, constraints maas.AllocateParams) map[string]Supply {
	return supply(machines, constraints, s.notAllocated())
}

// supply is pure: see fateOf.
func supply(machines []*maas.Machine, constraints maas.AllocateParams, skipped []string) map[string]Supply {
	zones := map[string]Supply{}
	for _, m := range machines {
		if m.Pod != nil || (constraints.SystemID != "" && m.SystemID != constraints.SystemID) ||
			Misfit(m, constraints) != "" {
			continue
		}
		if zones[m.Zone.Name] == nil {
			zones[m.Zone.Name] = Supply{}
		}
		if fate := fateOf(m, skipped); fate != Unready {
			zones[m.Zone.Name][fate]++
		}
	}
	return zones
}

// WhyNone says why none of the machines can be allocated for constraints: how many lack what, and what became of the
// others. It is "" if one could be, as far as is known here.
func (s *Service) WhyNone(machines []*maas.Machine, constraints maas.AllocateParams) string {
	skipped := append(s.notAllocated(), constraints.NotHostnames...)
	slices.Sort(skipped)
	return whyNone(machines, constraints, skipped)
}

// whyNone is pure: see fateOf.
func whyNone(machines []*maas.Machine, constraints maas.AllocateParams, skipped []string) string {
	counts, most := map[string]int{}, map[string]int{}
	for _, m := range machines {
		why := lacks(m, constraints)
		if why == nil {
			why = &lack{all: string(fateOf(m, skipped))}
		}
		counts[why.all]++
		most[why.all] = max(most[why.all], why.has)
	}
	if counts[string(Ready)] > 0 {
		return ""
	}
	var parts []string
	for _, why := range slices.SortedFunc(maps.Keys(counts),
		func(a, b string) int { return cmp.Or(counts[b]-counts[a], cmp.Compare(a, b)) }) {
		part := fmt.Sprintf("%d %s", counts[why], why)
		if most[why] > 0 {
			part += fmt.Sprintf(", at most %d", most[why])
		}
		parts = append(parts, part)
	}
	lacking := cmp.Or(strings.Join(parts, "; "), "MAAS has none, or shows none to the user of the API key")
	return fmt.Sprintf("%d machine(s): %s: add or free one, or ask for less", len(machines), lacking)
}
