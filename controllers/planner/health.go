// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/plan"
)

// facts are what Cluster API knows of the machines of a cluster.
type facts struct {
	machines map[string]*clusterv1.Machine // by the name of the MaasMachine
	sets     map[string]int                // MachineSets in the order of their age
}

func (p *Planner) readFacts(ctx context.Context, cluster client.ObjectKey) (facts, error) {
	of := []client.ListOption{client.InNamespace(cluster.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name}}
	machines, sets := &clusterv1.MachineList{}, &clusterv1.MachineSetList{}
	if err := p.Client.List(ctx, machines, of...); err != nil {
		return facts{}, fmt.Errorf("listing the Machines of cluster %s: %w", cluster, err)
	}
	if err := p.Client.List(ctx, sets, of...); err != nil {
		return facts{}, fmt.Errorf("listing the MachineSets of cluster %s: %w", cluster, err)
	}
	f := facts{machines: map[string]*clusterv1.Machine{}, sets: map[string]int{}}
	for i := range machines.Items {
		m := &machines.Items[i]
		f.machines[m.Spec.InfrastructureRef.Name] = m
	}
	slices.SortFunc(sets.Items, func(a, b clusterv1.MachineSet) int { return older(&a, &b) })
	for i := range sets.Items {
		f.sets[sets.Items[i].Name] = i
	}
	return f, nil
}

// older compares by age, and objects of the same age by name, as Cluster API does.
func older(a, b client.Object) int {
	x, y := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	return cmp.Or(x.Compare(y.Time), strings.Compare(a.GetName(), b.GetName()))
}

// object returns the Machine of a MaasMachine, or the MaasMachine if there is none.
func (f facts) object(m *infrav1.MaasMachine) client.Object {
	if machine := f.machines[m.Name]; machine != nil {
		return machine
	}
	return m
}

// describe adds what Cluster API knows of a machine.
func (f facts) describe(machine *plan.Machine, m *infrav1.MaasMachine, now time.Time) {
	inAPI := f.machines[m.Name]
	if inAPI == nil {
		return
	}
	machine.Name, machine.NoZone = inAPI.Name, inAPI.Spec.FailureDomain == ""
	machine.Set = f.sets[inAPI.Labels[clusterv1.MachineSetNameLabel]]
	machine.Health = healthOf(inAPI, now)
}

// sickComponents are the conditions of a control plane's Machine that let it go before others if one is False.
var sickComponents = []string{
	controlplanev1.KubeadmControlPlaneMachineAPIServerPodHealthyCondition,
	controlplanev1.KubeadmControlPlaneMachineControllerManagerPodHealthyCondition,
	controlplanev1.KubeadmControlPlaneMachineSchedulerPodHealthyCondition,
	controlplanev1.KubeadmControlPlaneMachineEtcdPodHealthyCondition,
	controlplanev1.KubeadmControlPlaneMachineEtcdMemberHealthyCondition,
}

// healthOf returns what Cluster API deletes a Machine by.
func healthOf(m *clusterv1.Machine, now time.Time) plan.Health {
	_, marked := m.Annotations[clusterv1.DeleteMachineAnnotation]
	_, updating := m.Annotations[clusterv1.UpdateInProgressAnnotation]
	updating = updating || slices.Contains(strings.Split(m.Annotations[runtimev1.PendingHooksAnnotation], ","),
		updateHook)
	isFalse := func(condition string) bool { return conditions.IsFalse(m, condition) }
	sick := !m.Status.NodeRef.IsDefined() || isFalse(clusterv1.MachineNodeHealthyCondition) ||
		isFalse(clusterv1.MachineHealthCheckSucceededCondition)
	if _, isControlPlane := m.Labels[clusterv1.MachineControlPlaneLabel]; isControlPlane {
		sick = slices.ContainsFunc(sickComponents, isFalse)
	}
	health := plan.Health{
		Deleting: !m.DeletionTimestamp.IsZero(), Marked: marked, Updating: updating, Sick: sick,
		Unavailable: updating || !conditions.IsTrue(m, clusterv1.MachineAvailableCondition),
	}
	if !m.CreationTimestamp.IsZero() {
		health.Age = now.Sub(m.CreationTimestamp.Time)
	}
	return health
}

// updateHook is Cluster API's hook that updates a Machine in place.
const updateHook = "UpdateMachine"
