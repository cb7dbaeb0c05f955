// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
)

// existing are the objects in Kubernetes that a round needs.
type existing struct {
	hosts    []*infrav1.LXDHost
	stay     []*infrav1.LXDHost                // what was changed as it was deleted
	machines map[string][]*infrav1.MaasMachine // bare metal, by system id
	lxd      []*infrav1.MaasMachine            // VMs
	vms      map[string][]*infrav1.MaasMachine // those that have a host, by the id of that VM host: see placeOf
	homes    clusters.Homes
}

func readObjects(ctx context.Context, c client.Reader, in ...client.ListOption) (*existing, error) {
	hosts, machines := &infrav1.LXDHostList{}, &infrav1.MaasMachineList{}
	if err := c.List(ctx, hosts, in...); err != nil {
		return nil, fmt.Errorf("listing LXDHosts: %w", err)
	}
	if err := c.List(ctx, machines, append(in, client.UnsafeDisableDeepCopy)...); err != nil {
		return nil, fmt.Errorf("listing MaasMachines: %w", err)
	}
	homes, err := clusters.ReadHomes(ctx, c, in...)
	if err != nil {
		return nil, err
	}
	there := &existing{machines: map[string][]*infrav1.MaasMachine{}, vms: map[string][]*infrav1.MaasMachine{},
		homes: homes}
	for i := range hosts.Items {
		there.hosts = append(there.hosts, &hosts.Items[i])
	}
	for i := range machines.Items {
		machine := &machines.Items[i]
		by, key := there.machines, machine.Spec.SystemID
		if machine.Spec.IsLXD() {
			there.lxd = append(there.lxd, machine)
			by, key = there.vms, placeOf(machine)
		}
		if key != "" {
			by[key] = append(by[key], machine)
		}
	}
	return there, nil
}

// placeOf returns the id of a VM's host in its MAAS, as its machine records it; /NAME if that is not recorded; "" if it
// has none.
func placeOf(m *infrav1.MaasMachine) string {
	name := m.Status.LXDHost
	if name == "" {
		return ""
	}
	recorded, _ := record.OfMachine(m) // One that can't be read says nothing.
	id, _, _ := strings.Cut(recorded.HostOf(name), "/")
	return cmp.Or(id, "/"+name)
}

// hasRoom returns the first of these namespaces that brought fewer LXDHosts than it may into the manager's own; "" if
// none did.
func (e *existing) hasRoom(namespaces []string, own string) string {
	brought := map[string]int{}
	for _, host := range e.hosts {
		if host.Namespace == own {
			brought[host.Labels[infrav1.BroughtByLabel]]++
		}
	}
	return list.First(namespaces, func(namespace string) bool { return brought[namespace] < maxVMHosts })
}

// mirrored returns the ids of the VM hosts of a MAAS that have an object.
func (e *existing) mirrored(where string) (ids []int) {
	for _, host := range e.hosts {
		if ref := host.Spec.VMHost; ref != nil && host.Annotations[infrav1.MAASAnnotation] == where {
			ids = append(ids, int(ref.ID))
		}
	}
	return ids
}

// of returns the objects of a VM host.
func (e *existing) of(s *sighting, views map[string]*view) []*infrav1.LXDHost {
	for _, is := range []func(*infrav1.LXDHost) bool{
		func(h *infrav1.LXDHost) bool { return isOf(h, s) },
		func(h *infrav1.LXDHost) bool { return wasOf(h, s, views) },
	} {
		if found := list.Where(e.hosts, is); len(found) > 0 {
			return found
		}
	}
	return nil
}

// isIn reports whether a machine belongs to a MAAS. One without a known MAAS belongs to none.
func (e *existing) isIn(machine *infrav1.MaasMachine, where string) bool {
	home, _ := e.homes.Where(machine)
	return home == where
}

// claimsOf returns the MaasMachines that claim to be the machine of a VM host. Any user may write one.
func (e *existing) claimsOf(s *sighting) []*infrav1.MaasMachine {
	if s.Host.SystemID == "" {
		return nil
	}
	return list.Where(e.machines[s.Host.SystemID],
		func(m *infrav1.MaasMachine) bool { return e.isIn(m, s.where) })
}

// counts returns the number of MaasMachines on a VM host by their Cluster, as namespace/name.
func (e *existing) counts(s *sighting) map[string]int32 {
	counts := map[string]int32{}
	for _, machine := range slices.Concat(e.vms[strconv.Itoa(s.ID)], e.vms["/"+s.Name]) {
		if e.isIn(machine, s.where) {
			counts[clusters.KeyOf(machine).String()]++
		}
	}
	return counts
}
