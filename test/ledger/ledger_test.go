// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capmaas/cluster-api-provider-maas/test/ledger"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// region is a MAAS in which a VM was made and is gone, and one machine is held.
type region struct {
	calls   []simulator.Call
	publish func(simulator.MachineSnapshot, simulator.Change)
}

func (r *region) Calls() simulator.CallStats { return simulator.CallStats{Log: r.calls} }

func (r *region) Machines() []simulator.MachineSnapshot {
	return []simulator.MachineSnapshot{{SystemID: "metal1", Hostname: "rack-a"}}
}

func (r *region) Subscribe(fn func(simulator.MachineSnapshot, simulator.Change)) func() {
	r.publish = fn
	return func() { r.publish = nil }
}

func (r *region) call(method, endpoint, op, query, systemID string) {
	r.calls = append(r.calls, simulator.Call{
		Number: len(r.calls) + 1, Method: method, Endpoint: endpoint, Op: op, Query: query, SystemID: systemID,
	})
}

func TestCallsAreAccountedFor(t *testing.T) {
	r := &region{}
	r.call("GET", "zones/", "", "", "")
	l := ledger.Open(r)
	start := l.Mark()

	r.call("GET", "machines/", "", "hostname=vm-1", "") // before the VM is there
	r.call("GET", "vm-hosts/", "", "", "")
	r.call("POST", "vm-hosts/{id}/", "compose", "", "vm0001")
	r.publish(simulator.MachineSnapshot{SystemID: "vm0001", Hostname: "vm-1", VMHost: "h"}, simulator.Change{Kind: simulator.ChangeCreated})
	r.call("GET", "machines/", "", "id=vm0001&id=metal1", "")
	r.call("GET", "machines/", "", "id=metal1", "")
	r.call("POST", "machines/{id}/", "deploy", "", "vm0001")
	r.call("GET", "machines/", "", "agent_name=a%2Fb", "")
	r.call("POST", "machines/", "allocate", "", "metal1")
	r.publish(simulator.MachineSnapshot{SystemID: "metal1", Hostname: "rack-a", AgentName: "a/b"}, simulator.Change{Kind: simulator.ChangeStatus})
	r.call("POST", "dnsresources/", "", "", "")
	r.call("GET", "machines/", "", "agent_name=nobody", "")
	up := l.Mark()
	r.call("GET", "machines/", "", "id=metal1&agent_name=a%2Fb", "")
	r.call("POST", "machines/{id}/", "release", "", "metal1")
	r.publish(simulator.MachineSnapshot{SystemID: "metal1", Hostname: "rack-a"}, simulator.Change{Kind: simulator.ChangeStatus})
	r.call("GET", "machines/", "is_registered", "mac_address=x", "")

	want := []string{"rack-a metal 8,9", "vm-1 vm 2,4,7", "polls 5,6", "cluster 10", "shared 3", "lost 11"}
	if diff := cmp.Diff(want, summary(l.Between(start, up))); diff != "" {
		t.Errorf("while they came up (-want +got):\n%s", diff)
	}
	want = []string{"rack-a metal 12,13", "polls ", "cluster ", "shared 14", "lost "}
	gone := l.Between(up, l.Mark())
	if diff := cmp.Diff(want, summary(gone)); diff != "" {
		t.Errorf("while one went (-want +got):\n%s", diff)
	}
	if gone.Total() != 3 {
		t.Errorf("%d calls in all, want 3", gone.Total())
	}
	r.call("POST", "devices/", "", "", "dev001")
	r.publish(simulator.MachineSnapshot{SystemID: "dev001", Hostname: "vm-2", VMHost: "h"}, simulator.Change{Kind: simulator.ChangeCreated})
	r.call("GET", "devices/", "", "hostname=vm-2", "")
	r.call("GET", "devices/", "", "id=dev001", "")
	r.call("DELETE", "devices/{id}/", "", "", "dev001")
	want = []string{"vm-2 vm 15,16,18", "polls 17", "cluster ", "shared ", "lost "}
	if diff := cmp.Diff(want, summary(l.Between(ledger.Mark(14), l.Mark()))); diff != "" {
		t.Errorf("of a VM that MAAS has a device for (-want +got):\n%s", diff)
	}
	l.Close()
	if r.publish != nil {
		t.Error("a closed ledger is still told of changes")
	}
}

