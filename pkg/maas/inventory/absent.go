// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

const (
	// maxChecks bounds the calls for single machines in one poll.
	maxChecks = 20
	// To count as vanished, at least minVanished machines must be gone at the same time, and more than one in
	// vanishedShare.
	minVanished   = 3
	vanishedShare = 3
)

// isAbsent reports whether MAAS itself returned that there is no such machine, or that it is hidden. Only a sweep asks
// for it again.
func (e *entry) isAbsent() bool { return !e.doubted && (e.isGone() || e.Hidden) }

func (e *entry) isGone() bool { return e.Known && e.Machine == nil && !e.Hidden }

// isSuspect reports whether a list lacked the machine for an unknown reason.
func (e *entry) isSuspect() bool { return !e.missing.IsZero() && !e.isAbsent() }

// judgeAbsent asks MAAS for each single machine that lists lack: absence from a list is no proof that a machine is
// gone.
func (i *Inventory) judgeAbsent(ctx context.Context) error {
	var checks []check
	var failed error
	for _, id := range i.toCheck() {
		asked := i.now()
		machine, err := i.get(ctx, i.source, id)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		c := check{id: id, asked: asked, machine: machine}
		switch {
		case err == nil:
		case errors.Is(err, maas.NotFound):
			c.machine = nil
		case errors.Is(err, maas.Forbidden):
			c.machine, c.hidden = nil, true
		default:
			failed, c.failed = err, true
		}
		checks = append(checks, c)
		if c.failed {
			break
		}
	}
	if failed != nil || i.pace.checkFailed {
		i.pace.checkFailed = i.recordHealth(failed)
	}
	i.notify(i.applyChecks(checks))
	if !i.pace.checkFailed {
		return nil // The machine is asked for again after the others.
	}
	return failed
}

// get asks a source for a machine, or for a device as one. Until MAAS has shown which of both has the id, it is asked
// for both: who observes it may be wrong.
func (i *Inventory) get(ctx context.Context, from source, systemID string) (*maas.Machine, error) {
	device, shown := i.kind(systemID)
	machine, err := getAs(ctx, from, systemID, device)
	if shown || !errors.Is(err, maas.NotFound) {
		return machine, err
	}
	return getAs(ctx, from, systemID, !device)
}

func getAs(ctx context.Context, from source, systemID string, device bool) (*maas.Machine, error) {
	if !device {
		return from.GetMachine(ctx, systemID)
	}
	found, err := from.GetDevice(ctx, systemID)
	if err != nil {
		return nil, err
	}
	return found.AsMachine(), nil
}

// kind reports whether an id is that of a device, as far as is known, and whether MAAS has shown that.
func (i *Inventory) kind(systemID string) (device, shown bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	e := i.entries[systemID]
	return e != nil && e.device, e != nil && e.shown
}

// check is MAAS's response for a single machine.
type check struct {
	id      string
	asked   time.Time
	machine *maas.Machine
	hidden  bool
	failed  bool // nothing was found out
}

// toCheck returns the machines to ask for singly now. A machine that is absent is not asked for again. Unless a machine
// is leaving, its absence is judged only after a sweep and after it was tracked for a while: then it is known how many
// others are missing.
func (i *Inventory) toCheck() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	now := i.now()
	var suspects, absent []string
	for id, e := range i.entries {
		switch {
		case e.missing.IsZero():
		case e.isAbsent():
			e.missing = time.Time{} // If it is not checked now, then after another sweep.
			if e.interest != Leaving || e.Hidden {
				absent = append(absent, id)
			}
		case e.interest == Leaving:
			suspects = append(suspects, id)
		case !e.missing.Before(i.pace.ended):
			i.pace.wanted = true
		case now.Sub(e.since) >= i.opts.ActiveInterval:
			suspects = append(suspects, id)
		}
	}
	oldest := func(a, b string) int { return i.entries[a].checked.Compare(i.entries[b].checked) }
	slices.SortFunc(suspects, oldest)
	slices.SortFunc(absent, oldest)
	ids := slices.Concat(suspects, absent)
	return ids[:min(len(ids), maxChecks)]
}

// applyChecks takes in the responses, and counts in the same step how many machines are gone: a machine that vanished
// with others must never appear as the only one. It returns the machines that changed.
func (i *Inventory) applyChecks(checks []check) []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	changed := map[string]bool{}
	for _, c := range checks {
		e := i.entries[c.id]
		if e == nil || e.written.After(c.asked) {
			continue
		}
		if e.checked = c.asked; c.failed {
			continue
		}
		e.missing, e.doubted, e.at = time.Time{}, false, c.asked
		if c.machine != nil && !e.unlisted {
			i.opts.Logger.Info("MAAS has a machine that its list of machines lacks", "systemID", c.id)
		}
		e.unlisted = c.machine != nil
		now := Observation{Known: true, Machine: c.machine, Hidden: c.hidden, Vanished: e.Vanished}
		if c.hidden {
			now.Machine = e.Machine
		}
		changed[c.id] = e.set(now)
	}
	vanished := i.vanished()
	for id, e := range i.entries {
		now := 0
		if e.isGone() && e.interest != Leaving {
			now = vanished
		}
		changed[id] = changed[id] || e.Vanished != now
		e.Vanished = now
	}
	maps.DeleteFunc(changed, func(_ string, is bool) bool { return !is })
	return slices.Collect(maps.Keys(changed))
}

// vanished returns how many machines are gone at the same time without a request to delete them; 0 if they are few.
// Machines that lists lack and that were not checked yet count, too. The caller holds i.mu.
func (i *Inventory) vanished() int {
	known, gone := 0, 0
	for _, e := range i.entries {
		if e.interest == Leaving || (!e.Known && e.missing.IsZero()) {
			continue
		}
		known++
		if e.isGone() || (e.isSuspect() && !e.unlisted) {
			gone++
		}
	}
	if gone < minVanished || gone*vanishedShare <= known {
		return 0
	}
	return gone
}
