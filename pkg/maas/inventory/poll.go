// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"cmp"
	"context"
	"math/rand/v2"
	"reflect"
	"slices"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

const (
	// gather is how long to wait for further machines before polling a new one.
	gather = 200 * time.Millisecond
	// maxBackoff is the longest time between two tries while MAAS can't be read.
	maxBackoff = 30 * time.Second
	// restFactor times the duration of a sweep is the pause until the next one: a slow MAAS must not be kept busy.
	restFactor = 4
	// Machines that are expected to change are observed every few minutes, settled ones at each resync of the
	// Kubernetes caches, every 10 hours. After these times no reconciler observes a machine any more, for example
	// because its cluster was moved away.
	changingAbandoned = 30 * time.Minute
	settledAbandoned  = 24 * time.Hour
	// failedLists is how many lists in a row must fail until MAAS counts as unreadable.
	failedLists = 3
)

// pace is the progress of polling. A sweep polls all machines; it may take many lists, and continue after an error.
type pace struct {
	round  time.Time // when the last poll of the changing machines began
	began  time.Time // when the sweep under way began; zero without one
	left   []string  // machines that it has still to poll
	ended  time.Time // when the last sweep ended
	rested time.Time // when the next one may begin
	due    time.Time // when the next one is due
	wanted bool      // it is due as soon as it may begin

	failed      int  // lists in a row that failed
	checkFailed bool // MAAS lists machines, and counts as unreadable because a check of one that lists lack failed
}

func (p *pace) sweepDue(now time.Time) bool {
	return p.began.IsZero() && !now.Before(p.rested) && (p.wanted || !now.Before(p.due))
}

// Run polls MAAS until the context ends, and closes the inventory's client then. With nothing tracked it sends nothing,
// unless MAAS does not respond: then it sends the probes.
func (i *Inventory) Run(ctx context.Context) {
	defer i.client.Close()
	defer i.end()
	failures := 0
	for {
		if err := i.poll(ctx); err != nil {
			failures++
			i.opts.Logger.V(1).Info("MAAS can't be read", "error", err.Error(), "failures", failures)
		} else {
			failures = 0
		}
		if !i.pause(ctx, failures) {
			return
		}
	}
}

// pause waits until the next poll is due; false means that the context ended.
func (i *Inventory) pause(ctx context.Context, failures int) bool {
	next, wake, soon := i.untilSweep(), i.wake, i.soon
	if left, waiting := i.client.NextProbe(); waiting {
		next, wake, soon = left, nil, nil // Then the next poll is the probe.
	} else if failures > 0 {
		next, wake, soon = jitter(min(i.opts.ActiveInterval<<min(failures-1, 16), maxBackoff)), nil, nil
	} else if len(i.due()) > 0 {
		next = min(next, i.opts.ActiveInterval)
	}
	ends := i.now().Add(next)
	for {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(ends.Sub(i.now())):
			return true
		case <-i.client.StateChanged():
			return true
		case <-wake:
			return sleep(ctx, gather)
		case <-soon:
			if at := i.now().Add(i.opts.ActiveInterval); at.Before(ends) {
				ends = at
			}
		}
	}
}

