// SPDX-License-Identifier: Apache-2.0

package chaos_test

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

var (
	allocation = simulator.Call{Method: http.MethodPost, Endpoint: "machines/", Op: "allocate"}
	deletion   = simulator.Call{Method: http.MethodDelete, Endpoint: "machines/{id}/"}
	poll       = simulator.Call{Method: http.MethodGet, Endpoint: "machines/", Query: "id=a&id=b"}
)

// forecast is what happens to the next calls.
func forecast(w *weather, call simulator.Call, n int) []*simulator.Fault {
	var list []*simulator.Fault
	for range n {
		list = append(list, w.choose(call))
	}
	return list
}

func nothingLost(simulator.Call) bool { return false }

func TestTheSameSeedMakesTheSameWeatherWhateverElseIsCalled(t *testing.T) {
	const calls = betweenSpells - 1 // spells end with time
	alone := forecast(newWeather(size{seed: 5}, nothingLost), allocation, calls)
	busy := newWeather(size{seed: 5}, nothingLost)
	var among []*simulator.Fault
	for range calls {
		forecast(busy, poll, 3)
		among = append(among, busy.choose(allocation))
	}
	if diff := cmp.Diff(alone, among); diff != "" {
		t.Errorf("the same seed differs:\n%s", diff)
	}
	if cmp.Equal(alone, forecast(newWeather(size{seed: 6}, nothingLost), allocation, calls)) {
		t.Error("another seed makes the same weather")
	}
}

func TestTheWeatherHasEachKindOfFault(t *testing.T) {
	lost := 0
	w := newWeather(size{seed: 7, stalls: 1}, func(simulator.Call) bool { lost++; return true })
	for range 2000 {
		forecast(w, allocation, 1)
		forecast(w, poll, 1)
		forecast(w, deletion, 1)
		forecast(w, simulator.Call{Method: http.MethodPost, Endpoint: "vm-hosts/{id}/", Op: "compose"}, 1)
		w.spell = nil // it is over
	}
	counts, total := w.figures()
	for _, k := range kinds {
		if counts[k.name] == 0 {
			t.Errorf("%s never happened", k.name)
		}
	}
	names := []string{stall, lossOf(deletion).name, lossOf(simulator.Call{Op: "compose"}).name}
	for _, spell := range spells {
		names = append(names, spell.name)
	}
	for _, name := range names {
		if counts[name] == 0 {
			t.Errorf("%s never happened", name)
		}
	}
	if counts[stall] != 1 || lost == 0 || total > 8000 {
		t.Errorf("%d stalls, %d lost, %d in all", counts[stall], lost, total)
	}
}
