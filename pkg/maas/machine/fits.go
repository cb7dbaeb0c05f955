// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"slices"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// unusable are the states in which MAAS does not know what a machine is like, or in which it will not be used again unless a person
// wants so.
var unusable = []maas.Status{
	maas.StatusNew, maas.StatusCommissioning, maas.StatusFailedCommissioning, maas.StatusMissing, maas.StatusReserved, maas.StatusRetired,
	maas.StatusBroken,
}

// Fits tells whether a bare-metal machine is like the constraints of op=allocate want it, also while somebody has it. Zone and pool are
// names; sizes are those that MAAS found when it commissioned the machine.
func Fits(m *maas.Machine, p maas.AllocateParams) bool {
	return m.Pod == nil && !slices.Contains(unusable, m.Status) &&
		(p.SystemID == "" || m.SystemID == p.SystemID) &&
		(p.Zone == "" || m.Zone.Name == p.Zone) &&
		(p.Pool == "" || m.Pool.Name == p.Pool) &&
		m.CPUCount >= p.MinCPU && m.Memory >= p.MinMemory && DiskGB(m) >= p.MinDiskSize &&
		!slices.ContainsFunc(p.Tags, func(tag string) bool { return !slices.Contains(m.Tags, tag) })
}

// DiskGB is the size of the disk that the machine boots from, or of all its disks where MAAS does not say which one that is, in GB.
func DiskGB(m *maas.Machine) int {
	if m.BootDisk != nil {
		return int(m.BootDisk.Size / 1_000_000_000)
	}
	return int(m.Storage / 1000)
}
