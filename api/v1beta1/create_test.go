// SPDX-License-Identifier: Apache-2.0

package v1beta1_test

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// badObject is refused on creation, with a cause on the field whose message mentions what is to be done.
type badObject struct {
	name     string
	spec     string
	field    string // below spec
	mentions []string
}

var badMachines = []badObject{
	{"no image", "{minCPU: 2}", ".image", []string{"Required"}},
	{"empty image", `{image: ""}`, ".image", []string{"at least 1"}},
	{"image with a space", "{image: ubuntu jammy}", ".image", []string{"ubuntu/jammy"}},
	{"image with three parts", "{image: custom/u/jammy}", ".image", []string{"osystem/series"}},
	{"image is a number", "{image: 22}", ".image", []string{"string"}},
	{"no cores", "{image: i, minCPU: 0}", ".minCPU", []string{"greater than or equal to 1"}},
	{"cores are a word", "{image: i, minCPU: four}", ".minCPU", []string{"integer"}},
	{"too many cores", "{image: i, minCPU: 5000}", ".minCPU", []string{"4096"}},
	{"negative memory", "{image: i, minMemory: -1}", ".minMemory", []string{"greater than or equal to 1024"}},
	{"memory in GB", "{image: i, minMemory: 8}", ".minMemory", []string{"greater than or equal to 1024"}},
	{"memory with a unit", "{image: i, minMemory: 4Gi}", ".minMemory", []string{"integer"}},
	{"negative disk", "{image: i, minDiskSize: -5}", ".minDiskSize", []string{"greater than or equal to 1"}},
	{"empty tag", `{image: i, tags: [""]}`, ".tags[0]", []string{"names of MAAS tags"}},
	{"tag with a comma", `{image: i, tags: [ok, "a,b"]}`, ".tags[1]", []string{"letters, digits"}},
	{"the same tag twice", "{image: i, tags: [a, a]}", ".tags[1]", []string{"Duplicate"}},
	{"tag not to have with a comma", `{image: i, notTags: ["a,b"]}`, ".notTags[0]", []string{"letters, digits"}},
	{"tag to have and not to have", "{image: i, tags: [a, b], notTags: [c, b]}", ".notTags", []string{"no machine", "remove one"}},
	{"architecture of Docker", "{image: i, architecture: linux/AMD64}", ".architecture", []string{"amd64"}},
	{"architecture of a VM", "{image: i, dynamicLXD: true, architecture: amd64}", ".architecture", []string{"bare metal", "tags"}},
	{"an unknown storage layout", "{image: i, storage: {layout: zfs}}", ".storage.layout", []string{"flat", "lvm"}},
	{"storage without a layout", "{image: i, storage: {}}", ".storage.layout", []string{"Required"}},
	{"storage of a VM", "{image: i, provisioningMode: lxd, storage: {layout: lvm}}", ".storage", []string{"bare metal", "lxdConfig"}},
	{"nothing to install on", "{image: i, storage: {layout: blank}}", ".storage.layout", []string{"deployInMemory"}},
	{"options of a custom layout", "{image: i, storage: {layout: custom, options: {root_size: 8G}}}", ".storage.layout", []string{"remove"}},
	{"an option that is no parameter", "{image: i, storage: {layout: flat, options: {root_device: '7'}}}", ".storage.options", []string{"rootDisk"}},
	{"an option of another layout", "{image: i, storage: {layout: flat, options: {vg_name: system}}}", ".storage.options", []string{"set layout to lvm"}},
	{"a cache of LVM", "{image: i, storage: {layout: lvm, options: {cache_mode: writeback}}}", ".storage.options", []string{"set layout to bcache"}},
	{"a size that is none", "{image: i, storage: {layout: lvm, options: {lv_size: 50GiB}}}", ".storage.options", []string{"50G"}},
	{"an unknown cache mode", "{image: i, storage: {layout: bcache, options: {cache_mode: none}}}", ".storage.options", []string{"writethrough"}},
	{"any root disk", "{image: i, storage: {layout: flat, rootDisk: {}}}", ".storage.rootDisk", []string{"at least 1"}},
	{"kernel's version", "{image: i, kernel: 6.8.0-45}", ".kernel", []string{"ga-24.04"}},
	{"empty pool", `{image: i, resourcePool: ""}`, ".resourcePool", []string{"at least 1"}},
	{"empty zone", `{image: i, failureDomain: ""}`, ".failureDomain", []string{"at least 1"}},
	{"unknown mode", "{image: i, provisioningMode: vm}", ".provisioningMode", []string{"bare-metal", "lxd"}},
	{"both modes", "{image: i, provisioningMode: bare-metal, dynamicLXD: true}", ".dynamicLXD", []string{"provisioningMode", "remove one"}},
	{"dynamicLXD is a string", `{image: i, dynamicLXD: "yes"}`, ".dynamicLXD", []string{"boolean"}},
	{"lxdConfig without a mode", "{image: i, lxdConfig: {}}", ".lxdConfig", []string{"set provisioningMode to lxd"}},
	{"lxdConfig on bare metal", "{image: i, provisioningMode: bare-metal, lxdConfig: {vmHost: a}}", ".lxdConfig", []string{"set provisioningMode to lxd"}},
	{"lxdConfig, dynamicLXD false", "{image: i, dynamicLXD: false, lxdConfig: {}}", ".lxdConfig", []string{"set provisioningMode to lxd"}},
	{"a VM with little memory", "{image: i, provisioningMode: lxd, minMemory: 2047}", ".minMemory", []string{"at least 2048"}},
	{"a VM by the short form with little memory", "{image: i, dynamicLXD: true, minMemory: 1024}", ".minMemory", []string{"at least 2048"}},
	{"a disk without a size", "{image: i, provisioningMode: lxd, lxdConfig: {disks: [{pool: p}]}}", ".lxdConfig.disks[0].size", []string{"Required"}},
	{"a disk of no size", "{image: i, provisioningMode: lxd, lxdConfig: {disks: [{size: '0'}]}}", ".lxdConfig.disks[0].size", []string{"digits only"}},
	{"a device named as a disk", "{image: i, provisioningMode: lxd, lxdConfig: {devices: [{name: disk1, type: gpu}]}}", ".lxdConfig.devices[0].name", []string{"not root"}},
	{"a device that is a disk", "{image: i, provisioningMode: lxd, lxdConfig: {devices: [{name: d, type: disk}]}}", ".lxdConfig.devices[0].type", []string{"gpu"}},
	{"a device with two types", "{image: i, provisioningMode: lxd, lxdConfig: {devices: [{name: d, type: gpu, properties: {type: disk}}]}}", ".lxdConfig.devices[0].properties", []string{"field of its own"}},
	{"a VM with a small disk", "{image: i, provisioningMode: lxd, minDiskSize: 7}", ".minDiskSize", []string{"at least 8"}},
	{"size of a disk with a unit", "{image: i, dynamicLXD: true, lxdConfig: {storage: {size: 40GB}}}", ".lxdConfig.storage.size", []string{"digits only"}},
	{"size of a disk is zero", `{image: i, dynamicLXD: true, lxdConfig: {storage: {size: "0"}}}`, ".lxdConfig.storage.size", []string{"digits only"}},
	{"size of a disk is a number", "{image: i, dynamicLXD: true, lxdConfig: {storage: {size: 40}}}", ".lxdConfig.storage.size", []string{"string"}},
	{"size of a disk is too small", `{image: i, dynamicLXD: true, lxdConfig: {storage: {size: "7"}}}`, ".lxdConfig.storage.size", []string{"at least 8"}},
	{"storage pool with a slash", "{image: i, dynamicLXD: true, lxdConfig: {storage: {pool: a/b}}}", ".lxdConfig.storage.pool", []string{"LXD storage pool"}},
	{"bridge with a long name", "{image: i, dynamicLXD: true, lxdConfig: {network: {bridge: a-bridge-too-far}}}", ".lxdConfig.network.bridge", []string{"15"}},
	{"bridge with a space", "{image: i, dynamicLXD: true, lxdConfig: {network: {bridge: br 0}}}", ".lxdConfig.network.bridge", []string{"for example br0"}},
	{
		"bridge and devices",
		"{image: i, dynamicLXD: true, lxdConfig: {network: {bridge: br0, devices: [{name: eth0, bridge: br0}]}}}",
		".lxdConfig.network",
		[]string{"bridge", "devices", "not both"},
	},
	{"no devices", "{image: i, dynamicLXD: true, lxdConfig: {network: {devices: []}}}", ".lxdConfig.network.devices", []string{"at least 1"}},
	{"a device on nothing", "{image: i, dynamicLXD: true, lxdConfig: {network: {devices: [{name: eth0}]}}}", ".lxdConfig.network.devices[0]", []string{"bridge", "subnet"}},
	{
		"a device on two things",
		"{image: i, dynamicLXD: true, lxdConfig: {network: {devices: [{name: eth0, bridge: br0, subnet: 10.0.0.0/8}]}}}",
		".lxdConfig.network.devices[0]",
		[]string{"not both"},
	},
	{"a device without a name", "{image: i, dynamicLXD: true, lxdConfig: {network: {devices: [{bridge: br0}]}}}", ".lxdConfig.network.devices[0].name", []string{"Required"}},
	{"a device with a bad name", "{image: i, dynamicLXD: true, lxdConfig: {network: {devices: [{name: Eth_0, bridge: br0}]}}}", ".lxdConfig.network.devices[0].name", []string{"for example eth1"}},
	{"two devices of one name", "{image: i, dynamicLXD: true, lxdConfig: {network: {devices: [{name: a, bridge: b}, {name: a, bridge: c}]}}}", ".lxdConfig.network.devices[1]", []string{"Duplicate"}},
	{"a device on an address", "{image: i, dynamicLXD: true, lxdConfig: {network: {devices: [{name: a, subnet: 10.77.0.1}]}}}", ".lxdConfig.network.devices[0].subnet", []string{"CIDR"}},
	{"devices out of order", "{image: i, dynamicLXD: true, lxdConfig: {network: {devices: [{name: eth1, bridge: b}, {name: eth0, bridge: c}]}}}", ".lxdConfig.network.devices", []string{"alphabetical order"}},
	{"the last device out of order", "{image: i, dynamicLXD: true, lxdConfig: {network: {devices: [{name: a, bridge: b}, {name: b, bridge: b}, {name: c, bridge: b}, {name: d, bridge: b}, {name: e, bridge: b}, {name: f, bridge: b}, {name: h, bridge: b}, {name: g, bridge: b}]}}}", ".lxdConfig.network.devices", []string{"alphabetical order"}},
	{"a device with the name of a disk", "{image: i, dynamicLXD: true, lxdConfig: {network: {devices: [{name: root, bridge: br0}]}}}", ".lxdConfig.network.devices[0].name", []string{"disks"}},
	{"a link mode that MAAS does not know", "{image: i, dynamicLXD: true, lxdConfig: {network: {devices: [{name: eth0, bridge: br0, linkMode: slaac}]}}}", ".lxdConfig.network.devices[0].linkMode", []string{"auto", "link_up"}},
	{"two devices that carry the address", "{image: i, dynamicLXD: true, staticIP: 10.0.0.5, lxdConfig: {network: {devices: [{name: a, bridge: b, linkMode: static}, {name: b, bridge: c, linkMode: static}]}}}", ".lxdConfig.network.devices", []string{"one static address"}},
	{"a device that carries no address", "{image: i, dynamicLXD: true, lxdConfig: {network: {devices: [{name: a, bridge: b, linkMode: static}]}}}", ".lxdConfig.network.devices", []string{"set staticIP or staticIPPoolRef"}},
	{"an address that no device carries", "{image: i, dynamicLXD: true, staticIP: 10.0.0.5, lxdConfig: {network: {devices: [{name: a, bridge: b, linkMode: dhcp}, {name: b, bridge: c}]}}}", ".lxdConfig.network.devices", []string{"linkMode static on one"}},
	{"antiAffinity of another word", "{image: i, dynamicLXD: true, lxdConfig: {antiAffinity: hard}}", ".lxdConfig.antiAffinity", []string{"Preferred", "Required"}},
	{"project with a slash", "{image: i, dynamicLXD: true, lxdConfig: {project: a/b}}", ".lxdConfig.project", []string{"'/'"}},
	{"interfaces of a VM", "{image: i, dynamicLXD: true, interfaces: [{name: eth0, mtu: 9000}]}", ".interfaces", []string{"lxdConfig.network"}},
	{"a bond without parts", "{image: i, interfaces: [{name: bond0, type: bond}]}", ".interfaces[0]", []string{"both type and parents"}},
	{"a card with parts", "{image: i, interfaces: [{name: eth0, parents: [eth1]}]}", ".interfaces[0]", []string{"both type and parents"}},
	{"a type that MAAS does not make", "{image: i, interfaces: [{name: t0, type: tun, parents: [eth1]}]}", ".interfaces[0].type", []string{"bond", "vlan", "bridge"}},
	{"a VLAN without a tag", "{image: i, interfaces: [{name: v, type: vlan, parents: [eth0]}]}", ".interfaces[0].vid", []string{"vid"}},
	{"a bond with a tag", "{image: i, interfaces: [{name: b, type: bond, vid: 5, parents: [eth0]}]}", ".interfaces[0].vid", []string{"type vlan"}},
	{"a tag that is none", "{image: i, interfaces: [{name: v, type: vlan, vid: 4095, parents: [eth0]}]}", ".interfaces[0].vid", []string{"4094"}},
	{"a bridge with two parts", "{image: i, interfaces: [{name: br0, type: bridge, parents: [eth0, eth1]}]}", ".interfaces[0].parents", []string{"one parent"}},
	{"a long name for a bond", "{image: i, interfaces: [{name: bond-of-the-storage, type: bond, parents: [eth0]}]}", ".interfaces[0].name", []string{"15 characters"}},
	{"an interface with a space", "{image: i, interfaces: [{name: eth 0, mtu: 9000}]}", ".interfaces[0].name", []string{"MAC address or tag"}},
	{"two interfaces of one name", "{image: i, interfaces: [{name: eth0, mtu: 9000}, {name: eth0, mtu: 1500}]}", ".interfaces[1]", []string{"Duplicate"}},
	{"a small MTU", "{image: i, interfaces: [{name: eth0, mtu: 500}]}", ".interfaces[0].mtu", []string{"552"}},
	{"a bridge with parameters of a bond", "{image: i, interfaces: [{name: br0, type: bridge, parents: [eth0], parameters: {bond_mode: 802.3ad}}]}", ".interfaces[0].parameters", []string{"bridge_... of a bridge"}},
	{"a parameter that MAAS lacks", "{image: i, interfaces: [{name: b, type: bond, parents: [eth0], parameters: {bond_speed: '1'}}]}", ".interfaces[0].parameters", []string{"bond_miimon"}},
	{"a parameter without a value", "{image: i, interfaces: [{name: b, type: bond, parents: [eth0], parameters: {bond_mode: 'a b'}}]}", ".interfaces[0].parameters[bond_mode]", []string{"a word or a number"}},
	{"an interface that carries no address", "{image: i, interfaces: [{name: eth0, linkMode: static}]}", ".interfaces", []string{"set staticIP or staticIPPoolRef"}},
	{"two interfaces that carry the address", "{image: i, staticIP: 10.0.0.5, interfaces: [{name: eth0, linkMode: static}, {name: eth1, linkMode: static}]}", ".interfaces", []string{"one static address"}},
	{"an address that no interface carries", "{image: i, staticIP: 10.0.0.5, interfaces: [{name: eth0, linkMode: dhcp}]}", ".interfaces", []string{"linkMode static"}},
	{"an interface's subnet is an address", "{image: i, interfaces: [{name: eth0, subnet: 10.0.0.5}]}", ".interfaces[0].subnet", []string{"CIDR"}},
	{"staticIP is a name", "{image: i, staticIP: api.maas}", ".staticIP", []string{"IP address"}},
	{"staticIP with a prefix length", "{image: i, staticIP: 10.77.0.50/24}", ".staticIP", []string{"without prefix length"}},
	{"staticIP out of range", "{image: i, staticIP: 10.77.0.256}", ".staticIP", []string{"IP address"}},
	{
		"an address and a pool",
		"{image: i, staticIP: 10.77.0.50, staticIPPoolRef: {apiGroup: ipam.cluster.x-k8s.io, kind: InClusterIPPool, name: p}}",
		".staticIPPoolRef",
		[]string{"staticIP", "mutually exclusive"},
	},
	{"an unknown way to erase disks", "{image: i, release: {erase: shred}}", ".release.erase", []string{"none", "quick", "secure", "full"}},
	{"a machine that is kept and erased", "{image: i, release: {erase: quick, keep: {}}}", ".release.keep", []string{"erase: none", "remove one"}},
	{"a machine that is kept for ever", "{image: i, release: {keep: {timeoutSeconds: 86401}}}", ".release.keep.timeoutSeconds", []string{"86400"}},
	{"a machine that is kept for a moment", "{image: i, release: {keep: {timeoutSeconds: 59}}}", ".release.keep.timeoutSeconds", []string{"60"}},
	{"erase is a boolean", "{image: i, release: {erase: true}}", ".release.erase", []string{"string"}},
	{"release of a VM", "{image: i, provisioningMode: lxd, release: {erase: quick}}", ".release", []string{"bare metal", "remove release"}},
	{"release of a VM by the short form", "{image: i, dynamicLXD: true, release: {erase: none}}", ".release", []string{"bare metal", "remove release"}},
	{"empty release of a VM", "{image: i, provisioningMode: lxd, release: {}}", ".release", []string{"bare metal", "remove release"}},
	{"a pool without a kind", "{image: i, staticIPPoolRef: {apiGroup: ipam.cluster.x-k8s.io, name: p}}", ".staticIPPoolRef.kind", []string{"Required"}},
}

