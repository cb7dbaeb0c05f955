// SPDX-License-Identifier: Apache-2.0

// Package inventory caches the tracked machines of a MAAS, its VM hosts, zones, subnets and domains.
//
// MAAS cannot be watched, and a call per machine does not scale. So one inventory per identity polls all tracked
// machines in one list, often while some of them change and seldom otherwise, keeps the last result, and notifies of
// the machines that changed. Reconcilers read it instead of MAAS.
package inventory

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/internal/cache"
)

// Options tune an inventory.
type Options struct {
	// ActiveInterval is the time between two polls of machines that are expected to change.
	ActiveInterval time.Duration
	// IdleInterval is the time between two polls of all tracked machines.
	IdleInterval time.Duration
	// Notify is called with the system id of each machine whose observation changed. It must not block for long.
	// nil: nothing is called.
	Notify func(systemID string)
	Logger logr.Logger
}

// Observation is what MAAS last reported of one machine.
type Observation struct {
	// Known is false until MAAS has been asked for this machine.
	Known bool
	// Machine is MAAS's last response; nil if MAAS returned 404, unless the machine is Hidden. Don't change it.
	Machine *maas.Machine
	// Hidden: MAAS has the machine, and refuses to show it to this identity (403). Machine is then as last seen, or
	// nil.
	Hidden bool
	// Vanished is 0, or the number of machines that are gone at the same time as this one: too many to believe that
	// each was deleted.
	Vanished int
	// At is when MAAS was asked for what it reported: what has taken effect later may not show. The zero time is not
	// known.
	At time.Time
}

// Interest is what a reconciler expects of a machine.
type Interest int

const (
	// Settled machines are polled every IdleInterval.
	Settled Interest = iota
	// Changing machines are polled every ActiveInterval.
	Changing
	// Leaving is like Changing, for a machine that is being deleted: its absence is expected.
	Leaving
)

// Inventory is the shared view of one MAAS through one identity. It is safe for concurrent use.
type Inventory struct {
	client *maas.Client
	source source // the client, except in tests
	opts   Options
	wake   chan struct{} // poll at once
	soon   chan struct{} // poll as machines that change are polled
	now    func() time.Time
	batch  batch
	pace   pace            // only for Run's goroutine
	life   context.Context // ends with Run
	end    context.CancelFunc

	mu      sync.Mutex
	entries map[string]*entry
	health  error

	vmHosts  cache.Value[vmHostList]
	hosting  cache.Value[map[string]*maas.Machine]
	metal    metal
	zones    cache.Value[[]maas.Ref]
	pools    cache.Value[[]maas.Ref]
	subnets  cache.Value[[]maas.Subnet]
	domains  cache.Value[[]maas.Domain]
	images   cache.Value[[]maas.Image]
	details  cache.Values[int, maas.ImageDetail]
	projects cache.Values[int, hostProject]
	records  cache.Values[string, *maas.DNSResource]
	tags     cache.Value[[]maas.Tag]
	user     cache.Value[maas.User]
	used     cache.Values[int, SubnetUse]
	tagged   cache.Values[string, []*maas.Machine]
	scripts  cache.Value[[]maas.Script]

	entitlements cache.Value[bool] // whether MAAS has any
}

// source is the part of the client that polls use.
type source interface {
	ListMachines(ctx context.Context, filter maas.MachineFilter) ([]*maas.Machine, error)
	AllMachines(ctx context.Context) ([]*maas.Machine, error)
	GetMachine(ctx context.Context, systemID string) (*maas.Machine, error)
	ListDevices(ctx context.Context, filter maas.DeviceFilter) ([]*maas.Device, error)
	GetDevice(ctx context.Context, systemID string) (*maas.Device, error)
	Version(ctx context.Context) (maas.Version, error)
}

type entry struct {
	Observation
	interest Interest
	since    time.Time // when it was first observed
	observed time.Time // when it was last observed
	written  time.Time // when a reconciler last reported a write; older responses don't count
	at       time.Time // when MAAS was asked for the observation
	asked    time.Time // when a list last asked for it
	missing  time.Time // when the first list was requested that lacked it, until MAAS was asked for it alone
	checked  time.Time // when MAAS was last asked for it alone
	unlisted bool      // MAAS has it, but lists lack it
	device   bool      // it is a device of MAAS's, as MAAS has shown, or as who observes it says
	shown    bool      // MAAS has shown which it is; it gives no id twice
	doubted  bool      // since a call failed, until MAAS has been asked: nobody may rely on the observation
	alone    bool      // a list of it alone failed: no list asks for it and others, until MAAS can list it
}

