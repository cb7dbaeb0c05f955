// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"slices"
	"sync"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
)

const (
	// figuresMaxAge is how long a composed VM counts for readers of figures that are older than it.
	figuresMaxAge = 5 * time.Minute
	// doubtMaxAge is how long a VM counts whose compose has an unknown outcome. MAAS gives up after two minutes; if the
	// host finishes the VM later, MAAS refreshes the host within this time.
	doubtMaxAge = 15 * time.Minute
)

// Ledger has the Reservations of all MAASes: several may place VMs on one LXD.
type Ledger struct {
	mu    sync.Mutex
	byVM  map[guard.Key]reservation
	clock func() time.Time
}

// Reservations are VMs of one MAAS that were placed but that the hosts' figures do not include yet. Without them, two
// concurrent reconcilers would see the same room and overbook a host. All who place VMs must share a Ledger.
type Reservations struct {
	*Ledger
	server guard.Server
}

type reservation struct {
	on      HostKey
	host    string
	zone    string
	cluster string
	taken   Footprint
	// settled is when the VM was composed; figures requested later include it. Zero while it is being composed.
	settled time.Time
	// doubted is when MAAS's response was lost: the figures may include the VM late, or never.
	doubted time.Time
	// known reports whether the VM is among the peers that callers know, or was and is gone.
	known bool
}

// NewLedger returns an empty Ledger.
func NewLedger() *Ledger { return &Ledger{byVM: map[guard.Key]reservation{}, clock: time.Now} }

// Of returns the Reservations of a MAAS, which all its identities share.
func (l *Ledger) Of(server guard.Server) *Reservations {
	return &Reservations{Ledger: l, server: server}
}

// NewReservations returns Reservations that nobody shares, to find out where VMs would be placed: in no MAAS.
func NewReservations() *Reservations { return NewLedger().Of(guard.Server{}) }

// Place chooses a host with all reservations counted, and reserves the room, in one step. The error is an *LXDError
// with the reason for each host.
func (r *Reservations) Place(hosts []Host, spec VMSpec, peers []Peer) (Host, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byVM, r.server.Key(spec.Hostname))
	r.forget()
	near := countPeers(peers, hosts)
	r.addReserved(near, peers, spec.Cluster)
	host, err := place(r.count(hosts), &spec, near)
	if err != nil {
		return Host{}, err
	}
	r.byVM[r.server.Key(spec.Hostname)] = reservation{
		on: host.Key(), host: host.Name, zone: host.Zone, cluster: spec.Cluster, taken: spec.Footprint(),
	}
	return host, nil
}

// Room returns the room of each zone for more VMs of a spec beside its peers, with all reservations counted. Zones
// without a suitable host are left out.
func (r *Reservations) Room(hosts []Host, spec VMSpec, peers []Peer) map[string]Room {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget()
	near := countPeers(peers, hosts)
	r.addReserved(near, peers, spec.Cluster)
	return survey(r.count(hosts), &spec, near)
}

// forget drops the reservations that the figures include by now, whoever reads them.
func (l *Ledger) forget() {
	now := l.clock()
	for vm, held := range l.byVM {
		old := !held.settled.IsZero() && now.Sub(held.settled) > figuresMaxAge
		if old || (!held.doubted.IsZero() && now.Sub(held.doubted) > doubtMaxAge) {
			delete(l.byVM, vm)
		}
	}
}

// count returns the hosts with the reservations that their figures don't include added. hosts is not changed.
func (l *Ledger) count(hosts []Host) []Host {
	if len(l.byVM) == 0 {
		return hosts
	}
	onHost := map[HostKey][]reservation{}
	for _, held := range l.byVM {
		onHost[held.on] = append(onHost[held.on], held)
	}
	counted := slices.Clone(hosts)
	for i := range counted {
		for _, held := range onHost[counted[i].Key()] {
			if held.settled.IsZero() || !counted[i].SeenAt.After(held.settled) {
				take(&counted[i], held.taken)
			}
		}
	}
	return counted
}

// take counts a VM on a host and on the storage pools of its disks. Without a default pool, MAAS takes any.
func take(host *Host, vm Footprint) {
	host.Used = host.Used.add(vm.Resources)
	host.StoragePools = slices.Clone(host.StoragePools)
	for _, disk := range vm.Disks {
		if pool := storagePool(host, disk.Pool); pool != nil {
			pool.Available = sum(pool.Available, -disk.Size)
			continue
		}
		for i := range host.StoragePools {
			host.StoragePools[i].Available = sum(host.StoragePools[i].Available, -disk.Size)
		}
	}
}

// addReserved adds the cluster's reserved VMs to its peers, unless they are there already, or were and are gone.
func (r *Reservations) addReserved(near *neighbours, peers []Peer, cluster string) {
	if len(r.byVM) == 0 {
		return
	}
	for i := range peers {
		vm := r.server.Key(peers[i].VM)
		if held, reserved := r.byVM[vm]; reserved {
			held.known = true
			if !held.doubted.IsZero() { // It appeared.
				held.settled, held.doubted = r.clock(), time.Time{}
			}
			r.byVM[vm] = held
		}
	}
	for vm, held := range r.byVM {
		if vm.Server() == r.server && held.cluster == cluster && !held.known {
			near.add(held.host, held.zone)
		}
	}
}

// settle records that a VM was composed: the next figures include it.
func (r *Reservations) settle(vm string) {
	r.change(vm, func(held *reservation) { held.settled = r.clock() })
}

// gone records that a VM was deleted: it is no peer. Figures that are older than the deletion may include it.
func (r *Reservations) gone(vm string) {
	r.change(vm, func(held *reservation) { held.known = true })
}

// doubt records that the outcome of a compose is unknown.
func (r *Reservations) doubt(vm string) {
	r.change(vm, func(held *reservation) { held.doubted = r.clock() })
}

func (r *Reservations) change(vm string, how func(*reservation)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := r.server.Key(vm)
	if held, ok := r.byVM[key]; ok {
		how(&held)
		r.byVM[key] = held
	}
}

// cancel returns the room of a VM that was not composed.
func (r *Reservations) cancel(vm string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byVM, r.server.Key(vm))
}

// Remove gives the room of a VM back: of one that was placed before, or of one that the figures of a host include.
func (r *Reservations) Remove(vm string, on HostKey, had Footprint) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := r.server.Key(vm)
	if _, placed := r.byVM[key]; placed {
		delete(r.byVM, key)
		return
	}
	r.byVM[r.server.Key("without "+vm)] = reservation{on: on, taken: had.negative()}
}
