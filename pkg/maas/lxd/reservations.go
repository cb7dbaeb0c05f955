// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"slices"
	"sync"
	"time"
)

// reservations are VMs that were placed but that the hosts' figures do not show yet. Without them, two reconcilers that
// run at the same time would see the same room and overbook a host.
type reservations struct {
	mu    sync.Mutex
	byVM  map[string]reservation
	clock func() time.Time
}

type reservation struct {
	host    string
	zone    string
	cluster string
	pool    string
	taken   Resources
	// settled is when the VM was composed; figures asked for later include it. Zero while it is being composed.
	settled time.Time
}

func newReservations() *reservations {
	return &reservations{byVM: map[string]reservation{}, clock: time.Now}
}

// place chooses a host with everything reserved counted, and reserves the room, in one step.
func (r *reservations) place(hosts []Host, spec VMSpec, peers []Peer) (Host, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byVM, spec.Hostname)
	hosts, peers = r.count(hosts, spec, peers)
	host, err := Place(hosts, spec, peers)
	if err != nil {
		return Host{}, err
	}
	r.byVM[spec.Hostname] = reservation{
		host: host.Name, zone: host.Zone, cluster: spec.Cluster, pool: spec.StoragePool, taken: spec.Resources,
	}
	return host, nil
}

// count adds what is reserved to the hosts' figures and to the peers, and drops what the figures show by now.
func (r *reservations) count(hosts []Host, spec VMSpec, peers []Peer) ([]Host, []Peer) {
	counted := make([]Host, len(hosts))
	for i, host := range hosts {
		host.StoragePools = slices.Clone(host.StoragePools)
		for vm, held := range r.byVM {
			if held.host != host.Name {
				continue
			}
			if !held.settled.IsZero() && host.SeenAt.After(held.settled) {
				delete(r.byVM, vm)
				continue
			}
			host.Used = host.Used.add(held.taken)
			if pool := storagePool(host, held.pool); pool != nil {
				pool.Available -= held.taken.Disk
			}
		}
		counted[i] = host
	}
	return counted, r.withReserved(peers, spec.Cluster)
}

// withReserved adds the cluster's reserved VMs to its peers, unless they are there already.
func (r *reservations) withReserved(peers []Peer, cluster string) []Peer {
	all := slices.Clone(peers)
	for vm, held := range r.byVM {
		known := slices.ContainsFunc(peers, func(p Peer) bool { return p.VM == vm })
		if held.cluster == cluster && !known {
			all = append(all, Peer{VM: vm, Host: held.host, Zone: held.zone})
		}
	}
	return all
}

// settle tells that a VM was composed: the next figures include it.
func (r *reservations) settle(vm string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if held, ok := r.byVM[vm]; ok {
		held.settled = r.clock()
		r.byVM[vm] = held
	}
}

// cancel gives back what was reserved for a VM that was not composed.
func (r *reservations) cancel(vm string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byVM, vm)
}
