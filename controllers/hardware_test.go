// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// hardwareIs waits until a MaasMachine and its Machine say the same of the hardware.
func (w *world) hardwareIs(m *infrav1.MaasMachine, status metav1.ConditionStatus, reason string) {
	w.t.Helper()
	w.await(m.Name+"'s hardware is "+reason, m, func(ctx context.Context) bool {
		machine := &clusterv1.Machine{}
		for _, object := range []client.Object{m, machine} {
			if err := w.client.Get(ctx, client.ObjectKeyFromObject(m), object); err != nil {
				return false
			}
			c := conditions.Get(object.(conditions.Getter), infrav1.HardwareHealthyCondition)
			if c == nil || c.Status != status || c.Reason != reason {
				return false
			}
		}
		return true
	})
}

// The status has what commissioning found, and both objects have what MAAS's tests say, also when the machine no longer
// runs because of them. A VM has neither.
func TestHardwareOfAMachine(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) {
		w.region = strings.Replace(region, "disks: [100]}", "disks: [100, 480], hardware: {system_vendor: Acme, system_product: R1, system_serial: A-17}}", 1)
	})
	w.provisionedCluster()
	m := w.deployedMachine("metal", false, infrav1.MaasMachineSpec{FailureDomain: "zone-a"})
	w.hardwareIs(m, metav1.ConditionTrue, infrav1.TestsPassedReason)
	found := m.Status.Hardware
	if found == nil || found.Cores != 8 || found.Memory != 16384 || found.Vendor != "Acme" || found.Product != "R1" || found.Serial != "A-17" ||
		len(found.Disks) != 2 || found.Disks[1].Size != 480 || len(found.NICs) != 1 || found.NICs[0].MACAddress == "" {
		t.Errorf("the hardware is %+v", found)
	}
	w.control("machines/"+m.Spec.SystemID+"/fail", `{"operation": "test", "message": "a disk is bad"}`)
	w.maasCall(http.MethodPost, "machines/"+m.Spec.SystemID+"/?op=test", nil)
	w.hardwareIs(m, metav1.ConditionFalse, infrav1.TestsFailedReason)
	if conditions.IsTrue(m, infrav1.ReadyCondition) {
		t.Error("a machine that failed its tests is ready")
	}

	m = w.newMachine("vm", false, vm)
	w.deployed(m)
	if m.Status.Hardware != nil || conditions.Has(m, infrav1.HardwareHealthyCondition) {
		t.Errorf("a VM has hardware: %+v", m.Status)
	}
}

// Anybody may name a machine in spec.systemID: what it is made of is told only of one that is proven to be ours.
func TestTheHardwareOfSomebodysMachineIsNotTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withOtherUser(true), func(w *world) {
		w.region = strings.Replace(w.region, "disks: [100]}", "disks: [100], hardware: {system_serial: A-17}}", 1)
	})
	w.provisionedCluster()
	other, id := w.as(otherKey), w.named("metal-a")
	theirs, err := other.AllocateMachine(t.Context(), maas.Unrecorded("a test"), maas.AllocateParams{AgentName: "juju", SystemID: id})
	if err != nil {
		t.Fatal(err)
	}
	w.must(deployTheirs(t.Context(), other, theirs))
	w.inState(id, "Deployed")
	m := w.newMachine("curious", false, infrav1.MaasMachineSpec{SystemID: id})
	w.refused(m, infrav1.MachineDeployedCondition, infrav1.MachineNotOursReason)
	w.stored(m)
	if m.Status.Hardware != nil || conditions.Has(m, infrav1.HardwareHealthyCondition) {
		t.Errorf("of somebody's machine it tells %+v", m.Status.Hardware)
	}
}
