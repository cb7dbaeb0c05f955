// SPDX-License-Identifier: Apache-2.0

package maasmachine

import (
	"testing"
	"time"

	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/test/allkinds"
)

func TestWaitForADeadHostContinuesAfterARestart(t *testing.T) {
	t.Parallel()
	r := &Reconciler{Base: reconciler.Base{Client: fake.NewClientBuilder().WithScheme(allkinds.Scheme()).Build(), Clock: clock.RealClock{}, Recorder: events.NewFakeRecorder(10)}, HostUnreachableTimeout: time.Minute}
	m := &infrav1.MaasMachine{Spec: infrav1.MaasMachineSpec{DynamicLXD: true}}
	why := lxd.Presence{State: lxd.Unreachable, Host: "h", After: time.Second, Why: &maas.Error{Kind: maas.Unavailable}}
	began := time.Now()
	for _, step := range []struct {
		after time.Duration
		waits bool
	}{{0, true}, {30 * time.Second, true}, {59 * time.Second, true}, {61 * time.Second, false}} {
		l := lifeOf(t, m) // As a new manager reads it.
		l.Machine = scopeOf(m)
		out, err := r.hostUnreachable(t.Context(), l, "1/h", why, began.Add(step.after))
		m = &infrav1.MaasMachine{Spec: infrav1.MaasMachineSpec{DynamicLXD: true}}
		m.Annotations = map[string]string{infrav1.RecordAnnotation: recordText(t, l.record.MachineData)}
		if err != nil || out.Waits() != step.waits {
			t.Errorf("after %s it waits: %t, want %t", step.after, out.Waits(), step.waits)
		}
	}
	// MAAS was down for long: one attempt is not enough.
	l := lifeOf(t, &infrav1.MaasMachine{Spec: infrav1.MaasMachineSpec{DynamicLXD: true}})
	l.Machine = scopeOf(l.MaasMachine)
	if out, err := r.hostUnreachable(t.Context(), l, "1/h", why, began); err != nil || !out.Waits() {
		t.Error("a host is given up after one try")
	}
}