// untilSweep returns the time until the next sweep.
func (i *Inventory) untilSweep() time.Duration {
	at := i.pace.due
	if i.pace.wanted || at.Before(i.pace.rested) {
		at = i.pace.rested
	}
	return at.Sub(i.now())
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// jitter adds up to a fifth, so that several managers don't poll at the same time.
func jitter(d time.Duration) time.Duration {
	return d + time.Duration(rand.Int64N(int64(d)/5+1)) // Not a secret.
}

// poll asks MAAS for the machines that are due.
func (i *Inventory) poll(ctx context.Context) error {
	if i.unknown() > i.batch.next() {
		i.pace.wanted = true // The changing machines are polled between its lists.
	}
	sweep := i.pace.sweepDue(i.now())
	if _, waiting := i.client.NextProbe(); waiting && i.pace.began.IsZero() && (!sweep || i.tracked() == 0) &&
		len(i.due()) == 0 {
		return i.probe(ctx)
	}
	if sweep {
		i.beginSweep()
	} else if err := i.pollChanging(ctx); err != nil {
		return err
	}
	if i.pace.began.IsZero() {
		return nil
	}
	for {
		i.pace.left = i.notAskedSince(i.pace.began, i.pace.left)
		if len(i.pace.left) == 0 {
			return i.endSweep(ctx)
		}
		if err := i.pollBatch(ctx, i.pace.left); err != nil {
			return err
		}
		if i.isChangingDue() {
			if err := i.pollChanging(ctx); err != nil {
				return err
			}
		}
	}
}

// pollChanging polls the machines that are expected to change, or whose state is unclear.
func (i *Inventory) pollChanging(ctx context.Context) error {
	began := i.now()
	i.pace.round = began
	for ids := i.due(); len(ids) > 0; ids = i.notAskedSince(began, ids) {
		if err := i.pollBatch(ctx, ids); err != nil {
			return err
		}
	}
	return i.judgeAbsent(ctx)
}

// isChangingDue reports whether the changing machines are due, or a new machine was added.
func (i *Inventory) isChangingDue() bool {
	select {
	case <-i.wake:
		return true
	default:
		return i.now().Sub(i.pace.round) >= i.opts.ActiveInterval
	}
}

// beginSweep starts a poll of all machines. The changing ones come first, in the first list.
func (i *Inventory) beginSweep() {
	i.mu.Lock()
	defer i.mu.Unlock()
	now := i.now()
	i.pace.left = nil
	for id, e := range i.entries {
		if e.isAbandoned(now) {
			delete(i.entries, id)
			continue
		}
		i.pace.left = append(i.pace.left, id)
	}
	slices.SortFunc(i.pace.left, func(a, b string) int {
		return cmp.Or(cmp.Compare(i.entries[b].interest, i.entries[a].interest), cmp.Compare(a, b))
	})
	i.pace.began, i.pace.round, i.pace.wanted = now, now, false
}

func (i *Inventory) endSweep(ctx context.Context) error {
	now := i.now()
	took := now.Sub(i.pace.began)
	i.pace.began, i.pace.ended = time.Time{}, now
	i.pace.rested = now.Add(restFactor * took)
	i.pace.due = now.Add(jitter(i.opts.IdleInterval))
	return i.judgeAbsent(ctx)
}

func (e *entry) isAbandoned(now time.Time) bool {
	if e.interest == Settled {
		return now.Sub(e.observed) > settledAbandoned
	}
	return now.Sub(e.observed) > changingAbandoned
}

// pollBatch polls the first of these machines, as many as fit into one list. It passes over one that MAAS can't list,
// unless that is so of each.
func (i *Inventory) pollBatch(ctx context.Context, ids []string) error {
	asked, listed, machines, err := i.list(ctx, ids)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err == nil {
		i.pace.failed = 0
		if !i.pace.checkFailed {
			i.recordHealth(nil)
		}
		i.notify(i.applyList(asked, listed, machines))
		return nil
	}
	i.pace.failed++
	i.notify(i.passOver(asked, listed, err))
	if len(listed) > 0 && i.pace.failed < failedLists {
		return nil
	}
	i.recordHealth(err)
	return err
}

// passOver has the others polled although MAAS could not list a machine, and returns it if what was seen of it does not
// count any more.
func (i *Inventory) passOver(asked time.Time, ids []string, err error) (changed []string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, id := range ids {
		e := i.entries[id]
		if e == nil {
			continue
		}
		if !e.alone {
			i.opts.Logger.Info("MAAS can't list a machine", "systemID", id, "error", err.Error())
		} else if !e.doubted && !e.written.After(asked) {
			e.doubted, changed = true, append(changed, id)
		}
		e.asked, e.alone = asked, true
	}
	return changed
}

// applyList takes in a list, and returns the machines that changed. Machines that it lacks are only suspected to be
// gone: MAAS leaves out what the key's user may not see.
func (i *Inventory) applyList(asked time.Time, ids []string, machines []*maas.Machine) []string {
	found := make(map[string]*maas.Machine, len(machines))
	for _, machine := range machines {
		found[machine.SystemID] = machine
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	var changed []string
	for _, id := range ids {
		e := i.entries[id]
		if e == nil {
			continue
		}
		e.asked, e.alone = asked, false
		switch {
		case e.written.After(asked):
		case found[id] == nil && e.missing.IsZero():
			e.missing = asked
		case found[id] != nil:
			e.missing, e.unlisted, e.doubted, e.at = time.Time{}, false, false, asked
			if e.set(Observation{Known: true, Machine: found[id]}) {
				changed = append(changed, id)
			}
		}
	}
	return changed
}

// set reports whether the observation changed.
func (e *entry) set(now Observation) bool {
	if reflect.DeepEqual(e.Observation, now) {
		return false
	}
	e.Observation = now
	if now.Machine != nil {
		e.device, e.shown = now.Machine.Device, true
	}
	return true
}

func (i *Inventory) tracked() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.entries)
}

// unknown returns the number of machines that have no observation yet, and that MAAS may be able to list.
func (i *Inventory) unknown() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	n := 0
	for _, e := range i.entries {
		if !e.Known && !e.alone {
			n++
		}
	}
	return n
}

// due returns the machines that don't wait for a sweep: those without an observation, unless the current sweep includes
// them; those expected to change; and those that a list lacked. After a list that failed, another machine shows whether
// MAAS lists any.
func (i *Inventory) due() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	var ids []string
	longest, now := i.longestNotAsked(), i.now()
	for id, e := range i.entries {
		switch {
		case i.pace.failed > 0 && id == longest:
			ids = append(ids, id)
		case e.isAbsent(), e.alone && now.Sub(e.asked) < i.opts.IdleInterval,
			!e.Known && e.asked.IsZero() && !e.since.After(i.pace.began):
		case e.interest != Settled, !e.Known, !e.missing.IsZero(), e.doubted:
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// longestNotAsked returns the machine that was not asked for the longest. The caller holds i.mu.
func (i *Inventory) longestNotAsked() (longest string) {
	for id, e := range i.entries {
		if l := i.entries[longest]; l == nil || e.asked.Before(l.asked) {
			longest = id
		}
	}
	return longest
}

// notAskedSince returns those of the machines that are tracked and that no list has asked for since then.
func (i *Inventory) notAskedSince(then time.Time, ids []string) []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	var left []string
	for _, id := range ids {
		if e := i.entries[id]; e != nil && e.asked.Before(then) {
			left = append(left, id)
		}
	}
	return left
}

// probe sends the cheapest call, to see whether MAAS responds again.
func (i *Inventory) probe(ctx context.Context) error {
	_, err := i.source.Version(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	i.recordHealth(err)
	return err
}
