// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"slices"
)

var hardwareKeys = []string{
	"system_vendor", "system_product", "system_family", "system_version", "system_sku", "system_serial", "cpu_model",
	"mainboard_vendor", "mainboard_product", "mainboard_serial", "mainboard_version", "mainboard_firmware_vendor",
	"mainboard_firmware_date", "mainboard_firmware_version", "chassis_vendor", "chassis_type", "chassis_serial",
	"chassis_version",
}

func machineURI(m *machine) string { return apiRoot + "machines/" + m.systemID + "/" }

// renderMachine renders the machine with all the fields of this MAAS version.
func (s *Simulator) renderMachine(m *machine) object {
	out := object{
		"system_id": m.systemID, "hostname": m.hostname, "fqdn": m.fqdn(), "domain": s.renderDomain(m.domain),
		"description": m.description, "hardware_uuid": nil, "status": m.status, "status_name": m.status.String(),
		"status_message": nilIfEmpty(m.statusMessage), "status_action": statusAction(m), "owner": nil,
		"owner_data": m.ownerData, "workload_annotations": m.ownerData, "locked": m.locked,
		"node_type": 0, "node_type_name": "Machine", "power_state": m.powerState, "power_type": m.powerType,
		"architecture": m.architecture, "cpu_count": m.cpuCount, "cpu_speed": 0, "memory": m.memory,
		"swap_size": nil, "storage": storageMB(m), "osystem": m.osystem, "distro_series": m.series,
		"hwe_kernel": nilIfEmpty(m.hweKernel), "min_hwe_kernel": nil, "ephemeral_deploy": m.ephemeral,
		"netboot": m.netboot, "tag_names": tagNames(m.tags), "address_ttl": nil,
		"zone": renderZone(m.zone), "pool": renderPool(m.pool), "disable_ipv4": false,
		"bios_boot_method": nilIfEmpty(m.bootMethod), "parent": nil, "special_filesystems": []any{},
		"hardware_info": hardwareInfo(m), "numanode_set": numaNodes(m), "resource_uri": machineURI(m),
	}
	if m.owner != nil {
		out["owner"] = m.owner.name
	}
	if m.minHWEKernel != "" || m.hweKernel != "" {
		out["min_hwe_kernel"] = m.minHWEKernel
	}
	if parent := m.parentMachine(); parent != nil {
		out["parent"] = object{
			"system_id": parent.systemID, "resource_uri": machineURI(parent), "__incomplete__": true,
		}
	}
	if s.hasVMHosts() {
		out["pod"], out["virtualmachine_id"] = renderPod(m.host), nilIfZero(m.vmID)
	}
	out["enable_hw_sync"], out["last_sync"], out["next_sync"], out["sync_interval"] = false, nil, nil, nil
	if s.version.AtLeast(3, 5, 0) {
		out["error_description"] = m.errorDescription
	}
	if s.version.AtLeast(3, 6, 0) {
		out["enable_kernel_crash_dump"] = false
	}
	if s.version.AtLeast(3, 7, 0) {
		out["is_dpu"] = m.isDPU
	}
	s.renderMachineNetwork(m, out)
	renderMachineDisks(m, out)
	renderMachineTests(m, out)
	return out
}

// statusAction returns the action of the machine's last event, which is always empty here. null: there was no event
// (status_action in maasserver/models/node.py).
func statusAction(m *machine) any {
	if m.statusMessage == "" {
		return nil
	}
	return ""
}

func (s *Simulator) renderMachineNetwork(m *machine, out object) {
	ips := []string{}
	for _, ip := range m.addresses() {
		ips = append(ips, ip.String())
	}
	nics := []any{}
	for _, nic := range m.ifaces {
		nics = append(nics, renderInterface(nic))
	}
	out["ip_addresses"], out["interface_set"], out["boot_interface"] = ips, nics, nil
	if len(nics) > 0 {
		out["boot_interface"] = nics[0]
	}
	out["default_gateways"] = s.defaultGateways(m)
}

// renderPod returns the VM host of a VM, or null.
func renderPod(h *vmHost) any {
	if h == nil {
		return nil
	}
	return object{"id": h.id, "name": h.name, "resource_uri": fmt.Sprintf("%spods/%d/", apiRoot, h.id)}
}

// defaultGateways returns the gateways of a machine's subnets. From 4.0 on not of those on which it has no address.
func (s *Simulator) defaultGateways(m *machine) object {
	v4, v6 := object{"gateway_ip": nil, "link_id": nil}, object{"gateway_ip": nil, "link_id": nil}
	for _, nic := range m.ifaces {
		for _, link := range nic.links {
			if link.subnet == nil || !link.subnet.gateway.IsValid() || link.mode() == "dhcp" ||
				link.mode() == "link_up" && s.version.AtLeast(4, 0, 0) {
				continue
			}
			family := v4
			if link.subnet.gateway.Is6() {
				family = v6
			}
			if family["gateway_ip"] == nil {
				family["gateway_ip"] = link.subnet.gateway.String()
			}
		}
	}
	if link := m.gatewayLink; link != nil && link.subnet != nil {
		family := v4
		if link.subnet.gateway.Is6() {
			family = v6
		}
		family["gateway_ip"], family["link_id"] = textOrNil(link.subnet.gateway), link.id
	}
	return object{"ipv4": v4, "ipv6": v6}
}

func renderMachineTests(m *machine, out object) {
	latest := m.latestResults()
	of := func(kind hardwareKind) int {
		isOther := func(r *scriptResult) bool { return r.script.hardware != kind }
		return overall(slices.DeleteFunc(slices.Clone(latest), isOther))
	}
	tests := map[string]int{
		"commissioning": m.commissionStatus, "testing": overall(latest), "cpu_test": of(hardwareCPU),
		"memory_test": of(hardwareMemory), "network_test": of(hardwareNetwork), "storage_test": of(hardwareStorage),
		"interface_test": of(hardwareNetwork), "other_test": of(hardwareNode),
	}
	for name, result := range tests {
		out[name+"_status"], out[name+"_status_name"] = result, scriptNames[result]
	}
	out["current_commissioning_result_id"] = nilIfZero(m.commissionResult)
	out["current_testing_result_id"] = nil
	if m.testSet != nil {
		out["current_testing_result_id"] = m.testSet.id
	}
	out["current_installation_result_id"] = nilIfZero(m.installResult)
}

func hardwareInfo(m *machine) object {
	info := object{}
	for _, key := range hardwareKeys {
		info[key] = orDefault(m.hardware[key], "Unknown")
	}
	return info
}

func numaNodes(m *machine) []any {
	cores := make([]int, m.cpuCount)
	for i := range cores {
		cores[i] = i
	}
	return []any{object{"index": 0, "memory": m.memory, "cores": cores, "hugepages_set": []any{}}}
}

// storageMB returns the disks' size in units of 10^6 bytes.
func storageMB(m *machine) pyFloat {
	var sum int64
	for _, d := range m.disks {
		sum += d.size
	}
	return pyFloat(float64(sum) / 1e6)
}