// badTemplateMachines are bad in a template only.
var badTemplateMachines = []badObject{
	{"providerID in a template", "{image: i, systemID: abc, providerID: 'maas://z/abc'}", "", []string{"providerID", "remove it"}},
	{"systemID in a template", "{image: i, systemID: abc}", "", []string{"systemID", "tags or resourcePool"}},
}

// badMachineIDs are bad in a machine, and can't be in a template anyhow.
var badMachineIDs = []badObject{
	{"systemID is a hostname", "{image: i, systemID: node-1.maas}", ".systemID", []string{"not a hostname"}},
	{"providerID of another provider", "{image: i, providerID: 'aws:///z/i-1'}", ".providerID", []string{"leave it empty"}},
	{"providerID without a zone", "{image: i, systemID: abc, providerID: 'maas://abc'}", ".providerID", []string{"maas://<zone>/<system id>"}},
	{"providerID without systemID", "{image: i, providerID: 'maas://z/abc'}", ".providerID", []string{"set by the controller", "remove providerID"}},
	{"providerID of another machine", "{image: i, systemID: abc, providerID: 'maas://z/abd'}", ".providerID", []string{"ends in systemID"}},
	{"providerID that ends like systemID", "{image: i, systemID: bc, providerID: 'maas-lxd://z/abc'}", ".providerID", []string{"ends in systemID"}},
}

