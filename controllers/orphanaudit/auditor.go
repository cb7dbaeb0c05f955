// SPDX-License-Identifier: Apache-2.0

// Package orphanaudit reports orphans: machines in MAAS that carry our marks and that no object claims. It changes
// nothing.
package orphanaudit

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/objects"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/orphans"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

const (
	// orphanedReason is the reason of the event on a MaasCluster that has an orphan.
	orphanedReason = "MachineOrphaned"
	// auditJitter spreads the audits of several managers: up to this part of the interval is added to it.
	auditJitter = 0.2
)

// Auditor checks at intervals for machines in MAAS that carry our marks and that no object claims. It reports them with
// a metric, and once each with an event on the MaasCluster, or in the log if there is no MaasCluster. It changes
// nothing.
type Auditor struct {
	reconciler.Base
	// ManagementID identifies this management cluster (see the function); "" if it could not be read.
	ManagementID string
	// Interval is the time between two audits; each audit lists all machines in one call per identity.
	Interval time.Duration
	// SettleTime is how long a machine must have been an orphan before it is reported.
	SettleTime time.Duration
	// Namespace limits the audit to one namespace; "" is all.
	Namespace string
	// Orphans is set to the number of orphans.
	Orphans *prometheus.GaugeVec

	watchlist *orphans.Watchlist
	users     map[client.ObjectKey]bool
	unread    string // the last reason why an audit was not complete
}

// NewMetric makes the metric of the audit. Label kind is bare-metal or lxd; label doubt is whether an operator must
// vouch for the machine before capmaasctl removes it.
func NewMetric() *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "capmaas_orphaned_machines",
		Help: "Machines in MAAS that carry the marks of this management cluster, or whose marks can't be read, and that no " +
			"object claims, by kind (bare-metal, lxd) and by whether that is in doubt.",
	}, []string{"kind", "doubt"})
}

// NeedLeaderElection makes only the leader audit.
func (a *Auditor) NeedLeaderElection() bool { return true }

// Start audits until the context ends.
func (a *Auditor) Start(ctx context.Context) error {
	ctx = ctrl.LoggerInto(ctx, ctrl.LoggerFrom(ctx).WithName("orphans"))
	wait.JitterUntilWithContext(ctx, a.Audit, a.Interval, auditJitter, true)
	return nil
}

// Audit checks every MAAS once. The results for a MAAS that can't be read now stay, and it is read again the next time.
func (a *Auditor) Audit(ctx context.Context) {
	if a.watchlist == nil {
		a.watchlist = orphans.NewWatchlist(a.SettleTime)
	}
	found := a.audit(ctx)
	if ctx.Err() != nil {
		return
	}
	a.log(ctx, kerrors.NewAggregate(found.errs))
	ripe := a.watchlist.Update(a.Clock.Now(), found.findings, found.isUnread)
	for i := range ripe {
		a.report(ctx, ripe[i], found.clusters)
	}
	a.watchlist.Reported(ripe)
	a.count()
}

// audit is what one audit found.
type audit struct {
	findings []orphans.Finding
	clusters []infrav1.MaasCluster
	// read are the MAASes that responded in full. missing means that there are others, of which only the users are known.
	read    map[guard.Server]bool
	missing bool
	errs    []error
}

// isUnread reports whether a MAAS, if it is used, may have more than was found.
func (a *audit) isUnread(server guard.Server) bool {
	told, isUsed := a.read[server]
	return (isUsed && !told) || (!isUsed && a.missing)
}

// fail records that a MAAS did not respond in full.
func (a *audit) fail(server guard.Server, err error) {
	a.read[server] = false
	a.errs = append(a.errs, err)
}

// audit lists the machines of each MAAS, of all at the same time, then reads the objects in Kubernetes.
func (a *Auditor) audit(ctx context.Context) *audit {
	regions, errs := a.regions(ctx)
	now := &audit{read: map[guard.Server]bool{}, missing: len(errs) > 0, errs: errs}
	lists := ask(ctx, now, slices.Collect(maps.Keys(regions)),
		func(ctx context.Context, region *scope.Region) ([]*maas.Machine, error) {
			return orphans.List(ctx, region.Inventory.Client())
		})
	claims, clusters, err := ReadClaims(ctx, a.Client, a.ManagementID, a.Namespace)
	if err != nil {
		return &audit{missing: true, errs: []error{err}}
	}
	now.clusters = clusters
	found := map[*scope.Region][]orphans.Finding{}
	for region, machines := range lists {
		found[region] = a.ours(region, claims.Audit(machines), clusters)
	}
	recorded := ask(ctx, now, slices.Collect(maps.Keys(found)),
		func(ctx context.Context, region *scope.Region) ([]orphans.Finding, error) {
			if a.watchlist.Knows(found[region]) { // All were reported before.
				return found[region], nil
			}
			return orphans.Recorded(ctx, region.Inventory.Client(), found[region])
		})
	for _, findings := range recorded {
		now.findings = append(now.findings, findings...)
	}
	return now
}

// answer is what MAAS told one identity.
type answer[T any] struct {
	region *scope.Region
	value  T
	err    error
}

