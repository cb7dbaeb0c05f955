// SPDX-License-Identifier: Apache-2.0

package life

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

// Remedy plays a MachineHealthCheck that finds a Machine of a sandbox.Plain unhealthy, until its machine was switched off and
// on, or is to be replaced. It returns the status of the MaasRemediation at that moment; when it returns, that is gone.
func Remedy(ctx context.Context, box *sandbox.Sandbox, key client.ObjectKey) (status infrav1.MaasRemediationStatus, err error) {
	node := clusterv1.MachineNodeReference{Name: key.Name}
	machine, err := check(ctx, box, key, node, metav1.ConditionFalse)
	if err != nil {
		return status, err
	}
	remediation := &infrav1.MaasRemediation{ObjectMeta: metav1.ObjectMeta{
		Namespace: key.Namespace, Name: key.Name,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(machine, clusterv1.GroupVersion.WithKind("Machine"))},
	}}
	if err := box.Client.Create(ctx, remediation); err != nil {
		return status, fmt.Errorf("creating the MaasRemediation %s: %w", key, err)
	}
	if err := eventually.Wait(ctx, "the machine of "+key.Name+" to be switched off and on", func() (bool, string, error) {
		err := box.Client.Get(ctx, key, remediation)
		step := remediation.Status.Step
		return step == infrav1.RemediationRecover || step == infrav1.RemediationReplace, sandbox.Conditions(remediation.Status.Conditions), err
	}); err != nil {
		return status, err
	}
	status = remediation.Status // When the Machine is healthy, it begins to count anew.
	// Without a Node that can be reached, the Machine could not be drained later.
	if _, err := check(ctx, box, key, clusterv1.MachineNodeReference{}, metav1.ConditionTrue); err != nil {
		return status, err
	}
	if err := box.Client.Delete(ctx, remediation); err != nil {
		return status, fmt.Errorf("deleting the MaasRemediation %s: %w", key, err)
	}
	return status, eventually.Wait(ctx, "the remediation of "+key.Name+" to end", func() (bool, string, error) {
		err := box.Client.Get(ctx, key, remediation)
		return apierrors.IsNotFound(err), sandbox.Conditions(remediation.Status.Conditions), client.IgnoreNotFound(err)
	})
}

// check sets what a MachineHealthCheck says of a Machine, and its Node.
func check(
	ctx context.Context, box *sandbox.Sandbox, key client.ObjectKey, node clusterv1.MachineNodeReference, healthy metav1.ConditionStatus,
) (*clusterv1.Machine, error) {
	machine := &clusterv1.Machine{}
	if err := box.Client.Get(ctx, key, machine); err != nil {
		return nil, fmt.Errorf("reading the Machine %s: %w", key, err)
	}
	before := machine.DeepCopy()
	machine.Status.NodeRef = node
	conditions.Set(machine, metav1.Condition{Type: clusterv1.MachineHealthCheckSucceededCondition, Status: healthy, Reason: "Test"})
	if err := box.Client.Status().Patch(ctx, machine, client.MergeFrom(before)); err != nil {
		return nil, fmt.Errorf("patching the Machine %s: %w", key, err)
	}
	return machine, nil
}
