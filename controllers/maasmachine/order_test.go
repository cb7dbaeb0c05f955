// SPDX-License-Identifier: Apache-2.0

package maasmachine

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// unsettled returns how much longer a lost call may take effect; 0 if it is not pending.
func (p *pace) unsettled(op record.Op) time.Duration {
	p.Helper()
	rec, err := p.machines.Records.OpenMachine(p.get("m"))
	p.must(err)
	if !rec.IsPending(op) {
		return 0
	}
	return rec.Unsettled()
}

// comesLate has MAAS do a call when it is told to, after its caller has gone.
func (p *pace) comesLate(call func(simulator.Call) bool, at *atomic.Int64) func(simulator.Call, simulator.Phase) {
	return func(c simulator.Call, phase simulator.Phase) {
		if phase != simulator.Before || !call(c) {
			return
		}
		for at.Load() == 0 || time.Now().UnixNano() < at.Load() {
			<-time.After(100 * time.Millisecond)
		}
	}
}

func isAllocation(c simulator.Call) bool {
	return c.Method == http.MethodPost && c.Op == "allocate" && !strings.Contains(c.Query, "dry_run")
}

// A call whose response was lost takes effect in the last second of its settle time. What MAAS was asked before does not
// show it, though it be settled when the answer comes, or is used.
func TestNoMachineIsLeftThatComesAfterMAASWasAsked(t *testing.T) {
	for name, tc := range map[string]struct {
		named bool                      // in the spec
		slow  func(simulator.Call) bool // whose answer takes until the time is over
	}{
		"when it is searched": {slow: func(c simulator.Call) bool { return strings.Contains(c.Query, "agent_name") }},
		"when it is listed":   {named: true, slow: func(c simulator.Call) bool { return strings.Contains(c.Query, "id=") }},
		"listed before":       {named: true, slow: func(simulator.Call) bool { return false }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPace(t, strings.Split(pacedRegion, "vm_hosts:")[0])
				// Shorter than the 5 minutes after which MAAS refuses the signature of a request.
				p.machines.Records.SettleTime = 2 * time.Minute
				var at atomic.Int64 // when MAAS does it, in ns
				late := p.comesLate(isAllocation, &at)
				p.MAAS.SetHook(func(c simulator.Call, phase simulator.Phase) error {
					late(c, phase)
					if c.Method != http.MethodGet || phase != simulator.After || !tc.slow(c) {
						return nil
					}
					if left := time.Duration(at.Load() - time.Now().UnixNano()); left > 0 && left < time.Second {
						<-time.After(3 * time.Second)
					}
					return nil
				})
				op := record.Allocate
				o := obstacle{}
				if tc.named {
					op, o.spec.SystemID = record.Claim, p.server().SystemID
				}
				p.meets(o)
				p.run(time.Hour, func() bool { return p.unsettled(op) > 0 })
				p.run(10*time.Second, nil)
				p.leaves()
				p.run(20*time.Second, nil)
				over := time.Now().Add(p.unsettled(op))
				if !time.Now().Before(over) {
					t.Fatal("nothing was lost")
				}
				at.Store(over.Add(-time.Second).UnixNano())
				p.run(time.Until(over)-1500*time.Millisecond, nil)
				p.wake(job{"MaasMachine", "m"}, 0)
				p.run(time.Until(over), nil)
				p.wake(job{"MaasMachine", "m"}, 0)
				p.run(time.Hour, p.isGone)
				p.run(time.Minute, nil)
				if now := p.server(); !p.isGone() || now.AgentName != "" || now.Status != "Ready" {
					t.Errorf("gone: %t; MAAS has the machine as %s, of %q", p.isGone(), now.Status, now.AgentName)
				}
			})
		})
	}
}
