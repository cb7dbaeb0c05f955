// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Sizes of disks, in bytes.
const (
	smallDisk = 8_000_000_000
	midDisk   = 20_000_000_000
	bigDisk   = 60_000_000_000
)

// disksOf makes a machine record that is Ready, nobody's, and has disks sda, sdb and so on. Nothing is switched on, so
// MAAS does not know how it boots.
func (m *maas) disksOf(t *testing.T, sizes ...int) object {
	t.Helper()
	machine := m.unhurried().newMachine(t, "commission", "true")
	for i, size := range sizes {
		name := "sd" + string(rune('a'+i))
		m.create(t, "nodes/"+machine.str("system_id")+"/blockdevices/", "name", name, "model", "disk", "serial", "serial-"+name,
			"size", fmt.Sprint(size), "block_size", "512").object(t)
	}
	m.machineOp(t, machine, "mark_broken").object(t)
	return m.machineOp(t, machine, "mark_fixed").object(t)
}

// ssd tags a disk as MAAS's commissioning does.
func (m *maas) ssd(t *testing.T, disk object) {
	t.Helper()
	m.op(t, "nodes/"+disk.str("system_id")+"/blockdevices/"+disk.id("id")+"/", "add_tag", "tag", "ssd").object(t)
}

func (m *maas) layout(t *testing.T, machine object, name string, pairs ...string) *answer {
	t.Helper()
	return m.machineOp(t, machine, "set_storage_layout", append(pairs, "storage_layout", name)...)
}

// use tells what a machine's disks hold: of each block device, what it is used for and what its partitions are.
// MAAS orders neither a disk's partitions nor promises their order.
func use(machine object) []string {
	var out []string
	for _, d := range machine.objects("blockdevice_set") {
		line := d.str("name") + " " + d.str("used_for")
		parts := d.objects("partitions")
		slices.SortFunc(parts, func(a, b object) int { return strings.Compare(a.str("path"), b.str("path")) })
		for _, p := range parts {
			path := p.str("path")
			line += fmt.Sprintf("; %s %s", path[strings.LastIndex(path, "-")+1:], p.str("used_for"))
		}
		out = append(out, line)
	}
	return out
}

func wantUse(t *testing.T, machine object, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, use(machine)); diff != "" {
		t.Errorf("storage (-want +got):\n%s", diff)
	}
}

// maasserver/storage_layouts.py: create_basic_layout and configure_storage of each layout.
func TestStorageLayouts(t *testing.T) {
	root := "ext4 formatted filesystem mounted at /"
	boot := "ext4 formatted filesystem mounted at /boot"
	tests := map[string]struct {
		layout string
		pairs  []string
		want   []string
	}{
		"flat":  {"flat", nil, []string{"sda GPT partitioned with 1 partition; part2 " + root, "sdb Unused"}},
		"blank": {"blank", nil, []string{"sda Unused", "sdb Unused"}},
		"lvm": {"lvm", nil, []string{
			"sda GPT partitioned with 1 partition; part2 LVM volume for vgroot", "sdb Unused", "vgroot-lvroot " + root,
		}},
		"lvm, named and sized": {"lvm", []string{"vg_name", "system", "lv_name", "root", "lv_size", "10G", "boot_size", "1G"}, []string{
			"sda GPT partitioned with 2 partitions; part2 " + boot + "; part3 LVM volume for system", "sdb Unused", "system-root " + root,
		}},
		"bcache": {"bcache", []string{"cache_mode", "writeback"}, []string{
			"sda GPT partitioned with 2 partitions; part2 " + boot + "; part3 Backing device for bcache0",
			"sdb GPT partitioned with 1 partition; part2 Cache device for cache0", "bcache0 " + root,
		}},
		"bcache without partition": {"bcache", []string{"cache_no_part", "true"}, []string{
			"sda GPT partitioned with 2 partitions; part2 " + boot + "; part3 Backing device for bcache0",
			"sdb Cache device for cache0", "bcache0 " + root,
		}},
		"vmfs6": {"vmfs6", nil, []string{
			"sda GPT partitioned with 8 partitions; part1 Unused; part2 Unused; part3 VMFS extent for datastore1; part5 Unused; " +
				"part6 Unused; part7 Unused; part8 Unused; part9 Unused",
			"sdb Unused", "datastore1 vmfs6 formatted filesystem mounted at /vmfs/volumes/datastore1",
		}},
		"vmfs7": {"vmfs7", nil, []string{
			"sda GPT partitioned with 5 partitions; part1 Unused; part5 Unused; part6 Unused; part7 Unused; part8 VMFS extent for datastore1",
			"sdb Unused", "datastore1 vmfs6 formatted filesystem mounted at /vmfs/volumes/datastore1",
		}},
	}
	each(t, func(t *testing.T, m *maas) {
		machine := m.disksOf(t, bigDisk, midDisk)
		m.ssd(t, machine.objects("blockdevice_set")[1])
		for name, test := range tests {
			t.Run(name, func(t *testing.T) {
				for range 2 {
					wantUse(t, m.layout(t, machine, test.layout, test.pairs...).object(t), test.want...)
				}
			})
		}
	})
}

