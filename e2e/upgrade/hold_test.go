// SPDX-License-Identifier: Apache-2.0

package upgrade_test

import (
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

// checkHeld waits until each VM that is being deleted on a host which nobody has prepared says what it waits for. As long
// as MAAS has its machine, LXD has the VM.
func (r *round) checkHeld() {
	r.Helper()
	held := 0
	wait(r.T, "the VMs on hosts that are not prepared to be held", func() (bool, string, error) {
		list := &infrav1.MaasMachineList{}
		if err := box.Client.List(r.Context(), list, client.InNamespace(life.Namespace)); err != nil {
			return false, "", err
		}
		there := r.bed.instances(r.T)
		var not []string
		held = 0
		for i := range list.Items {
			m := &list.Items[i]
			if m.DeletionTimestamp.IsZero() || !r.isLate(m.Status.LXDHost) {
				continue
			}
			held++
			if why := conditions.GetReason(m, infrav1.MachineDeployedCondition); why != infrav1.VMHostsNotSupportedReason {
				not = append(not, m.Name+": "+sandbox.Conditions(m.Status.Conditions))
			}
			_, known := box.MAAS.Machine(m.Spec.SystemID)
			if known && !slices.Contains(there[m.Status.LXDHost], m.Status.Hostname) {
				not = append(not, fmt.Sprintf("%s: its VM %s is not on %s", m.Name, m.Status.Hostname, m.Status.LXDHost))
			}
		}
		return len(not) == 0, strings.Join(not, "\n"), nil
	})
	r.Logf("%d VMs are held", held)
}

func (r *round) isLate(host string) bool {
	return slices.ContainsFunc(r.late, func(i int) bool { return r.bed[i].name == host })
}
