// SPDX-License-Identifier: Apache-2.0

package crash_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/test/audit"
	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// everything (CAPMAAS_CHAOS=full) makes the walk visit all points of all kinds of lives; otherwise it visits the first of
// each call that changes something, in one kind of life that makes it.
var everything = life.FullAttack()

// run is one life in which the manager dies at one point.
type run struct {
	kind  *kind
	at    point
	phase simulator.Phase
	// late means that the call takes effect when the manager's successor has searched for what the call makes.
	late bool
}

func (r run) String() string {
	when := string(r.phase)
	if r.late {
		when = "late"
	}
	return fmt.Sprintf("%s/%s %s", r.kind.name, when, r.at)
}

// A manager dies at every call to MAAS, and to LXD, of a life, before and after the call took effect. Its successor finishes what it
// began, and nothing is left behind. Each kind of life runs undisturbed first, to record its calls.
func TestManagerDiesAtEveryCall(t *testing.T) {
	board := &switchboard{killers: map[string]*killer{}}
	box.MAAS.SetHook(board.hook)
	defer box.MAAS.SetHook(nil)
	server := startLXD(t)
	kinds := withLXD(server)
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
	addDirectHosts(t, walkers, server)

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
			k := &killer{target: runs[i].at, phase: runs[i].phase}
			if runs[i].late { // The first one is the predecessor's, before it asks for the VM.
				k.detach(t, func(at point) bool { return at.stage == creation && at.call() == readVM && at.n > 1 })
			}
			defer sum.life(t, k)
			w.walk(t, runs[i].kind, fmt.Sprintf("crash-%d", i), k)
		})
	})
	findings, err := auditor.Gone(t.Context(), audit.Who{})
	report(t, "after all", findings, err)
	t.Logf("walked to %d points, before and after each: %s", len(runs)/len(phases), sum)
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
	err := sandbox.WaitFor(within(t, shortTimeout), "all managers to run", func() (bool, string, error) {
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
	var waiting, others []run
	for i, k := range undisturbed {
		points, _, _ := k.seen()
		for _, at := range points {
			if !at.bounded() || (!everything && !at.short()) || covered(undisturbed, i, at) {
				continue
			}
			if at.call() == makeVM {
				waiting = append(waiting, run{kind: kinds[i], at: at, phase: simulator.Before, late: true})
			}
			for _, phase := range phases {
				r := run{kind: kinds[i], at: at, phase: phase}
				if phase == simulator.Before && at.awaited() {
					waiting = append(waiting, r)
				} else {
					others = append(others, r)
				}
			}
		}
	}
	return slices.Concat(waiting, others)
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
					return (r.kind == kind || !everything) && r.phase == phase && r.at.call() == call
				}) {
					t.Errorf("in a life of the kind %q no manager dies %s %s", kind.name, phase, call)
				}
			}
		}
	}
}

// walk leads one life in which the manager dies.
func (w *walker) walk(t *testing.T, kind *kind, name string, k *killer) {
	t.Helper()
	if k.target.remembered() {
		if err := w.manager.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	w.lead(t, kind, name, k)
	points, killed, err := k.seen()
	switch {
	case err != nil:
		t.Error(err)
	case !killed && k.target.certain():
		t.Errorf("the manager was never killed: there were only the calls %v", points)
	case !killed:
		t.Log("the call did not come this time")
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
