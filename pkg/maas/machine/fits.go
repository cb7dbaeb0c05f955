// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// unusable are the states in which MAAS does not know the machine's properties, or in which it stays unused until a
// person intervenes.
var unusable = []maas.Status{
	maas.StatusNew, maas.StatusCommissioning, maas.StatusFailedCommissioning, maas.StatusMissing, maas.StatusReserved,
	maas.StatusRetired,
	maas.StatusBroken,
}

// Fits reports whether a bare-metal machine meets the constraints of op=allocate, also while another user has it. Zone
// and pool are names; sizes are those that MAAS found when it commissioned the machine.
func Fits(m *maas.Machine, p maas.AllocateParams) bool {
	return m.Pod == nil && !slices.Contains(unusable, m.Status) && (p.SystemID == "" || m.SystemID == p.SystemID) &&
		Misfit(m, p) == ""
}

// Misfit returns the first constraint of op=allocate that a machine does not meet, or "".
func Misfit(m *maas.Machine, p maas.AllocateParams) string {
	if lack := lacks(m, p); lack != nil {
		return lack.why
	}
	return ""
}

// lack is a constraint that a machine does not meet.
type lack struct {
	// why continues "machine NAME", and all "3 machines" that lack the same.
	why, all string
	// has is the machine's size, if that is too small.
	has int
}

// lacks returns the first constraint that a machine does not meet, or nil.
func lacks(m *maas.Machine, p maas.AllocateParams) *lack {
	size := func(what, field, unit string, has, wanted int) *lack {
		if has >= wanted {
			return nil
		}
		return &lack{fmt.Sprintf("has %d %s of %s, and not %d", has, unit, what, wanted),
			fmt.Sprintf("with less than %d %s of %s (%s)", wanted, unit, what, field), has}
	}
	refused := slices.IndexFunc(p.NotTags, func(tag string) bool { return slices.Contains(m.Tags, tag) })
	missing := slices.IndexFunc(p.Tags, func(tag string) bool { return !slices.Contains(m.Tags, tag) })
	switch {
	case m.IsDPU:
		return &lack{why: "is a DPU, which MAAS neither switches off nor erases when it is released",
			all: "DPU(s), which MAAS neither switches off nor erases"}
	case p.Zone != "" && m.Zone.Name != p.Zone:
		return &lack{why: fmt.Sprintf("is in zone %s, and not in %s", m.Zone.Name, p.Zone), all: "not in zone " + p.Zone}
	case p.Pool != "" && m.Pool.Name != p.Pool:
		return &lack{why: fmt.Sprintf("is in resource pool %s, and not in %s", m.Pool.Name, p.Pool),
			all: "not in resource pool " + p.Pool + " (spec.resourcePool)"}
	case missing >= 0:
		return &lack{why: "lacks the tag " + p.Tags[missing], all: "without the tag " + p.Tags[missing] + " (spec.tags)"}
	case refused >= 0:
		return &lack{why: "has the tag " + p.NotTags[refused], all: "with the tag " + p.NotTags[refused] + " (spec.notTags)"}
	case p.Architecture != "" && m.Architecture != p.Architecture &&
		!strings.HasPrefix(m.Architecture, p.Architecture+"/"):
		return &lack{why: fmt.Sprintf("is %s, and not %s", m.Architecture, p.Architecture), all: "not " + p.Architecture +
			" (spec.architecture, or the only one with the image)"}
	}
	return cmp.Or(
		size("CPU", "spec.minCPU", "cores", m.CPUCount, p.MinCPU),
		size("memory", "spec.minMemory", "MiB", m.Memory, p.MinMemory),
		size("disk", "spec.minDiskSize", "GB", DiskGB(m), p.MinDiskSize),
	)
}

// DiskGB returns the size of the boot disk in GB, or of all disks if MAAS does not name the boot disk.
func DiskGB(m *maas.Machine) int {
	if m.BootDisk != nil {
		return int(m.BootDisk.Size / 1_000_000_000)
	}
	return int(m.Storage / 1000)
}
