// SPDX-License-Identifier: Apache-2.0

package maasmachine

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	ctrl "sigs.k8s.io/controller-runtime"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
	inmaas "github.com/capmaas/cluster-api-provider-maas/pkg/maas/quarantine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
)

// failedStates are the states of a machine that would likely fail again.
var failedStates = sets.New(maas.StatusFailedCommissioning, maas.StatusFailedTesting, maas.StatusFailedDeployment,
	maas.StatusFailedDiskErasing, maas.StatusReleasingFailed)

// whyFailed returns why the machine would likely fail again, or "".
func (r *Reconciler) whyFailed(l *life) string {
	switch {
	case l.IsLXD(): // A failed VM is deleted.
		return ""
	case failedStates.Has(l.maas.Status):
		return l.maas.StatusName
	case l.maas.Status.Moving() && r.isOverdue(l):
		return l.maas.StatusName + " for too long"
	}
	return ""
}

// notesMaxAge is the maximum age of what is known of earlier failures of a machine that was deployed. The Keeper reads
// it as often.
const notesMaxAge = 5 * time.Minute

// forgive ends the quarantine of a bare-metal machine that was deployed.
func (r *Reconciler) forgive(ctx context.Context, l *life) {
	if l.IsLXD() {
		return
	}
	l.record.Quarantine = ""
	err := l.Machines.Quarantine.Succeeded(ctx, record.TendQuarantines.Permit(), l.maas.SystemID, notesMaxAge)
	if err != nil {
		ctrl.LoggerFrom(ctx).Info("Failed to forget earlier failures of a machine that was deployed", "systemID",
			l.maas.SystemID, "error", text.Lines(err))
	}
}

// noMachine reports that MAAS has no machine that fits, and which machines are skipped. Another one may become free
// meanwhile.
func (r *Reconciler) noMachine(ctx context.Context, l *life, refusal error, noted ...string) outcome {
	constraints := l.bid.wanted
	quarantined, err := l.Machines.Quarantine.List(ctx, report.CapacityRetry)
	if err != nil {
		ctrl.LoggerFrom(ctx).Info("Failed to list the machines in quarantine", "error", text.Lines(err))
	}
	after, message := report.CapacityRetry, whyNone(ctx, l, refusal, constraints)
	names, first := skipped(append(quarantined, l.Machines.Quarantine.Remembered()...), constraints)
	names = append(noted, names...)
	for _, m := range l.unsuited() {
		if machine.Fits(m, constraints) {
			names = append(names, fmt.Sprintf("%s %s", m, whyUnsuited(l, m)))
		}
	}
	if len(names) > 0 {
		if !first.IsZero() {
			after = min(after, max(first.Sub(r.Clock.Now()), time.Second))
		}
		message = fmt.Sprintf("%d Ready machine(s) match, and are skipped: %s; %s", len(names), text.List(names, maxSkipped),
			message)
	}
	if lost := l.record.Lost; lost != "" {
		return report.Wait(after, infrav1.KeptMachineLostReason,
			"%s, and no other machine fits: release it there, or add one; %s", lost, message)
	}
	return report.Wait(after, infrav1.NoMachineAvailableReason, "%s", message)
}

// whyNone says why MAAS has no machine for the constraints, in our words: MAAS repeats what it was asked for. Where our
// list of its machines is older than its refusal, MAAS's words remain.
func whyNone(ctx context.Context, l *life, refusal error, constraints maas.AllocateParams) string {
	for _, age := range []time.Duration{clusters.BareMetalMaxAge, metalRetry} {
		machines, err := clusters.BareMetal(ctx, l.Cluster, age)
		if err != nil {
			ctrl.LoggerFrom(ctx).Info("Failed to list all machines", "error", text.Lines(err))
			break
		}
		if why := l.Machines.WhyNone(machines, constraints); why != "" {
			return why
		}
	}
	return "MAAS says: " + maas.Message(refusal)
}

const (
	// metalRetry is how old a list of all machines may be that has a machine which MAAS has given away.
	metalRetry = time.Minute
	// maxSkipped is how many of the skipped machines a condition names.
	maxSkipped = 5
	// maxWhy bounds why a machine is in quarantine, which people may have written, in bytes.
	maxWhy = 100
)

// skipped describes the machines in the pool that fit and are not allocated for a while, and returns when the first of
// them may be.
func skipped(failed []inmaas.Machine, constraints maas.AllocateParams) (names []string, first time.Time) {
	for _, q := range failed {
		if q.Status != maas.StatusReady || !machine.Fits(q.Machine, constraints) {
			continue
		}
		how, lift := "left alone", ""
		if inmaas.Has(q.Machine) {
			how, lift = "quarantined", "; lift it with: capmaasctl machines lift "+q.Hostname
		}
		name := fmt.Sprintf("%s is %s %s", q, how, q.Ends())
		if q.Failures > 0 {
			name += fmt.Sprintf(", failures: %d", q.Failures)
		}
		if q.Why != "" {
			name += ", " + text.OneLine(q.Why, maxWhy)
		}
		names = append(names, name+lift)
		if !q.Until.IsZero() && (first.IsZero() || q.Until.Before(first)) {
			first = q.Until
		}
	}
	return names, first
}
