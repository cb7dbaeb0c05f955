// SPDX-License-Identifier: Apache-2.0

package life

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
)

// failedStates are the states of a machine that would likely fail again.
var failedStates = sets.New(maas.StatusFailedCommissioning, maas.StatusFailedTesting, maas.StatusFailedDeployment,
	maas.StatusFailedDiskErasing, maas.StatusReleasingFailed)

// WhyFailed returns why the machine would likely fail again, or "".
func (s *Steps) WhyFailed(l *Life) string {
	if l.IsLXD() { // A failed VM is deleted.
		return ""
	}
	untested := l.Record.TestsOf(l.MAAS.SystemID).WhyNot()
	switch {
	case untested != "":
		return untested
	case failedStates.Has(l.MAAS.Status):
		return l.MAAS.StatusName
	case l.MAAS.Status.Moving() && s.isOverdue(l):
		return l.MAAS.StatusName + " for too long"
	}
	return ""
}

// notesMaxAge is the maximum age of what is known of earlier failures of a machine that was deployed. The Keeper reads
// it as often.
const notesMaxAge = 5 * time.Minute

// forgive ends the quarantine of a bare-metal machine that was deployed.
func (s *Steps) forgive(ctx context.Context, l *Life) {
	if l.IsLXD() {
		return
	}
	l.Record.Quarantine = ""
	err := l.Machines.Quarantine.Succeeded(ctx, record.TendQuarantines.Permit(), l.MAAS.SystemID, notesMaxAge)
	if err != nil {
		ctrl.LoggerFrom(ctx).Info("Failed to forget earlier failures of a machine that was deployed", "systemID",
			l.MAAS.SystemID, "error", text.Lines(err))
	}
}
