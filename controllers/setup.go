// SPDX-License-Identifier: Apache-2.0

// Package controllers runs the reconcilers in a manager. Each has a package of its own below; package internal has the
// code that several of them need.
package controllers

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/capmaas/cluster-api-provider-maas/controllers/credentialssecret"
	"github.com/capmaas/cluster-api-provider-maas/controllers/evacuation"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/disruption"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/controllers/keep"
	"github.com/capmaas/cluster-api-provider-maas/controllers/lxdhost"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maascluster"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/life"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachinetemplate"
	"github.com/capmaas/cluster-api-provider-maas/controllers/orphanaudit"
	"github.com/capmaas/cluster-api-provider-maas/controllers/quarantine"
	"github.com/capmaas/cluster-api-provider-maas/controllers/remediation"
	"github.com/capmaas/cluster-api-provider-maas/internal/presence"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

const (
	// DefaultLXDHostInterval is Options.LXDHostInterval where that is 0.
	DefaultLXDHostInterval = 30 * time.Second
	// changesBuffer holds changes of machines until the work queue takes them.
	changesBuffer = 1024
)

// Options are the operator's choices, and facts about where the manager runs.
type Options struct {
	// Namespace limits the reconcilers to one namespace; "" is all.
	Namespace string
	// ManagerNamespace has the LXDHosts that are made for MAAS's VM hosts, where they are no MaasMachine's; with
	// Namespace it is that one. "": these get none.
	ManagerNamespace string
	// WatchFilter limits the reconcilers to objects whose label cluster.x-k8s.io/watch-filter has this value, if not
	// empty.
	WatchFilter string
	// Concurrency is how many objects of a kind are reconciled at the same time, not counting those that wait for MAAS.
	Concurrency int

	// Credentials are the manager's own, for MaasClusters without spec.credentialsRef.
	Credentials scope.ManagerCredentials
	// ManagementID identifies this management cluster; "" if it is not known. See orphanaudit.ManagementID.
	ManagementID string
	// ClusterCache connects to workload clusters.
	ClusterCache clustercache.ClusterCache
	// Clock measures the reconcilers' deadlines.
	Clock clock.PassiveClock

	// PollActive is the interval of polls for machines that are changing, PollIdle that of polls for all machines.
	PollActive, PollIdle time.Duration
	// SettleTime is how long to wait for the effect of a MAAS call whose response was lost; PowerSettleTime, for that of
	// one that switches power, at least.
	SettleTime, PowerSettleTime time.Duration
	// CommissionTimeout and DeployTimeout are the times after which a condition reports that MAAS takes too long; 0 is
	// never.
	CommissionTimeout, DeployTimeout time.Duration
	// VMHostUnreachableTimeout is how long the deletion of a VM waits for its VM host.
	VMHostUnreachableTimeout time.Duration
	// OrphanAuditInterval is the time between two audits of orphans; 0 is never.
	OrphanAuditInterval time.Duration
	// Quarantined is set to the number of machines in quarantine.
	Quarantined prometheus.Gauge
	// Evacuation is whether the manager may replace the Machines of VMs on hosts that are to be emptied.
	Evacuation bool
	// LXDHostInterval is the time between two readings of an LXD host, and of MAAS's list of VM hosts.
	LXDHostInterval time.Duration
	// Initializer configures the LXD initializer of host clusters.
	Initializer maascluster.Initializer
}

// parts are what runs in a manager.
type parts struct {
	scopes *scope.Factory
	// runnables run by themselves, reconcilers when an object changes.
	runnables   []manager.Runnable
	reconcilers []interface {
		SetupWithManager(context.Context, ctrl.Manager, controller.Options) error
	}
}

// Serves reports whether a Cluster has a MaasCluster: its infrastructure, or one that names it.
func Serves(ctx context.Context, c client.Reader, cluster *clusterv1.Cluster) bool {
	_, is := clusters.MaasClusterKey(cluster)
	return is || len(clusters.Requests(ctx, c, cluster)) > 0
}

// Setup adds all reconcilers to the manager. It returns the inventories and scopes that they share.
func Setup(ctx context.Context, mgr ctrl.Manager, o Options) (*scope.Factory, error) {
	all := assemble(ctx, mgr, o)
	return all.scopes, all.addTo(ctx, mgr, o.Concurrency)
}

