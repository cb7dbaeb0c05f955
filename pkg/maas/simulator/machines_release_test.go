// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"net/http"
	"testing"
	"time"
)

// A machine that can't be switched off is not released: its status is restored, its agent name is gone, its owner and
// annotations remain. It can be released again.
func TestReleaseOfAMachineThatCannotBeSwitchedOff(t *testing.T) {
	b := newBed(t)
	id := b.named("small").SystemID
	path := "machines/" + id + "/"
	b.do(post, path, "op", "deploy", "agent_name", "mine").object(t)
	b.do(post, path, "op", "set_workload_annotations", "a", "b").object(t)
	b.pass(6 * time.Minute)
	b.control(post, "fail-next", `{"operation": "power", "message": "BMC is silent"}`)
	if got := b.do(post, path, "op", "release"); got.status != http.StatusInternalServerError || got.body != "BMC is silent" {
		t.Errorf("%d %s", got.status, got.body)
	}
	b.pass(time.Hour)
	if m, _ := b.Machine(id); m.Status != "Deployed" || m.AgentName != "" || m.Owner != "admin" {
		t.Errorf("%s, agent %q, owner %q; want Deployed, none, admin", m.Status, m.AgentName, m.Owner)
	}
	if kept := b.do(http.MethodGet, path).object(t)["workload_annotations"].(map[string]any); kept["a"] != "b" {
		t.Errorf("its annotations are %v", kept)
	}
	b.do(post, path, "op", "release").object(t)
	b.pass(time.Minute)
	if m, _ := b.Machine(id); m.Status != "Ready" || m.Owner != "" {
		t.Errorf("%s, owner %q; want Ready, nobody's", m.Status, m.Owner)
	}
}

// What is off, or has its disks erased first, is not switched off by the request.
func TestReleaseThatSwitchesNothingOffTakesNoPowerFailure(t *testing.T) {
	b := newBed(t)
	path := "machines/" + b.named("small").SystemID + "/"
	b.do(post, "machines/", "op", "allocate", "system_id", b.named("small").SystemID).object(t)
	b.control(post, "fail-next", `{"operation": "power"}`)
	b.do(post, path, "op", "release").object(t)
	if m := b.named("small"); m.Status != "Ready" {
		t.Errorf("%s, want Ready", m.Status)
	}
}

// Aborted tests leave a machine in its earlier state; those that follow commissioning leave it Ready.
func TestAbortOfTests(t *testing.T) {
	for name, test := range map[string]struct {
		pairs []string
		wait  time.Duration
		want  string
	}{
		"of a machine that is tested":        {[]string{"op", "test"}, 25 * time.Second, "Ready"},
		"of a machine that was commissioned": {[]string{"op", "commission"}, 2*time.Minute + 25*time.Second, "Ready"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			id := b.named("small").SystemID
			b.do(post, "machines/"+id+"/", test.pairs...).object(t)
			b.pass(test.wait)
			if m, _ := b.Machine(id); m.Status != "Testing" {
				t.Fatalf("%s, want Testing", m.Status)
			}
			b.do(post, "machines/"+id+"/", "op", "abort").object(t)
			b.pass(10 * time.Minute)
			if m, _ := b.Machine(id); m.Status != test.want || m.Owner != "" || m.Power != "off" {
				t.Errorf("%s, owner %q, power %s; want %s, nobody's, off", m.Status, m.Owner, m.Power, test.want)
			}
		})
	}
}
