// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"slices"
	"strings"
)

// Sizes that MAAS counts with, in bytes (maasserver/models/partition.py, partitiontable.py, filesystemgroup.py).
const (
	alignment   = 4 << 20 // of partitions, and an extent of LVM
	tableSize   = 5 << 20 // what a partition table takes
	grubSize    = 1 << 20 // what it takes in addition, unless the machine is known to boot with UEFI
	efiSize     = 512 << 20
	minBootSize = 512 << 20
	minRootSize = 3 << 30
)

// storage is what a machine's disks hold. It never changes: the next layout makes another one.
type storage struct {
	tables map[*disk][]*partition
	whole  map[*disk]*filesystem // what a disk without partitions holds
	group  *volumeGroup          // of LVM, bcache or VMFS
	cache  *cacheSet
	raids  []*raid
}

type partition struct {
	id, index int
	uuid      string
	size      int64
	bootable  bool
	fs        *filesystem
}

// filesystem is what a disk, partition or volume is formatted with; what it is used for, where it is not mounted.
type filesystem struct{ uuid, fstype, label, mount, use string }

// volumeGroup is MAAS's FilesystemGroup with its one volume.
type volumeGroup struct {
	id        int
	kind      string // lvm-vg, bcache or vmfs6
	name      string
	uuid      string
	size      int64
	on        *disk
	member    *partition
	cacheMode string
	volume    *volume
}

// volume is MAAS's VirtualBlockDevice.
type volume struct {
	id   int
	name string
	uuid string
	size int64
	fs   *filesystem
}

// cacheSet is the cache of a bcache: a partition, or a whole disk.
type cacheSet struct {
	id   int
	on   *disk
	part *partition // nil: the whole disk
}

// bootDisk returns the first disk that is large enough to boot from; nil if there is none (get_boot_disk in
// maasserver/models/node.py).
func (m *machine) bootDisk() *disk {
	for _, d := range m.disks {
		if d.size >= minBootSize {
			return d
		}
	}
	return nil
}

func (m *machine) arch() string { return firstPart(m.architecture, '/') }

// tableOverhead is get_overhead_size in maasserver/models/partitiontable.py.
func (m *machine) tableOverhead() int64 {
	if m.arch() == "amd64" && m.bootMethod != bootUEFI {
		return tableSize + grubSize
	}
	return tableSize
}

// used returns the space of a disk that is taken, and available what is left for partitions.
func (m *machine) used(d *disk) int64 {
	parts, partitioned := m.storage.tables[d]
	switch {
	case m.storage.whole[d] != nil:
		return d.size
	case !partitioned:
		return 0
	}
	return m.tableOverhead() + sizeOf(parts)
}

func (m *machine) available(d *disk) int64 {
	if m.storage.whole[d] != nil {
		return 0
	}
	return m.room(d, m.storage.tables[d])
}

// room returns what is left for partitions beside those in a disk's table.
func (m *machine) room(d *disk, parts []*partition) int64 {
	return max(0, aligned(d.size-m.tableOverhead()-sizeOf(parts)))
}

func aligned(size int64) int64 { return size - size%alignment }

func sizeOf(parts []*partition) (sum int64) {
	for _, p := range parts {
		sum += p.size
	}
	return sum
}

// mounts returns what is mounted where.
func (st storage) mounts() map[string]bool {
	out := map[string]bool{}
	note := func(fs *filesystem) {
		if fs != nil && fs.mount != "" {
			out[fs.mount] = true
		}
	}
	for _, parts := range st.tables {
		for _, p := range parts {
			note(p.fs)
		}
	}
	if st.group != nil {
		note(st.group.volume.fs)
	}
	for _, r := range st.raids {
		note(r.volume.fs)
	}
	return out
}

// lines tells what a machine's disks hold, a line for each disk, partition and volume.
func (st storage) lines(m *machine) (out []string) {
	line := func(name string, size int64, use string) { out = append(out, fmt.Sprintf("%s %d %s", name, size, use)) }
	for _, d := range m.disks {
		use := ""
		if fs := st.whole[d]; fs != nil {
			use = usedFor(fs)
		}
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %d %s", d.name, d.size, use)))
		for _, p := range st.tables[d] {
			line(fmt.Sprintf("%s-part%d", d.name, p.index), p.size, usedFor(p.fs))
		}
	}
	if g := st.group; g != nil {
		line(g.name+"/"+g.volume.name, g.volume.size, strings.TrimSpace(g.cacheMode+" "+usedFor(g.volume.fs)))
	}
	for _, r := range st.raids {
		line(r.volume.name, r.volume.size, r.kind()+" "+usedFor(r.volume.fs))
	}
	return out
}

// storageErrors returns why a machine cannot be deployed with what its disks hold (storage_layout_issues in
// maasserver/models/node.py).
func (s *Simulator) storageErrors(m *machine, osystem string) error {
	errs := formErrors{}
	if slices.Contains([]string{"ubuntu", "centos", "rhel"}, osystem) {
		mounted := m.storage.mounts()
		if !mounted["/"] {
			errs.add("storage", "Mount the root '/' filesystem to be able to deploy this node.")
		}
		if s.version.AtLeast(3, 8, 0) && m.bootMethod == bootUEFI && !mounted["/boot/efi"] {
			errs.add("storage", "UEFI system requires a /boot/efi filesystem. Please configure /boot/efi to proceed.")
		}
		if m.storage.group != nil && m.storage.group.kind == groupVMFS {
			errs.add("storage", "This node cannot be deployed because the selected deployment OS, %s, does not support VMFS6.", osystem)
		}
	}
	return errs.err()
}
