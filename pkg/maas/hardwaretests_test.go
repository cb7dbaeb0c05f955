// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// twoSets are the results of two calls, as MAAS writes them, in no order.
const twoSets = `[
{"id": 21, "type": 2, "status": 3, "results": [
  {"id": 342, "name": "smartctl-validate", "status": 3, "status_name": "Failed", "exit_status": 1, "suppressed": true,
   "started": "Thu, 06 Dec 2018 20:41:55 -0000", "ended": "Thu, 06 Dec 2018 20:42:05 +0000", "runtime": "0:00:10",
   "parameters": {"storage": {"type": "storage", "argument_format": "{path}", "value": {"id": 17, "name": "sdb", "serial": "7"}}}},
  {"id": 341, "name": "smartctl-validate", "status": 2, "exit_status": 0, "suppressed": false, "started": null, "ended": null,
   "parameters": {"storage": {"type": "storage", "value": "all"}, "runtime": {"type": "runtime", "value": 5}}}]},
{"id": 30, "type": 2, "status": 0, "results": [
  {"id": 400, "name": "memtester", "status": 0, "exit_status": null, "started": null, "ended": null, "parameters": {}}]}]`

func TestResultsAreTheNewestFirst(t *testing.T) {
	client := serve(t, answer(http.StatusOK, "application/json", twoSets))
	got, err := client.TestResults(t.Context(), "abc")
	if err != nil {
		t.Fatal(err)
	}
	failed, passed, began := 1, 0, time.Date(2018, 12, 6, 20, 41, 55, 0, time.UTC)
	ended := began.Add(10 * time.Second)
	want := []TestResult{
		{ID: 400, Set: 30, Name: "memtester", Status: TestsPending},
		{ID: 342, Set: 21, Name: "smartctl-validate", Status: TestsFailed, Device: "sdb", DeviceID: 17, Started: &began, Ended: &ended, ExitStatus: &failed, Suppressed: true},
		{ID: 341, Set: 21, Name: "smartctl-validate", Status: TestsPassed, ExitStatus: &passed},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the results differ (-want +got):\n%s", diff)
	}
}

func TestTheLastResultOfEachDeviceCounts(t *testing.T) {
	of := func(set int, name, device string, id int) TestResult {
		return TestResult{Set: set, Name: name, Device: device, DeviceID: id}
	}
	results := []TestResult{
		of(9, "fio", "sda", 1), of(9, "memtester", "", 0), of(8, "fio", "sdb", 1), of(8, "fio", "sdb", 2), of(7, "fio", "sdc", 0), of(7, "memtester", "", 0), of(6, "fio", "sdc", 0),
	}
	want := []TestResult{results[0], results[1], results[3], results[4]}
	if diff := cmp.Diff(want, LastResults(results)); diff != "" {
		t.Errorf("the last results differ (-want +got):\n%s", diff)
	}
}

// What is no result must not count as no result: the machine would be tested for ever.
func TestWhatIsNoTestResultIsAnError(t *testing.T) {
	for name, body := range map[string]string{
		"no list":        `null`,
		"no set":         `[{"results": []}]`,
		"no results":     `[{"id": 1}]`,
		"no name":        `[{"id": 1, "results": [{"id": 2}]}]`,
		"no id":          `[{"id": 1, "results": [{"name": "x"}]}]`,
		"no such time":   `[{"id": 1, "results": [{"id": 2, "name": "x", "ended": "yesterday"}]}]`,
		"no such status": `[{"id": 1, "results": [{"id": 2, "name": "x", "status": "good"}]}]`,
	} {
		t.Run(name, func(t *testing.T) {
			got, err := serve(t, answer(http.StatusOK, "application/json", body)).TestResults(t.Context(), "abc")
			if !errors.Is(err, Unavailable) || got != nil {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

func TestNamesOfTestStatuses(t *testing.T) {
	for status, want := range map[TestStatus]string{
		TestsNone: "Unknown", TestsPending: "Pending", TestsTimedOut: "Timed out", TestsSkipped: "Skipped",
		TestsFailedConfiguring: "Failed to apply custom network configuration", 12: "Unknown",
	} {
		if status.String() != want {
			t.Errorf("%d is %s, want %s", int(status), status, want)
		}
	}
}

func TestOutputIsTheLastLines(t *testing.T) {
	many := slices.Repeat([]string{strings.Repeat("a", 300)}, 30)
	var numbers, lastNumbers []string
	for i := range 30 {
		numbers = append(numbers, fmt.Sprint(i))
	}
	lastNumbers = numbers[10:]
	for name, tc := range map[string]struct {
		output string
		want   []string
	}{
		"nothing":       {"", nil},
		"lines":         {"one\n\n \ntwo\x1b[0m\nthree", []string{"one", "two [0m", "three"}},
		"progress":      {"testing   1%\rtesting  50%\rdone\r\nend\n", []string{"done", "end"}},
		"many":          {strings.Join(numbers, "\n"), lastNumbers},
		"long":          {strings.Join(many, "\n"), many[:6]},
		"no text":       {"\xff\xfe\x00", []string{"?"}},
		"credentials":   {"curl: https://me:secret@proxy:80/ failed", []string{"curl: https://proxy:80/ failed"}},
		"one long line": {strings.Repeat("b", 1<<15), []string{strings.Repeat("b", maxOutputLine) + "..."}},
	} {
		t.Run(name, func(t *testing.T) {
			var asked string
			client := serve(t, func(w http.ResponseWriter, r *http.Request) {
				asked = r.URL.RequestURI()
				fmt.Fprintf(w, `{"id": 21, "results": [{"id": 4, "name": "other", "output": "AAAA"}, {"id": 342, "name": "x", "output": %q, "stdout": "AAAA"}]}`,
					base64.StdEncoding.EncodeToString([]byte(tc.output)))
			})
			got, err := client.TestOutput(t.Context(), "abc", TestResult{ID: 342, Set: 21})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("the output differs (-want +got):\n%s", diff)
			}
			if asked != "/MAAS/api/2.0/nodes/abc/results/21/?filters=342&include_output=true" {
				t.Errorf("asked for %s", asked)
			}
		})
	}
}

func TestOutputOfAResultThatIsGone(t *testing.T) {
	client := serve(t, answer(http.StatusOK, "application/json", `{"id": 21, "results": []}`))
	if got, err := client.TestOutput(t.Context(), "abc", TestResult{ID: 342, Set: 21}); !errors.Is(err, NotFound) || got != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestScriptsAreRead(t *testing.T) {
	client := serve(t, answer(http.StatusOK, "application/json", `[
{"name": "fio", "tags": ["storage", "destructive"], "timeout": "0:00:00", "destructive": true, "default": true, "for_hardware": [],
 "parameters": {"storage": {"type": "storage", "argument_format": "{path}"}}, "results": {"random_read": {"title": "x"}}},
{"name": "burn-in", "tags": ["node"], "timeout": "2 days, 1:02:03", "destructive": false, "default": false,
 "for_hardware": ["pci:8086:1918"], "parameters": {}}]`))
	got, err := client.TestScripts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []Script{
		{Name: "fio", Tags: []string{"storage", "destructive"}, ForHardware: []string{}},
		{Name: "burn-in", Tags: []string{"node"}, ForHardware: []string{"pci:8086:1918"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the scripts differ (-want +got):\n%s", diff)
	}
	if !got[0].Answers("fio") || !got[0].Answers("storage") || got[0].Answers("node") {
		t.Errorf("%+v answers to wrong names", got[0])
	}
}
