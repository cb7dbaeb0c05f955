// SPDX-License-Identifier: Apache-2.0

package objectmetrics

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/allkinds"
)

// second is a time in the past, n seconds after some point.
func second(n int64) metav1.Time { return metav1.Unix(1_700_000_000+n, 0) }

func condition(kind, reason string, since int64) metav1.Condition {
	status := metav1.ConditionFalse
	if reason == infrav1.ReadyReason {
		status = metav1.ConditionTrue
	}
	return metav1.Condition{Type: kind, Status: status, Reason: reason, LastTransitionTime: second(since)}
}

func metricsOf(t *testing.T, leading bool, filter string, objects ...client.Object) []string {
	t.Helper()
	leads := make(chan struct{})
	if leading {
		close(leads)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(&Collector{
		Reader: fake.NewClientBuilder().WithScheme(allkinds.Scheme()).WithObjects(objects...).Build(), Leading: leads, Logger: logr.Discard(), WatchFilter: filter,
	})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, label := range metric.GetLabel() {
				labels = append(labels, label.GetName()+"="+label.GetValue())
			}
			value := metric.GetGauge().GetValue()
			if strings.Contains(family.GetName(), "timestamp") {
				value -= float64(second(0).Unix())
			}
			lines = append(lines, fmt.Sprintf("%s{%s} %.0f", family.GetName(), strings.Join(labels, ","), value))
		}
	}
	slices.Sort(lines)
	return lines
}

func machineWith(name string, mode infrav1.ProvisioningMode, conditions ...metav1.Condition) *infrav1.MaasMachine {
	return &infrav1.MaasMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, CreationTimestamp: second(5)},
		Spec:       infrav1.MaasMachineSpec{ProvisioningMode: mode},
		Status:     infrav1.MaasMachineStatus{Conditions: conditions},
	}
}

// of gives a machine its cluster.
func of(cluster string, m *infrav1.MaasMachine) *infrav1.MaasMachine {
	m.Labels = map[string]string{clusterv1.ClusterNameLabel: cluster}
	return m
}