// ask asks for something as each identity, and returns the responses. The identities of one MAAS ask one after the
// other.
func ask[T any](
	ctx context.Context, now *audit, regions []*scope.Region, call func(context.Context, *scope.Region) (T, error),
) map[*scope.Region]T {
	all := scope.AskAll(ctx, regions, func(ctx context.Context, regions []*scope.Region) (answers []answer[T]) {
		for _, region := range regions {
			value, err := call(ctx, region)
			answers = append(answers, answer[T]{region, value, err})
		}
		return answers
	})
	values := map[*scope.Region]T{}
	for _, region := range regions {
		server := region.Server()
		if _, before := now.read[server]; !before {
			now.read[server] = true
		}
		if _, answered := all[server]; !answered && now.read[server] {
			now.fail(server, fmt.Errorf("MAAS at %s did not list its machines in time", server.Address()))
		}
	}
	for server, answers := range all {
		for _, a := range answers {
			if a.err != nil {
				now.fail(server, a.err)
				continue
			}
			values[a.region] = a.value
		}
	}
	return values
}

// regions returns the MAASes of all MaasClusters, each with every identity that is used there, and the MAAS of the
// manager's own credentials.
func (a *Auditor) regions(ctx context.Context) (map[*scope.Region]bool, []error) {
	list := &infrav1.MaasClusterList{}
	if err := a.Client.List(ctx, list, client.InNamespace(a.Namespace)); err != nil {
		return nil, []error{fmt.Errorf("listing MaasClusters: %w", err)}
	}
	regions, users := map[*scope.Region]bool{}, map[client.ObjectKey]bool{}
	var errs []error
	if own, err := a.Scopes.Own(); err == nil { // Otherwise the manager has no credentials.
		regions[own] = true
	}
	for i := range list.Items {
		c := &list.Items[i]
		if !objects.Watched(c, a.WatchFilter) || c.Annotations[infrav1.OwnerIDAnnotation] == "" {
			continue
		}
		users[client.ObjectKeyFromObject(c)] = true
		s, err := a.Scopes.Cluster(ctx, &clusterv1.Cluster{}, c)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		regions[s.Region] = true
	}
	// A cluster may have been deleted between the list and Scopes.Cluster; its MAAS would then be polled for ever.
	for gone := range a.users {
		if !users[gone] {
			c := &infrav1.MaasCluster{}
			c.Namespace, c.Name = gone.Namespace, gone.Name
			a.Scopes.Release(c)
		}
	}
	a.users = users
	return regions, errs
}

// ours drops the orphans of clusters that another manager reconciles, and of those that have their machines in another
// MAAS: this one may be a copy of it, or lie.
func (a *Auditor) ours(
	region *scope.Region, findings []orphans.Finding, clusters []infrav1.MaasCluster,
) []orphans.Finding {
	var list []orphans.Finding
	for _, f := range findings {
		f.Server = region.Server()
		if c := clusterOf(f, clusters); c == nil || (objects.Watched(c, a.WatchFilter) && mayBeIn(c, region)) {
			list = append(list, f)
		}
	}
	return list
}

// mayBeIn reports whether a cluster may have its machines in a MAAS.
func mayBeIn(c *infrav1.MaasCluster, region *scope.Region) bool {
	where, _, _ := strings.Cut(c.Annotations[infrav1.MAASAnnotation], "#")
	return where == "" || where == region.Where()
}

// clusterOf returns nil if the MaasCluster is gone.
func clusterOf(f orphans.Finding, clusters []infrav1.MaasCluster) *infrav1.MaasCluster {
	return list.Find(clusters, func(c infrav1.MaasCluster) bool {
		return f.OwnerID != "" && c.Annotations[infrav1.OwnerIDAnnotation] == f.OwnerID
	})
}

// report emits an event on the MaasCluster of the machine, or logs the orphan if there is none, or if that is not
// certain.
func (a *Auditor) report(ctx context.Context, f orphans.Finding, clusters []infrav1.MaasCluster) {
	m := f.Machine
	if c := clusterOf(f, clusters); c != nil && !m.Unreadable {
		a.Warn(c, orphanedReason, "Audit",
			"machine %s (%s, %s) is in MAAS, and nothing claims it; capmaasctl orphans shows the proof, and how "+
				"to remove it",
			m.Hostname, m.SystemID, m.StatusName)
		return
	}
	ctrl.LoggerFrom(ctx).Info("A machine in MAAS is ours, or may be, and nothing claims it", "name", m.Hostname,
		"systemID", m.SystemID, "state", m.StatusName, "proof", strings.Join(f.Proof, "; "), "doubt", f.Doubt)
}

// log logs why an audit was not complete, once for each reason.
func (a *Auditor) log(ctx context.Context, err error) {
	why := ""
	if err != nil {
		why = err.Error()
	}
	if why != "" && why != a.unread {
		ctrl.LoggerFrom(ctx).Info("Failed to read some machines in MAAS; their last results stay", "error", why)
	}
	a.unread = why
}

func (a *Auditor) count() {
	counts := map[[2]string]int{{"bare-metal", "no"}: 0, {"bare-metal", "yes"}: 0, {"lxd", "no"}: 0, {"lxd", "yes"}: 0}
	for _, f := range a.watchlist.Orphans() {
		kind, doubt := "bare-metal", "no"
		if f.VM() {
			kind = "lxd"
		}
		if f.Doubt != "" {
			doubt = "yes"
		}
		counts[[2]string{kind, doubt}]++
	}
	for labels, n := range counts {
		a.Orphans.WithLabelValues(labels[0], labels[1]).Set(float64(n))
	}
}
