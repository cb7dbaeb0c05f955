// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"context"
	"fmt"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/life"
	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
	inmaas "github.com/capmaas/cluster-api-provider-maas/pkg/maas/quarantine"
)

// noMachine reports that MAAS has no machine that fits, and which machines are skipped. Another one may become free
// meanwhile.
func (s *Steps) noMachine(ctx context.Context, l *life.Life, refusal error, noted ...string) life.Outcome {
	constraints := s.bid.wanted
	quarantined, err := l.Machines.Quarantine.List(ctx, report.CapacityRetry)
	if err != nil {
		ctrl.LoggerFrom(ctx).Info("Failed to list the machines in quarantine", "error", text.Lines(err))
	}
	after, message := report.CapacityRetry, whyNone(ctx, l, refusal, constraints)
	names, first := skipped(append(quarantined, l.Machines.Quarantine.Remembered()...), constraints)
	names = append(noted, names...)
	for _, m := range unsuited(l) {
		if machine.Fits(m.Machine, constraints) {
			names = append(names, fmt.Sprintf("%s %s", m, m.Why))
		}
	}
	if len(names) > 0 {
		if !first.IsZero() {
			after = min(after, max(first.Sub(s.Clock.Now()), time.Second))
		}
		message = fmt.Sprintf("%d Ready machine(s) match, and are skipped: %s; %s", len(names),
			text.List(names, life.MaxSkipped), message)
	}
	if lost := l.Record.Lost; lost != "" {
		return report.Wait(after, infrav1.KeptMachineLostReason,
			"%s, and no other machine fits: release it there, or add one; %s", lost, message)
	}
	return report.Wait(after, infrav1.NoMachineAvailableReason, "%s", message)
}

// whyNone says why MAAS has no machine for the constraints, in our words: MAAS repeats what it was asked for. Where our
// list of its machines is older than its refusal, MAAS's words remain.
func whyNone(ctx context.Context, l *life.Life, refusal error, constraints maas.AllocateParams) string {
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