// The root goes to root_device; what the firmware reads stays on the boot disk, here nothing.
func TestStorageLayoutOnAnotherDisk(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		machine := m.disksOf(t, smallDisk, midDisk)
		second := machine.objects("blockdevice_set")[1].id("id")
		got := m.layout(t, machine, "lvm", "root_device", second).object(t)
		if got.str("boot_disk", "name") != "sda" {
			t.Errorf("boot disk %s, want sda still", got.str("boot_disk", "name"))
		}
		for _, d := range got.objects("blockdevice_set") {
			if d.str("name") == "sdb" && len(d.objects("partitions")) != 1 {
				t.Errorf("sdb: %v, want one partition", use(got))
			}
		}
		m.layout(t, machine, "lvm", "root_device", "sdb").refusesField(t, "root_device", "'sdb' is not a valid root_device.")
	})
}

// MAAS compares cache_device, a text, with numbers (BcacheStorageLayout.get_cache_device): it takes the smallest SSD all
// the same.
func TestBcacheTakesTheSmallestSSDWhateverIsAsked(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		machine := m.disksOf(t, midDisk, midDisk, smallDisk)
		disks := machine.objects("blockdevice_set")
		m.layout(t, machine, "bcache").refuses(t, http.StatusBadRequest,
			"Failed to configure storage layout 'bcache': Node doesn't have an available cache device to setup bcache.")
		m.ssd(t, disks[1])
		m.ssd(t, disks[2])
		got := m.layout(t, machine, "bcache", "cache_device", disks[1].id("id")).object(t)
		for _, line := range use(got) {
			if strings.Contains(line, "Cache device") != strings.HasPrefix(line, "sdc") {
				t.Errorf("%v, want the cache on sdc", use(got))
			}
		}
	})
}

