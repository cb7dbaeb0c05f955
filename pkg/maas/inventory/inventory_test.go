// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator/simtest"
)

// region is a MAAS that has machines and counts the requests for each.
type region struct {
	mu       sync.Mutex
	machines map[string]maas.Machine
	asked    [][]string
	down     bool
	failing  int // requests that are still to be turned away
	turned   int // requests that were turned away
	zones    int

	unlistable http.HandlerFunc // answers lists of machines, unless it is nil
}

func (r *region) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down || r.failing > 0 {
		r.turned++
		r.failing = max(0, r.failing-1)
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	if req.URL.Path == "/api/2.0/zones/" {
		r.zones++
		fmt.Fprint(w, `[{"id":1,"name":"default"}]`)
		return
	}
	if req.URL.Path == "/api/2.0/version/" {
		fmt.Fprint(w, `{"version":"3.6.5"}`)
		return
	}
	if strings.Count(req.URL.Path, "/") > strings.Count("/api/2.0/machines/", "/") { // One machine, or device.
		http.Error(w, "No Machine matches the given query.", http.StatusNotFound)
		return
	}
	if r.unlistable != nil {
		r.unlistable(w, req)
		return
	}
	ids := req.URL.Query()["id"]
	slices.Sort(ids)
	r.asked = append(r.asked, ids)
	found := []map[string]any{}
	for _, id := range ids {
		if m, ok := r.machines[id]; ok {
			found = append(found, map[string]any{"system_id": id, "status": int(m.Status), "power_state": m.PowerState})
		}
	}
	_ = json.NewEncoder(w).Encode(found)
}

func (r *region) set(id string, status maas.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.machines[id] = maas.Machine{SystemID: id, Status: status}
}

func (r *region) setDown(down bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down = down
}

// fail turns the next requests away.
func (r *region) fail(requests int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failing = requests
}

func (r *region) lists() [][]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.asked)
}

// start runs an inventory on a region; changed collects its notifications.
func start(t *testing.T, active, idle time.Duration) (*Inventory, *region, *changes) {
	t.Helper()
	region := &region{machines: map[string]maas.Machine{}}
	server := httptest.NewServer(region)
	t.Cleanup(server.Close)
	client := simtest.Client(t, server.URL, "a:b:c")
	changed := &changes{}
	inventory := New(client, Options{ActiveInterval: active, IdleInterval: idle, Notify: changed.add, Logger: testr.New(t)})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); inventory.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return inventory, region, changed
}

type changes struct {
	mu  sync.Mutex
	ids []string
}

func (c *changes) add(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ids = append(c.ids, id)
}

func (c *changes) count(id string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, other := range c.ids {
		if other == id {
			n++
		}
	}
	return n
}

const never = time.Hour

func TestManyMachinesAreAskedForTogether(t *testing.T) {
	inventory, region, changed := start(t, 10*time.Millisecond, never)
	region.mu.Lock() // The first poll, if it begins meanwhile, ends when all were read.
	for i := range 50 {
		id := fmt.Sprintf("m%02d", i)
		region.machines[id] = maas.Machine{SystemID: id, Status: maas.StatusDeployed}
		if inventory.Observe(id, Settled).Known {
			t.Errorf("%s is known before MAAS was asked", id)
		}
	}
	region.mu.Unlock()
	eventually.True(t, "all are known", func() bool { return changed.count("m49") == 1 && changed.count("m00") == 1 })
	if lists := region.lists(); len(lists) > 2 {
		t.Errorf("%d lists for 50 machines that were asked for at once", len(lists))
	}
	if seen := inventory.Observe("m07", Settled); !seen.Known || seen.Machine == nil || seen.Machine.Status != maas.StatusDeployed {
		t.Errorf("m07 is %+v", seen)
	}
}

func TestOnlyChangesAreReported(t *testing.T) {
	inventory, region, changed := start(t, time.Millisecond, never)
	region.set("a", maas.StatusDeploying)
	inventory.Observe("a", Changing)
	eventually.True(t, "a is known", func() bool { return changed.count("a") == 1 })
	looked := len(region.lists())
	eventually.True(t, "a is polled again and again", func() bool { return len(region.lists()) > looked+3 })
	if n := changed.count("a"); n != 1 {
		t.Errorf("%d changes were reported, one happened", n)
	}
	region.set("a", maas.StatusDeployed)
	eventually.True(t, "the change is reported", func() bool { return changed.count("a") == 2 })
}

