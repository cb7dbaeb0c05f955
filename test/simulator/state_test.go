// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
)

func TestStateIsTheSameAfterACleanCycle(t *testing.T) {
	cycles := map[string]func(*bed){
		"VM with a static address": func(b *bed) {
			id := b.composeVM("vm1")
			nic := b.do(get, "nodes/"+id+"/interfaces/").list(b.t)[0]
			path := "nodes/" + id + "/interfaces/" + jsonNumber(nic["id"]) + "/"
			b.do(post, path, "op", "link_subnet", "mode", "STATIC", "subnet", "1", "ip_address", "10.10.0.50", "force", "true").object(b.t)
			b.do(post, "machines/"+id+"/", "op", "deploy", "agent_name", "me").object(b.t)
			b.pass(5 * time.Minute)
			b.do(post, "machines/"+id+"/", "op", "set_workload_annotations", "a", "b").object(b.t)
			if got := b.do(del, "machines/"+id+"/"); got.status != 204 {
				b.t.Fatalf("deletion: %d %s", got.status, got.body)
			}
		},
		"VM that commissions": func(b *bed) {
			id := b.do(post, "vm-hosts/1/", "op", "compose", "hostname", "vm1").object(b.t)["system_id"].(string)
			b.pass(5 * time.Minute)
			b.do(del, "machines/"+id+"/")
		},
		"bare metal": func(b *bed) {
			id := b.do(post, "machines/", "op", "allocate", "system_id", b.named("big").SystemID, "agent_name", "me").object(b.t)["system_id"].(string)
			b.do(post, "machines/"+id+"/", "op", "deploy", "distro_series", "own-image").object(b.t)
			b.pass(6 * time.Minute)
			b.do(post, "machines/"+id+"/", "op", "set_workload_annotations", "a", "b").object(b.t)
			b.do(post, "machines/"+id+"/", "op", "release").object(b.t)
			b.pass(time.Minute)
		},
		"bare metal with a static address": func(b *bed) {
			id := b.do(post, "machines/", "op", "allocate", "system_id", b.named("big").SystemID).object(b.t)["system_id"].(string)
			nic := b.do(get, "nodes/"+id+"/interfaces/").list(b.t)[0]
			path := "nodes/" + id + "/interfaces/" + jsonNumber(nic["id"]) + "/"
			b.do(post, path, "op", "link_subnet", "mode", "STATIC", "subnet", "1", "ip_address", "10.10.0.50", "force", "true").object(b.t)
			b.do(post, "machines/"+id+"/", "op", "release").object(b.t)
			b.pass(time.Minute)
			b.do(post, path, "op", "link_subnet", "mode", "AUTO", "subnet", "1", "force", "true").object(b.t)
		},
		"machine that allocate composed": func(b *bed) {
			id := b.do(post, "machines/", "op", "allocate", "cpu_count", "6", "pod", "host").object(b.t)["system_id"].(string)
			b.do(post, "machines/"+id+"/", "op", "release").object(b.t)
		},
		"DNS name": func(b *bed) {
			r := b.do(post, "dnsresources/", "fqdn", "api.maas.test", "ip_addresses", "10.10.0.60").object(b.t)
			b.do(del, "dnsresources/"+jsonNumber(r["id"])+"/")
		},
		"reserved address": func(b *bed) {
			b.do(post, "ipaddresses/", "op", "reserve", "ip", "10.10.0.70").object(b.t)
			b.do(post, "ipaddresses/", "op", "release", "ip", "10.10.0.70")
		},
	}
	for name, cycle := range cycles {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			before := string(b.State())
			changed := false
			defer b.Subscribe(func(MachineSnapshot, Change) {})()
			b.SetHook(func(Call, Phase) error {
				changed = changed || string(b.State()) != before
				return nil
			})
			cycle(b)
			if diff := cmp.Diff(before, string(b.State())); diff != "" {
				t.Errorf("state before and after:\n%s", diff)
			}
			if !changed {
				t.Error("the state never differed: it does not show what the cycle does")
			}
		})
	}
}

func jsonNumber(value any) string { return strings.TrimSuffix(pythonFloat(value.(float64)), ".0") }

func TestLookup(t *testing.T) {
	b := newBed(t)
	b.do(post, "dnsresources/", "fqdn", "api.maas.test", "ip_addresses", "10.10.0.61 10.10.0.60").object(t)
	id := b.named("small").SystemID
	b.do(post, "machines/"+id+"/", "op", "deploy").object(t)
	m, _ := b.Machine(id)
	addrs := func(texts ...string) (out []netip.Addr) {
		for _, text := range texts {
			out = append(out, netip.MustParseAddr(text))
		}
		return out
	}
	for name, want := range map[string][]netip.Addr{
		"api.maas.test":    addrs("10.10.0.60", "10.10.0.61"),
		"API.MAAS.test.":   addrs("10.10.0.60", "10.10.0.61"),
		"small.maas.test":  m.Addresses,
		"big.maas.test":    nil,
		"nosuch.maas.test": nil,
		"":                 nil,
	} {
		if diff := cmp.Diff(want, b.Lookup(name), cmp.Comparer(func(x, y netip.Addr) bool { return x == y })); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if len(m.Addresses) != 1 {
		t.Errorf("the machine has the addresses %v", m.Addresses)
	}
}

func TestSubscribersGetChangesInOrder(t *testing.T) {
	b := newBed(t)
	var got []string
	done := make(chan struct{})
	cancel := b.Subscribe(func(m MachineSnapshot, c Change) {
		if again, ok := b.Machine(m.SystemID); ok && again.Hostname != m.Hostname {
			t.Errorf("told of %s, found %s", m.Hostname, again.Hostname)
		}
		got = append(got, string(c.Kind)+" "+c.To)
		if c.Kind == ChangeDeleted {
			close(done)
		}
	})
	id := b.composeVM("vm1")
	b.do(post, "machines/"+id+"/", "op", "deploy").object(t)
	b.pass(5 * time.Minute)
	b.do(del, "machines/"+id+"/")
	select {
	case <-done:
	case <-time.After(eventually.Limit):
		t.Fatal("the deletion was not reported")
	}
	want := []string{
		"created Ready", "status Allocated", "status Deploying", "addresses 10.10.0.3", "power on", "status Deployed", "deleted ",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	cancel()
	id = b.composeVM("vm2")
	b.do(del, "machines/"+id+"/")
	if len(got) != len(want) {
		t.Errorf("told of %v after having cancelled", got[len(want):])
	}
}
