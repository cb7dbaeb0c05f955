// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/dns"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/rights"
)

// checkMAAS checks a region.
func checkMAAS(ctx context.Context, o options) checks {
	var found checks
	answers, usable := found.region(ctx, o, o.testVMHost)
	if !answers {
		return found
	}
	found.names(ctx, o)
	found.subnets(ctx, o.region)
	found.domains(ctx, o.region, o.dnsDomain)
	found.rights(ctx, o.region, o.resourcePool)
	if o.testVMHost && usable {
		found.registration(ctx, o)
	}
	return found
}

// region checks that MAAS responds, accepts the key, and, if they are needed, has VM hosts. answers is false if it is
// of no use. usable reports whether VM hosts can be read and registered.
func (c *checks) region(ctx context.Context, o options, needed bool) (answers, usable bool) {
	if o.unconnected != nil {
		c.refused("endpoint", o.unconnected)
		return false, false
	}
	if !c.endpoint(ctx, o.region, o.maas.Endpoint) {
		return false, false
	}
	user, err := o.region.WhoAmI(ctx)
	if err != nil {
		c.refused("api-key", err)
		return false, false
	}
	c.ok("api-key", "it is valid, and belongs to %s", user.Username)
	mayRegister := c.user(ctx, o.region, user)
	return true, c.vmHosts(ctx, o.region, needed) && mayRegister
}

// user checks that the key's user may do anything of use, and reports whether the user may register VM hosts. Up to
// MAAS 3.7 these are administrators.
func (c *checks) user(ctx context.Context, client *maas.Client, user maas.User) bool {
	entitled, err := rights.Direct{Client: client}.HasEntitlements(ctx)
	switch {
	case err != nil:
		c.refused("administrator", err)
	case entitled:
		return true
	case user.Administrator:
		c.ok("administrator", "%s is an administrator", user.Username)
	default:
		c.failed("administrator", "have an administrator make "+user.Username+" one, or use an administrator's key",
			"%s is no administrator: VM hosts and DNS are for administrators", user.Username)
	}
	return user.Administrator
}

// endpoint reports whether a MAAS of a supported version responds. MAAS returns its version without a key.
func (c *checks) endpoint(ctx context.Context, client *maas.Client, address string) bool {
	if u, err := url.Parse(address); err == nil {
		address = u.Redacted()
	}
	version, err := client.Version(ctx)
	if errors.Is(err, maas.Unauthorized) {
		c.ok("endpoint", "MAAS responds at %s", address)
		c.refused("api-key", err)
		return false
	}
	if err != nil {
		c.refused("endpoint", err)
		return false
	}
	c.ok("endpoint", "MAAS responds at %s", address)
	return c.version(version)
}

// version reports whether the provider supports a version. A newer one than it was tested with is expected to work.
func (c *checks) version(version maas.Version) bool {
	supported := maas.Oldest.Series() + " to " + maas.Newest.Series()
	switch {
	case version.Compare(maas.Oldest) < 0:
		c.failed("version", "upgrade MAAS to one of "+supported,
			"MAAS %s is too old: the provider is made for, and tested with, %s", version, supported)
		return false
	case version.AtLeast(maas.Newest.Major, maas.Newest.Minor+1, 0):
		c.ok("version", "MAAS %s, which is newer than those that the provider is tested with, %s", version, supported)
	default:
		c.ok("version", "MAAS %s", version)
	}
	return true
}

// vmHosts reports whether this MAAS has VM hosts at all.
func (c *checks) vmHosts(ctx context.Context, client *maas.Client, needed bool) bool {
	has, err := rights.Direct{Client: client}.HasVMHosts(ctx)
	if err == nil && !has && !needed {
		c.ok("vm-hosts", "this MAAS has no VM hosts; VMs are made on LXDHosts")
		return false
	}
	hosts, err := client.ListVMHosts(ctx)
	if err != nil {
		c.refused("vm-hosts", err)
		return false
	}
	ofLXD := list.Where(hosts, func(h maas.VMHost) bool { return h.Type == maas.VMHostTypeLXD })
	c.ok("vm-hosts", "MAAS has %d LXD VM host(s)", len(ofLXD))
	return true
}