func TestIdleMachinesArePolledSeldomAndTogether(t *testing.T) {
	inventory, region, changed := start(t, time.Millisecond, 200*time.Millisecond)
	for _, id := range []string{"a", "b", "c"} {
		region.set(id, maas.StatusDeployed)
		inventory.Observe(id, Settled)
	}
	eventually.True(t, "all are known", func() bool { return changed.count("a")+changed.count("b")+changed.count("c") == 3 })
	before := len(region.lists())
	region.set("b", maas.StatusBroken)
	eventually.True(t, "the drift is reported", func() bool { return changed.count("b") == 2 })
	for _, ids := range region.lists()[before:] {
		if len(ids) != 3 {
			t.Errorf("an idle poll asked for %v, want all machines in one list", ids)
		}
	}
}

func TestAMachineThatIsGoneIsReported(t *testing.T) {
	inventory, region, changed := start(t, time.Millisecond, never)
	region.set("a", maas.StatusDeployed)
	inventory.Observe("a", Changing)
	eventually.True(t, "a is known", func() bool { return changed.count("a") == 1 })
	region.mu.Lock()
	delete(region.machines, "a")
	region.mu.Unlock()
	eventually.True(t, "a is reported as gone", func() bool { return changed.count("a") == 2 })
	if seen := inventory.Observe("a", Settled); !seen.Known || seen.Machine != nil {
		t.Errorf("a is %+v, want known and gone", seen)
	}
}

// A poll that began before a write must not restore the state before it.
func TestOlderResponsesDontUndoWrites(t *testing.T) {
	inventory := New(nil, Options{})
	asked := time.Now()
	inventory.Track(&maas.Machine{SystemID: "a", Status: maas.StatusDeploying})
	inventory.applyList(asked, []string{"a"}, []*maas.Machine{{SystemID: "a", Status: maas.StatusReady}})
	if seen := inventory.Observe("a", Changing); seen.Machine.Status != maas.StatusDeploying {
		t.Errorf("the machine is in status %d, want the response to the write", seen.Machine.Status)
	}
	_, _ = inventory.Change("a", failedChange)
	if inventory.Observe("a", Changing).Known {
		t.Error("the machine is still known after a call that failed")
	}
}

// For example a machine that was given back at once: nothing would ever make the inventory forget it.
func TestWritesToMachinesThatNobodyObservesAreNotTracked(t *testing.T) {
	inventory, region, _ := start(t, time.Millisecond, 5*time.Millisecond)
	region.set("a", maas.StatusDeployed)
	region.set("extra", maas.StatusReady)
	changed := func(status maas.Status) func(*maas.Client) (*maas.Machine, error) {
		return func(*maas.Client) (*maas.Machine, error) {
			return &maas.Machine{SystemID: "extra", Status: status}, nil
		}
	}
	for _, change := range []func(*maas.Client) (*maas.Machine, error){changed(maas.StatusAllocated), failedChange} {
		_, _ = inventory.Change("extra", change)
	}
	inventory.Track(&maas.Machine{SystemID: "extra", Status: maas.StatusAllocated})
	inventory.Forget("extra")
	_, _ = inventory.Change("extra", changed(maas.StatusReady))
	inventory.Observe("a", Changing)
	before := len(region.lists()) + 1 // One may be under way.
	eventually.True(t, "a is polled", func() bool { return len(region.lists()) > before+5 })
	for _, ids := range region.lists()[before:] {
		if slices.Contains(ids, "extra") {
			t.Fatalf("MAAS was asked for %v, and nobody observes the extra machine", ids)
		}
	}
}

func TestTheLastResponseStaysWhileMAASIsDown(t *testing.T) {
	inventory, region, changed := start(t, time.Millisecond, 10*time.Millisecond)
	region.set("a", maas.StatusDeployed)
	inventory.Observe("a", Changing)
	eventually.True(t, "a is known", func() bool { return changed.count("a") == 1 })
	region.setDown(true)
	eventually.True(t, "the outage is reported", func() bool { return changed.count("a") == 2 })
	if err := inventory.Health(); !errors.Is(err, maas.Unavailable) {
		t.Errorf("Health is %v, want %s", err, maas.Unavailable)
	}
	if seen := inventory.Observe("a", Changing); !seen.Known || seen.Machine == nil {
		t.Errorf("the last response is gone: %+v", seen)
	}
	region.setDown(false)
	eventually.True(t, "the end of the outage is reported", func() bool { return changed.count("a") == 3 && inventory.Health() == nil })
}

