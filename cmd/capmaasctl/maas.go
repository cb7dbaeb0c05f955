// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net/http/httptrace"
	"net/url"
	"strings"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/dns"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
)

// checkMAAS checks a region.
func checkMAAS(ctx context.Context, o options, s surroundings) checks {
	var found checks
	if o.maasFrom != "" && o.unconnected == nil {
		found.ok("source", "URL and key are %s", o.maasFrom)
	}
	found.manager(ctx, o, s)
	responds, usable := found.region(ctx, o, o.testVMHost)
	if !responds {
		return found
	}
	found.names(ctx, o)
	found.subnets(ctx, o.region)
	found.domains(ctx, o.region, o.dnsDomain)
	if o.testVMHost && usable {
		found.registration(ctx, o)
	}
	return found
}

// manager checks the manager's own MAAS, if another one, or another key, is checked: clusters use the manager's.
func (c *checks) manager(ctx context.Context, o options, s surroundings) {
	if o.cluster != nil { // It is the manager's that is checked.
		return
	}
	reader, _, err := o.managementCluster(s)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, managerTimeout)
	defer cancel()
	config, from, err := managersMAAS(ctx, reader)
	switch {
	case guard.Is[*noMAASError](err):
		return // Each MaasCluster names its own.
	case err != nil:
		c.add(stateUnknown, "manager", "", "the management cluster does not tell what the manager's URL and key are: %v", err)
		return
	case config.ID() == o.maas.ID():
		c.ok("manager", "URL and key are the same as %s", from)
		return
	}
	region, err := maas.NewClient(config)
	var user maas.User
	if err == nil {
		defer region.Close()
		user, err = region.WhoAmI(ctx)
	}
	if err != nil {
		problem, remedy := maas.Explain(err)
		c.failed("manager", cmp.Or(remedy, "correct them"), "%s, are others, and clusters can't use them: %s", from,
			text.Lines(errors.New(problem)))
		return
	}
	c.ok("manager", "%s, are others; that key is valid, and belongs to %s", from, user.Username)
}

// managerTimeout is how long the manager's MAAS is looked for, and asked, beside the one that is checked.
const managerTimeout = 10 * time.Second

// region checks that MAAS responds, accepts the key, and, if they are needed, has VM hosts. responds is false if it is
// of no use. usable reports whether VM hosts can be read and registered.
func (c *checks) region(ctx context.Context, o options, needed bool) (responds, usable bool) {
	if o.unconnected != nil {
		c.refused("endpoint", o.unconnected)
		return false, false
	}
	version, found := c.endpoint(ctx, o.region, o.maas.Endpoint)
	if !found {
		return false, false
	}
	user, err := o.region.WhoAmI(ctx)
	if err != nil {
		c.refused("api-key", err)
		return false, false
	}
	c.ok("api-key", "it is valid, and belongs to %s", user.Username)
	mayRegister := c.user(user, version)
	return true, c.vmHosts(ctx, o.region, needed) && mayRegister
}

// user checks that the key's user may do anything of use, and reports whether the user may register VM hosts, as far as
// MAAS tells. Up to MAAS 3.7 these are administrators.
func (c *checks) user(user maas.User, version maas.Version) bool {
	switch {
	case version.HasEntitlements():
		c.add(stateUnknown, "rights", "compare the entitlements of the groups of "+user.Username+" in MAAS with the table "+
			"in docs/security.md#the-least-key", "MAAS %s does not tell what %s may do", version, user.Username)
		return true
	case user.Administrator:
		c.ok("administrator", "%s is an administrator", user.Username)
	default:
		c.failed("administrator", "have an administrator make "+user.Username+" one, or use an administrator's key",
			"%s is no administrator: VM hosts and DNS are for administrators", user.Username)
	}
	return user.Administrator
}

// endpoint returns MAAS's version, and reports whether a MAAS of a supported one responds. It asks without a key.
func (c *checks) endpoint(ctx context.Context, client *maas.Client, address string) (maas.Version, bool) {
	var over *tls.ConnectionState
	version, err := client.Version(withConnection(ctx, func(state *tls.ConnectionState) { over = state }))
	if u, err := url.Parse(address); err == nil {
		address = u.Redacted()
		if u.Scheme == "http" {
			over = nil // It is a proxy's.
		}
	}
	if errors.Is(err, maas.Unauthorized) {
		c.ok("endpoint", "MAAS responds at %s", address)
		c.refused("api-key", err)
		return version, false
	}
	if err != nil {
		c.refused("endpoint", err)
		return version, false
	}
	c.ok("endpoint", "MAAS responds at %s", address)
	c.connection(over)
	return version, c.version(version)
}

// withConnection tells of the TLS of each connection that a request is sent on; nil if it has none.
func withConnection(ctx context.Context, tell func(*tls.ConnectionState)) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
		var state *tls.ConnectionState
		if secure, is := got.Conn.(*tls.Conn); is {
			now := secure.ConnectionState()
			state = &now
		}
		tell(state)
	}})
}

// connection says how MAAS is reached. One that is hardened, or runs on a FIPS host, takes TLS alone.
func (c *checks) connection(over *tls.ConnectionState) {
	if over == nil {
		c.ok("tls", "none: who is on the network can read the key; a hardened MAAS (3.7.4 and newer) has https alone")
		return
	}
	c.ok("tls", "%s, %s, key exchange %s", tls.VersionName(over.Version), tls.CipherSuiteName(over.CipherSuite),
		over.CurveID)
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
	hosts, err := client.ListVMHosts(ctx)
	if errors.Is(err, maas.Gone) && !needed {
		c.ok("vm-hosts", "this MAAS has no VM hosts; VMs are made on LXDHosts")
		return false
	}
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
