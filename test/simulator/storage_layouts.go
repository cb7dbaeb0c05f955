// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"cmp"
	"fmt"
	"slices"
)

// storageLayouts are the names of MAAS's layouts.
var storageLayouts = []string{"bcache", "blank", "custom", layoutFlat, "lvm", "vmfs6", "vmfs7"}

const layoutFlat = "flat"

// Kinds of a volumeGroup.
const (
	groupLVM    = "lvm-vg"
	groupBcache = "bcache"
	groupVMFS   = "vmfs6"
)

const bcacheBootSize = 1 << 30

// setDefaultLayout is set_default_storage_layout in maasserver/models/node.py: the region's layout, or nothing if the
// machine can't have it.
func (s *Simulator) setDefaultLayout(m *machine) {
	wish, _ := m.layoutWish(s.configText("default_storage_layout"), newForm())
	if m.bootDisk() == nil {
		return
	}
	if wish.layout == "bcache" && wish.cache == nil {
		wish.layout = layoutFlat
	}
	m.storage = storage{}
	if made, err := s.makeLayout(m, wish); err == nil {
		m.storage = made
	}
}

// setCommissionedLayout sets the layout that a commissioning script wrote, whatever anybody asks for; a machine that it
// does not fit is left without any. Without a script it is the region's (process_lxd_results in
// metadataserver/builtin_scripts/hooks.py).
func (s *Simulator) setCommissionedLayout(m *machine) {
	if m.storageExtra == nil {
		s.setDefaultLayout(m)
		return
	}
	wish, _ := m.layoutWish("custom", newForm())
	m.storage = storage{}
	made, err := s.makeLayout(m, wish)
	if err != nil {
		s.addEvent(m, "Configuring storage layout", fmt.Sprintf("Cannot apply custom layout: %v", err))
		return
	}
	m.storage = made
}

// layoutMaker makes a layout.
type layoutMaker struct {
	*Simulator
	m    *machine
	wish layoutWish
	out  storage
}

// makeLayout returns what a layout makes of a machine's disks (maasserver/storage_layouts.py).
func (s *Simulator) makeLayout(m *machine, wish layoutWish) (storage, error) {
	b := &layoutMaker{Simulator: s, m: m, wish: wish, out: storage{tables: map[*disk][]*partition{}, whole: map[*disk]*filesystem{}}}
	layout := map[string]func() error{
		"blank": func() error { return nil }, "custom": b.custom, layoutFlat: b.flat, "lvm": b.lvm, "bcache": b.bcache,
		"vmfs6": b.vmfs, "vmfs7": b.vmfs,
	}[wish.layout]
	if layout == nil {
		return storage{}, badRequest("Unknown storage layout: %s", wish.layout)
	}
	err := layout()
	return b.out, err
}

// add adds a partition; size 0 is all that is left.
func (b *layoutMaker) add(d *disk, size int64, bootable bool, fs *filesystem) (*partition, error) {
	parts := b.out.tables[d]
	room := b.m.room(d, parts)
	if size = aligned(size); size == 0 {
		size = room
	}
	if size > room || size == 0 {
		return nil, invalidField("size", "Partition cannot be saved; not enough free space on the block device.")
	}
	p := &partition{id: b.db.next("partition"), uuid: b.newUUID(), index: len(parts) + 1, size: size, bootable: bootable, fs: fs}
	if b.m.arch() == "amd64" && b.m.bootMethod != bootUEFI {
		p.index++ // The first is that of GRUB.
	}
	b.out.tables[d] = append(parts, p)
	return p, nil
}

func (b *layoutMaker) format(fstype, label, mount string) *filesystem {
	return &filesystem{uuid: b.newUUID(), fstype: fstype, label: label, mount: mount}
}

func (b *layoutMaker) forGroup(fstype, use string) *filesystem {
	return &filesystem{uuid: b.newUUID(), fstype: fstype, use: use}
}

// basic makes the partitions that all layouts have (create_basic_layout): those to boot from, and that of the root.
func (b *layoutMaker) basic(boot int64) (*partition, error) {
	first := b.m.bootDisk()
	uefi := b.m.bootMethod == bootUEFI
	switch {
	case uefi && b.m.arch() != "ppc64el":
		if _, err := b.add(first, efiSize, true, b.format("fat32", "efi", "/boot/efi")); err != nil {
			return nil, err
		}
	case !uefi && b.m.arch() == "arm64" && b.wish.layout != "bcache":
		if _, err := b.add(first, minBootSize, true, b.format("ext4", "boot", "/boot")); err != nil {
			return nil, err
		}
	}
	if boot > 0 {
		if _, err := b.add(first, boot, true, b.format("ext4", "boot", "/boot")); err != nil {
			return nil, err
		}
	}
	return b.add(b.wish.root, b.wish.rootSize, false, nil)
}

