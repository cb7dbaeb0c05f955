// SPDX-License-Identifier: Apache-2.0

package remediation

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/controlplane"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

// subject is what a remediation is about, for one reconcile.
type subject struct {
	remediation *infrav1.MaasRemediation
	record      *record.Remediation // of the remediation
	machine     *clusterv1.Machine
	cluster     *clusterv1.Cluster
	maasMachine *infrav1.MaasMachine // nil: there is none
	// inMAAS is the machine with its MAAS; nil until it was looked at.
	inMAAS *scope.Machine
}

// named names the machine in MAAS.
func (s *subject) named() string {
	return maas.Named(s.maasMachine.Status.Hostname, s.maasMachine.Spec.SystemID)
}

func (s *subject) progress() infrav1.RemediationProgress {
	return ptr.Deref(s.record.Remediation, infrav1.RemediationProgress{})
}

func (s *subject) isControlPlane() bool { return util.IsControlPlaneMachine(s.machine) }

// isGivenBack reports whether the machine is given back to MAAS, or was never taken.
func (s *subject) isGivenBack() bool {
	return s.maasMachine == nil || !s.maasMachine.DeletionTimestamp.IsZero() || s.maasMachine.Spec.SystemID == ""
}

// subject reads what a remediation is about; nil if its Machine or its Cluster is gone.
func (r *Reconciler) subject(ctx context.Context, remediation *infrav1.MaasRemediation) (*subject, error) {
	machine, err := clusters.OwnerMachine(ctx, r.Client, remediation)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading the Machine: %w", err)
	}
	if machine == nil {
		return nil, nil
	}
	s := &subject{remediation: remediation, machine: machine}
	s.cluster, err = util.GetClusterByName(ctx, r.Client, machine.Namespace, machine.Spec.ClusterName)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the Cluster: %w", err)
	}
	key, is := clusters.MaasMachineKey(machine)
	if !is {
		return s, nil
	}
	maasMachine := &infrav1.MaasMachine{}
	err = r.Client.Get(ctx, key, maasMachine)
	if err == nil {
		s.maasMachine = maasMachine
	}
	return s, client.IgnoreNotFound(err)
}

// said returns what Kubernetes says of the Machine.
func (r *Reconciler) said(s *subject) facts {
	f := facts{
		spec: s.remediation.Spec, progress: s.progress(), healthy: isHealthy(s.machine),
		joined: s.machine.Status.NodeRef.IsDefined(), vm: s.maasMachine != nil && s.maasMachine.Spec.IsLXD(),
	}
	switch {
	case annotations.HasSkipRemediation(s.machine):
		f.held = "the Machine has the annotation " + clusterv1.MachineSkipRemediationAnnotation +
			": remove it, or delete the Machine"
	case annotations.HasPaused(s.machine), s.maasMachine != nil && annotations.HasPaused(s.maasMachine):
		f.held = "the Machine is paused: remove the annotation " + clusterv1.PausedAnnotation
	}
	return f
}

// lookAtMachine returns what is known of the machine, and proves that it is ours.
func (r *Reconciler) lookAtMachine(ctx context.Context, s *subject) (facts, error) {
	f := r.said(s)
	if s.isGivenBack() {
		return f, nil
	}
	sm, err := r.scope(ctx, s)
	if err != nil {
		return f, err
	}
	machine, err := sm.Inventory.Read(ctx, s.maasMachine.Spec.SystemID)
	if errors.Is(err, maas.NotFound) {
		if conditions.GetReason(s.maasMachine, infrav1.MachineDeployedCondition) == infrav1.MachineMissingReason {
			return f, nil
		}
		return f, report.Later(report.CapacityRetry, infrav1.MAASUnavailableReason,
			"MAAS does not have machine %s now; waiting until that is certain", s.maasMachine.Spec.SystemID)
	}
	if err != nil {
		return f, fmt.Errorf("reading machine %s: %w", s.maasMachine.Spec.SystemID, err)
	}
	ours, err := sm.Machines.IsOurs(ctx, sm.Identity(), machine)
	if err != nil || !ours {
		return f, err
	}
	f.machine = machine
	f.published = s.isControlPlane() && sm.Endpoint() == scope.EndpointDNS
	return f, nil
}

