// SPDX-License-Identifier: Apache-2.0

package v1beta1_test

import (
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capmaas/cluster-api-provider-maas/test/golden"
)

// badObject is refused on creation, for a field.
type badObject struct {
	name  string
	spec  string
	field string // below spec
}

var badMachines = []badObject{
	{"no image", "{minCPU: 2}", ".image"},
	{"empty image", `{image: ""}`, ".image"},
	{"image with a space", "{image: ubuntu jammy}", ".image"},
	{"image with three parts", "{image: custom/u/jammy}", ".image"},
	{"image is a number", "{image: 22}", ".image"},
	{"no cores", "{image: i, minCPU: 0}", ".minCPU"},
	{"cores are a word", "{image: i, minCPU: four}", ".minCPU"},
	{"too many cores", "{image: i, minCPU: 5000}", ".minCPU"},
	{"negative memory", "{image: i, minMemory: -1}", ".minMemory"},
	{"memory in GB", "{image: i, minMemory: 8}", ".minMemory"},
	{"memory with a unit", "{image: i, minMemory: 4Gi}", ".minMemory"},
	{"negative disk", "{image: i, minDiskSize: -5}", ".minDiskSize"},
	{"empty MaasCluster", `{image: i, maasClusterName: ""}`, ".maasClusterName"},
	{"MaasCluster with its namespace", "{image: i, maasClusterName: team-a/site-b}", ".maasClusterName"},
	{"empty tag", `{image: i, tags: [""]}`, ".tags[0]"},
	{"tag with a comma", `{image: i, tags: [ok, "a,b"]}`, ".tags[1]"},
	{"the same tag twice", "{image: i, tags: [a, a]}", ".tags[1]"},
	{"tag not to have with a comma", `{image: i, notTags: ["a,b"]}`, ".notTags[0]"},
	{"tag to have and not to have", "{image: i, tags: [a, b], notTags: [c, b]}", ".notTags"},
	{"architecture of Docker", "{image: i, architecture: linux/AMD64}", ".architecture"},
	{"architecture of a VM", "{image: i, dynamicLXD: true, architecture: amd64}", ".architecture"},
	{"an unknown storage layout", "{image: i, storage: {layout: zfs}}", ".storage.layout"},
	{"storage without a layout", "{image: i, storage: {}}", ".storage.layout"},
	{"storage of a VM", "{image: i, provisioningMode: lxd, storage: {layout: lvm}}", ".storage"},
	{"nothing to install on", "{image: i, storage: {layout: blank}}", ".storage.layout"},
	{"options of a custom layout", "{image: i, storage: {layout: custom, options: {root_size: 8G}}}", ".storage.layout"},
	{"an option that is no parameter", "{image: i, storage: {layout: flat, options: {root_device: '7'}}}", ".storage.options"},
	{"an option of another layout", "{image: i, storage: {layout: flat, options: {vg_name: system}}}", ".storage.options"},
	{"a cache of LVM", "{image: i, storage: {layout: lvm, options: {cache_mode: writeback}}}", ".storage.options"},
	{"a size that is none", "{image: i, storage: {layout: lvm, options: {lv_size: 50GiB}}}", ".storage.options"},
	{"an unknown cache mode", "{image: i, storage: {layout: bcache, options: {cache_mode: none}}}", ".storage.options"},
	{"any root disk", "{image: i, storage: {layout: flat, rootDisk: {}}}", ".storage.rootDisk"},
	{"kernel's version", "{image: i, kernel: 6.8.0-45}", ".kernel"},
	{"empty pool", `{image: i, resourcePool: ""}`, ".resourcePool"},
	{"empty zone", `{image: i, failureDomain: ""}`, ".failureDomain"},
	{"unknown mode", "{image: i, provisioningMode: vm}", ".provisioningMode"},
	{"both modes", "{image: i, provisioningMode: bare-metal, dynamicLXD: true}", ".dynamicLXD"},
	{"dynamicLXD is a string", `{image: i, dynamicLXD: "yes"}`, ".dynamicLXD"},
	{"lxdConfig without a mode", "{image: i, lxdConfig: {}}", ".lxdConfig"},
	{"lxdConfig on bare metal", "{image: i, provisioningMode: bare-metal, lxdConfig: {vmHost: a}}", ".lxdConfig"},
	{"lxdConfig, dynamicLXD false", "{image: i, dynamicLXD: false, lxdConfig: {}}", ".lxdConfig"},
	{"a VM with little memory", "{image: i, provisioningMode: lxd, minMemory: 2047}", ".minMemory"},
	{"a VM by the short form with little memory", "{image: i, dynamicLXD: true, minMemory: 1024}", ".minMemory"},
	{"a disk without a size", "{image: i, provisioningMode: lxd, lxdConfig: {disks: [{pool: p}]}}", ".lxdConfig.disks[0].size"},
	{"a disk of no size", "{image: i, provisioningMode: lxd, lxdConfig: {disks: [{size: '0'}]}}", ".lxdConfig.disks[0].size"},
	{"a resource that has a field of its own", "{image: i, extendedResources: {cpu: 4}}", ".extendedResources"},
	{"a resource without a domain", "{image: i, extendedResources: {gpu: 1}}", ".extendedResources"},
	{"a resource of Kubernetes", "{image: i, extendedResources: {kubernetes.io/gpu: 1}}", ".extendedResources"},
	{"a resource's name with a blank", "{image: i, extendedResources: {nvidia.com/a gpu: 1}}", ".extendedResources"},
	{"no resources", "{image: i, extendedResources: {}}", ".extendedResources"},
	{"less of a resource than none", "{image: i, extendedResources: {nvidia.com/gpu: -1}}", ".extendedResources.nvidia.com/gpu"},
	{"half of a resource", "{image: i, extendedResources: {nvidia.com/gpu: 0.5}}", ".extendedResources.nvidia.com/gpu"},
	{"a device named as a disk", "{image: i, provisioningMode: lxd, lxdConfig: {devices: [{name: disk1, type: gpu}]}}", ".lxdConfig.devices[0].name"},
	{"a device that is a disk", "{image: i, provisioningMode: lxd, lxdConfig: {devices: [{name: d, type: disk}]}}", ".lxdConfig.devices[0].type"},
	{"a device with two types", "{image: i, provisioningMode: lxd, lxdConfig: {devices: [{name: d, type: gpu, properties: {type: disk}}]}}", ".lxdConfig.devices[0].properties"},
	{"a VM with a small disk", "{image: i, provisioningMode: lxd, minDiskSize: 7}", ".minDiskSize"},
	{"size of a disk with a unit", "{image: i, dynamicLXD: true, lxdConfig: {storage: {size: 40GB}}}", ".lxdConfig.storage.size"},
	{"size of a disk is zero", `{image: i, dynamicLXD: true, lxdConfig: {storage: {size: "0"}}}`, ".lxdConfig.storage.size"},
	{"size of a disk is a number", "{image: i, dynamicLXD: true, lxdConfig: {storage: {size: 40}}}", ".lxdConfig.storage.size"},
	{"size of a disk is too small", `{image: i, dynamicLXD: true, lxdConfig: {storage: {size: "7"}}}`, ".lxdConfig.storage.size"},
	{"storage pool with a slash", "{image: i, dynamicLXD: true, lxdConfig: {storage: {pool: a/b}}}", ".lxdConfig.storage.pool"},
	{"bridge with a long name", "{image: i, dynamicLXD: true, lxdConfig: {network: {bridge: a-bridge-too-far}}}", ".lxdConfig.network.bridge"},
	{"bridge with a space", "{image: i, dynamicLXD: true, lxdConfig: {network: {bridge: br 0}}}", ".lxdConfig.network.bridge"},
	{
		"bridge and devices",
		"{image: i, dynamicLXD: true, lxdConfig: {network: {bridge: br0, devices: [{name: eth0, bridge: br0}]}}}",
		".lxdConfig.network",
	},
	{"no devices", "{image: i, dynamicLXD: true, lxdConfig: {network: {devices: []}}}", ".lxdConfig.network.devices"},
	{"a device on nothing", "{image: i, dynamicLXD: true, lxdConfig: {network: {devices: [{name: eth0}]}}}", ".lxdConfig.network.devices[0]"},
	{
		"a device on two things",
		"{image: i, dynamicLXD: true, lxdConfig: {network: {devices: [{name: eth0, bridge: br0, subnet: 10.0.0.0/8}]}}}",
		".lxdConfig.network.devices[0]",
	},
	{"a device without a name", "{image: i, dynamicLXD: true, lxdConfig: {network: {devices: [{bridge: br0}]}}}", ".lxdConfig.network.devices[0].name"},
	{"a device with a bad name", "{image: i, dynamicLXD: true, lxdConfig: {network: {devices: [{name: Eth_0, bridge: br0}]}}}", ".lxdConfig.network.devices[0].name"},
	{"two devices of one name", "{image: i, dynamicLXD: true, lxdConfig: {network: {devices: [{name: a, bridge: b}, {name: a, bridge: c}]}}}", ".lxdConfig.network.devices[1]"},
	{"a device on an address", "{image: i, dynamicLXD: true, lxdConfig: {network: {devices: [{name: a, subnet: 10.77.0.1}]}}}", ".lxdConfig.network.devices[0].subnet"},
	{"devices out of order", "{image: i, dynamicLXD: true, lxdConfig: {network: {devices: [{name: eth1, bridge: b}, {name: eth0, bridge: c}]}}}", ".lxdConfig.network.devices"},
	{"the last device out of order", "{image: i, dynamicLXD: true, lxdConfig: {network: {devices: [{name: a, bridge: b}, {name: b, bridge: b}, {name: c, bridge: b}, {name: d, bridge: b}, {name: e, bridge: b}, {name: f, bridge: b}, {name: h, bridge: b}, {name: g, bridge: b}]}}}", ".lxdConfig.network.devices"},
	{"a device with the name of a disk", "{image: i, dynamicLXD: true, lxdConfig: {network: {devices: [{name: root, bridge: br0}]}}}", ".lxdConfig.network.devices[0].name"},
	{"a link mode that MAAS does not know", "{image: i, dynamicLXD: true, lxdConfig: {network: {devices: [{name: eth0, bridge: br0, linkMode: slaac}]}}}", ".lxdConfig.network.devices[0].linkMode"},
	{"two devices that carry the address", "{image: i, dynamicLXD: true, staticIP: 10.0.0.5, lxdConfig: {network: {devices: [{name: a, bridge: b, linkMode: static}, {name: b, bridge: c, linkMode: static}]}}}", ".lxdConfig.network.devices"},
	{"a device that carries no address", "{image: i, dynamicLXD: true, lxdConfig: {network: {devices: [{name: a, bridge: b, linkMode: static}]}}}", ".lxdConfig.network.devices"},
	{"an address that no device carries", "{image: i, dynamicLXD: true, staticIP: 10.0.0.5, lxdConfig: {network: {devices: [{name: a, bridge: b, linkMode: dhcp}, {name: b, bridge: c}]}}}", ".lxdConfig.network.devices"},
	{"antiAffinity of another word", "{image: i, dynamicLXD: true, lxdConfig: {antiAffinity: hard}}", ".lxdConfig.antiAffinity"},
	{"project with a slash", "{image: i, dynamicLXD: true, lxdConfig: {project: a/b}}", ".lxdConfig.project"},
	{"interfaces of a VM", "{image: i, dynamicLXD: true, interfaces: [{name: eth0, mtu: 9000}]}", ".interfaces"},
	{"a bond without parts", "{image: i, interfaces: [{name: bond0, type: bond}]}", ".interfaces[0]"},
	{"a card with parts", "{image: i, interfaces: [{name: eth0, parents: [eth1]}]}", ".interfaces[0]"},
	{"a type that MAAS does not make", "{image: i, interfaces: [{name: t0, type: tun, parents: [eth1]}]}", ".interfaces[0].type"},
	{"a VLAN without a tag", "{image: i, interfaces: [{name: v, type: vlan, parents: [eth0]}]}", ".interfaces[0].vid"},
	{"a bond with a tag", "{image: i, interfaces: [{name: b, type: bond, vid: 5, parents: [eth0]}]}", ".interfaces[0].vid"},
	{"a tag that is none", "{image: i, interfaces: [{name: v, type: vlan, vid: 4095, parents: [eth0]}]}", ".interfaces[0].vid"},
	{"a bridge with two parts", "{image: i, interfaces: [{name: br0, type: bridge, parents: [eth0, eth1]}]}", ".interfaces[0].parents"},
	{"a long name for a bond", "{image: i, interfaces: [{name: bond-of-the-storage, type: bond, parents: [eth0]}]}", ".interfaces[0].name"},
	{"an interface with a space", "{image: i, interfaces: [{name: eth 0, mtu: 9000}]}", ".interfaces[0].name"},
	{"two interfaces of one name", "{image: i, interfaces: [{name: eth0, mtu: 9000}, {name: eth0, mtu: 1500}]}", ".interfaces[1]"},
	{"a small MTU", "{image: i, interfaces: [{name: eth0, mtu: 500}]}", ".interfaces[0].mtu"},
	{"a bridge with parameters of a bond", "{image: i, interfaces: [{name: br0, type: bridge, parents: [eth0], parameters: {bond_mode: 802.3ad}}]}", ".interfaces[0].parameters"},
	{"a parameter that MAAS lacks", "{image: i, interfaces: [{name: b, type: bond, parents: [eth0], parameters: {bond_speed: '1'}}]}", ".interfaces[0].parameters"},
	{"a parameter without a value", "{image: i, interfaces: [{name: b, type: bond, parents: [eth0], parameters: {bond_mode: 'a b'}}]}", ".interfaces[0].parameters[bond_mode]"},
	{"an interface that carries no address", "{image: i, interfaces: [{name: eth0, linkMode: static}]}", ".interfaces"},
	{"two interfaces that carry the address", "{image: i, staticIP: 10.0.0.5, interfaces: [{name: eth0, linkMode: static}, {name: eth1, linkMode: static}]}", ".interfaces"},
	{"an address that no interface carries", "{image: i, staticIP: 10.0.0.5, interfaces: [{name: eth0, linkMode: dhcp}]}", ".interfaces"},
	{"an interface's subnet is an address", "{image: i, interfaces: [{name: eth0, subnet: 10.0.0.5}]}", ".interfaces[0].subnet"},
	{"staticIP is a name", "{image: i, staticIP: api.maas}", ".staticIP"},
	{"staticIP with a prefix length", "{image: i, staticIP: 10.77.0.50/24}", ".staticIP"},
	{"staticIP out of range", "{image: i, staticIP: 10.77.0.256}", ".staticIP"},
	{
		"an address and a pool",
		"{image: i, staticIP: 10.77.0.50, staticIPPoolRef: {apiGroup: ipam.cluster.x-k8s.io, kind: InClusterIPPool, name: p}}",
		".staticIPPoolRef",
	},
	{"an unknown way to erase disks", "{image: i, release: {erase: shred}}", ".release.erase"},
	{"a machine that is kept and erased", "{image: i, release: {erase: quick, keep: {}}}", ".release.keep"},
	{"a machine that is kept for ever", "{image: i, release: {keep: {timeoutSeconds: 86401}}}", ".release.keep.timeoutSeconds"},
	{"a machine that is kept for a moment", "{image: i, release: {keep: {timeoutSeconds: 59}}}", ".release.keep.timeoutSeconds"},
	{"erase is a boolean", "{image: i, release: {erase: true}}", ".release.erase"},
	{"release of a VM", "{image: i, provisioningMode: lxd, release: {erase: quick}}", ".release"},
	{"release of a VM by the short form", "{image: i, dynamicLXD: true, release: {erase: none}}", ".release"},
	{"empty release of a VM", "{image: i, provisioningMode: lxd, release: {}}", ".release"},
	{"a pool without a kind", "{image: i, staticIPPoolRef: {apiGroup: ipam.cluster.x-k8s.io, name: p}}", ".staticIPPoolRef.kind"},
}

