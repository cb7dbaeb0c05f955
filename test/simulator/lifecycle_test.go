// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// step is how a machine is after some time has passed.
type step struct {
	after         time.Duration
	status, power string
}

func (b *bed) expect(systemID string, steps []step) {
	b.t.Helper()
	for _, want := range steps {
		b.pass(want.after)
		m, ok := b.Machine(systemID)
		if !ok {
			b.t.Fatalf("machine %s is gone, want %s", systemID, want.status)
		}
		if m.Status != want.status || m.Power != want.power {
			b.t.Errorf("after %v more: %s, power %s; want %s, power %s", want.after, m.Status, m.Power, want.status, want.power)
		}
	}
}

func TestTimings(t *testing.T) {
	const s = time.Second
	deployed := func(b *bed, id string) {
		b.do(post, "machines/"+id+"/", "op", "deploy").object(b.t)
		b.pass(6 * time.Minute)
	}
	tests := map[string]struct {
		prepare func(*bed, string)
		pairs   []string
		steps   []step
	}{
		"deploy": {nil, []string{"op", "deploy"}, []step{
			{0, "Deploying", "off"}, {19 * s, "Deploying", "off"}, {s, "Deploying", "on"},
			{299 * s, "Deploying", "on"}, {s, "Deployed", "on"},
		}},
		"commission": {nil, []string{"op", "commission"}, []step{
			{0, "Commissioning", "off"}, {20 * s, "Commissioning", "on"}, {119 * s, "Commissioning", "on"}, {s, "Testing", "on"},
			{29 * s, "Testing", "on"}, {s, "Ready", "on"}, {10 * s, "Ready", "off"},
		}},
		"release": {deployed, []string{"op", "release"}, []step{
			{0, "Releasing", "on"}, {9 * s, "Releasing", "on"}, {s, "Ready", "off"},
		}},
		"quick erase": {deployed, []string{"op", "release", "erase", "true", "quick_erase", "true", "secure_erase", "false"}, []step{
			{0, "Disk erasing", "on"}, {79 * s, "Disk erasing", "on"}, {s, "Releasing", "on"}, {10 * s, "Ready", "off"},
		}},
		"full erase": {deployed, []string{"op", "release", "erase", "true", "secure_erase", "false"}, []step{
			{59 * time.Minute, "Disk erasing", "on"}, {80 * s, "Releasing", "on"}, {10 * s, "Ready", "off"},
		}},
		"abort of a deployment": {func(b *bed, id string) {
			b.do(post, "machines/"+id+"/", "op", "deploy").object(b.t)
			b.pass(time.Minute)
		}, []string{"op", "abort"}, []step{
			{0, "Deploying", "on"}, {10 * s, "Allocated", "off"}, {10 * time.Minute, "Allocated", "off"},
		}},
		"power off while deployed": {deployed, []string{"op", "power_off"}, []step{
			{9 * s, "Deployed", "on"}, {s, "Deployed", "off"},
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			id := b.named("small").SystemID
			if test.prepare != nil {
				test.prepare(b, id)
			}
			b.do(post, "machines/"+id+"/", test.pairs...).object(t)
			b.expect(id, test.steps)
		})
	}
}

// From 3.5 on, MAAS tries a BMC 3 times, for 5 minutes each, whatever becomes of the machine meanwhile.
func TestABMCThatHangs(t *testing.T) {
	const m = time.Minute
	for name, test := range map[string]struct {
		version string
		hangs   time.Duration
		steps   []step
	}{
		"once":         {"3.6", 3 * m, []step{{5*m - 1, "Deployed", "on"}, {1, "Deployed", "off"}}},
		"twice":        {"3.6", 6 * m, []step{{10*m - 1, "Deployed", "on"}, {1, "Deployed", "off"}}},
		"for too long": {"3.6", time.Hour, []step{{15 * m, "Deployed", "error"}, {10 * m, "Deployed", "error"}}},
		"before 3.5":   {"3.4", 3 * m, []step{{5*m - 1, "Deployed", "on"}, {1, "Deployed", "error"}}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBedWith(t, testRegion, Options{Seed: 1, Version: test.version})
			id := b.named("small").SystemID
			b.do(post, "machines/"+id+"/", "op", "deploy").object(t)
			b.pass(6 * time.Minute)
			b.HangBMC(id, test.hangs)
			b.do(post, "machines/"+id+"/", "op", "power_off").object(t)
			b.expect(id, test.steps)
		})
	}
}

