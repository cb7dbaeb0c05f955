// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

const (
	herdSize = 16
	// busyMAAS handles one call that changes something after the other, and does nothing else for it.
	busyMAAS = `
timings: {workers: 1, write: 2m, compose: 0s}
`
)

// begun returns how many machines were begun, with an operation, when the first deployment was asked for, and how many
// at most were begun and not to be deployed yet.
func (w *world) begun(with string) (first, most int) {
	calls := w.maas.Calls().Log
	slices.SortFunc(calls, func(a, b simulator.Call) int { return a.Number - b.Number })
	now := 0
	for _, call := range calls {
		switch call.Op {
		case with:
			now++
			most = max(most, now)
		case "deploy":
			if first == 0 {
				first = now
			}
			now--
		}
	}
	return first, most
}

// Of many machines that are made at once, those that were begun come first, however many workers there are: also in a
// MAAS that needs longer for each call, the more there are.
func TestTheFirstOfManyMachinesIsReadySoon(t *testing.T) {
	t.Parallel()
	hosts := strings.Count(region, "name: lxd-")
	roomy := strings.NewReplacer(
		"cores: 8, memory: 16384, storage_pools", "cores: 64, memory: 262144, storage_pools", "size: 200", "size: 2000",
		"names: [metal-a]", fmt.Sprintf("prefix: metal, count: %d", herdSize)).Replace(region)
	for name, tc := range map[string]struct {
		spec  infrav1.MaasMachineSpec
		begin string
	}{"VMs": {vm, "compose"}, "bare metal": {infrav1.MaasMachineSpec{}, "allocate"}} {
		for _, workers := range []int{2, 10} {
			t.Run(fmt.Sprintf("%s, %d workers", name, workers), func(t *testing.T) {
				t.Parallel()
				w, _ := clusterWorld(t, func(w *world) { w.region, w.concurrency = roomy+busyMAAS, workers })
				var all []*infrav1.MaasMachine
				for i := range herdSize {
					all = append(all, w.newMachine(fmt.Sprintf("md-%d", i), false, tc.spec))
				}
				for _, m := range all {
					w.deployed(m)
				}
				first, most := w.begun(tc.begin)
				t.Logf("%d were begun before the first was to be deployed, and %d at most were begun and not deployed", first, most)
				// One on each host, and one for each of the two deployments that MAAS is asked for at once.
				if limit := hosts + 2; first > limit || most > limit {
					t.Errorf("want at most %d of %d", limit, herdSize)
				}
			})
		}
	}
}
