// SPDX-License-Identifier: Apache-2.0

package quarantine

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/quarantine"
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
// quarantine. With entitlements, from MAAS 3.8 on, each identity asks for these. While nothing is, it asks in one round
// of ten.
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
	machines sets.Set[string] // that are in quarantine, as far as MAAS shows: system ids
	problem  string           // why the round failed
	empty    time.Time        // when there was nothing to keep
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
		now[region.Server()] = before[region.Server()]
	}
	maps.Copy(now, answers)
	total := 0
	for server, at := range now {
		if total += len(at.machines); at.problem != "" && at.problem != before[server].problem {
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

// look ends the quarantines in one MAAS with the first identity that may do so; in a MAAS with entitlements, which
// shows each one other machines, with every identity those that it sees.
func (k *Keeper) look(ctx context.Context, before found, regions []*scope.Region) (now found) {
	if k.rests(before, regions) {
		return before
	}
	for i, region := range regions {
		one := k.tend(ctx, before, region)
		limited, err := region.Inventory.HasEntitlements(ctx)
		if one.problem == "" && err == nil && !limited {
			return one
		}
		if i > 0 {
			one = now.and(one)
		}
		now = one
	}
	return now
}

// and adds what another identity found in the same MAAS.
func (f found) and(other found) found {
	f.machines = f.machines.Union(other.machines)
	if other.problem == "" {
		f.problem = ""
	}
	if other.empty.Before(f.empty) { // Also if it is zero.
		f.empty = other.empty
	}
	return f
}

// tend does it with one identity. What is known stays as it was before if MAAS does not respond.
func (k *Keeper) tend(ctx context.Context, before found, region *scope.Region) found {
	now, began, service := found{machines: before.machines}, time.Now(), region.Machines.Quarantine
	lifted, err := service.Tend(ctx, record.TendQuarantines.Permit())
	if len(lifted) > 0 {
		ctrl.LoggerFrom(ctx).Info("Lifted quarantines whose time is over", "maas", region.Where(), "systemIDs", lifted)
	}
	seen, listErr := service.List(ctx, k.Interval)
	switch {
	case listErr != nil:
		now.problem = listErr.Error()
		return now
	case err == nil && len(seen) == 0 && !service.HasNotes():
		now.empty = began
	case err == nil:
		err = service.ForgetLifted(ctx, record.TendQuarantines.Permit(), k.Interval)
	}
	now.machines = sets.New(list.Each(seen, func(m quarantine.Machine) string { return m.SystemID })...)
	if err != nil {
		now.problem = err.Error()
	}
	return now
}
