// SPDX-License-Identifier: Apache-2.0

// Package dns manages the DNS record of a cluster's API endpoint in MAAS.
package dns

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
)

const (
	// ttl is how long resolvers may cache the record, in seconds: clients must not go on to a control plane that left.
	ttl = 10
	// recordMaxAge is how long a record that we wrote is trusted.
	recordMaxAge = 10 * time.Minute
)

// Service manages the records of one MAAS.
type Service struct {
	inventory *inventory.Inventory
	lock      guard.Lock // one writer at a time: a record is replaced as a whole
	// unserved are the records that contain only machines that may be on their way out. MAAS removes the addresses of
	// such machines from the record, so it is read again before it is compared with the address of a replacement, which
	// may be the same; and it goes with its last address. Meanwhile it is read when LetGo says that it changed.
	unserved map[string]bool
	// reserved are the addresses that left each record, or are about to, and may still be reserved for the key's user.
	// They are lost with the process: such an address then stays reserved until a person releases it.
	reserved map[string][]string
	// letGo has, by record, whose machine LetGo was last about.
	letGo sync.Map
}

// NewService makes a service.
func NewService(inventory *inventory.Inventory) *Service {
	return &Service{inventory: inventory, lock: guard.NewLock(), unserved: map[string]bool{},
		reserved: map[string][]string{}}
}

// read returns the record, or nil if there is none or MAAS does not serve its domain.
func (s *Service) read(ctx context.Context, fqdn string, maxAge time.Duration) (*maas.DNSResource, error) {
	record, err := s.inventory.DNSRecord(ctx, fqdn, maxAge)
	if errors.Is(err, maas.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the DNS record %s: %w", fqdn, err)
	}
	return record, nil
}

// Has reports whether there is a record of a name. It asks MAAS, not the cache.
func (s *Service) Has(ctx context.Context, fqdn string) (bool, error) {
	record, err := s.read(ctx, fqdn, 0)
	return record != nil, err
}

// dangles reports whether the record has entries without an address. MAAS keeps the link of a released machine in it;
// when another user deploys that machine, the record would contain its address.
func dangles(record *maas.DNSResource) bool {
	return record != nil && len(record.Addresses()) < len(record.IPAddresses)
}

// Next returns the new addresses of a record with the addresses current. Without desired ones it keeps current, so that
// a working endpoint is never taken away.
func Next(current, desired []string) []string {
	if len(desired) == 0 {
		return current
	}
	return desired
}

// Write makes a call that changes a record.
type Write func(ctx context.Context, call func(context.Context, maas.Permit) error) error

// Free makes a call that frees addresses, unless an earlier one may still take effect: nil means that it did, or that
// it is for the next Ensure.
type Free func(ctx context.Context, call func(context.Context, maas.ReleasePermit) error) error

// Calls are how the calls of one cluster are made.
type Calls struct {
	Write Write
	Free  Free
}

// Ensure makes the record hold exactly the addresses that desired returns for its current ones, or leaves it as it is:
// Next. One that has only links without an address is deleted if there are none. desired is called under the lock, so
// that the last writer knows the latest state. unsure means that an earlier write may still take effect. Ensure returns
// the record's addresses, and whether it wrote them.
func (s *Service) Ensure(
	ctx context.Context, fqdn string, unsure bool, calls Calls, desired func(current []string) ([]string, error),
) (addresses []string, wrote bool, err error) {
	unlock, err := s.lock.Acquire(ctx)
	if err != nil {
		return nil, false, err
	}
	defer unlock()
	maxAge := recordMaxAge
	if unsure {
		maxAge = 0
	}
	record, current, wanted, err := s.compare(ctx, fqdn, maxAge, desired)
	if err == nil && maxAge > 0 && len(wanted) > 0 && s.unserved[fqdn] {
		record, current, wanted, err = s.compare(ctx, fqdn, 0, desired)
	}
	if err != nil {
		return nil, false, err
	}
	addresses = Next(current, wanted)
	switch {
	case len(wanted) > 0 || record == nil:
		delete(s.unserved, fqdn)
	case len(current) > 0:
		s.unserved[fqdn] = true
	}
	if len(addresses) == 0 && dangles(record) {
		return nil, false, calls.Write(ctx, func(ctx context.Context, permit maas.Permit) error {
			return s.delete(ctx, permit, fqdn, record)
		})
	}
	if sets.New(current...).Equal(sets.New(addresses...)) && (len(wanted) == 0 || !dangles(record)) {
		return current, false, s.freeLeft(ctx, calls.Free, fqdn, record, current)
	}
	changed, err := s.write(ctx, calls.Write, fqdn, record, addresses)
	if err == nil {
		err = s.freeLeft(ctx, calls.Free, fqdn, changed, changed.Addresses())
	}
	if err != nil {
		return nil, false, err
	}
	return addresses, true, nil
}

// compare returns the record, its addresses, and those that are wanted.
func (s *Service) compare(
	ctx context.Context, fqdn string, maxAge time.Duration, desired func(current []string) ([]string, error),
) (record *maas.DNSResource, current, wanted []string, err error) {
	if record, err = s.read(ctx, fqdn, maxAge); err != nil {
		return nil, nil, nil, err
	}
	if record != nil {
		current = record.Addresses()
	}
	wanted, err = desired(current)
	return record, current, wanted, err
}

