// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"testing"
	"time"

	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/life"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/lifetest"
	"github.com/capmaas/cluster-api-provider-maas/internal/states"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// Whatever others do with a machine that was given back for now, it is not acquired again before its time.
func TestWhatOthersDoWithAMachineEndsNoPause(t *testing.T) {
	for status := maas.StatusNew; status <= maas.StatusFailedTesting; status++ {
		clock := clocktesting.NewFakePassiveClock(time.Now())
		r := New(&life.Steps{Base: reconciler.Base{Clock: clock, Recorder: events.NewFakeRecorder(10)}, CommissionTimeout: time.Hour, DeployTimeout: time.Hour})
		l := lifetest.Of(t, &infrav1.MaasMachine{})
		l.MAAS = &maas.Machine{Status: maas.StatusReady}
		l.Record.GivenBack = life.PtrTime(clock.Now())
		clock.SetTime(clock.Now().Add(BackAtLeast - time.Minute))
		r.ReportState(l, states.Assess(&maas.Machine{Status: status}, false, false))
		r.ReportState(l, states.NotOurs(l.MAAS, false))
		if r.pause(t.Context(), l) == nil {
			t.Errorf("after the state %d it is acquired again at once", status)
		}
		clock.SetTime(clock.Now().Add(time.Minute))
		if err := r.pause(t.Context(), l); err != nil || l.Record.GivenBack != nil {
			t.Errorf("after the state %d it waits for ever: %v", status, err)
		}
	}
}
