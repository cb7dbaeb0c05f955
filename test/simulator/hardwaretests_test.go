// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// testsRegion has scripts of users, and a machine with two disks.
var testsRegion = strings.Replace(testRegion, "disks: [200], tags", "disks: [200, 500], hardware: {system_vendor: Acme}, tags", 1) + `
scripts:
- {name: burn-in, tags: [site], timeout: 10m, parameters: [{name: level, type: choice, choices: [low, high]}, {name: for, type: runtime}]}
- {name: acme-only, tags: [site], for_hardware: ["system_vendor:Acme"]}
- {name: gpu-check, hardware: gpu}
`

// test starts tests, and returns MAAS's answer.
func (b *bed) test(id string, pairs ...string) answer {
	b.t.Helper()
	return b.do(post, "machines/"+id+"/", append([]string{"op", "test"}, pairs...)...)
}

// results are the results of all sets, as script/device: status, sorted within each set.
func (b *bed) results(id string) (sets [][]string) {
	b.t.Helper()
	got := b.do(get, "nodes/"+id+"/results/", "type", "testing")
	var all []struct {
		Results []struct {
			Name       string `json:"name"`
			Status     string `json:"status_name"`
			Parameters map[string]struct {
				Type  string `json:"type"`
				Value any    `json:"value"`
			} `json:"parameters"`
		} `json:"results"`
	}
	if err := json.Unmarshal([]byte(got.body), &all); err != nil {
		b.t.Fatalf("%v: %s", err, got.body)
	}
	for _, set := range all {
		var shown []string
		for _, r := range set.Results {
			one := r.Name
			for _, key := range []string{"storage", "interface", "url", "level", "for"} {
				switch value := r.Parameters[key].Value.(type) {
				case map[string]any:
					one += "/" + fmt.Sprint(value["name"])
				case string:
					one += "/" + value
				}
			}
			shown = append(shown, one+": "+r.Status)
		}
		slices.Sort(shown)
		sets = append(sets, shown)
	}
	return sets
}

