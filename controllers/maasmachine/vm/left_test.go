// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/life"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/lifetest"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/test/allkinds"
)

// leftBehind is a MaasMachine, and an LXDHost that remembers what was left of one of its name a moment ago: the cache
// does not have that yet.
func leftBehind(t *testing.T, left func(hostname string) record.HostData) (*Steps, *life.Life) {
	t.Helper()
	m := &infrav1.MaasMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m"}, Spec: infrav1.MaasMachineSpec{DynamicLXD: true}}
	l := lifetest.Of(t, m)
	l.Machine = lifetest.ScopeOf(m)
	host := &infrav1.LXDHost{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "host"}}
	cache := fake.NewClientBuilder().WithScheme(allkinds.Scheme()).WithObjects(host).Build()
	text, err := json.Marshal(left(l.Identity().Hostname))
	if err != nil {
		t.Fatal(err)
	}
	now := host.DeepCopy()
	now.Annotations = map[string]string{infrav1.RecordAnnotation: string(text)}
	live := fake.NewClientBuilder().WithScheme(allkinds.Scheme()).WithObjects(now).Build()
	return New(&life.Steps{Base: reconciler.Base{
		Client: cache, APIReader: live, Records: &record.Records{Client: live, SettleTime: time.Hour},
	}}, time.Minute), l
}

func TestWhatWasJustLeftHoldsTheName(t *testing.T) {
	t.Parallel()
	ref := lxd.DirectRef("ns", "host")
	for name, tc := range map[string]struct {
		left           func(hostname string) record.HostData
		ref            string
		waits, settles bool
	}{
		"its device is there": {func(hostname string) record.HostData {
			return record.HostData{Left: record.LeftVMs{{Hostname: hostname, Host: ref, Device: "abc"}}}
		}, lxd.DirectRef("ns", "another"), true, false},
		"it may be deleted there": {func(hostname string) record.HostData {
			pending := []record.Pending{{Op: record.DeleteVM, At: metav1.Now()}}
			return record.HostData{Calls: record.Calls{Pending: pending}, Left: record.LeftVMs{{Hostname: hostname, Host: ref}}}
		}, ref, false, true},
		"it may be deleted elsewhere": {func(hostname string) record.HostData {
			pending := []record.Pending{{Op: record.DeleteVM, At: metav1.Now()}}
			return record.HostData{Calls: record.Calls{Pending: pending}, Left: record.LeftVMs{{Hostname: hostname, Host: ref}}}
		}, lxd.DirectRef("ns", "another"), false, false},
		"another one": {func(string) record.HostData {
			return record.HostData{Left: record.LeftVMs{{Hostname: "other", Host: ref, Device: "abc"}}}
		}, ref, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, l := leftBehind(t, tc.left)
			err := r.awaitLeft(t.Context(), l, tc.ref)
			_, waits := errors.AsType[*report.NotReadyError](err)
			_, settles := errors.AsType[*record.UnsettledError](err)
			if waits != tc.waits || settles != tc.settles || (err != nil) != (waits || settles) {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

// An earlier reconcile, or another manager, left the VM on a host. As long as it may run there, nobody gets its address.
func TestTheDeviceOfAVMThatWasLeftStays(t *testing.T) {
	t.Parallel()
	r, l := leftBehind(t, func(hostname string) record.HostData {
		return record.HostData{Left: record.LeftVMs{{Hostname: hostname, Host: lxd.DirectRef("ns", "host"), Device: "abc"}}}
	})
	r.hostFirst, l.MAAS = true, &maas.Machine{SystemID: "abc", Device: true}
	defer func() {
		if recover() != nil {
			t.Error("it is deleted")
		}
	}()
	if out, err := r.Deregistration(t.Context(), l); err != nil || out.Waits() { // Without an inventory it deletes nothing.
		t.Error(out, err)
	}
	for _, remains := range []bool{true, false} { // No LXDHost remembers it.
		r, l := leftBehind(t, func(string) record.HostData { return record.HostData{} })
		l.Record.Cleanup = &record.Cleanup{Remains: remains}
		if got, err := r.MayRemain(t.Context(), l.Identity().Hostname, l.Record); err != nil || got != remains {
			t.Errorf("it may remain: %t (%v), want %t", got, err, remains)
		}
	}
}
