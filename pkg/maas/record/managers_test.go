// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// compose makes a VM on a host, as composeOn does.
func (b *bed) compose(r *Machine, host string, outcome error) error {
	r.AddHost(host)
	return r.Call(b.Context(), Compose, func(context.Context, maas.Permit) error { return outcome })
}

// runsOn stores where the VM runs, with what acquired it.
func (b *bed) runsOn(r *Machine, host string) error {
	return r.Store(b.Context(), func() { r.Acquired(); r.Runs = host },
		func(m client.Object) { m.(*infrav1.MaasMachine).Spec.SystemID = "device" })
}

// A manager is suspended after MAAS has made what it asked for, and resumes when another one has the object.
func TestAStoreEndsNoCallOfAnotherManager(t *testing.T) {
	for name, tc := range map[string]struct {
		other   func(b *bed, r *Machine) error // what the other one does
		runs    string
		pending []Op
	}{
		"its VM runs elsewhere": {
			func(b *bed, r *Machine) error { return errors.Join(b.compose(r, "h2", nil), b.runsOn(r, "h2")) }, "h2", nil,
		},
		"its call may take effect": {
			func(b *bed, r *Machine) error {
				if err := b.compose(r, "h2", lost); !errors.Is(err, maas.Unavailable) {
					return err
				}
				return nil
			}, "", []Op{Compose},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, interceptor.Funcs{})
				b.records.SettleTime = settleTime
				suspended, _ := b.open()
				b.must(b.compose(suspended, "h1", nil))

				another := &bed{t, b.client, &Records{Client: b.client, SettleTime: settleTime}}
				_, _ = another.open()
				<-time.After(settleTime)
				leads, _ := another.open()
				b.must(tc.other(another, leads))

				if err := b.runsOn(suspended, "h1"); !apierrors.IsConflict(err) {
					t.Errorf("the error is %v, want a conflict", err)
				}
				if err := suspended.Close(t.Context()); err != nil && !apierrors.IsConflict(err) {
					t.Error(err)
				}
				b.wantPending(tc.pending...)
				now, _ := b.open()
				if now.Runs != tc.runs || !cmp.Equal(now.Hosts, []string{"h1", "h2"}) {
					t.Errorf("it runs on %q, and may be on %v", now.Runs, now.Hosts)
				}
			})
		})
	}
}

// The reconcilers of a cluster's objects share lists of what is kept and of what is left. An entry is stored on top of
// what others have recorded, and ends none of their calls.
func TestWhatSeveralRecordIsMerged(t *testing.T) {
	t.Parallel()
	b := newBed(t, interceptor.Funcs{})
	ours, _ := b.openCluster()
	other, _ := b.openCluster()
	err := other.Call(t.Context(), Publish, func(context.Context, maas.Permit) error { return lost })
	if !errors.Is(err, maas.Unavailable) {
		t.Fatal(err)
	}
	added, err := ours.Add(t.Context(), func(k *KeptMachines) bool { return k.Keep(server(1), time.Now(), time.Hour) })
	if err != nil || !added {
		t.Fatal(added, err)
	}
	b.must(ours.Merge(t.Context(), func(k *KeptMachines) { k.Take("taker", func(KeptMachine) bool { return true }) }))
	now, _ := b.openCluster()
	if !now.IsPending(Publish) || len(now.Kept) != 1 || now.Kept[0].TakenBy != "taker" {
		t.Errorf("recorded is %+v", now.ClusterData)
	}
}

// A MaasMachine changes only the entry that it takes.
func TestAnEntryThatAnotherTakesStays(t *testing.T) {
	t.Parallel()
	kept := KeptMachines{{SystemID: "id", Machine: "former", TakenBy: "b"}}
	kept.StopTaking("id", "a", true)
	kept.Drop("id", "a")
	kept.Drop("id", "")
	released := kept.Release("id", "a", "releasing", time.Now())
	want := KeptMachines{{SystemID: "id", Machine: "former", TakenBy: "b"}}
	if diff := cmp.Diff(want, kept); released || diff != "" {
		t.Errorf("released: %t (-want +got):\n%s", released, diff)
	}
	if kept.Keep(KeptMachine{SystemID: "id", Machine: "b"}, time.Now(), time.Hour) {
		t.Error("it counts as kept, with what is recorded of an earlier MaasMachine")
	}
}

// What was given back, or is not left any more, goes with its calls: only what is known of all of them says so.
func TestAnEntryGoesOnlyFromTheRecordThatIsKnown(t *testing.T) {
	t.Parallel()
	b := newBed(t, interceptor.Funcs{})
	whole, _ := b.openCluster()
	added, err := whole.Add(t.Context(), func(k *KeptMachines) bool { return k.Keep(server(1), time.Now(), time.Hour) })
	if err != nil || !added {
		t.Fatal(added, err)
	}
	suspended, _ := b.openCluster()
	leads, _ := b.openCluster()
	giving, err := leads.Giving("id1")
	b.must(err)
	if err := giving.Call(t.Context(), Claim, lose); !errors.Is(err, maas.Unavailable) {
		t.Fatal(err)
	}
	if err := suspended.Store(t.Context(), func() { suspended.GaveBack("id1") }); !apierrors.IsConflict(err) {
		t.Errorf("the error is %v, want a conflict", err)
	}
	now, _ := b.openCluster()
	if still := now.Kept.Named("id1"); still == nil || !still.Giving.IsPending(Claim) {
		t.Errorf("recorded is %+v", now.ClusterData)
	}
}
