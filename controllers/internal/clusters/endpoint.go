// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/dns"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

// PublishEndpoint writes the addresses of the control planes that can serve the API into the endpoint's DNS record. It
// returns the addresses in the record, and whether it wrote them. rec is the MaasCluster's; its reconciler reads the
// record again until no write can come late any more.
func PublishEndpoint(
	ctx context.Context, c client.Client, clock clock.PassiveClock, s *scope.Cluster, rec *record.Cluster,
) (published []string, wrote bool, err error) {
	write := func(ctx context.Context, call func(context.Context, maas.Permit) error) error {
		rec.Published = true
		return rec.Call(ctx, record.Publish, call)
	}
	free := func(ctx context.Context, call func(context.Context, maas.ReleasePermit) error) error {
		if rec.IsPending(record.Unreserve) && rec.Unsettled() > 0 {
			return nil // The record is right all the same. The MaasCluster waits for what is pending.
		}
		return rec.CallRelease(ctx, record.Unreserve, call)
	}
	unsure, calls := rec.IsPending(record.Publish), dns.Calls{Write: write, Free: free}
	published, wrote, err = s.DNS.Ensure(ctx, s.EndpointName(), unsure, calls, func(current []string) ([]string, error) {
		planes, in := &infrav1.MaasMachineList{}, client.InNamespace(s.MaasCluster.Namespace)
		if err := c.List(ctx, planes, in, client.MatchingLabels{clusterv1.ClusterNameLabel: s.Cluster.Name},
			client.HasLabels{clusterv1.MachineControlPlaneLabel}); err != nil {
			return nil, fmt.Errorf("listing the control plane's MaasMachines: %w", err)
		}
		away, err := switchedOff(ctx, c, s.Cluster)
		if err != nil {
			return nil, err
		}
		isShown := func(m *infrav1.MaasMachine, address string) bool {
			seen, _ := s.Inventory.Peek(m.Spec.SystemID)
			return IsShownOn(seen.Machine, address)
		}
		return endpointAddresses(ctx, c, s.Cluster, planes.Items, away, isShown, current, clock.Now()), nil
	})
	if err == nil && rec.Unsettled() == 0 {
		rec.Done(record.Publish)
		rec.Done(record.Unreserve)
		rec.Published = len(published) > 0
	}
	return published, wrote, err
}

// PublishFor is PublishEndpoint for one of the cluster's machines, whose reconciler does not have the MaasCluster's
// record.
func PublishFor(ctx context.Context, b *reconciler.Base, s *scope.Cluster) (published []string, err error) {
	maasCluster := &infrav1.MaasCluster{}
	if err := b.Client.Get(ctx, client.ObjectKeyFromObject(s.MaasCluster), maasCluster); err != nil {
		return nil, fmt.Errorf("reading the MaasCluster again: %w", err)
	}
	rec, err := b.Records.OpenCluster(maasCluster)
	if err != nil {
		return nil, err
	}
	published, _, err = PublishEndpoint(ctx, b.Client, b.Clock, s, rec)
	if failed := rec.Close(ctx); failed != nil && !apierrors.IsConflict(failed) {
		err = errors.Join(err, failed)
	}
	return published, err // In a conflict the reconciler of the MaasCluster knows more.
}

// IsShownOn reports whether MAAS showed an address on a machine when that was last seen; nil: it never was.
func IsShownOn(seen *maas.Machine, address string) bool {
	return seen != nil && slices.ContainsFunc(seen.IPAddresses,
		func(ip string) bool { return maas.SameAddress(ip, address) })
}

// EndpointHold is how long a stopped control plane stays in the endpoint's DNS record. A power blip, a reboot or a
// wrong report by MAAS is shorter, and changes nothing.
const EndpointHold = 5 * time.Minute

