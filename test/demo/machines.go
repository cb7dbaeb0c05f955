// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// Phases of a machine. Between waiting and deploying it has those of MAAS.
const (
	phaseWaiting   = "Waiting"
	phaseAcquiring = "Acquiring"
	phaseDeploying = "Deploying"
	phaseJoining   = "Joining"
	phaseRunning   = "Running"
	phaseDeleting  = "Deleting"
)

// row is the line of a machine.
type row struct {
	name, role, zone, host, address, phase, message string
	took                                            time.Duration
}

// roster follows the machines of a cluster.
type roster struct {
	client  client.Client
	cluster client.ObjectKey
	first   map[string]time.Time // when a machine was seen first, or seen to be deleted
	settled map[string]time.Time // when it was seen to run
}

func newRoster(c client.Client, cluster client.ObjectKey) *roster {
	return &roster{client: c, cluster: cluster, first: map[string]time.Time{}, settled: map[string]time.Time{}}
}

// read returns a row for each machine, control planes first.
func (r *roster) read(ctx context.Context, now time.Time) ([]row, error) {
	ours := []client.ListOption{client.InNamespace(r.cluster.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: r.cluster.Name}}
	machines, maasMachines := &clusterv1.MachineList{}, &infrav1.MaasMachineList{}
	if err := r.client.List(ctx, machines, ours...); err != nil {
		return nil, fmt.Errorf("listing Machines: %w", err)
	}
	if err := r.client.List(ctx, maasMachines, ours...); err != nil {
		return nil, fmt.Errorf("listing MaasMachines: %w", err)
	}
	rows := make([]row, 0, len(machines.Items))
	for i := range machines.Items {
		machine := &machines.Items[i]
		infra := &infrav1.MaasMachine{}
		for j := range maasMachines.Items {
			if maasMachines.Items[j].Name == machine.Spec.InfrastructureRef.Name {
				infra = &maasMachines.Items[j]
			}
		}
		one := describe(machine, infra)
		r.clock(&one, now)
		rows = append(rows, one)
	}
	slices.SortFunc(rows, func(a, b row) int { return cmp.Or(cmp.Compare(a.role, b.role), cmp.Compare(a.name, b.name)) })
	return rows, nil
}

// clock returns how long a machine has taken so far, from its creation until it runs, and from the start of its
// deletion.
func (r *roster) clock(of *row, now time.Time) {
	key := of.name
	if of.phase == phaseDeleting {
		key += " " + phaseDeleting
	}
	if r.first[key].IsZero() {
		r.first[key] = now
	}
	if of.phase == phaseRunning {
		if r.settled[key].IsZero() {
			r.settled[key] = now
		}
		now = r.settled[key]
	}
	of.took = now.Sub(r.first[key])
}

func describe(machine *clusterv1.Machine, infra *infrav1.MaasMachine) row {
	status := infra.Status
	one := row{name: machine.Name, role: "worker", zone: status.FailureDomain, host: status.Hostname}
	if util.IsControlPlaneMachine(machine) {
		one.role = "control plane"
	}
	if infra.Spec.IsLXD() {
		one.host = ""
		if status.LXDHost != "" {
			one.host = "VM on " + status.LXDHost
		}
	}
	for _, address := range status.Addresses {
		if address.Type == clusterv1.MachineInternalIP {
			one.address = address.Address
			break
		}
	}
	one.phase = phaseOf(machine, infra)
	one.message = messageOf(one.phase, machine, infra)
	return one
}

func phaseOf(machine *clusterv1.Machine, infra *infrav1.MaasMachine) string {
	status := infra.Status
	switch {
	case !machine.DeletionTimestamp.IsZero():
		return phaseDeleting
	case conditions.IsTrue(machine, clusterv1.MachineReadyCondition):
		return phaseRunning
	case ptr.Deref(status.Initialization.Provisioned, false):
		return phaseJoining
	case infra.Spec.SystemID != "":
		return cmp.Or(status.MachineState, phaseAcquiring)
	case status.LXDHost != "":
		return phaseAcquiring
	}
	return phaseWaiting
}

// messageOf returns what a machine waits for: the provider's message until it is deployed, then Cluster API's.
func messageOf(phase string, machine *clusterv1.Machine, infra *infrav1.MaasMachine) string {
	if phase == phaseRunning {
		return ""
	}
	provider, core := conditions.Get(infra, infrav1.ReadyCondition), conditions.Get(machine, clusterv1.MachineReadyCondition)
	for _, condition := range []*metav1.Condition{provider, core} {
		if condition != nil && condition.Status != metav1.ConditionTrue && condition.Message != "" {
			first, _, _ := strings.Cut(condition.Message, "\n")
			return strings.TrimPrefix(first, "* ")
		}
	}
	return ""
}
