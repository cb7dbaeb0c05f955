// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// hanging is a MAAS whose list of all machines ends when the test decides.
type hanging struct {
	source
	lists  atomic.Int32
	answer chan error
}

func (h *hanging) AllMachines(ctx context.Context) ([]*maas.Machine, error) {
	h.lists.Add(1)
	select {
	case err := <-h.answer:
		return []*maas.Machine{{SystemID: "metal"}}, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func TestTheListOfAllMachinesKeepsNobodyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := New(nil, Options{})
		defer i.end()
		maasThatHangs := &hanging{answer: make(chan error)}
		i.source = maasThatHangs
		get := func(want int, wantErr error) {
			t.Helper()
			began := time.Now()
			machines, err := i.BareMetal(t.Context(), time.Minute)
			if len(machines) != want || !errors.Is(err, wantErr) {
				t.Errorf("got %d machines and the error %v, want %d and %v", len(machines), err, want, wantErr)
			}
			if time.Since(began) > metalPatience {
				t.Errorf("the caller waited for %s", time.Since(began))
			}
		}
		get(0, ErrPending)
		get(0, ErrPending)
		maasThatHangs.answer <- nil
		synctest.Wait()
		get(1, nil)
		if n := maasThatHangs.lists.Load(); n != 1 {
			t.Errorf("MAAS was asked for %d lists, want one", n)
		}
		<-time.After(2 * time.Minute) // On the fake clock.
		get(1, nil)                   // The old list, while MAAS lists again.
		refused := errors.New("no")
		maasThatHangs.answer <- refused
		synctest.Wait()
		get(0, refused)
		if n := maasThatHangs.lists.Load(); n != 2 {
			t.Errorf("MAAS was asked for %d lists, want no further one right after one that took long and failed", n)
		}
		<-time.After(time.Minute) // On the fake clock.
		get(1, nil)
		if n := maasThatHangs.lists.Load(); n != 3 {
			t.Errorf("MAAS was asked for %d lists, want another one after a while", n)
		}
	})
}

func TestTheListOfAllMachinesEndsWithTheInventory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := New(nil, Options{})
		i.source = &hanging{answer: make(chan error)}
		if _, err := i.BareMetal(t.Context(), time.Minute); !errors.Is(err, ErrPending) {
			t.Errorf("the error is %v", err)
		}
		i.end() // Else the test would end in a deadlock.
	})
}
