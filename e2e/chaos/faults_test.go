// SPDX-License-Identifier: Apache-2.0

package chaos_test

import (
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/directhost"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// spell is a time in which every call has the same fault.
type spell struct {
	name  string
	fault simulator.Fault
	// hits selects the calls; nil: all.
	hits func(simulator.Call) bool
}

// kind is a fault of one call, and in how many of a thousand calls it occurs.
type kind struct {
	name              string
	changing, reading int
	fault             simulator.Fault
}

// kinds are the possible faults of a call. A read can't be refused because of the state of an object (409), as a change
// can.
var kinds = []kind{
	{"dropped before", 45, 18, simulator.Fault{DropBefore: true}},
	{"dropped after", 75, 12, simulator.Fault{DropAfter: true}},
	{"500", 37, 9, simulator.Fault{Status: http.StatusInternalServerError, Body: "Internal Server Error"}},
	{"503", 22, 6, simulator.Fault{Status: http.StatusServiceUnavailable, Body: "busy"}},
	{"503 with Retry-After", 22, 12, simulator.Fault{Status: http.StatusServiceUnavailable, Body: "busy", Headers: map[string]string{"Retry-After": "1"}}},
	{"502 after it was done", 45, 6, simulator.Fault{Status: http.StatusBadGateway, Late: true, Body: "<html>Bad Gateway</html>"}},
	{"504 after it was done", 30, 6, simulator.Fault{Status: http.StatusGatewayTimeout, Late: true, Body: "<html>Gateway Timeout</html>"}},
	{"409", 30, 0, simulator.Fault{Status: http.StatusConflict, Body: "the state of the object does not allow that now"}},
	{"truncated", 30, 15, simulator.Fault{Truncate: true}},
	{"garbage", 30, 12, simulator.Fault{Garbage: true}},
	{"slow", 37, 15, simulator.Fault{Delay: simulator.Duration(1200 * time.Millisecond)}},
}

// spells come in between.
var spells = []spell{
	{"401 for a while", simulator.Fault{Status: http.StatusUnauthorized, Body: "Authorization Error: Invalid access token"}, nil},
	{"empty lists for a while", simulator.Fault{Status: http.StatusOK, Body: "[]", Headers: map[string]string{"Content-Type": "application/json"}}, isList},
	{"503 for a while", simulator.Fault{Status: http.StatusServiceUnavailable, Body: "busy", Headers: map[string]string{"Retry-After": "1"}}, nil},
	{"late lists for a while", simulator.Fault{Delay: simulator.Duration(3 * time.Second)}, isList},
	{"unreachable for a while", simulator.Fault{DropBefore: true}, nil},
}

// isList reports whether a call lists machines or devices that are known. A list that finds machines by their mark alone is the
// only way to learn what became of a request whose response was lost: its result must be true.
func isList(call simulator.Call) bool {
	query, err := url.ParseQuery(call.Query)
	byMark := query.Has("agent_name") || query.Has("hostname") || query.Has("mac_address")
	return err == nil && call.Method == http.MethodGet && isOfMany(call) && (query.Has("id") || !byMark)
}

// isOfMany reports whether a call is about no one machine or device.
func isOfMany(call simulator.Call) bool {
	return call.Endpoint == "machines/" || call.Endpoint == "devices/"
}

const (
	// betweenSpells is how many changing calls there are from one to the next, and spellLength how long one lasts.
	betweenSpells = 80
	spellLength   = 1500 * time.Millisecond
	// stallLength is longer than the manager waits for a response (30 s).
	stallLength = 31500 * time.Millisecond
	stall       = "slower than the client"
)

// loss is something that happens on VM hosts alone, in so many of a thousand calls.
type loss struct {
	name  string
	share int
}

// lossOf returns what a call may lose.
func lossOf(call simulator.Call) *loss {
	switch {
	case isDeletion(call):
		return &loss{"VM deleted in MAAS and kept by its host", 150}
	case isCompose(call):
		return &loss{"VM made by its host and denied", 80}
	}
	return nil
}

// stallable are calls that the manager waits 30 s for.
var stallable = []string{"allocate", "deploy", "release", "link_subnet", "DELETE", "dnsresources/", "devices/"}

// weather chooses the faults. The fault of a call depends on the seed, the kind of the call, and the number of such
// calls before, but not on other calls: so the same seed makes the same attack, though not to the millisecond.
type weather struct {
	seed   uint64
	stalls int
	// lose makes a VM host contradict MAAS in a call; false if the call concerns no VM host.
	lose func(simulator.Call) bool

	mutex    sync.Mutex
	calls    map[string]uint64 // by the kind of call
	changing int
	spell    *spell
	until    time.Time
	spelled  int
	counts   map[string]int // the faults, by kind
}

func newWeather(s size, lose func(simulator.Call) bool) *weather {
	return &weather{seed: uint64(s.seed), stalls: s.stalls, lose: lose, calls: map[string]uint64{}, counts: map[string]int{}}
}

// choose is asked about each call.
func (w *weather) choose(call simulator.Call) *simulator.Fault {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	changes := call.Method != http.MethodGet
	roll := w.roll(what(call))
	if changes {
		w.changing++
		if w.changing%betweenSpells == 0 {
			w.spell, w.until = &spells[w.spelled%len(spells)], time.Now().Add(spellLength)
			w.spelled++
		}
	}
	if w.spell != nil && time.Now().Before(w.until) && (w.spell.hits == nil || w.spell.hits(call)) {
		w.counts[w.spell.name]++
		return &w.spell.fault
	}
	if loss := lossOf(call); loss != nil && roll.IntN(1000) < loss.share && w.lose(call) {
		w.counts[loss.name]++
		return nil // MAAS's message is wrong enough.
	}
	if changes && w.stalls > 0 && roll.IntN(40) == 0 && stalls(call) {
		w.stalls--
		w.counts[stall]++
		return &simulator.Fault{Delay: simulator.Duration(stallLength)}
	}
	return w.pick(roll.IntN(1000), changes)
}

func (w *weather) pick(at int, changes bool) *simulator.Fault {
	for i := range kinds {
		share := kinds[i].reading
		if changes {
			share = kinds[i].changing
		}
		if at < share {
			w.counts[kinds[i].name]++
			return &kinds[i].fault
		}
		at -= share
	}
	return nil
}

// roll is the dice for the next call of this kind. The caller holds the mutex.
func (w *weather) roll(what string) *rand.Rand {
	w.calls[what]++
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(what + " " + strconv.FormatUint(w.calls[what], 10)))
	return rand.New(rand.NewPCG(w.seed, hash.Sum64()))
}

// what returns the kind of the call, and for lists of machines and devices, their filter.
func what(call simulator.Call) string {
	name := call.Method + " " + call.Endpoint + " " + call.Op
	query, err := url.ParseQuery(call.Query)
	if err != nil || !isOfMany(call) {
		return name
	}
	return name + " " + slices.Concat(slices.Sorted(maps.Keys(query)), []string{""})[0]
}

func stalls(call simulator.Call) bool {
	if strings.HasPrefix(call.Endpoint, directhost.CallPrefix) {
		return false
	}
	return slices.Contains(stallable, call.Op) || slices.Contains(stallable, call.Method) || slices.Contains(stallable, call.Endpoint)
}

// figures returns the number of faults so far, by kind and in all.
func (w *weather) figures() (counts map[string]int, total int) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for _, n := range w.counts {
		total += n
	}
	return maps.Clone(w.counts), total
}
