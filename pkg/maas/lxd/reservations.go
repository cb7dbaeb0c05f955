// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"slices"
	"sync"
	"time"
)

const (
	// figuresMaxAge is how long a VM counts that was composed, for those who read the hosts' figures before that.
	figuresMaxAge = 5 * time.Minute
	// recordedAfter is how long a VM that was composed may be missing among the peers that callers know.
	recordedAfter = 30 * time.Second
	// doubtMaxAge is how long a VM counts of which MAAS did not say whether it was composed. MAAS gives up after two minutes; a
	// host that goes on by itself is looked at again by MAAS within this time.
	doubtMaxAge = 15 * time.Minute
)

// Reservations are VMs that were placed but that the hosts' figures do not show yet. Without them, two reconcilers that
// run at the same time would see the same room and overbook a host. All who place VMs must share them, also those who see
// one MAAS through different credentials, or by different URLs.
type Reservations struct {
	mu    sync.Mutex
	byVM  map[string]reservation
	clock func() time.Time
}

type reservation struct {
	on      HostKey
	host    string
	zone    string
	cluster string
	pool    string
	taken   Resources
	// settled is when the VM was composed; figures asked for later include it. Zero while it is being composed.
	settled time.Time
	// doubted is when MAAS's answer was lost: the VM may appear in the figures late, or never.
	doubted time.Time
}

// NewReservations makes an empty book.
func NewReservations() *Reservations {
	return &Reservations{byVM: map[string]reservation{}, clock: time.Now}
}

// place chooses a host with everything reserved counted, and reserves the room, in one step.
func (r *Reservations) place(hosts []Host, spec VMSpec, peers []Peer) (Host, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byVM, spec.Hostname)
	r.forget()
	near := countPeers(peers)
	r.addReserved(near, peers, spec.Cluster)
	host, err := place(r.count(hosts), &spec, near)
	if err != nil {
		return Host{}, err
	}
	r.byVM[spec.Hostname] = reservation{
		on: host.Key(), host: host.Name, zone: host.Zone, cluster: spec.Cluster, pool: spec.StoragePool, taken: spec.Resources,
	}
	return host, nil
}

// forget drops what the figures show by now, whoever reads them.
func (r *Reservations) forget() {
	now := r.clock()
	for vm, held := range r.byVM {
		old := !held.settled.IsZero() && now.Sub(held.settled) > figuresMaxAge
		if old || (!held.doubted.IsZero() && now.Sub(held.doubted) > doubtMaxAge) {
			delete(r.byVM, vm)
		}
	}
}

// count adds what is reserved to the hosts' figures, where these don't show it. The hosts themselves are not changed.
func (r *Reservations) count(hosts []Host) []Host {
	if len(r.byVM) == 0 {
		return hosts
	}
	onHost := map[HostKey][]reservation{}
	for _, held := range r.byVM {
		onHost[held.on] = append(onHost[held.on], held)
	}
	counted := slices.Clone(hosts)
	for i := range counted {
		for _, held := range onHost[counted[i].Key()] {
			if held.settled.IsZero() || !counted[i].SeenAt.After(held.settled) {
				take(&counted[i], held)
			}
		}
	}
	return counted
}

// take counts a VM on a host, and on the storage pool that it has its disk on: where there is no default, MAAS takes any.
func take(host *Host, held reservation) {
	host.Used = host.Used.add(held.taken)
	host.StoragePools = slices.Clone(host.StoragePools)
	if pool := storagePool(host, held.pool); pool != nil {
		pool.Available = sum(pool.Available, -held.taken.Disk)
		return
	}
	for i := range host.StoragePools {
		host.StoragePools[i].Available = sum(host.StoragePools[i].Available, -held.taken.Disk)
	}
}

// addReserved adds the cluster's reserved VMs to its peers, unless they are there already, or were and are gone.
func (r *Reservations) addReserved(near *neighbours, peers []Peer, cluster string) {
	if len(r.byVM) == 0 {
		return
	}
	now := r.clock()
	known := map[string]bool{}
	for i := range peers {
		held, reserved := r.byVM[peers[i].VM]
		if !reserved {
			continue
		}
		known[peers[i].VM] = true
		if !held.doubted.IsZero() { // It turned up.
			held.settled, held.doubted = now, time.Time{}
			r.byVM[peers[i].VM] = held
		}
	}
	for vm, held := range r.byVM {
		recorded := !held.settled.IsZero() && now.Sub(held.settled) > recordedAfter
		if held.cluster == cluster && !known[vm] && !recorded {
			near.add(held.host, held.zone)
		}
	}
}

// settle notes that a VM was composed: the next figures include it.
func (r *Reservations) settle(vm string) {
	r.change(vm, func(held *reservation) { held.settled = r.clock() })
}

// doubt notes that it is not known whether a VM was composed.
func (r *Reservations) doubt(vm string) {
	r.change(vm, func(held *reservation) { held.doubted = r.clock() })
}

func (r *Reservations) change(vm string, how func(*reservation)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if held, ok := r.byVM[vm]; ok {
		how(&held)
		r.byVM[vm] = held
	}
}

// cancel gives back what was reserved for a VM that was not composed.
func (r *Reservations) cancel(vm string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byVM, vm)
}
