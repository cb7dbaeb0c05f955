// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A staging MAAS that was restored from production's backup has the same in it, and nothing of what happens in one of
// them afterwards happens in the other.
func TestACopyHasTheSameAndIsSeparate(t *testing.T) {
	b := newBed(t)
	vm := b.composeVM("vm1")
	metal := b.do(get, "machines/", "hostname", "big").list(t)[0]["system_id"].(string)
	b.do(post, "machines/"+metal+"/", "op", "set_storage_layout", "storage_layout", "lvm").object(t)
	b.do(post, "machines/", "op", "allocate", "system_id", b.named("big").SystemID, "agent_name", "me").object(t)
	b.do(post, "dnsresources/", "fqdn", "api.maas.test", "ip_addresses", "10.10.0.60").object(t)
	there, err := b.Copy()
	if err != nil {
		t.Fatal(err)
	}
	staging := &bed{Simulator: there, t: t, clock: b.clock, server: httptest.NewServer(there.Handler())}
	t.Cleanup(func() { staging.server.Close(); there.Close() })
	backup := string(b.State())
	if diff := cmp.Diff(backup, string(there.State())); diff != "" {
		t.Fatalf("the copy differs:\n%s", diff)
	}

	staging.do(del, "machines/"+vm+"/")
	staging.do(post, "machines/"+metal+"/", "op", "release").object(t)
	staging.pass(time.Minute)
	if diff := cmp.Diff(backup, string(b.State())); diff != "" {
		t.Errorf("what happened in the copy changed the original:\n%s", diff)
	}
	after := string(there.State())
	b.do(post, "machines/"+metal+"/", "op", "deploy", "distro_series", "own-image").object(t)
	b.pass(6 * time.Minute)
	if now, _ := b.Machine(metal); now.Status != "Deployed" {
		t.Errorf("the original's machine is %s", now.Status)
	}
	if _, there := b.Machine(vm); !there {
		t.Error("the original's VM is gone")
	}
	if diff := cmp.Diff(after, string(there.State())); diff != "" {
		t.Errorf("what happened in the original changed the copy:\n%s", diff)
	}
}

// What MAAS does with a machine that it takes to be on, and that is off, is done before anybody looks at the copy.
func TestACopyKnowsWhatIsSwitchedOff(t *testing.T) {
	b := newBed(t)
	b.control(post, "machines/small/power", `{"power": "on"}`)
	b.control(post, "machines/small/power", `{"power": "off", "unnoticed": true}`)
	there, err := b.Copy()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(there.Close)
	for _, m := range there.Machines() {
		if m.Hostname == "small" && m.Power != "off" {
			t.Errorf("in the copy, its power is %q", m.Power)
		}
	}
}
