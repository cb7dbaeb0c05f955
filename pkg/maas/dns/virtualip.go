// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// VirtualIPError is a virtual IP that MAAS can't reserve.
type VirtualIPError struct {
	// InUse tells that something else has the address; otherwise MAAS can't give it to anybody.
	InUse   bool
	Problem string
}

// Error says what is wrong, and the remedy.
func (e *VirtualIPError) Error() string { return "spec.virtualIP: " + e.Problem }

// VirtualIP answers the addresses that are reserved under a name. MAAS reserves and names in the same call, so that what an earlier try
// reserved is found here. recorded is what is known to be reserved, or ""; without it MAAS is asked, not remembered.
func (s *Service) VirtualIP(ctx context.Context, fqdn, recorded string) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maxAge := recordMaxAge
	if recorded == "" {
		maxAge = 0
	}
	record, err := s.inventory.DNSRecord(ctx, fqdn, maxAge)
	if err != nil {
		return nil, fmt.Errorf("looking for the virtual IP under %s: %w", fqdn, err)
	}
	if record == nil {
		return nil, nil
	}
	return record.Addresses(), nil
}

// ReserveVirtualIP reserves an address, or, where that is "", a free one of a subnet, under a name that has none. Errors:
// *VirtualIPError; after maas.Unavailable look again before asking again.
func (s *Service) ReserveVirtualIP(ctx context.Context, fqdn, address, subnet string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inventory.DistrustDNSRecord(fqdn)
	reserved, err := s.inventory.Client().ReserveAddress(ctx, maas.ReserveParams{IP: address, Subnet: subnet, FQDN: fqdn})
	if err == nil {
		return reserved.IP, nil
	}
	var failure *maas.Error
	switch {
	case errors.Is(err, maas.NotFound):
		return "", &VirtualIPError{InUse: true, Problem: address + " is in use by something else: free it in MAAS, or use another address in a new cluster"}
	case errors.Is(err, maas.Forbidden):
		return "", &VirtualIPError{Problem: address + " is in a dynamic range of MAAS, where DHCP may give it away: use an address outside of it"}
	case errors.Is(err, maas.Invalid):
		return "", &VirtualIPError{Problem: fmt.Sprintf("MAAS refuses (%s): use a subnet of MAAS, or an address in one", maas.Message(err))}
	case errors.As(err, &failure) && failure.Status == http.StatusServiceUnavailable && address == "":
		return "", fmt.Errorf("reserving a virtual IP in %s (full, if MAAS goes on saying so): %w", subnet, err)
	}
	return "", fmt.Errorf("reserving a virtual IP: %w", err)
}

// ReleaseVirtualIP gives back what is reserved under a name: the recorded address, or what there is where none was recorded.
func (s *Service) ReleaseVirtualIP(ctx context.Context, fqdn, recorded string) error {
	addresses, err := s.VirtualIP(ctx, fqdn, "")
	if err != nil {
		return err
	}
	for _, address := range addresses {
		if recorded != "" && !SameAddress(address, recorded) {
			continue // Somebody else's, put under our name by hand.
		}
		// Invalid: it is not reserved any more.
		if err := s.inventory.Client().ReleaseAddress(ctx, address); err != nil && !errors.Is(err, maas.Invalid) {
			return fmt.Errorf("releasing the virtual IP %s: %w", address, err)
		}
	}
	return s.Delete(ctx, fqdn)
}

// SameAddress tells whether two texts are the same IP address, however it is written.
func SameAddress(a, b string) bool {
	left, err := netip.ParseAddr(a)
	if err != nil {
		return false
	}
	right, err := netip.ParseAddr(b)
	return err == nil && left == right
}