func TestTestsOfAMachine(t *testing.T) {
	const s, m = time.Second, time.Minute
	allocated := func(b *bed, id string) {
		b.do(post, "machines/", "op", "allocate", "system_id", id, "agent_name", "mine").object(b.t)
	}
	ends := func(script, device, result string) func(*bed, string) {
		return func(b *bed, id string) {
			allocated(b, id)
			if err := b.SetTestOutcome(id, script, TestOutcome{Result: result, Device: device}); err != nil {
				b.t.Fatal(err)
			}
		}
	}
	for name, test := range map[string]struct {
		prepare func(*bed, string)
		pairs   []string
		steps   []step
		want    []string
		owner   string
	}{
		"those after commissioning": {nil, nil, []step{
			{0, "Testing", "off"}, {20 * s, "Testing", "on"}, {29 * s, "Testing", "on"}, {s, "Ready", "on"}, {10 * s, "Ready", "off"},
		}, []string{"smartctl-validate/sda: Passed", "smartctl-validate/sdb: Passed"}, ""},
		"of an acquired machine": {allocated, []string{"testing_scripts", "memtester,stress-ng-cpu-short"}, []step{
			{79 * s, "Testing", "on"}, {s, "Allocated", "on"}, {10 * s, "Allocated", "off"},
		}, []string{"memtester: Passed", "stress-ng-cpu-short: Passed"}, "admin"},
		"a failure, after which the others run": {ends("stress-ng-cpu-short", "", "failed"), []string{"testing_scripts", "memtester,stress-ng-cpu-short"}, []step{
			{79 * s, "Testing", "on"}, {s, "Failed testing", "on"}, {10 * s, "Failed testing", "off"},
		}, []string{"memtester: Passed", "stress-ng-cpu-short: Failed"}, "admin"},
		"on one disk": {ends("smartctl-validate", "sdb", "failed"), nil, []step{{50 * s, "Failed testing", "on"}},
			[]string{"smartctl-validate/sda: Passed", "smartctl-validate/sdb: Failed"}, "admin"},
		"degraded is no failure": {ends("memtester", "", "degraded"), []string{"testing_scripts", "memtester"}, []step{{50 * s, "Allocated", "on"}},
			[]string{"memtester: Degraded"}, "admin"},
		"until its timeout": {ends("burn-in", "", "hangs"), []string{"testing_scripts", "burn-in"}, []step{
			{10*m + 19*s, "Testing", "on"}, {s, "Failed testing", "on"},
		}, []string{"burn-in: Timed out"}, "admin"},
		"without a timeout": {ends("memtester", "", "hangs"), []string{"testing_scripts", "memtester"}, []step{{24 * time.Hour, "Testing", "on"}},
			[]string{"memtester: Running"}, "admin"},
		"a machine that dies": {ends("memtester", "", "dies"), []string{"testing_scripts", "memtester,acme-only"}, []step{
			{30*m + 19*s, "Testing", "on"}, {s, "Failed testing", "on"}, {10 * s, "Failed testing", "off"},
		}, []string{"acme-only: Timed out", "memtester: Timed out"}, "admin"},
		"of a broken machine": {func(b *bed, id string) {
			allocated(b, id)
			b.do(post, "machines/"+id+"/", "op", "mark_broken").object(b.t)
		}, []string{"testing_scripts", "memtester"}, []step{{50 * s, "Ready", "on"}}, []string{"memtester: Passed"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBedWith(t, testsRegion, Options{Seed: 1})
			id := b.named("big").SystemID
			if test.prepare != nil {
				test.prepare(b, id)
			}
			before := b.do(get, "machines/"+id+"/").object(t)["current_testing_result_id"].(float64)
			began := b.test(id, test.pairs...).object(t)
			if after := began["current_testing_result_id"].(float64); after <= before || began["owner"] != "admin" {
				t.Errorf("set %v after %v, owner %v", after, before, began["owner"])
			}
			b.expect(id, test.steps)
			sets := b.results(id)
			if diff := cmp.Diff(test.want, sets[len(sets)-1]); diff != "" {
				t.Errorf("the results differ (-want +got):\n%s", diff)
			}
			if m, _ := b.Machine(id); m.Owner != test.owner {
				t.Errorf("owner %q, want %q", m.Owner, test.owner)
			}
		})
	}
}

// A machine that does not boot has no results, and MAAS says why it failed.
func TestTestsOfAMachineThatDoesNotBoot(t *testing.T) {
	b := newBedWith(t, testsRegion, Options{Seed: 1})
	id := b.named("small").SystemID
	b.control(post, "machines/small/test", `{"result": "dies"}`)
	b.test(id).object(t)
	b.expect(id, []step{{30*time.Minute + 19*time.Second, "Testing", "on"}, {time.Second, "Failed testing", "on"}})
	if diff := cmp.Diff([]string{"smartctl-validate/sda: Aborted"}, b.results(id)[1]); diff != "" {
		t.Errorf("the results differ (-want +got):\n%s", diff)
	}
	if why := b.do(get, "machines/"+id+"/").object(t)["error_description"]; why != "Node operation 'Testing' timed out after 30 minutes." {
		t.Errorf("it failed because: %v", why)
	}
}