// names checks the wanted zone and resource pool, and lists the existing ones. It returns false if one does not exist.
func (c *checks) names(ctx context.Context, o options) bool {
	zone := c.oneOf(ctx, "zone", machine.MissingZone, o.zone, o.region.ListZones)
	pool := c.oneOf(ctx, "resource-pool", machine.MissingPool, o.resourcePool, o.region.ListResourcePools)
	return zone && pool
}

// oneOf reports whether MAAS has the wanted one; "" always exists.
func (c *checks) oneOf(
	ctx context.Context, name string, kind machine.Missing, wanted string, read func(context.Context) ([]maas.Ref, error),
) bool {
	refs, err := read(ctx)
	if err != nil {
		c.refused(name, err)
		return false
	}
	var missing *machine.MissingError
	if wanted != "" && errors.As(machine.Has(refs, kind, "", wanted), &missing) {
		c.failed(name, missing.Remedy(), "%s", missing.Found())
		return false
	}
	all := list.Each(refs, func(ref maas.Ref) string { return ref.Name })
	c.ok(name, "MAAS has %s", cmp.Or(wanted, strings.Join(all, ", ")))
	return true
}

// subnets checks that machines can boot from a subnet.
func (c *checks) subnets(ctx context.Context, client *maas.Client) {
	subnets, err := client.ListSubnets(ctx)
	if err != nil {
		c.refused("subnets", err)
		return
	}
	served := list.Where(subnets, func(s maas.Subnet) bool { return s.VLAN.DHCP })
	if len(served) == 0 {
		c.failed("subnets", "enable DHCP on the VLAN of the machines, with a dynamic range in its subnet",
			"MAAS serves DHCP on none of its %d subnet(s): no machine can boot", len(subnets))
		return
	}
	names := list.Each(served, func(s maas.Subnet) string { return s.CIDR })
	c.ok("subnets", "MAAS serves DHCP on %s", strings.Join(names, ", "))
}

// domains checks the DNS domain of the clusters' API endpoints.
func (c *checks) domains(ctx context.Context, client *maas.Client, wanted string) {
	domains, err := client.ListDomains(ctx)
	if err != nil {
		c.refused("dns-domain", err)
		return
	}
	// In the words of a MaasCluster's condition.
	if missing, is := errors.AsType[*dns.DomainError](dns.CheckDomain(domains, wanted)); is && wanted != "" {
		c.failed("dns-domain", missing.Remedy(), "%s", missing.Found())
		return
	}
	there := list.Each(list.Where(domains, func(d maas.Domain) bool { return d.Authoritative }),
		func(d maas.Domain) string { return d.Name })
	c.ok("dns-domain", "MAAS has %s", cmp.Or(wanted, strings.Join(there, ", ")))
}

// refused turns an error of MAAS, or from looking for it, into a line.
func (c *checks) refused(name string, err error) {
	found, remedy := explainAll(err)
	c.failed(name, remedy, "%s", found)
}

// rights tells what the key may be used for: in one resource pool, or, without one, in which.
func (c *checks) rights(ctx context.Context, client *maas.Client, pool string) {
	pools, err := client.ListResourcePools(ctx)
	if err != nil {
		c.refused("rights", err)
		return
	}
	if pool != "" {
		pools = slices.DeleteFunc(pools, func(p maas.Ref) bool { return p.Name != pool })
	}
	found, err := rights.Survey(ctx, rights.Direct{Client: client}, pools)
	if err != nil {
		c.refused("rights", err)
		return
	}
	for _, one := range found {
		c.right(one, pool)
	}
}

func (c *checks) right(f rights.Finding, pool string) {
	name, where := f.Name, ""
	if len(f.Pools) > 0 {
		where = " in " + strings.Join(f.Pools, ", ")
	}
	switch {
	case f.Answer == rights.Yes:
		c.ok(name, "the key may: %s%s", f.What, where)
	case f.Answer == rights.Unknown:
		c.add(stateUnknown, name, "", "%s%s: no machine there is free, so MAAS does not tell whether the key may", f.What,
			where)
	case f.Answer == rights.Absent:
		c.add(stateNo, name, "for VMs, give the LXDs to the provider as LXDHosts", "this MAAS has no VM hosts")
	case len(f.Missing) == 0:
		c.add(stateNo, name, "for this, use the key of an administrator", "the key may not: %s", f.What)
	default:
		c.add(stateNo, name, "for this, give a group of the user "+rights.Describe(f.Missing, pool), "the key may not: %s",
			f.What)
	}
}
