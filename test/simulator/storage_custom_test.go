// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// withStorageExtra is a bed with the server metal, that has six disks, and what a commissioning script wrote.
func withStorageExtra(t *testing.T, extra string) *bed {
	t.Helper()
	return newBedWith(t, "users: [{name: admin, admin: true, keys: [\"adminkey:admintoken:adminsecret\"]}]\n"+
		"machines: [{name: metal, cores: 8, memory: 16384, disks: [100, 400, 60, 60, 60, 60], storage_extra: "+extra+"}]",
		Options{Seed: 1})
}

const customRoot = "sda: {type: disk, ptable: gpt, partitions: [{name: root, size: 50G, fs: ext4}, {name: spare, size: 20G}]}"

// The size of a RAID is that of its smallest devices.
func TestCustomLayoutMakesRAIDs(t *testing.T) {
	const gb, overhead = 1000 * 1000 * 1000, 128 << 10
	for name, test := range map[string]struct {
		raid string
		size int64
		want []string
	}{
		"mirror":       {"level: 1, members: [sdb, sdc], fs: ext4", 60*gb - overhead, []string{"sdb 400000000000 Active raid-1 device for md0"}},
		"stripe":       {"level: 0, members: [sdb, sdc]", 460*gb - 2*overhead, []string{"md0 459999737856 raid-0 Unused"}},
		"parity":       {"level: 5, members: [sdc, sdd, sde], spares: [sdf], fs: xfs", 120*gb - overhead, []string{"sdf 60000000000 Spare raid-5 device for md0"}},
		"two parities": {"level: 6, members: [sdc, sdd, sde, sdf]", 120*gb - overhead, nil},
		"both":         {"level: 10, members: [sdc, sdd, sde, sdf]", 120*gb - overhead, nil},
		"partition":    {"level: 1, members: [spare, sdb]", 20*gb - 20*gb%(4<<20) - overhead, []string{"sda-part2 19998441472 Active raid-1 device for md0"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := withStorageExtra(t, "{layout: {"+customRoot+", md0: {type: raid, "+test.raid+"}}, mounts: {/: {device: root}}}")
			got := b.do(post, "machines/"+b.named("metal").SystemID+"/", "op", "set_storage_layout", "storage_layout", "custom").object(t)
			raids := got["raids"].([]any)
			if len(raids) != 1 {
				t.Fatalf("RAIDs %v, want one", raids)
			}
			if size := raids[0].(map[string]any)["size"].(float64); int64(size) != test.size {
				t.Errorf("%d bytes, want %d", int64(size), test.size)
			}
			lines := b.named("metal").Storage
			for _, want := range append(test.want, "sda-part1 49996103680 ext4 formatted filesystem mounted at /") {
				if !slices.Contains(lines, want) {
					t.Errorf("%s, want %q in it", strings.Join(lines, "\n"), want)
				}
			}
		})
	}
}

// What a machine can't have is refused as a whole.
func TestCustomLayoutRefuses(t *testing.T) {
	for name, test := range map[string]struct{ layout, mounts, want string }{
		"no such disk":        {"sdz: {type: disk}, sdy: {type: disk}", "", "Unknown machine disk(s): sdy, sdz"},
		"no such member":      {"md0: {type: raid, level: 1, members: [sdb, sdy]}", "", "Unknown machine disk(s): sdy"},
		"no table":            {"sda: {type: disk, partitions: [{name: p, size: 1G}]}", "", "Partition table not specified for 'sda'"},
		"no room":             {"sda: {type: disk, ptable: gpt, partitions: [{name: p, size: 1T}]}", "", "not enough free space"},
		"no size":             {"sda: {type: disk, ptable: gpt, partitions: [{name: p, size: 1X}]}", "", "Invalid size '1X'"},
		"a negative size":     {"sda: {type: disk, ptable: gpt, partitions: [{name: p, size: -1G}]}", "", "Invalid negative size '-1G'"},
		"a tiny partition":    {"sda: {type: disk, ptable: gpt, partitions: [{name: p, size: 1M}]}", "", "greater than or equal to 4194304"},
		"a member is missing": {"md0: {type: raid, level: 5, members: [sdb, sdc]}", "", "RAID level 5 must have at least 3 raid devices"},
		"a spare of a stripe": {"md0: {type: raid, level: 0, members: [sdb, sdc], spares: [sdd]}", "", "RAID level 0 doesn't support spares"},
		"a spare twice":       {"md0: {type: raid, level: 1, members: [sdb, sdc], spares: [sdc]}", "", "RAID 'md0' has duplicated devices"},
		"nothing to mount":    {"md0: {type: raid, level: 1, members: [sdb, sdc]}", "/srv: {device: md0}", "Filesystem not found for device 'md0'"},
	} {
		t.Run(name, func(t *testing.T) {
			b := withStorageExtra(t, fmt.Sprintf("{layout: {%s}, mounts: {%s}}", test.layout, test.mounts))
			before := b.named("metal").Storage
			got := b.do(post, "machines/"+b.named("metal").SystemID+"/", "op", "set_storage_layout", "storage_layout", "custom")
			if got.status != http.StatusBadRequest || !strings.Contains(got.body, test.want) {
				t.Errorf("%d %s, want 400 and %q", got.status, got.body, test.want)
			}
			if after := b.named("metal").Storage; !slices.Equal(before, after) {
				t.Errorf("its disks hold %v, want %v", after, before)
			}
		})
	}
}

// process_lxd_results in metadataserver/builtin_scripts/hooks.py applies what a script wrote, whatever the layout is later.
func TestCustomLayoutIsAppliedAtCommissioning(t *testing.T) {
	for name, test := range map[string]struct {
		member string // of the RAID
		status int    // of a plain deployment
		raids  int
	}{"it fits": {"sdb", http.StatusOK, 1}, "no such disk": {"sdy", http.StatusBadRequest, 0}} {
		t.Run(name, func(t *testing.T) {
			extra := "{layout: {" + customRoot + ", md0: {type: raid, level: 1, members: [sdc, " + test.member + "], fs: xfs}}, mounts: {/: {device: root}}}"
			b := newBedWith(t, strings.Replace(testRegion, "disks: [200], tags: [fast]}", "disks: [200, 60, 60], storage_extra: "+extra+"}", 1), Options{Seed: 1})
			path := "machines/" + b.named("big").SystemID + "/"
			b.do(post, path, "op", "commission").object(t)
			b.pass(10 * time.Minute)
			got := b.do(http.MethodGet, path).object(t)
			if raids := got["raids"].([]any); got["status_name"] != "Ready" || len(raids) != test.raids {
				t.Errorf("%v with %d RAIDs, want Ready with %d", got["status_name"], len(raids), test.raids)
			}
			if got := b.do(post, path, "op", "deploy"); got.status != test.status {
				t.Errorf("a plain deployment: %d %s, want %d", got.status, got.body, test.status)
			}
		})
	}
}
