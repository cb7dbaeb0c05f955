// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator/simtest"
)

// hostRegion is a MAAS with VM hosts on machines, some of which this user does not see. It counts its lists.
type hostRegion struct {
	mu    sync.Mutex
	hosts int
	lists [][]string           // the ids that were asked for; nil: all
	bad   func(id string) bool // of which MAAS fails to make a list; nil: of none
}

func (r *hostRegion) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch req.URL.Path {
	case "/api/2.0/version/":
		fmt.Fprint(w, `{"version": "3.6.5"}`)
		return
	case "/api/2.0/vm-hosts/":
		comma := "["
		for i := range r.hosts {
			fmt.Fprintf(w, `%s{"id": %d, "name": "h%d", "type": "lxd", "host": {"system_id": "m%d"}}`, comma, i+1, i, i)
			comma = ","
		}
		fmt.Fprint(w, `,{"id": 9999, "name": "nowhere", "type": "lxd", "host": {"system_id": null}}]`)
		return
	}
	ids := req.URL.Query()["id"]
	r.lists = append(r.lists, ids)
	if ids == nil {
		fmt.Fprint(w, `[{"system_id": "metal"}, {"system_id": "vm", "pod": {"id": 1, "name": "h0"}}, {"system_id": "", "hostname": "nameless"},
			{"system_id": "odd", "cpu_count": "many"}, null, "text"]`)
		return
	}
	if r.bad != nil && slices.ContainsFunc(ids, r.bad) {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	comma := "["
	for _, id := range ids {
		if id != "m1" {
			fmt.Fprintf(w, `%s{"system_id": %q}`, comma, id)
			comma = ","
		}
	}
	fmt.Fprint(w, "]")
}

func (r *hostRegion) inventory(t *testing.T) *Inventory {
	t.Helper()
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	client := simtest.Client(t, server.URL, "a:b:c")
	return New(client, Options{})
}

func TestMachinesOfVMHostsAreAskedForTogether(t *testing.T) {
	r := &hostRegion{hosts: batchSize + 50}
	i := r.inventory(t)
	for range 3 {
		machines, err := i.HostMachines(t.Context(), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(slices.Collect(maps.Keys(machines))); got != r.hosts-1 || machines["m0"] == nil || machines["m1"] != nil {
			t.Fatalf("%d machines are known, want all but the one that MAAS does not show", got)
		}
	}
	if len(r.lists) != 2 {
		t.Errorf("MAAS was asked %d times for %d machines, want 2 lists", len(r.lists), r.hosts)
	}
	i.DropVMHosts()
	if _, err := i.HostMachines(t.Context(), time.Hour); err != nil || len(r.lists) != 4 {
		t.Errorf("what is distrusted was not asked for again: %d lists, error %v", len(r.lists), err)
	}
}

// What MAAS can't list keeps nobody from the machines of other VM hosts, unless it lists none.
func TestAMachineOfAVMHostThatMAASCannotListHidesNoOther(t *testing.T) {
	for name, tc := range map[string]struct {
		hosts, found int
		bad          func(id string) bool
	}{
		"one of many": {120, 118, func(id string) bool { return id == "m7" }}, // And m1, which this user does not see.
		"the last":    {12, 10, func(id string) bool { return id == "m11" }},
		"all":         {2, -1, func(string) bool { return true }},
		"all of many": {120, -1, func(string) bool { return true }},
	} {
		t.Run(name, func(t *testing.T) {
			r := &hostRegion{hosts: tc.hosts, bad: tc.bad}
			machines, err := r.inventory(t).HostMachines(t.Context(), time.Hour)
			if (err == nil) != (tc.found >= 0) || len(machines) != max(tc.found, 0) {
				t.Errorf("%d machines are known, want %d: %v", len(machines), tc.found, err)
			}
		})
	}
}

// Nor is a machine of which MAAS shows something else.
func TestBareMetalIsAllThatIsNoVM(t *testing.T) {
	r := &hostRegion{}
	i := r.inventory(t)
	var got []string
	for range 3 {
		machines, err := i.BareMetal(t.Context(), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		got = nil
		for _, m := range machines {
			got = append(got, m.SystemID)
		}
	}
	if diff := cmp.Diff([]string{"metal"}, got); diff != "" {
		t.Errorf("the machines differ (-want +got):\n%s", diff)
	}
	if len(r.lists) != 1 {
		t.Errorf("the long list was asked for %d times, want once", len(r.lists))
	}
}

// A MAAS that no longer has VM hosts is not asked for them all the time.
func TestThatMAASHasNoVMHostsIsCached(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusGone)
	}))
	t.Cleanup(server.Close)
	client := simtest.Client(t, server.URL, "a:b:c")
	i := New(client, Options{})
	for range 3 {
		if _, _, err := i.VMHosts(t.Context(), time.Hour); !errors.Is(err, maas.Gone) {
			t.Fatalf("the error is %v, want Gone", err)
		}
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("MAAS was asked %d times", n)
	}
	if _, _, err := i.VMHosts(t.Context(), 0); !errors.Is(err, maas.Gone) || asked.Load() != 2 {
		t.Errorf("asked anew, MAAS was asked %d times in all: %v", asked.Load(), err)
	}
}
