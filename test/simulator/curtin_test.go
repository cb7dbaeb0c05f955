// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// What workloads wrote to disks is lost with a deployment or an erasing, but on disks that MAAS's installer does not know.
func TestWhatDisksHold(t *testing.T) {
	b := newBedWith(t, strings.Replace(testRegion, "disks: [200]", "disks: [200, 400]", 1), Options{Seed: 1})
	id := ""
	for _, m := range b.Machines() {
		if m.Hostname == "big" {
			id = m.SystemID
		}
	}
	write := func() {
		t.Helper()
		for _, name := range []string{"sda", "sdb"} {
			if err := b.WriteDisk(id, name, "data of "+name); err != nil {
				t.Fatal(err)
			}
		}
	}
	holds := func(want map[string]string) {
		t.Helper()
		m, _ := b.Machine(id)
		if diff := cmp.Diff(want, m.Data); diff != "" {
			t.Errorf("while it is %s the disks hold (-want +got):\n%s", m.Status, diff)
		}
	}
	call := func(pairs ...string) {
		t.Helper()
		b.do(post, "machines/"+id+"/", pairs...).object(t)
		b.pass(8 * time.Minute)
	}
	write()
	call("op", "deploy")
	holds(nil)
	write()
	call("op", "release")
	holds(map[string]string{"sda": "data of sda", "sdb": "data of sdb"})

	listed := b.do(get, "machines/"+id+"/").object(t)["physicalblockdevice_set"].([]any)
	b.do(del, fmt.Sprintf("nodes/%s/blockdevices/%v/", id, listed[1].(map[string]any)["id"]))
	call("op", "deploy")
	holds(map[string]string{"sdb": "data of sdb"})
	call("op", "release", "erase", "true", "quick_erase", "true", "secure_erase", "false")
	holds(nil)
	for _, bad := range [][2]string{{"gone", "sda"}, {id, "sdz"}} {
		if err := b.WriteDisk(bad[0], bad[1], "x"); err == nil {
			t.Errorf("%v could be written", bad)
		}
	}
}
