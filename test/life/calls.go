// SPDX-License-Identifier: Apache-2.0

package life

import (
	"fmt"
	"strings"

	"github.com/capmaas/cluster-api-provider-maas/test/ledger"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/simulator"
)

// What one machine may cost, without what is asked for all machines together.
const (
	mostToCreateVM        = 6
	mostToCreateBareMetal = 5
	mostToDelete          = 4
	// mostLooks is how often MAAS may look at a VM host for each VM that was deleted, to see whether it is gone; together they take fewer.
	mostLooks = 1
	// mostConnections is a handful.
	mostConnections = 5
	// idlePolls is how many looks at all machines prove that nothing else is asked for.
	idlePolls = 3
)

// CheckCost checks what each machine cost that came or went between a moment and now, and how many they were. A machine must not do both.
func (l *Life) CheckCost(what string, since ledger.Mark, machines int) {
	l.Helper()
	account := l.Book.Between(since, l.Book.Mark())
	l.logAccount(what, account)
	if len(account.Machines) != machines {
		l.Errorf("%s: calls were made for %d machines, want %d", what, len(account.Machines), machines)
	}
	for _, m := range account.Machines {
		if most := mostFor(m); len(m.Calls) > most {
			l.Errorf("%s: it took %d calls for %s, want at most %d:\n%s", what, len(m.Calls), m.Hostname, most, listed(m.Calls))
		}
	}
	deleted := 0
	for _, m := range account.Machines {
		if m.VM && !m.Did("deploy") {
			deleted++
		}
	}
	if looks := looksIn(account); looks > mostLooks*deleted {
		l.Errorf("%s: MAAS looked %d times at VM hosts for %d VMs that were deleted", what, looks, deleted)
	}
	if len(account.Lost) > 0 {
		l.Errorf("%s: machines were searched for that never came:\n%s", what, listed(account.Lost))
	}
}

// looksIn counts how often MAAS was made to look at a VM host.
func looksIn(account ledger.Account) (looks int) {
	for _, call := range account.Shared {
		if call.Op == "refresh" {
			looks++
		}
	}
	return looks
}

func mostFor(m ledger.Machine) int {
	switch {
	case !m.Did("deploy"):
		return mostToDelete
	case m.VM:
		return mostToCreateVM
	default:
		return mostToCreateBareMetal
	}
}

// CheckIdle waits until all machines have been looked at some times, and checks that nothing was asked about one of them.
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
	l.Logf("%s, not for one machine: %d lists of machines, %d for the DNS record, %d looks at VM hosts, %d others", what, len(account.Polls),
		len(account.Cluster), looksIn(account), len(account.Shared)-looksIn(account))
}

func listed(calls []simulator.Call) string {
	var out strings.Builder
	for _, call := range calls {
		fmt.Fprintf(&out, "  %s %s op=%s ?%s -> %d\n", call.Method, call.Endpoint, call.Op, call.Query, call.Status)
	}
	return out.String()
}
