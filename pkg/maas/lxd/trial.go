// SPDX-License-Identifier: Apache-2.0

package lxd

import "maps"

// Trial places VMs as a Service does, one after the other, and makes none. Its reservations are its own. It is not safe
// for concurrent use.
type Trial struct {
	reservations *Reservations
}

// NewTrial returns a Trial in which nothing was placed yet.
func NewTrial() *Trial { return &Trial{reservations: NewReservations()} }

// Trial returns one that begins with the VMs for which room is reserved now.
func (s *Service) Trial() *Trial {
	r := s.reservations
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget()
	ledger := &Ledger{byVM: maps.Clone(r.byVM), clock: r.clock}
	return &Trial{reservations: ledger.Of(r.server)}
}

// Place chooses the host for a VM beside its peers, and takes the room. VMs that were placed before are peers already.
// The error is an *LXDError with the reason for each host.
func (t *Trial) Place(hosts []Host, spec VMSpec, peers []Peer) (Host, error) {
	return t.reservations.place(hosts, spec, peers)
}

// Room returns the room of each zone for more VMs of a spec beside its peers; see Service.Room.
func (t *Trial) Room(hosts []Host, spec VMSpec, peers []Peer) map[string]Room {
	return t.reservations.survey(hosts, spec, peers)
}

// Remove gives the room of a VM back: of one that was placed before, or of one that the figures of a host include.
func (t *Trial) Remove(vm string, on HostKey, had Footprint) {
	held, key := t.reservations.byVM, t.reservations.server.Key
	if _, placed := held[key(vm)]; placed {
		delete(held, key(vm))
		return
	}
	held[key("without "+vm)] = reservation{on: on, taken: had.negative()}
}
