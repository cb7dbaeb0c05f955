// SPDX-License-Identifier: Apache-2.0

package specs

// bases are specs of each kind from which others are made: one of each mode, in full, and the least.
var bases = map[string]map[string]string{
	"MaasMachine": {
		"the least": "image: i",
		"bare metal": `
image: ubuntu/jammy
maasClusterName: site-a
failureDomain: zone-a
resourcePool: default
minCPU: 2
minMemory: 4096
minDiskSize: 20
extendedResources: {nvidia.com/gpu: 8}
tags: [a]
notTags: [b]
architecture: amd64
kernel: ga-24.04
deployInMemory: true
provisioningMode: bare-metal
staticIP: 10.77.0.50
interfaces:
- {name: bond0, type: bond, parents: [eno1], parameters: {bond_mode: 802.3ad}, mtu: 1500, subnet: 10.77.0.0/24, linkMode: static}
storage:
  layout: lvm
  rootDisk: {tags: [ssd], serial: s, minSize: 10}
  options: {vg_name: v}
checks:
  scripts: [memtester]
  parameters: {runtime: "60"}
  timeoutSeconds: 3600
  validForSeconds: 86400
  maxTesting: 2
  maxFailed: 2
release: {erase: quick}
`,
		"bare metal that is kept":  "{image: i, staticIPPoolRef: {apiGroup: a.b, kind: P, name: p}, release: {erase: none, keep: {timeoutSeconds: 600}}}",
		"bare metal with a VLAN":   "{image: i, interfaces: [{name: eno1.5, type: vlan, parents: [eno1], vid: 5}]}",
		"bare metal with a bridge": "{image: i, interfaces: [{name: br0, type: bridge, parents: [eno1], parameters: {bridge_fd: '4'}}]}",
		"one certain machine":      "{image: i, systemID: abc}",
		"recorded bare metal":      "{image: i, systemID: abc, providerID: 'maas://zone-a/abc'}",
		"VM": `
image: ubuntu/jammy
provisioningMode: lxd
staticIP: 10.77.0.50
tags: [a]
minMemory: 4096
minDiskSize: 20
lxdConfig:
  profile: p
  storage: {size: "20", pool: default}
  disks: [{size: "10", pool: default}]
  devices: [{name: gpu0, type: gpu, properties: {id: a}}]
  network:
    devices: [{name: eth0, subnet: 10.77.0.0/24, linkMode: static}]
  vmHost: lxd-a
  project: maas
  antiAffinity: Required
  commission: true
  secureBoot: true
`,
		"VM on a bridge":       "{image: i, dynamicLXD: true, lxdConfig: {network: {bridge: br0}}}",
		"VM with an interface": "{image: i, dynamicLXD: true, lxdConfig: {network: {devices: [{name: eth0, bridge: br0, linkMode: dhcp}]}}}",
		"bare metal in memory": "{image: i, deployInMemory: true, storage: {layout: flat, rootDisk: {serial: s}}}",
	},
	"MaasCluster": {
		"the least":       "{}",
		"of another's":    "{clusterName: c1, credentialsRef: {name: maas}}",
		"a name":          "{dnsDomain: maas.sim}",
		"own credentials": "{dnsDomain: maas.sim, credentialsRef: {name: maas}, failureDomains: [zone-a], preferredSubnets: [10.77.0.0/24], preferredInterfaces: [eth0]}",
		"endpoint":        "{dnsDomain: maas.sim, controlPlaneEndpoint: {host: api.example.com, port: 6443}}",
		"endpoint alone":  "{controlPlaneEndpoint: {host: api.example.com, port: 6443}}",
		"a port":          "{controlPlaneEndpoint: {port: 443}}",
		"virtual IP":      "{dnsDomain: maas.sim, virtualIP: {address: 10.77.0.20}}",
		"virtual IP that is reserved": `
dnsDomain: maas.sim
virtualIP: {subnet: 10.77.0.0/24}
controlPlaneEndpoint: {host: 10.77.0.20, port: 6443}
`,
		"host cluster": `
dnsDomain: maas.sim
lxdControlPlaneCluster: true
lxdConfig:
  storageBackend: btrfs
  storageSize: "20"
  networkBridge: br1
  zone: zone-a
  resourcePool: pool-a
  credentialsRef: {name: nodes}
`,
	},
	"LXDHost": {
		"direct": `
address: 10.77.0.11:8443
serverCertificate: "-----BEGIN CERTIFICATE----- a"
project: maas
credentialsRef: {name: lxd}
maasCredentialsRef: {name: maas}
zone: zone-a
resourcePool: pool-a
tags: [a]
storagePool: fast
networkBridge: br1
subnet: 10.77.0.0/24
nameservers: [10.77.0.2]
overCommit: {cpuPercent: 200, memoryPercent: 110}
allowedNamespaces: [team-a]
allowedDevices: [{type: usb, properties: {vendorid: a}}]
`,
		"direct, and closed": `
address: 10.77.0.11:8443
serverCertificate: "-----BEGIN CERTIFICATE----- a"
credentialsRef: {name: lxd}
unschedulable: false
evacuate: false
`,
		"VM host": "{vmHost: {id: 1, systemID: abc}}",
		"VM host that is prepared": `
vmHost: {id: 1, systemID: abc}
address: 10.77.0.11
serverCertificate: "-----BEGIN CERTIFICATE----- a"
credentialsRef: {name: lxd}
`,
	},
	"MaasRemediation": {"in full": "{powerCycle: {tries: 2, timeoutSeconds: 600}}", "the least": "{}"},
}

