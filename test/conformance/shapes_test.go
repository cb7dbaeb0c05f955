// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
)

// A shape gives each key's JSON type: s string, i integer, n number, b boolean, a array, o object, and any of them with
// a ? for "or null".
type shape map[string]string

// shapes are MAAS's objects, key by key. resource_uri is among the keys where MAAS adds one.
var shapes = map[string]shape{
	"version": {"version": "s", "subversion": "s", "capabilities": "a"},
	"user":    {"username": "s", "email": "s", "is_superuser": "b", "is_local": "b", "resource_uri": "s"},
	"zone":    {"id": "i", "name": "s", "description": "s", "resource_uri": "s"},
	"pool":    {"id": "i", "name": "s", "description": "s", "resource_uri": "s"},
	"tag":     {"name": "s", "definition": "s", "comment": "s", "kernel_opts": "s", "resource_uri": "s"},
	"domain": {
		"id": "i", "name": "s", "ttl": "i?", "authoritative": "b", "resource_record_count": "i", "is_default": "b",
		"resource_uri": "s",
	},
	"machine": {
		"address_ttl": "i?", "architecture": "s", "bcaches": "a", "bios_boot_method": "s?", "blockdevice_set": "a",
		"boot_disk": "o?", "boot_interface": "o?", "cache_sets": "a", "commissioning_status": "i",
		"commissioning_status_name": "s", "cpu_count": "i", "cpu_speed": "i", "cpu_test_status": "i",
		"cpu_test_status_name": "s", "current_commissioning_result_id": "i?", "current_installation_result_id": "i?",
		"current_testing_result_id": "i?", "default_gateways": "o", "description": "s", "disable_ipv4": "b",
		"distro_series": "s", "domain": "o", "enable_hw_sync": "b", "ephemeral_deploy": "b", "fqdn": "s",
		"hardware_info": "o", "hardware_uuid": "s?", "hostname": "s", "hwe_kernel": "s?", "interface_set": "a",
		"interface_test_status": "i", "interface_test_status_name": "s", "ip_addresses": "a", "last_sync": "s?",
		"locked": "b", "memory": "i", "memory_test_status": "i", "memory_test_status_name": "s",
		"min_hwe_kernel": "s?", "netboot": "b", "network_test_status": "i", "network_test_status_name": "s",
		"next_sync": "s?", "node_type": "i", "node_type_name": "s", "numanode_set": "a", "osystem": "s",
		"other_test_status": "i", "other_test_status_name": "s", "owner": "s?", "owner_data": "o", "parent": "o?",
		"physicalblockdevice_set": "a", "pool": "o", "power_state": "s", "power_type": "s", "raids": "a",
		"resource_uri": "s", "special_filesystems": "a", "status": "i", "status_action": "s?", "status_message": "s?",
		"status_name": "s", "storage": "n", "storage_test_status": "i", "storage_test_status_name": "s",
		"swap_size": "i?", "sync_interval": "i?", "system_id": "s", "tag_names": "a", "testing_status": "i",
		"testing_status_name": "s", "virtualblockdevice_set": "a", "volume_groups": "a",
		"workload_annotations": "o", "zone": "o",
	},
	"device": {
		"address_ttl": "i?", "description": "s", "domain": "o", "fqdn": "s", "hostname": "s", "interface_set": "a",
		"ip_addresses": "a", "node_type": "i", "node_type_name": "s", "owner": "s?", "owner_data": "o", "parent": "s?",
		"resource_uri": "s", "system_id": "s", "tag_names": "a", "workload_annotations": "o", "zone": "o",
	},
	"interface": {
		"id": "i", "name": "s", "type": "s", "mac_address": "s?", "enabled": "b", "vlan": "o?", "links": "a", "tags": "a",
		"parents": "a", "children": "a", "effective_mtu": "i", "params": "o", "system_id": "s", "link_connected": "b",
		"link_speed": "i", "interface_speed": "i", "vendor": "s?", "product": "s?", "firmware_version": "s?",
		"numa_node": "i?", "sriov_max_vf": "i", "discovered": "a?", "resource_uri": "s",
	},
	"subnet": {
		"id": "i", "name": "s", "cidr": "s", "description": "s", "vlan": "o", "gateway_ip": "s?", "dns_servers": "a",
		"rdns_mode": "i", "allow_dns": "b", "allow_proxy": "b", "active_discovery": "b", "managed": "b",
		"disabled_boot_architectures": "a", "space": "s", "resource_uri": "s",
	},
	"vlan": {
		"id": "i", "vid": "i", "name": "s?", "fabric": "s", "fabric_id": "i", "mtu": "i", "dhcp_on": "b",
		"primary_rack": "s?", "secondary_rack": "s?", "relay_vlan": "o?", "external_dhcp": "s?", "space": "s",
		"resource_uri": "s",
	},
	"block device": {
		"id": "i", "name": "s", "type": "s", "size": "i", "block_size": "i", "available_size": "i", "used_size": "i",
		"used_for": "s", "model": "s?", "serial": "s?", "id_path": "s?", "path": "s", "uuid": "s?", "tags": "a",
		"system_id": "s", "numa_node": "i?", "storage_pool": "s?", "partition_table_type": "s?", "partitions": "a",
		"filesystem": "o?", "firmware_version": "s?", "resource_uri": "s",
	},
	"VM host": {
		"id": "i", "name": "s", "type": "s", "version": "s", "architectures": "a", "capabilities": "a", "total": "o",
		"used": "o", "available": "o", "zone": "o", "pool": "o", "tags": "a", "host": "o", "storage_pools": "a",
		"cpu_over_commit_ratio": "n", "memory_over_commit_ratio": "n", "default_macvlan_mode": "s?", "resource_uri": "s",
	},
	"VM host resources": {"cores": "i", "memory": "i", "local_storage": "i"},
	"storage pool": {
		"id": "s", "name": "s", "type": "s", "path": "s", "total": "i", "used": "i", "available": "i", "default": "b",
	},
	"composed": {"system_id": "s", "resource_uri": "s"},
	"DNS resource": {
		"id": "i", "fqdn": "s", "address_ttl": "i?", "ip_addresses": "a", "resource_records": "a", "resource_uri": "s",
	},
	"address": {
		"ip": "s", "alloc_type": "i", "alloc_type_name": "s", "created": "s", "subnet": "o?", "owner": "o?",
		"interface_set": "a", "resource_uri": "s",
	},
	"script": {
		"id": "i", "name": "s", "title": "s", "description": "s", "tags": "a", "type": "i", "type_name": "s", "hardware_type": "i",
		"hardware_type_name": "s", "parallel": "i", "parallel_name": "s", "results": "o", "parameters": "o", "packages": "o",
		"timeout": "s", "destructive": "b", "for_hardware": "a", "may_reboot": "b", "recommission": "b", "history": "a",
		"default": "b", "apply_configured_networking": "b", "resource_uri": "s",
	},
	"script set": {
		"id": "i", "system_id": "s", "type": "i", "type_name": "s", "last_ping": "s?", "status": "i", "status_name": "s",
		"started": "s?", "ended": "s?", "runtime": "s", "results": "a", "resource_uri": "s",
	},
	"test result": {
		"id": "i", "created": "s", "updated": "s", "name": "s", "status": "i", "status_name": "s", "exit_status": "i?",
		"started": "s?", "ended": "s?", "runtime": "s", "starttime": "n", "endtime": "n", "estimated_runtime": "s",
		"parameters": "o", "script_id": "i", "script_revision_id": "i?", "suppressed": "b",
	},
	"boot resource": {
		"id": "i", "type": "s", "name": "s", "architecture": "s", "subarches": "s", "resource_uri": "s",
	},
}

