// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/internal/states"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/quarantine"
)

// later is a clock that a test sets forward.
type later struct {
	began time.Time
	by    atomic.Int64
}

func (l *later) now() time.Time { return l.began.Add(time.Duration(l.by.Load())) }

func (l *later) pass(d time.Duration) { l.by.Add(int64(d)) }

// machineService is the manager's service for the test's MAAS, with a clock of the test for cooldowns.
func (w *world) machineService(cluster *infrav1.MaasCluster) (*machine.Service, *later) {
	w.t.Helper()
	s, err := w.scopes.Cluster(w.t.Context(), w.cluster, cluster)
	if err != nil {
		w.t.Fatal(err)
	}
	clock := &later{began: time.Now()}
	s.Machines.Quarantine.SetClock(clock.now)
	s.Machines.LXD().SetClock(clock.now)
	return s.Machines, clock
}

// until returns the time until which, by its condition, a machine is skipped.
func until(t *testing.T, message string) time.Time {
	t.Helper()
	for word := range strings.FieldsSeq(message) {
		if at, err := time.Parse(time.RFC3339, strings.TrimRight(word, ".,;)")); err == nil {
			return at
		}
	}
	t.Fatalf("%q does not contain a time", message)
	return time.Time{}
}

func TestAMachineWhoseDeploymentTookTooLongIsNotTheNextOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) {
		w.deployTimeout = time.Second
		w.region += "timings: {deploy: 100000h}\n"
	})
	w.provisionedCluster()
	first := w.newMachine("first", false, infrav1.MaasMachineSpec{})
	w.assessed(first, states.Assessment{Reason: infrav1.DeployTimedOutReason, Then: states.Person})
	hung := first.Spec.SystemID
	// The condition has another reason by the time of the release.
	w.maasCall(http.MethodPost, "machines/"+hung+"/?op=lock", nil)
	w.beginDeletion(first)
	w.refused(first, infrav1.MachineDeployedCondition, infrav1.MachineLockedReason)
	w.maasCall(http.MethodPost, "machines/"+hung+"/?op=unlock", nil)
	w.await("it is gone", first, func(ctx context.Context) bool {
		w.nudge(first)
		return w.isGone(ctx, first.DeepCopy())
	})
	second := w.newMachine("second", false, infrav1.MaasMachineSpec{})
	w.eventually(second, "acquired", func() bool { return second.Spec.SystemID != "" })
	if second.Spec.SystemID == hung {
		t.Error("the machine that hung was picked again, and there was another")
	}
	w.delete(second)
}

// Two responses were lost, and MAAS has two machines for one object: the one that did not fail stays.
func TestOfTwoMachinesTheOneThatFailedIsGivenBack(t *testing.T) {
	t.Parallel()
	for _, failed := range []string{"metal-a", "metal-b"} {
		t.Run(failed, func(t *testing.T) {
			t.Parallel()
			w, cluster := clusterWorld(t)
			service, _ := w.machineService(cluster)
			for _, m := range w.maas.Machines() {
				if !strings.HasPrefix(m.Hostname, "metal-") {
					continue
				}
				w.allocateAs("capmaas/"+cluster.Annotations[infrav1.OwnerIDAnnotation]+"/m", m.SystemID)
				if m.Hostname == failed {
					service.Quarantine.Remember(&maas.Machine{SystemID: m.SystemID, Hostname: m.Hostname}, quarantine.Cause{By: "another user"})
				}
			}
			m := w.deployedMachine("m", false, infrav1.MaasMachineSpec{})
			if m.Status.Hostname == failed {
				t.Error("the machine that failed was kept")
			}
			w.await("the other is given back", m, func(context.Context) bool { return w.acquiredMachines() == 1 })
		})
	}
}

// After a call that never reached MAAS there is nothing to wait for.
func TestACallThatHadNoEffectIsNotAwaited(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"refused":  {&maas.Error{Kind: maas.Conflict}, true},
		"not sent": {&maas.Error{Kind: maas.Unavailable, NotSent: true}, true},
		"busy":     {&maas.Error{Kind: maas.Busy}, true},
		"lost":     {&maas.Error{Kind: maas.Unavailable}, false},
		"unclear":  {errors.Join(errors.New("it is a VM"), &maas.Error{Kind: maas.Unavailable}), false},
	} {
		if got := maas.HadNoEffect(tc.err); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}
