// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"slices"
	"time"
)

// permission is the right that a call needs on a machine.
type permission int

const (
	mayView permission = iota
	mayEdit
	mayLock
	mayAdminRead
	mayAdmin
)

// machineFor returns the machine of the path for a user who needs a permission: 404 if there is none, 403 without a
// text if the user lacks it.
func (rq *request) machineFor(want permission) (*machine, error) {
	m := rq.machineByID(rq.vars[0])
	if m == nil {
		return nil, notFound("Machine")
	}
	if !rq.allowed(rq.user, m, want) {
		return nil, forbidden("")
	}
	return m, nil
}

func (rq *request) readMachine() (any, error) {
	m, err := rq.machineFor(mayView)
	if err != nil {
		return nil, err
	}
	return rq.renderMachine(m), nil
}

func (rq *request) listMachines() (any, error) {
	return rq.filteredMachines(func(*machine) bool { return true })
}

func (rq *request) filteredMachines(also func(*machine) bool) (any, error) {
	filter, err := rq.machineFilter(rq.query.without("op"), listFilters)
	if err != nil {
		return nil, err
	}
	out := []any{}
	for _, m := range rq.db.machines {
		if rq.among(rq.user, m, mayView) && also(m) && filter.matches(m) {
			out = append(out, rq.renderMachine(m))
		}
	}
	// The list is as it was when the request came: it is made in one transaction.
	rq.unlocked(func() { rq.sleep(time.Duration(len(out)) * rq.timings.listMachine()) })
	return out, nil
}

// hostsOn returns the VM hosts that run on a machine: those for which MAAS found it, and those with one of its
// addresses.
func (s *Simulator) hostsOn(m *machine) []*vmHost {
	var out []*vmHost
	for _, h := range s.db.hosts {
		if h.machine == m || s.machineAt(h.params["power_address"]) == m {
			out = append(out, h)
		}
	}
	return out
}

// containsAny reports whether the lists have an element in common.
func containsAny(list, wanted []string) bool {
	return slices.ContainsFunc(list, func(text string) bool { return slices.Contains(wanted, text) })
}
