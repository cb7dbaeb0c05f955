// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// After `helm rollback` an earlier manager reads and writes the record of a later one. It loses nothing of it, neither at once nor
// when it writes again.
func TestAnEarlierManagerKeepsWhatALaterOneRecorded(t *testing.T) {
	const at = `"2026-11-26T16:00:00Z"`
	for name, text := range map[string]string{
		"beside all":       `{%s}`,
		"pending":          `{"pending":[{"op":"deploy","at":` + at + `},{"op":"link","at":` + at + `,%s}]}`,
		"phase":            `{"phase":{"name":"releasing","since":` + at + `,%s}}`,
		"cleanup":          `{"cleanup":{"tries":1,%s}}`,
		"storage":          `{"storage":{"systemID":"abc123","partitions":[1],%s}}`,
		"release":          `{"release":{"erase":"none","startTime":` + at + `,%s}}`,
		"remediation":      `{"remediation":{"tries":1,%s}}`,
		"kept":             `{"kept":[{"systemID":"a","machine":"m"},{"systemID":"b","machine":"n",%s}]}`,
		"kept spec":        `{"kept":[{"systemID":"b","machine":"n","spec":{"image":"ubuntu/jammy",%s}}]}`,
		"kept deeper":      `{"kept":[{"systemID":"b","machine":"n","spec":{"image":"ubuntu/jammy","release":{"erase":"quick",%s}}}]}`,
		"left":             `{"left":[{"hostname":"vm","host":"1/a",%s}]}`,
		"storage of kept":  `{"kept":[{"systemID":"b","machine":"n","storage":{"systemID":"b",%s}}]}`,
		"giving a kept":    `{"kept":[{"systemID":"b","machine":"n","giving":{"cleanup":{"tries":1,%s}}}]}`,
		"an operation too": `{"pending":[{"op":"later","at":` + at + `,%s}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			later := `"somethingLater":{"undo":["a volume group",1.50]}`
			for kind, data := range map[string]any{"machine": &MachineData{}, "cluster": &ClusterData{}, "host": &HostData{}, "remediation": &RemediationData{}} {
				now := fmt.Sprintf(text, later)
				for i := range 3 { // Each manager reads what the one before it wrote.
					if err := read(now, data); err != nil {
						t.Fatal(err)
					}
					now = write(data)
					if !strings.Contains(now, later) || !json.Valid([]byte(now)) {
						t.Fatalf("write %d of a %s lost what a later manager recorded: %s", i+1, kind, now)
					}
				}
			}
		})
	}
}

// What a later manager recorded about a call, a VM or a machine goes with it.
func TestWhatALaterManagerRecordedGoesWithItsEntry(t *testing.T) {
	var m MachineData
	var c ClusterData
	var h HostData
	for text, data := range map[string]any{
		`{"pending":[{"op":"deploy","at":"2026-11-26T16:00:00Z","later":1}],"storage":{"systemID":"a","later":4}}`: &m,
		`{"kept":[{"systemID":"a","machine":"m","later":2}]}`:                                                      &c,
		`{"left":[{"hostname":"vm","host":"1/a","later":3}]}`:                                                      &h,
	} {
		if err := read(text, data); err != nil || !strings.Contains(write(data), "later") {
			t.Fatal(write(data), err)
		}
	}
	m.Done(Deploy)
	m.Storage = nil
	c.GaveBack("a")
	h.Settle(LeftVM{Hostname: "vm", Host: "1/a"})
	if text := write(m) + write(c) + write(h); text != "" {
		t.Errorf("left: %s", text)
	}
}