// New makes an inventory. Run starts polling.
func New(client *maas.Client, opts Options) *Inventory {
	life, end := context.WithCancel(context.Background())
	if opts.Notify == nil {
		opts.Notify = func(string) {}
	}
	return &Inventory{
		life: life, end: end, client: client, source: client, opts: opts,
		wake: make(chan struct{}, 1), soon: make(chan struct{}, 1), now: time.Now, entries: map[string]*entry{},
		batch: batch{size: batchSize},
	}
}

// Client returns the client of this inventory's identity. Calls that change a machine go through Change.
func (i *Inventory) Client() *maas.Client { return i.client }

// ObserveDevice is Observe for what should be a device, which is observed as a machine: see maas.Device.AsMachine.
func (i *Inventory) ObserveDevice(systemID string, interest Interest) Observation {
	return i.observe(systemID, interest, true)
}

// Observe returns the observation of a machine, and tracks the machine from now on.
func (i *Inventory) Observe(systemID string, interest Interest) Observation {
	return i.observe(systemID, interest, false)
}

func (i *Inventory) observe(systemID string, interest Interest, device bool) Observation {
	i.mu.Lock()
	defer i.mu.Unlock()
	tracked := i.entries[systemID] != nil
	e := i.track(systemID)
	e.device = e.device || (device && !e.shown)
	if !tracked || (interest != Settled && e.interest == Settled) {
		signal(i.wake)
	}
	e.interest = interest
	return e.seen()
}

// seen returns what may be relied on.
func (e *entry) seen() Observation {
	if e.doubted {
		return Observation{}
	}
	seen := e.Observation
	seen.At = e.at
	return seen
}

// Peek returns the observation of a machine, and whether it is tracked. It changes nothing: it is for who does not care
// for the machine.
func (i *Inventory) Peek(systemID string) (seen Observation, tracked bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	e := i.entries[systemID]
	if e == nil {
		return Observation{}, false
	}
	return e.seen(), true
}

// Track starts tracking a machine that was just acquired, as MAAS returned it.
func (i *Inventory) Track(machine *maas.Machine) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.track(machine.SystemID)
	i.write(machine.SystemID, Observation{Known: true, Machine: machine}, time.Time{})
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

// write replaces the observation of a tracked machine after a write, and reports whether that is another one than
// before. If the response did not hold the machine, it is polled at once, otherwise soon. asked is when the call began.
// The caller holds i.mu.
func (i *Inventory) write(systemID string, now Observation, asked time.Time) (changed bool) {
	e := i.entries[systemID]
	if e == nil {
		return false
	}
	changed = e.set(now)
	e.at = asked
	e.interest, e.written, e.missing, e.doubted = max(e.interest, Changing), i.now(), time.Time{}, false
	if now.Known {
		signal(i.soon)
	} else {
		signal(i.wake)
	}
	return changed
}

// doubt has the machine polled soon, and its observation withheld until then. The caller holds i.mu.
func (i *Inventory) doubt(systemID string) {
	e := i.entries[systemID]
	if e == nil {
		return
	}
	signal(i.soon)
	e.doubted, e.written, e.missing = true, i.now(), time.Time{}
}

// Forget stops tracking a machine.
func (i *Inventory) Forget(systemID string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.entries, systemID)
}

// Health returns nil while MAAS can be read, else the error of the last poll.
func (i *Inventory) Health() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.health
}

func signal(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// setHealth returns all machines when MAAS became readable or unreadable: their conditions report that.
func (i *Inventory) setHealth(err error) []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	flipped := (err == nil) != (i.health == nil)
	i.health = err
	if !flipped {
		return nil
	}
	return slices.Collect(maps.Keys(i.entries))
}

// recordHealth records whether MAAS could be read, and reports whether it counts as unreadable because of this error. A
// single lost response does not concern all machines: MAAS counts as unavailable once the client's circuit is open, or
// lists fail again and again.
func (i *Inventory) recordHealth(err error) (ill bool) {
	_, open := i.client.NextProbe()
	if errors.Is(err, maas.Unavailable) && !open && i.pace.failed < failedLists {
		return false
	}
	i.notify(i.setHealth(err))
	return err != nil
}

// handOver notifies of all machines: another inventory observes them, once their reconcilers ask it.
func (i *Inventory) handOver() {
	i.mu.Lock()
	ids := slices.Collect(maps.Keys(i.entries))
	i.mu.Unlock()
	i.notify(ids)
}

func (i *Inventory) notify(ids []string) {
	for _, id := range ids {
		i.opts.Notify(id)
	}
}
