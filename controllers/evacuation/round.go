// SPDX-License-Identifier: Apache-2.0

package evacuation

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/controlplane"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
)

// round is what one look at all hosts has found.
type round struct {
	maasMachines []infrav1.MaasMachine
	homes        clusters.Homes
	// successors are VMs that are to be placed, and have no place yet.
	successors []successor
	// silent are the MAASes that did not say in time what room they have, and their errors.
	silent map[guard.Server]error
}

// newRound reads the objects of this provider, from the cache: where a VM is does not change.
func (r *Reconciler) newRound(ctx context.Context) (*round, error) {
	placement, err := clusters.ReadPlacement(ctx, r.Client)
	if err != nil {
		return nil, err
	}
	now := &round{maasMachines: placement.MaasMachines, homes: placement.Homes, silent: map[guard.Server]error{}}
	for i := range now.maasMachines {
		if m := &now.maasMachines[i]; isUnplaced(m) {
			now.successors = append(now.successors, successor{maasMachine: m})
		}
	}
	return now, nil
}

// isUnplaced reports whether a MaasMachine is to get a VM, and has no host for it yet.
func isUnplaced(m *infrav1.MaasMachine) bool {
	recorded, err := record.OfMachine(m)
	return m.Spec.IsLXD() && m.DeletionTimestamp.IsZero() && m.Status.LXDHost == "" && err == nil &&
		len(recorded.Hosts) == 0
}

// placement is where the VMs are.
func (now *round) placement() *clusters.Placement {
	return &clusters.Placement{MaasMachines: now.maasMachines, Homes: now.homes}
}

// on returns the VMs on a host, or that may be there, in order of their names.
func (now *round) on(host *infrav1.LXDHost) []*vm {
	vms := list.Each(now.placement().On(host), func(on clusters.OnHost) *vm {
		return &vm{maasMachine: on.MaasMachine, unreadable: on.Unreadable, unsure: on.Unsure}
	})
	slices.SortFunc(vms, func(a, b *vm) int { return strings.Compare(a.key(), b.key()) })
	return vms
}

// look reads what Cluster API has for a VM from the API server: a cache may not have the latest deletion yet.
func (r *Reconciler) look(ctx context.Context, v *vm) error {
	if v.isUnclear() {
		return nil
	}
	v.machine, v.cluster, v.owner = nil, nil, nil
	machines := &clusterv1.MachineList{}
	inCluster := client.MatchingLabels{clusterv1.ClusterNameLabel: v.maasMachine.Labels[clusterv1.ClusterNameLabel]}
	if err := r.APIReader.List(ctx, machines, client.InNamespace(v.maasMachine.Namespace), inCluster); err != nil {
		return fmt.Errorf("listing Machines: %w", err)
	}
	v.machine = list.Find(machines.Items, func(m clusterv1.Machine) bool {
		return clusters.IsOwnedBy(v.maasMachine, clusters.MachineKind, &m)
	})
	if v.machine == nil {
		return nil
	}
	cluster := &clusterv1.Cluster{}
	if err := r.APIReader.Get(ctx, client.ObjectKey{Namespace: v.machine.Namespace, Name: v.machine.Spec.ClusterName},
		cluster); err != nil {
		return client.IgnoreNotFound(err)
	}
	v.cluster = cluster
	var err error
	v.owner, err = r.ownerOf(ctx, v, machines.Items)
	return err
}

// ownerOf returns what makes a successor for a VM's Machine; nil if nothing does that can be read.
func (r *Reconciler) ownerOf(ctx context.Context, v *vm, inCluster []clusterv1.Machine) (o *owner, err error) {
	controller := metav1.GetControllerOf(v.machine)
	if controller == nil {
		return nil, nil
	}
	ref := v.cluster.Spec.ControlPlaneRef
	same := func(m *clusterv1.Machine) bool {
		return metav1.IsControlledBy(m, &metav1.ObjectMeta{UID: controller.UID})
	}
	switch {
	case clusters.IsOfKind(*controller, controlplane.MachineSet):
		o, same, err = r.workersOf(ctx, v.machine.Namespace, *controller, same)
	case clusters.IsOfKind(*controller, schema.GroupKind{Group: ref.APIGroup, Kind: ref.Kind}) &&
		controller.Name == ref.Name:
		o, err = r.controlPlaneOf(ctx, v.cluster, controller.UID)
	}
	if o == nil || err != nil {
		return nil, err
	}
	for i := range inCluster {
		if same(&inCluster[i]) {
			o.machines = append(o.machines, &inCluster[i])
		}
	}
	return o, nil
}

// newOwner reads what all that make Machines have.
func newOwner(from controlplane.Owner) *owner {
	o := &owner{kind: from.GetKind(), name: from.GetName(), deleting: from.GetDeletionTimestamp() != nil,
		replicas: from.Replicas()}
	if from.IsPaused() {
		o.paused = "its " + o.kind
	}
	if !from.IsOnDelete() { // Otherwise its rollouts wait for deletions like ours.
		o.rollingOut = meta.IsStatusConditionTrue(from.Conditions(), clusterv1.RollingOutCondition)
		o.maxUnavailable = from.MaxUnavailable()
	}
	return o
}

// controlPlaneOf reads a control plane; nil if it is another one by now. The provider may not read every kind.
func (r *Reconciler) controlPlaneOf(
	ctx context.Context, cluster *clusterv1.Cluster, uid types.UID,
) (*owner, error) {
	from, err := controlplane.Of(ctx, r.Client, r.APIReader, cluster)
	if err != nil || from == nil || from.GetUID() != uid {
		return nil, err
	}
	return readControlPlane(*from)
}

// workersOf reads a MachineSet, and its MachineDeployment if it has one: that has other MachineSets, too. same reports
// whether a Machine is one of them.
func (r *Reconciler) workersOf(
	ctx context.Context, namespace string, ref metav1.OwnerReference, of func(*clusterv1.Machine) bool,
) (o *owner, same func(*clusterv1.Machine) bool, err error) {
	read := func(kind schema.GroupKind, name string) (*controlplane.Owner, error) {
		return controlplane.Get(ctx, r.Client, r.APIReader, kind, client.ObjectKey{Namespace: namespace, Name: name})
	}
	set, err := read(controlplane.MachineSet, ref.Name)
	if err != nil || set == nil || !clusters.IsOwner(ref, controlplane.MachineSet, set) {
		return nil, nil, err // It is gone, or another one by now.
	}
	o = newOwner(*set)
	name := clusters.OwnerName(set, controlplane.MachineDeployment.Kind)
	if name == "" {
		return o, of, nil
	}
	deployment, err := read(controlplane.MachineDeployment, name)
	if err != nil || deployment == nil {
		return nil, nil, err
	}
	whole := newOwner(*deployment)
	whole.paused, whole.deleting = cmp.Or(whole.paused, o.paused), whole.deleting || o.deleting
	return whole, func(m *clusterv1.Machine) bool { return m.Labels[clusterv1.MachineDeploymentNameLabel] == name }, nil
}
