// SPDX-License-Identifier: Apache-2.0

package chaos_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// recordInterval is how often the DNS records are read.
const recordInterval = 20 * time.Millisecond

// endpoint is the DNS record of a cluster that lives.
type endpoint struct {
	cluster, name string
	led           bool
	// left are the addresses of control planes that were given back, and that no machine of the cluster uses again.
	left map[netip.Addr]string
	// was is the addresses that it had.
	was []netip.Addr
	// wrong is what was already reported.
	wrong map[string]bool
}

// endpoints watches the records of all API endpoints: a record that had an address must always have one, and none of a
// machine that MAAS has begun to release.
type endpoints struct {
	maas   *simulator.Simulator
	report func(cluster, what string)
	cancel func()
	stop   chan struct{}
	done   sync.WaitGroup

	mutex     sync.Mutex
	watched   map[string]*endpoint                 // by the names of their clusters
	addresses map[string][]netip.Addr              // by system id, the last that each had
	stolen    map[string]bool                      // by system id
	devices   map[string]simulator.MachineSnapshot // by system id, as last seen
}

func watchEndpoints(maas *simulator.Simulator, report func(cluster, what string)) *endpoints {
	e := &endpoints{maas: maas, report: report, stop: make(chan struct{}), watched: map[string]*endpoint{},
		addresses: map[string][]netip.Addr{}, stolen: map[string]bool{}, devices: map[string]simulator.MachineSnapshot{}}
	e.cancel = maas.Subscribe(e.record)
	e.done.Go(func() {
		tick := time.NewTicker(recordInterval)
		defer tick.Stop()
		for {
			e.check()
			select {
			case <-e.stop:
				return
			case <-tick.C:
			}
		}
	})
	return e
}

func (e *endpoints) close() {
	e.cancel()
	close(e.stop)
	e.done.Wait()
}

// begin watches the record of a cluster, and endOf ends that.
func (e *endpoints) begin(cluster, name string) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	e.watched[cluster] = &endpoint{cluster: cluster, name: name, left: map[netip.Addr]string{}, wrong: map[string]bool{}}
}

func (e *endpoints) endOf(cluster string) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	delete(e.watched, cluster)
}

// theirs records whether another user has a machine, from now on.
func (e *endpoints) theirs(systemID string, have bool) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	e.stolen[systemID] = have
}

// record stores the addresses of machines, and which are no longer theirs.
func (e *endpoints) record(m simulator.MachineSnapshot, change simulator.Change) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	e.changed(m, change)
}

func (e *endpoints) changed(m simulator.MachineSnapshot, change simulator.Change) {
	if len(m.Addresses) > 0 && m.Status == "Deployed" {
		e.addresses[m.SystemID] = m.Addresses
		for _, watched := range e.watched {
			for _, address := range m.Addresses {
				delete(watched.left, address)
			}
		}
	}
	released := change.Kind == simulator.ChangeStatus && change.From == "Deployed" && (m.Status == "Releasing" || m.Status == "Disk erasing")
	if !released && change.Kind != simulator.ChangeDeleted {
		return
	}
	for _, watched := range e.watched {
		for _, address := range e.addresses[m.SystemID] {
			watched.left[address] = m.Hostname
		}
	}
	delete(e.addresses, m.SystemID)
}

// look records which devices there are, and which are gone: nothing tells.
func (e *endpoints) look() {
	before := e.devices
	e.devices = map[string]simulator.MachineSnapshot{}
	for _, d := range e.maas.Devices() {
		d.Status = "Deployed"
		e.devices[d.SystemID] = d
		e.changed(d, simulator.Change{Kind: simulator.ChangeAddresses})
	}
	for id, d := range before {
		if _, there := e.devices[id]; !there {
			d.Status = ""
			e.changed(d, simulator.Change{Kind: simulator.ChangeDeleted})
		}
	}
}

func (e *endpoints) check() {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	e.look()
	for _, watched := range e.watched {
		leads := e.maas.Lookup(watched.name)
		if watched.led && len(leads) == 0 {
			e.reportOnce(watched, "led nowhere after it had led somewhere")
		}
		watched.led = watched.led || len(leads) > 0
		e.lookForThieves(watched, leads)
		for _, address := range leads {
			if machine, left := watched.left[address]; left && !slices.Contains(e.inUse(), address) {
				e.reportOnce(watched, fmt.Sprintf("led to %s, which %s had when it was released", address, machine))
			}
		}
	}
}

// lookForThieves checks that a record is not changed to lead to a machine that another user has.
func (e *endpoints) lookForThieves(watched *endpoint, leads []netip.Addr) {
	for _, address := range leads {
		if slices.Contains(watched.was, address) {
			continue
		}
		for id, have := range e.stolen {
			m, _ := e.maas.Machine(id)
			if have && slices.Contains(m.Addresses, address) {
				e.reportOnce(watched, fmt.Sprintf("was led to %s, which another user took with %s", address, m.Hostname))
			}
		}
	}
	watched.was = leads
}

// inUse are the addresses of machines that run.
func (e *endpoints) inUse() []netip.Addr {
	var list []netip.Addr
	for _, m := range e.maas.Machines() {
		if m.Status == "Deployed" {
			list = append(list, m.Addresses...)
		}
	}
	for _, d := range e.devices {
		list = append(list, d.Addresses...)
	}
	return list
}

// reportOnce reports each thing once.
func (e *endpoints) reportOnce(of *endpoint, what string) {
	if of.wrong[what] {
		return
	}
	of.wrong[what] = true
	e.report(of.cluster, strings.Join([]string{"the DNS record", of.name, what}, " "))
}