func TestALostResponseIsNoOutage(t *testing.T) {
	inventory, region, changed := start(t, time.Millisecond, 10*time.Millisecond)
	region.set("a", maas.StatusDeployed)
	inventory.Observe("a", Changing)
	eventually.True(t, "a is known", func() bool { return changed.count("a") == 1 })
	region.fail(1)
	eventually.True(t, "a response was lost", func() bool { return region.turnedAway() == 1 })
	asked := len(region.lists())
	eventually.True(t, "MAAS responds again", func() bool { return len(region.lists()) > asked })
	if n := changed.count("a"); n != 1 || inventory.Health() != nil {
		t.Errorf("it was reported %d times, and health is %v", n, inventory.Health())
	}
}

// A MAAS may answer everything but its lists.
func TestListsThatAlwaysFailAreIllHealth(t *testing.T) {
	for name, list := range map[string]http.HandlerFunc{
		"a redirect": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "https://maas.example/")
			w.WriteHeader(http.StatusMovedPermanently)
		},
		"too many requests": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) },
		"an error":          func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"something else":    func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "null") },
		"a machine that is too long": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `[{"system_id":"a","description":%q}]`, strings.Repeat("x", 2<<20))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inventory, region, changed := start(t, time.Millisecond, 10*time.Millisecond)
			region.set("a", maas.StatusDeployed)
			inventory.Observe("a", Changing)
			eventually.True(t, "a is known", func() bool { return changed.count("a") == 1 })
			region.answerLists(list)
			eventually.True(t, "MAAS counts as unreadable", func() bool {
				if _, err := inventory.Client().ListZones(t.Context()); err != nil {
					t.Fatalf("what MAAS answers can't be read: %v", err)
				}
				return errors.Is(inventory.Health(), maas.Unavailable)
			})
			eventually.True(t, "that is reported", func() bool { return changed.count("a") > 1 })
			region.answerLists(nil)
			eventually.True(t, "MAAS counts as readable", func() bool {
				return inventory.Health() == nil && inventory.Observe("a", Changing).Machine != nil
			})
		})
	}
}

func (r *region) answerLists(with http.HandlerFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unlistable = with
}

// A read may be another reconciler's than the machine's.
func TestAReadTellsWhatChanged(t *testing.T) {
	i, s := newScript(t)
	s.deploy(i, Changing, 2)
	s.polls(i, 1)
	status := maas.StatusBroken
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/m0000/") {
			http.Error(w, "No Machine matches the given query.", http.StatusNotFound)
			return
		}
		fmt.Fprintf(w, `{"system_id": "m0000", "status": %d}`, status)
	}))
	t.Cleanup(server.Close)
	client := simtest.Client(t, server.URL, "a:b:c")
	i.client = client
	for _, want := range []int{2, 2, 3} {
		if want == 3 {
			status = maas.StatusDeployed
		}
		if _, err := i.Read(t.Context(), "m0000"); err != nil || s.told["m0000"] != want {
			t.Errorf("%v; it was told %d times, want %d", err, s.told["m0000"], want)
		}
	}
	if s.told["m0001"] != 1 {
		t.Errorf("a machine that was not read was told %d times", s.told["m0001"])
	}
}

func TestAPeekChangesNothing(t *testing.T) {
	i, s := newScript(t)
	s.deploy(i, Changing, 1)
	s.polls(i, 1)
	if seen, tracked := i.Peek("m0000"); !tracked || seen.Machine == nil {
		t.Errorf("seen is %+v, tracked: %t", seen, tracked)
	}
	if due := i.due(); !slices.Contains(due, "m0000") {
		t.Errorf("%v are due, and the machine changes", due)
	}
	if seen, tracked := i.Peek("other"); tracked || seen.Known || i.tracked() != 1 {
		t.Errorf("a machine that nobody observes is %+v, tracked: %t", seen, tracked)
	}
	_, _ = i.Change("m0000", failedChange)
	if seen, _ := i.Peek("m0000"); seen.Known {
		t.Errorf("after a call that failed, seen is %+v", seen)
	}
}

