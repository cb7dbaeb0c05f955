// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/quarantine"
)

// MAAS changes partitions only while a machine is Ready, and so without an owner: an owner may not (api/machines.py:
// set_storage_layout; api/partitions.py and volume_groups.py likewise). So a machine gets its layout after it was
// picked and before it is acquired, and its former one when it is back in the pool. MAAS refuses both as soon as
// a user has it.

// StorageWish is the storage layout that a machine is to have.
type StorageWish struct {
	Layout  string // MAAS's name of it
	Options map[string]string
	// RootDisk is the disk of the root; nil is the boot disk.
	RootDisk *DiskWish
}

// DiskWish is what a disk must have.
type DiskWish struct {
	Tags    []string
	Serial  string
	MinSize int // GB
}

const (
	layoutBcache = "bcache"
	ssdTag       = "ssd" // set by MAAS's commissioning
)

// Plan returns the layout for a machine, or why the machine can't have it: it names the disks. What MAAS itself checks,
// such as sizes, is left to MAAS.
func (w StorageWish) Plan(m *maas.Machine) (layout maas.StorageLayout, misfit string) {
	layout = maas.StorageLayout{Name: w.Layout, Options: w.Options}
	boot := m.BootDisk
	if boot == nil {
		return layout, "has no disk to boot from"
	}
	root := boot
	if w.RootDisk != nil {
		if root, misfit = w.RootDisk.choose(m); misfit != "" {
			return layout, misfit
		}
		layout.RootDevice = root.ID
	}
	if w.Layout != layoutBcache {
		return layout, ""
	}
	switch cache := cacheDisk(m); {
	case cache == nil:
		return layout, fmt.Sprintf("has no disk for the cache: none beside its boot disk %s has the tag %s", boot.Name,
			ssdTag)
	case cache.ID == root.ID:
		return layout, fmt.Sprintf("has its root on %s, which is the disk that MAAS takes for the cache: its smallest with "+
			"the tag %s", cache.Name, ssdTag)
	}
	return layout, ""
}

// choose returns the boot disk if it fits, or the first other disk that does.
func (w *DiskWish) choose(m *maas.Machine) (*maas.Disk, string) {
	disks := slices.Clone(m.Disks)
	slices.SortFunc(disks, func(a, b *maas.Disk) int {
		if (a.ID == m.BootDisk.ID) != (b.ID == m.BootDisk.ID) {
			if a.ID == m.BootDisk.ID {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.ID, b.ID)
	})
	var why []string
	for _, d := range disks {
		misfit := w.misfit(d)
		if misfit == "" {
			return d, ""
		}
		why = append(why, d.Name+" "+misfit)
	}
	return nil, "has no such root disk: " + text.List(why, maxNames)
}

func (w *DiskWish) misfit(d *maas.Disk) string {
	missing := slices.IndexFunc(w.Tags, func(tag string) bool { return !slices.Contains(d.Tags, tag) })
	switch size := int(d.Size / 1_000_000_000); {
	case missing >= 0:
		return "lacks the tag " + w.Tags[missing]
	case w.Serial != "" && d.Serial != w.Serial:
		return fmt.Sprintf("has the serial number %q", d.Serial)
	case size < w.MinSize:
		return fmt.Sprintf("has %d GB", size)
	}
	return ""
}

// cacheDisk returns the disk that MAAS takes for the cache of a bcache, whatever it is asked for: the smallest SSD that
// is not the boot disk (storage_layouts.py: get_cache_device compares ids with texts).
func cacheDisk(m *maas.Machine) (best *maas.Disk) {
	for _, d := range m.Disks {
		if d.ID != m.BootDisk.ID && slices.Contains(d.Tags, ssdTag) && (best == nil || d.Size < best.Size) {
			best = d
		}
	}
	return best
}

// Pick returns the machine that Allocate would take, and takes nothing. Its hostname is not among those to leave out.
// maas.Conflict: none fits. If it has a Pod, MAAS has composed it, as for Allocate.
func (s *Service) Pick(ctx context.Context, constraints maas.AllocateParams, leaveOut []string) (*maas.Machine, error) {
	constraints.NotHostnames = append(s.notAllocated(), leaveOut...)
	constraints.NotTags = append(slices.Clone(constraints.NotTags), quarantine.NotTags()...)
	picked, err := s.inventory.Client().PickMachine(ctx, constraints)
	if err != nil {
		return nil, s.notAllocatable("picking", err)
	}
	return picked, nil
}

// SetStorage gives a Ready machine a storage layout, and returns the machine as it is then. maas.Conflict: it is not
// Ready. maas.Invalid: it can't have the layout.
func (s *Service) SetStorage(
	ctx context.Context, permit maas.Permit, m *maas.Machine, layout maas.StorageLayout,
) (*maas.Machine, error) {
	set, err := s.inventory.Change(m.SystemID, func(client *maas.Client) (*maas.Machine, error) {
		return client.SetStorageLayout(ctx, permit, m.SystemID, layout)
	})
	if err != nil {
		return nil, fmt.Errorf("setting the storage layout of machine %s: %w", m.SystemID, err)
	}
	return set, nil
}

// Partitions returns the ids of the partitions of a machine's disks, sorted. MAAS makes new ones for each layout.
func Partitions(m *maas.Machine) (ids []int) {
	for _, d := range m.Disks {
		for _, p := range d.Partitions {
			ids = append(ids, p.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// Free reads a machine, and returns it if it is Ready and has no owner; otherwise nil. A machine that is New is
// commissioned before a user gets it, and that sets its storage layout.
func (s *Service) Free(ctx context.Context, systemID string) (*maas.Machine, error) {
	m, err := s.inventory.Read(ctx, systemID)
	if err != nil {
		return nil, fmt.Errorf("reading machine %s again: %w", systemID, err)
	}
	if m.Owner != "" || m.Status != maas.StatusReady {
		return nil, nil //nolint:nilnil // A user has it.
	}
	return m, nil
}

// RestoreStorage gives a Ready machine the region's default storage layout. maas.Conflict: it is not Ready.
func (s *Service) RestoreStorage(ctx context.Context, permit maas.Permit, m *maas.Machine) error {
	return s.change(m, "restoring the storage layout of", func(client *maas.Client) (*maas.Machine, error) {
		return client.RestoreStorage(ctx, permit, m.SystemID)
	})
}