func TestTestsAreRefused(t *testing.T) {
	choice := func(field, value string) string {
		return fmt.Sprintf(`{"%s":["Select a valid choice. %s is not one of the available choices."]}`, field, value)
	}
	const state = `{"__all__":["Test is not available because of the current state of the node."]}`
	for name, test := range map[string]struct {
		prepare func(b *bed, id string)
		pairs   []string
		status  int
		body    string
	}{
		"no script":    {nil, []string{"testing_scripts", "memtester,nope,neither"}, 400, choice("testing_scripts", "nope")},
		"no disk":      {nil, []string{"testing_scripts", "fio", "fio_storage", "sdz"}, 400, choice("fio_storage", "sdz")},
		"no interface": {nil, []string{"testing_scripts", "gateway-connectivity", "interface", "eth9"}, 400, choice("interface", "eth9")},
		"no choice":    {nil, []string{"testing_scripts", "burn-in", "level", "top"}, 400, choice("level", "top")},
		"no time":      {nil, []string{"testing_scripts", "burn-in", "burn-in_for", "long"}, 400, `{"burn-in_for":["Enter a valid duration."]}`},
		"no URL":       {nil, []string{"testing_scripts", "internet", "url", "a b"}, 400, `{"url":["Invalid URL"]}`},
		"of another script": {nil, []string{"testing_scripts", "badblocks,badblocks-destructive", "badblocks-destructive_storage", "sda"}, 400,
			`{"input":["Unknown parameter 'destructive_storage' for badblocks"]}`},
		"no script for it": {nil, []string{"testing_scripts", "acme-only"}, 400, "No testing scripts found!"},
		"under way":        {func(b *bed, id string) { b.test(id).object(b.t) }, nil, 400, state},
		"deploying":        {func(b *bed, id string) { b.do(post, "machines/"+id+"/", "op", "deploy").object(b.t) }, nil, 400, state},
		"deployed": {func(b *bed, id string) {
			b.do(post, "machines/"+id+"/", "op", "deploy").object(b.t)
			b.pass(6 * time.Minute)
		}, []string{"testing_scripts", "fio"}, 400, `{"testing_scripts":["Destructive tests may only be run on undeployed machines."]}`},
		"locked": {func(b *bed, id string) {
			b.do(post, "machines/"+id+"/", "op", "deploy").object(b.t)
			b.do(post, "machines/"+id+"/", "op", "lock").object(b.t)
		}, nil, 403, ""},
		"no image": {func(b *bed, _ string) { b.db.config["commissioning_distro_series"] = "noble" }, nil, 400,
			"Ephemeral operating system ubuntu/noble for amd64/generic is unavailable."},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBedWith(t, testsRegion, Options{Seed: 1})
			id := b.named("small").SystemID
			if test.prepare != nil {
				test.prepare(b, id)
			}
			sets := b.results(id)
			if got := b.test(id, test.pairs...); got.status != test.status || got.body != test.body {
				t.Errorf("%d %s, want %d %s", got.status, got.body, test.status, test.body)
			}
			if diff := cmp.Diff(sets, b.results(id)); diff != "" {
				t.Errorf("the results changed:\n%s", diff)
			}
		})
	}
}

func TestParametersOfTests(t *testing.T) {
	for name, test := range map[string]struct {
		pairs, want []string
	}{
		"none":               {[]string{"testing_scripts", "fio"}, []string{"fio/sda: Running", "fio/sdb: Running"}},
		"for one script":     {[]string{"testing_scripts", "fio,badblocks", "fio_storage", "sdb"}, []string{"badblocks/sda: Running", "badblocks/sdb: Running", "fio/sdb: Pending"}},
		"for all scripts":    {[]string{"testing_scripts", "fio,badblocks", "storage", "sdb"}, []string{"badblocks/sdb: Running", "fio/sdb: Pending"}},
		"of no script":       {[]string{"testing_scripts", "memtester", "storage", "sdb", "nonsense", "x"}, []string{"memtester: Running"}},
		"without scripts":    {[]string{"storage", "sdb"}, []string{"smartctl-validate/sda: Running", "smartctl-validate/sdb: Running"}},
		"defaults":           {[]string{"testing_scripts", "internet-connectivity"}, []string{"internet-connectivity/enp1s0/https://connectivity-check.ubuntu.com: Running"}},
		"values":             {[]string{"testing_scripts", "burn-in", "level", "high", "for", "60"}, []string{"burn-in/high/60: Running"}},
		"the last of a name": {[]string{"testing_scripts", "fio", "testing_scripts", "memtester"}, []string{"memtester: Running"}},
		"a tag":              {[]string{"testing_scripts", "site"}, []string{"acme-only: Running", "burn-in: Pending"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBedWith(t, testsRegion, Options{Seed: 1})
			id := b.named("big").SystemID
			b.test(id, test.pairs...).object(t)
			b.pass(21 * time.Second)
			sets := b.results(id)
			if diff := cmp.Diff(test.want, sets[len(sets)-1]); diff != "" {
				t.Errorf("the results differ (-want +got):\n%s", diff)
			}
		})
	}
}