func TestMachinesAreCountedByReason(t *testing.T) {
	const lxd, metal = infrav1.ProvisioningModeLXD, infrav1.ProvisioningModeBareMetal
	ready := func(reason string, since int64) metav1.Condition {
		return condition(infrav1.ReadyCondition, reason, since)
	}
	deleted := func(name string, at int64, conditions ...metav1.Condition) *infrav1.MaasMachine {
		m := machineWith(name, metal, conditions...)
		gone := second(at)
		m.DeletionTimestamp, m.Finalizers = &gone, []string{infrav1.MachineFinalizer}
		return m
	}
	got := metricsOf(t, true, "",
		machineWith("a", lxd, ready(infrav1.ReadyReason, 1)),
		of("c1", machineWith("j", lxd, ready(infrav1.ReadyReason, 1))),
		machineWith("b", lxd, ready(infrav1.ReadyReason, 2)),
		machineWith("c", lxd, ready(infrav1.NoHostAvailableReason, 400)),
		machineWith("d", lxd, ready(infrav1.NoHostAvailableReason, 300)),
		machineWith("e", lxd, ready(infrav1.NoHostAvailableReason, 350)),
		machineWith("f", metal, ready(infrav1.DeployingReason, 70)),
		machineWith("g", metal),
		deleted("h", 600, ready(infrav1.DeployFailedReason, 8)),
		deleted("i", 700, ready(infrav1.DeletingReason, 9)),
	)
	want := []string{
		"capmaas_machines_not_ready_since_timestamp_seconds{cluster=default/,mode=bare-metal,reason=Deleting} 600",
		"capmaas_machines_not_ready_since_timestamp_seconds{cluster=default/,mode=bare-metal,reason=Deploying} 70",
		"capmaas_machines_not_ready_since_timestamp_seconds{cluster=default/,mode=bare-metal,reason=NotReady} 5",
		"capmaas_machines_not_ready_since_timestamp_seconds{cluster=default/,mode=lxd,reason=NoHostAvailable} 300",
		"capmaas_machines{cluster=default/,mode=bare-metal,reason=Deleting} 2",
		"capmaas_machines{cluster=default/,mode=bare-metal,reason=Deploying} 1",
		"capmaas_machines{cluster=default/,mode=bare-metal,reason=NotReady} 1",
		"capmaas_machines{cluster=default/,mode=lxd,reason=NoHostAvailable} 3",
		"capmaas_machines{cluster=default/,mode=lxd,reason=Ready} 2",
		"capmaas_machines{cluster=default/c1,mode=lxd,reason=Ready} 1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}

func TestClustersAreCountedByTheirConditions(t *testing.T) {
	cluster := func(name string, conditions ...metav1.Condition) *infrav1.MaasCluster {
		return &infrav1.MaasCluster{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Status: infrav1.MaasClusterStatus{Conditions: conditions},
		}
	}
	got := metricsOf(t, true, "",
		cluster("a", condition(infrav1.ReadyCondition, infrav1.ReadyReason, 0), condition(infrav1.DNSReadyCondition, infrav1.ReadyReason, 0)),
		cluster("b", condition(infrav1.ReadyCondition, infrav1.HostsNotReadyReason, 0), condition(infrav1.LXDReadyCondition, infrav1.HostsNotReadyReason, 0)),
		cluster("c", condition(infrav1.LXDReadyCondition, infrav1.HostsNotReadyReason, 0), condition("Paused", "NotPaused", 0)),
		cluster("d"),
	)
	want := []string{
		"capmaas_clusters{condition=DNSReady,reason=Ready,status=True} 1",
		"capmaas_clusters{condition=LXDReady,reason=HostsNotReady,status=False} 2",
		"capmaas_clusters{condition=Ready,reason=HostsNotReady,status=False} 1",
		"capmaas_clusters{condition=Ready,reason=Ready,status=True} 1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}

func TestOnlyTheLeaderCountsAndOnlyItsObjects(t *testing.T) {
	mine := machineWith("mine", infrav1.ProvisioningModeLXD)
	mine.Labels = map[string]string{clusterv1.WatchLabel: "blue"}
	other := machineWith("other", infrav1.ProvisioningModeBareMetal)
	if got := metricsOf(t, false, "", mine, other); len(got) != 0 {
		t.Errorf("a manager that does not lead reports %v", got)
	}
	want := []string{
		"capmaas_machines_not_ready_since_timestamp_seconds{cluster=default/,mode=lxd,reason=NotReady} 5",
		"capmaas_machines{cluster=default/,mode=lxd,reason=NotReady} 1",
	}
	if diff := cmp.Diff(want, metricsOf(t, true, "blue", mine, other)); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}

func TestTheRoomOfHostsAndTemplatesIsShown(t *testing.T) {
	host := &infrav1.LXDHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "lxd-a"}, Spec: infrav1.LXDHostSpec{Zone: "a", ResourcePool: "default"},
		Status: infrav1.LXDHostStatus{
			Capacity: &infrav1.LXDResources{Cores: 8, Memory: 2, Disk: 3}, Free: &infrav1.LXDResources{Cores: 5},
			Conditions: []metav1.Condition{{Type: infrav1.SchedulableCondition, Status: metav1.ConditionTrue, Reason: infrav1.ReadyReason}},
		},
	}
	template := &infrav1.MaasMachineTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cp", OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: "c", UID: "1"}}},
		Status:     infrav1.MaasMachineTemplateStatus{Room: &infrav1.TemplateRoom{Fits: 7, ControlPlane: true, Zones: []infrav1.ZoneRoom{{Name: "a", Fits: 7}, {Name: "b"}}}},
	}
	template.Spec.Template.Spec.ProvisioningMode = infrav1.ProvisioningModeLXD
	unknown := &infrav1.MaasMachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "of-a-class"}}
	of := "host=system/lxd-a,pool=default,resource=%s,schedulable=true,zone=a"
	want := []string{
		"capmaas_lxd_host_capacity{" + fmt.Sprintf(of, "cores") + "} 8",
		"capmaas_lxd_host_capacity{" + fmt.Sprintf(of, "disk_bytes") + "} 3000000000",
		"capmaas_lxd_host_capacity{" + fmt.Sprintf(of, "memory_bytes") + "} 2097152",
		"capmaas_lxd_host_free{" + fmt.Sprintf(of, "cores") + "} 5",
		"capmaas_lxd_host_free{" + fmt.Sprintf(of, "disk_bytes") + "} 0",
		"capmaas_lxd_host_free{" + fmt.Sprintf(of, "memory_bytes") + "} 0",
		"capmaas_template_fits{cluster=default/c,mode=lxd,role=control-plane,template=default/cp} 7",
		"capmaas_template_zone_fits{cluster=default/c,mode=lxd,role=control-plane,template=default/cp,zone=a} 7",
		"capmaas_template_zone_fits{cluster=default/c,mode=lxd,role=control-plane,template=default/cp,zone=b} 0",
	}
	if diff := cmp.Diff(want, metricsOf(t, true, "", host, template, unknown)); diff != "" {
		t.Errorf("the metrics differ (-want +got):\n%s", diff)
	}
}
