// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/netip"
	"slices"

	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
)

// HostObjects are the LXDHosts of one MAAS.
type HostObjects interface {
	// HostObjects lists them, in any order.
	HostObjects(ctx context.Context) ([]HostObject, error)
}

// HostObject is what an LXDHost tells of a host.
type HostObject struct {
	Namespace, Name string
	// VMHost is the VM host of a MAAS that it is, or was; "" if it never was one. VMHostID is its id; 0 in another MAAS.
	VMHost   HostKey
	VMHostID int
	// Direct: VMs are made through LXD's own API; on a former VM host, from when MAAS has no VM hosts any more.
	Direct bool
	// Unschedulable keeps new VMs off the host.
	Unschedulable bool
	// Allows reports whether MaasMachines of a namespace may be placed on the host.
	Allows func(namespace string) bool

	// Server is how LXD is reached, unless Problem says why that is not known, or why the host is not Direct for this MAAS.
	// This and the rest is for hosts whose VMs are made through LXD's own API.
	Server  lxdhost.Options
	Problem error

	Zone, ResourcePool  string
	Tags                []string
	StoragePool, Bridge string
	// Subnet is that of MAAS on Bridge, or invalid.
	Subnet     netip.Prefix
	Overcommit lxdhost.Overcommit
}

// current are the LXDHosts as they are used now: as VM hosts, as long as MAAS has VM hosts.
type current struct {
	objects   HostObjects
	inventory *inventory.Inventory
}

// HostObjects lists them. The error may be one of MAAS, where some are VM hosts that can be reached directly, too.
func (c *current) HostObjects(ctx context.Context) ([]HostObject, error) {
	objects, err := c.objects.HostObjects(ctx)
	both := func(o HostObject) bool { return o.VMHost != "" && o.Direct }
	if err != nil || !slices.ContainsFunc(objects, both) {
		return objects, err
	}
	_, _, err = c.inventory.VMHosts(ctx, hostsMaxAge)
	if errors.Is(err, maas.Gone) {
		return objects, nil
	}
	for i := range objects {
		objects[i].Direct = objects[i].Direct && objects[i].VMHost == ""
	}
	return objects, err
}

// serverKey identifies the LXD, by whatever LXDHost: its certificate, and the project.
func (o *HostObject) serverKey() HostKey {
	sum := sha256.Sum256(o.Server.ServerCertificate)
	return HostKey("LXD " + hex.EncodeToString(sum[:]) + " project " + o.Server.Project)
}

// isOtherProjectOf reports whether two hosts are projects of one LXD.
func (h *Host) isOtherProjectOf(other Host) bool {
	return h.IsDirect() && other.IsDirect() && h.Object.Server.Project != other.Object.Server.Project &&
		bytes.Equal(h.Object.Server.ServerCertificate, other.Object.Server.ServerCertificate)
}

// describe gives VM hosts their LXDHosts.
func describe(hosts []Host, objects []HostObject) {
	for i := range hosts {
		key := hosts[i].Key()
		if at := slices.IndexFunc(objects, func(o HostObject) bool { return !o.Direct && o.VMHost == key }); at >= 0 {
			hosts[i].Object = &objects[at]
		}
	}
}
