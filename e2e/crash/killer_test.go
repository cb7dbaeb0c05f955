// SPDX-License-Identifier: Apache-2.0

package crash_test

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// stage is a part of a life. Calls are counted in each separately.
type stage string

const (
	creation  stage = "creation"
	remedying stage = "remediation"
	keeping   stage = "keeping"
	taking    stage = "taking over"
	sparing   stage = "deletion of the spare VM"
	deletion  stage = "deletion"
)

// point is a call in a life: the n-th of its kind in a stage.
type point struct {
	stage
	method, endpoint, op string
	// by is the filter of a list of machines or devices.
	by string
	n  int
}

func (p point) String() string {
	return strings.Join(strings.Fields(fmt.Sprintf("%s %s %s %s %s #%d", p.stage, p.method, p.endpoint, p.op, p.by, p.n)), " ")
}

// call names the call in short.
func (p point) call() string { return cmp.Or(p.op, p.method+" "+p.endpoint) }

// writes reports whether the call changes something.
func (p point) writes() bool { return p.method != http.MethodGet }

// short reports whether the point is in the walk that does not visit everything: the first of each call that changes
// something.
func (p point) short() bool { return p.writes() && p.n == 1 }

// awaited reports whether a manager waits for the effect of its predecessor's call.
func (p point) awaited() bool {
	switch p.call() {
	case "compose", "allocate", makeVM, "POST devices/":
		return true
	}
	return false
}

// remembered reports whether a manager caches the call's result for all machines.
func (p point) remembered() bool {
	switch p.endpoint {
	case "version/", "users/", "zones/", "resourcepools/", "domains/", "subnets/", "vm-hosts/", "boot-resources/", "boot-resources/{id}/", "tags/":
		return true
	}
	return false
}

// certain calls come in each life. Polls of all machines are a matter of time, as is the number of others, and a manager may
// have cached other responses. While a spare VM is deleted the machine goes on: how far it has come before is a matter of
// time, too.
func (p point) certain() bool {
	return p.n == 1 && p.by != "id" && (p.stage == creation || p.writes()) && !p.shared() &&
		(p.stage != sparing || p.method == http.MethodDelete)
}

// shared reports whether the point depends on what other walkers leave: the address of a machine that is back in the pool
// is not returned if another walker took the machine first, and whoever comes first makes the tags, and tends those of
// machines that are released; they are listed for that at any time.
func (p point) shared() bool {
	return (p.stage != creation && p.op == "link_subnet") || (p.stage == creation && p.endpoint == "tags/{name}/") ||
		p.endpoint == "tags/"
}

// mostLists is at how many lists of the machines that it has a manager is killed: how many there are is a matter of
// time.
const mostLists = 2

// bounded leaves out calls of which there may be any number.
func (p point) bounded() bool { return p.by != "id" || p.n <= mostLists }

// death is a point at which a manager dies, before or after the call took effect.
type death struct {
	at    point
	phase simulator.Phase
	// late means that the call takes effect when the manager's successor has searched for what the call makes.
	late bool
}

func (d death) String() string {
	when := string(d.phase)
	if d.late {
		when = "late"
	}
	return fmt.Sprintf("%s %s", when, d.at)
}

// killer kills a manager at points of different stages, and records all points it sees.
type killer struct {
	manager *sandbox.Manager
	deaths  []death // none: the life is undisturbed
	// succeeded is called when the manager is dead, before its successor begins.
	succeeded func(death) error
	// detached makes MAAS, or LXD, continue with the call during which the manager died, once it returns.
	detached func()
	// answered is called for each call to which there is a response.
	answered func(point)

	mutex  sync.Mutex
	stage  stage
	counts map[point]int
	points []point
	called map[int]point // by the calls' numbers
	died   []death
	err    error
}

var errKilled = errors.New("the manager was killed")

// hook is called in each call to MAAS, and to LXD.
func (k *killer) hook(call simulator.Call, phase simulator.Phase) error {
	at, due := k.record(call, phase)
	if phase == simulator.After && k.answered != nil {
		k.answered(at)
	}
	if due == nil {
		return nil
	}
	err := k.manager.Kill()
	if k.succeeded != nil {
		err = errors.Join(err, k.succeeded(*due))
	}
	if err != nil {
		k.mutex.Lock()
		k.err = err
		k.mutex.Unlock()
	}
	if due.late {
		k.detached()
		return nil
	}
	return errKilled
}

// record records the calls, and returns the death that the manager dies now, if it does.
func (k *killer) record(call simulator.Call, phase simulator.Phase) (at point, due *death) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	if k.counts == nil {
		k.counts, k.called = map[point]int{}, map[int]point{}
	}
	if phase == simulator.Before {
		at = point{stage: k.stage, method: call.Method, endpoint: call.Endpoint, op: call.Op, by: listedBy(call)}
		k.counts[at]++
		at.n = k.counts[at]
		k.points = append(k.points, at)
		k.called[call.Number] = at
	}
	at = k.called[call.Number] // The zero point for a call that began in another life: no manager dies there.
	for _, d := range k.deaths {
		if at == d.at && phase == d.phase && !slices.Contains(k.died, d) {
			k.died = append(k.died, d)
			return at, &d
		}
	}
	return at, nil
}

// needs reports whether a life must have a stage: because the manager dies in it, or to see all points.
func (k *killer) needs(s stage) bool {
	return len(k.deaths) == 0 || slices.ContainsFunc(k.deaths, func(d death) bool { return d.at.stage == s })
}

// enter begins a stage.
func (k *killer) enter(s stage) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	k.stage = s
}

// seen returns the points so far, the deaths that the manager died, and the error of that.
func (k *killer) seen() (points []point, died []death, err error) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	return slices.Clone(k.points), slices.Clone(k.died), k.err
}

func listedBy(call simulator.Call) string {
	query, err := url.ParseQuery(call.Query)
	if err != nil || (call.Endpoint != "machines/" && call.Endpoint != "devices/") {
		return ""
	}
	for _, by := range []string{"hostname", "mac_address", "agent_name", "id"} {
		if query.Has(by) {
			return by
		}
	}
	return ""
}

// switchboard passes each call to the killer of the manager that makes it, and to what befalls its hosts: each manager is
// another user of MAAS.
type switchboard struct {
	mutex   sync.Mutex
	killers map[string]*killer // by user
	losses  map[string]*loss   // by user
	toLXD   int                // the number of the last call to LXD
}

func (s *switchboard) hook(call simulator.Call, phase simulator.Phase) error {
	s.mutex.Lock()
	k, l := s.killers[call.User], s.losses[call.User]
	s.mutex.Unlock()
	if k != nil {
		if err := k.hook(call, phase); err != nil {
			return err
		}
	}
	if phase == simulator.Before {
		return l.befalls(call)
	}
	return nil
}

// lossOf returns what befalls the hosts of a user; nil: nothing.
func (s *switchboard) lossOf(user string) *loss {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.losses[user]
}

// connect replaces the killer of a user, and what befalls its hosts; nil ends that.
func (s *switchboard) connect(user string, k *killer, l *loss) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.killers[user], s.losses[user] = k, l
}
