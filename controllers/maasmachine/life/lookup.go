// SPDX-License-Identifier: Apache-2.0

package life

import (
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
)

// ReadMachine reads the machine from the inventory; nil means that MAAS proved that it no longer has it.
func (s *Steps) ReadMachine(l *Life, interest inventory.Interest) (Outcome, error) {
	m := l.MaasMachine
	observe := l.Inventory.Observe
	if l.Record.Runs != "" {
		observe = l.Inventory.ObserveDevice
	}
	seen := observe(m.Spec.SystemID, interest)
	if seen.Machine != nil { // One that is gone does not come back.
		l.Record.AsOf(seen.At)
	}
	if err := l.Inventory.Health(); err != nil {
		// It may have changed since the last response. The inventory triggers a reconcile when MAAS can be read again.
		p := report.Explain(l.From(err))
		return Proceed, report.Later(report.SafetyRetry, p.Reason, "%s", p.Message)
	}
	_, accepted := l.MaasCluster.Annotations[infrav1.AcceptVanishedAnnotation]
	switch {
	case !seen.Known:
		return report.Retry(report.UnknownRetry, infrav1.NotReadyReason, "reading machine %s", m.Spec.SystemID), nil
	case seen.Hidden:
		return Hold(m, infrav1.MachineHiddenReason,
			"MAAS has machine %s and does not show it to the user of the API key: let that user see it again, or use another "+
				"key", m.Spec.SystemID), nil
	case seen.Machine == nil && seen.Vanished > 0 && !accepted:
		return Hold(m, infrav1.MachinesVanishedReason,
			"MAAS reports that machine %s is gone, one of %d at once: check whether MAAS was restored or emptied. If they are "+
				"really gone, set the annotation %s on the MaasCluster",
			m.Spec.SystemID, seen.Vanished, infrav1.AcceptVanishedAnnotation), nil
	}
	l.MAAS = seen.Machine
	return Proceed, nil
}

// Hold waits for a person: until then the machine is neither reported as lost nor released.
func Hold(m *infrav1.MaasMachine, reason, format string, args ...any) Outcome {
	m.Status.FailureReason, m.Status.FailureMessage = "", ""
	return report.Hold(report.MendRetry, reason, format, args...)
}

// Interest is how soon a change of the machine must be seen.
func (l *Life) Interest() inventory.Interest {
	if conditions.IsTrue(l.MaasMachine, infrav1.MachineDeployedCondition) {
		return inventory.Settled
	}
	return inventory.Changing
}
