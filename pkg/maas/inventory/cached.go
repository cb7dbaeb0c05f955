// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// cached is one response of MAAS, shared by all callers. Callers during a fetch wait for its result.
type cached[T any] struct {
	mu     sync.Mutex
	value  T
	at     time.Time // when it was requested
	flight *flight[T]
}

// flight is a fetch under way.
type flight[T any] struct {
	asked time.Time
	done  chan struct{}
	// Set when done is closed.
	value     T
	err       error
	cancelled bool // the fetch ended because its caller's context did
}

// get returns a value that is no older than maxAge, or was requested after get was called. Callers that wait for a
// fetch that fails share its error.
func (c *cached[T]) get(
	ctx context.Context, maxAge time.Duration, fetch func(context.Context) (T, error),
) (T, error) {
	value, _, err := c.getAt(ctx, maxAge, fetch)
	return value, err
}

// getAt is get, and returns when the value was requested.
func (c *cached[T]) getAt(
	ctx context.Context, maxAge time.Duration, fetch func(context.Context) (T, error),
) (T, time.Time, error) {
	called := time.Now()
	recent := func(asked time.Time) bool { return !asked.Before(called) || called.Sub(asked) <= maxAge }
	for {
		value, at, f, mine := c.join(recent)
		if f == nil {
			return value, at, nil
		}
		if mine {
			c.fetch(ctx, f, fetch)
			return f.value, f.asked, f.err
		}
		if err := f.wait(ctx); err != nil {
			return value, time.Time{}, err
		}
		if recent(f.asked) && !f.cancelled {
			return f.value, f.asked, f.err
		}
	}
}

// join returns the value if it is recent, else the fetch under way, else a new one that the caller must do.
func (c *cached[T]) join(recent func(time.Time) bool) (value T, at time.Time, f *flight[T], mine bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.at.IsZero() && recent(c.at) {
		return c.value, c.at, nil, false
	}
	if mine = c.flight == nil; mine {
		c.flight = &flight[T]{asked: time.Now(), done: make(chan struct{})}
	}
	return value, at, c.flight, mine
}

// last returns the last value, and when it was requested; zero if there is none.
func (c *cached[T]) last() (T, time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.value, c.at
}

// fetch stores its result, unless a write came in between.
func (c *cached[T]) fetch(ctx context.Context, f *flight[T], fetch func(context.Context) (T, error)) {
	f.err, f.cancelled = errCutOff, true // For the waiting callers, if fetch panics.
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.flight == f {
			c.flight = nil
			if f.err == nil {
				c.value, c.at = f.value, f.asked
			}
		}
		close(f.done)
	}()
	value, err := fetch(ctx)
	if err == nil {
		f.value = value
	}
	f.err, f.cancelled = err, err != nil && ctx.Err() != nil
}

var errCutOff = errors.New("the call to MAAS was interrupted")

func (f *flight[T]) wait(ctx context.Context) error {
	defer guard.Idle(ctx)()
	select {
	case <-f.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for another caller's request to MAAS: %w", ctx.Err())
	}
}

// set stores the result of a write.
func (c *cached[T]) set(value T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.value, c.at, c.flight = value, time.Now(), nil
}

// drop forgets the value, and the result of a fetch under way.
func (c *cached[T]) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at, c.flight = time.Time{}, nil
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

func (k *keyed[K, T]) dropAll() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.values = nil
}

// vmHostList is MAAS's response to a request for its VM hosts: a list, or that it has no VM hosts any more.
type vmHostList struct {
	hosts []maas.VMHost
	gone  error
}

// VMHosts returns MAAS's VM hosts, no older than maxAge, and when they were requested. maas.Gone: MAAS no longer has VM
// hosts.
func (i *Inventory) VMHosts(ctx context.Context, maxAge time.Duration) ([]maas.VMHost, time.Time, error) {
	list, at, err := i.vmHosts.getAt(ctx, maxAge, func(ctx context.Context) (vmHostList, error) {
		hosts, err := i.client.ListVMHosts(ctx)
		if errors.Is(err, maas.Gone) {
			return vmHostList{gone: err}, nil
		}
		return vmHostList{hosts: hosts}, err
	})
	if err == nil {
		err = list.gone
	}
	return list.hosts, at, err
}

// AnyVMHosts is VMHosts for who goes on without them: has reports whether MAAS has VM hosts still.
func (i *Inventory) AnyVMHosts(ctx context.Context, maxAge time.Duration) (hosts []maas.VMHost, has bool, err error) {
	hosts, _, err = i.VMHosts(ctx, maxAge)
	if errors.Is(err, maas.Gone) {
		return nil, false, nil
	}
	return hosts, err == nil, err
}

// HostMachines returns the machines of VM hosts, by system id, as far as MAAS shows them to this identity.
func (i *Inventory) HostMachines(ctx context.Context, maxAge time.Duration) (map[string]*maas.Machine, error) {
	return i.hosting.get(ctx, maxAge, func(ctx context.Context) (map[string]*maas.Machine, error) {
		hosts, _, err := i.VMHosts(ctx, maxAge)
		if err != nil {
			return nil, err
		}
		known := list.Where(hosts, func(host maas.VMHost) bool { return host.Host.SystemID != "" })
		ids := list.Each(known, func(host maas.VMHost) string { return host.Host.SystemID })
		found := make(map[string]*maas.Machine, len(ids))
		for len(ids) > 0 {
			_, listed, machines, err := i.list(ctx, ids)
			if err != nil {
				return nil, err
			}
			ids = ids[len(listed):]
			for _, m := range machines {
				found[m.SystemID] = m
			}
		}
		return found, nil
	})
}