// A proxy before MAAS may answer 404 for a while.
func TestWhatMAASListsIsNotGone(t *testing.T) {
	inventory, region, _ := start(t, never, never)
	region.set("a", maas.StatusDeployed)
	if _, err := inventory.Read(t.Context(), "a"); !errors.Is(err, maas.Unavailable) || errors.Is(err, maas.NotFound) {
		t.Errorf("GET answers 404 for what MAAS lists: %v", err)
	}
	if _, err := inventory.Read(t.Context(), "b"); !errors.Is(err, maas.NotFound) {
		t.Errorf("neither GET nor a list has it: %v", err)
	}
	region.answerLists(func(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) })
	if _, err := inventory.Read(t.Context(), "b"); !errors.Is(err, maas.Unavailable) || errors.Is(err, maas.NotFound) {
		t.Errorf("nothing before MAAS finds anything: %v", err)
	}
}

func (r *region) turnedAway() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.turned
}

// While MAAS is down, it gets only the inventory's probes, however many others call it.
func TestTheInventoryTriesWhetherMAASIsBack(t *testing.T) {
	inventory, region, changed := start(t, time.Millisecond, 10*time.Millisecond)
	region.set("a", maas.StatusDeployed)
	inventory.Observe("a", Changing)
	eventually.True(t, "a is known", func() bool { return changed.count("a") == 1 })
	region.setDown(true)
	eventually.True(t, "no more calls are sent", func() bool { _, open := inventory.Client().NextProbe(); return open })
	before := region.turnedAway()
	eventually.True(t, "it was tried", func() bool {
		if _, err := inventory.Client().ListZones(t.Context()); err == nil {
			t.Fatal("a MAAS that is down responded")
		}
		return region.turnedAway() > before
	})
	if n := region.turnedAway() - before; n != 1 {
		t.Errorf("%d calls reached MAAS, want the one that tried", n)
	}
	region.setDown(false)
	eventually.True(t, "its end is reported to those who wait", func() bool { return changed.count("a") == 3 && inventory.Health() == nil })
}

func TestTheInventoryProbesMAASAlsoWithNothingToPoll(t *testing.T) {
	inventory, region, _ := start(t, never, never)
	region.setDown(true)
	for range 3 {
		_, _ = inventory.Client().ListZones(t.Context())
	}
	if _, open := inventory.Client().NextProbe(); !open {
		t.Fatal("calls go on")
	}
	region.setDown(false)
	eventually.True(t, "calls are sent again", func() bool { _, open := inventory.Client().NextProbe(); return !open })
}

func TestSharedResponsesAreRequestedOnce(t *testing.T) {
	inventory, region, _ := start(t, never, never)
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			if _, err := inventory.Zones(t.Context(), time.Minute); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if region.zones != 1 {
		t.Errorf("the zones were asked for %d times, want once", region.zones)
	}
	if _, err := inventory.Zones(t.Context(), 0); err != nil || region.zones != 2 {
		t.Errorf("a response that is too old was used (asked %d times, error %v)", region.zones, err)
	}
}

func TestRegistry(t *testing.T) {
	var told changes
	registry := NewRegistry(Options{ActiveInterval: never, IdleInterval: never, Notify: told.add, Logger: testr.New(t)})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = registry.Start(ctx) }()
	t.Cleanup(func() { cancel(); <-done })

	one := maas.Config{Endpoint: "http://127.0.0.1:1/MAAS", APIKey: "a:b:c"}
	two := maas.Config{Endpoint: "http://127.0.0.1:1/MAAS", APIKey: "a:b:d"}
	get := func(user string, config maas.Config) *Inventory {
		t.Helper()
		inventory, err := registry.For(user, config)
		if err != nil {
			t.Fatal(err)
		}
		return inventory
	}
	shared := get("x", one)
	if get("y", one) != shared || get("x", one) != shared {
		t.Error("one identity has several inventories")
	}
	if get("x", two) == shared {
		t.Error("two identities share an inventory")
	}
	registry.Release("y")
	if len(registry.kept) != 1 {
		t.Errorf("%d inventories are kept, one is used", len(registry.kept))
	}
	if _, err := registry.For("z", maas.Config{}); err == nil {
		t.Error("a wrong identity was taken")
	}
	get("x", two).Observe("a", Settled)
	get("y", two).Observe("b", Settled)
	get("x", one)
	if told.count("a")+told.count("b") > 0 {
		t.Error("machines were told about that the other user's inventory observes")
	}
	get("y", one) // For example after the CA was renewed: no other machine would be observed before its next reconcile.
	eventually.True(t, "the reconcilers know that they have another inventory", func() bool {
		return told.count("a") == 1 && told.count("b") == 1
	})
}

// failedChange is a call to MAAS whose response was lost.
func failedChange(*maas.Client) (*maas.Machine, error) {
	return nil, &maas.Error{Kind: maas.Unavailable}
}
