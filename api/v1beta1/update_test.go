// SPDX-License-Identifier: Apache-2.0

package v1beta1_test

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capmaas/cluster-api-provider-maas/test/golden"
)

// update is a change of an object from one spec to another.
type update struct {
	name     string
	from, to string
	field    string // below spec; not used when the change is allowed
}

const vm = "image: i, provisioningMode: lxd, failureDomain: a, resourcePool: p, minCPU: 2, minMemory: 4096, minDiskSize: 20, tags: [t]"

var refusedMachineUpdates = []update{
	{"image", "{" + vm + "}", "{" + vm + ", image: j}", ".image"},
	{"zone", "{" + vm + "}", "{" + vm + ", failureDomain: b}", ".failureDomain"},
	{"zone removed", "{image: i, failureDomain: a}", "{image: i}", ".failureDomain"},
	{"pool", "{" + vm + "}", "{" + vm + ", resourcePool: q}", ".resourcePool"},
	{"cores", "{" + vm + "}", "{" + vm + ", minCPU: 4}", ".minCPU"},
	{"memory", "{" + vm + "}", "{" + vm + ", minMemory: 8192}", ".minMemory"},
	{"disk", "{" + vm + "}", "{" + vm + ", minDiskSize: 40}", ".minDiskSize"},
	{"tags", "{" + vm + "}", "{" + vm + ", tags: [t, u]}", ".tags"},
	{"tags removed", "{image: i, tags: [t]}", "{image: i}", ".tags"},
	{"notTags", "{image: i, notTags: [t]}", "{image: i, notTags: [u]}", ".notTags"},
	{"architecture", "{image: i}", "{image: i, architecture: arm64}", ".architecture"},
	{"kernel", "{image: i, kernel: ga-24.04}", "{image: i, kernel: hwe-24.04}", ".kernel"},
	{"storage", "{image: i}", "{image: i, storage: {layout: lvm}}", ".storage"},
	{"options of the storage", "{image: i, storage: {layout: lvm}}", "{image: i, storage: {layout: lvm, options: {vg_name: v}}}", ".storage"},
	{"deployInMemory", "{image: i}", "{image: i, deployInMemory: true}", ".deployInMemory"},
	{"mode", "{image: i}", "{image: i, provisioningMode: lxd}", ".provisioningMode"},
	{"short form of the mode", "{image: i, dynamicLXD: true}", "{image: i}", ".dynamicLXD"},
	{"staticIP added", "{image: i}", "{image: i, staticIP: 10.0.0.1}", ".staticIP"},
	{"staticIP", "{image: i, staticIP: 10.0.0.2}", "{image: i, staticIP: 10.0.0.1}", ".staticIP"},
	{"interfaces added", "{image: i}", "{image: i, interfaces: [{name: eth0, mtu: 9000}]}", ".interfaces"},
	{"interfaces", "{image: i, interfaces: [{name: eth0, mtu: 9000}]}", "{image: i, interfaces: [{name: eth0, mtu: 1500}]}", ".interfaces"},
	{"staticIPPoolRef", "{image: i}", "{image: i, staticIPPoolRef: {apiGroup: a.b, kind: P, name: p}}", ".staticIPPoolRef"},
	{"resources", "{image: i, extendedResources: {a.b/c: 1}}", "{image: i, extendedResources: {a.b/c: 2}}", ".extendedResources"},
	{"resources added", "{image: i}", "{image: i, extendedResources: {a.b/c: 1}}", ".extendedResources"},
	{"lxdConfig", "{" + vm + "}", "{" + vm + ", lxdConfig: {vmHost: a}}", ".lxdConfig"},
	{"release of a VM", "{" + vm + "}", "{" + vm + ", release: {erase: full}}", ".release"},
	{"inside lxdConfig", "{" + vm + ", lxdConfig: {vmHost: a}}", "{" + vm + ", lxdConfig: {vmHost: b}}", ".lxdConfig"},
	{"systemID", "{image: i, systemID: abc}", "{image: i, systemID: abd}", ".systemID"},
	{"systemID removed", "{image: i, systemID: abc}", "{image: i}", ".systemID"},
	{"providerID", "{image: i, systemID: a, providerID: 'maas://z/a'}", "{image: i, systemID: a, providerID: 'maas://y/a'}", ".providerID"},
	{"providerID removed", "{image: i, systemID: a, providerID: 'maas://z/a'}", "{image: i, systemID: a}", ".providerID"},
	{"providerID before systemID", "{image: i}", "{image: i, providerID: 'maas://z/a'}", ".providerID"},
}

