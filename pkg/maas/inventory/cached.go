// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// cached is one answer of MAAS, shared by all who ask. Those who ask while it is being fetched wait for the same answer.
type cached[T any] struct {
	mu    sync.Mutex
	value T
	at    time.Time // when the answer was asked for
}

// get answers a value that is no older than maxAge, and when it was asked for.
func (c *cached[T]) get(ctx context.Context, maxAge time.Duration, fetch func(context.Context) (T, error)) (T, time.Time, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.at.IsZero() && time.Since(c.at) <= maxAge {
		return c.value, c.at, nil
	}
	asked := time.Now()
	value, err := fetch(ctx)
	if err != nil {
		var none T
		return none, time.Time{}, err
	}
	c.value, c.at = value, asked
	return c.value, c.at, nil
}

// set puts in what a write answered.
func (c *cached[T]) set(value T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.value, c.at = value, time.Now()
}

// drop forgets the answer.
func (c *cached[T]) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = time.Time{}
}

// keyed is a cached value for each key.
type keyed[K comparable, T any] struct {
	mu     sync.Mutex
	values map[K]*cached[T]
}

func (k *keyed[K, T]) at(key K) *cached[T] {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.values == nil {
		k.values = map[K]*cached[T]{}
	}
	if k.values[key] == nil {
		k.values[key] = &cached[T]{}
	}
	return k.values[key]
}

func (k *keyed[K, T]) drop(key K) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.values, key)
}

// VMHosts answers MAAS's VM hosts, no older than maxAge, and when they were asked for.
func (i *Inventory) VMHosts(ctx context.Context, maxAge time.Duration) ([]maas.VMHost, time.Time, error) {
	return i.vmHosts.get(ctx, maxAge, i.client.ListVMHosts)
}

// DistrustVMHosts makes the next VMHosts ask MAAS: one was changed or removed.
func (i *Inventory) DistrustVMHosts() {
	i.vmHosts.drop()
	i.hosting.drop()
}

// HostMachines answers the machines that VM hosts run on, by system id, as far as MAAS shows them to this identity.
func (i *Inventory) HostMachines(ctx context.Context, maxAge time.Duration) (map[string]*maas.Machine, error) {
	machines, _, err := i.hosting.get(ctx, maxAge, func(ctx context.Context) (map[string]*maas.Machine, error) {
		hosts, _, err := i.VMHosts(ctx, maxAge)
		if err != nil {
			return nil, err
		}
		var ids []string
		for _, host := range hosts {
			if host.Host.SystemID != "" {
				ids = append(ids, host.Host.SystemID)
			}
		}
		found := make(map[string]*maas.Machine, len(ids))
		for batch := range slices.Chunk(ids, batchSize) {
			machines, err := i.client.ListMachines(ctx, maas.MachineFilter{SystemIDs: batch})
			if err != nil {
				return nil, err
			}
			for _, m := range machines {
				found[m.SystemID] = m
			}
		}
		return found, nil
	})
	return machines, err
}

// BareMetal answers all machines that MAAS has and that are no VMs on its hosts. It is a long list, in one call: let it be old.
func (i *Inventory) BareMetal(ctx context.Context, maxAge time.Duration) ([]*maas.Machine, error) {
	machines, _, err := i.metal.get(ctx, maxAge, func(ctx context.Context) ([]*maas.Machine, error) {
		all, err := i.client.ListMachines(ctx, maas.MachineFilter{})
		return slices.DeleteFunc(all, func(m *maas.Machine) bool { return m.Pod != nil }), err
	})
	return machines, err
}

// Zones answers MAAS's zones.
func (i *Inventory) Zones(ctx context.Context, maxAge time.Duration) ([]maas.Ref, error) {
	zones, _, err := i.zones.get(ctx, maxAge, i.client.ListZones)
	return zones, err
}

// Subnets answers MAAS's subnets.
func (i *Inventory) Subnets(ctx context.Context, maxAge time.Duration) ([]maas.Subnet, error) {
	subnets, _, err := i.subnets.get(ctx, maxAge, i.client.ListSubnets)
	return subnets, err
}

// Domains answers the DNS domains that MAAS serves.
func (i *Inventory) Domains(ctx context.Context, maxAge time.Duration) ([]maas.Domain, error) {
	domains, _, err := i.domains.get(ctx, maxAge, i.client.ListDomains)
	return domains, err
}

// VMHostProject answers the LXD project that MAAS uses on a VM host.
func (i *Inventory) VMHostProject(ctx context.Context, hostID int, maxAge time.Duration) (string, error) {
	project, _, err := i.projects.at(hostID).get(ctx, maxAge, func(ctx context.Context) (string, error) {
		power, err := i.client.VMHostPower(ctx, hostID)
		return power.Project, err
	})
	return project, err
}

// DNSRecord answers the DNS record of a name, or nil where there is none.
func (i *Inventory) DNSRecord(ctx context.Context, fqdn string, maxAge time.Duration) (*maas.DNSResource, error) {
	record, _, err := i.records.at(fqdn).get(ctx, maxAge, func(ctx context.Context) (*maas.DNSResource, error) {
		records, err := i.client.ListDNSResources(ctx, fqdn)
		if err != nil || len(records) == 0 {
			return nil, err
		}
		return &records[0], nil
	})
	return record, err
}

// WroteDNSRecord tells the inventory what MAAS answered when a record was written.
func (i *Inventory) WroteDNSRecord(fqdn string, record *maas.DNSResource) {
	i.records.at(fqdn).set(record)
}

// DistrustDNSRecord makes the next DNSRecord ask MAAS: a write failed, or the record is not used any more.
func (i *Inventory) DistrustDNSRecord(fqdn string) { i.records.drop(fqdn) }
