// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdapi"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdnode"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/vmhosts"
)

const (
	// certificatePrefix and the LXD project are the name of LXD's client for which certificates are made here.
	certificatePrefix = "capmaasctl-"
	// resourcesInterval and resourcesWait bound the wait for the cores and the memory of a host that was just
	// registered. MAAS reads them with a script, moments after its response.
	resourcesInterval = time.Second
	resourcesWait     = time.Minute
)

// byHand is the permit for a command that a person runs, and runs again after an interruption.
var byHand = maas.Unrecorded("a person runs it again; a VM host has one address, and is registered once")

// checkVMHost checks a node's registration in MAAS, or corrects it.
func checkVMHost(ctx context.Context, o options) checks {
	var found checks
	if _, usable := found.region(ctx, o, true); !usable {
		return found
	}
	switch named := found.names(ctx, o); {
	case !o.apply:
		found.registration(ctx, o)
	case named:
		found.register(ctx, o)
	}
	return found
}

// registrationOf returns the VM host that the flags describe.
func registrationOf(o options) vmhosts.Registration {
	return vmhosts.Registration{
		Name: o.name, PowerAddress: o.address.String(), Project: o.project,
		Zone: o.zone, ResourcePool: o.resourcePool,
	}
}

// registration checks how the node is registered.
func (c *checks) registration(ctx context.Context, o options) {
	wanted, service := registrationOf(o), vmhosts.NewService(o.region)
	host, changes, err := service.Check(ctx, wanted)
	if err == nil && host != nil {
		// Again, because it may be registered twice, and the data of the one helps to find the other.
		host, changes, err = service.Check(ctx, known(wanted, *host))
	}
	switch {
	case err != nil:
		c.notRegistered(err)
		return
	case host == nil:
		c.add(stateMissing, "vm-host", "the initializer registers it, or `capmaasctl check vm-host --apply` on the node",
			"MAAS has no VM host at %s with the LXD project %s", wanted.PowerAddress, wanted.Project)
		return
	}
	other := slices.DeleteFunc(slices.Clone(changes),
		func(what string) bool { return what == "zone" || what == "resource pool" })
	if len(other) > 0 {
		c.failed("vm-host", "--apply on the node brings it up to date", "%s is registered with another %s", nameOf(*host),
			strings.Join(other, ", "))
	} else {
		c.ok("vm-host", "it is registered as %s", nameOf(*host))
	}
	c.condition(*host, o, nil)
}

// notRegistered turns an error of vmhosts, or of LXD that it asked, into a line.
func (c *checks) notRegistered(err error) {
	refused, is := errors.AsType[*vmhosts.Error](err)
	switch {
	case guard.Is[*lxdnode.Error](err):
		c.lxdFailed(err)
	case !is:
		c.refused("vm-host", err)
	case refused.Kind == vmhosts.Taken:
		c.failed("vm-host", refused.Remedy+"; --vm-host-name gives this one another name", "%s", refused.Problem)
	default:
		c.failed("vm-host", refused.Remedy, "%s", refused.Problem)
	}
}

// known adds MAAS's data of the host to a registration.
func known(r vmhosts.Registration, h maas.VMHost) vmhosts.Registration {
	r.SystemID = h.Host.SystemID
	if r.Name == "" {
		r.Name = h.Name
	}
	return r
}

func nameOf(h maas.VMHost) string { return fmt.Sprintf("%s (id %d)", h.Name, h.ID) }

// condition checks the state and the location of a registered host. unusable is MAAS's error from refreshing it.
func (c *checks) condition(h maas.VMHost, o options, unusable error) {
	c.place("vm-host-zone", o.zone, h.Zone.Name)
	c.place("vm-host-pool", o.resourcePool, h.Pool.Name)
	remedy := fmt.Sprintf("`capmaasctl check lxd` on the node; MAAS's rack controllers must reach %s", o.address)
	switch {
	case unusable != nil:
		c.failed("vm-host-reachable", remedy, "MAAS can't use its LXD: %s", maas.Message(unusable))
		return
	case h.Version == "":
		c.failed("vm-host-reachable", remedy, "MAAS has never reached its LXD")
		return
	}
	if why := lxdapi.OfVersion(h.Version).NotForMAAS(); why != "" {
		c.failed("vm-host-reachable", lxdapi.NotForMAASRemedy, "%s", why)
		return
	}
	c.ok("vm-host-reachable", "MAAS has reached its LXD %s", h.Version)
	if !h.ResourcesKnown() {
		c.failed("vm-host-resources", "they come a minute after the registration; else refresh the VM host in MAAS",
			"MAAS does not know its cores and memory yet")
		return
	}
	c.ok("vm-host-resources", "%d of %d cores and %d of %d MiB of memory are free",
		h.Available.Cores, h.Total.Cores, h.Available.Memory, h.Total.Memory)
}

func (c *checks) place(name, wanted, is string) {
	if wanted != "" && wanted != is {
		c.failed(name, "--apply on the node moves it", "it is in %s, not in %s", is, wanted)
		return
	}
	c.ok(name, "it is in %s", is)
}