func TestStorageLayoutRefusesParameters(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		machine := m.disksOf(t, smallDisk, midDisk)
		m.ssd(t, machine.objects("blockdevice_set")[1])
		before := use(m.layout(t, machine, "flat").object(t))
		tests := []struct {
			layout string
			pairs  []string
			field  string
		}{
			{"flat", []string{"boot_size", "1K"}, "boot_size"},
			{"flat", []string{"root_size", "10M"}, "root_size"},
			{"flat", []string{"root_size", "1T"}, "root_size"},
			{"flat", []string{"root_size", "lots"}, "root_size"},
			{"flat", []string{"boot_size", "4G", "root_size", "4G"}, "__all__"},
			{"lvm", []string{"lv_size", "1G"}, "lv_size"},
			{"lvm", []string{"lv_size", "200%"}, "lv_size"},
			{"bcache", []string{"cache_mode", "none"}, "cache_mode"},
			{"bcache", []string{"cache_size", "1K"}, "cache_size"},
			{"bcache", []string{"cache_size", "1G", "cache_no_part", "true"}, "cache_no_part"},
			{"vmfs6", nil, "boot_size"},
			{"vmfs7", nil, "boot_size"},
			{"zfs", nil, "storage_layout"},
			{"", nil, "storage_layout"},
		}
		for _, test := range tests {
			m.layout(t, machine, test.layout, test.pairs...).refusesField(t, test.field)
		}
		m.layout(t, machine, "custom").refuses(t, http.StatusBadRequest,
			"Failed to configure storage layout 'custom': No custom storage layout configuration found")
		if diff := cmp.Diff(before, use(m.machine(t, machine.str("system_id")))); diff != "" {
			t.Errorf("storage after refusals (-before +after):\n%s", diff)
		}
		m.layout(t, m.disksOf(t), "flat").
			refuses(t, http.StatusBadRequest, "Machine is missing a boot disk; no storage layout can be applied.")
	})
}

// Only administrators may, and only while the machine is Ready, when it is nobody's (api/machines.py: set_storage_layout,
// restore_storage_configuration). The owner of an allocated machine can't change its partitions at all: those calls want
// Ready, too (api/partitions.py, volume_groups.py, raid.py).
func TestStorageIsSetWhileReadyOnly(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		machine := m.disksOf(t, midDisk)
		m.asPlainUser(t).layout(t, machine, "lvm").refusesSilently(t, http.StatusForbidden)
		m.asPlainUser(t).machineOp(t, machine, "restore_storage_configuration").refusesSilently(t, http.StatusForbidden)
		m.op(t, "machines/", "allocate", "system_id", machine.str("system_id")).object(t)
		m.layout(t, machine, "lvm").refuses(t, http.StatusConflict, "Cannot change the storage layout on a machine that is not Ready.")
		m.machineOp(t, machine, "restore_storage_configuration").refuses(t, http.StatusConflict,
			"Machine must be in a ready or failed testing state to restore storage configuration.")
	})
}

// Nothing is undone by itself: a layout stays when a machine is allocated and released.
func TestStorageLayoutOutlivesRelease(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		machine := m.disksOf(t, midDisk)
		id := machine.str("system_id")
		before := use(m.layout(t, machine, "lvm").object(t))
		m.op(t, "machines/", "allocate", "system_id", id).object(t)
		m.release(t, machine).object(t)
		if diff := cmp.Diff(before, use(m.machine(t, id))); diff != "" {
			t.Errorf("storage after the release (-before +after):\n%s", diff)
		}
	})
}

// Restoring gives a machine the region's default layout, not what it had before (set_default_storage_layout in models/node.py).
func TestRestoredStorageIsTheRegionsDefault(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		if got := m.get(t, "maas/?op=get_config&name=default_storage_layout"); strings.TrimSpace(string(got.body)) != `"flat"` {
			lacks(t, "the region's default layout is %s", got.body)
		}
		machine := m.disksOf(t, midDisk)
		for _, layout := range []string{"lvm", "blank", "flat"} {
			m.layout(t, machine, layout).object(t)
			wantUse(t, m.machineOp(t, machine, "restore_storage_configuration").object(t),
				"sda GPT partitioned with 1 partition; part2 ext4 formatted filesystem mounted at /")
		}
	})
}

// MAAS refuses to deploy onto disks on which nothing is mounted at /, or where a machine boots with UEFI at /boot/efi
// (storage_layout_issues in models/node.py).
func TestDeployRefusesBlankDisks(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		spare := m.spare(t)
		m.layout(t, spare, "blank").object(t)
		got := m.deploy(t, spare)
		got.refusesField(t, "storage")
		if told := strings.Contains(string(got.body), "/boot/efi"); told != m.facts.efiRequired {
			t.Errorf("/boot/efi is asked for: %v, want %v: %s", told, m.facts.efiRequired, got.excerpt())
		}
	})
}