// An aborted test is no result: it hides what was before it.
func TestAnAbortedTest(t *testing.T) {
	b := newBedWith(t, testsRegion, Options{Seed: 1})
	id := b.named("big").SystemID
	b.do(post, "machines/", "op", "allocate", "system_id", id, "agent_name", "mine").object(t)
	b.test(id).object(t)
	b.pass(30 * time.Second)
	b.do(post, "machines/"+id+"/", "op", "abort").object(t)
	b.expect(id, []step{{9 * time.Second, "Testing", "on"}})
	b.do(post, "machines/"+id+"/", "op", "abort").object(t) // It does not begin anew.
	b.expect(id, []step{{time.Second, "Allocated", "off"}})
	sets := b.results(id)
	if diff := cmp.Diff([]string{"smartctl-validate/sda: Aborted", "smartctl-validate/sdb: Aborted"}, sets[len(sets)-1]); diff != "" {
		t.Errorf("the results differ (-want +got):\n%s", diff)
	}
	if status := b.do(get, "machines/"+id+"/").object(t)["testing_status"]; status != float64(scriptNone) {
		t.Errorf("testing status %v", status)
	}
	if m, _ := b.Machine(id); m.AgentName != "mine" || m.Owner != "admin" {
		t.Errorf("owner %s, agent name %s", m.Owner, m.AgentName)
	}
}

// Only one who released the machine removes the marks of its owner.
func TestOverrideOfFailedTests(t *testing.T) {
	b := newBedWith(t, testsRegion, Options{Seed: 1})
	id := b.named("big").SystemID
	if got := b.do(post, "machines/"+id+"/", "op", "override_failed_testing"); got.status != http.StatusConflict {
		t.Errorf("of a Ready machine: %d %s", got.status, got.body)
	}
	b.do(post, "machines/", "op", "allocate", "system_id", id, "agent_name", "mine").object(t)
	b.control(post, "machines/big/test", `{"script": "smartctl-validate", "result": "failed", "output": "it smokes"}`)
	b.test(id).object(t)
	b.pass(time.Minute)
	if got := b.do(post, "machines/"+id+"/", "op", "release"); got.status != http.StatusConflict {
		t.Errorf("a release: %d %s", got.status, got.body)
	}
	b.do(post, "machines/"+id+"/", "op", "override_failed_testing").object(t)
	m := b.do(get, "machines/"+id+"/").object(t)
	if m["status_name"] != "Ready" || m["owner"] != nil || m["testing_status"] != float64(scriptFailed) {
		t.Errorf("%v, owner %v, testing status %v", m["status_name"], m["owner"], m["testing_status"])
	}
	if snapshot, _ := b.Machine(id); snapshot.AgentName != "mine" {
		t.Errorf("agent name %q", snapshot.AgentName)
	}
	set := b.do(get, "nodes/"+id+"/results/current-testing/", "include_output", "true", "filters", "storage").object(t)
	if one := set["results"].([]any)[0].(map[string]any); one["output"] != "aXQgc21va2Vz" || one["exit_status"] != float64(1) {
		t.Errorf("the result is %v", one)
	}
}

// From 3.5 on a machine that can't be switched is as before.
func TestTestsOfAMachineThatCannotBeSwitchedOn(t *testing.T) {
	for version, want := range map[string]string{"3.4": "Failed testing", "3.5": "Ready", "4.0": "Ready"} {
		t.Run(version, func(t *testing.T) {
			b := newBedWith(t, testRegion, Options{Seed: 1, Version: version})
			id := b.named("small").SystemID
			b.control(post, "machines/small/fail", `{"operation": "power", "message": "no BMC"}`)
			got := b.test(id)
			if refused := got.status == http.StatusInternalServerError; refused != (want == "Ready") {
				t.Errorf("%d %s", got.status, got.body)
			}
			b.pass(time.Minute)
			if m, _ := b.Machine(id); m.Status != want {
				t.Errorf("%s, want %s", m.Status, want)
			}
		})
	}
}

