// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// subnetMaxAge is how old the list of subnets may be that explains a refusal.
const subnetMaxAge = time.Minute

// VirtualIPError is a virtual IP that MAAS can't reserve.
type VirtualIPError struct {
	// InUse reports whether something else has the address; otherwise MAAS can't give it to any user.
	InUse   bool
	Problem string
}

// Error returns the problem and the remedy.
func (e *VirtualIPError) Error() string { return "spec.virtualIP: " + e.Problem }

// VirtualIP returns the addresses that are reserved under a name. MAAS reserves and names in the same call, so this
// finds what an earlier try reserved. recorded is the address that is known to be reserved, or ""; then MAAS is asked
// and not the cache.
func (s *Service) VirtualIP(ctx context.Context, fqdn, recorded string) ([]string, error) {
	unlock, err := s.lock.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	maxAge := recordMaxAge
	if recorded == "" {
		maxAge = 0
	}
	record, err := s.read(ctx, fqdn, maxAge)
	if err != nil || record == nil {
		return nil, err
	}
	return record.Addresses(), nil
}

// ReserveVirtualIP reserves an address, or, if that is "", a free one of a subnet, under a name that has none. Errors:
// *VirtualIPError, *DomainError; after maas.Unavailable read the name's addresses before trying again.
func (s *Service) ReserveVirtualIP(
	ctx context.Context, permit maas.Permit, fqdn, address, subnet string,
) (string, error) {
	unlock, err := s.lock.Acquire(ctx)
	if err != nil {
		return "", err
	}
	defer unlock()
	var reserved maas.IPAddress
	err = s.inventory.ChangeDNSRecord(fqdn, func(client *maas.Client) (record *maas.DNSResource, err error) {
		reserved, err = client.ReserveAddress(ctx, permit, maas.ReserveParams{IP: address, Subnet: subnet, FQDN: fqdn})
		return nil, err
	})
	if err == nil {
		return reserved.IP, nil
	}
	var failure *maas.Error
	switch {
	case errors.Is(err, maas.NotFound) && address == "":
		return "", withoutDomain(fqdn)
	case errors.Is(err, maas.NotFound):
		return "", s.taken(ctx, address, err)
	case errors.Is(err, maas.Forbidden) && address != "":
		return "", s.forbidden(ctx, address, err)
	case errors.Is(err, maas.Invalid):
		return "", s.outside(ctx, err)
	case errors.As(err, &failure) && failure.Status == http.StatusServiceUnavailable && address == "":
		return "", s.full(ctx, subnet, err)
	}
	return "", fmt.Errorf("reserving a virtual IP: %w", err)
}

// taken explains a status with which MAAS reports two cases: something has the address, or it is in a range that MAAS
// reserves for others.
func (s *Service) taken(ctx context.Context, address string, cause error) error {
	isReserved, err := s.isIn(ctx, maas.IPRangeReserved, address)
	if err != nil {
		return errors.Join(cause, err)
	}
	if isReserved {
		return &VirtualIPError{Problem: fmt.Sprintf(
			"%s is in a reserved range of MAAS, of which it reserves nothing for us: use an address outside of it, or make "+
				"the range smaller (MAAS: %s)",
			address, maas.Message(cause))}
	}
	return &VirtualIPError{InUse: true, Problem: fmt.Sprintf(
		"%s is in use by something else: free it in MAAS, or use another address (MAAS: %s)", address, maas.Message(cause))}
}

// forbidden explains a status with which MAAS reports two cases: the address is in a dynamic range, or the key's user
// may not use the domain.
func (s *Service) forbidden(ctx context.Context, address string, cause error) error {
	isDynamic, err := s.isIn(ctx, maas.IPRangeDynamic, address)
	if err != nil || !isDynamic {
		return errors.Join(fmt.Errorf("reserving a virtual IP: %w", cause), err)
	}
	return &VirtualIPError{Problem: address + " is in a dynamic range of MAAS, where DHCP may give it away: use an " +
		"address outside of it"}
}

// isIn reports whether an address is in an IP range of this type.
func (s *Service) isIn(ctx context.Context, kind, address string) (bool, error) {
	ranges, err := s.inventory.Client().ListIPRanges(ctx)
	if err != nil {
		return false, fmt.Errorf("reading MAAS's IP ranges: %w", err)
	}
	return slices.ContainsFunc(ranges, func(r maas.IPRange) bool { return r.Type == kind && r.Contains(address) }), nil
}

