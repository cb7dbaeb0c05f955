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
	// silentLists is how many lists in a row must time out, the last of them for a single machine, until MAAS counts as
	// unreadable.
	silentLists = 3
)

// batch is how many machines the next list asks for.
type batch struct {
	mu       sync.Mutex
	size     int
	timeouts int // lists in a row that timed out
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
	b.timeouts = 0
	switch {
	case took > longList:
		b.size = max(machines/2, 1)
	case took < shortList && machines >= b.size:
		b.size = min(2*b.size, batchSize)
	}
}

// timedOut adapts the size after a list of so many machines timed out, and reports whether MAAS can't be read at all.
func (b *batch) timedOut(machines int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.timeouts++
	b.size = max(machines/2, 1)
	return machines == 1 && b.timeouts >= silentLists
}

// silentError means that even a list of a single machine times out, again and again.
type silentError struct{ error }

func (e silentError) Unwrap() error { return e.error }

// tookTooLong reports whether MAAS, or a proxy before it, ran out of time.
func tookTooLong(err error) bool {
	var e *maas.Error
	return errors.Is(err, context.DeadlineExceeded) || (errors.As(err, &e) && e.Status == http.StatusGatewayTimeout)
}

// list asks MAAS for the first of these machines, as many as it can list in time. It returns their ids, and when it
// asked.
func (i *Inventory) list(
	ctx context.Context, ids []string,
) (asked time.Time, listed []string, machines []*maas.Machine, err error) {
	for {
		listed = ids[:min(len(ids), i.batch.next())]
		asked = i.now()
		machines, err = i.listAll(ctx, listed)
		switch {
		case ctx.Err() != nil:
			return asked, nil, nil, ctx.Err()
		case err == nil:
			i.batch.took(len(listed), i.now().Sub(asked))
			return asked, listed, machines, nil
		case !tookTooLong(err):
			return asked, nil, nil, err
		}
		if i.batch.timedOut(len(listed)) {
			return asked, nil, nil, silentError{err}
		}
		if len(listed) == 1 {
			return asked, nil, nil, err
		}
		// A MAAS that is slow with lists still returns its version. One that hangs must not be asked for ever shorter
		// lists.
		if _, err := i.source.Version(ctx); err != nil {
			return asked, nil, nil, err
		}
	}
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
