// SPDX-License-Identifier: Apache-2.0

package upgrade_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// moment is a call to MAAS at which it is upgraded.
type moment struct {
	kind callKind
	n    int // the n-th call of its kind
	end  ending
}

// ending is what becomes of the call.
type ending string

const (
	refused  ending = "that comes to the new MAAS"
	answered ending = "that the old MAAS has responded to"
	lost     ending = "to which nobody responds"
)

var endings = []ending{refused, answered, lost}

// callKind is a kind of calls.
type callKind struct {
	what string
	is   func(simulator.Call) bool
	// most is how many of them certainly come.
	most int
}

func withOp(op string) func(simulator.Call) bool {
	return func(call simulator.Call) bool { return call.Op == op }
}

// creations are the kinds of calls that come while clusters are made.
var creations = []callKind{
	{"compose", withOp("compose"), 4},
	{"deploy", withOp("deploy"), 4},
	{"allocate", withOp("allocate"), 4},
}

// changes are those that come while clusters change.
var changes = slices.Concat([]callKind{{"call", func(simulator.Call) bool { return true }, 80}}, creations, []callKind{
	{"deletion of a VM", func(call simulator.Call) bool {
		return call.Method == http.MethodDelete && call.Endpoint == "machines/{id}/"
	}, 2},
	{"release", withOp("release"), 1},
	{"refresh of a VM host", withOp("refresh"), 1},
})

func newMoment(dice *rand.Rand, kinds []callKind) moment {
	kind := kinds[dice.IntN(len(kinds))]
	return moment{kind: kind, n: 1 + dice.IntN(kind.most), end: endings[dice.IntN(len(endings))]}
}

func (m moment) String() string { return fmt.Sprintf("at %s %d, %s", m.kind.what, m.n, m.end) }

// upgrade upgrades MAAS at a moment. Calls that are under way then get no response: MAAS is stopped for an upgrade.
type upgrade struct {
	at moment
	do func() error

	mutex    sync.Mutex
	calls    int // in all
	seen     int // of the moment's kind
	target   int // the number of the call at which it happens
	underWay map[int]bool
	done     bool
	err      error
}

var errStopped = errors.New("MAAS is stopped")

// watch begins to wait for the moment at which MAAS becomes another version.
func watch(maas *simulator.Simulator, at moment, version string) *upgrade {
	u := newUpgrade(at, func() error { return maas.Upgrade(version) })
	maas.SetHook(u.hook)
	return u
}

func newUpgrade(at moment, do func() error) *upgrade {
	return &upgrade{at: at, do: do, underWay: map[int]bool{}}
}

func (u *upgrade) hook(call simulator.Call, phase simulator.Phase) error {
	u.mutex.Lock()
	defer u.mutex.Unlock()
	if phase == simulator.Before {
		u.begin(call)
		return nil
	}
	if !u.done && call.Number == u.target {
		u.now()
		if u.at.end == answered {
			delete(u.underWay, call.Number)
		}
	}
	if u.done && u.underWay[call.Number] {
		return errStopped
	}
	delete(u.underWay, call.Number)
	return nil
}

func (u *upgrade) begin(call simulator.Call) {
	u.calls++
	if u.done {
		return
	}
	if u.at.kind.is(call) {
		if u.seen++; u.seen == u.at.n {
			u.target = call.Number
		}
	}
	if call.Number == u.target && u.at.end == refused {
		u.now()
		return
	}
	u.underWay[call.Number] = true
}

func (u *upgrade) now() {
	u.done, u.err = true, u.do()
}

// state returns whether MAAS was upgraded, and how many calls there were so far.
func (u *upgrade) state() (done bool, calls int, err error) {
	u.mutex.Lock()
	defer u.mutex.Unlock()
	return u.done, u.calls, u.err
}

// The call at the moment is begun by the second of two that are under way; a third one comes later.
func TestCallsAtTheMomentOfTheUpgrade(t *testing.T) {
	call := func(number int) simulator.Call { return simulator.Call{Number: number} }
	for _, tc := range []struct {
		end    ending
		before bool // it happens before the call has an effect
		fails  bool // the call gets no response
	}{
		{refused, true, false}, {answered, false, false}, {lost, false, true},
	} {
		t.Run(string(tc.end), func(t *testing.T) {
			times := 0
			u := newUpgrade(moment{kind: changes[0], n: 2, end: tc.end}, func() error { times++; return nil })
			for number := range 2 {
				if err := u.hook(call(number+1), simulator.Before); err != nil {
					t.Fatal(err)
				}
			}
			if done, calls, _ := u.state(); done != tc.before || calls != 2 {
				t.Errorf("upgraded: %t after %d calls, want %t after 2", done, calls, tc.before)
			}
			if err := u.hook(call(2), simulator.After); errors.Is(err, errStopped) != tc.fails {
				t.Errorf("the call at the moment: %v", err)
			}
			if err := u.hook(call(1), simulator.After); !errors.Is(err, errStopped) {
				t.Errorf("the other call, which was under way, got a response (%v)", err)
			}
			for _, phase := range []simulator.Phase{simulator.Before, simulator.After} {
				if err := u.hook(call(3), phase); err != nil {
					t.Errorf("the next call: %v", err)
				}
			}
			if times != 1 {
				t.Errorf("upgraded %d times", times)
			}
		})
	}
}
