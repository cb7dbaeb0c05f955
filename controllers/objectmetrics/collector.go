// SPDX-License-Identifier: Apache-2.0

// Package objectmetrics counts MaasMachines and MaasClusters by their conditions, for Prometheus, and shows the room
// that LXDHosts and MaasMachineTemplates have in their status.
package objectmetrics

import (
	"context"
	goruntime "runtime"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
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

const roleControlPlane, roleWorker = "control-plane", "worker"

// Objects are named namespace/name: a label named namespace would be taken for that of the manager's pod.
var (
	hostLabels     = []string{"host", "zone", "pool", "schedulable", "resource"}
	templateLabels = []string{"template", "cluster", "mode", "role"}

	hostCapacityMetric = prometheus.NewDesc("capmaas_lxd_host_capacity", "What an LXDHost may promise to VMs, with "+
		"over-commit, by resource (cores, memory_bytes, disk_bytes).", hostLabels, nil)
	hostAllocatedMetric = prometheus.NewDesc("capmaas_lxd_host_allocated",
		"What VMs on an LXDHost have been promised, by resource (cores, memory_bytes, disk_bytes).", hostLabels, nil)
	hostFreeMetric = prometheus.NewDesc("capmaas_lxd_host_free",
		"What an LXDHost can still promise to VMs, by resource (cores, memory_bytes, disk_bytes).", hostLabels, nil)
	templateFitsMetric = prometheus.NewDesc("capmaas_template_fits", "How many more machines of a MaasMachineTemplate "+
		"could be made now, at most 1000, by role: control-plane where the control plane of the cluster uses the template.",
		templateLabels, nil)
	templateZoneFitsMetric = prometheus.NewDesc("capmaas_template_zone_fits",
		"How many more machines of a MaasMachineTemplate a zone of MAAS could take now, at most 1000.",
		append(templateLabels[:len(templateLabels):len(templateLabels)], "zone"), nil)

	roomMetrics = []*prometheus.Desc{hostCapacityMetric, hostAllocatedMetric, hostFreeMetric, templateFitsMetric,
		templateZoneFitsMetric}
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
	count, oldest := map[machineGroup]int{}, map[machineGroup]time.Time{}
	err := m.each(ctx, &infrav1.MaasMachineList{}, func(object client.Object) {
		group, since := groupOf(object.(*infrav1.MaasMachine))
		count[group]++
		if before, found := oldest[group]; group.reason != infrav1.ReadyReason && (!found || since.Before(before)) {
			oldest[group] = since
		}
	})
	for group, n := range count {
		metrics <- prometheus.MustNewConstMetric(machinesMetric, prometheus.GaugeValue, float64(n), group.cluster, group.mode,
			group.reason)
	}
	for group, since := range oldest {
		metrics <- prometheus.MustNewConstMetric(machinesSinceMetric, prometheus.GaugeValue, float64(since.Unix()),
			group.cluster, group.mode, group.reason)
	}
	return err
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
	type group struct {
		condition, reason string
		status            metav1.ConditionStatus
	}
	count := map[group]int{}
	err := m.each(ctx, &infrav1.MaasClusterList{}, func(object client.Object) {
		for _, condition := range append([]string{infrav1.ReadyCondition}, maascluster.Conditions...) {
			if c := conditions.Get(object.(*infrav1.MaasCluster), condition); c != nil {
				count[group{condition, c.Reason, c.Status}]++
			}
		}
	})
	for g, n := range count {
		metrics <- prometheus.MustNewConstMetric(clustersMetric, prometheus.GaugeValue, float64(n), g.condition,
			string(g.status), g.reason)
	}
	return err
}

func (m *Collector) collectHosts(ctx context.Context, metrics chan<- prometheus.Metric) error {
	return m.each(ctx, &infrav1.LXDHostList{}, func(object client.Object) {
		host := object.(*infrav1.LXDHost)
		labels := []string{
			host.Namespace + "/" + host.Name, host.Spec.Zone, host.Spec.ResourcePool,
			strconv.FormatBool(conditions.IsTrue(host, infrav1.SchedulableCondition)),
		}
		for metric, figures := range map[*prometheus.Desc]*infrav1.LXDResources{
			hostCapacityMetric: host.Status.Capacity, hostAllocatedMetric: host.Status.Allocated,
			hostFreeMetric: host.Status.Free,
		} {
			if figures == nil {
				continue
			}
			for resource, value := range map[string]int64{"cores": figures.Cores, "memory_bytes": figures.Memory << 20,
				"disk_bytes": figures.Disk * 1_000_000_000} {
				metrics <- prometheus.MustNewConstMetric(metric, prometheus.GaugeValue, float64(value),
					append(labels[:len(labels):len(labels)], resource)...)
			}
		}
	})
}

func (m *Collector) collectTemplates(ctx context.Context, metrics chan<- prometheus.Metric) error {
	return m.each(ctx, &infrav1.MaasMachineTemplateList{}, func(object client.Object) {
		template := object.(*infrav1.MaasMachineTemplate)
		room := template.Status.Room
		if room == nil {
			return
		}
		role := roleWorker
		if room.ControlPlane {
			role = roleControlPlane
		}
		cluster := clusters.OwnerName(template, "Cluster")
		if cluster != "" {
			cluster = template.Namespace + "/" + cluster
		}
		labels := []string{template.Namespace + "/" + template.Name, cluster,
			string(template.Spec.Template.Spec.Mode()), role}
		metrics <- prometheus.MustNewConstMetric(templateFitsMetric, prometheus.GaugeValue, float64(room.Fits), labels...)
		for _, zone := range room.Zones {
			metrics <- prometheus.MustNewConstMetric(templateZoneFitsMetric, prometheus.GaugeValue, float64(zone.Fits),
				append(labels[:len(labels):len(labels)], zone.Name)...)
		}
	})
}

// each calls a function for each object of a list that is counted. It reads without copies: nothing is changed.
func (m *Collector) each(ctx context.Context, list client.ObjectList, do func(client.Object)) error {
	if err := m.Reader.List(ctx, list, client.InNamespace(m.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	return meta.EachListItem(list, func(item runtime.Object) error {
		if object := item.(client.Object); objects.Watched(object, m.WatchFilter) {
			do(object)
		}
		return nil
	})
}

// NewBuildInfo is 1, and says which manager this is: by it, queries find the metrics of libraries that are this
// manager's.
func NewBuildInfo(version string) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "capmaas_build_info", Help: "1, by the version of the manager, and of Go.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": goruntime.Version()},
	}, func() float64 { return 1 })
}
