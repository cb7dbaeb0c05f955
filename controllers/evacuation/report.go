// SPDX-License-Identifier: Apache-2.0

package evacuation

import (
	"fmt"
	"slices"

	"k8s.io/utils/ptr"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/internal/text"
)

const (
	// enabledValue is the chart's value that lets the manager replace Machines.
	enabledValue = "evacuation.enabled"
	// maxListed bounds the status, maxNamed the condition.
	maxListed, maxNamed = 100, 10
	// maxMessage bounds what is said of one VM, in bytes.
	maxMessage = 800
)

// urgency is the order in which VMs are listed: those that need a person first.
var urgency = []infrav1.LXDEvacuationState{infrav1.LXDVMHeld, infrav1.LXDVMWaiting, infrav1.LXDVMLeaving}

// conclude writes into the status what is left on a host.
func conclude(host *infrav1.LXDHost, left []infrav1.LXDEvacuationVM, enabled bool) {
	for i := range left {
		left[i].Message = text.OneLine(left[i].Message, maxMessage)
	}
	slices.SortStableFunc(left, func(a, b infrav1.LXDEvacuationVM) int {
		return slices.Index(urgency, a.State) - slices.Index(urgency, b.State)
	})
	status := &infrav1.LXDEvacuationStatus{VMs: left[:min(len(left), maxListed)]}
	for i := range left {
		switch left[i].State {
		case infrav1.LXDVMHeld:
			status.Held++
		case infrav1.LXDVMWaiting:
			status.Waiting++
		case infrav1.LXDVMLeaving:
			status.Leaving++
		}
	}
	host.Status.Evacuation = status
	there := ptr.Deref(host.Status.VMs, -1)
	condition := func(reason, format string, args ...any) {
		report.SetFalse(host, infrav1.EvacuatedCondition, reason, format, args...)
	}
	switch {
	case len(left) > 0 && !enabled:
		condition(infrav1.EvacuationNotEnabledReason, "the manager may not replace the Machines of the %d VM(s) on this "+
			"host: set the chart's value %s to true", len(left), enabledValue)
	case len(left) > 0 && int(status.Held) == len(left):
		condition(infrav1.VMsHeldReason, "%s", listed(left))
	case len(left) > 0:
		condition(infrav1.EvacuatingReason, "%s", listed(left))
	case there < 0:
		condition(infrav1.EvacuatingReason, "it is not known yet which VMs are on the host")
	case there > 0:
		condition(infrav1.EvacuatingReason, "status.vms counts %d VM(s) that no MaasMachine is known to have here: if that "+
			"stays, capmaasctl orphans shows what was left over", there)
	default:
		report.SetTrue(host, infrav1.EvacuatedCondition, infrav1.EvacuatedReason)
	}
}

// listed names what is left, and why.
func listed(left []infrav1.LXDEvacuationVM) string {
	said := list.Each(left, func(vm infrav1.LXDEvacuationVM) string { return vm.Machine + ": " + vm.Message })
	return fmt.Sprintf("%d VM(s) left: %s", len(left), text.Parts(said, maxNamed))
}
