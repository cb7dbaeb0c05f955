// SPDX-License-Identifier: Apache-2.0

package life_test

import (
	"testing"
	"time"

	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/life"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/lifetest"
	"github.com/capmaas/cluster-api-provider-maas/internal/states"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

func TestADeadlineIsToldOnceAndIsNoFailure(t *testing.T) {
	limit, began := 30*time.Minute, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, tc := range []struct {
		status maas.Status
		reason string
	}{
		{maas.StatusCommissioning, infrav1.CommissioningTimedOutReason},
		{maas.StatusTesting, infrav1.CommissioningTimedOutReason},
		{maas.StatusDeploying, infrav1.DeployTimedOutReason},
	} {
		recorder := events.NewFakeRecorder(10)
		clock := clocktesting.NewFakePassiveClock(began)
		r := &life.Steps{Base: reconciler.Base{Clock: clock, Recorder: recorder}, CommissionTimeout: limit, DeployTimeout: limit}
		v := states.Assess(&maas.Machine{Status: tc.status}, false, true)
		m := &infrav1.MaasMachine{}
		l := lifetest.Of(t, m)
		if out := life.Await(m, r.ReportState(l, v)); out.RequeueAfter != report.SafetyRetry || conditions.GetReason(m, infrav1.MachineDeployedCondition) != v.Reason {
			t.Errorf("%v at the start: %+v, %+v", tc.status, out, m.Status.Conditions)
		}
		clock.SetTime(began.Add(limit - time.Minute))
		if out := life.Await(m, r.ReportState(l, v)); out.RequeueAfter != time.Minute {
			t.Errorf("%v a minute before the deadline: requeued after %v", tc.status, out.RequeueAfter)
		}
		clock.SetTime(began.Add(limit))
		for range 3 {
			if out := life.Await(m, r.ReportState(l, v)); out.RequeueAfter != report.SafetyRetry || m.Status.FailureReason != "" ||
				!conditions.IsFalse(m, infrav1.MachineDeployedCondition) || conditions.GetReason(m, infrav1.MachineDeployedCondition) != tc.reason {
				t.Errorf("%v after the deadline: %+v, %+v", tc.status, out, m.Status)
			}
		}
		if n := len(recorder.Events); n != 1 {
			t.Errorf("%v: %d events, want 1", tc.status, n)
		}
		if r.CommissionTimeout, r.DeployTimeout = 0, 0; life.Await(m, r.ReportState(l, v)).RequeueAfter != report.SafetyRetry || conditions.GetReason(m, infrav1.MachineDeployedCondition) != v.Reason {
			t.Errorf("%v without deadlines: %+v", tc.status, m.Status.Conditions)
		}
	}
}

// A machine that is gone for good is news once, also when MAAS was away meanwhile.
func TestReplacementIsOneEvent(t *testing.T) {
	recorder := events.NewFakeRecorder(10)
	r := &life.Steps{Base: reconciler.Base{Clock: clocktesting.NewFakePassiveClock(time.Now()), Recorder: recorder}}
	m := &infrav1.MaasMachine{Spec: infrav1.MaasMachineSpec{ProviderID: "maas://zone-a/abc123"}}
	l := lifetest.Of(t, m)
	for range 2 {
		r.ReportState(l, states.Vanished)
		life.MarkDeployedUnknown(m, report.Problem{Reason: infrav1.MAASUnavailableReason})
	}
	if n := len(recorder.Events); n != 1 {
		t.Errorf("%d events, want 1", n)
	}
}
