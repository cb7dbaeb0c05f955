// SPDX-License-Identifier: Apache-2.0

package lxdapi

import "strings"

// API extensions of LXD from which on something is another way.
const (
	// ExtensionBootMode replaced security.secureboot and security.csm by boot.mode, and came with the release that no
	// longer has the endpoint virtual-machines.
	ExtensionBootMode = "instance_boot_mode"

	extensionGroups          = "access_management"
	extensionIdentities      = "access_management_tls"
	extensionProfileChanges  = "storage_and_profile_operations"
	extensionNetworkChanges  = "storage_and_network_operations"
	extensionOperationEntity = "operation_metadata_entity_url"
)

// Oldest and Newest are the oldest LXD that is taken, and the newest whose differences from the others are known.
const (
	Oldest = "5.0"
	Newest = "6.9"
)

// Kind is what a Use is.
type Kind string

// Kinds of Uses: an endpoint, and the keys of configurations and devices.
const (
	Endpoint    Kind = "endpoint"
	InstanceKey Kind = "VM"
	DiskKey     Kind = "disk"
	NICKey      Kind = "network card"
	VolumeKey   Kind = "volume"
	PoolKey     Kind = "storage pool"
	NetworkKey  Kind = "network"
	ProjectKey  Kind = "project"
	ServerKey   Kind = "server"
)

// User is who sends something to LXD: one of those, or several.
type User int

// Hosts is the manager, to direct hosts. Nodes is the initializer, or capmaasctl, on a node. MAAS is its driver for
// VM hosts, of all versions up to 3.8: only that of its calls is in the table which LXD took away.
const (
	Hosts User = 1 << iota
	Nodes
	MAAS
)