// addTo adds the parts to a manager.
func (p *parts) addTo(ctx context.Context, mgr ctrl.Manager, concurrency int) error {
	for _, r := range p.runnables {
		if err := mgr.Add(r); err != nil {
			return fmt.Errorf("adding %T: %w", r, err)
		}
	}
	for _, r := range p.reconcilers {
		if err := r.SetupWithManager(ctx, mgr, controller.Options{MaxConcurrentReconciles: concurrency}); err != nil {
			return fmt.Errorf("setting up %T: %w", r, err)
		}
	}
	return nil
}

// assemble makes the parts.
func assemble(ctx context.Context, mgr ctrl.Manager, o Options) *parts {
	changes := make(chan event.TypedGenericEvent[string], changesBuffer)
	registry := inventory.NewRegistry(inventory.Options{
		ActiveInterval: o.PollActive,
		IdleInterval:   o.PollIdle,
		Notify: func(systemID string) {
			select {
			case changes <- event.TypedGenericEvent[string]{Object: systemID}:
			case <-ctx.Done():
			}
		},
		Logger: mgr.GetLogger().WithName("inventory"),
	})
	records := &record.Records{Client: mgr.GetClient(), SettleTime: o.SettleTime, PowerSettleTime: o.PowerSettleTime}
	own := o.Credentials
	if own.Namespaces != nil { // Those of the LXDHosts of VM hosts.
		own.Namespaces = append(slices.Clone(own.Namespaces), o.ManagerNamespace)
	}
	scopes := &scope.Factory{Client: mgr.GetClient(), Watched: mgr.GetCache(), Registry: registry, Manager: own,
		ManagementID: o.ManagementID, WatchFilter: o.WatchFilter}
	reader := presence.NewReader(mgr.GetAPIReader(), o.SettleTime)
	base := func(name string) reconciler.Base {
		return reconciler.Base{
			Client: mgr.GetClient(), APIReader: reader, Scopes: scopes, Records: records,
			Recorder: reconciler.NewRecorder(mgr.GetEventRecorder(name), mgr.GetScheme()),
			Clock:    o.Clock, WatchFilter: o.WatchFilter,
		}
	}
	o.LXDHostInterval = cmp.Or(max(o.LXDHostInterval, 0), DefaultLXDHostInterval)
	mirror := &lxdhost.Mirror{
		Base: base("lxdhost-mirror"), Interval: o.LXDHostInterval, Namespace: cmp.Or(o.Namespace, o.ManagerNamespace),
	}
	machines := &maasmachine.Reconciler{
		Steps: life.Steps{Base: base("maasmachine-controller"), ClusterCache: o.ClusterCache,
			CommissionTimeout: o.CommissionTimeout, DeployTimeout: o.DeployTimeout},
		Changes: changes, HostUnreachableTimeout: o.VMHostUnreachableTimeout,
	}
	locks := &disruption.Locks{}
	all := &parts{scopes: scopes}
	all.runnables = []manager.Runnable{
		manager.RunnableFunc(registry.Start), mirror,
		&quarantine.Keeper{Scopes: scopes, Interval: quarantine.Interval, Quarantined: o.Quarantined},
	}
	if o.OrphanAuditInterval > 0 {
		all.runnables = append(all.runnables, newOrphanAuditor(base("orphan-auditor"), o))
	}
	all.reconcilers = append(all.reconcilers,
		&maascluster.Reconciler{
			Base: base("maascluster-controller"), ClusterCache: o.ClusterCache, Initializer: o.Initializer,
		},
		&credentialssecret.Reconciler{Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Namespace: o.Namespace},
		&maasmachinetemplate.Reconciler{
			Base: base("maasmachinetemplate-controller"), Delay: maasmachinetemplate.DefaultDelay,
		},
		&lxdhost.Reconciler{Base: base("lxdhost-controller"), Mirror: mirror, Interval: o.LXDHostInterval},
		&keep.Reconciler{Base: base("keep-controller"), GiveBack: machines.GiveBack, Interval: keep.Interval},
		&evacuation.Reconciler{
			Base: base("evacuation-controller"), Enabled: o.Evacuation, Locks: locks, Interval: evacuation.Interval,
		},
		&remediation.Reconciler{Base: base("maasremediation-controller"), Locks: locks, Interval: remediation.Interval},
		machines,
	)
	return all
}

// newOrphanAuditor returns the audit of orphans, and registers its metric.
func newOrphanAuditor(base reconciler.Base, o Options) *orphanaudit.Auditor {
	metric := orphanaudit.NewMetric()
	metrics.Registry.MustRegister(metric)
	return &orphanaudit.Auditor{
		Base: base, ManagementID: o.ManagementID, Orphans: metric, Interval: o.OrphanAuditInterval,
		SettleTime: o.SettleTime, Namespace: o.Namespace,
	}
}
