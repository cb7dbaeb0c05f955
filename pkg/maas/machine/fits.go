// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// unusable are the states in which MAAS does not know the machine's properties, or in which it stays unused until a
// person intervenes.
var unusable = []maas.Status{
	maas.StatusNew, maas.StatusCommissioning, maas.StatusFailedCommissioning, maas.StatusMissing, maas.StatusReserved, maas.StatusRetired,
	maas.StatusBroken,
}

// Fits reports whether a bare-metal machine meets the constraints of op=allocate, also while another user has it. Zone
// and pool are names; sizes are those that MAAS found when it commissioned the machine.
func Fits(m *maas.Machine, p maas.AllocateParams) bool {
	return m.Pod == nil && !slices.Contains(unusable, m.Status) && (p.SystemID == "" || m.SystemID == p.SystemID) && Misfit(m, p) == ""
}

// Misfit returns the first constraint of op=allocate that a machine does not meet, or "".
func Misfit(m *maas.Machine, p maas.AllocateParams) string {
	refused := slices.IndexFunc(p.NotTags, func(tag string) bool { return slices.Contains(m.Tags, tag) })
	missing := slices.IndexFunc(p.Tags, func(tag string) bool { return !slices.Contains(m.Tags, tag) })
	switch {
	case p.Zone != "" && m.Zone.Name != p.Zone:
		return fmt.Sprintf("is in zone %s, and not in %s", m.Zone.Name, p.Zone)
	case p.Pool != "" && m.Pool.Name != p.Pool:
		return fmt.Sprintf("is in resource pool %s, and not in %s", m.Pool.Name, p.Pool)
	case m.CPUCount < p.MinCPU:
		return fmt.Sprintf("has %d cores, and not %d", m.CPUCount, p.MinCPU)
	case m.Memory < p.MinMemory:
		return fmt.Sprintf("has %d MiB of memory, and not %d", m.Memory, p.MinMemory)
	case DiskGB(m) < p.MinDiskSize:
		return fmt.Sprintf("has a disk of %d GB, and not of %d", DiskGB(m), p.MinDiskSize)
	case missing >= 0:
		return "lacks the tag " + p.Tags[missing]
	case refused >= 0:
		return "has the tag " + p.NotTags[refused]
	case p.Architecture != "" && m.Architecture != p.Architecture && !strings.HasPrefix(m.Architecture, p.Architecture+"/"):
		return fmt.Sprintf("is %s, and not %s", m.Architecture, p.Architecture)
	}
	return ""
}

// DiskGB returns the size of the boot disk in GB, or of all disks if MAAS does not name the boot disk.
func DiskGB(m *maas.Machine) int {
	if m.BootDisk != nil {
		return int(m.BootDisk.Size / 1_000_000_000)
	}
	return int(m.Storage / 1000)
}
