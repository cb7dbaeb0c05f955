// SPDX-License-Identifier: Apache-2.0

package simulator

import "sync"

// ChangeKind is the kind of a change.
type ChangeKind string

// The kinds of changes.
const (
	ChangeCreated   ChangeKind = "created"
	ChangeStatus    ChangeKind = "status"
	ChangePower     ChangeKind = "power"
	ChangeAddresses ChangeKind = "addresses"
	ChangeDeleted   ChangeKind = "deleted"
)

// Change is one transition of a machine: status names, power states, or addresses joined with commas.
type Change struct {
	Kind ChangeKind `json:"kind"`
	From string     `json:"from"`
	To   string     `json:"to"`
}

// Subscribe makes the simulator call fn after each transition of a machine, with the machine as it was right after it,
// one call at a time and in the order of the events, from now on. fn may call the simulator, except Close. cancel does
// not wait for a call that is under way.
func (s *Simulator) Subscribe(fn func(MachineSnapshot, Change)) (cancel func()) {
	return s.events.subscribe(fn)
}

// publish queues a change for the subscribers. The caller holds s.mu.
func (s *Simulator) publish(m *machine, kind ChangeKind, from, to string) {
	if from == to || m.device {
		return
	}
	s.log.V(1).Info("Machine changed", "systemID", m.systemID, "hostname", m.hostname, "kind", kind, "from", from, "to", to)
	if (kind == ChangeStatus || kind == ChangeCreated || kind == ChangeDeleted) && s.observers.any() {
		machine := s.snapshot(m)
		s.observers.tell(func(o Observer) { o.Changed(machine, kind == ChangeDeleted) })
	}
	s.events.put(s.snapshot(m), Change{Kind: kind, From: from, To: to})
}

// dispatcher delivers changes in order, outside of the lock under which they happen.
type dispatcher struct {
	mu          sync.Mutex
	filled      *sync.Cond
	queue       []queued
	subscribers map[int]subscriber
	next        int
	number      int // of the last change
	closed      bool
}

// subscriber gets the changes after a certain one.
type subscriber struct {
	fn    func(MachineSnapshot, Change)
	after int
}

type queued struct {
	number  int
	machine MachineSnapshot
	change  Change
}

func (d *dispatcher) init() {
	d.filled = sync.NewCond(&d.mu)
	d.subscribers = map[int]subscriber{}
}

func (d *dispatcher) subscribe(fn func(MachineSnapshot, Change)) func() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.next++
	id := d.next
	d.subscribers[id] = subscriber{fn, d.number}
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.subscribers, id)
	}
}

func (d *dispatcher) put(m MachineSnapshot, c Change) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.subscribers) == 0 {
		return
	}
	d.number++
	d.queue = append(d.queue, queued{d.number, m, c})
	d.filled.Signal()
}

func (d *dispatcher) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	d.filled.Signal()
}

// run delivers until close, and then the rest.
func (d *dispatcher) run() {
	for {
		d.mu.Lock()
		for len(d.queue) == 0 && !d.closed {
			d.filled.Wait()
		}
		if len(d.queue) == 0 {
			d.mu.Unlock()
			return
		}
		first := d.queue[0]
		d.queue = d.queue[1:]
		var fns []func(MachineSnapshot, Change)
		for id := 1; id <= d.next; id++ {
			if s, ok := d.subscribers[id]; ok && first.number > s.after {
				fns = append(fns, s.fn)
			}
		}
		d.mu.Unlock()
		for _, fn := range fns {
			fn(first.machine, first.change)
		}
	}
}
