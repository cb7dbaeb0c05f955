// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/capmaas/cluster-api-provider-maas/internal/refused"
)

func TestRetriesGetRarer(t *testing.T) {
	t.Parallel()
	a := newAgent(options{checkInterval: time.Minute}, nil, nil)
	passing, mendable := errors.New("LXD is not up"), &problem{permanent: true}
	var waits []time.Duration
	for range 10 {
		waits = append(waits, a.delay(passing))
	}
	if waits[0] >= 2*firstRetry || waits[9] < time.Minute {
		t.Errorf("the waits are %v", waits)
	}
	most := time.Minute + time.Minute/5
	for i, wait := range waits {
		if wait > most || i > 0 && i < 6 && wait <= waits[i-1] {
			t.Errorf("the waits are %v", waits)
		}
	}
	for _, failed := range []error{nil, mendable} {
		if wait := a.delay(failed); wait < time.Minute || wait > most {
			t.Errorf("after %v the wait is %v", failed, wait)
		}
		if wait := a.delay(passing); wait >= 2*firstRetry {
			t.Errorf("after that, the first wait is %v", wait)
		}
	}
	if wait := a.delay(&problem{retryAfter: time.Hour}); wait != time.Hour {
		t.Errorf("MAAS asked for an hour and gets %v", wait)
	}
}

// staleSocket is one that nobody listens on any more.
func staleSocket(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	refused.Socket(t, path)
	return path
}

func TestSocketThatRefusesForLongEndsTheInitializer(t *testing.T) {
	t.Parallel()
	p := &pass{agent: newAgent(options{socket: staleSocket(t)}, nil, record.NewFakeRecorder(1))}
	if err := p.connectLXD(t.Context()); err == nil || errors.Is(err, errStaleSocket) {
		t.Errorf("the first refusal says %v", err)
	}
	p.refusedSince = time.Now().Add(-staleAfter)
	if err := p.connectLXD(t.Context()); !errors.Is(err, errStaleSocket) {
		t.Errorf("after %s it says %v", staleAfter, err)
	}
	// A socket that is not there is not one that went stale.
	p.options.socket += ".not"
	if err := p.connectLXD(t.Context()); err == nil || errors.Is(err, errStaleSocket) {
		t.Errorf("without a socket it says %v", err)
	}
	if !p.refusedSince.IsZero() {
		t.Error("the refusals before count on")
	}
}

func TestRunEndsWithTheSocket(t *testing.T) {
	t.Parallel()
	n := newBed(t).newNode()
	a := n.agent(map[string]string{"LXD_SOCKET": staleSocket(t)})
	a.staleAfter = 0
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	if err := a.run(ctx); !errors.Is(err, errStaleSocket) {
		t.Errorf("it ends with %v", err)
	}
	n.wantCondition(corev1.ConditionFalse, reasonLXDNotReady)
}

func TestRunEndsWithTheContext(t *testing.T) {
	t.Parallel()
	n := newBed(t).newNode()
	a := n.agent()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.run(ctx) }()
	n.await("the initializer is ready", func(context.Context) bool { return a.ready.Load() })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	n.wantHost()
}
