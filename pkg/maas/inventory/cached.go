// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

const (
	// rightsMaxAge is how long a right is believed in.
	rightsMaxAge = 10 * time.Minute
	// rightsRetry is how often MAAS is asked for what the user had no right to.
	rightsRetry = 20 * time.Second
)

// vmHostList is MAAS's response to a request for its VM hosts: a list, or that it has no VM hosts any more.
type vmHostList struct {
	hosts []maas.VMHost
	gone  error
}

// VMHosts returns MAAS's VM hosts, no older than maxAge, and when they were requested. maas.Gone: MAAS no longer has VM
// hosts.
func (i *Inventory) VMHosts(ctx context.Context, maxAge time.Duration) ([]maas.VMHost, time.Time, error) {
	list, at, err := i.vmHosts.GetAt(ctx, maxAge, func(ctx context.Context) (vmHostList, error) {
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
	return i.hosting.Get(ctx, maxAge, func(ctx context.Context) (map[string]*maas.Machine, error) {
		hosts, _, err := i.VMHosts(ctx, maxAge)
		if err != nil {
			return nil, err
		}
		known := list.Where(hosts, func(host maas.VMHost) bool { return host.Host.SystemID != "" })
		return i.listEach(ctx, list.Each(known, func(host maas.VMHost) string { return host.Host.SystemID }))
	})
}

// listEach returns those of the machines that MAAS lists. As pollBatch, it passes over one that MAAS can't list.
func (i *Inventory) listEach(ctx context.Context, ids []string) (map[string]*maas.Machine, error) {
	found, failed := make(map[string]*maas.Machine, len(ids)), 0
	for len(ids) > 0 {
		_, listed, machines, err := i.list(ctx, ids)
		if failed++; err == nil {
			failed = 0
		}
		ids = ids[len(listed):]
		if len(listed) == 0 || failed == failedLists || (err != nil && len(ids) == 0 && len(found) == 0) {
			return nil, err
		}
		for _, m := range machines {
			found[m.SystemID] = m
		}
	}
	return found, nil
}

// Zones returns MAAS's zones.
func (i *Inventory) Zones(ctx context.Context, maxAge time.Duration) ([]maas.Ref, error) {
	return i.zones.Get(ctx, maxAge, i.client.ListZones)
}

// ResourcePools returns MAAS's resource pools.
func (i *Inventory) ResourcePools(ctx context.Context, maxAge time.Duration) ([]maas.Ref, error) {
	return i.pools.Get(ctx, maxAge, i.client.ListResourcePools)
}

// Subnets returns MAAS's subnets.
func (i *Inventory) Subnets(ctx context.Context, maxAge time.Duration) ([]maas.Subnet, error) {
	return i.subnets.Get(ctx, maxAge, i.client.ListSubnets)
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
	return i.used.At(subnetID).Get(ctx, maxAge, func(ctx context.Context) (use SubnetUse, err error) {
		if use.Ranges, err = i.client.UsedRanges(ctx, subnetID); err == nil {
			use.Addresses, err = i.client.SubnetAddresses(ctx, subnetID)
		}
		return use, err
	})
}

// Domains returns the DNS domains that MAAS serves.
func (i *Inventory) Domains(ctx context.Context, maxAge time.Duration) ([]maas.Domain, error) {
	return i.domains.Get(ctx, maxAge, i.client.ListDomains)
}

// Images returns MAAS's images.
func (i *Inventory) Images(ctx context.Context, maxAge time.Duration) ([]maas.Image, error) {
	return i.images.Get(ctx, maxAge, i.client.ListImages)
}

// Image returns an image with its files. maas.NotFound: it is gone.
func (i *Inventory) Image(ctx context.Context, id int, maxAge time.Duration) (maas.ImageDetail, error) {
	return i.details.At(id).Get(ctx, maxAge, func(ctx context.Context) (maas.ImageDetail, error) {
		return i.client.GetImage(ctx, id)
	})
}

// Tags returns MAAS's tags.
func (i *Inventory) Tags(ctx context.Context, maxAge time.Duration) ([]maas.Tag, error) {
	return i.tags.Get(ctx, maxAge, i.client.ListTags)
}

// Tagged returns the machines that have a tag; none if there is no such tag.
func (i *Inventory) Tagged(ctx context.Context, tag string, maxAge time.Duration) ([]*maas.Machine, error) {
	return i.tagged.At(tag).Get(ctx, maxAge, func(ctx context.Context) ([]*maas.Machine, error) {
		machines, err := i.client.TaggedMachines(ctx, tag)
		if errors.Is(err, maas.NotFound) {
			return nil, nil
		}
		return machines, err
	})
}

// TestScripts returns MAAS's testing scripts.
func (i *Inventory) TestScripts(ctx context.Context, maxAge time.Duration) ([]maas.Script, error) {
	return i.scripts.Get(ctx, maxAge, i.client.TestScripts)
}

// ForgetTags makes the next Tags and Tagged ask MAAS: a call has changed them.
func (i *Inventory) ForgetTags() {
	i.tags.Drop()
	i.tagged.DropAll()
}

// hostProject is the LXD project of a VM host, or that MAAS does not tell the API key's user.
type hostProject struct {
	name    string
	refused error
}

// VMHostProject returns the LXD project that MAAS uses on a VM host. maas.Forbidden: the API key's user may not make
// VMs there.
func (i *Inventory) VMHostProject(ctx context.Context, hostID int, maxAge time.Duration) (string, error) {
	ask := func(ctx context.Context) (hostProject, error) {
		power, err := i.client.VMHostPower(ctx, hostID)
		if errors.Is(err, maas.Forbidden) {
			return hostProject{refused: err}, nil
		}
		return hostProject{name: power.Project}, err
	}
	project, err := i.projects.At(hostID).Get(ctx, maxAge, ask)
	if err == nil && project.refused != nil {
		project, err = i.projects.At(hostID).Get(ctx, rightsRetry, ask)
	}
	return project.name, cmp.Or(err, project.refused)
}

// DNSRecord returns the DNS record of a name, or nil if there is none. *WrongRecordError: MAAS returned another one.
func (i *Inventory) DNSRecord(ctx context.Context, fqdn string, maxAge time.Duration) (*maas.DNSResource, error) {
	record, err := i.records.At(fqdn).Get(ctx, maxAge, func(ctx context.Context) (*maas.DNSResource, error) {
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
func (i *Inventory) ForgetDNSRecord(fqdn string) { i.records.Drop(fqdn) }

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

// HasEntitlements reports whether MAAS has entitlements.
func (i *Inventory) HasEntitlements(ctx context.Context) (bool, error) {
	return i.entitlements.Get(ctx, rightsMaxAge, func(ctx context.Context) (bool, error) {
		version, err := i.client.Version(ctx)
		if err != nil {
			return false, fmt.Errorf("reading MAAS's version: %w", err)
		}
		return version.HasEntitlements(), nil
	})
}

// User returns the API key's user, who may be no administrator any more.
func (i *Inventory) User(ctx context.Context) (maas.User, error) {
	ask := func(ctx context.Context) (maas.User, error) {
		user, err := i.client.WhoAmI(ctx)
		if err != nil {
			return user, fmt.Errorf("asking MAAS for the user of the API key: %w", err)
		}
		return user, nil
	}
	user, err := i.user.Get(ctx, rightsMaxAge, ask)
	if err == nil && !user.Administrator {
		user, err = i.user.Get(ctx, rightsRetry, ask)
	}
	return user, err
}