// badTemplateMachines are bad in a template only.
var badTemplateMachines = []badObject{
	{"providerID in a template", "{image: i, systemID: abc, providerID: 'maas://z/abc'}", ""},
	{"systemID in a template", "{image: i, systemID: abc}", ""},
}

// badMachineIDs are bad in a machine, and can't be in a template anyhow.
var badMachineIDs = []badObject{
	{"systemID is a hostname", "{image: i, systemID: node-1.maas}", ".systemID"},
	{"providerID of another provider", "{image: i, providerID: 'aws:///z/i-1'}", ".providerID"},
	{"providerID without a zone", "{image: i, systemID: abc, providerID: 'maas://abc'}", ".providerID"},
	{"providerID without systemID", "{image: i, providerID: 'maas://z/abc'}", ".providerID"},
	{"providerID of another machine", "{image: i, systemID: abc, providerID: 'maas://z/abd'}", ".providerID"},
	{"providerID that ends like systemID", "{image: i, systemID: bc, providerID: 'maas-lxd://z/abc'}", ".providerID"},
}

var badClusters = []badObject{
	{"domain with a scheme", "{dnsDomain: 'http://maas'}", ".dnsDomain"},
	{"domain with an underscore", "{dnsDomain: my_maas}", ".dnsDomain"},
	{"empty endpoint", "{dnsDomain: maas, controlPlaneEndpoint: {}}", ".controlPlaneEndpoint"},
	{"endpoint is a URL", "{dnsDomain: maas, controlPlaneEndpoint: {host: 'https://api'}}", ".controlPlaneEndpoint.host"},
	{"endpoint with a port in the host", "{dnsDomain: maas, controlPlaneEndpoint: {host: 'api:6443'}}", ".controlPlaneEndpoint.host"},
	{"port below zero", "{dnsDomain: maas, controlPlaneEndpoint: {port: -1}}", ".controlPlaneEndpoint.port"},
	{"a virtual IP without a domain, nor a host", "{virtualIP: {address: 10.0.0.5}, controlPlaneEndpoint: {host: '', port: 0}}", ".dnsDomain"},
	{"port too high", "{dnsDomain: maas, controlPlaneEndpoint: {host: a, port: 70000}}", ".controlPlaneEndpoint.port"},
	{"port is a string", "{dnsDomain: maas, controlPlaneEndpoint: {host: a, port: '6443'}}", ".controlPlaneEndpoint.port"},
	{"a virtual IP of no kind", "{dnsDomain: maas, virtualIP: {}}", ".virtualIP"},
	{"a virtual IP of both kinds", "{dnsDomain: maas, virtualIP: {address: 10.0.0.5, subnet: 10.0.0.0/24}}", ".virtualIP"},
	{"a virtual IP with a prefix length", "{dnsDomain: maas, virtualIP: {address: 10.0.0.5/24}}", ".virtualIP.address"},
	{"a virtual IP in an address", "{dnsDomain: maas, virtualIP: {subnet: 10.0.0.0}}", ".virtualIP.subnet"},
	{"a virtual IP for VM hosts", "{dnsDomain: maas, lxdControlPlaneCluster: true, virtualIP: {address: 10.0.0.5}}", ".virtualIP"},
	{"a virtual IP without a domain", "{virtualIP: {address: 10.0.0.5}, controlPlaneEndpoint: {host: 10.0.0.5}}", ".dnsDomain"},
	{"a virtual IP beside another host", "{dnsDomain: maas, virtualIP: {address: 10.0.0.5}, controlPlaneEndpoint: {host: 10.0.0.6}}", ".virtualIP.address"},
	{"a virtual IP beside a host elsewhere", "{dnsDomain: maas, virtualIP: {subnet: 10.0.0.0/24}, controlPlaneEndpoint: {host: 10.0.1.6}}", ".virtualIP.subnet"},
	{"a virtual IP beside a name", "{dnsDomain: maas, virtualIP: {subnet: 'fd00::/64'}, controlPlaneEndpoint: {host: api.example.com}}", ".virtualIP.subnet"},
	{"no failure domains", "{dnsDomain: maas, failureDomains: []}", ".failureDomains"},
	{"the same failure domain twice", "{dnsDomain: maas, failureDomains: [a, b, a]}", ".failureDomains[2]"},
	{"empty failure domain", `{dnsDomain: maas, failureDomains: [""]}`, ".failureDomains[0]"},
	{"failure domains as one string", "{dnsDomain: maas, failureDomains: 'a,b'}", ".failureDomains"},
	{"preferred interface without a name", "{dnsDomain: maas, preferredInterfaces: [eth0, '']}", ".preferredInterfaces[1]"},
	{"preferred subnet is an address", "{dnsDomain: maas, preferredSubnets: [10.0.0.0/8, 10.77.0.1]}", ".preferredSubnets[1]"},
	{"credentials without a name", "{dnsDomain: maas, credentialsRef: {}}", ".credentialsRef.name"},
	{"credentials with an empty name", `{dnsDomain: maas, credentialsRef: {name: ""}}`, ".credentialsRef.name"},
	{"hosts prepared in no host cluster", "{dnsDomain: maas, lxdConfig: {}}", ".lxdConfig"},
	{"hosts prepared, host cluster false", "{dnsDomain: maas, lxdControlPlaneCluster: false, lxdConfig: {}}", ".lxdConfig"},
	{"unknown storage driver", "{dnsDomain: maas, lxdControlPlaneCluster: true, lxdConfig: {storageBackend: ceph}}", ".lxdConfig.storageBackend"},
	{"size of the pool with a unit", "{dnsDomain: maas, lxdControlPlaneCluster: true, lxdConfig: {storageSize: 50GB}}", ".lxdConfig.storageSize"},
	{"size of the pool is a number", "{dnsDomain: maas, lxdControlPlaneCluster: true, lxdConfig: {storageSize: 50}}", ".lxdConfig.storageSize"},
	{"host bridge with a bad name", "{dnsDomain: maas, lxdControlPlaneCluster: true, lxdConfig: {networkBridge: br/0}}", ".lxdConfig.networkBridge"},
	{"credentials of the hosts without a name", "{dnsDomain: maas, lxdControlPlaneCluster: true, lxdConfig: {credentialsRef: {}}}", ".lxdConfig.credentialsRef.name"},
	{"a domain beside a Cluster that has its endpoint", "{clusterName: c1, dnsDomain: maas}", ".dnsDomain"},
	{"an endpoint beside a Cluster that has its own", "{clusterName: c1, controlPlaneEndpoint: {host: a}}", ".controlPlaneEndpoint"},
	{"a virtual IP beside a Cluster that has its endpoint", "{clusterName: c1, virtualIP: {address: 10.0.0.5}}", ".virtualIP"},
	{"a host cluster of another provider's Cluster", "{clusterName: c1, lxdControlPlaneCluster: true}", ".lxdControlPlaneCluster"},
	{"empty zone of the hosts", `{dnsDomain: maas, lxdControlPlaneCluster: true, lxdConfig: {zone: ""}}`, ".lxdConfig.zone"},
}

