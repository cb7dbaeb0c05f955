// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"crypto/sha1"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// handler handles one kind of call. It runs with Simulator.mu held.
type handler func(*request) (any, error)

// signature identifies a call of an endpoint.
type signature struct{ method, op string }

type methods map[signature]handler

func (m methods) allow(method string) bool {
	for sig := range m {
		if sig.method == method {
			return true
		}
	}
	return false
}

func (m methods) allowed() string {
	var list []string
	for sig := range m {
		if !slices.Contains(list, sig.method) {
			list = append(list, sig.method)
		}
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// route is an endpoint. In its pattern {id} and the like stand for one part of the path; {subnet} may contain a slash
// (CIDRs).
type route struct {
	pattern   string
	methods   methods
	anonymous methods               // calls without credentials; nil: none, and a wrong call gets no other error
	vmHosts   bool                  // gone from MAAS 4.0 on
	where     func(*Simulator) bool // nil: in all versions
	systemID  bool                  // the first variable is a machine
}

const (
	get  = http.MethodGet
	post = http.MethodPost
	put  = http.MethodPut
	del  = http.MethodDelete
)

// findRoute returns the endpoint of a path below apiRoot.
func findRoute(path string) (*route, []string) {
	for i := range routes {
		if vars, ok := matchPattern(routes[i].pattern, path); ok {
			return &routes[i], vars
		}
	}
	return nil, nil
}

func matchPattern(pattern, path string) (vars []string, ok bool) {
	for {
		open := strings.IndexByte(pattern, '{')
		if open < 0 {
			return vars, pattern == path
		}
		if !strings.HasPrefix(path, pattern[:open]) {
			return nil, false
		}
		path = path[open:]
		shut := strings.IndexByte(pattern, '}')
		name := pattern[open+1 : shut]
		pattern = pattern[shut+1:]
		end := strings.IndexByte(path, '/')
		if end < 0 && pattern == "" {
			end = len(path) // A few endpoints have no slash at their end.
		}
		if name == "subnet" && strings.Count(path, "/") > 1 {
			end = strings.LastIndexByte(path, '/')
		}
		if end <= 0 {
			return nil, false
		}
		vars = append(vars, path[:end])
		path = path[end:]
	}
}

// apiHash stands for MAAS's hash of its API's description: constant for one version.
func apiHash(v maas.Version) string {
	sum := sha1.Sum([]byte(v.String()))
	return hex.EncodeToString(sum[:])
}

// routes are all endpoints.
var routes = []route{
	{pattern: "version/", anonymous: methods{{get, ""}: (*request).readVersion}, methods: methods{{get, ""}: (*request).readVersion}},
	{pattern: "users/", methods: methods{{get, "whoami"}: (*request).whoami}},
	{pattern: "groups/", where: (*Simulator).hasEntitlements, methods: methods{{get, ""}: (*request).listGroups, {post, ""}: (*request).createGroup}},
	{pattern: "groups/{id}/", where: (*Simulator).hasEntitlements, methods: methods{
		{del, ""}: (*request).deleteGroup, {get, "list_members"}: (*request).listMembers,
		{post, "add_member"}: (*request).addMember, {post, "remove_member"}: (*request).removeMember,
		{post, "add_entitlement"}: (*request).addEntitlement,
	}},

	{pattern: "machines/", methods: methods{
		{get, ""}:                 (*request).listMachines,
		{post, ""}:                (*request).createMachine,
		{post, "allocate"}:        (*request).allocate,
		{get, "power_parameters"}: (*request).allPowerParameters,
	}},
	{pattern: "machines/{id}/", systemID: true, methods: methods{
		{get, ""}:                               (*request).readMachine,
		{put, ""}:                               (*request).updateMachine,
		{del, ""}:                               (*request).deleteMachineCall,
		{post, "deploy"}:                        (*request).deploy,
		{post, "release"}:                       (*request).release,
		{post, "abort"}:                         (*request).abort,
		{post, "commission"}:                    (*request).commission,
		{post, "test"}:                          (*request).testMachine,
		{post, "override_failed_testing"}:       (*request).overrideFailedTesting,
		{post, "power_on"}:                      (*request).powerOn,
		{post, "power_off"}:                     (*request).powerOff,
		{get, "query_power_state"}:              (*request).queryPowerState,
		{get, "power_parameters"}:               (*request).powerParameters,
		{get, "get_curtin_config"}:              (*request).curtinConfig,
		{post, "mark_broken"}:                   (*request).markBroken,
		{post, "mark_fixed"}:                    (*request).markFixed,
		{post, "set_storage_layout"}:            (*request).setStorageLayout,
		{post, "restore_storage_configuration"}: (*request).restoreStorage,
		{post, "lock"}:                          (*request).lockMachine,
		{post, "unlock"}:                        (*request).unlockMachine,
		{post, "rescue_mode"}:                   (*request).rescueMode,
		{post, "exit_rescue_mode"}:              (*request).exitRescueMode,
		{post, "set_workload_annotations"}:      (*request).setWorkloadAnnotations,
	}},
	{pattern: "devices/", methods: methods{{get, ""}: (*request).listDevices, {post, ""}: (*request).createDevice}},
	{pattern: "devices/{id}/", systemID: true, methods: methods{
		{get, ""}: (*request).readDevice, {put, ""}: (*request).updateDevice, {del, ""}: (*request).deleteDevice,
		{post, "set_workload_annotations"}: (*request).annotateDevice,
	}},
	{pattern: "nodes/{id}/results/", systemID: true, methods: methods{{get, ""}: (*request).listResults}},
	{pattern: "nodes/{id}/results/{set}/", systemID: true, methods: methods{{get, ""}: (*request).readResults}},
	{pattern: "scripts/", methods: methods{{get, ""}: (*request).listScripts, {post, ""}: (*request).createScript}},
	{pattern: "scripts/{name}", methods: methods{{del, ""}: (*request).deleteScript}},
	{pattern: "nodes/{id}/blockdevices/", systemID: true, methods: methods{
		{get, ""}: (*request).listBlockDevices, {post, ""}: (*request).createBlockDevice,
	}},
	{pattern: "nodes/{id}/blockdevices/{device}/", systemID: true, methods: methods{
		{post, "add_tag"}: (*request).tagBlockDevice, {del, ""}: (*request).deleteBlockDevice,
	}},
	{pattern: "nodes/{id}/interfaces/", systemID: true, methods: methods{
		{get, ""}: (*request).listInterfaces, {post, "create_bond"}: (*request).createBond, {post, "create_bridge"}: (*request).createBridge,
		{post, "create_vlan"}: (*request).createVLAN,
	}},
	{pattern: "nodes/{id}/interfaces/{iface}/", systemID: true, methods: methods{
		{put, ""}:               (*request).updateInterface,
		{del, ""}:               (*request).deleteInterface,
		{post, "link_subnet"}:   (*request).linkSubnet,
		{post, "unlink_subnet"}: (*request).unlinkSubnet,
	}},

	{pattern: "vm-hosts/", vmHosts: true, methods: vmHostsMethods},
	{pattern: "vm-hosts/{id}/", vmHosts: true, methods: vmHostMethods},

	{pattern: "zones/", methods: methods{{get, ""}: (*request).listZones, {post, ""}: (*request).createZone}},
	{pattern: "zones/{name}/", methods: methods{{del, ""}: (*request).deleteZone}},
	{pattern: "resourcepools/", methods: methods{{get, ""}: (*request).listPools, {post, ""}: (*request).createPool}},
	{pattern: "resourcepool/{id}/", methods: methods{
		{get, ""}: (*request).readPool, {put, ""}: (*request).updatePool, {del, ""}: (*request).deletePool,
	}},
	{pattern: "domains/", methods: methods{{get, ""}: (*request).listDomains, {post, ""}: (*request).createDomain}},
	{pattern: "domains/{id}/", methods: methods{
		{get, ""}: (*request).readDomain, {put, ""}: (*request).updateDomain, {del, ""}: (*request).deleteDomain,
	}},
	{pattern: "dnsresources/", methods: methods{
		{get, ""}: (*request).listDNSResources, {post, ""}: (*request).createDNSResource,
	}},
	{pattern: "dnsresources/{id}/", methods: methods{
		{get, ""}: (*request).readDNSResource, {put, ""}: (*request).updateDNSResource,
		{del, ""}: (*request).deleteDNSResource,
	}},
	{pattern: "ipaddresses/", methods: methods{
		{get, ""}: (*request).listAddresses, {post, "reserve"}: (*request).reserveAddress,
		{post, "release"}: (*request).releaseAddress,
	}},
	{pattern: "subnets/", methods: methods{{get, ""}: (*request).listSubnets, {post, ""}: (*request).createSubnet}},
	{pattern: "subnets/{subnet}/", methods: methods{
		{get, ""}:                     (*request).readSubnet,
		{del, ""}:                     (*request).deleteSubnet,
		{get, "ip_addresses"}:         (*request).subnetAddresses,
		{get, "reserved_ip_ranges"}:   (*request).subnetReservedRanges,
		{get, "unreserved_ip_ranges"}: (*request).subnetUnreservedRanges,
	}},
	{pattern: "fabrics/{id}/vlans/", methods: methods{{get, ""}: (*request).listVLANs, {post, ""}: (*request).createTaggedVLAN}},
	{pattern: "fabrics/{id}/vlans/{vid}/", methods: methods{{del, ""}: (*request).deleteVLAN}},
	{pattern: "ipranges/", methods: methods{{get, ""}: (*request).listRanges, {post, ""}: (*request).createRange}},
	{pattern: "ipranges/{id}/", methods: methods{{del, ""}: (*request).deleteRange}},
	{pattern: "reservedips/", where: (*Simulator).hasReservedIPs, methods: methods{{post, ""}: (*request).createReservedIP}},
	{pattern: "reservedips/{id}/", where: (*Simulator).hasReservedIPs, methods: methods{{del, ""}: (*request).deleteReservedIP}},
	{pattern: "tags/", methods: methods{{get, ""}: (*request).listTags, {post, ""}: (*request).createTag}},
	{pattern: "tags/{name}/", methods: methods{
		{put, ""}: (*request).updateTag, {del, ""}: (*request).deleteTag,
		{get, "machines"}: (*request).tagMachines, {post, "update_nodes"}: (*request).updateTagNodes,
	}},
	{pattern: "boot-resources/", methods: methods{
		{get, ""}: (*request).listImages, {post, ""}: (*request).createImage,
	}},
	{pattern: "boot-resources/{id}/", methods: methods{{get, ""}: (*request).readImage, {del, ""}: (*request).deleteImage}},
	{pattern: "boot-resources/{id}/upload/{file}/", methods: methods{{put, ""}: (*request).uploadPiece}},
	{pattern: "regioncontrollers/", methods: methods{{get, ""}: (*request).listRegionControllers}},
	{pattern: "maas/", methods: methods{{get, "get_config"}: (*request).getConfig}},
}

var vmHostsMethods = methods{{get, ""}: (*request).listVMHosts, {post, ""}: (*request).createVMHost}

var vmHostMethods = methods{
	{get, ""}:           (*request).readVMHost,
	{put, ""}:           (*request).updateVMHost,
	{del, ""}:           (*request).deleteVMHost,
	{post, "refresh"}:   (*request).refreshVMHost,
	{get, "parameters"}: (*request).vmHostParameters,
	{post, "compose"}:   (*request).compose,
	{post, "add_tag"}:   (*request).addVMHostTag,
}
