// SPDX-License-Identifier: Apache-2.0

// Package objectmetrics counts MaasMachines and MaasClusters by their conditions, for Prometheus, and shows the room
// that LXDHosts and MaasMachineTemplates have in their status.
package objectmetrics

import (
	"context"
	"runtime"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/objects"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maascluster"
)

// collectTimeout bounds the wait for a cache that is not filled yet.
const collectTimeout = 5 * time.Second

var (
	machineLabels = []string{"cluster", "mode", "reason"}

	machinesMetric = prometheus.NewDesc("capmaas_machines", "MaasMachines by cluster (namespace/name), provisioning mode "+
		"(bare-metal, lxd) and by the reason of their condition Ready: Ready, Deleting, or what they wait for.",
		machineLabels, nil)
	machinesSinceMetric = prometheus.NewDesc("capmaas_machines_not_ready_since_timestamp_seconds",
		"Since when the MaasMachine that has not been ready, or is being deleted, for longest is so, by cluster, "+
			"provisioning mode and by the reason that it has now.", machineLabels, nil)
	clustersMetric = prometheus.NewDesc("capmaas_clusters", "MaasClusters by condition (Ready, DNSReady, "+
		"FailureDomainsReady and, for host clusters, LXDReady), by its status and by its reason.",
		[]string{"condition", "status", "reason"}, nil)
)

// Collector counts MaasMachines and MaasClusters by their conditions on each scrape, and reads the room of LXDHosts and
// MaasMachineTemplates.
type Collector struct {
	// Reader is the manager's cache.
	Reader client.Reader
	// Leading is closed when this manager leads. Before that it reports nothing: otherwise the objects would be counted
	// once for each manager.
	Leading <-chan struct{}
	Logger  logr.Logger
	// Namespace limits the metrics to one namespace; "" is all.
	Namespace string
	// WatchFilter limits it to objects whose label cluster.x-k8s.io/watch-filter has this value, if not empty.
	WatchFilter string
}

// Describe implements prometheus.Collector.
func (m *Collector) Describe(descriptions chan<- *prometheus.Desc) {
	for _, d := range append([]*prometheus.Desc{machinesMetric, machinesSinceMetric, clustersMetric}, roomMetrics...) {
		descriptions <- d
	}
}

// Collect implements prometheus.Collector. It leaves out objects that can't be read.
func (m *Collector) Collect(metrics chan<- prometheus.Metric) {
	select {
	case <-m.Leading:
	default:
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), collectTimeout)
	defer cancel()
	for _, collect := range []func(context.Context, chan<- prometheus.Metric) error{m.collectMachines, m.collectClusters,
		m.collectHosts, m.collectTemplates} {
		if err := collect(ctx, metrics); err != nil {
			m.Logger.Error(err, "Objects could not be counted for metrics")
		}
	}
}

// machineGroup identifies the machines of one series.
type machineGroup struct {
	cluster, mode, reason string
}

func (m *Collector) collectMachines(ctx context.Context, metrics chan<- prometheus.Metric) error {
	list := &infrav1.MaasMachineList{}
	if err := m.list(ctx, list); err != nil {
		return err
	}
	count, oldest := map[machineGroup]int{}, map[machineGroup]time.Time{}
	for i := range list.Items {
		machine := &list.Items[i]
		if !objects.Watched(machine, m.WatchFilter) {
			continue
		}
		group, since := groupOf(machine)
		count[group]++
		if before, found := oldest[group]; group.reason != infrav1.ReadyReason && (!found || since.Before(before)) {
			oldest[group] = since
		}
	}
	for group, n := range count {
		metrics <- prometheus.MustNewConstMetric(machinesMetric, prometheus.GaugeValue, float64(n), group.cluster, group.mode,
			group.reason)
	}
	for group, since := range oldest {
		metrics <- prometheus.MustNewConstMetric(machinesSinceMetric, prometheus.GaugeValue, float64(since.Unix()),
			group.cluster, group.mode, group.reason)
	}
	return nil
}

// groupOf returns the group of a machine, and since when it is not ready.
func groupOf(machine *infrav1.MaasMachine) (machineGroup, time.Time) {
	group := machineGroup{
		cluster: machine.Namespace + "/" + machine.Labels[clusterv1.ClusterNameLabel], mode: string(machine.Spec.Mode()),
		reason: infrav1.NotReadyReason,
	}
	since := machine.CreationTimestamp.Time
	if ready := conditions.Get(machine, infrav1.ReadyCondition); ready != nil {
		group.reason, since = ready.Reason, ready.LastTransitionTime.Time
	}
	if !machine.DeletionTimestamp.IsZero() {
		group.reason, since = infrav1.DeletingReason, machine.DeletionTimestamp.Time
	}
	return group, since
}

func (m *Collector) collectClusters(ctx context.Context, metrics chan<- prometheus.Metric) error {
	list := &infrav1.MaasClusterList{}
	if err := m.list(ctx, list); err != nil {
		return err
	}
	type group struct {
		condition, reason string
		status            metav1.ConditionStatus
	}
	count := map[group]int{}
	for i := range list.Items {
		if !objects.Watched(&list.Items[i], m.WatchFilter) {
			continue
		}
		for _, condition := range append([]string{infrav1.ReadyCondition}, maascluster.Conditions...) {
			if c := conditions.Get(&list.Items[i], condition); c != nil {
				count[group{condition, c.Reason, c.Status}]++
			}
		}
	}
	for g, n := range count {
		metrics <- prometheus.MustNewConstMetric(clustersMetric, prometheus.GaugeValue, float64(n), g.condition,
			string(g.status), g.reason)
	}
	return nil
}

// list reads without copies: nothing is changed.
func (m *Collector) list(ctx context.Context, list client.ObjectList) error {
	return m.Reader.List(ctx, list, client.InNamespace(m.Namespace), client.UnsafeDisableDeepCopy)
}

// NewBuildInfo is 1, and says which manager this is: by it, queries find the metrics of libraries that are this
// manager's.
func NewBuildInfo(version string) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "capmaas_build_info", Help: "1, by the version of the manager, and of Go.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
	}, func() float64 { return 1 })
}
