// SPDX-License-Identifier: Apache-2.0

// Package inventory keeps what MAAS says of the machines that matter, of its VM hosts, zones, subnets and domains.
//
// MAAS cannot be watched, and a call per machine does not scale. So one inventory per identity asks for all tracked
// machines in one list, often while some of them are moving and seldom when none is, keeps the last answer, and tells
// which machines changed. Reconcilers read it instead of MAAS.
package inventory

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// Options tune an inventory.
type Options struct {
	// ActiveInterval is the time between two looks at machines that are expected to change.
	ActiveInterval time.Duration
	// IdleInterval is the time between two looks at all tracked machines.
	IdleInterval time.Duration
	// Notify is called with the system id of each machine whose answer changed. It must not block for long.
	Notify func(systemID string)
	Logger logr.Logger
}

// Observation is what is known of one machine.
type Observation struct {
	// Known is false until MAAS has been asked for this machine.
	Known bool
	// Machine is MAAS's last answer; nil when MAAS does not have the machine. Don't change it.
	Machine *maas.Machine
}

// Inventory is the shared view of one MAAS through one identity. It is safe for concurrent use.
type Inventory struct {
	client *maas.Client
	opts   Options
	wake   chan struct{}

	mu      sync.Mutex
	entries map[string]*entry
	health  error

	vmHosts  cached[[]maas.VMHost]
	hosting  cached[map[string]*maas.Machine]
	metal    cached[[]*maas.Machine]
	zones    cached[[]maas.Ref]
	subnets  cached[[]maas.Subnet]
	domains  cached[[]maas.Domain]
	projects keyed[int, string]
	records  keyed[string, *maas.DNSResource]
}

type entry struct {
	Observation
	active  bool
	written time.Time // when a reconciler last told us of a write; older answers don't count
}

// New makes an inventory; Run makes it look.
func New(client *maas.Client, opts Options) *Inventory {
	return &Inventory{client: client, opts: opts, wake: make(chan struct{}, 1), entries: map[string]*entry{}}
}

// Client is the client of this inventory's identity, for calls that change something.
func (i *Inventory) Client() *maas.Client { return i.client }

// Observe answers what is known of a machine, and tracks it from now on. While active is true the machine is looked at
// every ActiveInterval, because the caller expects it to change.
func (i *Inventory) Observe(systemID string, active bool) Observation {
	i.mu.Lock()
	defer i.mu.Unlock()
	e, tracked := i.entries[systemID]
	if !tracked {
		e = &entry{}
		i.entries[systemID] = e
	}
	if !tracked || (active && !e.active) {
		i.wakeUp()
	}
	e.active = active
	return e.Observation
}

// Wrote tells the inventory what MAAS answered to a call that changed a machine.
func (i *Inventory) Wrote(machine *maas.Machine) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.entries[machine.SystemID] = &entry{
		Observation: Observation{Known: true, Machine: machine}, active: true, written: time.Now(),
	}
	i.wakeUp()
}

// Distrust makes the inventory look at a machine anew before it says anything about it: a write failed, or its reply
// does not hold the whole machine.
func (i *Inventory) Distrust(systemID string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.entries[systemID] = &entry{active: true, written: time.Now()}
	i.wakeUp()
}

// Forget stops tracking a machine.
func (i *Inventory) Forget(systemID string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.entries, systemID)
}

// Health is nil while MAAS can be read, else the error of the last look.
func (i *Inventory) Health() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.health
}

func (i *Inventory) wakeUp() {
	select {
	case i.wake <- struct{}{}:
	default:
	}
}

// due answers the machines to ask for now: those nothing is known of, those expected to change, or all.
func (i *Inventory) due(all bool) []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	var ids []string
	for id, e := range i.entries {
		if all || e.active || !e.Known {
			ids = append(ids, id)
		}
	}
	return ids
}

// apply takes in an answer that was asked for at a certain time, and returns the machines that changed.
func (i *Inventory) apply(asked time.Time, ids []string, machines []*maas.Machine) []string {
	found := make(map[string]*maas.Machine, len(machines))
	for _, machine := range machines {
		found[machine.SystemID] = machine
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	var changed []string
	for _, id := range ids {
		e, tracked := i.entries[id]
		if !tracked || e.written.After(asked) {
			continue
		}
		now := Observation{Known: true, Machine: found[id]}
		if !reflect.DeepEqual(e.Observation, now) {
			e.Observation = now
			changed = append(changed, id)
		}
	}
	return changed
}

// setHealth returns all machines when MAAS became readable or unreadable, for their conditions say so.
func (i *Inventory) setHealth(err error) []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	flipped := (err == nil) != (i.health == nil)
	i.health = err
	if !flipped {
		return nil
	}
	ids := make([]string, 0, len(i.entries))
	for id := range i.entries {
		ids = append(ids, id)
	}
	return ids
}

// noteHealth takes in whether MAAS could be read. One answer that was lost is no news for all machines: MAAS is away when the client
// sends no more calls.
func (i *Inventory) noteHealth(err error) {
	if _, open := i.client.NextProbe(); errors.Is(err, maas.Unavailable) && !open {
		return
	}
	i.notify(i.setHealth(err))
}

func (i *Inventory) notify(ids []string) {
	for _, id := range ids {
		i.opts.Notify(id)
	}
}

// look asks MAAS for the machines that are due.
func (i *Inventory) look(ctx context.Context, all bool) error {
	ids := i.due(all)
	if _, waiting := i.client.NextProbe(); waiting && len(ids) == 0 {
		return i.probe(ctx)
	}
	for len(ids) > 0 {
		batch := ids[:min(len(ids), batchSize)]
		ids = ids[len(batch):]
		asked := time.Now()
		machines, err := i.client.ListMachines(ctx, maas.MachineFilter{SystemIDs: batch})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		i.noteHealth(err)
		if err != nil {
			return err
		}
		i.notify(i.apply(asked, batch, machines))
	}
	return nil
}

// probe asks MAAS for the least that there is, to see whether it answers again.
func (i *Inventory) probe(ctx context.Context) error {
	_, err := i.client.Version(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	i.noteHealth(err)
	return err
}
