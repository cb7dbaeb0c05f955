// SPDX-License-Identifier: Apache-2.0

// Package ledger records the calls to a simulated MAAS, machine by machine, and what is left in it.
package ledger

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// Region is the part of a simulated MAAS that the ledger needs, and of what is played with it.
type Region interface {
	Calls() simulator.CallStats
	// Machines have a VMHost if they are VMs, whoever made them.
	Machines() []simulator.MachineSnapshot
	Subscribe(fn func(simulator.MachineSnapshot, simulator.Change)) (cancel func())
}

// Ledger keeps the names of machines: MAAS forgets them with the machine, and calls that search for a machine contain
// them.
type Ledger struct {
	region Region
	cancel func()

	mutex sync.Mutex
	seen  map[string]simulator.MachineSnapshot // by system id, as last seen
	owner map[string]string                    // hostnames and agent names to system ids
}

// Open begins to keep a ledger. The caller ends it with Close.
func Open(region Region) *Ledger {
	l := &Ledger{region: region, seen: map[string]simulator.MachineSnapshot{}, owner: map[string]string{}}
	l.cancel = region.Subscribe(func(m simulator.MachineSnapshot, _ simulator.Change) { l.record(m) })
	for _, m := range region.Machines() {
		l.record(m)
	}
	return l
}

// Close ends the ledger.
func (l *Ledger) Close() { l.cancel() }

func (l *Ledger) record(m simulator.MachineSnapshot) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.seen[m.SystemID] = m
	for _, name := range []string{m.Hostname, m.AgentName} {
		if name != "" {
			l.owner[name] = m.SystemID
		}
	}
}

// Mark is a moment that separates the calls before and after it.
type Mark int

// Mark is now.
func (l *Ledger) Mark() Mark {
	last := 0
	for _, call := range l.region.Calls().Log {
		last = max(last, call.Number)
	}
	return Mark(last)
}

// Machine is a machine with the calls that were made for it alone.
type Machine struct {
	SystemID, Hostname string
	// VM is true for an LXD VM.
	VM    bool
	Calls []simulator.Call
}

// Account are the calls of a period, by purpose.
type Account struct {
	// Machines that calls were made for, by hostname.
	Machines []Machine
	// Polls are lists of machines, or of devices, by their ids, whatever their number.
	Polls []simulator.Call
	// Cluster are calls about the DNS name of an API endpoint.
	Cluster []simulator.Call
	// Shared are all others: what MAAS has to offer, asked for all machines together.
	Shared []simulator.Call
	// Lost are searches for a machine by a name that none ever had.
	Lost []simulator.Call
}

// Total is the number of all calls.
func (a *Account) Total() int {
	total := len(a.Polls) + len(a.Cluster) + len(a.Shared) + len(a.Lost)
	for _, m := range a.Machines {
		total += len(m.Calls)
	}
	return total
}

// Between accounts for the calls after one moment, up to and with another.
func (l *Ledger) Between(after, upTo Mark) Account {
	stats := l.region.Calls()
	l.mutex.Lock()
	defer l.mutex.Unlock()
	account := Account{}
	byMachine := map[string][]simulator.Call{}
	for _, call := range stats.Log {
		if Mark(call.Number) <= after || Mark(call.Number) > upTo {
			continue
		}
		machine, what := l.classify(call)
		switch what {
		case forMachine:
			byMachine[machine] = append(byMachine[machine], call)
		case forPolling:
			account.Polls = append(account.Polls, call)
		case forCluster:
			account.Cluster = append(account.Cluster, call)
		case forAll:
			account.Shared = append(account.Shared, call)
		case forNobody:
			account.Lost = append(account.Lost, call)
		}
	}
	for id, calls := range byMachine {
		m := l.seen[id]
		account.Machines = append(account.Machines, Machine{SystemID: id, Hostname: m.Hostname, VM: m.VMHost != "", Calls: calls})
	}
	slices.SortFunc(account.Machines, func(a, b Machine) int { return cmp.Compare(a.Hostname, b.Hostname) })
	return account
}

type purpose int

const (
	forAll purpose = iota
	forMachine
	forPolling
	forCluster
	forNobody
)

// classify returns the purpose of a call, and its machine.
func (l *Ledger) classify(call simulator.Call) (systemID string, what purpose) {
	if call.SystemID != "" {
		return call.SystemID, forMachine
	}
	if strings.HasPrefix(call.Endpoint, "dnsresources/") {
		return "", forCluster
	}
	isList := call.Endpoint == "machines/" || call.Endpoint == "devices/"
	if call.Method != http.MethodGet || !isList || call.Op != "" {
		return "", forAll
	}
	query, err := url.ParseQuery(call.Query)
	if err != nil {
		return "", forNobody
	}
	names := slices.Concat(query["hostname"], query["agent_name"])
	switch {
	case len(names) > 0 && len(query["id"]) == 1:
		return query.Get("id"), forMachine
	case len(names) == 1 && l.owner[names[0]] != "":
		return l.owner[names[0]], forMachine
	case len(names) == 1:
		return "", forNobody
	case len(query["id"]) > 0:
		return "", forPolling
	}
	return "", forAll
}
