// SPDX-License-Identifier: Apache-2.0

package convert

import "strings"

// Field is a field of Spectro Cloud's API, in any version that was served, and its equivalent.
type Field struct {
	// Name is its path in the spec of a MaasCluster, or in that of a MaasMachine (of a MaasMachineTemplate:
	// spec.template.spec).
	Name string
	// Becomes is the path here. It is empty if there is no equivalent.
	Becomes string
}

// ClusterFields are those of a MaasCluster's spec.
var ClusterFields = []Field{
	{"dnsDomain", "dnsDomain"},
	{"controlPlaneEndpoint.host", "controlPlaneEndpoint.host"},
	{"controlPlaneEndpoint.port", "controlPlaneEndpoint.port"},
	{"failureDomains", "failureDomains"},
	{"lxdConfig.enabled", "lxdControlPlaneCluster"},
	{"lxdConfig.storageBackend", "lxdConfig.storageBackend"},
	{"lxdConfig.storageSize", "lxdConfig.storageSize"},
	{"lxdConfig.zone", "lxdConfig.zone"},
	{"lxdConfig.resourcePool", "lxdConfig.resourcePool"},
	{"lxdConfig.networkBridge", "lxdConfig.networkBridge"},
	{"lxdConfig.nicParent", "lxdConfig.networkBridge"},
	{"lxdConfig.nicType", ""},
	{"lxdConfig.skipNetworkUpdate", ""},
}

// MachineFields are those of the spec of a MaasMachine, or of a MaasMachineTemplate's machines.
var MachineFields = []Field{
	{"image", "image"},
	{"failureDomain", "failureDomain"},
	{"resourcePool", "resourcePool"},
	{"tags", "tags"},
	{"minCPU", "minCPU"},
	{"minMemory", "minMemory"},
	{"minDiskSize", "minDiskSize"},
	{"deployInMemory", "deployInMemory"},
	{"systemID", "systemID"},
	{"providerID", ""},
	{"parent", ""},
	{"lxd.enabled", "provisioningMode"},
	{"lxd.vmConfig.diskSize", "minDiskSize"},
	{"lxd.vmConfig.storagePool", "lxdConfig.storage.pool"},
	{"lxd.vmConfig.network", "lxdConfig.network.devices"},
	{"lxd.vmConfig.interfaceLinkModes", "lxdConfig.network.devices"},
	{"lxd.vmConfig.autoStart", ""},
	{"staticIP.ip", "staticIP"},
	{"staticIP.cidr", ""},
	{"staticIP.gateway", ""},
	{"staticIP.nameservers", ""},
}

// children returns the names of the fields of the mapping at a path.
func children(fields []Field, in string) []string {
	var names []string
	for _, field := range fields {
		rest := field.Name
		if in != "" {
			var below bool
			if rest, below = strings.CutPrefix(field.Name, in+"."); !below {
				continue
			}
		}
		name, _, _ := strings.Cut(rest, ".")
		names = append(names, name)
	}
	return names
}
