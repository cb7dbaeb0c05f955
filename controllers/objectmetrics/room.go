// SPDX-License-Identifier: Apache-2.0

package objectmetrics

import (
	"context"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/objects"
)

const (
	mebibyte = 1 << 20       // the unit of LXDHosts for memory
	gigabyte = 1_000_000_000 // the unit of LXDHosts for disks

	roleControlPlane, roleWorker = "control-plane", "worker"
)

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

func (m *Collector) collectHosts(ctx context.Context, metrics chan<- prometheus.Metric) error {
	list := &infrav1.LXDHostList{}
	if err := m.list(ctx, list); err != nil {
		return err
	}
	for i := range list.Items {
		host := &list.Items[i]
		if !objects.Watched(host, m.WatchFilter) {
			continue
		}
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
			for resource, value := range map[string]int64{"cores": figures.Cores, "memory_bytes": figures.Memory * mebibyte,
				"disk_bytes": figures.Disk * gigabyte} {
				metrics <- prometheus.MustNewConstMetric(metric, prometheus.GaugeValue, float64(value),
					append(labels[:len(labels):len(labels)], resource)...)
			}
		}
	}
	return nil
}

func (m *Collector) collectTemplates(ctx context.Context, metrics chan<- prometheus.Metric) error {
	list := &infrav1.MaasMachineTemplateList{}
	if err := m.list(ctx, list); err != nil {
		return err
	}
	for i := range list.Items {
		template := &list.Items[i]
		room := template.Status.Room
		if room == nil || !objects.Watched(template, m.WatchFilter) {
			continue
		}
		role := roleWorker
		if room.ControlPlane {
			role = roleControlPlane
		}
		labels := []string{template.Namespace + "/" + template.Name, clusterOf(template),
			string(template.Spec.Template.Spec.Mode()), role}
		metrics <- prometheus.MustNewConstMetric(templateFitsMetric, prometheus.GaugeValue, float64(room.Fits), labels...)
		for _, zone := range room.Zones {
			metrics <- prometheus.MustNewConstMetric(templateZoneFitsMetric, prometheus.GaugeValue, float64(zone.Fits),
				append(labels[:len(labels):len(labels)], zone.Name)...)
		}
	}
	return nil
}

// clusterOf returns the Cluster that a template belongs to.
func clusterOf(template *infrav1.MaasMachineTemplate) string {
	if name := clusters.OwnerName(template, "Cluster"); name != "" {
		return template.Namespace + "/" + name
	}
	return ""
}
