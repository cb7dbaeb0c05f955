// SPDX-License-Identifier: Apache-2.0

package crash_test

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/life"
)

// remedy has the machine switched off and on, because its Node is not healthy.
func (w *walker) remedy(t *testing.T, kind *kind, key client.ObjectKey) {
	t.Helper()
	status, err := life.Remedy(within(t, createTimeout), box, key)
	if err != nil {
		t.Fatal(err)
	}
	maasMachine := &infrav1.MaasMachine{}
	if err := box.Client.Get(t.Context(), key, maasMachine); err != nil {
		t.Fatal(err)
	}
	m, _ := box.MAAS.Machine(maasMachine.Spec.SystemID)
	running := m.Power == "on"
	if kind.direct {
		running = w.lxds[directHost].VMs(t)[maasMachine.Status.Hostname] == "Running"
	}
	if status.Step != infrav1.RemediationRecover || !running || status.PowerCycles != 1 {
		t.Errorf("after %d power cycles, the step is %s, and the machine runs: %t; want that it does after one", status.PowerCycles, status.Step, running)
	}
}