// badServing are refused of a MaasCluster; no template has the field at all.
var badServing = []badObject{
	{"an empty Cluster", `{clusterName: ""}`, ".clusterName"},
	{"a Cluster with its namespace", "{clusterName: team-a/c1}", ".clusterName"},
}

var badTemplateClusters = []badObject{
	{"a template of what is no Cluster's infrastructure", "{clusterName: c1}", ".clusterName"},
}

// directHost are the fields that a host needs of which LXD is asked itself.
const directHost = "address: 10.77.0.11, serverCertificate: '-----BEGIN CERTIFICATE-----', credentialsRef: {name: lxd}"

var badLXDHosts = []badObject{
	{"nothing", "{}", ""},
	{"no certificate", "{address: 10.77.0.11, credentialsRef: {name: lxd}}", ""},
	{"no address", "{serverCertificate: '-----BEGIN CERTIFICATE-----', credentialsRef: {name: lxd}}", ""},
	{"no credentials", "{address: 10.77.0.11, serverCertificate: '-----BEGIN CERTIFICATE-----'}", ".credentialsRef"},
	{"address with a scheme", "{" + directHost + ", address: 'https://10.77.0.11'}", ".address"},
	{"IPv6 address without brackets", "{" + directHost + ", address: 'fd00::11'}", ".address"},
	{"certificate in another form", "{" + directHost + ", serverCertificate: MIIB}", ".serverCertificate"},
	{"project with a slash", "{" + directHost + ", project: a/b}", ".project"},
	{"subnet is an address", "{" + directHost + ", subnet: 10.77.0.11}", ".subnet"},
	{"a name server by name", "{" + directHost + ", nameservers: [10.77.0.2, ns.maas]}", ".nameservers"},
	{"bridge with a bad name", "{" + directHost + ", networkBridge: br/0}", ".networkBridge"},
	{"no cores promised", "{" + directHost + ", overCommit: {cpuPercent: 0}}", ".overCommit.cpuPercent"},
	{"too much memory promised", "{" + directHost + ", overCommit: {memoryPercent: 1001}}", ".overCommit.memoryPercent"},
	{"the same tag twice", "{" + directHost + ", tags: [a, a]}", ".tags[1]"},
	{"credentials without a name", "{" + directHost + ", maasCredentialsRef: {}}", ".maasCredentialsRef.name"},
	{"a device of no type", "{" + directHost + ", allowedDevices: [{properties: {vendorid: ffff}}]}", ".allowedDevices[0].type"},
	{"a device of another type", "{" + directHost + ", allowedDevices: [{type: disk}]}", ".allowedDevices[0].type"},
	{"a device with two types", "{" + directHost + ", allowedDevices: [{type: gpu, properties: {type: disk}}]}", ".allowedDevices[0].properties"},
	{"a VM host without an id", "{vmHost: {systemID: abc}}", ".vmHost.id"},
	{"a VM host with credentials alone", "{vmHost: {id: 1}, credentialsRef: {name: lxd}}", ".credentialsRef"},
}

