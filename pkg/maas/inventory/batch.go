// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

const (
	// batchSize is how many machines one list asks for at most: the ids are in the URL.
	batchSize = 200
	// After a list that took longer than longList the next one is shorter; after one that took less than shortList it
	// may be longer. Some MAASes need tenths of a second for each machine, and the client's timeout ends a list.
	longList  = 10 * time.Second
	shortList = 2 * time.Second
)

// batch is how many machines the next list asks for.
type batch struct {
	mu   sync.Mutex
	size int
}

func (b *batch) next() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.size
}

// took adapts the size to the duration of a list of so many machines.
func (b *batch) took(machines int, took time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case took > longList:
		b.size = max(machines/2, 1)
	case took < shortList && machines >= b.size:
		b.size = min(2*b.size, batchSize)
	}
}

// failed adapts the size after a list of so many machines failed.
func (b *batch) failed(machines int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.size = machines / 2
}

// mayBeOfOne reports whether fewer machines may be listed: MAAS, or a proxy before it, ran out of time, or fails
// because of one of them.
func mayBeOfOne(err error) bool {
	var e *maas.Error
	return errors.Is(err, context.DeadlineExceeded) ||
		errors.As(err, &e) && (e.Status == http.StatusOK || e.Status >= http.StatusInternalServerError)
}

// list asks MAAS for the first of these machines, as many as it can list. It returns their ids, and when it asked; with
// an error at most one: that of a machine that MAAS can't list even alone.
func (i *Inventory) list(
	ctx context.Context, ids []string,
) (asked time.Time, listed []string, machines []*maas.Machine, err error) {
	for {
		listed = i.together(ids[:min(len(ids), i.batch.next())])
		asked = i.now()
		machines, err = i.listAll(ctx, listed)
		switch {
		case ctx.Err() != nil:
			return asked, nil, nil, ctx.Err()
		case err == nil:
			i.batch.took(len(listed), i.now().Sub(asked))
			return asked, listed, machines, nil
		case !mayBeOfOne(err):
			return asked, nil, nil, err
		}
		// A MAAS that is slow with lists, or fails to return them, still returns its version. One that hangs must not be
		// asked for ever shorter lists.
		if _, err := i.source.Version(ctx); err != nil {
			return asked, nil, nil, err
		}
		if len(listed) == 1 {
			return asked, listed, nil, err
		}
		i.batch.failed(len(listed))
	}
}

// together returns the first of these machines that one list may ask for.
func (i *Inventory) together(ids []string) []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	for at, id := range ids {
		if e := i.entries[id]; e != nil && e.alone {
			return ids[:max(at, 1)]
		}
	}
	return ids
}

// listAll lists machines, and devices as machines: GET machines/ and GET devices/, as far as there are both.
func (i *Inventory) listAll(ctx context.Context, ids []string) (machines []*maas.Machine, err error) {
	var ofDevices, ofMachines []string
	for _, id := range ids {
		if device, _ := i.kind(id); device {
			ofDevices = append(ofDevices, id)
			continue
		}
		ofMachines = append(ofMachines, id)
	}
	if len(ofMachines) > 0 {
		if machines, err = i.source.ListMachines(ctx, maas.MachineFilter{SystemIDs: ofMachines}); err != nil {
			return nil, err
		}
	}
	if len(ofDevices) == 0 {
		return machines, nil
	}
	devices, err := i.source.ListDevices(ctx, maas.DeviceFilter{SystemIDs: ofDevices})
	if err != nil {
		return nil, err
	}
	return append(machines, list.Each(devices, (*maas.Device).AsMachine)...), nil
}
