// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

func disk(id, gigabytes int, serial string, tags ...string) *maas.Disk {
	return &maas.Disk{ID: id, Name: "sd" + string(rune('a'+id-1)), Size: int64(gigabytes) * 1_000_000_000, Serial: serial, Tags: tags}
}

func TestPlan(t *testing.T) {
	sda, sdb, sdc := disk(1, 100, "S1", "sata"), disk(2, 400, "S2", "nvme", "ssd"), disk(3, 60, "S3", "ssd")
	server := &maas.Machine{BootDisk: sda, Disks: []*maas.Disk{sdc, sdb, sda}}
	on := func(layout string, root DiskWish) StorageWish { return StorageWish{Layout: layout, RootDisk: &root} }
	for name, tc := range map[string]struct {
		machine *maas.Machine
		wish    StorageWish
		root    int
		misfit  []string
	}{
		"the boot disk":                 {server, StorageWish{Layout: "lvm"}, 0, nil},
		"the boot disk, as it fits":     {server, on("flat", DiskWish{MinSize: 50}), 1, nil},
		"the first other disk":          {server, on("flat", DiskWish{Tags: []string{"ssd"}}), 2, nil},
		"by its serial number":          {server, on("flat", DiskWish{Serial: "S3"}), 3, nil},
		"by all that is asked for":      {server, on("flat", DiskWish{Tags: []string{"ssd", "nvme"}, Serial: "S2", MinSize: 400}), 2, nil},
		"no such disk":                  {server, on("flat", DiskWish{Tags: []string{"ssd"}, MinSize: 401}), 0, []string{"sda lacks the tag ssd", "sdb has 400 GB", "sdc has 60 GB"}},
		"no disk at all":                {&maas.Machine{}, StorageWish{Layout: "flat"}, 0, []string{"no disk to boot from"}},
		"a cache":                       {server, StorageWish{Layout: "bcache"}, 0, nil},
		"a cache beside the chosen one": {server, on("bcache", DiskWish{Tags: []string{"nvme"}}), 2, nil},
		"the cache itself":              {server, on("bcache", DiskWish{Serial: "S3"}), 0, []string{"root on sdc", "takes for the cache"}},
		"no cache":                      {&maas.Machine{BootDisk: sdb, Disks: []*maas.Disk{sda, sdb}}, StorageWish{Layout: "bcache"}, 0, []string{"boot disk sdb", "tag ssd"}},
	} {
		t.Run(name, func(t *testing.T) {
			layout, misfit := tc.wish.Plan(tc.machine)
			if len(tc.misfit) == 0 && misfit != "" {
				t.Fatalf("refused: %s", misfit)
			}
			for _, part := range tc.misfit {
				if !strings.Contains(misfit, part) {
					t.Errorf("%q, want %q in it", misfit, part)
				}
			}
			if misfit == "" && (layout.RootDevice != tc.root || layout.Name != tc.wish.Layout) {
				t.Errorf("%+v, want the root on %d", layout, tc.root)
			}
		})
	}
}

// MAAS gives partitions new ids when a layout is set again.
func TestPartitions(t *testing.T) {
	m := &maas.Machine{Disks: []*maas.Disk{{Partitions: []maas.Partition{{ID: 7}, {ID: 8}}}, {}, {Partitions: []maas.Partition{{ID: 5}}}}}
	if diff := cmp.Diff([]int{5, 7, 8}, Partitions(m)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Of two objects that picked the same machine, one gets it.
func TestReserve(t *testing.T) {
	now := time.Now()
	s := NewService(nil, nil)
	s.Quarantine.SetClock(func() time.Time { return now })
	m := &maas.Machine{SystemID: "abc", Hostname: "server"}
	for range 2 {
		if !s.TryWithhold(m, "a") || s.TryWithhold(m, "b") {
			t.Error("want the first owner to have it")
		}
	}
	if !s.LeftOn(m, "b").Storage || s.LeftOn(m, "a").Storage {
		t.Error("want its storage to be left for others, not for its owner")
	}
	s.StopWithholding("abc", "a")
	if !s.TryWithhold(m, "b") {
		t.Error("want the second owner to have it then")
	}
	now = now.Add(withheldFor + time.Minute)
	if !s.TryWithhold(m, "a") {
		t.Error("want it to be free in the end")
	}
}
