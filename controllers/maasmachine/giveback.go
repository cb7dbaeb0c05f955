// SPDX-License-Identifier: Apache-2.0

package maasmachine

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/life"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/metal"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
)

// GiveBack gives back a machine that a MaasCluster keeps, as the deletion of its MaasMachine would, and reports whether
// that is done. The record of the MaasCluster is that of the machine: a namespace that is being deleted takes no new
// object.
func (r *Reconciler) GiveBack(
	ctx context.Context, cluster *clusterv1.Cluster, maasCluster *infrav1.MaasCluster, kept record.KeptMachine,
	whole *record.Cluster,
) (done bool, after time.Duration, err error) {
	rec, err := whole.Giving(kept.SystemID)
	if err != nil {
		return false, 0, err
	}
	m := &owners{cluster: cluster, maasCluster: maasCluster, maasMachine: former(maasCluster, kept), record: rec}
	m.machine = &clusterv1.Machine{Spec: clusterv1.MachineSpec{ClusterName: cluster.Name}}
	m.machine.Namespace = maasCluster.Namespace
	if m.original, err = r.original(ctx, m); err != nil {
		return false, 0, err
	}
	steps := metal.New(&r.Steps)
	release := []life.Step{steps.DeletionLookup, steps.Release, steps.Restoration}
	result, err := r.runDeletion(ctx, m, release, func(string) (ctrl.Result, error) {
		done = true
		return ctrl.Result{}, nil
	})
	if done {
		return true, 0, err
	}
	if c := conditions.Get(m.maasMachine, infrav1.MachineDeployedCondition); c != nil {
		rec.Explain(c.Reason, report.Brief(c.Message))
	}
	if failed := rec.Close(ctx); failed != nil {
		return false, 0, failed
	}
	return false, result.RequeueAfter, err
}

// former returns the MaasMachine that a machine had. Kubernetes does not have it.
func former(maasCluster *infrav1.MaasCluster, kept record.KeptMachine) *infrav1.MaasMachine {
	m := &infrav1.MaasMachine{Spec: *kept.Spec.DeepCopy()}
	m.Namespace, m.Name, m.Labels, m.Annotations = maasCluster.Namespace, kept.Machine, kept.Labels, kept.Annotations
	m.UID = types.UID(string(maasCluster.UID) + "/" + kept.SystemID)
	m.DeletionTimestamp = life.PtrTime(kept.Since.Time)
	m.Spec.SystemID, m.Spec.Release.Keep = kept.SystemID, nil
	if kept.Reason != "" {
		life.NotDeployed(m, kept.Reason, "%s", kept.Message)
	}
	return m
}