// samples are values of fields whose schema does not tell which are good: by kind and path, or by the name of the field.
var samples = map[string][]any{
	"MaasMachine.image":                            {"ubuntu/jammy", "custom/other"},
	"MaasMachine.systemID":                         {"abc", "abd"},
	"MaasMachine.providerID":                       {"maas://zone-a/abc", "maas://zone-b/abc", "maas-lxd://zone-a/abd"},
	"MaasMachine.minMemory":                        {2048, 8192},
	"MaasMachine.minDiskSize":                      {20, 40},
	"MaasMachine.extendedResources":                {object("nvidia.com/gpu", 8), object("nvidia.com/gpu", 4, "a.b/c", 1)},
	"MaasMachine.tags":                             {list("a"), list("a", "c"), list()},
	"MaasMachine.notTags":                          {list("b"), list("b", "d"), list()},
	"MaasMachine.architecture":                     {"amd64", "arm64/generic"},
	"MaasMachine.kernel":                           {"ga-24.04", "hwe-24.04"},
	"MaasMachine.staticIPPoolRef":                  {object("apiGroup", "a.b", "kind", "P", "name", "p")},
	"MaasMachine.interfaces":                       {list(object("name", "eth0", "mtu", 9000)), list(object("name", "eth1", "linkMode", "static"))},
	"MaasMachine.interfaces[].parents":             {list("eno1"), list("eno1", "eno2")},
	"MaasMachine.interfaces[].parameters":          {object("bond_mode", "802.3ad"), object("bond_mode", "balance-rr"), object("bridge_fd", "15")},
	"MaasMachine.interfaces[].type":                {"bond", "vlan", "bridge"},
	"MaasMachine.storage":                          {object("layout", "lvm"), object("layout", "flat")},
	"MaasMachine.storage.layout":                   {"flat", "lvm", "bcache", "blank"},
	"MaasMachine.storage.rootDisk.tags":            {list("ssd"), list("nvme")},
	"MaasMachine.storage.options":                  {object("vg_name", "v"), object("root_size", "50G"), object("cache_mode", "writeback")},
	"MaasMachine.checks":                           {object("scripts", list("memtester")), object("scripts", list("fio", "7z"))},
	"MaasMachine.checks.scripts":                   {list("memtester"), list("memtester", "fio")},
	"MaasMachine.checks.parameters":                {object("runtime", "60"), object("fio_runtime", "60", "runtime", "90")},
	"MaasMachine.lxdConfig":                        {object(), object("vmHost", "lxd-b")},
	"MaasMachine.lxdConfig.storage.size":           {"20", "40"},
	"MaasMachine.lxdConfig.disks":                  {list(object("size", "10")), list(object("size", "20"))},
	"MaasMachine.lxdConfig.disks[].size":           {"10", "20"},
	"MaasMachine.lxdConfig.devices":                {list(object("name", "gpu0", "type", "gpu")), list(object("name", "tpm0", "type", "tpm"))},
	"MaasMachine.lxdConfig.devices[].name":         {"gpu0", "gpu1"},
	"MaasMachine.lxdConfig.network":                {object("bridge", "br0"), object("devices", list(object("name", "eth0", "bridge", "br0")))},
	"MaasMachine.lxdConfig.network.devices":        {list(object("name", "eth0", "bridge", "br0")), list(object("name", "eth1", "subnet", "10.77.0.0/24"))},
	"MaasMachine.release":                          {object(), object("erase", "quick"), object("keep", object())},
	"MaasMachine.release.keep":                     {object(), object("timeoutSeconds", 60)},
	"MaasMachine.maasClusterName":                  {"site-a", "site-b"},
	"MaasCluster.clusterName":                      {"c1", "c2"},
	"MaasCluster.dnsDomain":                        {"maas.sim", "other.sim"},
	"MaasCluster.controlPlaneEndpoint":             {object("host", "api.example.com", "port", 6443), object("host", "10.77.0.20"), object("port", 443)},
	"MaasCluster.controlPlaneEndpoint.host":        {"api.example.com", "10.77.0.20", ""},
	"MaasCluster.controlPlaneEndpoint.port":        {6443, 443, 0},
	"MaasCluster.virtualIP":                        {object("address", "10.77.0.20"), object("address", "10.77.0.21"), object("subnet", "10.77.0.0/24")},
	"MaasCluster.virtualIP.address":                {"10.77.0.20", "10.77.0.21"},
	"MaasCluster.virtualIP.subnet":                 {"10.77.0.0/24", "10.77.0.0/25"},
	"MaasCluster.failureDomains":                   {list("zone-a"), list("zone-b", "zone-c")},
	"MaasCluster.preferredSubnets":                 {list("10.77.0.0/24"), list("10.78.0.0/24", "10.77.0.0/24")},
	"MaasCluster.preferredInterfaces":              {list("eth0"), list("eth1", "eth0")},
	"MaasCluster.lxdConfig":                        {object(), object("storageBackend", "dir"), object("zone", "zone-b")},
	"LXDHost.vmHost":                               {object("id", 1), object("id", 2)},
	"LXDHost.address":                              {"10.77.0.11:8443", "10.77.0.12"},
	"LXDHost.serverCertificate":                    {"-----BEGIN CERTIFICATE----- a", "-----BEGIN CERTIFICATE----- b"},
	"LXDHost.tags":                                 {list("a"), list("b"), list()},
	"LXDHost.nameservers":                          {list("10.77.0.2"), list("10.77.0.3"), list()},
	"LXDHost.allowedNamespaces":                    {list("team-a"), list("*"), list()},
	"LXDHost.allowedDevices":                       {list(object("type", "usb")), list(object("type", "gpu"), object("type", "usb")), list()},
	"LXDHost.overCommit":                           {object(), object("cpuPercent", 200)},
	"MaasRemediation.powerCycle":                   {object("tries", 0), object("tries", 3)},
	"MaasMachine.lxdConfig.devices[].type":         {"gpu", "tpm"},
	"MaasMachine.lxdConfig.network.devices[].name": {"eth0", "eth1", "eth2"},

	"credentialsRef":     {object("name", "some"), object("name", "other")},
	"maasCredentialsRef": {object("name", "some"), object("name", "other")},
	"staticIP":           {"10.77.0.50", "fd00:77::50"},
	"subnet":             {"10.77.0.0/24", "fd00:77::/64"},
	"bridge":             {"br0", "br1"},
	"networkBridge":      {"br1", "br2"},
	"storageSize":        {"20", "100"},
	"size":               {"20", "40"},
	"properties":         {object("id", "a"), object("id", "b"), object()},
	"apiGroup":           {"a.b", "c.d", "e.f"},
}

func list(items ...any) []any { return append([]any{}, items...) }

// object returns an object of names and values in turn.
func object(parts ...any) map[string]any {
	made := map[string]any{}
	for i := 0; i < len(parts); i += 2 {
		made[parts[i].(string)] = parts[i+1]
	}
	return made
}
