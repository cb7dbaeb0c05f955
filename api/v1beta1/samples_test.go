// SPDX-License-Identifier: Apache-2.0

package v1beta1_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

var goodMachines = map[string]string{
	"the least":            "image: ubuntu/jammy",
	"uploaded image":       "image: custom/u-2204-k8s",
	"image without a type": "image: u-2204-k8s.v1.36.3",
	"bare metal in full": `
failureDomain: az1
resourcePool: default
minCPU: 4
minMemory: 1024
minDiskSize: 7
tags: [ssd, rack_1, GPU]
image: custom/u-2204-k8s
notTags: [gpu]
architecture: amd64/generic
kernel: hwe-24.04-lowlatency-edge
deployInMemory: true
provisioningMode: bare-metal
dynamicLXD: false
staticIP: 10.77.0.50
`,
	"disks in full": `
image: i
storage:
  layout: lvm
  rootDisk: {tags: [ssd, nvme], serial: S5G-1, minSize: 100}
  options: {boot_size: 1G, root_size: "80%", vg_name: system, lv_name: root, lv_size: "53687091200"}
`,
	"a cached disk":           "{image: i, storage: {layout: bcache, options: {cache_mode: writearound, cache_no_part: 'true'}}}",
	"disks that are not used": "{image: i, deployInMemory: true, storage: {layout: blank}}",
	"resources of devices":    "{image: i, extendedResources: {nvidia.com/gpu: 8, amd.com/gpu: 0, gpu.intel.com/i915: 1, nvidia.com/mig-1g.5gb: 7, rdma/hca_0: 1}}",
	"a VM by the short form":  "{image: i, dynamicLXD: true}",
	"a VM by both forms":      "{image: i, dynamicLXD: true, provisioningMode: lxd}",
	"a VM of the least size":  `{image: i, provisioningMode: lxd, minMemory: 2048, minDiskSize: 8, lxdConfig: {storage: {size: "8"}}}`,
	"a VM in full": `
image: ubuntu/noble
provisioningMode: lxd
minCPU: 2
minMemory: 4096
minDiskSize: 20
tags: [lxd-host]
notTags: [gpu]
kernel: ga-24.04
lxdConfig:
  profile: maas
  storage: {size: "40", pool: fast-pool}
  network: {bridge: br0}
  vmHost: host-a1
  project: k8s
  commission: true
  secureBoot: true
`,
	"a VM with several interfaces": `
image: i
dynamicLXD: true
lxdConfig:
  network:
    devices:
    - {name: eth0, bridge: br-ex.100}
    - {name: eth1, subnet: 10.78.0.0/24}
    - {name: eth2, subnet: "fd00:77::/64"}
`,
	"IPv6 address":                      "{image: i, staticIP: 'fd00:77::50'}",
	"a network card by its MAC address": "{image: i, interfaces: [{name: '00:16:3e:00:00:01', mtu: 9000}]}",
	"a bond, a VLAN and a bridge": `
image: i
staticIP: 10.77.0.50
interfaces:
- {name: bond0, type: bond, parents: [eno1, fast], parameters: {bond_mode: 802.3ad, bond_xmit_hash_policy: layer3+4}, mtu: 9000}
- {name: bond0.100, type: vlan, parents: [bond0], vid: 100, subnet: 10.100.0.0/24}
- {name: br0, type: bridge, parents: [bond0], parameters: {bridge_stp: 'true'}, linkMode: static}
`,
	"an address from IPAM": "{image: i, staticIPPoolRef: {apiGroup: ipam.cluster.x-k8s.io, kind: InClusterIPPool, name: p}}",
	"no tags":              "{image: i, tags: []}",
	"lxdConfig that is {}": "{image: i, provisioningMode: lxd, lxdConfig: {}}",
	"the least memory":     "{image: i, minMemory: 1024}",
}

// goodMachineIDs are what a controller or a user writes into a machine, but not into a template.
var goodMachineIDs = map[string]string{
	"one certain machine": "{image: i, systemID: nqpsap}",
	"recorded bare metal": "{image: i, systemID: nqpsap, providerID: 'maas://az1/nqpsap'}",
	"of a MaasCluster":    "{image: i, maasClusterName: site-b}",
	"recorded VM":         "{image: i, dynamicLXD: true, systemID: abc123, providerID: 'maas-lxd://az-2/abc123'}",
}

