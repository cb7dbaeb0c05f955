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
	// Machine is MAAS's last answer; nil when MAAS said that there is no such machine (404), unless it is Hidden. Don't change it.
	Machine *maas.Machine
	// Hidden: MAAS has the machine, and refuses to show it to this identity (403). Machine is then the last that was seen, or nil.
	Hidden bool
	// Vanished is 0, or how many machines are gone at the same time as this one: too many to believe that each was deleted.
	Vanished int
}

// Interest is what a reconciler expects of a machine.
type Interest int

const (
	// Settled machines are looked at every IdleInterval.
	Settled Interest = iota
	// Changing machines are looked at every ActiveInterval.
	Changing
	// Leaving is as Changing, and the machine's end was asked for: its absence is expected.
	Leaving
)

// Inventory is the shared view of one MAAS through one identity. It is safe for concurrent use.
type Inventory struct {
	client *maas.Client
	source source // the client, but in tests
	opts   Options
	wake   chan struct{}
	now    func() time.Time
	batch  batch
	pace   pace            // of Run's goroutine alone
	life   context.Context // ends with Run
	end    context.CancelFunc

	mu      sync.Mutex
	entries map[string]*entry
	health  error

	vmHosts  cached[[]maas.VMHost]
	hosting  cached[map[string]*maas.Machine]
	metal    metal
	zones    cached[[]maas.Ref]
	subnets  cached[[]maas.Subnet]
	domains  cached[[]maas.Domain]
	projects keyed[int, string]
	records  keyed[string, *maas.DNSResource]
}

// source is what a look asks MAAS for.
type source interface {
	ListMachines(ctx context.Context, filter maas.MachineFilter) ([]*maas.Machine, error)
	GetMachine(ctx context.Context, systemID string) (*maas.Machine, error)
	Version(ctx context.Context) (string, error)
}

type entry struct {
	Observation
	interest Interest
	since    time.Time // when it was first observed
	observed time.Time // when it was last observed
	written  time.Time // when a reconciler last reported a write; older answers don't count
	asked    time.Time // when a list last asked for it
	missing  time.Time // when the first list was asked for that lacked it, until MAAS has said what became of it
	checked  time.Time // when MAAS was last asked for it alone
	unlisted bool      // MAAS has it, and the lists lack it
}

// New makes an inventory; Run makes it look.
func New(client *maas.Client, opts Options) *Inventory {
	life, end := context.WithCancel(context.Background())
	return &Inventory{
		life: life, end: end, metal: metal{patience: metalPatience}, client: client, source: client, opts: opts, wake: make(chan struct{}, 1), now: time.Now, entries: map[string]*entry{},
		batch: batch{size: batchSize},
	}
}

// Client is the client of this inventory's identity, for calls that change something.
func (i *Inventory) Client() *maas.Client { return i.client }

// Observe returns what is known of a machine, and tracks it from now on.
func (i *Inventory) Observe(systemID string, interest Interest) Observation {
	i.mu.Lock()
	defer i.mu.Unlock()
	tracked := i.entries[systemID] != nil
	e := i.track(systemID)
	if !tracked || (interest != Settled && e.interest == Settled) {
		i.wakeUp()
	}
	e.interest = interest
	return e.Observation
}

// Track starts tracking a machine that was just acquired, with what MAAS answered.
func (i *Inventory) Track(machine *maas.Machine) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.track(machine.SystemID)
	i.write(machine.SystemID, Observation{Known: true, Machine: machine})
}

func (i *Inventory) track(systemID string) *entry {
	now := i.now()
	e := i.entries[systemID]
	if e == nil {
		e = &entry{since: now}
		i.entries[systemID] = e
	}
	e.observed = now
	return e
}

// Wrote takes in what MAAS answered to a call that changed a machine. It doesn't start tracking it: nothing would ever end that for a machine
// that no reconciler observes.
func (i *Inventory) Wrote(machine *maas.Machine) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.write(machine.SystemID, Observation{Known: true, Machine: machine})
}

// Distrust makes the inventory look at a tracked machine anew before it says anything about it: a write failed, or its reply
// does not hold the whole machine.
func (i *Inventory) Distrust(systemID string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.write(systemID, Observation{})
}

// write replaces what is known of a tracked machine after a write, and has it looked at. The caller holds i.mu.
func (i *Inventory) write(systemID string, now Observation) {
	e := i.entries[systemID]
	if e == nil {
		return
	}
	e.Observation, e.interest, e.written, e.missing = now, max(e.interest, Changing), i.now(), time.Time{}
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
	var silent silentError
	if _, open := i.client.NextProbe(); errors.Is(err, maas.Unavailable) && !open && !errors.As(err, &silent) {
		return
	}
	i.notify(i.setHealth(err))
}

func (i *Inventory) notify(ids []string) {
	for _, id := range ids {
		i.opts.Notify(id)
	}
}
