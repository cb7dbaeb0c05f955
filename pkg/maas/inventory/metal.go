// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/internal/cache"
)

// metalPatience is how long a caller waits for the list of all machines.
const metalPatience = 2 * time.Second

// ErrPending means that MAAS is still listing its machines: ask again.
var ErrPending = errors.New("MAAS has not listed its machines yet")

// metal is the list of all machines that are no VMs. It may take minutes, so it is fetched in the background.
type metal struct {
	answer cache.Value[[]*maas.Machine]

	mu     sync.Mutex
	failed error     // of the last fetch
	rested time.Time // when MAAS may be asked again after a failure
}

// BareMetal returns all machines in MAAS that are no VMs on its hosts. It is a long list in one call: choose a long
// maxAge. A caller waits for a moment at most; then it gets an older result, or ErrPending.
func (i *Inventory) BareMetal(ctx context.Context, maxAge time.Duration) ([]*maas.Machine, error) {
	called := time.Now()
	old, at := i.metal.answer.Last()
	if !at.IsZero() && called.Sub(at) <= maxAge {
		return old, nil
	}
	if err := i.metal.resting(); err != nil {
		return nil, err
	}
	patient, cancel := context.WithTimeout(ctx, metalPatience)
	defer cancel()
	machines, err := i.metal.answer.Await(patient, i.life, maxAge, i.listMetal)
	switch {
	case err == nil || patient.Err() == nil || ctx.Err() != nil:
		return machines, err
	case at.IsZero():
		return nil, ErrPending
	}
	return old, nil
}

// SeenBareMetal returns the last result of BareMetal, if it is not older than maxAge. It asks MAAS for nothing.
func (i *Inventory) SeenBareMetal(maxAge time.Duration) []*maas.Machine {
	seen, at := i.metal.answer.Last()
	if at.IsZero() || time.Since(at) > maxAge {
		return nil
	}
	return seen
}

// listMetal asks MAAS for all machines. After a failure that took long, the next list waits longer.
func (i *Inventory) listMetal(ctx context.Context) ([]*maas.Machine, error) {
	began := time.Now()
	all, err := i.source.AllMachines(ctx)
	ended := time.Now()
	i.metal.mu.Lock()
	defer i.metal.mu.Unlock()
	i.metal.failed, i.metal.rested = err, ended.Add(restFactor*ended.Sub(began))
	return slices.DeleteFunc(all, func(m *maas.Machine) bool { return m.Pod != nil || m.Unreadable }), err
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
