// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator/simtest"
)

const (
	virtualName = "api.maas.sim"
	virtualIP   = "10.77.0.61"
	othersIP    = "10.77.0.62"

	virtualRegion = `
users: [{name: admin, admin: true, keys: ["admin:token:secret"]}, {name: other, admin: true, keys: ["other:token:secret"]}]
domains: [{name: maas.sim, default: true}]
subnets:
  - cidr: 10.77.0.0/24
    dynamic_ranges: [{start: 10.77.0.200, end: 10.77.0.254}]
    reserved_ranges: [{start: 10.77.0.100, end: 10.77.0.110}]
  - {cidr: 10.78.0.0/30, dynamic_ranges: [{start: 10.78.0.1, end: 10.78.0.2}]}
`
)

// virtualBed is a MAAS with two administrators, each with a service.
type virtualBed struct {
	maas        *simulator.Simulator
	ours, other *Service
}

func newVirtualBed(t *testing.T, version string) *virtualBed {
	t.Helper()
	sim, endpoint := simtest.Start(t, virtualRegion, simulator.Options{Version: version})
	service := func(key string) *Service {
		return NewService(inventory.New(simtest.Client(t, endpoint, key), inventory.Options{}))
	}
	return &virtualBed{sim, service("admin:token:secret"), service("other:token:secret")}
}

// reserve has a service reserve an address under a name, or under none.
func reserve(t *testing.T, by *Service, address, name string) {
	t.Helper()
	if _, err := by.inventory.Client().ReserveAddress(t.Context(), maas.Unrecorded("a test"), maas.ReserveParams{IP: address, FQDN: name}); err != nil {
		t.Fatal(err)
	}
}

// isFree reports whether an address could be reserved.
func (b *virtualBed) isFree(t *testing.T, address string) bool {
	t.Helper()
	_, err := b.other.inventory.Client().ReserveAddress(t.Context(), maas.Unrecorded("a test"), maas.ReserveParams{IP: address})
	if err != nil && !errors.Is(err, maas.NotFound) {
		t.Fatal(err)
	}
	return err == nil
}

// onBoth runs a test with a MAAS that keeps the addresses of a deleted DNS record reserved, and with one that frees
// them.
func onBoth(t *testing.T, run func(*testing.T, *virtualBed)) {
	t.Helper()
	for _, version := range []string{"3.5.13", "3.6.5"} {
		t.Run(version, func(t *testing.T) { run(t, newVirtualBed(t, version)) })
	}
}

// Also if the address of ours was never recorded.
func TestReleaseLeavesWhatSomebodyElseReserved(t *testing.T) {
	for _, recorded := range []string{virtualIP, ""} {
		onBoth(t, func(t *testing.T, b *virtualBed) {
			reserve(t, b.ours, virtualIP, virtualName)
			reserve(t, b.other, othersIP, virtualName)
			if err := b.ours.ReleaseVirtualIP(t.Context(), maas.UnrecordedRelease("a test"), virtualName, recorded); err != nil {
				t.Fatal(err)
			}
			if !b.isFree(t, virtualIP) || b.isFree(t, othersIP) {
				t.Error("ours is still reserved, or the other's is free")
			}
			if left := b.maas.Lookup(virtualName); recorded != "" && len(left) > 0 {
				t.Errorf("the name leads to %v", left)
			}
		})
	}
}

// The cluster's API key was exchanged for that of another user.
func TestReleaseOfWhatAnotherUserReservedForUs(t *testing.T) {
	onBoth(t, func(t *testing.T, b *virtualBed) {
		reserve(t, b.other, virtualIP, virtualName)
		for range 2 {
			if err := b.ours.ReleaseVirtualIP(t.Context(), maas.UnrecordedRelease("a test"), virtualName, virtualIP); err != nil {
				t.Fatal(err)
			}
		}
		if !b.isFree(t, virtualIP) {
			t.Error("it is still reserved")
		}
	})
}

func TestVirtualIPUnderAnotherNameIsNotTakenForOurs(t *testing.T) {
	s := &server{fqdn: "somebody.maas.test", addresses: []string{"10.0.0.9"}}
	service := newService(t, s)
	var wrong *inventory.WrongRecordError
	if got, err := service.VirtualIP(t.Context(), name, ""); !errors.As(err, &wrong) {
		t.Errorf("%v, %v", got, err)
	}
	if err := service.ReleaseVirtualIP(t.Context(), maas.UnrecordedRelease("a test"), name, ""); !errors.As(err, &wrong) || s.calls != nil {
		t.Errorf("releasing: %v, calls %v", err, s.calls)
	}
}

