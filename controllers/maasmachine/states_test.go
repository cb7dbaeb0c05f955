// SPDX-License-Identifier: Apache-2.0

package maasmachine

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/internal/states"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
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
		r := &Reconciler{Base: reconciler.Base{Clock: clock, Recorder: recorder}, CommissionTimeout: limit, DeployTimeout: limit}
		v := states.Assess(&maas.Machine{Status: tc.status}, false, true)
		m := &infrav1.MaasMachine{}
		l := lifeOf(t, m)
		if out := await(m, r.reportState(l, v)); out.RequeueAfter != report.SafetyRetry || conditions.GetReason(m, infrav1.MachineDeployedCondition) != v.Reason {
			t.Errorf("%v at the start: %+v, %+v", tc.status, out, m.Status.Conditions)
		}
		clock.SetTime(began.Add(limit - time.Minute))
		if out := await(m, r.reportState(l, v)); out.RequeueAfter != time.Minute {
			t.Errorf("%v a minute before the deadline: requeued after %v", tc.status, out.RequeueAfter)
		}
		clock.SetTime(began.Add(limit))
		for range 3 {
			if out := await(m, r.reportState(l, v)); out.RequeueAfter != report.SafetyRetry || m.Status.FailureReason != "" ||
				!conditions.IsFalse(m, infrav1.MachineDeployedCondition) || conditions.GetReason(m, infrav1.MachineDeployedCondition) != tc.reason {
				t.Errorf("%v after the deadline: %+v, %+v", tc.status, out, m.Status)
			}
		}
		if n := len(recorder.Events); n != 1 {
			t.Errorf("%v: %d events, want 1", tc.status, n)
		}
		if r.CommissionTimeout, r.DeployTimeout = 0, 0; await(m, r.reportState(l, v)).RequeueAfter != report.SafetyRetry || conditions.GetReason(m, infrav1.MachineDeployedCondition) != v.Reason {
			t.Errorf("%v without deadlines: %+v", tc.status, m.Status.Conditions)
		}
	}
}

// A machine that is gone for good is news once, also when MAAS was away meanwhile.
func TestReplacementIsOneEvent(t *testing.T) {
	recorder := events.NewFakeRecorder(10)
	r := &Reconciler{Base: reconciler.Base{Clock: clocktesting.NewFakePassiveClock(time.Now()), Recorder: recorder}}
	m := &infrav1.MaasMachine{Spec: infrav1.MaasMachineSpec{ProviderID: "maas://zone-a/abc123"}}
	l := lifeOf(t, m)
	for range 2 {
		r.reportState(l, states.Vanished)
		markDeployedUnknown(m, report.Problem{Reason: infrav1.MAASUnavailableReason})
	}
	if n := len(recorder.Events); n != 1 {
		t.Errorf("%d events, want 1", n)
	}
}

// Whatever others do with a machine that was given back for now, it is not acquired again before its time.
func TestWhatOthersDoWithAMachineEndsNoPause(t *testing.T) {
	for status := maas.StatusNew; status <= maas.StatusFailedTesting; status++ {
		clock := clocktesting.NewFakePassiveClock(time.Now())
		r := &Reconciler{Base: reconciler.Base{Clock: clock, Recorder: events.NewFakeRecorder(10)}, CommissionTimeout: time.Hour, DeployTimeout: time.Hour}
		l := lifeOf(t, &infrav1.MaasMachine{})
		l.maas = &maas.Machine{Status: maas.StatusReady}
		l.record.GivenBack = ptrTime(clock.Now())
		clock.SetTime(clock.Now().Add(backAtLeast - time.Minute))
		r.reportState(l, states.Assess(&maas.Machine{Status: status}, false, false))
		r.reportState(l, states.NotOurs(l.maas, false))
		if r.pause(t.Context(), l) == nil {
			t.Errorf("after the state %d it is acquired again at once", status)
		}
		clock.SetTime(clock.Now().Add(time.Minute))
		if err := r.pause(t.Context(), l); err != nil || l.record.GivenBack != nil {
			t.Errorf("after the state %d it waits for ever: %v", status, err)
		}
	}
}

// How the interfaces of a machine were must fit into an annotation, or nothing is changed on it.
func TestAMachineWithMoreInterfacesThanCanBeRecordedIsNotChanged(t *testing.T) {
	m := &infrav1.MaasMachine{}
	host := scopeOf(m)
	host.MaasCluster.Spec.LXDControlPlaneCluster = true
	l := &life{Machine: host, record: lifeOf(t, m).record, maas: &maas.Machine{Status: maas.StatusAllocated}, proven: true}
	for i := range maxArranged + 1 {
		l.maas.Interfaces = append(l.maas.Interfaces, &maas.Interface{ID: i, Name: fmt.Sprintf("veth%d", i)})
	}
	_, err := (&Reconciler{}).interfaces(t.Context(), l)
	if refused := (*machine.NICError)(nil); !errors.As(err, &refused) || len(m.Annotations) > 0 {
		t.Errorf("%v, with the annotations %v", err, m.Annotations)
	}
}
