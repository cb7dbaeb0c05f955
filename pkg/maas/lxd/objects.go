// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
)

// secretsMaxAge is how old what the Secrets of an LXDHost say may be, where many are looked at.
const secretsMaxAge = time.Minute

// ErrUnopened is the Problem of an LXDHost before HostObject.Open.
var ErrUnopened = errors.New("what its Secrets say is not known")

// HostObjects are the LXDHosts that may be for one MAAS.
type HostObjects interface {
	// HostObjects lists them, in any order. It asks neither LXD nor MAAS, and reads no Secret: there may be many, for
	// any user, and they lead anywhere.
	HostObjects(ctx context.Context) ([]HostObject, error)
}

// HostObject is what an LXDHost says of a host.
type HostObject struct {
	Namespace, Name string
	// VMHost is the VM host of this MAAS that it is, or was, and VMHostID its id; zero if it never was one.
	VMHost   HostKey
	VMHostID int
	// Direct: VMs are made through LXD's own API; on a former VM host, from when MAAS has no VM hosts any more.
	Direct bool
	// Unschedulable keeps new VMs off the host.
	Unschedulable bool
	// Allows reports whether MaasMachines of a namespace may be placed on the host.
	Allows func(namespace string) bool
	// AllowedDevices are those of the host that VMs of other namespaces may have.
	AllowedDevices []AllowedDevice

	// Unproven: it is not known before Open whether the host is for this MAAS.
	Unproven bool
	// Open finds out what only Secrets have, read at most maxAge ago: Server, Problem, and for this MAAS Direct and
	// Allows. To be placed there, VMs are of a namespace; "" is for VMs that are there. nil: all of it is known.
	Open func(ctx context.Context, object *HostObject, namespace string, maxAge time.Duration)

	// Server is how LXD is reached, unless Problem says why that is not known, or why the host is not Direct for this
	// MAAS. This and the rest is for hosts whose VMs are made through LXD's own API.
	Server  lxdhost.Options
	Problem error

	Zone, ResourcePool  string
	Tags                []string
	StoragePool, Bridge string
	// Subnet is that of MAAS on Bridge, or invalid: then no VM is placed there.
	Subnet netip.Prefix
	// Nameservers are those of VMs whose subnet in MAAS has none.
	Nameservers []string
	Overcommit  lxdhost.Overcommit
}

// opened returns the object with what its Secrets say; see Open.
func (o HostObject) opened(ctx context.Context, namespace string, maxAge time.Duration) *HostObject {
	if o.Open != nil {
		o.Open(ctx, &o, namespace, maxAge)
	}
	return &o
}

// current are the LXDHosts as they are used now: as VM hosts, as long as MAAS has VM hosts.
type current struct {
	objects   HostObjects
	inventory *inventory.Inventory
}

// HostObjects lists them. The error may be one of MAAS, where some are VM hosts that can be reached directly, too.
func (c *current) HostObjects(ctx context.Context) ([]HostObject, error) {
	objects, err := c.objects.HostObjects(ctx)
	both := func(o HostObject) bool { return o.VMHost != (HostKey{}) && o.Direct }
	if err != nil || !slices.ContainsFunc(objects, both) {
		return objects, err
	}
	_, has, err := c.inventory.AnyVMHosts(ctx, hostsMaxAge)
	if err == nil && !has {
		return objects, nil
	}
	for i := range objects {
		objects[i].Direct = objects[i].Direct && objects[i].VMHost == (HostKey{})
	}
	return objects, err
}

// serverKey identifies the project of the LXD at the address. Nothing is placed there before it proved its certificate
// to the LXDHost's own.
func (o *HostObject) serverKey() HostKey {
	return HostKey(o.Server.Server().Key(o.Server.Project))
}

// isSameLXD reports whether two LXDHosts lead to one LXD, by whatever address. Only what is known of the VMs there may
// rest on it: whoever makes an LXDHost can name any certificate.
func (o *HostObject) isSameLXD(other *HostObject) bool {
	return bytes.Equal(o.Server.ServerCertificate, other.Server.ServerCertificate)
}

// isOtherProjectOf reports whether two hosts are projects of one LXD.
func (h *Host) isOtherProjectOf(other Host) bool {
	return h.IsDirect() && other.IsDirect() && h.Object.Server.Project != other.Object.Server.Project &&
		h.Object.isSameLXD(other.Object)
}

// describe gives VM hosts their LXDHosts.
func describe(hosts []Host, objects []HostObject) {
	for i := range hosts {
		key := hosts[i].Key()
		hosts[i].Object = list.Find(objects, func(o HostObject) bool { return !o.Direct && o.VMHost == key })
	}
}
