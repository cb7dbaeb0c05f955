// SPDX-License-Identifier: Apache-2.0

package simulator

import "sync"

// Observer is told what happens, in the order in which it does. Came may take its time: the call waits. The other
// functions run under the region's lock, and so must not call the simulator.
type Observer struct {
	// Came is told of a call that has come, Did of one that was executed: with the machine before and after it, nil if it
	// was about none. Replied is told of one whose reply is about to be sent.
	Came    func(Call)
	Did     func(call Call, before, after *MachineSnapshot)
	Replied func(Call)
	// Changed is told of a machine whose status has changed, which MAAS has had made, or deleted.
	Changed func(machine MachineSnapshot, deleted bool)
}

type observers struct {
	mu   sync.Mutex
	list map[int]Observer
	next int
}

// Observe tells an observer what happens from now on. cancel does not wait for a call that is under way.
func (s *Simulator) Observe(o Observer) (cancel func()) {
	s.observers.mu.Lock()
	defer s.observers.mu.Unlock()
	if s.observers.list == nil {
		s.observers.list = map[int]Observer{}
	}
	id := s.observers.next
	s.observers.next++
	s.observers.list[id] = o
	return func() {
		s.observers.mu.Lock()
		defer s.observers.mu.Unlock()
		delete(s.observers.list, id)
	}
}

func (o *observers) tell(each func(Observer)) {
	o.mu.Lock()
	all := make([]Observer, 0, len(o.list))
	for _, one := range o.list {
		all = append(all, one)
	}
	o.mu.Unlock()
	for _, one := range all {
		each(one)
	}
}

func (o *observers) any() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.list) > 0
}

// did executes a call that changes something, and tells the observers of it. The caller holds the region's lock.
func (rq *request) did(execute func() *reply) *reply {
	if rq.call.Method == get || !rq.observers.any() {
		return execute()
	}
	before := rq.observed(rq.call.SystemID)
	out := execute()
	call := *rq.call
	call.Status = out.status
	after := rq.observed(call.SystemID)
	rq.observers.tell(func(o Observer) { o.Did(call, before, after) })
	return out
}

func (s *Simulator) observed(systemID string) *MachineSnapshot {
	for _, m := range s.db.machines {
		if m.systemID == systemID && systemID != "" {
			snapshot := s.snapshot(m)
			return &snapshot
		}
	}
	return nil
}