var badRemediations = []badObject{
	{"negative number of tries", "{powerCycle: {tries: -1}}", ".powerCycle.tries"},
	{"too many tries", "{powerCycle: {tries: 6}}", ".powerCycle.tries"},
	{"no time to start", "{powerCycle: {timeoutSeconds: 5}}", ".powerCycle.timeoutSeconds"},
	{"more than a day", "{powerCycle: {timeoutSeconds: 86401}}", ".powerCycle.timeoutSeconds"},
	{"a time with a unit", "{powerCycle: {timeoutSeconds: 15m}}", ".powerCycle.timeoutSeconds"},
}

// The same sentence is said of an object and of a template.
func TestBadObjectsAreRefused(t *testing.T) {
	sentences := map[string]string{}
	for _, tt := range []struct {
		kind  string
		path  string
		wrap  func(string) string
		cases [][]badObject
	}{
		{"MaasMachine", "spec", nil, [][]badObject{badMachines, badMachineIDs}},
		{"MaasMachineTemplate", "spec.template.spec", inTemplate, [][]badObject{badMachines, badTemplateMachines}},
		{"MaasCluster", "spec", nil, [][]badObject{badClusters, badServing}},
		{"MaasClusterTemplate", "spec.template.spec", inTemplate, [][]badObject{badClusters, badTemplateClusters}},
		{"LXDHost", "spec", nil, [][]badObject{badLXDHosts}},
		{"MaasRemediation", "spec", nil, [][]badObject{badRemediations}},
		{"MaasRemediationTemplate", "spec.template.spec", inTemplate, [][]badObject{badRemediations}},
	} {
		for _, c := range slices.Concat(tt.cases...) {
			spec := c.spec
			if tt.wrap != nil {
				spec = tt.wrap(spec)
			}
			name := strings.TrimSuffix(tt.kind, "Template") + ": " + c.name
			err := api.Create(t.Context(), object(t, tt.kind, spec), client.DryRunAll)
			sentence := tt.path + c.field + ": " + refusal(t, tt.kind+": "+c.name, err, tt.path+c.field)
			sentence = strings.ReplaceAll(sentence, tt.path, "spec")
			if before, ok := sentences[name]; ok && before != sentence {
				t.Errorf("%s of a template: %q, want %q", name, sentence, before)
			}
			sentences[name] = sentence
		}
	}
	golden.Sentences(t, "api-create.txt", sentences)
}

