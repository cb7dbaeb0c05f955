// SPDX-License-Identifier: Apache-2.0

package flows_test

import (
	"fmt"
	"strings"

	"github.com/capmaas/cluster-api-provider-maas/e2e/ledger"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/simulator"
)

// What one machine may cost, without what is asked for all machines together.
const (
	mostToCreateVM        = 6
	mostToCreateBareMetal = 5
	mostToDelete          = 4
	// mostConnections is a handful.
	mostConnections = 5
	// idlePolls is how many looks at all machines prove that nothing else is asked for.
	idlePolls = 3
)

// checkCreation checks what the machines cost that were created until now.
func (f *flow) checkCreation(since ledger.Mark, machines int) {
	f.Helper()
	account := f.book.Between(since, f.book.Mark())
	f.logAccount("creation", account)
	if len(account.Machines) != machines {
		f.Errorf("calls were made for %d machines, want %d", len(account.Machines), machines)
	}
	for _, m := range account.Machines {
		most := mostToCreateBareMetal
		if m.VM {
			most = mostToCreateVM
		}
		f.checkCost("create", m, most)
	}
	if len(account.Lost) > 0 {
		f.Errorf("machines were searched for that never came:\n%s", listed(account.Lost))
	}
}

// checkDeletion checks what the machines cost that were given back until now.
func (f *flow) checkDeletion(since ledger.Mark, machines int) {
	f.Helper()
	account := f.book.Between(since, f.book.Mark())
	f.logAccount("deletion", account)
	if len(account.Machines) != machines {
		f.Errorf("calls were made for %d machines, want %d", len(account.Machines), machines)
	}
	for _, m := range account.Machines {
		f.checkCost("give back", m, mostToDelete)
	}
}

func (f *flow) checkCost(what string, m ledger.Machine, most int) {
	f.Helper()
	if len(m.Calls) > most {
		f.Errorf("it took %d calls to %s %s, want at most %d:\n%s", len(m.Calls), what, m.Hostname, most, listed(m.Calls))
	}
}

// checkIdle waits until all machines have been looked at some times, and checks that nothing was asked about one of them.
func (f *flow) checkIdle() {
	f.Helper()
	quiet := f.book.Mark()
	f.wait("MAAS to be asked for all machines some times", func() (bool, string, error) {
		polls := len(f.book.Between(quiet, f.book.Mark()).Polls)
		return polls >= idlePolls, fmt.Sprintf("%d of %d times", polls, idlePolls), nil
	})
	account := f.book.Between(quiet, f.book.Mark())
	for _, m := range account.Machines {
		f.Errorf("%s is idle, and was asked for by itself:\n%s", m.Hostname, listed(m.Calls))
	}
	if n := len(account.Cluster) + len(account.Lost); n > 0 {
		f.Errorf("nothing changed, and MAAS was asked:\n%s%s", listed(account.Cluster), listed(account.Lost))
	}
}

func (f *flow) logAccount(what string, account ledger.Account) {
	f.Helper()
	for _, m := range account.Machines {
		f.Logf("%s of %s: %d calls (VM: %t, static address: %t)", what, m.Hostname, len(m.Calls), m.VM, m.Did("link_subnet"))
	}
	f.Logf("%s, not for one machine: %d lists of machines, %d for the DNS record, %d others", what, len(account.Polls), len(account.Cluster), len(account.Shared))
}

func listed(calls []simulator.Call) string {
	var out strings.Builder
	for _, call := range calls {
		fmt.Fprintf(&out, "  %s %s op=%s ?%s -> %d\n", call.Method, call.Endpoint, call.Op, call.Query, call.Status)
	}
	return out.String()
}
