// SPDX-License-Identifier: Apache-2.0

package outage_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

const (
	// outageTime is how long an outage lasts once it has been noticed.
	outageTime = 15 * time.Second
	// slowestCall is when calls that were sent before the outage was noticed have ended: MAAS has 150 s for a VM.
	slowestCall = 160 * time.Second
	// fullOutageTime is longer than any timeout of the client.
	fullOutageTime = slowestCall + time.Minute
	// noticedAfter is how many calls without a response it takes to notice an outage, and underWay how many more may be
	// sent by then.
	noticedAfter, underWay = 3, 16
	// probeInterval is the shortest time between two tries while MAAS is away.
	probeInterval = time.Second
	returnTimeout = eventually.Limit
)

// outage is MAAS going away in the middle of things, and coming back.
type outage struct {
	*world
	how sandbox.Outage
	// lasts is how long the outage lasts.
	lasts time.Duration

	steady, growing *cluster
	away            *sandbox.Away
	before          int // calls without a response before the outage
	names           map[*cluster][]string
}

func TestMAASRefusesConnections(t *testing.T) {
	(&outage{world: newWorld(t), how: sandbox.Refusing, lasts: outageTime}).run()
}

func TestMAASNeverAnswers(t *testing.T) {
	if !full {
		t.Skip("it takes minutes: set CAPMAAS_CHAOS=full")
	}
	(&outage{world: newWorld(t), how: sandbox.Silent, lasts: fullOutageTime}).run()
}

// run stops MAAS while it composes a VM of one cluster, and deletes a VM of another meanwhile.
func (o *outage) run() {
	o.steady = o.cluster(life.Namespace, "steady",
		machine{name: "steady-a", vm: true, staticIP: "10.77.0.60"}, machine{name: "steady-b", worker: true},
		machine{name: "steady-c", vm: true, worker: true})
	o.steady.awaitRunning("steady-a", "steady-b", "steady-c")
	o.steady.settled()
	o.growing = o.cluster(life.Namespace, "growing")
	o.names = map[*cluster][]string{
		o.steady: {"steady-a", "steady-b", "steady-c"}, o.growing: {"growing-a", "growing-b", "growing-c", "growing-d"},
	}
	o.before = unanswered(o.T)
	o.leaveDuring("compose", func() {
		o.growing.add(machine{name: "growing-a", vm: true, staticIP: "10.77.0.61"}, machine{name: "growing-b", vm: true, worker: true},
			machine{name: "growing-c", worker: true}, machine{name: "growing-d", worker: true})
	})
	o.steady.remove("steady-c")
	o.everybodySays(infrav1.MAASUnavailableReason)
	calls, writes := o.watch()
	tried := unanswered(o.T) - o.before
	o.bring()
	o.steady.awaitGone("steady-c")
	o.steady.awaitRunning("steady-a", "steady-b")
	o.growing.awaitRunning(o.names[o.growing]...)
	o.steady.settled()
	o.growing.settled()
	o.checkEvents()
	o.end(o.growing, o.steady)
	o.Logf("MAAS was away, and %d calls had no answer, %d of them in %s; objects changed %d times in that time", tried, calls, o.lasts, writes)
}

// leaveDuring starts the outage when MAAS has done a call, before it responds.
func (o *outage) leaveDuring(op string, do func()) {
	o.Helper()
	reached, gone := make(chan struct{}), make(chan struct{})
	var once sync.Once
	box.MAAS.SetHook(func(call simulator.Call, phase simulator.Phase) error {
		if phase == simulator.After && call.Op == op {
			once.Do(func() { close(reached) })
			<-gone
		}
		return nil
	})
	release := sync.OnceFunc(func() { close(gone) })
	o.Cleanup(release)
	defer box.MAAS.SetHook(nil)
	defer release()
	do()
	select {
	case <-reached:
	case <-time.After(returnTimeout):
		o.Fatalf("MAAS was not asked to %s", op)
	}
	var err error
	if o.away, err = box.StopMAAS(o.Context(), o.how); err != nil {
		o.Fatal(err)
	}
	o.Cleanup(o.bring)
}

