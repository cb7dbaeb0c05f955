// SPDX-License-Identifier: Apache-2.0

package quarantine

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

const (
	// Interval is a good Keeper.Interval.
	Interval = time.Minute
	// jitter spreads the rounds of several managers: up to this part of the interval is added to it.
	jitter = 0.2
	// rest is how many intervals a MAAS in which nothing is in quarantine is not asked, unless this process puts something
	// there.
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
	counts   map[string]int       // by MAAS
	problems map[string]string    // by MAAS: why the last round failed
	empty    map[string]time.Time // by MAAS: when a round found nothing to keep there
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

// Round looks at every MAAS once. What fails is done in the next round.
func (k *Keeper) Round(ctx context.Context) {
	byMAAS := map[string][]*scope.Region{}
	for _, region := range k.Scopes.Regions() {
		byMAAS[region.Where()] = append(byMAAS[region.Where()], region)
	}
	counts, problems, empty, total := map[string]int{}, map[string]string{}, map[string]time.Time{}, 0
	for where, regions := range byMAAS {
		if k.rests(where, regions) {
			empty[where] = k.empty[where]
			continue
		}
		began := time.Now()
		n, err := k.look(ctx, regions)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			problems[where] = err.Error()
			if k.problems[where] != problems[where] {
				ctrl.LoggerFrom(ctx).Info("Failed to end quarantines; trying again", "maas", where, "error", problems[where])
			}
		}
		if n == nothing {
			empty[where], n = began, 0
		}
		if n == unknown {
			n = k.counts[where]
		}
		counts[where] = n
		total += n
	}
	k.counts, k.problems, k.empty = counts, problems, empty
	k.Quarantined.Set(float64(total))
}

// rests reports whether nothing was to be kept in a MAAS a while ago, and nothing was put there since.
func (k *Keeper) rests(where string, regions []*scope.Region) bool {
	found := k.empty[where]
	return time.Since(found) < rest*k.Interval && !slices.ContainsFunc(regions, func(region *scope.Region) bool {
		return region.Machines.Quarantine.Written().After(found)
	})
}

const (
	// unknown is how many machines are in quarantine if MAAS does not tell.
	unknown = -1
	// nothing means that there is not even a note of one.
	nothing = -2
)

// look ends the quarantines in one MAAS with the first identity that may do so, and returns how many are left.
func (k *Keeper) look(ctx context.Context, regions []*scope.Region) (left int, err error) {
	for _, region := range regions {
		if left, err = k.tend(ctx, region); err == nil {
			break
		}
	}
	return left, err
}

func (k *Keeper) tend(ctx context.Context, region *scope.Region) (left int, err error) {
	service := region.Machines.Quarantine
	lifted, err := service.Tend(ctx, record.TendQuarantines.Permit())
	if len(lifted) > 0 {
		ctrl.LoggerFrom(ctx).Info("Lifted quarantines whose time is over", "maas", region.Where(), "systemIDs", lifted)
	}
	list, listErr := service.List(ctx, k.Interval)
	switch {
	case listErr != nil:
		return unknown, listErr
	case len(list) == 0 && err == nil && !service.HasNotes():
		return nothing, nil
	case err == nil:
		err = service.ForgetLifted(ctx, record.TendQuarantines.Permit(), k.Interval)
	}
	return len(list), err
}
