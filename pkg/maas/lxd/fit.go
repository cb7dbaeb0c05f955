// SPDX-License-Identifier: Apache-2.0

package lxd

import "slices"

// Wanted is a VM that is to be placed beside its peers.
type Wanted struct {
	Spec  VMSpec
	Peers []Peer
}

// Fits returns nil if a VM can be placed after some others, which are placed first, each where it would be now;
// otherwise the *LXDError with the reason for each host. Those of the others that fit nowhere wait, and take no room.
// It is pure.
func Fits(hosts []Host, others []Wanted, vm Wanted) error {
	hosts = slices.Clone(hosts)
	for i := range others {
		// Another one's place is no business of this VM.
		_ = placeAt(hosts, &others[i])
	}
	return placeAt(hosts, &vm)
}

// placeAt takes the room of a VM on the host that it would be placed on.
func placeAt(hosts []Host, vm *Wanted) error {
	chosen, err := place(hosts, &vm.Spec, countPeers(vm.Peers))
	if err != nil {
		return err
	}
	take(&hosts[indexOf(hosts, chosen)], vm.Spec.Footprint())
	return nil
}

// indexOf returns where a host is in a list that it was chosen from: another LXDHost may name the same LXD.
func indexOf(hosts []Host, chosen Host) int {
	return slices.IndexFunc(hosts, func(h Host) bool { return h.Key() == chosen.Key() && h.Object == chosen.Object })
}

// Counted returns the hosts with the room that is reserved on them taken: for VMs that are being composed, and that
// their figures don't include.
func (s *Service) Counted(hosts []Host) []Host {
	r := s.reservations
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget()
	return r.count(hosts)
}