// bring brings MAAS back, if it is away.
func (o *outage) bring() {
	o.Helper()
	if o.away == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(o.Context()), returnTimeout)
	defer cancel()
	if err := o.away.Return(ctx); err != nil {
		o.Fatal(err)
	}
	o.away = nil
}

func (o *outage) everybodySays(reason string) {
	o.Helper()
	for c, names := range o.names {
		for _, name := range names {
			c.awaitReason(name, reason)
		}
	}
}

// watch waits through the outage, and checks that there are few calls and writes meanwhile. It returns their numbers.
func (o *outage) watch() (calls, written int) {
	o.Helper()
	o.growing.wait("the outage to be noticed", func() (bool, string, error) {
		first := unanswered(o.T) - o.before
		return first >= noticedAfter, fmt.Sprintf("%d calls had no answer", first), nil
	})
	began, first := time.Now(), unanswered(o.T)
	says, writes := o.last(began)
	calls = unanswered(o.T) - first
	if most := underWay + int(time.Since(began)/probeInterval); calls > most {
		o.Errorf("%d calls were made while MAAS was away for %s, want at most %d", calls, time.Since(began), most)
	}
	if o.how == sandbox.Silent {
		if most := o.away.Most(); most > 1 {
			o.Errorf("%d calls tried at the same time whether MAAS is back, want one", most)
		}
	}
	for name, messages := range says {
		// That a call was lost, and then that MAAS is away.
		if len(messages) > 2 {
			o.Errorf("%s said all of this, and nothing had changed: %q", name, messages)
		}
	}
	return calls, writes
}

// last waits until the outage is over. It returns the machines' conditions meanwhile, and how often they changed.
func (o *outage) last(began time.Time) (says map[string][]string, writes int) {
	o.Helper()
	says = map[string][]string{}
	versions, early := map[string]string{}, true
	err := eventually.Wait(o.Context(), "the outage to last", func() (bool, string, error) {
		passed := time.Since(began)
		if early && passed > slowestCall {
			early = false
			o.away.Most() // from here on
		}
		for name, version := range o.versions() {
			if was := versions[name]; was != "" && was != version {
				writes++
			}
			versions[name] = version
		}
		for name, message := range o.conditions() {
			if all := says[name]; len(all) == 0 || all[len(all)-1] != message {
				says[name] = append(all, message)
			}
		}
		return passed >= o.lasts, passed.String(), nil
	})
	if err != nil {
		o.Fatal(err)
	}
	return says, writes
}

// conditions returns the machines' conditions.
func (o *outage) conditions() map[string]string {
	o.Helper()
	says := map[string]string{}
	for c, names := range o.names {
		for _, name := range names {
			m := c.maasMachine(name)
			if m == nil {
				o.Fatalf("%s is gone, and MAAS could not be asked", name)
			}
			says[name] = conditions.GetReason(m, infrav1.MachineDeployedCondition) + ": " + conditions.GetMessage(m, infrav1.MachineDeployedCondition)
		}
	}
	return says
}

func (o *outage) versions() map[string]string {
	o.Helper()
	versions := map[string]string{}
	for c, names := range o.names {
		for _, name := range names {
			if m := c.maasMachine(name); m != nil {
				versions[name] = m.ResourceVersion
			}
		}
	}
	return versions
}

// checkEvents checks that one outage is one event for each machine.
func (o *outage) checkEvents() {
	o.Helper()
	for c, names := range o.names {
		for _, name := range names {
			if n := c.events(name)[infrav1.MAASUnavailableReason]; n > 1 {
				o.Errorf("%s: %d events say that MAAS is away, want at most one", name, n)
			}
		}
	}
}
