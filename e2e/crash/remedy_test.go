// SPDX-License-Identifier: Apache-2.0

package crash_test

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

// remedy plays a MachineHealthCheck, which finds a Machine unhealthy until the machine was switched off and on.
func (w *walker) remedy(t *testing.T, key client.ObjectKey) {
	t.Helper()
	machine := w.checked(t, key, metav1.ConditionFalse)
	remediation := &infrav1.MaasRemediation{ObjectMeta: metav1.ObjectMeta{
		Namespace: key.Namespace, Name: key.Name,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(machine, clusterv1.GroupVersion.WithKind("Machine"))},
	}}
	if err := box.Client.Create(t.Context(), remediation); err != nil {
		t.Fatal(err)
	}
	ctx := within(t, createTimeout)
	if err := sandbox.WaitFor(ctx, "the machine to be switched off and on", func() (bool, string, error) {
		err := box.Client.Get(ctx, key, remediation)
		return remediation.Status.Step == infrav1.RemediationRecover, sandbox.Conditions(remediation.Status.Conditions), err
	}); err != nil {
		t.Fatal(err)
	}
	cycles := remediation.Status.PowerCycles // When the Machine is healthy, it begins to count anew.
	w.checked(t, key, metav1.ConditionTrue)
	if err := box.Client.Delete(t.Context(), remediation); err != nil {
		t.Fatal(err)
	}
	if err := sandbox.WaitFor(ctx, "the remediation to end", func() (bool, string, error) {
		err := box.Client.Get(ctx, key, remediation)
		return apierrors.IsNotFound(err), sandbox.Conditions(remediation.Status.Conditions), client.IgnoreNotFound(err)
	}); err != nil {
		t.Fatal(err)
	}
	maasMachine := &infrav1.MaasMachine{}
	if err := box.Client.Get(t.Context(), key, maasMachine); err != nil {
		t.Fatal(err)
	}
	if m, _ := box.MAAS.Machine(maasMachine.Spec.SystemID); m.Power != "on" || cycles != 1 {
		t.Errorf("after %d power cycles, the machine is %s, want on after one", cycles, m.Power)
	}
}

// checked sets what a MachineHealthCheck says of a Machine that has a Node.
func (w *walker) checked(t *testing.T, key client.ObjectKey, healthy metav1.ConditionStatus) *clusterv1.Machine {
	t.Helper()
	machine := &clusterv1.Machine{}
	if err := box.Client.Get(t.Context(), key, machine); err != nil {
		t.Fatal(err)
	}
	before := machine.DeepCopy()
	machine.Status.NodeRef = clusterv1.MachineNodeReference{Name: key.Name}
	conditions.Set(machine, metav1.Condition{Type: clusterv1.MachineHealthCheckSucceededCondition, Status: healthy, Reason: "Test"})
	if err := box.Client.Status().Patch(t.Context(), machine, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	return machine
}
