// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// setStorageLayout replaces what a Ready machine's disks hold by one of MAAS's layouts.
func (rq *request) setStorageLayout() (any, error) {
	m, err := rq.machineFor(mayAdmin)
	if err != nil {
		return nil, err
	}
	if m.status != statusReady {
		return nil, conflict("Cannot change the storage layout on a machine that is not Ready.")
	}
	name := rq.data.get("storage_layout")
	switch {
	case name == "":
		return nil, invalidField("storage_layout", "This field is required.")
	case !slices.Contains(storageLayouts, name):
		return nil, invalidField("storage_layout", "%s", invalidChoice(name, "storage_layout", storageLayouts))
	case m.bootDisk() == nil:
		return nil, badRequest("Machine is missing a boot disk; no storage layout can be applied.")
	}
	wish, errs := m.layoutWish(name, rq.data)
	if err := errs.err(); err != nil {
		return nil, err
	}
	made, err := rq.makeLayout(m, wish)
	if err != nil {
		return nil, err
	}
	m.storage = made
	return rq.renderMachine(m), nil
}

// restoreStorage gives a machine the region's default layout, whatever it had before.
func (rq *request) restoreStorage() (any, error) {
	m, err := rq.machineFor(mayAdmin)
	if err != nil {
		return nil, err
	}
	if m.status != statusReady && m.status != statusFailedTesting {
		return nil, conflict("Machine must be in a ready or failed testing state to restore storage configuration.")
	}
	rq.setDefaultLayout(m)
	return rq.renderMachine(m), nil
}

func invalidChoice(value, what string, choices []string) string {
	return "'" + value + "' is not a valid " + what + ".  It should be one of: '" + strings.Join(choices, "', '") + "'."
}

// layoutWish are the parameters of a layout; sizes in bytes, 0 if not given.
type layoutWish struct {
	layout                     string
	bootSize, rootSize, lvSize int64
	vgName, lvName, cacheMode  string
	root, cache                *disk
	cacheSize                  int64
	noPart                     bool
}

// layoutWish reads the parameters of a layout (the forms in maasserver/storage_layouts.py), of a machine that has a boot disk.
func (m *machine) layoutWish(name string, f form) (layoutWish, formErrors) {
	errs, boot := formErrors{}, m.bootDisk()
	wish := layoutWish{layout: name, root: boot}
	if boot == nil {
		return wish, errs
	}
	most := boot.size - efiSize
	wish.bootSize = sizeIn(f, "boot_size", most, minBootSize, most-minRootSize, errs)
	wish.rootSize = sizeIn(f, "root_size", most, minRootSize, most-minBootSize, errs)
	wish.root = m.chooseDisk(f, "root_device", m.disks, boot, errs)
	if efiSize+wish.bootSize+wish.rootSize > boot.size {
		errs.add("__all__", "Size of the boot partition and root partition are larger than the available space on the boot disk.")
	}
	switch name {
	case "lvm":
		wish.vgName, wish.lvName = strings.TrimSpace(f.get("vg_name")), strings.TrimSpace(f.get("lv_name"))
		root := wish.rootSize
		if root == 0 {
			root = most - wish.bootSize
		}
		wish.lvSize = sizeIn(f, "lv_size", root, minRootSize, root, errs)
	case "bcache":
		m.cacheWish(f, &wish, errs)
	case "vmfs6":
		atLeastGiB(boot, 10, errs)
	case "vmfs7":
		atLeastGiB(boot, 32, errs)
	}
	return wish, errs
}

func atLeastGiB(boot *disk, gib int64, errs formErrors) {
	if boot.size < gib<<30 {
		errs.add("boot_size", "Boot disk must be at least %dGb.", gib)
	}
}

// cacheWish reads the parameters of a bcache. MAAS checks cache_device, and then compares it, a text, with numbers: it
// always takes the smallest disk with the tag ssd that is not the boot disk (get_cache_device).
func (m *machine) cacheWish(f form, wish *layoutWish, errs formErrors) {
	others := slices.DeleteFunc(slices.Clone(m.disks), func(d *disk) bool { return d == m.bootDisk() })
	m.chooseDisk(f, "cache_device", others, nil, errs)
	for _, d := range others {
		if slices.Contains(d.tags, "ssd") && (wish.cache == nil || d.size < wish.cache.size) {
			wish.cache = d
		}
	}
	wish.cacheMode, wish.noPart = f.get("cache_mode"), f.checkbox("cache_no_part", false)
	if modes := []string{"writeback", "writethrough", "writearound"}; wish.cacheMode != "" && !slices.Contains(modes, wish.cacheMode) {
		errs.add("cache_mode", "Select a valid choice. %s is not one of the available choices.", wish.cacheMode)
	}
	switch {
	case f.get("cache_size") != "" && wish.noPart:
		for _, field := range []string{"cache_size", "cache_no_part"} {
			errs.add(field, "Cannot use cache_size and cache_no_part at the same time.")
		}
	case wish.cache != nil:
		wish.cacheSize = sizeIn(f, "cache_size", wish.cache.size, minDisk, wish.cache.size, errs)
	}
}

// chooseDisk reads the id of a disk.
func (m *machine) chooseDisk(f form, key string, among []*disk, fallback *disk, errs formErrors) *disk {
	if f.get(key) == "" {
		return fallback
	}
	var ids []string
	for _, d := range among {
		ids = append(ids, strconv.Itoa(d.id))
	}
	at := slices.Index(ids, f.get(key))
	if at < 0 {
		errs.add(key, "%s", invalidChoice(f.get(key), key, ids))
		return fallback
	}
	return among[at]
}

var sizePattern = regexp.MustCompile(`^(\d+(?:\.\d*)?%|-?[0-9]+[KkMmGgTtPpEe]?)$`)

// sizeIn reads a size in bytes, with a unit, or in percent of a whole (BytesOrPercentageField in maasserver/fields_storage.py).
func sizeIn(f form, key string, whole, least, most int64, errs formErrors) int64 {
	text := f.get(key)
	if text == "" {
		return 0
	}
	if !sizePattern.MatchString(text) {
		errs.add(key, "Enter a valid value.")
		return 0
	}
	size := bytesOf(text, whole)
	switch {
	case size < least:
		errs.add(key, "Size is too small. Minimum size is %d.", least)
		return 0
	case size > most:
		errs.add(key, "Size is too large. Maximum size is %d.", most)
		return 0
	}
	return size
}

func bytesOf(text string, whole int64) int64 {
	if percent, is := strings.CutSuffix(text, "%"); is {
		share, _ := parseFloat(percent)
		return int64(math.Ceil(float64(whole) * share / 100))
	}
	number := strings.TrimRight(text, "KkMmGgTtPpEe")
	size, err := strconv.ParseInt(number, 10, 64)
	unit := math.Pow(1000, float64(1+strings.Index("KMGTPE", strings.ToUpper(text[len(number):]))))
	if number == text {
		unit = 1
	}
	if err != nil || math.Abs(float64(size)*unit) > math.MaxInt64/2 {
		return math.MaxInt64 / 2
	}
	return size * int64(unit)
}
