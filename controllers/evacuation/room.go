// SPDX-License-Identifier: Apache-2.0

package evacuation

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/capacity"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

// roomTimeout is how long a round waits for what one MAAS says of its hosts. After that, it does not ask it again: a
// round is about the hosts of all.
const roomTimeout = 15 * time.Second

// successor is a VM that is to be placed, and has no place yet.
type successor struct {
	// maasMachine is its MaasMachine, or that of its predecessor while it has none.
	maasMachine *infrav1.MaasMachine
	// zone is where it will be; "" is that of maasMachine.
	zone string
}

// roomFor waits until the successor of a VM can be placed, on whatever host Cluster API's choice of the failure domain
// allows: without one, the deletion would only lose a Machine.
func (r *Reconciler) roomFor(ctx context.Context, now *round, v *vm) outcome {
	err := r.findRoom(ctx, now, v)
	switch config := v.maasMachine.Spec.LXDConfig; {
	case err == nil:
		return proceed
	case guard.Is[*lxd.LXDError](err) && config != nil && config.VMHost != "":
		return held("lxdConfig.vmHost pins it to the host %s: remove that from its MaasMachineTemplate", config.VMHost)
	case guard.Is[*lxd.LXDError](err):
		return held("no other host has room for its successor (%s): make room, or add a host", report.Brief(err.Error()))
	}
	return waiting("it is not known whether its successor has room: %s", report.Brief(report.Explain(err).Message))
}

func (r *Reconciler) findRoom(ctx context.Context, now *round, v *vm) error {
	next := &infrav1.MaasMachine{Spec: v.maasMachine.Spec} // MAAS was not asked for it yet.
	next.Namespace, next.Labels = v.maasMachine.Namespace, v.maasMachine.Labels
	maasCluster, err := clusters.MaasClusterOf(ctx, r.Client, v.cluster, next)
	if err != nil {
		return err
	}
	s, err := r.Scopes.Cluster(ctx, v.cluster, maasCluster)
	if err != nil {
		return err
	}
	if err := now.silent[s.Server()]; err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, roomTimeout)
	defer cancel()
	supply, err := capacity.Gather(limited, s, capacity.Question{Spec: v.maasMachine.Spec, Anywhere: true})
	if err == nil && supply.Refused != nil {
		err = supply.Refused
	}
	if limited.Err() != nil && err != nil {
		now.silent[s.Server()] = err
	}
	if err != nil {
		return err
	}
	trial := s.Machines.LXD().Trial()
	r.placeOthers(ctx, now, v.maasMachine, trial, supply.Hosts)
	for _, zone := range v.zones() {
		if _, err := trial.Place(supply.Hosts, wanted(v.maasMachine, zone), now.peers(v.maasMachine)); err != nil {
			return err
		}
	}
	return nil
}

// placeOthers places the VMs that are to be placed as well, in the same MAAS. Those that fit nowhere wait, and take no
// room.
func (r *Reconciler) placeOthers(
	ctx context.Context, now *round, than *infrav1.MaasMachine, trial *lxd.Reservations, hosts []lxd.Host,
) {
	home := now.homeOf(than)
	for _, one := range now.successors {
		m, zone := one.maasMachine, one.zone
		if now.homeOf(m) != home {
			continue
		}
		if machine, err := clusters.OwnerMachine(ctx, r.Client, m); err == nil && machine != nil {
			zone = cmp.Or(zone, machine.Spec.FailureDomain)
		}
		_, _ = trial.Place(hosts, wanted(m, zone), now.peers(m))
	}
}

// wanted is the VM of the successor of a machine in a zone; "" is the machine's.
func wanted(m *infrav1.MaasMachine, zone string) lxd.VMSpec {
	vm := scope.VMSpec(m.Namespace, m.Spec)
	vm.Zone = cmp.Or(zone, vm.Zone)
	vm.Hostname = "successor of " + client.ObjectKeyFromObject(m).String()
	vm.Cluster = fmt.Sprint(clusters.KeyOf(m), clusters.IsControlPlane(m)) // Their successors are kept apart, too.
	return vm
}

// peers are the VMs that the successor of a machine is kept apart from: those of its cluster and role that stay.
func (now *round) peers(of *infrav1.MaasMachine) []lxd.Peer {
	staying := list.Where(now.maasMachines, func(m infrav1.MaasMachine) bool {
		return clusters.KeyOf(&m) == clusters.KeyOf(of) && m.DeletionTimestamp.IsZero()
	})
	return clusters.Peers(staying, "", clusters.IsControlPlane(of), of.Name)
}

// zones are those that the successor of a VM may get. Control planes are spread over the failure domains that may have
// one: it is one of those with the fewest Machines of its control plane; which, is not known.
func (v *vm) zones() []string {
	own := cmp.Or(v.machine.Spec.FailureDomain, v.maasMachine.Spec.FailureDomain)
	if v.owner.controlPlane == nil {
		return []string{own}
	}
	counts := map[string]int{}
	for _, domain := range v.cluster.Status.FailureDomains {
		if domain.ControlPlane != nil && *domain.ControlPlane {
			counts[domain.Name] = 0
		}
	}
	if len(counts) == 0 {
		return []string{v.maasMachine.Spec.FailureDomain}
	}
	for _, m := range v.owner.machines {
		// A control plane of one has both for a while.
		if _, known := counts[m.Spec.FailureDomain]; known && (m.Name != v.machine.Name || v.owner.replicas == 1) {
			counts[m.Spec.FailureDomain]++
		}
	}
	var zones []string
	fewest := -1
	for zone, n := range counts {
		switch {
		case fewest < 0 || n < fewest:
			fewest, zones = n, []string{zone}
		case n == fewest:
			zones = append(zones, zone)
		}
	}
	slices.Sort(zones)
	return zones
}

// awaitsSuccessor reports whether the successor of a VM that is leaving is not there yet.
func (v *vm) awaitsSuccessor() bool {
	if v.owner == nil || v.machine == nil {
		return false
	}
	staying := len(list.Where(v.owner.machines, func(m *clusterv1.Machine) bool { return m.DeletionTimestamp.IsZero() }))
	if v.machine.DeletionTimestamp.IsZero() { // It is replaced by one that is made first.
		staying--
	}
	return staying < v.owner.replicas
}

// homeOf returns the MAAS of a machine, as far as it is known.
func (now *round) homeOf(m *infrav1.MaasMachine) string {
	return now.placement().HomeOf(m)
}
