// SPDX-License-Identifier: Apache-2.0

package crash_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/test/audit"
	"github.com/capmaas/cluster-api-provider-maas/test/chaos"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// everything (CAPMAAS_CHAOS=full) makes the walk visit all points of all kinds of lives, each in a life of its own; otherwise
// it visits the first of each call that changes something, in one kind of life that makes it, and in one life a point of
// each stage.
var everything = chaos.Full()

// run is one life in which managers die, each in another stage.
type run struct {
	kind   *kind
	deaths []death
}

func (r run) String() string {
	var deaths []string
	for _, d := range r.deaths {
		deaths = append(deaths, d.String())
	}
	return r.kind.name + "/" + strings.Join(deaths, ", ")
}

// late reports whether a call takes effect late.
func (r run) late() bool { return slices.ContainsFunc(r.deaths, func(d death) bool { return d.late }) }

// waits is how many of the managers wait for the effect of their predecessor's request.
func (r run) waits() (n int) {
	for _, d := range r.deaths {
		if d.phase == simulator.Before && d.at.awaited() {
			n++
		}
	}
	return n
}

// A manager dies at every call to MAAS, and to LXD, of a life, before and after the call took effect. Its successor finishes what it
// began, and nothing is left behind. Each kind of life runs undisturbed first, to record its calls.
func TestManagerDiesAtEveryCall(t *testing.T) {
	board := &switchboard{killers: map[string]*killer{}, losses: map[string]*loss{}}
	box.MAAS.SetHook(board.hook)
	defer box.MAAS.SetHook(nil)
	box.MAAS.ChooseFaults(func(call simulator.Call) *simulator.Fault { return board.lossOf(call.User).fault(call) })
	defer box.MAAS.ClearFaults()
	servers := startLXDs(t)
	kinds := withLXD(servers)
	moveIn(t)
	auditor, err := audit.Open(box.MAAS, box.Client, audit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer auditor.Close()
	sum := newFigures(box.MAAS)
	defer sum.cancel()
	walkers := startWalkers(t, board, auditor)
	checkApart(t, walkers)
	addDirectHosts(t, walkers, servers)
	findVMHosts(t, walkers)

	undisturbed := make([]*killer, len(kinds))
	each(t, walkers, len(kinds), func(w *walker, i int) bool {
		undisturbed[i] = &killer{}
		return t.Run("undisturbed "+kinds[i].name, func(t *testing.T) {
			defer sum.life(t, undisturbed[i])
			if err := w.manager.Kill(); err != nil { // A new manager remembers nothing, and asks for everything.
				t.Fatal(err)
			}
			w.lead(t, kinds[i], fmt.Sprintf("undisturbed-%d", i), undisturbed[i])
		})
	})
	if t.Failed() {
		return
	}
	runs := plan(kinds, undisturbed)
	checkPlan(t, kinds, undisturbed, runs)
	each(t, walkers, len(runs), func(w *walker, i int) bool {
		return t.Run(runs[i].String(), func(t *testing.T) {
			k := &killer{deaths: runs[i].deaths}
			if runs[i].late() { // The first one is the predecessor's, before it asks for the VM.
				k.detach(t, func(at point) bool { return at.stage == creation && at.call() == readVM && at.n > 1 })
			}
			defer sum.life(t, k)
			w.walk(t, runs[i].kind, fmt.Sprintf("crash-%d", i), k)
		})
	})
	findings, err := auditor.Gone(t.Context(), audit.Who{})
	report(t, "after all", findings, err)
	t.Log(sum)
}

// checkApart kills one manager after the other, and wants all others to live.
func checkApart(t *testing.T, walkers []*walker) {
	t.Helper()
	before := processes(t, walkers, func([]int) bool { return true })
	for i, w := range walkers {
		if err := w.manager.Kill(); err != nil {
			t.Fatal(err)
		}
		after := processes(t, walkers, func(all []int) bool { return all[i] != before[i] })
		before[i] = after[i]
		if !slices.Equal(before, after) {
			t.Fatalf("with the manager of %s others were killed: of %v there is %v", w.user, before, after)
		}
	}
}

// processes are those of the walkers' managers, once they all run and are as expected.
func processes(t *testing.T, walkers []*walker, expected func([]int) bool) (all []int) {
	t.Helper()
	err := eventually.Wait(within(t, shortTimeout), "all managers to run", func() (bool, string, error) {
		all = nil
		for _, w := range walkers {
			for _, container := range w.manager.Kubelet.Containers() {
				all = append(all, container.PID)
			}
		}
		return len(all) == len(walkers) && !slices.Contains(all, 0) && expected(all), fmt.Sprint(all), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var phases = []simulator.Phase{simulator.Before, simulator.After}

// plan chooses the points of the undisturbed lives at which managers die. Points after which a manager waits for the
// effect of its predecessor's request come first: they take longest.
func plan(kinds []*kind, undisturbed []*killer) []run {
	var runs []run
	for i, k := range undisturbed {
		points, _, _ := k.seen()
		var waiting, others []death
		for _, at := range points {
			if !at.bounded() || (!everything && !at.short()) || covered(undisturbed, i, at) {
				continue
			}
			if at.call() == makeVM {
				waiting = append(waiting, death{at: at, phase: simulator.Before, late: true})
			}
			for _, phase := range phases {
				d := death{at: at, phase: phase}
				if phase == simulator.Before && at.awaited() {
					waiting = append(waiting, d)
				} else {
					others = append(others, d)
				}
			}
		}
		runs = append(runs, lives(kinds[i], slices.Concat(waiting, others))...)
	}
	slices.SortStableFunc(runs, func(a, b run) int { return cmp.Compare(b.waits(), a.waits()) })
	return runs
}

// lives distributes deaths to lives of a kind, in their order: in a life there is one of each stage, or just one in the
// walk that visits everything.
func lives(of *kind, deaths []death) (runs []run) {
	begun := map[stage]int{}
	for i, d := range deaths {
		at := begun[d.at.stage]
		if everything {
			at = i
		}
		begun[d.at.stage]++
		if at == len(runs) {
			runs = append(runs, run{kind: of})
		}
		runs[at].deaths = append(runs[at].deaths, d)
	}
	return runs
}

// covered reports whether the point of a kind can be left out, because a kind before it has it.
func covered(undisturbed []*killer, of int, at point) bool {
	return !everything && slices.ContainsFunc(undisturbed[:of], func(k *killer) bool {
		points, _, _ := k.seen()
		return slices.Contains(points, at)
	})
}

// checkPlan requires a manager to die before and after each call that a life must make, in a life of that kind, or in
// any where the walk leaves out what others cover. Kinds that -run leaves out were not led undisturbed either.
func checkPlan(t *testing.T, kinds []*kind, undisturbed []*killer, runs []run) {
	t.Helper()
	for i, kind := range kinds {
		if points, _, _ := undisturbed[i].seen(); len(points) == 0 {
			continue
		}
		for _, call := range kind.calls {
			for _, phase := range phases {
				if !slices.ContainsFunc(runs, func(r run) bool {
					return (r.kind == kind || !everything) && slices.ContainsFunc(r.deaths, func(d death) bool { return d.phase == phase && d.at.call() == call })
				}) {
					t.Errorf("in a life of the kind %q no manager dies %s %s", kind.name, phase, call)
				}
			}
		}
	}
}

// walk leads one life in which managers die.
func (w *walker) walk(t *testing.T, kind *kind, name string, k *killer) {
	t.Helper()
	// A host that failed in an earlier life is passed over for a while.
	if kind.spare != "" || slices.ContainsFunc(k.deaths, func(d death) bool { return d.at.remembered() }) {
		if err := w.manager.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	w.lead(t, kind, name, k)
	points, died, err := k.seen()
	if err != nil {
		t.Error(err)
	}
	for _, d := range k.deaths {
		switch {
		case slices.Contains(died, d):
		case d.at.certain():
			t.Errorf("the manager was never killed %s: there were only the calls %v", d, points)
		default:
			t.Logf("the call did not come this time: %s", d)
		}
	}
}

// each distributes numbered tasks to the walkers, one after the other. A walker that fails stops: what it left may be
// in the way.
func each(t *testing.T, walkers []*walker, number int, do func(w *walker, i int) bool) {
	t.Helper()
	next := make(chan int, number)
	for i := range number {
		next <- i
	}
	close(next)
	var walking sync.WaitGroup
	for _, w := range walkers {
		walking.Go(func() {
			for i := range next {
				if !do(w, i) {
					return
				}
			}
		})
	}
	walking.Wait()
	if left := len(next); left > 0 {
		t.Errorf("%d lives were not led, for all walkers failed", left)
	}
}
