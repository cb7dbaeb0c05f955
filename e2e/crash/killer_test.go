// SPDX-License-Identifier: Apache-2.0

package crash_test

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"

	"github.com/capmaas/cluster-api-provider-maas/e2e/sandbox"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/simulator"
)

// point is a call in a machine's life: the n-th of its kind.
type point struct {
	method, endpoint, op string
	// by tells how a list of machines finds them.
	by string
	n  int
}

func (p point) String() string {
	return strings.Join(strings.Fields(fmt.Sprintf("%s %s %s %s #%d", p.method, p.endpoint, p.op, p.by, p.n)), " ")
}

// remembered are calls whose answers a manager keeps for all machines.
func (p point) remembered() bool {
	switch p.endpoint {
	case "zones/", "domains/", "subnets/", "vm-hosts/":
		return true
	}
	return false
}

// killer kills the manager at one point, and notes all points it sees.
type killer struct {
	target point // zero: none
	phase  simulator.Phase
	// detached lets MAAS go on with the call that the manager did not live to see the end of, once this returns.
	detached func()
	// answered is told of each call that MAAS has answered.
	answered func(point)

	mutex  sync.Mutex
	counts map[point]int
	points []point
	called map[int]point // by the calls' numbers
	killed bool
	err    error
}

var errKilled = errors.New("the manager was killed")

// hook is called in each call to MAAS.
func (k *killer) hook(call simulator.Call, phase simulator.Phase) error {
	at, due := k.note(call, phase)
	if phase == simulator.After && k.answered != nil {
		k.answered(at)
	}
	if !due {
		return nil
	}
	if err := box.Kubelet.Kill(sandbox.ManagerContainer); err != nil {
		k.mutex.Lock()
		k.err = err
		k.mutex.Unlock()
	}
	if k.detached != nil {
		k.detached()
		return nil
	}
	return errKilled
}

// note keeps a book of the calls, and tells whether the manager dies now.
func (k *killer) note(call simulator.Call, phase simulator.Phase) (at point, due bool) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	if k.counts == nil {
		k.counts, k.called = map[point]int{}, map[int]point{}
	}
	if phase == simulator.Before {
		at = point{method: call.Method, endpoint: call.Endpoint, op: call.Op, by: listedBy(call)}
		k.counts[at]++
		at.n = k.counts[at]
		k.points = append(k.points, at)
		k.called[call.Number] = at
	}
	at = k.called[call.Number]
	if k.killed || at != k.target || phase != k.phase {
		return at, false
	}
	k.killed = true
	return at, true
}

func listedBy(call simulator.Call) string {
	query, err := url.ParseQuery(call.Query)
	if err != nil || call.Endpoint != "machines/" {
		return ""
	}
	for _, by := range []string{"hostname", "agent_name", "id"} {
		if query.Has(by) {
			return by
		}
	}
	return ""
}