var allowedMachineUpdates = []update{
	{name: "systemID recorded", from: "{image: i}", to: "{image: i, systemID: abc}"},
	{name: "providerID recorded", from: "{image: i, systemID: abc}", to: "{image: i, systemID: abc, providerID: 'maas://z/abc'}"},
	{name: "both recorded at once", from: "{image: i}", to: "{image: i, systemID: abc, providerID: 'maas-lxd:///abc'}"},
	{name: "disks to be erased after all", from: "{image: i}", to: "{image: i, release: {erase: full}}"},
	{name: "disks to be erased otherwise", from: "{image: i, release: {erase: full}}", to: "{image: i, release: {erase: quick}}"},
	{name: "a machine to be kept after all", from: "{image: i}", to: "{image: i, release: {keep: {timeoutSeconds: 600}}}"},
	{name: "a machine not to be kept after all", from: "{image: i, release: {keep: {}}}", to: "{image: i, release: {erase: full}}"},
	{name: "disks not to be erased after all", from: "{image: i, release: {erase: secure}}", to: "{image: i}"},
	// What a typed client leaves out when it writes back what it read.
	{name: "empty values dropped", from: "{image: i, tags: [], notTags: [], dynamicLXD: false, deployInMemory: false}", to: "{image: i}"},
}

var refusedClusterUpdates = []update{
	{
		"domain", "{dnsDomain: maas, controlPlaneEndpoint: {host: a}}", "{dnsDomain: other, controlPlaneEndpoint: {host: a}}",
		".dnsDomain",
	},
	{
		"domain removed", "{dnsDomain: maas, controlPlaneEndpoint: {host: a}}", "{controlPlaneEndpoint: {host: a}}",
		".dnsDomain",
	},
	{ // An address may be reserved under the name in it.
		"domain of a virtual IP", "{dnsDomain: maas, virtualIP: {address: 10.0.0.5}}", "{dnsDomain: other}",
		".dnsDomain",
	},
	{
		"host of the endpoint emptied", "{dnsDomain: maas, controlPlaneEndpoint: {host: a, port: 1}}",
		"{dnsDomain: maas, controlPlaneEndpoint: {host: '', port: 1}}", ".controlPlaneEndpoint.host",
	},
	{
		"port of the endpoint emptied", "{dnsDomain: maas, controlPlaneEndpoint: {host: a, port: 1}}",
		"{dnsDomain: maas, controlPlaneEndpoint: {host: a, port: 0}}", ".controlPlaneEndpoint.port",
	},
	{
		"host of the endpoint", "{dnsDomain: maas, controlPlaneEndpoint: {host: a}}", "{dnsDomain: maas, controlPlaneEndpoint: {host: b}}",
		".controlPlaneEndpoint.host",
	},
	{
		"port of the endpoint", "{dnsDomain: maas, controlPlaneEndpoint: {host: a, port: 1}}", "{dnsDomain: maas, controlPlaneEndpoint: {host: a, port: 2}}",
		".controlPlaneEndpoint.port",
	},
	{
		"host cluster turned off", "{dnsDomain: maas, lxdControlPlaneCluster: true}", "{dnsDomain: maas, lxdControlPlaneCluster: false}",
		".lxdControlPlaneCluster",
	},
	{
		"host cluster removed", "{dnsDomain: maas, lxdControlPlaneCluster: true}", "{dnsDomain: maas}",
		".lxdControlPlaneCluster",
	},
	{"Cluster named later", "{}", "{clusterName: c1}", ".clusterName"},
	{"another Cluster", "{clusterName: c1}", "{clusterName: c2}", ".clusterName"},
	{"no Cluster any more", "{clusterName: c1}", "{}", ".clusterName"},
	{
		"endpoint removed", "{dnsDomain: maas, controlPlaneEndpoint: {host: a, port: 1}}", "{dnsDomain: maas}",
		".controlPlaneEndpoint.host",
	},
}

