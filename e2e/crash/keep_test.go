// SPDX-License-Identifier: Apache-2.0

package crash_test

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/test/audit"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

// handOver deletes the Machine, and makes the next one of its MachineDeployment, which gets the same machine. It returns the
// name of the next one.
func (w *walker) handOver(t *testing.T, kind *kind, cluster client.ObjectKey, k *killer, who audit.Who) (next client.ObjectKey) {
	t.Helper()
	k.enter(keeping)
	systemID := w.leave(t, cluster, cluster)
	findings, err := w.auditor.Steady(t.Context(), who)
	report(t, "when its machine is kept", findings, err)

	k.enter(taking)
	next = client.ObjectKey{Namespace: cluster.Namespace, Name: cluster.Name + "-next"}
	machine := kind.plain(next.Name, w, cluster.Name)
	if err := box.ApplyYAML(within(t, shortTimeout), strings.NewReader(sandbox.Plain{Key: cluster}.Machines(machine))); err != nil {
		t.Fatal(err)
	}
	w.waitReady(t, kind, next)
	taken := &infrav1.MaasMachine{}
	if err := box.Client.Get(t.Context(), next, taken); err != nil {
		t.Fatal(err)
	}
	if taken.Spec.SystemID != systemID {
		t.Errorf("the next Machine has machine %s, want %s, which was kept", taken.Spec.SystemID, systemID)
	}
	w.waitKept(t, cluster, 0)
	findings, err = w.auditor.Steady(t.Context(), who)
	report(t, "when the next Machine has its machine", findings, err)
	return next
}

// leave deletes a Machine, and returns when its machine waits for the next one.
func (w *walker) leave(t *testing.T, cluster, machine client.ObjectKey) (systemID string) {
	t.Helper()
	maasMachine := &infrav1.MaasMachine{}
	if err := box.Client.Get(t.Context(), machine, maasMachine); err != nil {
		t.Fatal(err)
	}
	systemID = maasMachine.Spec.SystemID
	m := &clusterv1.Machine{}
	m.Namespace, m.Name = machine.Namespace, machine.Name
	if err := box.Client.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	err := eventually.Wait(within(t, deleteTimeout), machine.String()+" to be gone", func() (bool, string, error) {
		err := box.Client.Get(t.Context(), machine, maasMachine)
		return apierrors.IsNotFound(err), sandbox.Conditions(maasMachine.Status.Conditions), client.IgnoreNotFound(err)
	})
	if err != nil {
		t.Fatal(err)
	}
	w.waitKept(t, cluster, 1)
	if m, _ := box.MAAS.Machine(systemID); m.Status != "Deployed" || m.Running || m.Owner != w.user {
		t.Errorf("machine %s, which is kept, is %s, its power %s, its owner %s", systemID, m.Status, m.Power, m.Owner)
	}
	return systemID
}

// waitKept waits until a cluster keeps a number of machines.
func (w *walker) waitKept(t *testing.T, cluster client.ObjectKey, want int) {
	t.Helper()
	maasCluster := &infrav1.MaasCluster{}
	err := eventually.Wait(within(t, shortTimeout), fmt.Sprintf("%s to keep %d machines", cluster, want), func() (bool, string, error) {
		if err := box.Client.Get(t.Context(), cluster, maasCluster); err != nil {
			return false, "", err
		}
		recorded, err := record.OfCluster(maasCluster)
		return len(recorded.Kept) == want, fmt.Sprint(len(recorded.Kept)), err
	})
	if err != nil {
		t.Fatal(err)
	}
}