var goodClusters = map[string]string{
	"the least":             "dnsDomain: maas",
	"domain in upper case":  "dnsDomain: K8s.Example.COM",
	"an endpoint of my own": "controlPlaneEndpoint: {host: api.example.com, port: 8443}",
	"an endpoint by address": `
dnsDomain: maas
controlPlaneEndpoint: {host: 10.77.0.5}
`,
	"an endpoint by IPv6 address":           "controlPlaneEndpoint: {host: 'fd00::1'}",
	"the control-plane provider's endpoint": "{}",
	// Clients with the types of the provider before this one write all fields.
	"the empty endpoint of a typed client": "{dnsDomain: maas, controlPlaneEndpoint: {host: '', port: 0}}",
	"an empty endpoint, and a virtual IP":  "{dnsDomain: maas, virtualIP: {subnet: 10.0.0.0/24}, controlPlaneEndpoint: {host: '', port: 0}}",
	"only the port":                        "{dnsDomain: maas, controlPlaneEndpoint: {port: 443}}",
	"in full": `
dnsDomain: k8s.example.com
failureDomains: [az1, az2, az3]
preferredSubnets: [10.77.0.0/24, "fd00:77::/64"]
preferredInterfaces: [api, eth1]
credentialsRef: {name: maas-team-a}
lxdControlPlaneCluster: true
lxdConfig:
  storageBackend: btrfs
  storageSize: "200"
  networkBridge: br-lxd
  zone: az1
  resourcePool: vm-hosts
`,
	"a host cluster with defaults": "{dnsDomain: maas, lxdControlPlaneCluster: true, lxdConfig: {}}",
}

var goodRemediations = map[string]string{
	"with defaults":     "{}",
	"replace at once":   "{powerCycle: {tries: 0}}",
	"restart with care": "{powerCycle: {tries: 5, timeoutSeconds: 86400}}",
}

var goodServing = map[string]string{
	"of another provider's Cluster": "{clusterName: c1, credentialsRef: {name: maas}, failureDomains: [az1], preferredSubnets: [10.77.0.0/24], lxdControlPlaneCluster: false}",
}

// samples are all objects that must be accepted, by kind.
func samples() map[string][]map[string]string {
	wrapped := func(specs map[string]string) map[string]string {
		templates := map[string]string{}
		for name, spec := range specs {
			templates[name] = inTemplate(spec)
		}
		return templates
	}
	return map[string][]map[string]string{
		"MaasMachine":         {goodMachines, goodMachineIDs},
		"MaasMachineTemplate": {wrapped(goodMachines)},
		"MaasCluster":         {goodClusters, goodServing},
		"MaasClusterTemplate": {wrapped(goodClusters)},
		"MaasRemediation":     {goodRemediations},

		"MaasRemediationTemplate": {wrapped(goodRemediations)},
	}
}

func TestSamplesAreAccepted(t *testing.T) {
	strict := client.WithFieldValidation(api, "Strict")
	for kind, sets := range samples() {
		for _, specs := range sets {
			for name, spec := range specs {
				t.Run(kind+"/"+name, func(t *testing.T) {
					o := object(t, kind, spec)
					if err := strict.Create(t.Context(), o); err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { _ = api.Delete(t.Context(), o) })
				})
			}
		}
	}
}

func TestDefaultsOfHostClusters(t *testing.T) {
	o := object(t, "MaasCluster", "{dnsDomain: maas, lxdControlPlaneCluster: true, lxdConfig: {}}")
	if err := api.Create(t.Context(), o, client.DryRunAll); err != nil {
		t.Fatal(err)
	}
	got, _, err := unstructured.NestedMap(o.Object, "spec", "lxdConfig")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"storageBackend": "zfs", "storageSize": "50", "networkBridge": "br0"}
	defaults := infrav1.DefaultLXDHostConfig()
	inCode, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&defaults)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, inCode); diff != "" {
		t.Errorf("DefaultLXDHostConfig (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("spec.lxdConfig (-want +got):\n%s", diff)
	}
}