// jsonType is a value's type as shapes name it.
func jsonType(value any) string {
	switch v := value.(type) {
	case nil:
		return "null"
	case string:
		return "s"
	case bool:
		return "b"
	case json.Number:
		if strings.ContainsAny(v.String(), ".eE") {
			return "n"
		}
		return "i"
	case []any:
		return "a"
	default:
		return "o"
	}
}

// fits reports whether a value of the type may stand where the shape wants the other one.
func fits(got, want string) bool {
	if got == "null" {
		return strings.HasSuffix(want, "?")
	}
	want = strings.TrimSuffix(want, "?")
	return got == want || want == "n" && got == "i"
}

// checkShape checks that the object has all of the keys, with their types.
func checkShape(t *testing.T, what string, o object, want shape) {
	t.Helper()
	if o == nil {
		t.Errorf("%s: there is none", what)
		return
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		value, ok := o[key]
		switch {
		case !ok:
			t.Errorf("%s: key %s is missing", what, key)
		case !fits(jsonType(value), want[key]):
			t.Errorf("%s: %s is %v (%s), want %s", what, key, value, jsonType(value), want[key])
		}
	}
}

// checkNoOtherKeys checks that the object has no further keys.
func checkNoOtherKeys(t *testing.T, what string, o object, want shape) {
	t.Helper()
	for _, key := range slices.Sorted(maps.Keys(o)) {
		if _, ok := want[key]; !ok {
			t.Errorf("%s: key %s is unknown", what, key)
		}
	}
}

// machineShape is the machine's shape in this MAAS.
func (m *maas) machineShape() shape {
	want := maps.Clone(shapes["machine"])
	maps.Copy(want, m.facts.machineKeys)
	return want
}
