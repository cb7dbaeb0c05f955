// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// What takes effect while MAAS is asked does not show in the response, though it is settled when that comes.
func TestWhetherACallIsSettledCountsFromTheReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, interceptor.Funcs{})
		b.records.SettleTime = settleTime
		r, _ := b.open()
		if err := r.Call(t.Context(), Claim, lose); !errors.Is(err, maas.Unavailable) {
			t.Fatal(err)
		}
		<-time.After(settleTime - time.Second)
		asked := time.Now()
		r, _ = b.open()
		<-time.After(2 * time.Second) // MAAS answers a question of this reconcile.
		if left := r.Unsettled(); left != time.Second {
			t.Errorf("%s are left, want those that were when MAAS was asked", left)
		}
		r, _ = b.open()
		if left := r.Unsettled(); left != 0 {
			t.Errorf("%s are left of what MAAS is asked about from now on", left)
		}
		r.AsOf(time.Now().Add(time.Hour)) // What is asked later changes nothing.
		if left := r.Unsettled(); left != 0 {
			t.Errorf("%s are left", left)
		}
		r.AsOf(asked) // It goes by an earlier list.
		if left := r.Unsettled(); left != time.Second {
			t.Errorf("%s are left, want those that were when MAAS was asked for the list", left)
		}
		err := r.CallRelease(t.Context(), Release, func(context.Context, maas.ReleasePermit) error { t.Error("it was sent"); return nil })
		if unsettled, is := errors.AsType[*UnsettledError](err); !is || unsettled.Pending != Claim {
			t.Errorf("the error is %v", err)
		}
		r, _ = b.open()
		r.AsOf(time.Time{}) // It goes by what MAAS was asked for nobody knows when.
		if left := r.Unsettled(); left != settleTime {
			t.Errorf("%s are left, want all of the settle time", left)
		}
	})
}

// An object whose call may take effect does not go, whatever was asked of MAAS meanwhile.
func TestTheFinalizerGoesWhenAllIsSettled(t *testing.T) {
	for _, op := range everyOp {
		t.Run(string(op), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, interceptor.Funcs{})
				b.records.SettleTime = settleTime
				b.touch(func(m *infrav1.MaasMachine) { m.Finalizers = []string{infrav1.MachineFinalizer, "another"} })
				r, _ := b.open()
				if err := r.Call(t.Context(), op, lose); !errors.Is(err, maas.Unavailable) {
					t.Fatal(err)
				}
				r, _ = b.open()
				<-time.After(b.records.settleTime(Pending{Op: op})) // It asks MAAS.
				err := r.Finish(t.Context(), infrav1.MachineFinalizer)
				if unsettled, is := errors.AsType[*UnsettledError](err); !is || unsettled.Pending != op || len(b.now().Finalizers) != 2 {
					t.Errorf("the error is %v; there are %v", err, b.now().Finalizers)
				}
				stale, _ := b.open()
				b.touch(func(m *infrav1.MaasMachine) { m.Labels = map[string]string{"of": "others"} })
				if err := stale.Finish(t.Context(), infrav1.MachineFinalizer); !apierrors.IsConflict(err) {
					t.Errorf("the error is %v, want a conflict", err)
				}
				r, _ = b.open()
				b.must(r.Finish(t.Context(), infrav1.MachineFinalizer))
				if diff := cmp.Diff([]string{"another"}, b.now().Finalizers); diff != "" {
					t.Errorf("finalizers (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// MAAS gives no id twice: what was asked for of a machine that is gone hits nothing. Another machine may come, and the
// next VM of the name.
func TestWhatMayFollowWhenTheMachineIsGone(t *testing.T) {
	t.Parallel()
	follow := []Op{Allocate, Compose, Reserve, TakeOver, LateClaim, StartVM, StopVM, DeleteVM}
	for _, op := range everyOp {
		c := Calls{Pending: []Pending{{Op: op}}}
		if c.MachineGone(); c.IsPending(op) != slices.Contains(follow, op) {
			t.Errorf("%s is pending: %t", op, c.IsPending(op))
		}
	}
}
