// SPDX-License-Identifier: Apache-2.0

package maasmachinetemplate

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/plan"
	"github.com/capmaas/cluster-api-provider-maas/test/autoscaler"
)

// The autoscaler learns from the status of a template what a first node of it would be: which pods bring one.
func TestTheAutoscalerKnowsTheFirstNode(t *testing.T) {
	metal := &maas.Machine{Status: maas.StatusReady, CPUCount: 16, Memory: 65536, Architecture: "arm64/generic"}
	devices := func(each ...infrav1.LXDDevice) infrav1.MaasMachineSpec {
		return infrav1.MaasMachineSpec{DynamicLXD: true, LXDConfig: &infrav1.LXDMachineConfig{Devices: each}}
	}
	nvidia := infrav1.LXDDevice{Name: "gpu0", Type: "gpu", Properties: map[string]string{"vendorid": "10DE"}}
	amd := infrav1.LXDDevice{Name: "gpu1", Type: "gpu", Properties: map[string]string{"vendorid": "1002", "productid": "740f"}}
	type counts = map[string]infrav1.ResourceCount
	for name, tc := range map[string]struct {
		spec         infrav1.MaasMachineSpec
		extended     counts
		from         plan.Source
		annotations  map[string]string
		architecture string
		sizes        map[corev1.ResourceName]string
	}{
		"bare metal that is there": {
			infrav1.MaasMachineSpec{MinCPU: 4}, nil, plan.Source{Metal: []*maas.Machine{metal}}, nil, "arm64", map[corev1.ResourceName]string{"cpu": "16", "memory": "64Gi", "pods": "110"},
		},
		"bare metal that is not there yet": {
			infrav1.MaasMachineSpec{Architecture: "amd64", MinCPU: 4, MinMemory: 8192}, nil, plan.Source{}, nil, "amd64", map[corev1.ResourceName]string{"cpu": "4", "memory": "8Gi", "pods": "110"},
		},
		"a VM": {
			infrav1.MaasMachineSpec{DynamicLXD: true}, nil, plan.Source{Hosts: []lxd.Host{{Architecture: "amd64/generic"}}}, nil,
			"amd64", map[corev1.ResourceName]string{"cpu": "2", "memory": "4Gi", "ephemeral-storage": "20G", "pods": "110"},
		},
		"GPUs and more of bare metal that is not there yet": {
			infrav1.MaasMachineSpec{Architecture: "amd64", MinCPU: 4, MinMemory: 8192}, counts{"nvidia.com/gpu": 8, "rdma/hca": 1}, plan.Source{}, nil,
			"amd64", map[corev1.ResourceName]string{"cpu": "4", "memory": "8Gi", "pods": "110", "nvidia.com/gpu": "8", "rdma/hca": "1"},
		},
		"GPUs alone are no size": {
			infrav1.MaasMachineSpec{}, counts{"nvidia.com/gpu": 8}, plan.Source{}, nil, "", nil,
		},
		"the GPUs of a VM": {
			devices(nvidia, amd, infrav1.LXDDevice{Name: "gpu2", Type: "gpu", Properties: map[string]string{"pci": "0000:41:00.0"}}, infrav1.LXDDevice{Name: "tpm0", Type: "tpm"}),
			nil, plan.Source{}, nil, "",
			map[corev1.ResourceName]string{"cpu": "2", "memory": "4Gi", "ephemeral-storage": "20G", "pods": "110", "nvidia.com/gpu": "1", "amd.com/gpu": "1"},
		},
		"what the template says of them counts": {
			devices(nvidia, amd), counts{"nvidia.com/gpu": 4, "amd.com/gpu": 0}, plan.Source{}, nil, "",
			map[corev1.ResourceName]string{"cpu": "2", "memory": "4Gi", "ephemeral-storage": "20G", "pods": "110", "nvidia.com/gpu": "4"},
		},
		"a card of the vendor that is no GPU": {
			devices(infrav1.LXDDevice{Name: "nic0", Type: "pci", Properties: map[string]string{"vendorid": "10de"}}), nil, plan.Source{}, nil, "",
			map[corev1.ResourceName]string{"cpu": "2", "memory": "4Gi", "ephemeral-storage": "20G", "pods": "110"},
		},
		"no architecture: no pod that selects one brings a node": {
			infrav1.MaasMachineSpec{MinCPU: 4, MinMemory: 8192}, nil, plan.Source{}, nil, "", map[corev1.ResourceName]string{"cpu": "4", "memory": "8Gi", "pods": "110"},
		},
		"an architecture by the annotation, and GPUs": {
			infrav1.MaasMachineSpec{MinCPU: 4, MinMemory: 8192}, counts{"nvidia.com/gpu": 8}, plan.Source{}, map[string]string{
				"capacity.cluster-autoscaler.kubernetes.io/labels":    "kubernetes.io/arch=amd64",
				"capacity.cluster-autoscaler.kubernetes.io/gpu-count": "2",
				"capacity.cluster-autoscaler.kubernetes.io/gpu-type":  "nvidia.com/gpu",
			}, "amd64", map[corev1.ResourceName]string{"cpu": "4", "memory": "8Gi", "pods": "110", "nvidia.com/gpu": "2"},
		},
	} {
		t.Run(autoscaler.Version+": "+name, func(t *testing.T) {
			spec := tc.spec
			spec.ExtendedResources = tc.extended
			template := &infrav1.MaasMachineTemplate{Status: templateStatus("default", spec, tc.from)}
			sent, err := json.Marshal(template) // Both sides see no more than what Kubernetes stores.
			if err != nil {
				t.Fatal(err)
			}
			read, md := &unstructured.Unstructured{}, &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"replicas": int64(0)}}}
			if err := json.Unmarshal(sent, &read.Object); err != nil {
				t.Fatal(err)
			}
			md.SetName("md")
			md.SetAnnotations(map[string]string{autoscaler.MinSize: "0", autoscaler.MaxSize: "3"})
			for key, value := range tc.annotations {
				annotations := md.GetAnnotations()
				annotations[key] = value
				md.SetAnnotations(annotations)
			}
			groups, err := autoscaler.Groups([]*unstructured.Unstructured{md}, func(string) *unstructured.Unstructured { return read })
			group, ok := groups["md"]
			if err != nil || ok != (tc.sizes != nil) {
				t.Fatalf("it is a group: %t, %v", ok, err)
			}
			if !ok {
				return
			}
			if got := group.Labels[corev1.LabelArchStable]; got != tc.architecture {
				t.Errorf("the node is of the architecture %q, want %q", got, tc.architecture)
			}
			text := map[corev1.ResourceName]string{}
			for name, quantity := range group.Capacity {
				text[name] = quantity.String()
			}
			if diff := cmp.Diff(tc.sizes, text); diff != "" {
				t.Errorf("the node has another size (-want +got):\n%s", diff)
			}
		})
	}
}