// LetGo makes the next Ensure read the record: MAAS has released or deleted a machine that it may have named. by is
// whose machine that was: what is read afterwards is right, also if the same is said again.
func (s *Service) LetGo(fqdn, by string) {
	if last, known := s.letGo.Swap(fqdn, by); !known || last != by {
		s.inventory.ForgetDNSRecord(fqdn)
	}
}

func (s *Service) write(
	ctx context.Context, write Write, fqdn string, record *maas.DNSResource, addresses []string,
) (now *maas.DNSResource, err error) {
	err = write(ctx, func(ctx context.Context, permit maas.Permit) error {
		return s.inventory.ChangeDNSRecord(fqdn, func(client *maas.Client) (_ *maas.DNSResource, err error) {
			if record != nil {
				s.reserved[fqdn] = append(record.Reserved(), s.reserved[fqdn]...)
				now, err = client.UpdateDNSResource(ctx, permit, record.ID, addresses)
				if !errors.Is(err, maas.NotFound) {
					return now, err
				}
			}
			now, err = client.CreateDNSResource(ctx, permit, fqdn, addresses, ttl)
			return now, err
		})
	})
	switch {
	case errors.Is(err, maas.NotFound):
		return nil, withoutDomain(fqdn)
	case err != nil:
		return nil, fmt.Errorf("writing the DNS record %s: %w", fqdn, err)
	}
	return now, nil
}

// freeLeft frees what this write, or an earlier one, took out of a record with the addresses current, if that may still
// be reserved.
func (s *Service) freeLeft(
	ctx context.Context, free Free, fqdn string, record *maas.DNSResource, current []string,
) error {
	left := list.Where(s.reserved[fqdn], func(address string) bool { return !slices.Contains(current, address) })
	return s.freeReserved(ctx, free, fqdn, record, left)
}

// Delete deletes the record. It reads MAAS first, not the cache.
func (s *Service) Delete(ctx context.Context, permit maas.Permit, free Free, fqdn string) error {
	unlock, err := s.lock.Acquire(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	defer s.inventory.ForgetDNSRecord(fqdn)
	s.letGo.Delete(fqdn)
	record, err := s.read(ctx, fqdn, 0)
	delete(s.unserved, fqdn)
	if err != nil {
		return err
	}
	left := s.reserved[fqdn]
	if record != nil {
		left = append(record.Reserved(), left...)
	}
	if err := s.freeReserved(ctx, free, fqdn, record, left); err != nil || record == nil {
		return err
	}
	return s.delete(ctx, permit, fqdn, record)
}

// freeReserved gives back addresses that MAAS reserved for the key's user when a record named them: the machine that
// had one had lost it by then. What another user reserved stays so, and what something else has: MAAS is asked right
// before. From 3.6.1 on, MAAS frees those of a deleted record itself. What can't be freed is kept in reserved.
func (s *Service) freeReserved(
	ctx context.Context, free Free, fqdn string, record *maas.DNSResource, addresses []string,
) error {
	delete(s.reserved, fqdn)
	if len(addresses) == 0 {
		return nil
	}
	s.reserved[fqdn] = addresses
	id := 0
	if record != nil { // They may still be in it.
		id = record.ID
	}
	ours, err := s.reservedFor(ctx, id, addresses)
	if err != nil {
		return err
	}
	if len(ours) == 0 {
		delete(s.reserved, fqdn)
		return nil
	}
	return free(ctx, func(ctx context.Context, permit maas.ReleasePermit) error {
		for _, address := range ours {
			if err := ignore(s.inventory.Client().ReleaseAddress(ctx, permit, address, false), maas.Invalid); err != nil {
				return fmt.Errorf("releasing %s, which the DNS record %s had: %w", address, fqdn, err)
			}
		}
		delete(s.reserved, fqdn)
		return nil
	})
}

// reservedFor returns those of the addresses that MAAS shows as reserved, and in no record but the one with the id.
func (s *Service) reservedFor(ctx context.Context, id int, addresses []string) (ours []string, err error) {
	subnets, err := s.inventory.Subnets(ctx, subnetMaxAge)
	if err != nil {
		return nil, fmt.Errorf("listing MAAS's subnets: %w", err)
	}
	for _, subnet := range subnets {
		if !slices.ContainsFunc(addresses, subnet.Contains) {
			continue
		}
		known, err := s.inventory.Client().SubnetAddresses(ctx, subnet.ID)
		if ignore(err, maas.NotFound) != nil {
			return nil, fmt.Errorf("listing the addresses of subnet %s: %w", subnet.CIDR, err)
		}
		for _, a := range known {
			if slices.Contains(addresses, a.IP) && a.IsReservedFor(id) {
				ours = append(ours, a.IP)
			}
		}
	}
	return ours, nil
}

func (s *Service) delete(ctx context.Context, permit maas.Permit, fqdn string, record *maas.DNSResource) error {
	err := s.inventory.DeleteDNSRecord(fqdn, func(client *maas.Client) error {
		return client.DeleteDNSResource(ctx, permit, record.ID)
	})
	if err != nil && !errors.Is(err, maas.NotFound) {
		return fmt.Errorf("deleting the DNS record %s: %w", fqdn, err)
	}
	return nil
}
