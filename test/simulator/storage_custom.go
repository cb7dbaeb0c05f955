// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// StorageExtra is what a commissioning script wrote for MAAS's layout custom, in MAAS's JSON
// (maasserver/storage_custom_schema.yaml). Of its types of devices the simulator has disks with GPT, and RAIDs.
type StorageExtra struct {
	Layout map[string]StorageDevice `json:"layout"`
	Mounts map[string]StorageMount  `json:"mounts"` // by mount point
}

// StorageDevice is a disk or a RAID.
type StorageDevice struct {
	Type       string             `json:"type"`
	PTable     string             `json:"ptable,omitempty"`
	Partitions []StoragePartition `json:"partitions,omitempty"`
	Level      int                `json:"level,omitempty"`
	Members    []string           `json:"members,omitempty"`
	Spares     []string           `json:"spares,omitempty"`
	FS         string             `json:"fs,omitempty"` // of a RAID; MAAS ignores that of a disk
}

// StoragePartition is a partition; its size has the suffix M, G or T (powers of 1000).
type StoragePartition struct {
	Name     string `json:"name"`
	Size     string `json:"size"`
	Bootable bool   `json:"bootable,omitempty"`
	FS       string `json:"fs,omitempty"`
}

// StorageMount is where a file system is mounted.
type StorageMount struct {
	Device string `json:"device"`
}

// validate refuses what the simulator does not have.
func (x *StorageExtra) validate() error {
	if x == nil {
		return nil
	}
	for name, d := range x.Layout {
		switch {
		case d.Type != "disk" && d.Type != "raid":
			return fmt.Errorf("storage_extra: %s has the type %q: the simulator has disk and raid", name, d.Type)
		case d.Type == "disk" && d.PTable != "gpt" && d.PTable != "":
			return fmt.Errorf("storage_extra: %s has a partition table %q: the simulator has gpt", name, d.PTable)
		case d.Type == "raid" && !slices.Contains(raidLevels, d.Level):
			return fmt.Errorf("storage_extra: %s has level %d, which is none of %v", name, d.Level, raidLevels)
		}
	}
	return nil
}

var raidLevels = []int{0, 1, 5, 6, 10}

// raidOverhead is RAID_SUPERBLOCK_OVERHEAD in maasserver/models/filesystemgroup.py, in bytes.
const raidOverhead = 128 << 10

// raid is MAAS's RAID, with its volume.
type raid struct {
	id              int
	uuid            string
	level           int
	members, spares []blockDevice
	volume          *volume
}

func (r *raid) kind() string { return fmt.Sprintf("raid-%d", r.level) }

// blockDevice is a partition, or a whole disk.
type blockDevice struct {
	on   *disk
	part *partition // nil: the whole disk
}

func (d blockDevice) size() int64 {
	if d.part != nil {
		return d.part.size
	}
	return d.on.size
}

// customMaker makes the layout custom of what a script wrote.
type customMaker struct {
	*layoutMaker
	devices map[string]blockDevice
	formats map[string]*filesystem // by device
}

func customRefused(format string, args ...any) error {
	return badRequest("Failed to configure storage layout 'custom': Failed to apply storage layout: "+format, args...)
}

// custom is CustomStorageLayout in maasserver/storage_layouts.py.
func (b *layoutMaker) custom() error {
	extra := b.m.storageExtra
	if extra == nil {
		return badRequest("Failed to configure storage layout 'custom': No custom storage layout configuration found")
	}
	c := &customMaker{layoutMaker: b, devices: map[string]blockDevice{}, formats: map[string]*filesystem{}}
	if err := c.knowDisks(extra); err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(extra.Layout))
	for _, kind := range []string{"disk", "raid"} {
		for _, name := range names {
			d := extra.Layout[name]
			if d.Type != kind {
				continue
			}
			if err := map[string]func(string, StorageDevice) error{"disk": c.disk, "raid": c.raid}[kind](name, d); err != nil {
				return err
			}
		}
	}
	return c.mount(extra.Mounts)
}

// knowDisks refuses a layout with disks that the machine does not have. What nothing defines is a disk.
func (c *customMaker) knowDisks(extra *StorageExtra) error {
	wanted, defined := map[string]bool{}, map[string]bool{}
	for name, d := range extra.Layout {
		wanted[name] = d.Type == "disk"
		defined[name] = d.Type == "raid"
		for _, p := range d.Partitions {
			defined[p.Name] = true
		}
		for _, used := range slices.Concat(d.Members, d.Spares) {
			wanted[used] = true
		}
	}
	for _, d := range c.m.disks {
		c.devices[d.name] = blockDevice{on: d}
	}
	var missing []string
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if _, there := c.devices[name]; wanted[name] && !defined[name] && !there {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return customRefused("Unknown machine disk(s): %s", strings.Join(missing, ", "))
	}
	return nil
}

