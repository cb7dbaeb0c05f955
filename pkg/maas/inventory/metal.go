// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// metalPatience is how long a caller waits for the list of all machines.
const metalPatience = 2 * time.Second

// ErrPending means that MAAS is still listing its machines: ask again.
var ErrPending = errors.New("MAAS has not listed its machines yet")

// metal is the list of all machines that are no VMs. It may take minutes, so it is fetched in the background.
type metal struct {
	answer   cached[[]*maas.Machine]
	patience time.Duration

	mu     sync.Mutex
	failed error     // of the last fetch
	rested time.Time // when MAAS may be asked again after a failure
}

// BareMetal returns all machines in MAAS that are no VMs on its hosts. It is a long list in one call: choose a long
// maxAge. A caller waits for a moment at most; then it gets an older result, or ErrPending.
func (i *Inventory) BareMetal(ctx context.Context, maxAge time.Duration) ([]*maas.Machine, error) {
	called := time.Now()
	old, at := i.metal.answer.last()
	if !at.IsZero() && called.Sub(at) <= maxAge {
		return old, nil
	}
	if err := i.metal.resting(); err != nil {
		return nil, err
	}
	_, _, f, mine := i.metal.answer.join(func(asked time.Time) bool { return called.Sub(asked) <= maxAge })
	if mine {
		go i.metal.answer.fetch(i.life, f, i.listMetal)
	}
	return i.metal.await(ctx, f)
}

// SeenBareMetal returns the last result of BareMetal, if it is not older than maxAge. It asks MAAS for nothing.
func (i *Inventory) SeenBareMetal(maxAge time.Duration) []*maas.Machine {
	seen, at := i.metal.answer.last()
	if at.IsZero() || time.Since(at) > maxAge {
		return nil
	}
	return seen
}

// await waits for a fetch, up to metalPatience.
func (m *metal) await(ctx context.Context, f *flight[[]*maas.Machine]) ([]*maas.Machine, error) {
	if f != nil {
		defer guard.Idle(ctx)()
		timer := time.NewTimer(m.patience)
		defer timer.Stop()
		select {
		case <-f.done:
			return f.value, f.err
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for the list of all machines: %w", ctx.Err())
		case <-timer.C:
		}
	}
	old, at := m.answer.last()
	if at.IsZero() {
		return nil, ErrPending
	}
	return old, nil
}

// listMetal asks MAAS for all machines. After a failure that took long, the next list waits longer.
func (i *Inventory) listMetal(ctx context.Context) ([]*maas.Machine, error) {
	began := time.Now()
	all, err := i.source.ListMachines(ctx, maas.MachineFilter{})
	ended := time.Now()
	i.metal.mu.Lock()
	defer i.metal.mu.Unlock()
	i.metal.failed, i.metal.rested = err, ended.Add(restFactor*ended.Sub(began))
	return slices.DeleteFunc(all, func(m *maas.Machine) bool { return m.Pod != nil }), err
}

// resting returns the list's error until it may be requested again.
func (m *metal) resting() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Now().Before(m.rested) {
		return m.failed
	}
	return nil
}