// scope returns the machine with its MAAS, as far as anything there can be proven to be ours.
func (r *Reconciler) scope(ctx context.Context, s *subject) (*scope.Machine, error) {
	maasCluster, err := clusters.MaasClusterOf(ctx, r.Client, s.cluster)
	if err != nil {
		return nil, err
	}
	if p := clusters.OwnerProblem(maasCluster, s.maasMachine); p != nil {
		return nil, report.NotReady(*p)
	}
	original, err := clusters.CopiedFrom(ctx, r.Client, maasCluster)
	if err != nil {
		return nil, err
	}
	if original != nil {
		return nil, report.NotReady(*clusters.CopyProblem(original))
	}
	cluster, err := r.Scopes.Cluster(ctx, s.cluster, maasCluster)
	if err != nil {
		return nil, err
	}
	s.inMAAS = &scope.Machine{Cluster: cluster, Machine: s.machine, MaasMachine: s.maasMachine}
	return s.inMAAS, nil
}

// quorumWithout returns why the rest of the control plane can't do without the Machine; "" if it can. It asks the API
// server: a cache may not have what began just now.
func (r *Reconciler) quorumWithout(ctx context.Context, s *subject) (string, error) {
	machines, remediations := &clusterv1.MachineList{}, &infrav1.MaasRemediationList{}
	in := client.InNamespace(s.machine.Namespace)
	cluster := client.MatchingLabels{clusterv1.ClusterNameLabel: s.machine.Spec.ClusterName}
	if err := r.APIReader.List(ctx, machines, in, cluster,
		client.HasLabels{clusterv1.MachineControlPlaneLabel}); err != nil {
		return "", fmt.Errorf("listing the control plane's Machines: %w", err)
	}
	if err := r.APIReader.List(ctx, remediations, in); err != nil {
		return "", fmt.Errorf("listing MaasRemediations: %w", err)
	}
	others := list.Where(list.Each(machines.Items, func(m clusterv1.Machine) *clusterv1.Machine { return &m }),
		func(m *clusterv1.Machine) bool { return m.UID != s.machine.UID })
	if len(others) == 0 {
		return "", nil // It can't be worse without it.
	}
	down := func(m *clusterv1.Machine) bool { return isDown(m, remediations.Items) }
	if why := controlplane.Quorum(others, down); why != "" {
		return why, nil
	}
	return r.controlPlaneSickness(ctx, s)
}

// isDown reports whether a remediation switches a Machine's machine off now.
func isDown(m *clusterv1.Machine, remediations []infrav1.MaasRemediation) bool {
	for i := range remediations {
		recorded, err := record.OfRemediation(&remediations[i])
		if err != nil || recorded.Remediation == nil || !clusters.IsOwnedBy(&remediations[i], clusters.MachineKind, m) {
			continue
		}
		switch recorded.Remediation.Step {
		case infrav1.RemediationLeaveEndpoint, infrav1.RemediationPowerOff, infrav1.RemediationPowerOn:
			return true
		}
	}
	return false
}

// controlPlaneSickness returns what the control plane says of itself, if it can be read.
func (r *Reconciler) controlPlaneSickness(ctx context.Context, s *subject) (string, error) {
	object, err := controlplane.Of(ctx, r.Client, r.APIReader, s.cluster)
	if err != nil || object == nil {
		return "", err
	}
	said, _ := conditions.UnstructuredGetAll(object) // Without any it is not healthy.
	if why := controlplane.Sickness(said, true); why != "" {
		return fmt.Sprintf("%s %s is not healthy: %s", object.GetKind(), object.GetName(), why), nil
	}
	return "", nil
}