func TestTemplatesNeedASpec(t *testing.T) {
	for _, kind := range []string{"MaasMachineTemplate", "MaasClusterTemplate"} {
		err := api.Create(t.Context(), object(t, kind, "{}"), client.DryRunAll)
		if said := refusal(t, kind, err, "spec.template"); said != "Required value" {
			t.Errorf("it is refused for %q", said)
		}
		err = api.Create(t.Context(), object(t, kind, "{template: {}}"), client.DryRunAll)
		if said := refusal(t, kind, err, "spec.template.spec"); said != "Required value" {
			t.Errorf("it is refused for %q", said)
		}
	}
}

// A client that asks for strict validation, as kubectl does, is told of a field that does not exist.
func TestUnknownFieldsAreRefused(t *testing.T) {
	strict := client.WithFieldValidation(api, "Strict")
	for kind, spec := range map[string]string{
		"MaasMachine":         "{image: i, minCPUs: 2}",
		"MaasMachineTemplate": inTemplate("{image: i, lxdconfig: {}}"),
		"MaasCluster":         "{dnsDomain: maas, zones: [a]}",
		"MaasClusterTemplate": inTemplate("{dnsDomain: maas, identityRef: {name: a}}"),
		"MaasRemediation":     "{powerCycle: {retries: 2}}",
		"LXDHost":             "{" + directHost + ", cordoned: true}",
	} {
		t.Run(kind, func(t *testing.T) {
			if err := strict.Create(t.Context(), object(t, kind, spec), client.DryRunAll); !apierrors.IsBadRequest(err) {
				t.Errorf("got error %v, want a bad request", err)
			}
		})
	}
}