func (b *layoutMaker) flat() error {
	root, err := b.basic(b.wish.bootSize)
	if err == nil {
		root.fs = b.format("ext4", "root", "/")
	}
	return err
}

func (b *layoutMaker) newGroup(kind, name string, on *disk, member *partition, size int64) *volumeGroup {
	return &volumeGroup{id: b.db.next("filesystemgroup"), uuid: b.newUUID(), kind: kind, name: name, on: on, member: member, size: size}
}

func (b *layoutMaker) newVolume(name string, size int64, fs *filesystem) *volume {
	return &volume{id: b.db.next("blockdevice"), name: name, uuid: b.newUUID(), size: size, fs: fs}
}

func (b *layoutMaker) lvm() error {
	root, err := b.basic(b.wish.bootSize)
	if err != nil {
		return err
	}
	name := cmp.Or(b.wish.vgName, "vgroot")
	root.fs = b.forGroup("lvm-pv", "LVM volume for "+name)
	size := (root.size/alignment - 1) * alignment
	g := b.newGroup(groupLVM, name, b.wish.root, root, size)
	volume := aligned(cmp.Or(b.wish.lvSize, size))
	if volume > size {
		return invalidField("__all__", "There is not enough free space (%s) on volume group %s.", humanBytes(volume), name)
	}
	g.volume = b.newVolume(cmp.Or(b.wish.lvName, "lvroot"), volume, b.format("ext4", "root", "/"))
	b.out.group = g
	return nil
}

func (b *layoutMaker) bcache() error {
	if b.wish.cache == nil {
		return badRequest("Failed to configure storage layout 'bcache': Node doesn't have an available cache device to setup bcache.")
	}
	root, err := b.basic(cmp.Or(b.wish.bootSize, bcacheBootSize))
	if err != nil {
		return err
	}
	set := &cacheSet{id: b.db.next("cacheset"), on: b.wish.cache}
	used := b.forGroup("bcache-cache", "Cache device for cache0")
	switch _, partitioned := b.out.tables[set.on]; {
	case partitioned: // The root is on it: the database refuses a second table.
		return textError(500, "MultipleObjectsReturned: get() returned more than one PartitionTable")
	case b.wish.noPart:
		b.out.whole[set.on] = used
	default:
		if set.part, err = b.add(set.on, b.wish.cacheSize, false, used); err != nil {
			return err
		}
	}
	root.fs = b.forGroup("bcache-backing", "Backing device for bcache0")
	g := b.newGroup(groupBcache, "bcache0", b.wish.root, root, root.size)
	g.cacheMode = cmp.Or(b.wish.cacheMode, "writethrough")
	g.volume = b.newVolume("bcache0", root.size, b.format("ext4", "root", "/"))
	b.out.group, b.out.cache = g, set
	return nil
}

// vmfsPartitions returns the indexes and sizes of the partitions of an ESXi image; 0 is that of the datastore.
func (s *Simulator) vmfsPartitions(layout string) (indexes []int, sizes []int64) {
	switch {
	case layout == "vmfs6":
		return []int{1, 2, 3, 5, 6, 7, 8, 9}, []int64{3 << 20, 4 << 30, 0, 249 << 20, 249 << 20, 109 << 20, 285 << 20, 2560 << 20}
	case s.version.AtLeast(3, 4, 0):
		return []int{1, 5, 6, 7, 8}, []int64{100 << 20, 4095 << 20, 4095 << 20, 25662832128, 0}
	}
	return []int{1, 5, 6, 7, 8}, []int64{105 << 20, 1074 << 20, 1074 << 20, 8704 << 20, 0}
}

func (b *layoutMaker) vmfs() error {
	indexes, sizes := b.vmfsPartitions(b.wish.layout)
	var parts []*partition
	for i, size := range sizes {
		parts = append(parts, &partition{id: b.db.next("partition"), uuid: b.newUUID(), index: indexes[i], size: size, bootable: i == 0})
	}
	store := parts[slices.Index(sizes, 0)]
	store.size = cmp.Or(b.wish.rootSize, b.m.room(b.wish.root, parts))
	store.fs = b.forGroup("vmfs6", "VMFS extent for datastore1")
	// The datastore's row was updated, so the database returns it last (partitions in maasserver/api/blockdevices.py).
	parts = append(slices.DeleteFunc(parts, func(p *partition) bool { return p == store }), store)
	b.out.tables[b.wish.root] = parts
	g := b.newGroup(groupVMFS, "datastore1", b.wish.root, store, store.size)
	g.volume = b.newVolume("datastore1", store.size, b.format("vmfs6", "", "/vmfs/volumes/datastore1"))
	b.out.group = g
	return nil
}
