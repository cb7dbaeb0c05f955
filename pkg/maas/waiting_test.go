// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
)

func TestAWorkerIsFreeWhileItsCallWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var idle, resumed atomic.Int32
		ctx := guard.WithIdle(t.Context(), func() func() {
			idle.Add(1)
			return func() { resumed.Add(1) }
		})
		state := func() [2]int32 { return [2]int32{idle.Load(), resumed.Load()} }

		maas := &region{}
		client := maas.client(t)
		free := maas.busy(t, client)
		ended := make(chan error, 1)
		go func() { ended <- read(ctx, client) }()
		synctest.Wait()
		if state() != [2]int32{1, 0} {
			t.Errorf("while it waits for other calls: %v", state())
		}
		maas.is(roundTrip(func(r *http.Request) (*http.Response, error) {
			if state() != [2]int32{1, 0} {
				t.Errorf("while it waits for MAAS: %v", state())
			}
			return works.RoundTrip(r)
		}))
		free()
		if err := <-ended; err != nil || state() != [2]int32{1, 1} {
			t.Errorf("when it has ended: %v, %v", state(), err)
		}
		maas.is(hangs)
		limited, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := read(limited, client); !errors.Is(err, context.DeadlineExceeded) || state() != [2]int32{2, 2} {
			t.Errorf("when it has failed: %v, %v", state(), err)
		}
		maas.open(t, client)
		if err := read(ctx, client); !NotSent(err) || state() != [2]int32{2, 2} {
			t.Errorf("a call that is refused waits for nothing: %v, %v", state(), err)
		}
	})
}