// String names the users.
func (u User) String() string {
	var names []string
	for i, name := range []string{"direct hosts", "nodes", "MAAS"} {
		if u&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// Release is the first LXD in which something is so. The zero Release is none.
type Release struct {
	// Version is LXD's.
	Version string
	// Extension is the API extension that says so.
	Extension string
}

// Use is an endpoint, or a key of a configuration, that is sent to LXD, or read of it.
type Use struct {
	Kind Kind
	// Name is the key; the path below /1.0/, with * for a name; or a group of keys that ends with *.
	Name string
	// Methods of an endpoint, one after the other.
	Methods string
	By      User
	// Since is from when on LXD takes it, if Oldest does not. Gone is from when on it does not.
	Since, Gone Release
	// Changes are what is another way in some versions.
	Changes []Change
}

// Change is what another LXD does.
type Change struct {
	// Since has the first version of each series that does.
	Since string
	// Extension is the API extension that says so; "" if none does.
	Extension string
	What      string
	// Here is what is done about it.
	Here string
}

const waitsFor = "waits for what LXD began, whichever call it was"

// identities is what another kind of clients than certificates changed.
var identities = []Change{{Since: "5.21.3, 6.2", Extension: extensionIdentities,
	What: "a fine-grained identity needs `can_view_resources` on the server", Here: "says so"}}

// operations is a change that became an operation.
func operations(since, extension string) []Change {
	return []Change{{Since: since, Extension: extension, What: "changes are operations", Here: waitsFor}}
}

// What decides on the way in which this package, or MAAS, has a VM boot.
var (
	secureBoot = Use{Kind: InstanceKey, Name: "security.secureboot", By: Hosts | MAAS,
		Gone: Release{Version: "6.7", Extension: ExtensionBootMode}}
	bootMode = Use{Kind: InstanceKey, Name: "boot.mode", By: Hosts,
		Since: Release{Version: "6.7", Extension: ExtensionBootMode},
		Changes: []Change{{Since: "6.7", Extension: ExtensionBootMode,
			What: "the upgrade of LXD renames `security.secureboot` in the VMs that there are",
			Here: "reads either key"}}}
	vmEndpoint = Use{Kind: Endpoint, Name: "virtual-machines", Methods: "GET POST", By: MAAS,
		Gone: Release{Version: "6.7", Extension: ExtensionBootMode}}
)

// Uses are all endpoints and keys that are sent to LXD. Keys and devices that people give a VM in lxdConfig are not:
// those are theirs.
var Uses = []Use{
	{Kind: Endpoint, Name: "", Methods: "GET PUT", By: Hosts | Nodes, Changes: []Change{
		{Since: "6.6", What: "`volatile.uuid` in what is read must be in what is put",
			Here: "puts back all that was read"},
		{Since: "6.6", What: "of an address that it can't listen on, 6.6 takes back the address, not our mark beside it",
			Here: "puts back the mark itself"},
	}},
	{Kind: Endpoint, Name: "auth/identities/current", Methods: "GET", By: Hosts,
		Since: Release{Version: "5.21.0", Extension: extensionGroups}, Changes: []Change{
			{Since: "5.21.3, 6.2", Extension: extensionIdentities,
				What: "a fine-grained identity is shown what it may view, as if the rest did not exist",
				Here: "takes a VM for gone only if the identity may view all of the project"},
		}},
	{Kind: Endpoint, Name: "resources", Methods: "GET", By: Hosts, Changes: identities},
	{Kind: Endpoint, Name: "operations", Methods: "GET", By: Hosts, Changes: []Change{
		{Since: "6.7", Extension: extensionOperationEntity, What: "the VM of an operation is in the metadata",
			Here: "looks into both"},
	}},
	{Kind: Endpoint, Name: "operations/*", Methods: "GET", By: Hosts | Nodes, Changes: []Change{
		{Since: "6.8", What: "it has the status of the failure (`err_code`)", Here: "uses it where it is"},
	}},
	{Kind: Endpoint, Name: "operations/*/wait", Methods: "GET", By: Hosts | Nodes, Changes: []Change{
		{Since: "5.0.3, 5.15", What: "the failure, or the end of the time, is an error of the request, from 5.21 on with " +
			"the status 200", Here: "reads the operation itself, whatever the error is"},
	}},
	{Kind: Endpoint, Name: "instances", Methods: "GET POST", By: Hosts | Nodes, Changes: []Change{
		{Since: "5.21", What: "a name that it takes for no VM is 500 instead of 400", Here: "checks names itself"},
		{Since: "5.21", What: "a name that is taken is 409 at once, before that the operation fails",
			Here: "looks whether the VM is there, and is ours"},
	}},
	{Kind: Endpoint, Name: "instances/*", Methods: "GET PUT PATCH DELETE", By: Hosts, Changes: []Change{
		{Since: "5.21", What: "a change of a VM that runs without an agent is 200; before, 500, and made all the same",
			Here: "looks whether it was made"},
	}},
	{Kind: Endpoint, Name: "instances/*/state", Methods: "PUT", By: Hosts},
	{Kind: Endpoint, Name: "images/aliases", Methods: "POST", By: Hosts},
	{Kind: Endpoint, Name: "images/aliases/*", Methods: "GET PUT", By: Hosts},
	{Kind: Endpoint, Name: "images", Methods: "GET POST", By: Hosts},
	{Kind: Endpoint, Name: "images/*", Methods: "GET PUT DELETE", By: Hosts},
	{Kind: Endpoint, Name: "images/*/secret", Methods: "POST", By: Hosts},
	{Kind: Endpoint, Name: "storage-pools", Methods: "GET POST", By: Hosts | Nodes,
		Changes: operations("6.8", extensionNetworkChanges)},
	{Kind: Endpoint, Name: "storage-pools/*", Methods: "GET", By: Nodes},
	{Kind: Endpoint, Name: "storage-pools/*/resources", Methods: "GET", By: Hosts, Changes: identities},
	{Kind: Endpoint, Name: "storage-pools/*/volumes/custom", Methods: "POST", By: Hosts,
		Changes: operations("6.6", extensionProfileChanges)},
	{Kind: Endpoint, Name: "storage-pools/*/volumes/custom/*", Methods: "GET DELETE", By: Hosts,
		Changes: operations("6.6", extensionProfileChanges)},
	{Kind: Endpoint, Name: "networks", Methods: "GET POST", By: Hosts | Nodes,
		Changes: operations("6.8", extensionNetworkChanges)},
	{Kind: Endpoint, Name: "networks/*", Methods: "GET", By: Nodes},
	{Kind: Endpoint, Name: "networks/*/state", Methods: "GET", By: Nodes},
	{Kind: Endpoint, Name: "projects", Methods: "POST", By: Nodes},
	{Kind: Endpoint, Name: "projects/*", Methods: "GET", By: Hosts | Nodes},
	{Kind: Endpoint, Name: "projects/*/state", Methods: "GET", By: Hosts},
	{Kind: Endpoint, Name: "profiles", Methods: "POST", By: Nodes},
	{Kind: Endpoint, Name: "profiles/*", Methods: "GET", By: Nodes},
	{Kind: Endpoint, Name: "certificates", Methods: "GET POST", By: Nodes, Changes: []Change{
		{Since: "5.21.5, 6.6", What: "two client certificates can't have one name (409)",
			Here: "gives each certificate a name of its own"},
		{Since: "6.1", What: "there is no trust password (`core.trust_password`)", Here: "never uses one"},
	}},
	{Kind: Endpoint, Name: "certificates/*", Methods: "GET PUT DELETE", By: Nodes},
	vmEndpoint,

	secureBoot,
	bootMode,
	{Kind: InstanceKey, Name: "limits.cpu", By: Hosts},
	{Kind: InstanceKey, Name: "limits.memory", By: Hosts},
	{Kind: InstanceKey, Name: "cloud-init.*", By: Hosts},
	{Kind: InstanceKey, Name: "user.*", By: Hosts},
	// LXD's own, which is put back when another key is changed.
	{Kind: InstanceKey, Name: "image.*", By: Hosts},
	{Kind: InstanceKey, Name: "volatile.*", By: Hosts},
	{Kind: DiskKey, Name: "boot.priority", By: Hosts},
	{Kind: DiskKey, Name: "path", By: Hosts},
	{Kind: DiskKey, Name: "pool", By: Hosts},
	{Kind: DiskKey, Name: "size", By: Hosts},
	{Kind: DiskKey, Name: "source", By: Hosts},
	{Kind: NICKey, Name: "boot.priority", By: Hosts},
	{Kind: NICKey, Name: "hwaddr", By: Hosts},
	{Kind: NICKey, Name: "name", By: Hosts},
	{Kind: NICKey, Name: "network", By: Hosts},
	{Kind: NICKey, Name: "nictype", By: Hosts},
	{Kind: NICKey, Name: "parent", By: Hosts},
	{Kind: VolumeKey, Name: "size", By: Hosts},
	{Kind: VolumeKey, Name: "user.*", By: Hosts},
	{Kind: PoolKey, Name: "size", By: Nodes},
	{Kind: NetworkKey, Name: "dns.mode", By: Nodes},
	{Kind: NetworkKey, Name: "ipv4.dhcp", By: Nodes},
	{Kind: NetworkKey, Name: "ipv6.dhcp", By: Nodes},
	{Kind: ProjectKey, Name: "features.images", By: Nodes},
	{Kind: ProjectKey, Name: "features.profiles", By: Nodes},
	{Kind: ProjectKey, Name: "features.storage.volumes", By: Nodes},
	{Kind: ServerKey, Name: "core.https_address", By: Nodes},
	{Kind: ServerKey, Name: "user.capmaas.https-address", By: Nodes},
	{Kind: ServerKey, Name: "volatile.uuid", By: Nodes},
}

// Matches reports whether the use is that of a key, or of an endpoint by its path below /1.0/.
func (u *Use) Matches(kind Kind, name string) bool {
	if u.Kind != kind {
		return false
	}
	if kind == Endpoint {
		return samePath(strings.Split(u.Name, "/"), strings.Split(name, "/"))
	}
	group, isGroup := strings.CutSuffix(u.Name, "*")
	return name == u.Name || isGroup && strings.HasPrefix(name, group)
}

func samePath(pattern, parts []string) bool {
	if len(pattern) != len(parts) {
		return false
	}
	for i, part := range parts {
		if pattern[i] != part && pattern[i] != "*" {
			return false
		}
	}
	return true
}