// outside explains that MAAS has no subnet for the address.
func (s *Service) outside(ctx context.Context, cause error) error {
	subnets, err := s.inventory.Subnets(ctx, subnetMaxAge)
	if err != nil {
		return errors.Join(cause, fmt.Errorf("listing MAAS's subnets: %w", err))
	}
	there := list.Each(subnets, func(subnet maas.Subnet) string { return subnet.CIDR })
	slices.Sort(there)
	return &VirtualIPError{Problem: fmt.Sprintf("MAAS refuses (%s): use a subnet of MAAS, or an address in one (it has "+
		"%s)", strings.TrimSuffix(maas.Message(cause), "."), text.List(there, maxNamed))}
}

// full distinguishes a subnet without a free address from a MAAS that is out of order.
func (s *Service) full(ctx context.Context, cidr string, cause error) error {
	cause = fmt.Errorf("reserving a virtual IP in %s: %w", cidr, cause)
	wanted, err := netip.ParsePrefix(cidr)
	if err != nil {
		return cause
	}
	subnets, err := s.inventory.Subnets(ctx, subnetMaxAge)
	if err != nil {
		return errors.Join(cause, fmt.Errorf("listing MAAS's subnets: %w", err))
	}
	is := list.Find(subnets, func(subnet maas.Subnet) bool { return subnet.CIDR == wanted.Masked().String() })
	if is == nil {
		return cause
	}
	free, err := s.inventory.Client().FreeRanges(ctx, is.ID)
	if err != nil || len(free) > 0 {
		return errors.Join(cause, err)
	}
	return &VirtualIPError{Problem: "MAAS has no free address in the subnet " + cidr + ": free one, or use another subnet"}
}

// DropName deletes a name under which nothing is reserved. Addresses that another user puts under it stay reserved.
func (s *Service) DropName(ctx context.Context, permit maas.Permit, fqdn string) error {
	unlock, err := s.lock.Acquire(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	defer s.inventory.ForgetDNSRecord(fqdn)
	return s.deleteName(ctx, permit, fqdn)
}

// ReleaseVirtualIP releases the recorded address, or without one all that is reserved under the name, and deletes the
// name. Addresses that another user put under the name stay reserved.
func (s *Service) ReleaseVirtualIP(ctx context.Context, permit maas.ReleasePermit, fqdn, recorded string) error {
	unlock, err := s.lock.Acquire(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	defer s.inventory.ForgetDNSRecord(fqdn)
	record, err := s.read(ctx, fqdn, 0)
	if err != nil || record == nil {
		return err
	}
	for _, address := range record.Reserved() {
		if recorded != "" && !maas.SameAddress(address, recorded) {
			continue
		}
		if err := s.release(ctx, permit, fqdn, address, recorded != ""); err != nil {
			return fmt.Errorf("releasing the virtual IP %s: %w", address, err)
		}
	}
	return s.deleteName(ctx, permit.Permit(), fqdn)
}

// release releases one address. If the address is known to be ours, another user of MAAS may have reserved it: the
// owner of the cluster's former key.
func (s *Service) release(ctx context.Context, permit maas.ReleasePermit, fqdn, address string, ours bool) error {
	err := s.giveUp(ctx, permit, fqdn, address, false)
	if !errors.Is(err, maas.Invalid) || !ours {
		return ignore(err, maas.Invalid) // It is no longer reserved, or another user's.
	}
	record, err := s.read(ctx, fqdn, 0)
	if err != nil || record == nil || !slices.Contains(record.Reserved(), address) {
		return err
	}
	return ignore(s.giveUp(ctx, permit, fqdn, address, true), maas.Invalid)
}

func (s *Service) giveUp(ctx context.Context, permit maas.ReleasePermit, fqdn, address string, force bool) error {
	return s.inventory.ChangeDNSRecord(fqdn, func(client *maas.Client) (*maas.DNSResource, error) {
		return nil, client.ReleaseAddress(ctx, permit, address, force)
	})
}

// deleteName deletes the record, unless MAAS deleted it with its last address. It empties the record first: from 3.6.1
// on, MAAS frees the addresses of a deleted record, whoever reserved them.
func (s *Service) deleteName(ctx context.Context, permit maas.Permit, fqdn string) error {
	record, err := s.read(ctx, fqdn, 0)
	if err != nil || record == nil {
		return err
	}
	if len(record.IPAddresses) > 0 {
		err := s.inventory.ChangeDNSRecord(fqdn, func(client *maas.Client) (*maas.DNSResource, error) {
			return client.UpdateDNSResource(ctx, permit, record.ID, nil)
		})
		if ignore(err, maas.NotFound) != nil {
			return fmt.Errorf("emptying the DNS record %s: %w", fqdn, err)
		}
	}
	return s.delete(ctx, permit, fqdn, record)
}

// ignore drops an error of this kind.
func ignore(err error, kind maas.Kind) error {
	if errors.Is(err, kind) {
		return nil
	}
	return err
}