// register brings the node's registration up to date, using LXD's socket for the certificate.
func (c *checks) register(ctx context.Context, o options) {
	node := c.connect(ctx, o.socket)
	if node == nil || !c.takesMAAS(ctx, node) || !c.listens(ctx, node, o) || !c.unmistakable(ctx, node) {
		return
	}
	service, wanted, name := vmhosts.NewService(o.region), registrationOf(o), certificatePrefix+o.project
	ours := func(client string) bool { return client == name }
	earlier, err := node.Earlier(ctx, ours, nil)
	if err != nil {
		c.lxdFailed(err)
		return
	}
	wanted.Earlier = earlier
	wanted, made, err := withKeys(ctx, o.region, service, wanted)
	if err != nil {
		c.notRegistered(err)
		return
	}
	if made {
		err = forgetTries(ctx, node, earlier)
	}
	added := false
	if err == nil {
		added, err = node.Trust(ctx, name, o.project, []byte(wanted.Certificate))
	}
	if err != nil {
		c.lxdFailed(err)
		return
	}
	c.done(lineName(lxdnode.StepTrust), added, "LXD trusts MAAS's certificate")
	result, err := service.Ensure(ctx, byHand, wanted, node.VMs)
	if result.Host.ID == 0 {
		c.notRegistered(err)
		return
	}
	switch {
	case result.Created:
		c.add(stateChanged, "vm-host", "", "it is registered now, as %s", nameOf(result.Host))
	case len(result.Changes) > 0:
		c.add(stateChanged, "vm-host", "", "%s has another %s now", nameOf(result.Host), strings.Join(result.Changes, ", "))
	default:
		c.ok("vm-host", "it is registered as %s", nameOf(result.Host))
	}
	c.condition(awaitResources(ctx, o.region, result.Host), o, err)
	if err != nil {
		return // The certificate is not known to work.
	}
	if err := node.Distrust(ctx, ours, []byte(wanted.Certificate)); err != nil {
		c.lxdFailed(err)
	}
}

// forgetTries removes the certificates of earlier runs that did not end well, before another one is added: their keys
// are lost. A run that ends well leaves one certificate, so only the oldest may be in use.
func forgetTries(ctx context.Context, node *lxdnode.Node, earlier []string) error {
	for _, try := range earlier[min(1, len(earlier)):] {
		if err := node.Forget(ctx, try); err != nil {
			return err
		}
	}
	return nil
}

// takesMAAS reports whether MAAS can make VMs on this LXD.
func (c *checks) takesMAAS(ctx context.Context, node *lxdnode.Node) bool {
	traits, err := node.Traits(ctx)
	if err != nil {
		c.lxdFailed(err)
		return false
	}
	if why := traits.NotForMAAS(); why != "" {
		c.failed(lineName(lxdnode.StepServer), lxdapi.NotForMAASRemedy, "%s", why)
		return false
	}
	return true
}

// listens reports whether this LXD listens on the address that is to be registered: MAAS accepts any address.
func (c *checks) listens(ctx context.Context, node *lxdnode.Node, o options) bool {
	addresses, err := node.Addresses(ctx)
	if err != nil {
		c.lxdFailed(err)
		return false
	}
	for _, text := range addresses {
		if address, err := netip.ParseAddrPort(text); err == nil && address == o.address {
			c.ok(lineName(lxdnode.StepListen), "this LXD listens on %s", o.address)
			return true
		}
	}
	there := "nowhere on the network"
	if len(addresses) > 0 {
		there = "on " + strings.Join(addresses, ", ")
	}
	c.failed(lineName(lxdnode.StepListen), "`capmaasctl check lxd --apply` lets it listen; or is this not the node of "+
		"--node-ip?", "this LXD listens %s, not on %s", there, o.address)
	return false
}

// unmistakable reports whether MAAS can distinguish this node from others. A node that it can't is not registered.
func (c *checks) unmistakable(ctx context.Context, node *lxdnode.Node) bool {
	found, err := node.CheckInterfaces(ctx)
	*c = append(*c, lineOf(found))
	return err == nil
}

// withKeys completes the registration. A host that MAAS already has keeps its name and its certificate, so that another
// program that manages it, such as the initializer, does not have to restore them. Otherwise the key pair is made.
func withKeys(
	ctx context.Context, client *maas.Client, service *vmhosts.Service, wanted vmhosts.Registration,
) (complete vmhosts.Registration, made bool, err error) {
	host, _, err := service.Check(ctx, wanted)
	if err == nil && host == nil && wanted.Name == "" {
		if wanted.Name, err = os.Hostname(); err != nil {
			return wanted, false, fmt.Errorf("reading this machine's name: %w", err)
		}
		wanted.Name = strings.ToLower(wanted.Name)
		host, _, err = service.Check(ctx, wanted)
	}
	if err != nil {
		return wanted, false, err
	}
	if host != nil {
		wanted = known(wanted, *host)
		power, err := client.VMHostPower(ctx, host.ID)
		if err != nil {
			return wanted, false, fmt.Errorf("reading the certificate of VM host %s: %w", host.Name, err)
		}
		if (lxdnode.Keys{Certificate: []byte(power.Certificate), Key: []byte(power.Key)}).ValidFor(0) {
			wanted.Certificate, wanted.Key = power.Certificate, power.Key
			return wanted, false, nil
		}
	}
	keys, err := lxdnode.NewKeys(certificatePrefix + wanted.Project)
	if err != nil {
		return wanted, false, err
	}
	wanted.Certificate, wanted.Key = string(keys.Certificate), string(keys.Key)
	return wanted, true, nil
}

// awaitResources waits until MAAS knows the resources of a host that it reaches. It returns MAAS's last data.
func awaitResources(ctx context.Context, client *maas.Client, host maas.VMHost) maas.VMHost {
	if host.Version == "" || host.ResourcesKnown() {
		return host
	}
	// The result is in the host; a timeout is no error of its own.
	_ = wait.PollUntilContextTimeout(ctx, resourcesInterval, resourcesWait, false,
		func(ctx context.Context) (bool, error) {
			now, err := client.GetVMHost(ctx, host.ID)
			if err != nil {
				return errors.Is(err, maas.NotFound), nil
			}
			host = now
			return host.ResourcesKnown(), nil
		})
	return host
}
