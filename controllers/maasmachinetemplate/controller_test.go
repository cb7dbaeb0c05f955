// SPDX-License-Identifier: Apache-2.0

package maasmachinetemplate

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/plan"
)

// sizes is a capacity in text form.
func sizes(of infrav1.MaasMachineTemplateStatus) map[corev1.ResourceName]string {
	text := map[corev1.ResourceName]string{}
	for name, quantity := range of.Capacity {
		text[name] = quantity.String()
	}
	return text
}

func TestTemplateStatus(t *testing.T) {
	metal := func(change ...func(*maas.Machine)) *maas.Machine {
		m := &maas.Machine{
			Status: maas.StatusReady, CPUCount: 16, Memory: 65536, BootDisk: &maas.Disk{Size: 480_000_000_000}, Architecture: "amd64/generic",
		}
		for _, c := range change {
			c(m)
		}
		return m
	}
	small := metal(func(m *maas.Machine) { m.CPUCount, m.BootDisk.Size = 8, 960_000_000_000 })
	arm := metal(func(m *maas.Machine) { m.Architecture = "arm64/generic" })
	host := func(zone, architecture string) lxd.Host {
		return lxd.Host{Name: zone, Zone: zone, Architecture: architecture}
	}
	type sizesOf = map[corev1.ResourceName]string
	for name, tc := range map[string]struct {
		spec         infrav1.MaasMachineSpec
		machines     []*maas.Machine
		want         sizesOf
		architecture infrav1.Architecture
	}{
		"a VM has the size in its spec": {
			infrav1.MaasMachineSpec{DynamicLXD: true, MinCPU: 4, MinMemory: 8192, MinDiskSize: 40}, nil,
			sizesOf{"cpu": "4", "memory": "8Gi", "ephemeral-storage": "40G"}, "",
		},
		"a VM has the default sizes": {
			infrav1.MaasMachineSpec{ProvisioningMode: infrav1.ProvisioningModeLXD}, []*maas.Machine{metal()},
			sizesOf{"cpu": "2", "memory": "4Gi", "ephemeral-storage": "20G"}, "",
		},
		"a VM has the architecture of its hosts": {
			infrav1.MaasMachineSpec{DynamicLXD: true, FailureDomain: "b"}, nil, sizesOf{"cpu": "2", "memory": "4Gi", "ephemeral-storage": "20G"}, "arm64",
		},
		"a host that MAAS never reached": {
			infrav1.MaasMachineSpec{DynamicLXD: true, FailureDomain: "c"}, nil, sizesOf{"cpu": "2", "memory": "4Gi", "ephemeral-storage": "20G"}, "",
		},
		"bare metal has at least the size in its spec": {
			infrav1.MaasMachineSpec{MinCPU: 4, MinMemory: 8192}, nil, sizesOf{"cpu": "4", "memory": "8Gi"}, "",
		},
		"bare metal that is not there yet has the architecture of its spec": {
			infrav1.MaasMachineSpec{Architecture: "arm64/generic", MinCPU: 4, MinMemory: 8192}, nil, sizesOf{"cpu": "4", "memory": "8Gi"}, "arm64",
		},
		"the architecture of the spec, with Kubernetes' name": {infrav1.MaasMachineSpec{Architecture: "ppc64el"}, nil, sizesOf{}, "ppc64le"},
		"the architecture of the spec, and machines of others": {
			infrav1.MaasMachineSpec{Architecture: "amd64"}, []*maas.Machine{arm}, sizesOf{}, "amd64",
		},
		"an architecture of the spec without a name in Cluster API": {infrav1.MaasMachineSpec{Architecture: "armhf"}, nil, sizesOf{}, ""},
		"nothing is known": {infrav1.MaasMachineSpec{}, nil, sizesOf{}, ""},
		"the smallest of each size": {
			infrav1.MaasMachineSpec{MinCPU: 4}, []*maas.Machine{metal(), small}, sizesOf{"cpu": "8", "memory": "64Gi", "ephemeral-storage": "480G"}, "amd64",
		},
		"of those that fit": {
			infrav1.MaasMachineSpec{MinCPU: 9}, []*maas.Machine{small, metal()}, sizesOf{"cpu": "16", "memory": "64Gi", "ephemeral-storage": "480G"}, "amd64",
		},
		"none fits": {
			infrav1.MaasMachineSpec{MinCPU: 64}, []*maas.Machine{metal()}, sizesOf{"cpu": "64"}, "",
		},
		"several architectures are none": {
			infrav1.MaasMachineSpec{}, []*maas.Machine{metal(), arm}, sizesOf{"cpu": "16", "memory": "64Gi", "ephemeral-storage": "480G"}, "",
		},
		"another architecture": {
			infrav1.MaasMachineSpec{}, []*maas.Machine{arm}, sizesOf{"cpu": "16", "memory": "64Gi", "ephemeral-storage": "480G"}, "arm64",
		},
		"Kubernetes' name of it": {
			infrav1.MaasMachineSpec{}, []*maas.Machine{metal(func(m *maas.Machine) { m.Architecture = "ppc64el/generic" })},
			sizesOf{"cpu": "16", "memory": "64Gi", "ephemeral-storage": "480G"}, "ppc64le",
		},
		"an architecture without a name in Cluster API": {
			infrav1.MaasMachineSpec{}, []*maas.Machine{metal(func(m *maas.Machine) { m.Architecture = "armhf/generic" })},
			sizesOf{"cpu": "16", "memory": "64Gi", "ephemeral-storage": "480G"}, "",
		},
		"in memory there is no disk": {
			infrav1.MaasMachineSpec{DeployInMemory: true}, []*maas.Machine{metal()}, sizesOf{"cpu": "16", "memory": "64Gi"}, "amd64",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := machineStatus("default", tc.spec, plan.Source{Metal: tc.machines, Hosts: []lxd.Host{host("a", "amd64/generic"), host("b", "arm64/generic"), host("c", "")}})
			if diff := cmp.Diff(tc.want, sizes(got)); diff != "" {
				t.Errorf("the capacity differs (-want +got):\n%s", diff)
			}
			if want := (infrav1.NodeInfo{Architecture: tc.architecture, OperatingSystem: "linux"}); got.NodeInfo != want {
				t.Errorf("a node is %+v, want %+v", got.NodeInfo, want)
			}
		})
	}
}