var badClusters = []badObject{
	{"domain with a scheme", "{dnsDomain: 'http://maas'}", ".dnsDomain", []string{"DNS domain"}},
	{"domain with an underscore", "{dnsDomain: my_maas}", ".dnsDomain", []string{"DNS domain"}},
	{"empty endpoint", "{dnsDomain: maas, controlPlaneEndpoint: {}}", ".controlPlaneEndpoint", []string{"at least 1"}},
	{"endpoint is a URL", "{dnsDomain: maas, controlPlaneEndpoint: {host: 'https://api'}}", ".controlPlaneEndpoint.host", []string{"without scheme"}},
	{"endpoint with a port in the host", "{dnsDomain: maas, controlPlaneEndpoint: {host: 'api:6443'}}", ".controlPlaneEndpoint.host", []string{"port"}},
	{"port below zero", "{dnsDomain: maas, controlPlaneEndpoint: {port: -1}}", ".controlPlaneEndpoint.port", []string{"greater than or equal to 0"}},
	{"a virtual IP without a domain, nor a host", "{virtualIP: {address: 10.0.0.5}, controlPlaneEndpoint: {host: '', port: 0}}", ".dnsDomain", []string{"virtualIP needs dnsDomain"}},
	{"port too high", "{dnsDomain: maas, controlPlaneEndpoint: {host: a, port: 70000}}", ".controlPlaneEndpoint.port", []string{"65535"}},
	{"port is a string", "{dnsDomain: maas, controlPlaneEndpoint: {host: a, port: '6443'}}", ".controlPlaneEndpoint.port", []string{"integer"}},
	{"a virtual IP of no kind", "{dnsDomain: maas, virtualIP: {}}", ".virtualIP", []string{"either address or subnet"}},
	{"a virtual IP of both kinds", "{dnsDomain: maas, virtualIP: {address: 10.0.0.5, subnet: 10.0.0.0/24}}", ".virtualIP", []string{"not both"}},
	{"a virtual IP with a prefix length", "{dnsDomain: maas, virtualIP: {address: 10.0.0.5/24}}", ".virtualIP.address", []string{"without prefix length"}},
	{"a virtual IP in an address", "{dnsDomain: maas, virtualIP: {subnet: 10.0.0.0}}", ".virtualIP.subnet", []string{"CIDR"}},
	{"a virtual IP for VM hosts", "{dnsDomain: maas, lxdControlPlaneCluster: true, virtualIP: {address: 10.0.0.5}}", ".virtualIP", []string{"lxdControlPlaneCluster", "dnsDomain alone"}},
	{"a virtual IP without a domain", "{virtualIP: {address: 10.0.0.5}, controlPlaneEndpoint: {host: 10.0.0.5}}", ".dnsDomain", []string{"virtualIP needs dnsDomain"}},
	{"a virtual IP beside another host", "{dnsDomain: maas, virtualIP: {address: 10.0.0.5}, controlPlaneEndpoint: {host: 10.0.0.6}}", ".virtualIP.address", []string{"differ", "remove virtualIP"}},
	{"a virtual IP beside a host elsewhere", "{dnsDomain: maas, virtualIP: {subnet: 10.0.0.0/24}, controlPlaneEndpoint: {host: 10.0.1.6}}", ".virtualIP.subnet", []string{"not in virtualIP.subnet", "remove virtualIP"}},
	{"a virtual IP beside a name", "{dnsDomain: maas, virtualIP: {subnet: 'fd00::/64'}, controlPlaneEndpoint: {host: api.example.com}}", ".virtualIP.subnet", []string{"not in virtualIP.subnet"}},
	{"no failure domains", "{dnsDomain: maas, failureDomains: []}", ".failureDomains", []string{"at least 1"}},
	{"the same failure domain twice", "{dnsDomain: maas, failureDomains: [a, b, a]}", ".failureDomains[2]", []string{"Duplicate"}},
	{"empty failure domain", `{dnsDomain: maas, failureDomains: [""]}`, ".failureDomains[0]", []string{"at least 1"}},
	{"failure domains as one string", "{dnsDomain: maas, failureDomains: 'a,b'}", ".failureDomains", []string{"array"}},
	{"preferred interface without a name", "{dnsDomain: maas, preferredInterfaces: [eth0, '']}", ".preferredInterfaces[1]", []string{"at least 1"}},
	{"preferred subnet is an address", "{dnsDomain: maas, preferredSubnets: [10.0.0.0/8, 10.77.0.1]}", ".preferredSubnets[1]", []string{"CIDRs"}},
	{"credentials without a name", "{dnsDomain: maas, credentialsRef: {}}", ".credentialsRef.name", []string{"Required"}},
	{"credentials with an empty name", `{dnsDomain: maas, credentialsRef: {name: ""}}`, ".credentialsRef.name", []string{"at least 1"}},
	{"hosts prepared in no host cluster", "{dnsDomain: maas, lxdConfig: {}}", ".lxdConfig", []string{"set lxdControlPlaneCluster to true"}},
	{"hosts prepared, host cluster false", "{dnsDomain: maas, lxdControlPlaneCluster: false, lxdConfig: {}}", ".lxdConfig", []string{"set lxdControlPlaneCluster to true"}},
	{"unknown storage driver", "{dnsDomain: maas, lxdControlPlaneCluster: true, lxdConfig: {storageBackend: ceph}}", ".lxdConfig.storageBackend", []string{"zfs", "dir"}},
	{"size of the pool with a unit", "{dnsDomain: maas, lxdControlPlaneCluster: true, lxdConfig: {storageSize: 50GB}}", ".lxdConfig.storageSize", []string{"digits only"}},
	{"size of the pool is a number", "{dnsDomain: maas, lxdControlPlaneCluster: true, lxdConfig: {storageSize: 50}}", ".lxdConfig.storageSize", []string{"string"}},
	{"host bridge with a bad name", "{dnsDomain: maas, lxdControlPlaneCluster: true, lxdConfig: {networkBridge: br/0}}", ".lxdConfig.networkBridge", []string{"Linux bridge"}},
	{"credentials of the hosts without a name", "{dnsDomain: maas, lxdControlPlaneCluster: true, lxdConfig: {credentialsRef: {}}}", ".lxdConfig.credentialsRef.name", []string{"Required"}},
	{"empty zone of the hosts", `{dnsDomain: maas, lxdControlPlaneCluster: true, lxdConfig: {zone: ""}}`, ".lxdConfig.zone", []string{"at least 1"}},
}