// endpointAddresses returns the addresses that the record should hold, given those that it holds. It keeps an address
// as it is while the facts about it are unknown. away are the Machines that clients are not sent to; isShown reports
// whether MAAS shows an address on a machine: a status proves nothing.
func endpointAddresses(
	ctx context.Context, c client.Client, cluster *clusterv1.Cluster, planes []infrav1.MaasMachine,
	away sets.Set[types.UID], isShown func(*infrav1.MaasMachine, string) bool, current []string, now time.Time,
) []string {
	var desired, others []string
	initialized := ptr.Deref(cluster.Status.Initialization.ControlPlaneInitialized, false)
	for i := range planes {
		m := &planes[i]
		machine, err := OwnerMachine(ctx, c, m)
		if client.IgnoreNotFound(err) != nil {
			return current
		}
		initialized = initialized || joined(machine) // The Cluster's status does not survive a move.
		if !m.DeletionTimestamp.IsZero() {
			continue
		}
		if provisionedButUnseen(m) && stoppedFor(m, now) < EndpointHold {
			// After a move the status is still empty: the record stays until every control plane was seen again. One that
			// is off gets no addresses.
			return current
		}
		address := EndpointAddress(m)
		switch {
		case address == "" || isLeaving(machine, away) || stoppedFor(m, now) >= EndpointHold:
		case slices.Contains(current, address):
			desired = append(desired, address)
		case !conditions.IsTrue(m, infrav1.MachineDeployedCondition), !isShown(m, address):
			// It does not run there, or MAAS can't be asked: no clients are sent to it now.
		case joined(machine):
			desired = append(desired, address)
		default:
			others = append(others, address)
		}
	}
	if !initialized {
		desired = append(desired, others...) // The first one: kubeadm needs the endpoint to initialize the cluster.
	}
	slices.Sort(desired)
	return slices.Compact(desired)
}

// stoppedFor returns for how long MAAS has reported that a machine which ran does not: it is in a phase of its record
// until it runs again. It returns 0 while the machine runs, or if its state is not known.
func stoppedFor(m *infrav1.MaasMachine, now time.Time) time.Duration {
	recorded, err := record.OfMachine(m)
	if err != nil || recorded.Phase == nil || !conditions.IsFalse(m, infrav1.MachineDeployedCondition) {
		return 0
	}
	return now.Sub(recorded.Phase.Since.Time)
}

// EndpointRetry returns the time until the first stopped control plane must leave the record; 0 if none is stopped.
func EndpointRetry(machines []infrav1.MaasMachine, now time.Time) (after time.Duration) {
	for i := range machines {
		stopped := stoppedFor(&machines[i], now)
		left := EndpointHold - stopped
		if !IsControlPlane(&machines[i]) || stopped == 0 || left <= 0 {
			continue
		}
		if after == 0 || left < after {
			after = left
		}
	}
	return after
}

// isLeaving reports whether the control plane's Machine is away, or being deleted: it is drained and leaves etcd before
// its MaasMachine is deleted.
func isLeaving(machine *clusterv1.Machine, away sets.Set[types.UID]) bool {
	return machine != nil && (!machine.DeletionTimestamp.IsZero() || away.Has(machine.UID))
}

// switchedOff returns the Machines whose machines a MaasRemediation switches off, or has: clients are not sent to them
// before, and until the Machine is healthy again or replaced.
func switchedOff(ctx context.Context, c client.Client, cluster *clusterv1.Cluster) (sets.Set[types.UID], error) {
	list, off := &infrav1.MaasRemediationList{}, sets.Set[types.UID]{}
	if err := c.List(ctx, list, client.InNamespace(cluster.Namespace)); err != nil {
		return nil, fmt.Errorf("listing MaasRemediations: %w", err)
	}
	for i := range list.Items {
		r := &list.Items[i]
		recorded, err := record.OfRemediation(r)
		if err != nil || ptr.Deref(recorded.Remediation, infrav1.RemediationProgress{}).PowerCycles == 0 ||
			!r.DeletionTimestamp.IsZero() {
			continue
		}
		for _, owner := range OwnersOf(r, MachineKind) {
			off.Insert(owner.UID)
		}
	}
	return off, nil
}

// joined reports whether the control plane is a Node of its cluster.
func joined(machine *clusterv1.Machine) bool {
	return machine != nil && machine.Status.NodeRef.IsDefined()
}

// provisionedButUnseen reports whether the machine was provisioned, but its addresses are not known now.
func provisionedButUnseen(m *infrav1.MaasMachine) bool {
	return m.Spec.ProviderID != "" && len(m.Status.Addresses) == 0 && m.Status.FailureReason == ""
}

// EndpointAddress returns the address to publish for a control plane: the first one, in the order of the preferred
// subnets.
func EndpointAddress(m *infrav1.MaasMachine) string {
	if !ptr.Deref(m.Status.Initialization.Provisioned, false) {
		return ""
	}
	return list.First(m.Status.Addresses,
		func(a clusterv1.MachineAddress) bool { return a.Type == clusterv1.MachineInternalIP }).Address
}
