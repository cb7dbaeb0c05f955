// SPDX-License-Identifier: Apache-2.0

package chaos_test

import (
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// lossyHosts are VM hosts that contradict MAAS: a VM is deleted in MAAS and still exists, because its host could not be
// reached, and a VM is made although the host reports a failure.
type lossyHosts struct {
	maas  *simulator.Simulator
	names map[int]string // by id

	mutex  sync.Mutex
	calls  map[int]string // the hosts that a call is lossy on, by its number
	away   map[string]int // how many deletions each can't be reached in
	losing map[string]int // how many VMs each makes and denies
}

func newLossyHosts(maas *simulator.Simulator, names map[int]string) *lossyHosts {
	return &lossyHosts{maas: maas, names: names, calls: map[int]string{}, away: map[string]int{}, losing: map[string]int{}}
}

// begin makes the host of the VM that a call deletes or makes lossy until the call is done. False: it is no such call.
func (l *lossyHosts) begin(call simulator.Call) bool {
	host := ""
	switch {
	case isCompose(call):
		parts := strings.Split(strings.Trim(call.Path, "/"), "/")
		id, err := strconv.Atoi(parts[len(parts)-1])
		if err == nil {
			host = l.names[id]
		}
	case isDeletion(call):
		m, _ := l.maas.Machine(call.SystemID)
		host = m.VMHost
	}
	if host == "" {
		return false
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.calls[call.Number] = host
	l.count(call, host, 1)
	return true
}

// hook is the simulator's hook.
func (l *lossyHosts) hook(call simulator.Call, phase simulator.Phase) error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if host, lossy := l.calls[call.Number]; lossy && phase == simulator.After {
		delete(l.calls, call.Number)
		l.count(call, host, -1)
	}
	return nil
}

func (l *lossyHosts) count(call simulator.Call, host string, more int) {
	if isCompose(call) {
		l.losing[host] += more
	} else {
		l.away[host] += more
	}
	l.maas.BreakVMHost(host, l.away[host] > 0, l.losing[host] > 0)
}

func isCompose(call simulator.Call) bool { return call.Op == "compose" }

func isDeletion(call simulator.Call) bool {
	return call.Method == http.MethodDelete && call.Endpoint == "machines/{id}/"
}
