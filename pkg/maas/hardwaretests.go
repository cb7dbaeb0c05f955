// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/internal/text"
)

// TestStatus is the result of a hardware test or, in a machine's Tests, of several: that which counts most in MAAS's
// order. There, results that another user has suppressed in MAAS do not count, and what failed in any way is
// TestsFailed, what is under way in any way TestsRunning.
type TestStatus int

// The results, with MAAS's numbers.
const (
	TestsNone    TestStatus = -1 // no test was ever begun, or the last of each was aborted
	TestsPending TestStatus = 0
	TestsRunning TestStatus = 1
	TestsPassed  TestStatus = 2
	TestsFailed  TestStatus = 3
	// TestsTimedOut: the script took longer than its timeout, or the machine was silent for MAAS's node_timeout.
	TestsTimedOut TestStatus = 4
	// TestsAborted: a user aborted it, or it was not done when its machine failed: the machine did not boot, or another
	// script took too long. MAAS leaves these out of Tests (get_cached_script_results in maasserver/api/nodes.py, 3.3 to
	// 3.8).
	TestsAborted  TestStatus = 5
	TestsDegraded TestStatus = 6 // The machine counts as one that passed.
	// TestsInstalling and TestsConfiguring: what the script needs is being installed, or the machine's own network
	// configuration applied.
	TestsInstalling        TestStatus = 7
	TestsFailedInstalling  TestStatus = 8
	TestsSkipped           TestStatus = 9 // by the script, because there is nothing to test
	TestsConfiguring       TestStatus = 10
	TestsFailedConfiguring TestStatus = 11
)

// UnderWay reports whether the test has not ended.
func (s TestStatus) UnderWay() bool {
	return slices.Contains([]TestStatus{TestsPending, TestsRunning, TestsInstalling, TestsConfiguring}, s)
}

// String is MAAS's name of the result.
func (s TestStatus) String() string {
	names := []string{
		"Pending", "Running", "Passed", "Failed", "Timed out", "Aborted", "Degraded", "Installing dependencies",
		"Failed installing dependencies", "Skipped", "Applying custom network configuration",
		"Failed to apply custom network configuration",
	}
	if s < 0 || int(s) >= len(names) {
		return "Unknown"
	}
	return names[s]
}

// Tests are the results of a machine's hardware tests (GET machines/): all together, and by what was tested. They are
// about the last result of each script that was ever run, on each disk or interface: they don't say when that was, nor
// whether a script was run at all. TestResults does.
type Tests struct {
	All       TestStatus `json:"testing_status"`
	CPU       TestStatus `json:"cpu_test_status"`
	Memory    TestStatus `json:"memory_test_status"`
	Storage   TestStatus `json:"storage_test_status"`
	Network   TestStatus `json:"network_test_status"`
	Interface TestStatus `json:"interface_test_status"`
	Other     TestStatus `json:"other_test_status"`
	// Set is the id of the last set of tests that was begun, or 0: see TestResult.Set. Each StartTests makes a new one,
	// with a higher id. While it is what it was, there are no new results.
	Set int `json:"current_testing_result_id"`
}

// With returns what was tested with a result.
func (t Tests) With(status TestStatus) (tested []string) {
	for _, one := range []struct {
		name   string
		status TestStatus
	}{{"CPU", t.CPU}, {"memory", t.Memory}, {"storage", t.Storage}, {"network", t.Network},
		{"network interfaces", t.Interface}, {"other hardware", t.Other}} {
		if one.status == status {
			tested = append(tested, one.name)
		}
	}
	return tested
}

// TestParams are the parameters of op=test.
type TestParams struct {
	// Scripts are names of testing scripts, and tags of some. None: those with the tag commissioning.
	Scripts []string
	// Parameters are those of scripts, by NAME for all scripts that have it, or SCRIPT_NAME for one. What no script has
	// is ignored; so are all of them without Scripts. A disk is all, an id, a name, a model, a serial or a tag; a time is
	// in seconds.
	Parameters map[string]string
}

