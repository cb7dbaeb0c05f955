// SPDX-License-Identifier: Apache-2.0

// Package capacity says whether further machines of a cluster would fit, where, and how many. Who asks that asks here:
// hosts, VMs, reservations and machines are gathered in one way, and counted as placement does.
package capacity

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/plan"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

const (
	// ZonesMaxAge is the maximum age of the list of zones.
	ZonesMaxAge = time.Minute
	// builtInZone exists in every MAAS and can't be deleted.
	builtInZone = "default"
)

// Question is about further machines of a cluster.
type Question struct {
	Spec         infrav1.MaasMachineSpec
	ControlPlane bool
	// Anywhere: the hosts are for other VMs, too.
	Anywhere bool
	// ForReport: the figures of hosts are as whoever read them last, unless that is too long ago for reservations.
	ForReport bool
}

// Supply is what machines can be made from.
type Supply struct {
	plan.Source

	cluster      *scope.Cluster
	controlPlane bool
}

// Gather reads what there is for further machines: hosts for VMs, or bare metal, also what is in use. Where no VM can
// be made at all, Refused says why. inventory.ErrPending: MAAS still lists its machines.
func Gather(ctx context.Context, s *scope.Cluster, q Question) (_ *Supply, err error) {
	supply := &Supply{cluster: s, controlPlane: q.ControlPlane}
	if !q.Spec.IsLXD() {
		supply.Constraints = scope.Constraints(q.Spec)
		if q.Spec.Storage != nil {
			supply.Storage = ptr.To(scope.StorageWish(q.Spec.Storage))
		}
		supply.Metal, err = clusters.BareMetal(ctx, s, clusters.BareMetalMaxAge)
		return supply, err
	}
	vm := s.TemplateVM(q.Spec, q.ControlPlane)
	supply.VM = ptr.To(vm)
	if q.Anywhere {
		vm = vm.Anywhere()
	}
	read := s.Machines.LXD().GetAvailableLXDHosts
	if q.ForReport {
		read = s.Machines.LXD().KnownLXDHosts
	}
	supply.Hosts, err = read(ctx, vm)
	if lxd.IsRefusal(err) {
		supply.Refused, err = err, nil
	}
	return supply, err
}

// Zone is the room in a zone: machine.Ready counts how many more machines fit.
type Zone struct {
	machine.Supply
	// All counts the hosts for such VMs, or the machines that fit, also those that are full or in use.
	All int
}

// Zones returns the room by zone, for VMs beside those of the cluster. Zones without a suitable host are left out.
func (s *Supply) Zones(ctx context.Context, c client.Client) (map[string]Zone, error) {
	zones := map[string]Zone{}
	if s.VM == nil {
		all := map[string]int{}
		for _, m := range s.Metal {
			if machine.Fits(m, s.Constraints) {
				all[m.Zone.Name]++
			}
		}
		for zone, supply := range s.cluster.Machines.Supply(s.Metal, s.Constraints) {
			zones[zone] = Zone{supply, all[zone]}
		}
		return zones, nil
	}
	machines, err := clusters.MachinesOf(ctx, c, s.cluster.Cluster, s.cluster.MaasCluster)
	if err != nil {
		return nil, fmt.Errorf("looking for the VMs that others are kept apart from: %w", err)
	}
	peers := clusters.Peers(machines, s.cluster.OwnerID(), s.controlPlane, "")
	for zone, room := range s.cluster.Machines.LXD().Room(s.Hosts, *s.VM, peers) {
		zones[zone] = Zone{machine.Supply{machine.Ready: room.VMs}, room.Hosts}
	}
	return zones, nil
}

// ChooseZones returns the wanted zones that exist, and those that don't. If none are wanted, it returns all zones.
// MAAS's built-in zone holds the machines that were not assigned to another one, so it counts only if no other zone can
// be used.
func ChooseZones[T any](zones []maas.Ref, wanted []string, able map[string]T) (chosen, unknown []string) {
	all := list.Each(zones, func(zone maas.Ref) string { return zone.Name })
	slices.Sort(all)
	if len(wanted) > 0 {
		for _, zone := range wanted {
			if slices.Contains(all, zone) {
				chosen = append(chosen, zone)
			} else {
				unknown = append(unknown, zone)
			}
		}
		slices.Sort(chosen)
		return chosen, unknown
	}
	sorted := slices.DeleteFunc(slices.Clone(all), func(zone string) bool { return zone == builtInZone })
	ofUse := func(zone string) bool { _, has := able[zone]; return has || able == nil }
	if slices.ContainsFunc(sorted, ofUse) || !ofUse(builtInZone) && len(sorted) > 0 {
		return sorted, nil
	}
	return all, nil
}
