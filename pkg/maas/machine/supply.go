// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"slices"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/quarantine"
)

// Supply counts machines that meet constraints, by what can be done with them. Others, such as new ones, are in none.
type Supply struct {
	// Ready machines can be allocated now.
	Ready int
	// InUse are those that somebody has, also while they are prepared or released.
	InUse int
	// Broken are those that failed, or that somebody marked as broken in MAAS.
	Broken int
	// CoolingDown are Ready, and not allocated for a while: they are quarantined, or still have an address that was theirs.
	CoolingDown int
}

// Add adds another supply.
func (s *Supply) Add(other Supply) {
	s.Ready += other.Ready
	s.InUse += other.InUse
	s.Broken += other.Broken
	s.CoolingDown += other.CoolingDown
}

var (
	inUse = []maas.Status{
		maas.StatusAllocated, maas.StatusDeploying, maas.StatusDeployed, maas.StatusReleasing, maas.StatusDiskErasing, maas.StatusRescueMode,
		maas.StatusEnteringRescueMode, maas.StatusExitingRescueMode, maas.StatusReserved,
	}
	broken = []maas.Status{
		maas.StatusBroken, maas.StatusMissing, maas.StatusFailedCommissioning, maas.StatusFailedTesting, maas.StatusFailedDeployment, maas.StatusReleasingFailed,
		maas.StatusFailedDiskErasing, maas.StatusFailedToEnterRescue, maas.StatusFailedToExitRescueMode,
	}
)

// Supply counts those of the machines that meet the constraints, by zone.
func (s *Service) Supply(machines []*maas.Machine, constraints maas.AllocateParams) map[string]Supply {
	return supply(machines, constraints, s.notAllocated())
}

// supply is pure. skipped are the hostnames of the machines that are not allocated, sorted.
func supply(machines []*maas.Machine, constraints maas.AllocateParams, skipped []string) map[string]Supply {
	zones := map[string]Supply{}
	for _, m := range machines {
		if m.Pod != nil || (constraints.SystemID != "" && m.SystemID != constraints.SystemID) || Misfit(m, constraints) != "" {
			continue
		}
		zone := zones[m.Zone.Name]
		_, skip := slices.BinarySearch(skipped, m.Hostname)
		switch {
		case m.Status == maas.StatusReady && (skip || quarantine.Has(m)):
			zone.CoolingDown++
		case m.Status == maas.StatusReady:
			zone.Ready++
		case slices.Contains(inUse, m.Status):
			zone.InUse++
		case slices.Contains(broken, m.Status):
			zone.Broken++
		}
		zones[m.Zone.Name] = zone
	}
	return zones
}