// StartTests boots a machine into MAAS's ephemeral environment and runs testing scripts (POST machines/{id}/ op=test,
// for administrators). MAAS has no such call for several machines. From 3.5 on it responds when the machine was
// switched on, or off and on if it was on: if that fails, the machine is as before, and the tests are aborted. Before,
// it responds earlier, and the machine is StatusFailedTesting then.
//
// The machine is StatusTesting, and keeps its owner, its agent name, its annotations and its pool; one that nobody has
// is the user's meanwhile. All scripts run, also after one has failed. When all passed, it is in the state that it had,
// with these exceptions: StatusReady and nobody's if that was StatusBroken, StatusNew or a failure, but StatusNew if it
// was StatusFailedCommissioning. If one has failed it is StatusFailedTesting, also when it does not boot within 30
// minutes (node_timeout). It counts what a script returned, not what it wrote in its results: see TestResults.
//
// Then the machine switches itself off, or restarts if it was on before: MAAS notices some time after the state has
// changed. A deployment in between restarts it from 3.5 on, and before if its power driver does so (IPMI, Redfish).
// When MAAS finds it off, it loses its AUTO addresses, and the bridges that were made while it was StatusAllocated.
//
// Scripts use the network of the ephemeral environment, except those for networks: they are run with the links that the
// machine has in MAAS. A destructive script writes to disks, and leaves what MAAS knows of their layout alone.
//
// Forbidden: the user may not, or the machine is locked. Invalid: the state does not allow it, or the machine has no
// interface (field __all__); a script (field testing_scripts) or the value of a parameter is wrong; no script fits the
// machine; it is New and was never commissioned; it has no interface with a link for a script that needs one; it is
// deployed, and a script destructive. (node_action.py, forms/ephemeral.py, models/node.py and metadataserver/api.py in
// MAAS 3.3 to 3.8.)
func (c *Client) StartTests(ctx context.Context, permit Permit, systemID string, p TestParams) (*Machine, error) {
	form := setAll(url.Values{}, p.Parameters)
	form.Del("enable_ssh")
	form.Del("testing_scripts")
	if len(p.Scripts) > 0 { // Of a key that is repeated, MAAS reads the last one.
		form.Set("testing_scripts", strings.Join(p.Scripts, ","))
	}
	return askFor[Machine](ctx, c, on("machines/{id}/", systemID).post(permit, "test", form).slowly())
}

// MarkMachineBroken takes a machine out of use (POST machines/{id}/ op=mark_broken, for its owner). MAAS refuses to
// release one that is StatusFailedTesting; such a one stays its owner's, who may release it when it is broken.
// (op=override_failed_testing would make it StatusReady and nobody's, with the agent name and the annotations that it
// had.)
func (c *Client) MarkMachineBroken(ctx context.Context, permit Permit, systemID, comment string) (*Machine, error) {
	form := formOf("comment", comment)
	return askFor[Machine](ctx, c, on("machines/{id}/", systemID).post(permit, "mark_broken", form))
}

// TestResult is the result of a testing script on a machine or, of a script with a parameter for disks or interfaces,
// on one of them.
type TestResult struct {
	ID int
	// Set is the id of the set of tests that were begun with one call: see Tests.Set.
	Set int
	// Name is the script's.
	Name   string
	Status TestStatus
	// Device is the name of the disk or of the interface, or "", and DeviceID its id in MAAS, or 0.
	Device   string
	DeviceID int
	// Started and Ended are by MAAS's clock, in seconds; nil if it did not start, or not end. Of a test that MAAS gave up
	// it does not say when: aborted, or failed with its machine.
	Started, Ended *time.Time
	// ExitStatus is what the script returned; nil if it did not end by itself.
	ExitStatus *int
	// Suppressed: a user said in MAAS that the failure does not matter.
	Suppressed bool
}

// IsGood reports whether the test ended and found nothing bad: also if there was nothing to test, or a user has
// suppressed what it found. What is degraded is not good.
func (r TestResult) IsGood() bool {
	return r.Status == TestsPassed || r.Status == TestsSkipped || (r.Suppressed && !r.Status.UnderWay())
}

// LastResults returns the last of results for each script and device. A set may be about some devices of a machine
// only.
func LastResults(results []TestResult) (last []TestResult) {
	type subject struct {
		script, device string
		id             int
	}
	of := func(r TestResult) subject {
		if r.DeviceID != 0 {
			return subject{script: r.Name, id: r.DeviceID}
		}
		return subject{script: r.Name, device: r.Device}
	}
	sets := map[subject]int{}
	for _, r := range results {
		sets[of(r)] = max(sets[of(r)], r.Set)
	}
	for _, r := range results {
		if r.Set == sets[of(r)] {
			last = append(last, r)
		}
	}
	return last
}

// TestResults returns the results of a machine's tests, the newest first (GET nodes/{id}/results/ type=testing). MAAS
// keeps the last 10 of each script (max_node_testing_results), also those of tests that followed commissioning. It
// deletes those of a script that is deleted.
func (c *Client) TestResults(ctx context.Context, systemID string) ([]TestResult, error) {
	sets, err := ask[[]testSet](ctx, c, on("nodes/{id}/results/", systemID).query("", url.Values{"type": {"testing"}}))
	if err != nil {
		return nil, err
	}
	results := []TestResult{}
	for _, set := range sets {
		for _, one := range set.Results {
			results = append(results, one.in(set.ID))
		}
	}
	slices.SortFunc(results, func(a, b TestResult) int { return cmp.Compare(b.ID, a.ID) })
	return results, nil
}

// testSet is a set of tests that were begun together.
type testSet struct {
	ID      int          `json:"id"`
	Results []testResult `json:"results"`
}

// testResult is a TestResult as MAAS writes it.
type testResult struct {
	ID         int           `json:"id"`
	Name       string        `json:"name"`
	Status     TestStatus    `json:"status"`
	Started    mailTime      `json:"started"`
	Ended      mailTime      `json:"ended"`
	ExitStatus *int          `json:"exit_status"`
	Suppressed bool          `json:"suppressed"`
	Parameters testedDevices `json:"parameters"`
	Output     []byte        `json:"output"` // only if it is asked for
}

