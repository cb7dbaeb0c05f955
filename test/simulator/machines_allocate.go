// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"strings"
)

// allocate picks a Ready machine for the caller.
func (rq *request) allocate() (any, error) {
	options, err := rq.allocationOptions()
	if err != nil {
		return nil, err
	}
	dryRun, err := rq.data.boolean("dry_run", false)
	if err != nil {
		return nil, err
	}
	constraints := rq.data.without("op", "agent_name", "comment", "dry_run")
	filter, err := rq.machineFilter(constraints, allocateFilters)
	if err != nil {
		return nil, err
	}
	defer rq.acquireAlone()()
	m, composed := rq.pick(filter), false
	if m == nil && !constraints.has("system_id") {
		m, composed = rq.composeForAllocate(constraints), true
	}
	if m == nil {
		return nil, nothingFits(constraints, filter)
	}
	if !dryRun {
		if err := checkAgentName(options.agentName); err != nil {
			if composed {
				rq.removeMachine(m) // The VM stays, as after each failure that comes after its creation.
			}
			return nil, err
		}
		rq.acquire(m, rq.user, options.agentName)
	}
	rq.call.SystemID = m.systemID
	return rq.renderMachine(m), nil
}

// acquireAlone waits until no other request acquires a machine: MAAS has one lock for that, for all users, and also
// holds it while it composes. The caller calls the returned function to unlock it.
func (rq *request) acquireAlone() func() {
	rq.unlocked(rq.acquiring.Lock)
	return rq.acquiring.Unlock
}

// pick returns the cheapest machine that is free for the caller and fits: the one with the least sum of cores and GiB.
func (rq *request) pick(filter *machineQuery) *machine {
	var best *machine
	for _, m := range rq.db.machines {
		if m.status == statusReady && rq.among(rq.user, m, mayEdit) && filter.matches(m) &&
			(best == nil || m.cost() < best.cost()) {
			best = m
		}
	}
	return best
}

func (m *machine) cost() float64 { return float64(m.cpuCount) + float64(m.memory)/1024 }

func nothingFits(constraints form, filter *machineQuery) error {
	described := filter.String()
	switch {
	case described == "":
		return conflict("No machine available.")
	case constraints.has("system_id"):
		return conflict("No machine with system ID %s available.", constraints.get("system_id"))
	}
	return conflict("No available machine matches constraints: %s (resolved to \"%s\")", pythonList(constraints), described)
}

// pythonList returns constraints as Python prints a list of pairs.
func pythonList(f form) string {
	pairs := make([]string, 0, len(f.order))
	for _, name := range f.order {
		values := make([]string, 0, len(f.list(name)))
		for _, value := range f.list(name) {
			values = append(values, pythonText(value))
		}
		pairs = append(pairs, "("+pythonText(name)+", ["+strings.Join(values, ", ")+"])")
	}
	return "[" + strings.Join(pairs, ", ") + "]"
}

// pythonText returns a text as Python's repr does.
func pythonText(text string) string {
	quote := "'"
	if strings.Contains(text, "'") && !strings.Contains(text, `"`) {
		quote = `"`
	} else {
		text = strings.ReplaceAll(text, "'", `\'`)
	}
	return quote + text + quote
}

// allocationOptions are the parameters that allocate and deploy share.
type allocationOptions struct {
	agentName string
	ephemeral bool
}

func (rq *request) allocationOptions() (o allocationOptions, err error) {
	o.agentName = rq.data.get("agent_name")
	o.ephemeral, err = rq.data.boolean("ephemeral_deploy", false)
	return o, err
}

// checkAgentName refuses a name that is too long. MAAS notices that when it saves the machine.
func checkAgentName(name string) error {
	if len(name) > 255 {
		return invalidField("agent_name", "Ensure this value has at most 255 characters (it has %d).", len(name))
	}
	return nil
}