// Zones returns MAAS's zones.
func (i *Inventory) Zones(ctx context.Context, maxAge time.Duration) ([]maas.Ref, error) {
	return i.zones.get(ctx, maxAge, i.client.ListZones)
}

// ResourcePools returns MAAS's resource pools.
func (i *Inventory) ResourcePools(ctx context.Context, maxAge time.Duration) ([]maas.Ref, error) {
	return i.pools.get(ctx, maxAge, i.client.ListResourcePools)
}

// Subnets returns MAAS's subnets.
func (i *Inventory) Subnets(ctx context.Context, maxAge time.Duration) ([]maas.Subnet, error) {
	return i.subnets.get(ctx, maxAge, i.client.ListSubnets)
}

// SubnetUse is what of a subnet is in use.
type SubnetUse struct {
	// Ranges are those that MAAS gives no addresses from; overlapping ones are one, with the purposes of all.
	Ranges []maas.Range
	// Addresses are those that something has.
	Addresses []maas.SubnetAddress
}

// SubnetUse returns what of a subnet is in use.
func (i *Inventory) SubnetUse(ctx context.Context, subnetID int, maxAge time.Duration) (SubnetUse, error) {
	return i.used.at(subnetID).get(ctx, maxAge, func(ctx context.Context) (use SubnetUse, err error) {
		if use.Ranges, err = i.client.UsedRanges(ctx, subnetID); err == nil {
			use.Addresses, err = i.client.SubnetAddresses(ctx, subnetID)
		}
		return use, err
	})
}

// Domains returns the DNS domains that MAAS serves.
func (i *Inventory) Domains(ctx context.Context, maxAge time.Duration) ([]maas.Domain, error) {
	return i.domains.get(ctx, maxAge, i.client.ListDomains)
}

// Images returns MAAS's images.
func (i *Inventory) Images(ctx context.Context, maxAge time.Duration) ([]maas.Image, error) {
	return i.images.get(ctx, maxAge, i.client.ListImages)
}

// Image returns an image with its files. maas.NotFound: it is gone.
func (i *Inventory) Image(ctx context.Context, id int, maxAge time.Duration) (maas.ImageDetail, error) {
	return i.details.at(id).get(ctx, maxAge, func(ctx context.Context) (maas.ImageDetail, error) {
		return i.client.GetImage(ctx, id)
	})
}

// Tags returns MAAS's tags.
func (i *Inventory) Tags(ctx context.Context, maxAge time.Duration) ([]maas.Tag, error) {
	return i.tags.get(ctx, maxAge, i.client.ListTags)
}

// Tagged returns the machines that have a tag; none if there is no such tag.
func (i *Inventory) Tagged(ctx context.Context, tag string, maxAge time.Duration) ([]*maas.Machine, error) {
	return i.tagged.at(tag).get(ctx, maxAge, func(ctx context.Context) ([]*maas.Machine, error) {
		machines, err := i.client.TaggedMachines(ctx, tag)
		if errors.Is(err, maas.NotFound) {
			return nil, nil
		}
		return machines, err
	})
}

// ForgetTags makes the next Tags and Tagged ask MAAS: a call has changed them.
func (i *Inventory) ForgetTags() {
	i.tags.drop()
	i.tagged.dropAll()
}

// VMHostProject returns the LXD project that MAAS uses on a VM host.
func (i *Inventory) VMHostProject(ctx context.Context, hostID int, maxAge time.Duration) (string, error) {
	return i.projects.at(hostID).get(ctx, maxAge, func(ctx context.Context) (string, error) {
		power, err := i.client.VMHostPower(ctx, hostID)
		return power.Project, err
	})
}

// DNSRecord returns the DNS record of a name, or nil if there is none. *WrongRecordError: MAAS returned another one.
func (i *Inventory) DNSRecord(ctx context.Context, fqdn string, maxAge time.Duration) (*maas.DNSResource, error) {
	record, err := i.records.at(fqdn).get(ctx, maxAge, func(ctx context.Context) (*maas.DNSResource, error) {
		records, err := i.client.ListDNSResources(ctx, fqdn)
		if err != nil || len(records) == 0 {
			return nil, err
		}
		return &records[0], checkName(fqdn, &records[0])
	})
	if err != nil {
		i.ForgetDNSRecord(fqdn)
		return nil, err
	}
	return record, nil
}

// ForgetDNSRecord forgets the record of a name that is no longer used.
func (i *Inventory) ForgetDNSRecord(fqdn string) { i.records.drop(fqdn) }

// WrongRecordError means that MAAS returned the record of another name, which is not ours.
type WrongRecordError struct{ Wanted, Got string }

// Error names both.
func (e *WrongRecordError) Error() string {
	return fmt.Sprintf("MAAS returned the DNS record %s instead of %s", e.Got, e.Wanted)
}

// checkName verifies that a record is the requested one: another user may rename it at any moment.
func checkName(fqdn string, record *maas.DNSResource) error {
	if record != nil && !strings.EqualFold(record.FQDN, fqdn) {
		return &WrongRecordError{Wanted: fqdn, Got: record.FQDN}
	}
	return nil
}
