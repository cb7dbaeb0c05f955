// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

const (
	// useMaxAge is how old it may be what of a subnet is in use.
	useMaxAge = 10 * time.Second
	// namesMaxAge is how long a zone, resource pool or tag that MAAS listed is taken to be there, and namesRetry how
	// often MAAS is asked for one that it lacks.
	namesMaxAge = 10 * time.Minute
	namesRetry  = 20 * time.Second
	// maxNames is how many names a message has.
	maxNames = 5
)

// Missing is a kind of thing that MAAS does not have.
type Missing string

// What a spec can name.
const (
	MissingZone Missing = "zone"
	MissingPool Missing = "resource pool"
	MissingTag  Missing = "tag"
	// MissingScript is the name of a testing script, or a tag of some.
	MissingScript Missing = "testing script"

	missingImage  Missing = "image"
	missingSubnet Missing = "subnet"
)

// MissingError is a name in a spec that MAAS does not have.
type MissingError struct {
	Kind Missing
	// Field is where the spec has the name.
	Field, Name string
	// Others are the names that MAAS has.
	Others []string
}

// Found says what MAAS has instead.
func (e *MissingError) Found() string {
	has := cmp.Or(text.List(e.Others, maxNames), "none")
	return fmt.Sprintf("MAAS has no %s %s (it has %s)", e.Kind, e.Name, has)
}

// Remedy says what to do.
func (e *MissingError) Remedy() string {
	if e.Kind == missingImage {
		return "import or upload it, or name another one"
	}
	return "create it in MAAS, or name another one"
}

// Error names the field, what MAAS has instead, and the remedy.
func (e *MissingError) Error() string { return e.Field + ": " + e.Found() + ": " + e.Remedy() }

// Has returns a *MissingError if MAAS, which has these, has not all that a field names.
func Has(refs []maas.Ref, kind Missing, field string, names ...string) error {
	there := list.Each(refs, func(ref maas.Ref) string { return ref.Name })
	lacking := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(there, name) })
	if len(lacking) == 0 {
		return nil
	}
	slices.Sort(there)
	return &MissingError{Kind: kind, Field: field, Name: strings.Join(lacking, ", "), Others: there}
}

// CheckNames returns a *MissingError if MAAS has not the zone, the resource pool or a tag that a machine is to have.
// MAAS refuses to allocate any then.
func (s *Service) CheckNames(ctx context.Context, p maas.AllocateParams) error {
	if err := s.checkName(ctx, MissingZone, "the failure domain", p.Zone, s.inventory.Zones); err != nil {
		return err
	}
	if err := s.checkName(ctx, MissingPool, "spec.resourcePool", p.Pool, s.inventory.ResourcePools); err != nil {
		return err
	}
	for _, tag := range p.Tags {
		if err := s.checkName(ctx, MissingTag, "spec.tags", tag, s.tagRefs); err != nil {
			return err
		}
	}
	return nil
}

func (s *Service) tagRefs(ctx context.Context, maxAge time.Duration) ([]maas.Ref, error) {
	tags, err := s.inventory.Tags(ctx, maxAge)
	return list.Each(tags, func(tag maas.Tag) maas.Ref { return maas.Ref{Name: tag.Name} }), err
}

func (s *Service) checkName(
	ctx context.Context, kind Missing, field, name string, list func(context.Context, time.Duration) ([]maas.Ref, error),
) error {
	if name == "" {
		return nil
	}
	var missing error
	for _, age := range []time.Duration{namesMaxAge, namesRetry} {
		refs, err := list(ctx, age)
		if err != nil {
			return fmt.Errorf("listing MAAS's names of a %s: %w", kind, err)
		}
		if missing = Has(refs, kind, field, name); missing == nil {
			return nil
		}
	}
	return missing
}

// CheckNICs returns why a machine can't have these connections: an *AddressError or a *NICError. own reports whether
// what has an address is the machine itself; nil: there is none yet. It knows only what MAAS says of its subnets;
// Connect finds out the rest, which depends on the machine.
func (s *Service) CheckNICs(ctx context.Context, nics []NIC, own func(maas.SubnetAddress) bool) error {
	for _, nic := range nics {
		if nic.Subnet == "" && nic.Address == "" {
			continue
		}
		subnets, err := s.inventory.Subnets(ctx, subnetMaxAge)
		if err != nil {
			return fmt.Errorf("listing MAAS's subnets: %w", err)
		}
		if nic.Mode != maas.LinkModeStatic {
			if _, err := subnetNamed(subnets, nic); err != nil {
				return err
			}
			continue
		}
		subnet, err := subnetOf(subnets, nic.Address, nic.Subnet)
		if err != nil {
			return err
		}
		if err := s.checkFree(ctx, subnet, nic.Address, own); err != nil {
			return err
		}
	}
	return nil
}

// checkFree returns an *AddressError if an address is in a dynamic range of its subnet, or something else has it.
func (s *Service) checkFree(
	ctx context.Context, subnet maas.Subnet, address string, own func(maas.SubnetAddress) bool,
) error {
	use, err := s.inventory.SubnetUse(ctx, subnet.ID, useMaxAge)
	if err != nil {
		return fmt.Errorf("reading what of the subnet %s is in use: %w", subnet.CIDR, err)
	}
	for _, r := range use.Ranges {
		if r.GivesAway(address) {
			return &AddressError{Problem: AddressInDynamicRange, Address: address, Message: fmt.Sprintf(
				"lies in the dynamic range %s to %s of %s, which MAAS gives away by DHCP: use an address outside of it, "+
					"or make the range smaller",
				r.Start, r.End, subnet.CIDR)}
		}
	}
	if by := holderOf(use.Addresses, address, own); by != "" {
		return Taken(address, by)
	}
	return nil
}

// Taken is the error of a static address that something else has, or is to have.
func Taken(address, by string) *AddressError {
	return &AddressError{Problem: AddressInUse, Address: address, Message: "is taken by " + by +
		": free it there, or use another one; several machines need a pool of addresses (spec.staticIPPoolRef)"}
}

// holderOf names what has an address, unless it is the machine's own; "" if nothing has.
func holderOf(all []maas.SubnetAddress, address string, own func(maas.SubnetAddress) bool) string {
	for _, a := range all {
		if isOwn := own != nil && own(a); !isOwn && maas.SameAddress(a.IP, address) {
			return holder(a)
		}
	}
	return ""
}

// holder names what has an address.
func holder(a maas.SubnetAddress) string {
	switch {
	case a.Node.Hostname != "":
		return "the machine " + a.Node.Hostname
	case a.User != "":
		return "a reservation of the user " + a.User
	case a.Type == maas.AddressDiscovered:
		return "something that MAAS has seen in the network"
	}
	return "something else in MAAS"
}
