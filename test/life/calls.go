// SPDX-License-Identifier: Apache-2.0

package life

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/simulator"
	"github.com/capmaas/cluster-api-provider-maas/test/ledger"
)

// The cost of one machine, without calls for all machines together.
const (
	mostToCreateVM        = 6
	mostToCreateBareMetal = 5
	mostToDelete          = 4
	// mostToUndo includes that bare metal whose network was changed is acquired once more, to undo that while it is ours.
	mostToUndo = 6
	// mostRefreshes is how often MAAS may refresh a VM host for each VM that was deleted, to see whether it is gone;
	// together they need fewer.
	mostRefreshes = 1
	// mostConnections is a handful.
	mostConnections = 5
	// idlePolls is how many polls of all machines prove that nothing else is called.
	idlePolls = 3
)

// CheckCost checks the number of machines that came or went between a moment and now, and the cost of each. A machine
// must not do both.
func (l *Life) CheckCost(what string, since ledger.Mark, machines int) {
	l.Helper()
	account := l.Book.Between(since, l.Book.Mark())
	l.logAccount(what, account)
	if len(account.Machines) != machines {
		l.Errorf("%s: calls were made for %d machines, want %d", what, len(account.Machines), machines)
	}
	for _, m := range account.Machines {
		if most := mostFor(m); countOnce(m.Calls) > most || len(m.Calls) > 2*most {
			l.Errorf("%s: it took %d calls for %s, want at most %d:\n%s", what, len(m.Calls), m.Hostname, most, listed(m.Calls))
		}
	}
	deleted := 0
	for _, m := range account.Machines {
		if m.VM && !m.Did("deploy") {
			deleted++
		}
	}
	if refreshes := refreshesIn(account); refreshes > mostRefreshes*deleted {
		l.Errorf("%s: MAAS refreshed VM hosts %d times for %d VMs that were deleted", what, refreshes, deleted)
	}
	if len(account.Lost) > 0 {
		l.Errorf("%s: machines were searched for that never came:\n%s", what, listed(account.Lost))
	}
}

// countOnce counts calls, and a read that is repeated once: on a slow computer a reconcile that met a conflict, or waited
// long for its turn, reads again what it has to prove.
func countOnce(calls []simulator.Call) (n int) {
	read := map[string]bool{}
	for _, call := range calls {
		what := call.Path + "?" + call.Query
		if call.Method != http.MethodGet || !read[what] {
			n++
		}
		read[what] = read[what] || call.Method == http.MethodGet
	}
	return n
}

// refreshesIn counts the refreshes of VM hosts.
func refreshesIn(account ledger.Account) (refreshes int) {
	for _, call := range account.Shared {
		if call.Op == "refresh" {
			refreshes++
		}
	}
	return refreshes
}

func mostFor(m ledger.Machine) int {
	switch {
	case !m.Did("deploy") && m.Did("link_subnet"):
		return mostToUndo
	case !m.Did("deploy"):
		return mostToDelete
	case m.VM:
		return mostToCreateVM
	default:
		return mostToCreateBareMetal
	}
}

// CheckIdle waits until all machines have been polled some times, and checks that no call concerned a single machine.
func (l *Life) CheckIdle() {
	l.Helper()
	quiet := l.Book.Mark()
	l.Wait("MAAS to be asked for all machines some times", func() (bool, string, error) {
		polls := len(l.Book.Between(quiet, l.Book.Mark()).Polls)
		return polls >= idlePolls, fmt.Sprintf("%d of %d times", polls, idlePolls), nil
	})
	account := l.Book.Between(quiet, l.Book.Mark())
	for _, m := range account.Machines {
		l.Errorf("%s is idle, and was asked for by itself:\n%s", m.Hostname, listed(m.Calls))
	}
	if n := len(account.Cluster) + len(account.Lost); n > 0 {
		l.Errorf("nothing changed, and MAAS was asked:\n%s%s", listed(account.Cluster), listed(account.Lost))
	}
}

// CheckConnections checks that connections to MAAS were reused since the life began.
func (l *Life) CheckConnections() {
	l.Helper()
	if opened := l.Box.MAAS.Calls().Connections - l.connections; opened > mostConnections {
		l.Errorf("%d connections were opened, want at most %d", opened, mostConnections)
	}
}

// logAccount logs what calls were made for.
func (l *Life) logAccount(what string, account ledger.Account) {
	l.Helper()
	for _, m := range account.Machines {
		l.Logf("%s of %s: %d calls (VM: %t, static address: %t)", what, m.Hostname, len(m.Calls), m.VM, m.Did("link_subnet"))
	}
	l.Logf("%s, not for one machine: %d lists of machines, %d for the DNS record, %d refreshes of VM hosts, %d others", what, len(account.Polls),
		len(account.Cluster), refreshesIn(account), len(account.Shared)-refreshesIn(account))
}

func listed(calls []simulator.Call) string {
	var out strings.Builder
	for _, call := range calls {
		fmt.Fprintf(&out, "  %s %s op=%s ?%s -> %d\n", call.Method, call.Endpoint, call.Op, call.Query, call.Status)
	}
	return out.String()
}
