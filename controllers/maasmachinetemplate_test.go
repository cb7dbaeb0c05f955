// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

func TestTemplatesReportTheCapacityOfTheirMachines(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.provisioned(w.newCluster())
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
