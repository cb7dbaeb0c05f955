// SPDX-License-Identifier: Apache-2.0

package life

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/internal/states"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// WasProvisioned reports whether Cluster API knows that the machine runs. The provider ID survives the loss of the
// status.
func WasProvisioned(m *infrav1.MaasMachine) bool {
	return m.Spec.ProviderID != "" || ptr.Deref(m.Status.Initialization.Provisioned, false)
}

// named names the machine, also if MAAS no longer has it.
func (l *Life) named() string {
	if l.MAAS != nil {
		return l.MAAS.String()
	}
	return maas.Named(l.MaasMachine.Status.Hostname, l.MaasMachine.Spec.SystemID)
}

// ReportState waits because the machine does not run, and reports the failure if it won't.
func (s *Steps) ReportState(l *Life, v states.Assessment) Outcome {
	m, after := l.MaasMachine, report.SafetyRetry
	if v.Phase == "" && WasProvisioned(m) {
		v.Phase = stopped
	}
	limit := s.limit(v.Phase)
	if left := limit - l.Record.Enter(v.Phase, s.Clock.Now()); left > 0 {
		after = min(after, left)
	} else if limit > 0 {
		v = v.Overdue(limit)
	}
	message := fmt.Sprintf("machine %s %s", l.named(), v.Message)
	known := conditions.GetReason(m, infrav1.MachineDeployedCondition)
	if v.Then == states.Replace {
		known = m.Status.FailureReason // An outage of MAAS changes the condition for a while.
	}
	if v.Then != states.Moving && known != v.Reason {
		s.Warn(m, v.Reason, "Observe", "%s", message)
	}
	m.Status.FailureReason, m.Status.FailureMessage = "", ""
	if v.Then == states.Replace {
		m.Status.FailureReason, m.Status.FailureMessage = v.Reason, message
	}
	if v.Lost {
		m.Status.Addresses = nil
	}
	return report.Wait(after, v.Reason, "%s", message)
}

// limit returns how long a phase may take; 0 is no limit.
func (s *Steps) limit(phase string) time.Duration {
	return map[string]time.Duration{states.Commissioning: s.CommissionTimeout, states.Deploying: s.DeployTimeout}[phase]
}

// isOverdue reports whether the machine's phase is past its deadline.
func (s *Steps) isOverdue(l *Life) bool {
	p := l.Record.Phase
	return p != nil && s.limit(p.Name) > 0 && s.Clock.Since(p.Since.Time) >= s.limit(p.Name)
}

// ReleaseBegan reports whether MAAS was asked for the release of a machine that was proven to be ours.
func ReleaseBegan(l *Life) bool { return l.Record.In(Releasing, DiskErasing, Undoing) }

// WarnOnce is report.Wait. It emits an event for a reason that the condition does not have yet.
func (s *Steps) WarnOnce(
	m *infrav1.MaasMachine, after time.Duration, reason, format string, args ...any,
) Outcome {
	if conditions.GetReason(m, infrav1.MachineDeployedCondition) != reason {
		s.Warn(m, reason, "GiveBack", format, args...)
	}
	return report.Wait(after, reason, format, args...)
}

// Timestamp formats a time for conditions.
func Timestamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// PtrTime returns a time in the precision in which it is read back.
func PtrTime(t time.Time) *metav1.Time { return new(metav1.NewTime(t).Rfc3339Copy()) }

var (
	// BackInPool are the states of a machine that is not allocated.
	BackInPool = sets.New(maas.StatusNew, maas.StatusReady)
	// OnItsWay are the states that lead to one of those.
	OnItsWay = sets.New(maas.StatusReleasing, maas.StatusDiskErasing)
)

// Phases of a machine that more than one way of life goes through.
const (
	// stopped: it ran, and has not since. A control plane leaves the endpoint after a while.
	stopped = "stopped"
	// HeldInVain: bare metal can't be deployed until a person does something.
	HeldInVain = "held-in-vain"
	// Releasing: MAAS was asked for the release, or the VM's deletion is recorded.
	Releasing = "releasing"
	// DiskErasing: MAAS erases its disks.
	DiskErasing = "erasing-disks"
	// Undoing: a machine that was released is ours once more, until its network is as before.
	Undoing = "undoing"
)

// MaxSkipped is how many machines or hosts a condition names.
const MaxSkipped = 5