// MAAS gives up a release after 5 minutes; its BMC is tried on.
func TestAReleaseWithABMCThatHangs(t *testing.T) {
	b := newBed(t)
	id := b.named("small").SystemID
	b.do(post, "machines/"+id+"/", "op", "deploy").object(t)
	b.pass(6 * time.Minute)
	b.HangBMC(id, 6*time.Minute)
	b.do(post, "machines/"+id+"/", "op", "release").object(t)
	b.pass(9 * time.Minute)
	if m, _ := b.Machine(id); m.Status != "Releasing failed" || !m.Running {
		t.Errorf("%s, running %v", m.Status, m.Running)
	}
	b.pass(2 * time.Minute)
	if m, _ := b.Machine(id); m.Status != "Releasing failed" || m.Running {
		t.Errorf("%s, running %v after the last try", m.Status, m.Running)
	}
}

// How disks are erased hangs on the release's flags, MAAS's settings and its version.
func TestKindsOfErasing(t *testing.T) {
	const settings = "config: {enable_disk_erasing_on_release: true, disk_erase_with_secure_erase: false, disk_erase_with_quick_erase: true}\n"
	for name, test := range map[string]struct {
		version string
		config  string
		flags   []string
		status  string // right after the release
		erased  string
	}{
		"3.6, nothing asked":          {"3.6", "", nil, "Releasing", ""},
		"3.6, erase alone":            {"3.6", "", []string{"erase", "true"}, "Disk erasing", "full"},
		"3.6, quick":                  {"3.6", "", []string{"erase", "true", "quick_erase", "true", "secure_erase", "false"}, "Disk erasing", "quick"},
		"3.6, secure":                 {"3.6", "", []string{"erase", "true", "quick_erase", "false", "secure_erase", "true"}, "Disk erasing", "secure"},
		"3.6, quick without erase":    {"3.6", "", []string{"quick_erase", "true"}, "Disk erasing", "quick"},
		"3.6, settings alone":         {"3.6", settings, nil, "Disk erasing", "quick"},
		"3.6, settings go before":     {"3.6", settings, []string{"erase", "true", "secure_erase", "true"}, "Releasing", "quick"},
		"3.4, erase alone":            {"3.4", "", []string{"erase", "true"}, "Disk erasing", "secure"},
		"3.4, both flags false":       {"3.4", "", []string{"erase", "true", "quick_erase", "false", "secure_erase", "false"}, "Disk erasing", "full"},
		"3.4, quick without erase":    {"3.4", "", []string{"quick_erase", "true"}, "Releasing", ""},
		"3.4, settings alone":         {"3.4", settings, nil, "Disk erasing", "quick"},
		"3.4, flags go before":        {"3.4", settings, []string{"erase", "true", "secure_erase", "true"}, "Disk erasing", "secure"},
		"3.6, an image run in memory": {"3.6", "", []string{"erase", "true"}, "Disk erasing", "full"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBedWith(t, testRegion+test.config, Options{Seed: 1, Version: test.version})
			id := b.named("small").SystemID
			b.do(post, "machines/"+id+"/", "op", "deploy", "ephemeral_deploy", fmt.Sprint(strings.Contains(name, "memory"))).object(t)
			b.pass(6 * time.Minute)
			b.do(post, "machines/"+id+"/", append([]string{"op", "release"}, test.flags...)...).object(t)
			if m, _ := b.Machine(id); m.Status != test.status {
				t.Errorf("%s right after the release, want %s", m.Status, test.status)
			}
			b.pass(2 * time.Hour)
			if m, _ := b.Machine(id); m.Status != "Ready" || m.Erased != test.erased {
				t.Errorf("%s, erased %q; want Ready, %q", m.Status, m.Erased, test.erased)
			}
		})
	}
}