func (c *customMaker) disk(name string, d StorageDevice) error {
	if d.PTable == "" {
		if len(d.Partitions) > 0 {
			return customRefused("Partition table not specified for '%s'", name)
		}
		return nil
	}
	on := c.devices[name].on
	c.out.tables[on] = nil
	for _, p := range d.Partitions {
		size, err := customSize(p.Size)
		if err != nil {
			return err
		}
		if size < alignment { // MIN_PARTITION_SIZE in maasserver/models/partition.py
			return invalidField("size", "Ensure this value is greater than or equal to %d.", alignment)
		}
		part, err := c.add(on, size, p.Bootable, c.unmounted(p.Name, p.FS))
		if err != nil {
			return err
		}
		c.devices[p.Name] = blockDevice{on: on, part: part}
	}
	return nil
}

// unmounted returns the filesystem of a device; nil if it has none.
func (c *customMaker) unmounted(device, fstype string) *filesystem {
	if fstype == "" {
		return nil
	}
	fs := c.format(fstype, "", "")
	fs.use = fmt.Sprintf("Unmounted %s formatted filesystem", fstype)
	c.formats[device] = fs
	return fs
}

func (c *customMaker) raid(name string, d StorageDevice) error {
	least := map[int]int{0: 2, 1: 2, 5: 3, 6: 4, 10: 3}[d.Level]
	spares := "any number of"
	if d.Level == 0 {
		spares = "no"
	}
	switch {
	case d.Level == 0 && len(d.Spares) > 0:
		return customRefused("RAID level 0 doesn't support spares")
	case slices.ContainsFunc(d.Members, func(member string) bool { return slices.Contains(d.Spares, member) }):
		return customRefused("RAID '%s' has duplicated devices in members and spares", name)
	case len(d.Members) < least:
		return invalidField("__all__", "RAID level %d must have at least %d raid devices and %s spares.", d.Level, least, spares)
	}
	r := &raid{id: c.db.next("filesystemgroup"), uuid: c.newUUID(), level: d.Level}
	r.members = c.use(d.Members, "raid", fmt.Sprintf("Active %s device for %s", r.kind(), name))
	r.spares = c.use(d.Spares, "raid-spare", fmt.Sprintf("Spare %s device for %s", r.kind(), name))
	r.volume = c.newVolume(name, r.size(), c.unmounted(name, d.FS))
	c.out.raids = append(c.out.raids, r)
	return nil
}

// use gives devices to a RAID.
func (c *customMaker) use(names []string, fstype, what string) (devices []blockDevice) {
	for _, name := range names {
		d := c.devices[name]
		if fs := c.forGroup(fstype, what); d.part != nil {
			d.part.fs = fs
		} else {
			c.out.whole[d.on] = fs
		}
		devices = append(devices, d)
	}
	return devices
}

// size is get_raid_size in maasserver/models/filesystemgroup.py.
func (r *raid) size() int64 {
	least, sum := r.members[0].size(), int64(0)
	for _, d := range r.members {
		least, sum = min(least, d.size()), sum+d.size()
	}
	for _, d := range r.spares {
		least = min(least, d.size())
	}
	members := int64(len(r.members))
	switch r.level {
	case 0:
		return sum - members*raidOverhead
	case 1:
		return least - raidOverhead
	case 10:
		return least*members/2 - raidOverhead
	}
	return least*(members-int64(r.level-4)) - raidOverhead
}

func (c *customMaker) mount(mounts map[string]StorageMount) error {
	for _, point := range slices.Sorted(maps.Keys(mounts)) {
		fs := c.formats[mounts[point].Device]
		if fs == nil {
			return customRefused("Filesystem not found for device '%s'", mounts[point].Device)
		}
		fs.mount = point
	}
	return nil
}

// customSize is _get_size in maasserver/storage_custom.py, in bytes.
func customSize(text string) (int64, error) {
	units := map[byte]float64{'M': 1e6, 'G': 1e9, 'T': 1e12}
	if text == "" || units[text[len(text)-1]] == 0 {
		return 0, customRefused("Invalid size '%s'", text)
	}
	value, err := strconv.ParseFloat(text[:len(text)-1], 64)
	if err != nil {
		return 0, customRefused("Invalid size '%s'", text)
	}
	if value <= 0 {
		return 0, customRefused("Invalid negative size '%s'", text)
	}
	return int64(value * units[text[len(text)-1]]), nil
}