func summary(a ledger.Account) []string {
	var lines []string
	for _, m := range a.Machines {
		kind := "metal"
		if m.VM {
			kind = "vm"
		}
		lines = append(lines, m.Hostname+" "+kind+" "+numbers(m.Calls))
	}
	return append(lines, "polls "+numbers(a.Polls), "cluster "+numbers(a.Cluster), "shared "+numbers(a.Shared), "lost "+numbers(a.Lost))
}

func numbers(calls []simulator.Call) string {
	var list []string
	for _, call := range calls {
		list = append(list, fmt.Sprint(call.Number))
	}
	return strings.Join(list, ",")
}

func TestRemainsReportsFields(t *testing.T) {
	before := `{"hosts":[{"resource_uri":"/1","x":1,"y":2,"z":[{"v":1,"w":2}],"l":[1,2]},{"resource_uri":"/2","x":1}]}`
	after := `{"hosts":[{"resource_uri":"/1","x":1,"y":5,"z":[{"v":1,"w":3}],"a":0,"l":[1,3,2]},{"resource_uri":"/3","x":1}]}`
	got, err := ledger.Remains([]byte(before), []byte(after))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`- hosts: {"l":[],"resource_uri":"/1","y":2,"z":[{"w":2}]}`, `+ hosts: {"a":0,"l":[3],"resource_uri":"/1","y":5,"z":[{"w":3}]}`,
		`- hosts: {"resource_uri":"/2","x":1}`, `+ hosts: {"resource_uri":"/3","x":1}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRemains(t *testing.T) {
	const before = `{"machines":[{"id":"a","status":"Ready"},{"id":"b"}],"lab":{"h":[]}}`
	for name, tt := range map[string]struct {
		after string
		want  []string
	}{
		"equal":   {after: before},
		"changed": {`{"machines":[{"id":"a","status":"New"},{"id":"b"}],"lab":{"h":[]}}`, []string{`- machines: {"id":"a","status":"Ready"}`, `+ machines: {"id":"a","status":"New"}`}},
		"left":    {`{"machines":[{"id":"a","status":"Ready"},{"id":"b"},{"id":"c"}],"lab":{"h":["c"]}}`, []string{`- lab: {"h":[]}`, `+ lab: {"h":["c"]}`, `+ machines: {"id":"c"}`}},
		"section": {`{"machines":[{"id":"a","status":"Ready"},{"id":"b"}],"lab":{"h":[]},"dns":[1]}`, []string{"+ dns: 1"}},
		"pods":    {after: `{"machines":[{"id":"a","status":"Ready"},{"id":"b"}],"lab":{"h":[]},"subnets":[{"cidr":"10.244.3.0/24"}]}`},
		"subnet":  {`{"machines":[{"id":"a","status":"Ready"},{"id":"b"}],"lab":{"h":[]},"subnets":[{"cidr":"10.9.0.0/24"}]}`, []string{`+ subnets: {"cidr":"10.9.0.0/24"}`}},
		"order":   {`{"machines":[{"id":"b"},{"id":"a","status":"Ready"}],"lab":{"h":[]}}`, []string{"the order or the form of what MAAS keeps"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ledger.Remains([]byte(before), []byte(tt.after))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if _, err := ledger.Remains([]byte(before), []byte("{")); err == nil {
		t.Error("a state that is no JSON is taken for one")
	}
}

// TestRemainsIgnoresNICsOfVMs: MAAS counts them among those of the host whenever it reads the host.
func TestRemainsIgnoresNICsOfVMs(t *testing.T) {
	const before = `{"machines":[{"interface_set":[{"name":"eth0"},{"name":"br0","type":"bridge","mac_address":"1","parents":["eth0"]}]}]}`
	const reread = `{"machines":[{"interface_set":[{"name":"eth0"},{"name":"tap0","mac_address":"2"},{"name":"br0","type":"bridge","mac_address":"2","parents":["eth0","tap0"]}]}]}`
	const another = `{"machines":[{"interface_set":[{"name":"eth0"},{"name":"eth1"},{"name":"br0","type":"bridge","mac_address":"1","parents":["eth0","eth1"]}]}]}`
	for after, want := range map[string]int{reread: 0, another: 2} {
		got, err := ledger.Remains([]byte(before), []byte(after))
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != want {
			t.Errorf("%s: %q", after, got)
		}
	}
}
