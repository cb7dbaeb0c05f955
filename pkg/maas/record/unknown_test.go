// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
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
		"an operation too": `{"pending":[{"op":"later","at":` + at + `,%s}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			later := `"somethingLater":{"undo":["a volume group",1.50]}`
			m := &infrav1.MaasMachine{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{infrav1.RecordAnnotation: fmt.Sprintf(text, later)}}}
			for i := range 3 { // Each manager reads what the one before it wrote.
				data, err := Of(m)
				if err != nil {
					t.Fatal(err)
				}
				data.AddHost(fmt.Sprintf("%d/lxd", i))
				m.Annotations[infrav1.RecordAnnotation] = data.text()
				if !strings.Contains(data.text(), later) || !json.Valid([]byte(data.text())) {
					t.Fatalf("write %d lost what a later manager recorded: %s", i+1, data.text())
				}
			}
		})
	}
}

// What a later manager recorded about a call, a VM or a machine goes with it.
func TestWhatALaterManagerRecordedGoesWithItsEntry(t *testing.T) {
	m := &infrav1.MaasMachine{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{infrav1.RecordAnnotation: `{` +
		`"pending":[{"op":"deploy","at":"2026-11-26T16:00:00Z","later":1}],"kept":[{"systemID":"a","machine":"m","later":2}],` +
		`"left":[{"hostname":"vm","host":"1/a","later":3}],"storage":{"systemID":"a","later":4}}`}}}
	data, err := Of(m)
	if err != nil {
		t.Fatal(err)
	}
	data.Done(Deploy)
	data.DropKept("a")
	data.Settle(LeftVM{Hostname: "vm", Host: "1/a"})
	data.Storage = nil
	if text := data.text(); text != "" {
		t.Errorf("left: %s", text)
	}
}