// A failed erase keeps the machine and its agent name; MAAS removes the name only when the erasing is done. The machine
// can be released again.
func TestFailedErasing(t *testing.T) {
	const settings = "config: {enable_disk_erasing_on_release: true}\n"
	for name, test := range map[string]struct{ config, failed string }{
		"asked for":                         {"", "Failed disk erasing"},
		"asked for, and in MAAS's settings": {settings, "Releasing failed"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBedWith(t, testRegion+test.config, Options{Seed: 1})
			id := b.named("small").SystemID
			b.do(post, "machines/"+id+"/", "op", "deploy", "agent_name", "mine").object(t)
			b.pass(6 * time.Minute)
			b.control(post, "fail-next", `{"operation": "erase"}`)
			b.do(post, "machines/"+id+"/", "op", "release", "erase", "true").object(t)
			b.pass(2 * time.Hour)
			if m, _ := b.Machine(id); m.Status != test.failed || m.AgentName != "mine" || m.Owner != "admin" || m.Erased != "" {
				t.Errorf("%s, agent %q, owner %q, erased %q; want %s, mine, admin, not", m.Status, m.AgentName, m.Owner, m.Erased, test.failed)
			}
			b.do(post, "machines/"+id+"/", "op", "release", "erase", "true").object(t)
			b.pass(2 * time.Hour)
			if m, _ := b.Machine(id); m.Status != "Ready" || m.AgentName != "" || m.Owner != "" || m.Erased == "" {
				t.Errorf("%s, agent %q, owner %q, erased %q; want Ready, nobody's, erased", m.Status, m.AgentName, m.Owner, m.Erased)
			}
		})
	}
}

func TestMachineThatIsOffNeverDeploys(t *testing.T) {
	b := newBed(t)
	id := b.named("small").SystemID
	b.do(post, "machines/"+id+"/", "op", "deploy").object(t)
	b.pass(time.Minute)
	if got := b.control(post, "machines/small/power", `{"power": "off"}`); got.status != 200 {
		t.Fatalf("control: %d %s", got.status, got.body)
	}
	b.expect(id, []step{{10 * time.Minute, "Deploying", "off"}, {30 * time.Minute, "Failed deployment", "off"}})
}

// LP#2138312.
func TestNamesakesOfAnotherArchitecture(t *testing.T) {
	described := strings.Replace(testRegion, "images: [", "images: [{name: ubuntu/jammy, architecture: arm64/ga-22.04}, {name: own-image, uploaded: true, architecture: arm64/generic}, ", 1)
	for version, want := range map[string]string{
		"3.3": "Failed deployment", "3.5": "Failed deployment", "3.6.2": "Failed deployment", "3.6.3": "Deployed",
		"3.7.0": "Failed deployment", "3.7.1": "Deployed",
	} {
		b := newBedWith(t, described, Options{Seed: 1, Version: version})
		id := b.named("small").SystemID
		b.do(post, "machines/"+id+"/", "op", "deploy", "distro_series", "custom/own-image").object(t)
		b.pass(10 * time.Minute)
		if m, _ := b.Machine(id); m.Status != want {
			t.Errorf("MAAS %s: %s, want %s", version, m.Status, want)
		}
	}
}

func TestEveryStatusOfTheTableIsReachable(t *testing.T) {
	for st, info := range statuses {
		for _, next := range info.next {
			if _, ok := statuses[next]; !ok {
				t.Errorf("%s may become %d, which is no status", st, next)
			}
		}
		if info.failed != noFailure && !st.mayBecome(info.failed) {
			t.Errorf("%s fails as %s, which the table forbids", st, info.failed)
		}
	}
}