// directHost are the fields that a host needs of which LXD is asked itself.
const directHost = "address: 10.77.0.11, serverCertificate: '-----BEGIN CERTIFICATE-----', credentialsRef: {name: lxd}"

var badLXDHosts = []badObject{
	{"nothing", "{}", "", []string{"address and serverCertificate are required"}},
	{"no certificate", "{address: 10.77.0.11, credentialsRef: {name: lxd}}", "", []string{"serverCertificate", "server.crt"}},
	{"no address", "{serverCertificate: '-----BEGIN CERTIFICATE-----', credentialsRef: {name: lxd}}", "", []string{"address"}},
	{"no credentials", "{address: 10.77.0.11, serverCertificate: '-----BEGIN CERTIFICATE-----'}", ".credentialsRef", []string{"tls.crt", "tls.key"}},
	{"address with a scheme", "{" + directHost + ", address: 'https://10.77.0.11'}", ".address", []string{"without https://"}},
	{"IPv6 address without brackets", "{" + directHost + ", address: 'fd00::11'}", ".address", []string{"brackets"}},
	{"certificate in another form", "{" + directHost + ", serverCertificate: MIIB}", ".serverCertificate", []string{"PEM"}},
	{"project with a slash", "{" + directHost + ", project: a/b}", ".project", []string{"'/'"}},
	{"subnet is an address", "{" + directHost + ", subnet: 10.77.0.11}", ".subnet", []string{"CIDR"}},
	{"bridge with a bad name", "{" + directHost + ", networkBridge: br/0}", ".networkBridge", []string{"Linux bridge"}},
	{"no cores promised", "{" + directHost + ", overCommit: {cpuPercent: 0}}", ".overCommit.cpuPercent", []string{"greater than or equal to 1"}},
	{"too much memory promised", "{" + directHost + ", overCommit: {memoryPercent: 1001}}", ".overCommit.memoryPercent", []string{"1000"}},
	{"the same tag twice", "{" + directHost + ", tags: [a, a]}", ".tags[1]", []string{"Duplicate"}},
	{"credentials without a name", "{" + directHost + ", maasCredentialsRef: {}}", ".maasCredentialsRef.name", []string{"Required"}},
	{"a device of no type", "{" + directHost + ", allowedDevices: [{properties: {vendorid: ffff}}]}", ".allowedDevices[0].type", []string{"Required"}},
	{"a device of another type", "{" + directHost + ", allowedDevices: [{type: disk}]}", ".allowedDevices[0].type", []string{"gpu"}},
	{"a device with two types", "{" + directHost + ", allowedDevices: [{type: gpu, properties: {type: disk}}]}", ".allowedDevices[0].properties", []string{"field of its own"}},
	{"a VM host without an id", "{vmHost: {systemID: abc}}", ".vmHost.id", []string{"Required"}},
	{"a VM host with credentials alone", "{vmHost: {id: 1}, credentialsRef: {name: lxd}}", ".credentialsRef", []string{"address and serverCertificate"}},
}