func TestWhyAVirtualIPIsNotReserved(t *testing.T) {
	for what, tc := range map[string]struct {
		address, subnet string
		inUse           bool
		says            string
	}{
		"in use":              {othersIP, "", true, "already in use"},
		"in a reserved range": {"10.77.0.105", "", false, "reserved range"},
		"in a dynamic range":  {"10.77.0.205", "", false, "dynamic range"},
		"in no subnet":        {"192.0.2.1", "", false, "No known subnet"},
		"a full subnet":       {"", "10.78.0.0/30", false, "no free address"},
		"an unknown subnet":   {"", "192.0.2.0/24", false, "Unable to identify subnet"},
	} {
		t.Run(what, func(t *testing.T) {
			b := newVirtualBed(t, "3.6.5")
			reserve(t, b.other, othersIP, "")
			_, err := b.ours.ReserveVirtualIP(t.Context(), maas.Unrecorded("a test"), virtualName, tc.address, tc.subnet)
			var refused *VirtualIPError
			if !errors.As(err, &refused) || refused.InUse != tc.inUse || !strings.Contains(refused.Problem, tc.says) {
				t.Errorf("the error is %v, want in use: %v, and %q", err, tc.inUse, tc.says)
			}
		})
	}
}

// A MAAS may have hundreds of subnets.
func TestARefusedVirtualIPNamesFewSubnets(t *testing.T) {
	region := virtualRegion
	for i := range 100 {
		region += fmt.Sprintf("  - {cidr: 10.%d.0.0/24}\n", 100+i)
	}
	_, endpoint := simtest.Start(t, region, simulator.Options{})
	service := NewService(inventory.New(simtest.Client(t, endpoint, "admin:token:secret"), inventory.Options{}))
	_, err := service.ReserveVirtualIP(t.Context(), maas.Unrecorded("a test"), virtualName, "192.0.2.1", "")
	refused, is := errors.AsType[*VirtualIPError](err)
	if !is || strings.Count(refused.Problem, "/24") > maxNamed {
		t.Errorf("%v, want a refusal that names at most %d subnets", err, maxNamed)
	}
}

func TestAVirtualIPInADomainThatIsGone(t *testing.T) {
	b := newVirtualBed(t, "3.6.5")
	var gone *DomainError
	if _, err := b.ours.ReserveVirtualIP(t.Context(), maas.Unrecorded("a test"), "api.gone.sim", "", "10.77.0.0/24"); !errors.As(err, &gone) || gone.Domain != "gone.sim" {
		t.Errorf("the error is %v", err)
	}
	if err := b.ours.CheckDomain(t.Context(), "MAAS.sim", true); !errors.As(err, &gone) {
		t.Errorf("a domain in other letters, which MAAS does not find: %v", err)
	}
	if err := b.ours.CheckDomain(t.Context(), "maas.sim", true); err != nil {
		t.Error(err)
	}
}

// Only a domain of exactly the name will do, and only if MAAS is authoritative for it.
func TestWhichDomainMAASServes(t *testing.T) {
	domains := []maas.Domain{{Name: "z.sim", Authoritative: true}, {Name: "shown.sim"}, {Name: "a.sim", Authoritative: true}}
	for name, want := range map[string]*DomainError{
		"a.sim":     nil,
		"shown.sim": {Problem: DomainNotAuthoritative, Domain: "shown.sim", Others: []string{"a.sim", "z.sim"}},
		"A.sim":     {Problem: DomainNotFound, Domain: "A.sim", Others: []string{"a.sim", "z.sim"}},
	} {
		var got *DomainError
		if err := CheckDomain(domains, name); errors.As(err, &got) != (want != nil) || !cmp.Equal(want, got) {
			t.Errorf("%s: %v\n%s", name, err, cmp.Diff(want, got))
		}
	}
}

// What is out of order is no full subnet.
func TestServiceUnavailableIsNotAlwaysAFullSubnet(t *testing.T) {
	b := newVirtualBed(t, "3.6.5")
	if _, err := b.maas.AddFault(simulator.Fault{Method: "POST", Endpoint: "ipaddresses/", Op: "reserve", Status: 503}); err != nil {
		t.Fatal(err)
	}
	_, err := b.ours.ReserveVirtualIP(t.Context(), maas.Unrecorded("a test"), virtualName, "", "10.77.0.0/24")
	var refused *VirtualIPError
	if !errors.Is(err, maas.Unavailable) || errors.As(err, &refused) {
		t.Errorf("the error is %v", err)
	}
	if got, err := b.ours.VirtualIP(t.Context(), virtualName, ""); err != nil || slices.Contains(got, virtualIP) {
		t.Errorf("%v, %v", got, err)
	}
}

// MAAS forbids an address in a dynamic range, and any address to a user who may not use the domain.
func TestOnlyAnAddressInADynamicRangeIsToldToBeInOne(t *testing.T) {
	for name, tc := range map[string]struct {
		address, subnet string
		isDynamic       bool
	}{
		"in a dynamic range": {"10.77.0.210", "", true},
		"in none":            {virtualIP, "", false},
		"any":                {"", "10.77.0.0/24", false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newVirtualBed(t, "3.8")
			if _, err := b.maas.AddFault(simulator.Fault{Op: "reserve", Status: http.StatusForbidden, Body: "no"}); err != nil {
				t.Fatal(err)
			}
			_, err := b.ours.ReserveVirtualIP(t.Context(), maas.Unrecorded("a test"), virtualName, tc.address, tc.subnet)
			var told *VirtualIPError
			if errors.As(err, &told) != tc.isDynamic || errors.Is(err, maas.Forbidden) == tc.isDynamic {
				t.Errorf("%v", err)
			}
		})
	}
}
