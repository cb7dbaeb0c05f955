// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// zone makes a call that has an effect: a zone of that name.
func (b *bed) zone(name string) (answer, error) {
	return b.send(adminKey, post, "zones/", url.Values{"name": {name}})
}

func (b *bed) hasZone(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.zoneByName(name) != nil
}

func TestFaultActions(t *testing.T) {
	tests := map[string]struct {
		fault    Fault
		status   int // 0: the connection breaks
		happened bool
	}{
		"status":              {Fault{Status: 503, Body: "busy", Headers: map[string]string{"Retry-After": "3"}}, 503, false},
		"dropped before":      {Fault{DropBefore: true}, 0, false},
		"dropped after":       {Fault{DropAfter: true}, 0, true},
		"truncated":           {Fault{Truncate: true}, 0, true},
		"status, late":        {Fault{Status: 504, Late: true}, 504, true},
		"garbage":             {Fault{Garbage: true}, 200, true},
		"of another endpoint": {Fault{Endpoint: "machines/", Status: 500}, 200, true},
		"of another method":   {Fault{Method: get, Status: 500}, 200, true},
		"of an operation":     {Fault{Op: "allocate", Status: 500}, 200, true},
		"of no operation":     {Fault{NoOp: true, Endpoint: "zones/", Method: post, Status: 500}, 500, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			if _, err := b.AddFault(test.fault); err != nil {
				t.Fatal(err)
			}
			got, err := b.zone("new")
			if broken := test.status == 0; (err != nil) != broken {
				t.Fatalf("error %v, want a broken connection: %v", err, broken)
			}
			if got.status != test.status && test.status != 0 {
				t.Errorf("status %d, want %d", got.status, test.status)
			}
			if b.hasZone("new") != test.happened {
				t.Errorf("the call took effect: %v, want %v", b.hasZone("new"), test.happened)
			}
			if test.fault.Body != "" && (got.body != test.fault.Body || got.header.Get("Retry-After") != "3") {
				t.Errorf("body %q with headers %v", got.body, got.header)
			}
			if test.fault.Garbage && json.Valid([]byte(got.body)) {
				t.Errorf("garbage is JSON: %s", got.body)
			}
		})
	}
}

// outcomes are the statuses of n equal calls.
func (b *bed) outcomes(n int) []int {
	var out []int
	for range n {
		out = append(out, b.do(get, "zones/").status)
	}
	return out
}

func TestFaultsHappenAsOftenAsTheySay(t *testing.T) {
	tests := map[string]struct {
		fault Fault
		want  []int
	}{
		"always":          {Fault{Status: 500}, []int{500, 500, 500, 500, 500, 500}},
		"first two":       {Fault{Status: 500, First: 2}, []int{500, 500, 200, 200, 200, 200}},
		"every third":     {Fault{Status: 500, Every: 3}, []int{200, 200, 500, 200, 200, 500}},
		"every other, 1x": {Fault{Status: 500, Every: 2, First: 1}, []int{200, 500, 200, 200, 200, 200}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			if _, err := b.AddFault(test.fault); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, b.outcomes(6)); diff != "" {
				t.Errorf("statuses (-want +got):\n%s", diff)
			}
			b.ClearFaults()
			if got := b.do(get, "zones/"); got.status != 200 {
				t.Errorf("status %d after the faults were cleared", got.status)
			}
		})
	}
}

func TestAddFaultRefusesNonsense(t *testing.T) {
	b := newBed(t)
	for name, fault := range map[string]Fault{
		"no action":      {Op: "deploy"},
		"no HTTP status": {Status: 42},
		"negative count": {Status: 500, First: -1},
		"op and no op":   {Status: 500, Op: "deploy", NoOp: true},
	} {
		if _, err := b.AddFault(fault); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestHookDropsCalls(t *testing.T) {
	for _, test := range []struct {
		phase    Phase
		happened bool
	}{{Before, false}, {After, true}} {
		t.Run(string(test.phase), func(t *testing.T) {
			b := newBed(t)
			seen := make(chan Call, 8)
			b.SetHook(func(c Call, phase Phase) error {
				if phase != test.phase {
					return nil
				}
				seen <- c
				return errors.New("killed")
			})
			if _, err := b.zone("new"); err == nil {
				t.Error("the connection did not break")
			}
			if b.hasZone("new") != test.happened {
				t.Errorf("the call took effect: %v, want %v", b.hasZone("new"), test.happened)
			}
			if c := <-seen; len(seen) != 0 || c.Endpoint != "zones/" || c.Method != post || c.Number != 1 {
				t.Errorf("the hook saw %+v, and %d more", c, len(seen))
			}
			b.SetHook(nil)
			if got, err := b.zone("other"); err != nil || got.status != http.StatusOK {
				t.Errorf("after the hook: %d, %v", got.status, err)
			}
		})
	}
}

func TestCalls(t *testing.T) {
	b := newBed(t)
	id := b.composeVM("vm1")
	b.do(get, "machines/", "id", id)
	b.do(get, "machines/"+id+"/")
	b.do(get, "machines/nosuch/")
	stats := b.Calls()
	want := map[CallKey]int{
		{post, "vm-hosts/{id}/", "compose", 200}: 1,
		{get, "machines/", "", 200}:              1,
		{get, "machines/{id}/", "", 200}:         1,
		{get, "machines/{id}/", "", 404}:         1,
	}
	if diff := cmp.Diff(want, stats.ByKey); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	if stats.Total != 4 || len(stats.Log) != 4 || stats.Log[0].SystemID != id {
		t.Errorf("total %d, log %+v", stats.Total, stats.Log)
	}
	if stats.Connections != 1 {
		t.Errorf("%d connections for calls that follow each other", stats.Connections)
	}
	b.ResetCalls()
	if stats := b.Calls(); stats.Total != 0 || len(stats.Log) != 0 || stats.Connections != 0 {
		t.Errorf("after the reset: %+v", stats)
	}
}