func (r testResult) in(set int) TestResult {
	return TestResult{
		ID: r.ID, Set: set, Name: r.Name, Status: r.Status, Device: r.Parameters.name, DeviceID: r.Parameters.id,
		Started: r.Started.Time, Ended: r.Ended.Time, ExitStatus: r.ExitStatus, Suppressed: r.Suppressed,
	}
}

// mailTime is a time as in mails, which MAAS writes in results: Thu, 06 Dec 2018 20:41:55 -0000.
type mailTime struct{ *time.Time }

// UnmarshalJSON reads a time, or null.
func (t *mailTime) UnmarshalJSON(raw []byte) error {
	var written *string
	if err := json.Unmarshal(raw, &written); err != nil || written == nil {
		return err
	}
	at, err := time.Parse(time.RFC1123Z, *written)
	if err != nil {
		return fmt.Errorf("reading a time: %w", err)
	}
	t.Time = new(at.UTC())
	return nil
}

// testedDevices is what is read of a result's parameters: the disk or the interface. The others are anybody's, and
// may be secret: MAAS hides only those that the script calls passwords.
type testedDevices struct {
	name string
	id   int
}

// UnmarshalJSON reads the name and the id of the first disk or interface, if there is one.
func (d *testedDevices) UnmarshalJSON(raw []byte) error {
	var parameters map[string]struct {
		Type  string          `json:"type"`
		Value json.RawMessage `json:"value"`
	}
	_ = json.Unmarshal(raw, &parameters) // Anything may be there.
	for _, parameter := range slices.Sorted(maps.Keys(parameters)) {
		var device struct {
			ID   int    `json:"id"`
			Name string `json:"name"`
		}
		one := parameters[parameter]
		isDevice := one.Type == "storage" || one.Type == "interface"
		if isDevice && json.Unmarshal(one.Value, &device) == nil { // It is a word while the device is not known.
			d.name, d.id = device.Name, device.ID
			break
		}
	}
	return nil
}

const (
	// maxOutputLines and maxOutput bound what is returned of a script's output, in lines and in bytes; maxOutputLine
	// bounds one line.
	maxOutputLines = 20
	maxOutput      = 2 << 10
	maxOutputLine  = maxOutput / 4
)

// TestOutput returns the last lines that the script of a result wrote: at most 20, and 2 KiB, of printable characters,
// with user names and passwords in URLs left out (GET nodes/{id}/results/{set}/ include_output). A script may write
// other secrets: it is for people who ask for it. NotFound: MAAS has not kept the result. Unavailable: it is longer
// than a response may be, some hundred KiB.
func (c *Client) TestOutput(ctx context.Context, systemID string, of TestResult) ([]string, error) {
	query := url.Values{"include_output": {"true"}, "filters": {strconv.Itoa(of.ID)}}
	call := on("nodes/{id}/results/{set}/", systemID, of.Set).query("", query)
	set, err := ask[testSet](ctx, c, call)
	if err != nil {
		return nil, err
	}
	for _, one := range set.Results {
		if one.ID == of.ID { // A script or a tag may have a number as its name.
			return lastLines(one.Output), nil
		}
	}
	missing := call.fail(0, "MAAS has no such test result", nil)
	missing.Kind = NotFound
	return nil, missing
}

// credentials are a user name, with or without a password, in a URL.
var credentials = regexp.MustCompile(`://[^/\s@]+@`)

func lastLines(output []byte) []string {
	var lines []string
	left := maxOutput
	all := slices.Collect(bytes.Lines(output))
	for _, line := range slices.Backward(all) {
		// What a terminal would show: progress is written over itself.
		shown := line[bytes.LastIndexByte(bytes.TrimRight(line, "\r\n"), '\r')+1:]
		clean := text.OneLine(credentials.ReplaceAllString(string(shown), "://"), maxOutputLine)
		if clean == "" {
			continue
		}
		if left -= len(clean); left < 0 || len(lines) == maxOutputLines {
			break
		}
		lines = append(lines, clean)
	}
	slices.Reverse(lines)
	return lines
}

// Script is a testing script in MAAS.
type Script struct {
	Name string `json:"name"`
	// Tags also have what the script tests (cpu, memory, storage, network, node or gpu) and, if it is so, destructive.
	Tags []string `json:"tags"`
	// ForHardware is not empty: it runs only on machines with this hardware.
	ForHardware []string `json:"for_hardware"`
}

// Answers reports whether op=test runs the script for a name or a tag.
func (s Script) Answers(name string) bool { return s.Name == name || slices.Contains(s.Tags, name) }

// TestScripts returns MAAS's testing scripts, for all users (GET scripts/ type=testing). Seventeen come with MAAS.
func (c *Client) TestScripts(ctx context.Context) ([]Script, error) {
	return ask[[]Script](ctx, c, on("scripts/").query("", url.Values{"type": {"testing"}}))
}
