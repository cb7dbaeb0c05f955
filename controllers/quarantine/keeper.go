// SPDX-License-Identifier: Apache-2.0

package quarantine

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

const (
	// Interval is a good Keeper.Interval.
	Interval = time.Minute
	// jitter spreads the rounds of several managers: up to this part of the interval is added to it.
	jitter = 0.2
	// rest is how many intervals a MAAS in which nothing is in quarantine is not asked, unless this process puts
	// something there.
	rest = 10
)

// Keeper ends quarantines in each MAAS that is used when their time is over, whoever began them, and counts them. Of
// each MAAS it asks for one list in a round, however many identities are used there; for two if machines are in
// quarantine. While nothing is, it asks in one round of ten.
type Keeper struct {
	Scopes *scope.Factory
	// Interval is the time between two rounds.
	Interval time.Duration
	// Quarantined is set to the number of machines in quarantine.
	Quarantined prometheus.Gauge

	// Of Start's goroutine.
	rounds scope.Rounds[found]
	known  map[guard.Server]found // Not changed: each round makes another.
}

// found is what a round found in one MAAS.
type found struct {
	count   int       // of the machines in quarantine, as far as MAAS told
	problem string    // why the round failed
	empty   time.Time // when there was nothing to keep
}

// NewMetric makes the metric of the Keeper.
func NewMetric() prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "capmaas_quarantined_machines",
		Help: "Machines that have the tag capmaas-quarantine in a MAAS that is used, and are not allocated.",
	})
}

// NeedLeaderElection makes only the leader end quarantines.
func (k *Keeper) NeedLeaderElection() bool { return true }

// Start ends quarantines until the context ends.
func (k *Keeper) Start(ctx context.Context) error {
	ctx = ctrl.LoggerInto(ctx, ctrl.LoggerFrom(ctx).WithName("quarantine"))
	wait.JitterUntilWithContext(ctx, k.Round, k.Interval, jitter, true)
	return nil
}

// Round looks at every MAAS once, at the same time. What fails, or takes long, is done in a later round.
func (k *Keeper) Round(ctx context.Context) {
	regions, before, now := k.Scopes.Regions(), k.known, map[guard.Server]found{}
	answers := k.rounds.Ask(ctx, regions, func(ctx context.Context, regions []*scope.Region) found {
		return k.look(ctx, before[regions[0].Server()], regions)
	})
	if ctx.Err() != nil {
		return
	}
	for _, region := range regions {
		server := region.Server()
		now[server] = before[server]
		if answer, answered := answers[server]; answered {
			now[server] = answer
		}
	}
	total := 0
	for server, at := range now {
		if total += at.count; at.problem != "" && at.problem != before[server].problem {
			ctrl.LoggerFrom(ctx).Info("Failed to end quarantines; trying again", "maas", server.Address(), "error", at.problem)
		}
	}
	k.known = now
	k.Quarantined.Set(float64(total))
}

// rests reports whether nothing was to be kept in a MAAS a while ago, and nothing was put there since.
func (k *Keeper) rests(before found, regions []*scope.Region) bool {
	return time.Since(before.empty) < rest*k.Interval && !slices.ContainsFunc(regions, func(region *scope.Region) bool {
		return region.Machines.Quarantine.Written().After(before.empty)
	})
}

// look ends the quarantines in one MAAS with the first identity that may do so.
func (k *Keeper) look(ctx context.Context, before found, regions []*scope.Region) (now found) {
	if k.rests(before, regions) {
		return before
	}
	for _, region := range regions {
		if now = k.tend(ctx, before, region); now.problem == "" {
			break
		}
	}
	return now
}

// tend does it with one identity. The count stays as it was before if MAAS does not tell.
func (k *Keeper) tend(ctx context.Context, before found, region *scope.Region) found {
	now, began, service := found{count: before.count}, time.Now(), region.Machines.Quarantine
	lifted, err := service.Tend(ctx, record.TendQuarantines.Permit())
	if len(lifted) > 0 {
		ctrl.LoggerFrom(ctx).Info("Lifted quarantines whose time is over", "maas", region.Where(), "systemIDs", lifted)
	}
	list, listErr := service.List(ctx, k.Interval)
	switch {
	case listErr != nil:
		now.problem = listErr.Error()
		return now
	case err == nil && len(list) == 0 && !service.HasNotes():
		now.empty = began
	case err == nil:
		err = service.ForgetLifted(ctx, record.TendQuarantines.Permit(), k.Interval)
	}
	if now.count = len(list); err != nil {
		now.problem = err.Error()
	}
	return now
}
