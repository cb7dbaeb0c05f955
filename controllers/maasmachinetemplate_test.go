// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/quarantine"
)

func TestTemplatesReportTheCapacityOfTheirMachines(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t)
	w.maas.ResetCalls()
	lists := func() int {
		n := 0
		for _, call := range w.maas.Calls().Log {
			if call.Method == http.MethodGet && call.Endpoint == "machines/" && call.Query == "" {
				n++
			}
		}
		return n
	}
	virtual := w.template("virtual", infrav1.MaasMachineSpec{DynamicLXD: true, MinCPU: 4})
	w.eventually(virtual, "described", func() bool { return virtual.Status.NodeInfo.Architecture == "amd64" })
	if got := virtual.Status.Capacity[corev1.ResourceCPU]; !got.Equal(resource.MustParse("4")) {
		t.Errorf("a VM has %s cores, want 4", got.String())
	}
	if n := lists(); n != 0 {
		t.Errorf("MAAS's machines were listed %d times for a VM, whose spec and hosts say all", n)
	}
	for _, name := range []string{"metal-1", "metal-2", "metal-3"} {
		metal := w.template(name, infrav1.MaasMachineSpec{MinCPU: 2})
		w.eventually(metal, "described", func() bool { return metal.Status.NodeInfo.Architecture != "" })
		want := corev1.ResourceList{
			"cpu": resource.MustParse("8"), "memory": resource.MustParse("16Gi"), "ephemeral-storage": resource.MustParse("100G"),
		}
		if diff := cmp.Diff(want, metal.Status.Capacity); diff != "" {
			t.Errorf("the capacity differs (-want +got):\n%s", diff)
		}
	}
	if n := lists(); n != 1 {
		t.Errorf("MAAS's machines were listed %d times for three templates, want once", n)
	}
}

func TestATemplateOfNoClusterReportsItsSpec(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	template := &infrav1.MaasMachineTemplate{}
	template.Name, template.Namespace = "of-a-class", w.namespace
	template.Spec.Template.Spec = infrav1.MaasMachineSpec{Image: "ubuntu/jammy", MinCPU: 6}
	w.create(template)
	w.eventually(template, "described", func() bool { return len(template.Status.Capacity) > 0 })
	if diff := cmp.Diff(corev1.ResourceList{"cpu": resource.MustParse("6")}, template.Status.Capacity); diff != "" {
		t.Errorf("the capacity differs (-want +got):\n%s", diff)
	}
}

// roomText is the room of a template in one line: what fits, and by zone.
func roomText(template *infrav1.MaasMachineTemplate) string {
	room := template.Status.Room
	if room == nil {
		return "unknown"
	}
	text := fmt.Sprint(room.Fits)
	for _, zone := range room.Zones {
		text += fmt.Sprintf(" %s:%d", zone.Name, zone.Fits)
	}
	return text
}

func (w *world) hasRoom(template *infrav1.MaasMachineTemplate, want string) {
	w.t.Helper()
	w.eventually(template, "with room for "+want, func() bool { return roomText(template) == want })
}

func TestTemplatesReportTheRoomForVMs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) { w.hostInterval = 100 * time.Millisecond })
	w.provisionedCluster(func(c *infrav1.MaasCluster) { c.Spec.FailureDomains = []string{"zone-a", "zone-b"} })
	half := infrav1.MaasMachineSpec{DynamicLXD: true, MinCPU: 4}
	controlPlane := w.controlPlane(half)
	w.hasRoom(controlPlane, "4 zone-a:2 zone-b:2")
	if !controlPlane.Status.Room.ControlPlane {
		t.Error("it is not known that the control plane uses the template")
	}
	workers := w.template("workers", half)
	w.hasRoom(workers, "6 zone-a:2 zone-b:2 zone-c:2")
	if workers.Status.Room.ControlPlane {
		t.Error("the control plane seems to use the workers' template")
	}
	pinned := half
	pinned.LXDConfig = &infrav1.LXDMachineConfig{VMHost: "lxd-b", AntiAffinity: infrav1.AntiAffinityRequired}
	alone := w.template("alone", pinned)
	w.hasRoom(alone, "1 zone-b:1")
	none := half
	none.LXDConfig = &infrav1.LXDMachineConfig{Profile: "fast"}
	w.hasRoom(w.template("none", none), "0")

	w.deployedMachine("worker", false, pinned)
	w.hasRoom(workers, "5 zone-a:2 zone-b:1 zone-c:2")
	w.hasRoom(alone, "0 zone-b:0")
	host := w.lxdHost(w.hostName("lxd-a"))
	w.change(host, func(spec *infrav1.LXDHostSpec) { spec.Unschedulable = true })
	w.hasRoom(controlPlane, "1 zone-b:1")
	w.hasRoom(workers, "3 zone-b:1 zone-c:2")
}

func TestTemplatesReportTheRoomForBareMetal(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) {
		w.region = strings.Replace(region, "machines:\n", "machines:\n  - {names: [metal-c, metal-d, metal-e], zone: zone-b, cores: 16, memory: 16384, disks: [100]}\n", 1)
	})
	w.provisionedCluster()
	w.deployedMachine("worker", false, infrav1.MaasMachineSpec{FailureDomain: "zone-a"})
	for _, m := range w.maas.Machines() {
		switch m.Hostname {
		case "metal-d":
			w.setState(m.SystemID, "broken")
		case "metal-e":
			w.maasCall(http.MethodPost, "tags/", url.Values{"name": {quarantine.Tag}})
			w.maasCall(http.MethodPost, "tags/"+quarantine.Tag+"/?op=update_nodes", url.Values{"add": {m.SystemID}})
		}
	}
	metal := w.template("metal", infrav1.MaasMachineSpec{MinCPU: 2})
	w.hasRoom(metal, "2 zone-a:0 zone-b:2")
	if diff := cmp.Diff(&infrav1.MachineCounts{Ready: 2, InUse: 1, Broken: 1, CoolingDown: 1}, metal.Status.Room.Machines); diff != "" {
		t.Errorf("the machines differ (-want +got):\n%s", diff)
	}
	w.hasRoom(w.template("large", infrav1.MaasMachineSpec{MinCPU: 16}), "1 zone-b:1")
	w.hasRoom(w.template("larger", infrav1.MaasMachineSpec{MinCPU: 17}), "0")
}