func TestResultsAreKept(t *testing.T) {
	b := newBedWith(t, testsRegion, Options{Seed: 1})
	id := b.named("small").SystemID
	for range 12 {
		b.test(id).object(t)
		b.pass(2 * time.Minute)
	}
	if sets := b.results(id); len(sets) != 10 {
		t.Errorf("%d sets are kept", len(sets))
	}
	b.AgeTests(id, 48*time.Hour)
	set := b.do(get, "nodes/"+id+"/results/current-testing/").object(t)
	ended, err := time.Parse(time.RFC1123Z, set["ended"].(string))
	if err != nil || b.clock.Since(ended) < 48*time.Hour {
		t.Errorf("it ended at %v, %v", set["ended"], err)
	}
}

func TestScriptsOfMAAS(t *testing.T) {
	b := newBedWith(t, testsRegion, Options{Seed: 1})
	list := func(query ...string) (names []string) {
		var scripts []struct{ Name string }
		if err := json.Unmarshal([]byte(b.do(get, "scripts/", query...).body), &scripts); err != nil {
			t.Fatal(err)
		}
		for _, one := range scripts {
			names = append(names, one.Name)
		}
		slices.Sort(names)
		return names
	}
	if got := len(list("type", "testing")); got != 20 {
		t.Errorf("%d scripts, want MAAS's 17 and 3", got)
	}
	if got := list("type", "testing", "filters", "destructive,site"); !slices.Equal(got, []string{"acme-only", "badblocks-destructive", "burn-in", "fio"}) {
		t.Errorf("by tag: %v", got)
	}
	made := b.do(post, "scripts/", "name", "mine", "script", "#!/bin/sh\nexit 3\n", "tags", "site", "timeout", "90061", "hardware_type", "cpu").object(t)
	if made["timeout"] != "1 day, 1:01:01" || made["default"] != false || made["hardware_type_name"] != "CPU" {
		t.Errorf("made %v", made)
	}
	id := b.named("small").SystemID
	b.test(id, "testing_scripts", "mine").object(t)
	b.pass(time.Minute)
	if m, _ := b.Machine(id); m.Status != "Failed testing" {
		t.Errorf("a script that returns 3: %s", m.Status)
	}
	for name, status := range map[string]int{"mine": http.StatusNoContent, "none": http.StatusNotFound, "fio": http.StatusBadRequest} {
		if got := b.do(del, "scripts/"+name); got.status != status {
			t.Errorf("deleting %s: %d %s", name, got.status, got.body)
		}
	}
	if sets := b.results(id); len(sets) != 1 && len(sets[1]) != 0 {
		t.Errorf("results of a script that is gone: %v", sets)
	}
}

// A machine switches itself off after its tests, whatever MAAS does with it meanwhile, unless that switches it on.
func TestAMachineSwitchesItselfOffAfterItsTests(t *testing.T) {
	for op, want := range map[string]bool{"deploy": true, "release": false} {
		t.Run(op, func(t *testing.T) {
			b := newBedWith(t, strings.Replace(testsRegion, "power_on: 20s", "power_on: 5s", 1), Options{Seed: 1})
			id := b.named("small").SystemID
			b.do(post, "machines/", "op", "allocate", "system_id", id).object(t)
			b.test(id).object(t)
			b.expect(id, []step{{35 * time.Second, "Allocated", "on"}})
			b.do(post, "machines/"+id+"/", "op", op).object(t)
			b.pass(7 * time.Minute)
			if m, _ := b.Machine(id); m.Running != want || (m.Status == "Deployed") != want {
				t.Errorf("%s, running %v", m.Status, m.Running)
			}
		})
	}
}