// virtualIPUpdate is a change of a cluster that has its endpoint, from one kind of endpoint to another, or within one.
func virtualIPUpdate(name, host, from, to string) update {
	spec := func(virtualIP string) string {
		return "{dnsDomain: maas, controlPlaneEndpoint: {host: " + host + ", port: 6443}" + virtualIP + "}"
	}
	return update{name, spec(from), spec(to), ".virtualIP"}
}

var refusedVirtualIPUpdates = []update{
	virtualIPUpdate("a virtual IP instead of a name", "a.maas", "", ", virtualIP: {subnet: 10.0.0.0/24}"),
	virtualIPUpdate("a virtual IP instead of an address of one's own", "10.0.0.5", "", ", virtualIP: {address: 10.0.0.5}"),
	virtualIPUpdate("no virtual IP any more", "10.0.0.5", ", virtualIP: {address: 10.0.0.5}", ""),
	virtualIPUpdate("another subnet", "10.0.0.5", ", virtualIP: {subnet: 10.0.0.0/24}", ", virtualIP: {subnet: 10.0.0.0/16}"),
	virtualIPUpdate("the address that MAAS chose", "10.0.0.5", ", virtualIP: {subnet: 10.0.0.0/24}", ", virtualIP: {address: 10.0.0.5}"),
}

var allowedClusterUpdates = []update{
	{name: "virtual IP recorded", from: "{dnsDomain: maas, virtualIP: {subnet: 10.0.0.0/24}}", to: "{dnsDomain: maas, virtualIP: {subnet: 10.0.0.0/24}, controlPlaneEndpoint: {host: 10.0.0.5, port: 6443}}"},
	{name: "virtual IP recorded as it was written", from: "{dnsDomain: maas, virtualIP: {address: 'FD00::5'}}", to: "{dnsDomain: maas, virtualIP: {address: 'FD00::5'}, controlPlaneEndpoint: {host: 'FD00::5', port: 6443}}"},
	{name: "virtual IP corrected before there is an endpoint", from: "{dnsDomain: maas, virtualIP: {address: 10.0.0.5}}", to: "{dnsDomain: maas, virtualIP: {address: 10.0.0.6}}"},
	{name: "no virtual IP after all", from: "{dnsDomain: maas, virtualIP: {subnet: 10.0.0.0/24}}", to: "{dnsDomain: maas}"},
	{name: "a typo in the domain before there is an endpoint", from: "{dnsDomain: mass}", to: "{dnsDomain: maas}"},
	{name: "the control-plane provider's endpoint taken", from: "{}", to: "{controlPlaneEndpoint: {host: 192.0.2.10, port: 30443}}"},
	{name: "its port taken instead of another", from: "{controlPlaneEndpoint: {port: 6443}}", to: "{controlPlaneEndpoint: {host: 192.0.2.10, port: 30443}}"},
	{name: "endpoint recorded in an empty one", from: "{dnsDomain: maas, controlPlaneEndpoint: {host: '', port: 0}}", to: "{dnsDomain: maas, controlPlaneEndpoint: {host: a.maas, port: 6443}}"},
	{name: "endpoint recorded", from: "{dnsDomain: maas}", to: "{dnsDomain: maas, controlPlaneEndpoint: {host: a.maas, port: 6443}}"},
	{name: "host recorded beside a port", from: "{dnsDomain: maas, controlPlaneEndpoint: {port: 443}}", to: "{dnsDomain: maas, controlPlaneEndpoint: {host: a.maas, port: 443}}"},
	{name: "port recorded beside a host", from: "{controlPlaneEndpoint: {host: a}}", to: "{controlPlaneEndpoint: {host: a, port: 6443}}"},
	{name: "failure domains", from: "{dnsDomain: maas, failureDomains: [a]}", to: "{dnsDomain: maas, failureDomains: [b, c]}"},
	{name: "preferred interfaces", from: "{dnsDomain: maas}", to: "{dnsDomain: maas, preferredInterfaces: [api]}"},
	{name: "preferred subnets", from: "{dnsDomain: maas}", to: "{dnsDomain: maas, preferredSubnets: [10.0.0.0/8]}"},
	{name: "credentials", from: "{dnsDomain: maas, credentialsRef: {name: a}}", to: "{dnsDomain: maas, credentialsRef: {name: b}}"},
	{
		name: "hosts prepared otherwise", from: "{dnsDomain: maas, lxdControlPlaneCluster: true, lxdConfig: {zone: z, storageSize: '50'}}",
		to: "{dnsDomain: maas, lxdControlPlaneCluster: true, lxdConfig: {resourcePool: p, credentialsRef: {name: a}}}",
	},
	{name: "made a host cluster", from: "{dnsDomain: maas}", to: "{dnsDomain: maas, lxdControlPlaneCluster: true, lxdConfig: {zone: z}}"},
}