var badRemediations = []badObject{
	{"negative number of tries", "{powerCycle: {tries: -1}}", ".powerCycle.tries", []string{"greater than or equal to 0"}},
	{"too many tries", "{powerCycle: {tries: 6}}", ".powerCycle.tries", []string{"less than or equal to 5"}},
	{"no time to start", "{powerCycle: {timeoutSeconds: 5}}", ".powerCycle.timeoutSeconds", []string{"greater than or equal to 60"}},
	{"more than a day", "{powerCycle: {timeoutSeconds: 86401}}", ".powerCycle.timeoutSeconds", []string{"less than or equal to 86400"}},
	{"a time with a unit", "{powerCycle: {timeoutSeconds: 15m}}", ".powerCycle.timeoutSeconds", []string{"integer"}},
}

func TestBadObjectsAreRefused(t *testing.T) {
	for _, tt := range []struct {
		kind  string
		path  string
		wrap  func(string) string
		cases [][]badObject
	}{
		{"MaasMachine", "spec", nil, [][]badObject{badMachines, badMachineIDs}},
		{"MaasMachineTemplate", "spec.template.spec", inTemplate, [][]badObject{badMachines, badTemplateMachines}},
		{"MaasCluster", "spec", nil, [][]badObject{badClusters}},
		{"MaasClusterTemplate", "spec.template.spec", inTemplate, [][]badObject{badClusters}},
		{"LXDHost", "spec", nil, [][]badObject{badLXDHosts}},
		{"MaasRemediation", "spec", nil, [][]badObject{badRemediations}},
		{"MaasRemediationTemplate", "spec.template.spec", inTemplate, [][]badObject{badRemediations}},
	} {
		for _, bad := range tt.cases {
			for _, c := range bad {
				t.Run(tt.kind+"/"+c.name, func(t *testing.T) {
					spec := c.spec
					if tt.wrap != nil {
						spec = tt.wrap(spec)
					}
					err := api.Create(t.Context(), object(t, tt.kind, spec), client.DryRunAll)
					checkRefused(t, err, tt.path+c.field, c.mentions...)
				})
			}
		}
	}
}

func TestTemplatesNeedASpec(t *testing.T) {
	for _, kind := range []string{"MaasMachineTemplate", "MaasClusterTemplate"} {
		err := api.Create(t.Context(), object(t, kind, "{}"), client.DryRunAll)
		checkRefused(t, err, "spec.template", "Required")
		err = api.Create(t.Context(), object(t, kind, "{template: {}}"), client.DryRunAll)
		checkRefused(t, err, "spec.template.spec", "Required")
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
