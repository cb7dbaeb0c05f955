// SPDX-License-Identifier: Apache-2.0

package maasmachine

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

// owners are the objects that a MaasMachine belongs to.
type owners struct {
	machine     *clusterv1.Machine
	cluster     *clusterv1.Cluster
	maasCluster *infrav1.MaasCluster // nil if there is none yet, or any more
	original    *infrav1.MaasCluster // the MaasCluster that maasCluster was copied from; nil if it is no copy
	maasMachine *infrav1.MaasMachine
	record      *record.Record // of maasMachine
}

// owners reads the owners; it returns nil while they do not exist yet. An object that is being deleted is reconciled
// without them, too.
func (r *Reconciler) owners(ctx context.Context, maasMachine *infrav1.MaasMachine) (*owners, error) {
	machine, err := util.GetOwnerMachine(ctx, r.Client, maasMachine.ObjectMeta)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("reading the owner Machine: %w", err)
	}
	if machine == nil {
		if maasMachine.DeletionTimestamp.IsZero() {
			ctrl.LoggerFrom(ctx).V(1).Info("Waiting for Cluster API to set the owner reference")
			return nil, nil
		}
		machine = &clusterv1.Machine{Spec: clusterv1.MachineSpec{ClusterName: maasMachine.Labels[clusterv1.ClusterNameLabel]}}
		machine.Namespace, machine.Labels = maasMachine.Namespace, maasMachine.Labels
	}
	m := &owners{machine: machine, maasMachine: maasMachine}
	m.cluster, err = util.GetClusterByName(ctx, r.Client, machine.Namespace, machine.Spec.ClusterName)
	if apierrors.IsNotFound(err) && !maasMachine.DeletionTimestamp.IsZero() {
		m.cluster, err = &clusterv1.Cluster{}, nil
		m.cluster.Namespace, m.cluster.Name = machine.Namespace, machine.Spec.ClusterName
	}
	if err != nil {
		return nil, fmt.Errorf("reading the Cluster: %w", err)
	}
	m.maasCluster, err = r.maasCluster(ctx, m.cluster)
	if err == nil && m.maasCluster != nil {
		m.original, err = r.original(ctx, m)
	}
	return m, err
}

// original returns the MaasCluster that the machine's was copied from. If the copy has an owner id of its own by now,
// it returns the MaasCluster of the machine that this one was copied from.
func (r *Reconciler) original(ctx context.Context, m *owners) (*infrav1.MaasCluster, error) {
	original, err := clusters.CopiedFrom(ctx, r.Client, m.maasCluster)
	recorded := m.maasMachine.Annotations[infrav1.OwnerIDAnnotation]
	if err != nil || original != nil || recorded == m.maasCluster.Annotations[infrav1.OwnerIDAnnotation] {
		return original, err
	}
	return clusters.OwnedElsewhere(ctx, r.Client, m.maasCluster, recorded)
}

// maasCluster finds the MaasCluster of a Cluster, by its label if the Cluster itself is gone; nil if there is none.
func (r *Reconciler) maasCluster(ctx context.Context, cluster *clusterv1.Cluster) (*infrav1.MaasCluster, error) {
	if name := cluster.Spec.InfrastructureRef.Name; name != "" {
		maasCluster := &infrav1.MaasCluster{}
		err := r.Client.Get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: name}, maasCluster)
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading the MaasCluster: %w", err)
		}
		return maasCluster, nil
	}
	list := &infrav1.MaasClusterList{}
	err := r.Client.List(ctx, list, client.InNamespace(cluster.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name})
	if err != nil {
		return nil, fmt.Errorf("looking for the MaasCluster: %w", err)
	}
	if len(list.Items) == 0 {
		return nil, nil
	}
	return &list.Items[0], nil
}

// scope combines the objects with the view of their MAAS.
func (r *Reconciler) scope(ctx context.Context, m *owners) (*scope.Machine, error) {
	cluster, err := r.Scopes.Cluster(ctx, m.cluster, m.maasCluster)
	if err != nil {
		return nil, err
	}
	return &scope.Machine{Cluster: cluster, Machine: m.machine, MaasMachine: m.maasMachine}, nil
}

// blocker returns a problem while something is missing that requests to MAAS need; nil otherwise.
func blocker(m *owners) *report.Problem {
	deployed := m.maasMachine.Spec.ProviderID != "" && m.maasMachine.Spec.SystemID != ""
	if m.maasCluster != nil && m.original == nil {
		if p := clusters.OwnerProblem(m.maasCluster, m.maasMachine); p != nil {
			return p
		}
	}
	switch {
	case m.maasCluster != nil && m.maasCluster.Annotations[infrav1.OwnerIDAnnotation] == "" && annotations.IsExternallyManaged(m.maasCluster):
		return &report.Problem{Reason: infrav1.WaitingForClusterInfrastructureReason, Message: fmt.Sprintf(
			"the MaasCluster is managed externally (annotation %s): whoever manages it must set its annotation %s, once, "+
				"to %d random characters of a-z and 0-9",
			clusterv1.ManagedByAnnotation, infrav1.OwnerIDAnnotation, maas.OwnerIDLength)}
	case m.maasCluster == nil || m.maasCluster.Annotations[infrav1.OwnerIDAnnotation] == "" || (!deployed && !provisioned(m.cluster)):
		return &report.Problem{Reason: infrav1.WaitingForClusterInfrastructureReason, Message: "the cluster's infrastructure is not provisioned yet"}
	case m.original != nil:
		return clusters.CopyProblem(m.original)
	case deployed:
		return nil
	case m.machine.Spec.Bootstrap.DataSecretName == nil:
		return &report.Problem{Reason: infrav1.WaitingForBootstrapDataReason, Message: "waiting for the bootstrap data Secret"}
	}
	return nil
}

func provisioned(cluster *clusterv1.Cluster) bool {
	return cluster.Status.Initialization.InfrastructureProvisioned != nil && *cluster.Status.Initialization.InfrastructureProvisioned
}
