// SPDX-License-Identifier: Apache-2.0

package upgrade_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/test/audit"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/lxdtest"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

const (
	// mostLate is after how many calls to the new MAAS the operator prepares the last hosts.
	mostLate = 60
)

// MAAS is upgraded to a version without VM hosts while clusters are idle, begin, grow, are rolled out and leave, and on some
// ways to one with VM hosts before, while they are made: all machines are Ready in the end, or gone.
func TestMAASIsUpgradedUnderLiveClusters(t *testing.T) {
	lxdtest.Require(t)
	t.Logf("the same again: %s", attack.replay())
	b := newBed(t)
	for number := range attack.rounds {
		going := t.Run(fmt.Sprintf("round %d", number), func(t *testing.T) {
			r := &round{T: t, bed: b, number: number, dice: rand.New(rand.NewPCG(uint64(attack.seed), uint64(number))), way: ways[number%len(ways)]}
			r.lead()
		})
		if !going {
			t.Fatalf("it failed; the same again: %s", attack.replay())
		}
	}
}

// round is one way of upgrades.
type round struct {
	*testing.T
	bed     bed
	number  int
	way     []string
	dice    *rand.Rand
	auditor *audit.Auditor

	clusters    []*cluster
	early, late []int // hosts, by when they are prepared
	before      []string
}

func (r *round) lead() {
	r.bed.register(r.T, r.way[0])
	r.begin()
	r.step("the clusters are there", r.establish)
	r.step("MAAS is upgraded", r.upgrade)
	r.step("the clusters are as they were asked for", r.converge)
	r.step("everything goes", r.end)
}

// step logs how long a part takes.
func (r *round) step(what string, do func()) {
	r.Helper()
	started := time.Now()
	do()
	r.Logf("%s: %s", what, time.Since(started).Round(time.Second))
}

func (r *round) begin() {
	r.Helper()
	r.before = machinesInMAAS()
	var err error
	if r.auditor, err = audit.Open(box.MAAS, box.Client, audit.Options{MayTake: isReady}); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(r.auditor.Close)
	r.Cleanup(func() { box.MAAS.SetHook(nil) })
	r.clusters = newClusters(r.T, r.number, r.dice)
	r.Cleanup(func() {
		if r.Failed() {
			r.bed.dump(r.T)
		}
	})
}

// isReady reports whether a machine may be another one after a cluster's life.
func isReady(m simulator.MachineSnapshot) bool { return m.Status == "Ready" }

// in are the clusters in some phases.
func (r *round) in(phases ...phase) []*cluster {
	return slices.DeleteFunc(slices.Clone(r.clusters), func(c *cluster) bool { return !slices.Contains(phases, c.phase) })
}

// establish makes the clusters that are there before MAAS is upgraded to the last version, and upgrades it to those before
// meanwhile.
func (r *round) establish() {
	r.Helper()
	there := r.in(idle, growing, rolling, leaving)
	between := r.upgradeBetween()
	for _, c := range there {
		c.start()
	}
	for _, c := range there {
		c.Watch()
	}
	for _, c := range there {
		c.Available(int(c.replicas + c.workers))
		c.remember()
	}
	if done, calls, err := between.state(); !done || err != nil {
		r.Fatalf("after %d calls MAAS is upgraded: %t, %v", calls, done, err)
	}
	r.learn()
	r.chooseHosts()
}

// upgradeBetween begins to wait for the moment at which MAAS becomes the second version of the way, if that has VM hosts.
// Its dice are others than those of the round, whose seed is chosen for the last upgrade.
func (r *round) upgradeBetween() *upgrade {
	r.Helper()
	if len(r.way) < 3 {
		return &upgrade{done: true}
	}
	at := newMoment(rand.New(rand.NewPCG(uint64(attack.seed), ^uint64(r.number))), creations)
	r.Logf("round %d: MAAS %s becomes %s %s", r.number, r.way[0], r.way[1], at)
	return watch(box.MAAS, at, r.way[1])
}

// chooseHosts decides which hosts are prepared before the upgrade. A mixed attack prepares one after it that has a VM
// which is deleted then.
func (r *round) chooseHosts() {
	r.Helper()
	order, early := r.dice.Perm(len(r.bed)), r.dice.IntN(len(r.bed)+1)
	if attack.mixed {
		controlPlanes, _ := r.in(leaving)[0].MaasMachines()
		last := slices.IndexFunc(order, func(i int) bool { return r.bed[i].name == controlPlanes[0].Status.LXDHost })
		order[last], order[len(order)-1] = order[len(order)-1], order[last]
		early = 1 + r.dice.IntN(len(order)-1)
	}
	r.early, r.late = order[:early], order[early:]
}

func (r *round) learn() {
	r.Helper()
	if err := r.auditor.Learn(r.Context()); err != nil {
		r.Fatal(err)
	}
}

// upgrade changes the clusters, upgrades MAAS meanwhile, and prepares the hosts before and after it.
func (r *round) upgrade() {
	r.Helper()
	at, last := newMoment(r.dice, changes), r.way[len(r.way)-1]
	r.Logf("round %d: MAAS becomes %s %s; prepared before: %v, after: %v", r.number, last, at, r.early, r.late)
	r.bed.prepare(r.T, r.early)
	moment := watch(box.MAAS, at, last)
	for _, i := range r.dice.Perm(len(r.clusters)) {
		r.clusters[i].act()
	}
	for _, c := range r.in(beginning) {
		c.Watch()
	}
	wait(r.T, "the moment "+at.String(), func() (bool, string, error) {
		done, calls, err := moment.state()
		return done, fmt.Sprintf("%d calls", calls), err
	})
	r.learn()
	_, calls, _ := moment.state()
	further := calls + r.dice.IntN(mostLate)
	wait(r.T, "further calls", func() (bool, string, error) {
		_, calls, err := moment.state()
		return calls >= further, fmt.Sprintf("%d of %d", calls, further), err
	})
	r.checkHeld()
	r.bed.prepare(r.T, r.late)
}

// converge grows the idle cluster on the hosts, which are direct hosts now, and waits for all.
func (r *round) converge() {
	r.Helper()
	for _, c := range r.in(idle) {
		c.grow()
	}
	r.bed.awaitReady(r.T)
	for _, c := range r.in(leaving) {
		c.Delete()
	}
	for _, c := range r.in(idle, growing, rolling, beginning) {
		c.available()
		c.checkLived()
	}
	r.audited("with all clusters", audit.Who{Namespace: life.Namespace}, r.auditor.Steady)
}

// end deletes all clusters, and wants nothing of them to be left.
func (r *round) end() {
	r.Helper()
	there := r.in(idle, growing, rolling, beginning)
	for _, c := range there {
		c.leave()
	}
	for _, c := range there {
		c.Delete()
	}
	r.audited("without clusters", audit.Who{Namespace: life.Namespace}, r.auditor.Gone)
	r.bed.checkEmpty(r.T)
	checkMAAS(r.T, r.before)
	r.bed.forget(r.T)
}

// audited reports what an audit finds.
func (r *round) audited(when string, who audit.Who, look func(context.Context, audit.Who) ([]audit.Finding, error)) {
	r.Helper()
	findings, err := look(r.Context(), who)
	if err != nil {
		r.Errorf("%s: %v", when, err)
	}
	for _, finding := range findings {
		r.Errorf("%s: %s", when, finding)
	}
}

func wait(t *testing.T, what string, check func() (bool, string, error)) {
	t.Helper()
	if err := eventually.Wait(t.Context(), what, check); err != nil {
		t.Fatal(err)
	}
}
