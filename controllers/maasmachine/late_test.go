// SPDX-License-Identifier: Apache-2.0

package maasmachine

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// slowAnswer is how long a client waits for a call that switches power before it takes the response for lost.
const slowAnswer = 150 * time.Second

// server is the only one.
func (p *pace) server() simulator.MachineSnapshot { return p.MAAS.Machines()[0] }

// runs makes a machine of the only server, and waits until it runs.
func (p *pace) runs() {
	p.Helper()
	p.meets(obstacle{})
	p.run(time.Hour, func() bool { return p.get("m").Status.Ready })
}

// leaves deletes the machine.
func (p *pace) leaves() {
	p.Helper()
	p.must(p.client.Delete(p.Context(), p.get("m")))
	p.wake(job{"MaasMachine", "m"}, 0)
}

func (p *pace) isGone() bool { return p.get("m").Name == "" }

// isTakenAtOnce lets another client deploy the server as soon as MAAS lets it, and checks that it runs for that one.
func (p *pace) isTakenAtOnce() {
	p.Helper()
	p.run(2*time.Hour, func() bool { return p.server().Status == "Ready" })
	client := p.scopes.Regions()[0].Inventory.Client()
	_, err := client.DeployMachine(p.Context(), record.ChangeVM.Permit(), p.server().SystemID, maas.DeployParams{AgentName: "juju"})
	if err != nil {
		p.Fatalf("%v: %s", err, conditions.GetMessage(p.get("m"), infrav1.ReadyCondition))
	}
	p.run(time.Hour, nil)
	if now := p.server(); now.Status != "Deployed" || now.AgentName != "juju" || !now.Running {
		p.Errorf("it is %s, of %q, running %t", now.Status, now.AgentName, now.Running)
	}
	if !p.isGone() {
		p.Errorf("the MaasMachine is there: %s", conditions.GetMessage(p.get("m"), infrav1.ReadyCondition))
	}
}

// A BMC does not respond for some minutes, and MAAS tries it again later, whatever became of the request: 10 minutes
// after the machine was to be switched off, or to be released.
func TestNoLateTrySwitchesOffAnothersMachine(t *testing.T) {
	for name, asked := range map[string]func(p *pace){
		"switched off": func(p *pace) {
			p.MAAS.HangBMC(p.server().SystemID, 6*time.Minute)
			rec, err := p.machines.Records.OpenMachine(p.get("m"))
			if err != nil {
				p.Fatal(err)
			}
			client := p.scopes.Regions()[0].Inventory.Client()
			err = rec.Call(p.Context(), record.PowerOff, func(ctx context.Context, permit maas.Permit) error {
				_, err := client.PowerOffMachine(ctx, permit, p.server().SystemID, "")
				<-time.After(slowAnswer)
				if err != nil {
					return err
				}
				return &maas.Error{Kind: maas.Unavailable, Message: "no response"}
			})
			if !maas.HadNoEffect(err) {
				p.leaves()
				return
			}
			p.Fatal(err)
		},
		"released": func(p *pace) {
			fault := simulator.Fault{Method: http.MethodPost, Op: "release", Delay: simulator.Duration(slowAnswer - time.Second), DropAfter: true, First: 1}
			if _, err := p.MAAS.AddFault(fault); err != nil {
				p.Fatal(err)
			}
			p.MAAS.HangBMC(p.server().SystemID, 8*time.Minute)
			p.leaves()
		},
		"released, which MAAS begins later": func(p *pace) {
			const later = slowAnswer + 50*time.Second
			fault := simulator.Fault{Method: http.MethodPost, Op: "release", Delay: simulator.Duration(later), First: 1}
			if _, err := p.MAAS.AddFault(fault); err != nil {
				p.Fatal(err)
			}
			p.MAAS.HangBMC(p.server().SystemID, 9*time.Minute)
			p.leaves()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPace(t, strings.Split(pacedRegion, "vm_hosts:")[0])
				p.runs()
				asked(p)
				p.isTakenAtOnce()
			})
		})
	}
}

// What MAAS has says whether it switches power for a release whose response was lost.
func TestALostReleaseIsNotWaitedForLongerThanMAASNeeds(t *testing.T) {
	const most = 3 * productionSettle / 2
	for name, fault := range map[string]simulator.Fault{
		"MAAS has released it": {DropAfter: true}, "MAAS never got the request": {DropBefore: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPace(t, strings.Split(pacedRegion, "vm_hosts:")[0])
				p.runs()
				fault.Method, fault.Op, fault.First = http.MethodPost, "release", 1
				if _, err := p.MAAS.AddFault(fault); err != nil {
					t.Fatal(err)
				}
				p.leaves()
				p.run(most, p.isGone)
				if now := p.server(); !p.isGone() || now.Status != "Ready" {
					t.Errorf("after %s it is %s: %s", most, now.Status, conditions.GetMessage(p.get("m"), infrav1.ReadyCondition))
				}
			})
		})
	}
}

// A BMC does not respond while a machine is to be tested: MAAS shows the test, and switches the machine on later.
func TestNoLateTryOfATestHitsAnothersMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPace(t, strings.Split(pacedRegion, "vm_hosts:")[0])
		fault := simulator.Fault{Method: http.MethodPost, Op: "test", DropAfter: true, First: 1}
		if _, err := p.MAAS.AddFault(fault); err != nil {
			t.Fatal(err)
		}
		p.MAAS.HangBMC(p.server().SystemID, 8*time.Minute)
		p.meets(obstacle{spec: infrav1.MaasMachineSpec{Checks: &infrav1.MachineChecks{Scripts: []string{"memtester"}, TimeoutSeconds: 86400, MaxTesting: 1, MaxFailed: 1}}})
		p.run(time.Hour, func() bool { return p.get("m").Status.MachineState == "Testing" })
		began := time.Now()
		p.leaves()
		p.run(2*time.Hour, func() bool { return p.server().AgentName == "" })
		if took := time.Since(began); took < 15*time.Minute {
			t.Errorf("it is %s after %s", p.server().Status, took)
		}
		if p.run(time.Hour, p.isGone); !p.isGone() {
			t.Errorf("it is there: %s", conditions.GetMessage(p.get("m"), infrav1.ReadyCondition))
		}
	})
}
