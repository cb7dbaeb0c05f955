// SPDX-License-Identifier: Apache-2.0

package maasmachine

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/capacity"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/objects"
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
	lacks       *report.Problem      // why there is no maasCluster; nil if it is gone
	original    *infrav1.MaasCluster // the MaasCluster that maasCluster was copied from; nil if it is no copy
	maasMachine *infrav1.MaasMachine
	record      *record.Machine // of maasMachine
}

// owners reads the owners; it returns nil while they do not exist yet. An object that is being deleted is reconciled
// without them, too.
func (r *Reconciler) owners(ctx context.Context, maasMachine *infrav1.MaasMachine) (*owners, error) {
	machine, err := clusters.OwnerMachine(ctx, r.Client, maasMachine)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("reading the owner Machine: %w", err)
	}
	if machine == nil {
		if maasMachine.DeletionTimestamp.IsZero() {
			if len(maasMachine.OwnerReferences) > 0 || annotations.HasPaused(maasMachine) {
				return nil, nil // Cluster API's controllers make one with an owner, and its Machine is the next.
			}
			r.Tell(maasMachine, "NoMachine", "Reconcile",
				"nothing is done until a Machine has it as its infrastructureRef: make one, or delete this object")
			return nil, report.AwaitOwner(ctx, r.Client, maasMachine, "Machine")
		}
		if machine, err = r.formerMachine(ctx, maasMachine); err != nil {
			return nil, err
		}
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
	err = r.findMaasCluster(ctx, m)
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

// formerMachine stands for the Machine of a MaasMachine that outlives it. It is of the Cluster whose MaasCluster MAAS
// was asked for; if MAAS was asked for nothing, of the one in the label, which any user may have written.
func (r *Reconciler) formerMachine(ctx context.Context, m *infrav1.MaasMachine) (*clusterv1.Machine, error) {
	machine := &clusterv1.Machine{Spec: clusterv1.MachineSpec{ClusterName: m.Labels[clusterv1.ClusterNameLabel]}}
	machine.Namespace, machine.Labels = m.Namespace, m.Labels
	maasCluster, err := r.recordedCluster(ctx, m)
	if maasCluster != nil {
		machine.Spec.ClusterName = clusters.NameOf(maasCluster)
	}
	return machine, err
}

// findMaasCluster finds the MaasCluster of a machine; if its Cluster is gone, the one that MAAS was asked for. A
// machine that goes stays with that one, too, when its Cluster was made anew. It is nil if there is none.
func (r *Reconciler) findMaasCluster(ctx context.Context, m *owners) (err error) {
	if clusters.IsGone(m.cluster) {
		m.maasCluster, err = r.recordedCluster(ctx, m.maasMachine)
		return err
	}
	m.maasCluster, err = clusters.MaasClusterOf(ctx, r.Client, m.cluster, m.maasMachine)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if lacks, is := errors.AsType[*report.NotReadyError](err); is {
		recorded, err := r.recordedCluster(ctx, m.maasMachine)
		stays := recorded != nil && recorded.Spec.ClusterName == m.cluster.Name && !m.maasMachine.DeletionTimestamp.IsZero()
		if m.lacks = &lacks.Problem; stays || !m.cluster.Spec.InfrastructureRef.IsDefined() {
			m.maasCluster = recorded
		}
		return err
	}
	return err
}

// recordedCluster returns the MaasCluster with the owner id under which MAAS was asked for a machine, the original if
// it was copied; nil if there is none.
func (r *Reconciler) recordedCluster(ctx context.Context, m *infrav1.MaasMachine) (*infrav1.MaasCluster, error) {
	found, err := clusters.OwnedElsewhere(ctx, r.Client, &infrav1.MaasCluster{}, m.Annotations[infrav1.OwnerIDAnnotation],
		client.InNamespace(m.Namespace))
	return found.DeepCopy(), err
}

// scope combines the objects with the view of their MAAS. No machine is asked for before the MaasCluster records which
// one it is.
func (r *Reconciler) scope(ctx context.Context, m *owners) (*scope.Machine, error) {
	cluster, err := r.Scopes.Cluster(ctx, m.cluster, m.maasCluster)
	if err != nil {
		return nil, err
	}
	if m.maasCluster.Annotations[infrav1.MAASAnnotation] == "" && !clusters.WasAskedFor(m.maasMachine) {
		return nil, r.whyNotRecorded(ctx, cluster)
	}
	return &scope.Machine{Cluster: cluster, Machine: m.machine, MaasMachine: m.maasMachine}, nil
}

// whyNotRecorded returns why the MaasCluster does not record its MAAS yet. One that something else manages has no
// conditions that would say so.
func (r *Reconciler) whyNotRecorded(ctx context.Context, s *scope.Cluster) error {
	if _, err := s.Inventory.Zones(ctx, capacity.ZonesMaxAge); err != nil {
		return err
	}
	lacks := ""
	if !objects.Watched(s.MaasCluster, r.WatchFilter) {
		lacks = fmt.Sprintf(": give it the label %s: %s", clusterv1.WatchLabel, r.WatchFilter)
	}
	return report.Later(report.MendRetry, infrav1.WaitingForClusterInfrastructureReason,
		"MaasCluster %s does not record yet that it is in %s%s", s.MaasCluster.Name, s.Where(), lacks)
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
	case m.maasCluster == nil && m.lacks != nil:
		return m.lacks
	case m.maasCluster != nil && annotations.IsExternallyManaged(m.maasCluster) && m.waitsForItsManager(deployed):
		return &report.Problem{Reason: infrav1.WaitingForClusterInfrastructureReason, Message: m.managersTask()}
	case m.maasCluster == nil || m.maasCluster.Annotations[infrav1.OwnerIDAnnotation] == "" ||
		(!deployed && !provisioned(m.cluster)):
		return &report.Problem{Reason: infrav1.WaitingForClusterInfrastructureReason,
			Message: clusters.NotProvisioned}
	case m.original != nil:
		return clusters.CopyProblem(m.original)
	case deployed:
		return nil
	case m.machine.Spec.Bootstrap.DataSecretName == nil:
		return &report.Problem{Reason: infrav1.WaitingForBootstrapDataReason,
			Message: "waiting for the bootstrap data Secret"}
	}
	return nil
}

// waitsForItsManager reports whether a MaasCluster that is managed externally lacks what its manager must set.
func (m *owners) waitsForItsManager(deployed bool) bool {
	return m.maasCluster.Annotations[infrav1.OwnerIDAnnotation] == "" || (!deployed && !provisioned(m.cluster))
}

// managersTask says what a MaasCluster that is managed externally lacks, and who must set it.
func (m *owners) managersTask() string {
	task := "status.initialization.provisioned to true"
	if m.maasCluster.Annotations[infrav1.OwnerIDAnnotation] == "" {
		task = fmt.Sprintf("the annotation %s, once, to %d random characters of a-z and 0-9", infrav1.OwnerIDAnnotation,
			maas.OwnerIDLength)
	}
	return fmt.Sprintf("MaasCluster %s is managed externally (annotation %s: %q): that controller, or a person, must set "+
		"its %s; or remove the annotation %s, and this provider does both, and takes the endpoint of Cluster %s",
		m.maasCluster.Name, clusterv1.ManagedByAnnotation, m.maasCluster.Annotations[clusterv1.ManagedByAnnotation], task,
		clusterv1.ManagedByAnnotation, m.cluster.Name)
}

func provisioned(cluster *clusterv1.Cluster) bool {
	return cluster.Status.Initialization.InfrastructureProvisioned != nil &&
		*cluster.Status.Initialization.InfrastructureProvisioned
}
