// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

// PublishEndpoint writes the addresses of the control planes that can serve the API into the endpoint's DNS record. It
// returns the addresses in the record, and whether it wrote them.
func PublishEndpoint(
	ctx context.Context, c client.Client, clock clock.PassiveClock, s *scope.Cluster,
) (published []string, wrote bool, err error) {
	return s.DNS.Ensure(ctx, record.PublishEndpoint.Permit(), s.EndpointName(), func(current []string) ([]string, error) {
		machines, err := Machines(ctx, c, s.MaasCluster.Namespace, s.Cluster.Name)
		if err != nil {
			return nil, err
		}
		away, err := switchedOff(ctx, c, s.Cluster)
		if err != nil {
			return nil, err
		}
		return endpointAddresses(ctx, c, s.Cluster, machines, away, current, clock.Now()), nil
	})
}

// EndpointHold is how long a stopped control plane stays in the endpoint's DNS record. A power blip, a reboot or a
// wrong report by MAAS is shorter, and changes nothing.
const EndpointHold = 5 * time.Minute

// endpointAddresses returns the addresses that the record should hold, given those that it holds. It keeps an address
// as it is while the facts about it are unknown. away are the remediations whose machines clients are not sent to.
func endpointAddresses(
	ctx context.Context, c client.Client, cluster *clusterv1.Cluster, machines []infrav1.MaasMachine,
	away []infrav1.MaasRemediation, current []string, now time.Time,
) []string {
	var desired, others []string
	initialized := ptr.Deref(cluster.Status.Initialization.ControlPlaneInitialized, false)
	for i := range machines {
		m := &machines[i]
		if !IsControlPlane(m) {
			continue
		}
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
		case address == "" || beingDeleted(machine) || isAway(machine, away) || stoppedFor(m, now) >= EndpointHold:
		case slices.Contains(current, address):
			desired = append(desired, address)
		case !conditions.IsTrue(m, infrav1.MachineDeployedCondition):
			// It does not run, or MAAS can't be asked: no clients are sent to it now.
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

// stoppedFor returns how long MAAS has reported that a machine does not run. It returns 0 while the machine runs, or if
// its state is not known.
func stoppedFor(m *infrav1.MaasMachine, now time.Time) time.Duration {
	deployed := conditions.Get(m, infrav1.MachineDeployedCondition)
	if deployed == nil || deployed.Status != metav1.ConditionFalse {
		return 0
	}
	return now.Sub(deployed.LastTransitionTime.Time)
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

// beingDeleted reports whether the control plane's Machine is being deleted: it is drained and leaves etcd before its
// MaasMachine is deleted.
func beingDeleted(machine *clusterv1.Machine) bool {
	return machine != nil && !machine.DeletionTimestamp.IsZero()
}

// switchedOff returns the MaasRemediations that switch a machine off, or have: clients are not sent to it before, and
// until its Machine is healthy again or replaced.
func switchedOff(ctx context.Context, c client.Client, cluster *clusterv1.Cluster) ([]infrav1.MaasRemediation, error) {
	list := &infrav1.MaasRemediationList{}
	if err := c.List(ctx, list, client.InNamespace(cluster.Namespace)); err != nil {
		return nil, fmt.Errorf("listing MaasRemediations: %w", err)
	}
	return slices.DeleteFunc(list.Items, func(r infrav1.MaasRemediation) bool {
		recorded, err := record.OfRemediation(&r)
		return err != nil || recorded.Remediation == nil || recorded.Remediation.PowerCycles == 0 ||
			!r.DeletionTimestamp.IsZero()
	}), nil
}

// isAway reports whether one of these MaasRemediations is the Machine's.
func isAway(machine *clusterv1.Machine, remediations []infrav1.MaasRemediation) bool {
	return machine != nil && slices.ContainsFunc(remediations, func(r infrav1.MaasRemediation) bool {
		return IsOwnedBy(&r, MachineKind, machine)
	})
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