var refusedLXDHostUpdates = []update{
	{"project", "{" + directHost + "}", "{" + directHost + ", project: other}", ".project"},
	{"made a VM host", "{" + directHost + "}", "{vmHost: {id: 1}}", ".vmHost"},
	{"no VM host any more", "{vmHost: {id: 1}}", "{" + directHost + "}", ".vmHost"},
	{"project of a prepared VM host", "{vmHost: {id: 1}, " + directHost + "}", "{vmHost: {id: 1}, " + directHost + ", project: other}", ".project"},
	{"another VM host", "{vmHost: {id: 1}}", "{vmHost: {id: 2}}", ".vmHost"},
}

var allowedLXDHostUpdates = []update{
	{name: "address and certificate", from: "{" + directHost + "}", to: "{" + directHost + ", address: 'lxd.example.com:9443', serverCertificate: '-----BEGIN CERTIFICATE----- x'}"},
	{name: "IPv6", from: "{" + directHost + "}", to: "{" + directHost + ", address: '[fd00::11]:8443', subnet: 'fd00::/64'}"},
	{name: "place", from: "{" + directHost + "}", to: "{" + directHost + ", zone: z, resourcePool: p, tags: [t], storagePool: s, networkBridge: br1, unschedulable: true, evacuate: true}"},
	{name: "devices", from: "{" + directHost + "}", to: "{" + directHost + ", allowedDevices: [{type: usb}, {type: pci, properties: {address: '0000:01:00.0'}}]}"},
	{name: "a VM host prepared for MAAS 4.0", from: "{vmHost: {id: 1}}", to: "{vmHost: {id: 1}, " + directHost + ", project: other, maasCredentialsRef: {name: maas}}"},
	{name: "machine of a VM host found", from: "{vmHost: {id: 1}}", to: "{vmHost: {id: 1, systemID: abc}, unschedulable: true, allowedNamespaces: ['*']}"},
}

// apply creates the object as it is before, and returns what the change of it leads to.
func (u update) apply(t *testing.T, kind string) error {
	t.Helper()
	before := object(t, kind, u.from)
	if err := api.Create(t.Context(), before); err != nil {
		t.Fatalf("creating the object to change: %v", err)
	}
	t.Cleanup(func() { _ = api.Delete(t.Context(), before) })
	after := before.DeepCopy()
	after.Object["spec"] = object(t, kind, u.to).Object["spec"]
	return api.Update(t.Context(), after, client.DryRunAll)
}

func TestBadUpdatesAreRefused(t *testing.T) {
	sentences := map[string]string{}
	for kind, updates := range map[string][]update{"MaasMachine": refusedMachineUpdates, "MaasCluster": append(refusedVirtualIPUpdates, refusedClusterUpdates...), "LXDHost": refusedLXDHostUpdates} {
		for _, u := range updates {
			name := kind + ": " + u.name
			sentences[name] = "spec" + u.field + ": " + refusal(t, name, u.apply(t, kind), "spec"+u.field)
		}
	}
	golden.Sentences(t, "api-update.txt", sentences)
}

func TestGoodUpdatesAreAccepted(t *testing.T) {
	for kind, updates := range map[string][]update{"MaasMachine": allowedMachineUpdates, "MaasCluster": allowedClusterUpdates, "LXDHost": allowedLXDHostUpdates} {
		for _, u := range updates {
			t.Run(kind+"/"+u.name, func(t *testing.T) {
				if err := u.apply(t, kind); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
