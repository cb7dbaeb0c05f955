// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
)

// spareVM is a VM on an LXD host that MAAS does not know. The cases may boot it.
type spareVM struct {
	address, project, name, mac string
	certificate, key            string // of a client that the host trusts
}

// spareVM makes a VM on the simulator's unregistered host, or returns the one that the environment names.
func (m *maas) spareVM(t *testing.T) spareVM {
	t.Helper()
	if m.real {
		return m.realSpareVM(t)
	}
	vm := spareVM{address: m.lxdAddress, project: uniqueName(), name: uniqueName(), certificate: "CERT", key: "KEY"}
	var made struct{ MACs []string }
	m.control(t, http.MethodPost, "vms", map[string]any{"name": vm.name, "project": vm.project, "cores": 1, "memory": vmMemoryMiB, "disks": []int{vmDiskGB}}, &made)
	t.Cleanup(func() { m.control(t, http.MethodDelete, "vms/"+vm.name, nil, nil) })
	vm.mac = made.MACs[0]
	return vm
}

// control calls the simulator's endpoint for testers, below its unregistered LXD host.
func (m *maas) control(t *testing.T, method, path string, in, out any) {
	t.Helper()
	raw, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	url := strings.TrimSuffix(m.url, "/MAAS") + "/control/vm-hosts/conformance-lxd/" + path
	req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), method, url, bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := httpClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= http.StatusBadRequest {
		t.Fatalf("%s %s: %d %s, %v", method, url, resp.StatusCode, body, err)
	}
	if out == nil {
		return
	}
	if err := json.Unmarshal(body, out); err != nil {
		t.Fatal(err)
	}
}

func (m *maas) realSpareVM(t *testing.T) spareVM {
	t.Helper()
	parts := strings.Split(os.Getenv("MAAS_CONFORMANCE_LXD_VM"), "/")
	if m.lxdAddress == "" || len(parts) != 3 {
		t.Skip("MAAS_CONFORMANCE_LXD_ADDRESS and MAAS_CONFORMANCE_LXD_VM (project/name/MAC address) are not set")
	}
	vm := spareVM{address: m.lxdAddress, project: parts[0], name: parts[1], mac: strings.ToLower(parts[2])}
	for name, to := range map[string]*string{"MAAS_CONFORMANCE_LXD_CERTIFICATE": &vm.certificate, "MAAS_CONFORMANCE_LXD_KEY": &vm.key} {
		raw, err := os.ReadFile(os.Getenv(name))
		if err != nil {
			t.Skipf("%s: %v", name, err)
		}
		*to = strings.TrimSpace(string(raw))
	}
	return vm
}

// pairs are the parameters that enlist the VM. The address has a scheme, so that MAAS takes the machine for no VM of a
// VM host, which has none.
func (vm spareVM) pairs(t *testing.T, m *maas, more ...string) []string {
	return withDefaults(more, "hostname", uniqueName(), "architecture", m.architecture(t), "mac_addresses", vm.mac, "power_type", "lxd",
		"power_parameters_power_address", "https://"+strings.TrimPrefix(vm.address, "https://"),
		"power_parameters_instance_name", vm.name, "power_parameters_project", vm.project,
		"power_parameters_certificate", vm.certificate, "power_parameters_key", vm.key,
		"commission", "true", "testing_scripts", "none")
}

// enlist enlists the VM and commissions it, unless the pairs say otherwise. When the case ends it is switched off, and
// forgotten.
func (m *maas) enlist(t *testing.T, vm spareVM, more ...string) object {
	t.Helper()
	pairs := vm.pairs(t, m, more...)
	m.removeMachineAfter(t, form(pairs...).Get("hostname"))
	got := m.create(t, "machines/", pairs...).object(t)
	t.Cleanup(func() { m.switchOff(t, got.str("system_id")) })
	return got
}

// switchOff switches a machine off, so that it does not boot again when MAAS has forgotten it.
func (m *maas) switchOff(t *testing.T, systemID string) {
	got := m.op(t, machinePath(systemID), "power_off", "stop_mode", "hard")
	if got.status == http.StatusNotFound {
		return
	}
	m.await(t, "the VM to be off", func() (bool, string) {
		state := m.get(t, machinePath(systemID), "op", "query_power_state").object(t).str("state")
		return state == "off", state
	})
}

// awaitBoot waits for the first PXE request of a machine.
func (m *maas) awaitBoot(t *testing.T, machine object) object {
	t.Helper()
	return m.awaitMachine(t, machine.str("system_id"), "seen to boot", func(o object) bool {
		return o.str("bios_boot_method") != "" && o.at("boot_interface", "vlan") != nil
	})
}

// unhurried is the same MAAS, whose time does not hurry while a case waits: between two looks at a machine that
// commissions, the simulator's commissioning would be over.
func (m *maas) unhurried() *maas {
	other := *m
	other.pace = func(float64) {}
	return &other
}

func TestEnlistedVMIsTheCallersWhileItCommissions(t *testing.T) {
	eachThat(t, anyVersion, func(t *testing.T, m *maas) {
		m = m.unhurried()
		vm, zone, pool := m.spareVM(t), m.newZone(t).str("name"), m.newPool(t).str("name")
		got := m.enlist(t, vm, "zone", zone, "pool", pool, "description", "mine", "cpu_count", "1", "memory", "2048")
		tests := []struct{ what, got, want string }{
			{"status_name", got.str("status_name"), "Commissioning"},
			{"owner", got.str("owner"), m.me(t)},
			{"power_type", got.str("power_type"), "lxd"},
			{"zone", got.str("zone", "name"), zone},
			{"pool", got.str("pool", "name"), pool},
			{"description", got.str("description"), "mine"},
			{"cpu_count", got.id("cpu_count"), "1"},
			{"memory", got.id("memory"), "2048"},
		}
		for _, test := range tests {
			if test.got != test.want {
				t.Errorf("%s %q, want %q", test.what, test.got, test.want)
			}
		}
		if got.at("bios_boot_method") != nil || got.at("pod") != nil {
			t.Errorf("bios_boot_method %v and pod %v, want neither", got["bios_boot_method"], got["pod"])
		}
		m.machineOp(t, got, "commission").refusesField(t, "__all__", "Commission is not available because of the current state of the node.")
	})
}

func TestEnlistedVMIsKnownToBootWithUEFIByItsFirstBoot(t *testing.T) {
	eachThat(t, anyVersion, func(t *testing.T, m *maas) {
		booted := m.awaitBoot(t, m.enlist(t, m.spareVM(t)))
		if got := booted.str("bios_boot_method"); got != "uefi" {
			t.Errorf("bios_boot_method %q, want uefi", got)
		}
	})
}

func TestEnlistedVMThatIsCommissionedIsNobodysAndKeepsItsAnnotations(t *testing.T) {
	eachThat(t, anyVersion, func(t *testing.T, m *maas) {
		slow := m.unhurried()
		vm := slow.enlist(t, slow.spareVM(t), "description", "mine")
		slow.annotate(t, vm, "step", "commissioning").object(t)
		ready := m.awaitStatus(t, vm.str("system_id"), "Ready")
		if ready.at("owner") != nil || ready.str("workload_annotations", "step") != "commissioning" || ready.str("description") != "mine" {
			t.Errorf("owner %v, annotations %v, description %q when Ready; want nobody, and what was set",
				ready["owner"], ready["workload_annotations"], ready.str("description"))
		}
		m.annotate(t, vm, "step", "ready").refuses(t, http.StatusConflict, "Cannot set workload annotation: it hasn't been acquired.")
		m.machineOp(t, vm, "mark_broken").refusesSilently(t, http.StatusForbidden)
	})
}

// The quick way to a VM that can be deployed: commissioning is cut short when the VM has asked for PXE once.
func TestEnlistedVMIsMadeReadyWithoutTheEndOfCommissioning(t *testing.T) {
	eachThat(t, anyVersion, func(t *testing.T, fast *maas) {
		m := fast.unhurried()
		vm := m.enlist(t, m.spareVM(t))
		m.annotate(t, vm, "step", "commissioning").object(t)
		m.addDisk(t, vm).object(t)
		m.awaitBoot(t, vm)
		m.refusesChanges(t, vm)
		broken := m.machineOp(t, vm, "mark_broken").object(t)
		m.checkBrokenOwner(t, broken)
		m.machineOp(t, vm, "set_storage_layout", "storage_layout", "flat").
			refuses(t, http.StatusConflict, "Cannot change the storage layout on a machine that is not Ready.")
		subnet := m.subnetWithRoom(t)
		address := m.freeAddress(t, subnet)
		m.link(t, vm, "mode", "STATIC", "subnet", subnet.id("id"), "ip_address", address, "force", "true").object(t)
		fixed := m.machineOp(t, vm, "mark_fixed").object(t)
		if fixed.str("status_name") != "Ready" || fixed.at("owner") != nil {
			t.Errorf("%s of %v, want Ready and nobody's", fixed.str("status_name"), fixed["owner"])
		}
		for range 2 {
			m.checkUEFILayout(t, m.machineOp(t, vm, "set_storage_layout", "storage_layout", "flat").object(t))
		}
		deploying := m.deploy(t, vm, "agent_name", uniqueName()).object(t)
		if deploying.str("workload_annotations", "step") != "commissioning" || deploying.strings("ip_addresses")[0] != address {
			t.Errorf("annotations %v, addresses %v", deploying["workload_annotations"], deploying["ip_addresses"])
		}
		fast.awaitStatus(t, vm.str("system_id"), "Deployed")
	})
}

// addDisk adds the disk that the VM has.
func (m *maas) addDisk(t *testing.T, vm object) *answer {
	t.Helper()
	return m.create(t, "nodes/"+vm.str("system_id")+"/blockdevices/", "name", "sda", "model", "QEMU HARDDISK", "serial", "lxd_root",
		"size", "8000000000", "block_size", "512")
}

// refusesChanges checks what a machine that commissions refuses.
func (m *maas) refusesChanges(t *testing.T, vm object) {
	t.Helper()
	m.link(t, vm, "mode", "LINK_UP", "force", "true").refuses(t, http.StatusConflict,
		"Cannot link subnet interface because the machine is not New, Ready, Allocated, or Broken.")
	m.machineOp(t, vm, "set_storage_layout", "storage_layout", "flat").
		refuses(t, http.StatusConflict, "Cannot change the storage layout on a machine that is not Ready.")
	m.machineOp(t, vm, "mark_fixed").refuses(t, http.StatusConflict, "Can't mark a non-broken node as 'Ready'.")
}

// checkBrokenOwner checks whose a machine is that was marked broken while it commissioned.
func (m *maas) checkBrokenOwner(t *testing.T, broken object) {
	t.Helper()
	want := ""
	if m.facts.brokenKeepsOwner {
		want = m.me(t)
	}
	if broken.str("status_name") != "Broken" || broken.str("owner") != want {
		t.Errorf("%s of %v, want Broken and of %q", broken.str("status_name"), broken["owner"], want)
	}
}

func (m *maas) checkUEFILayout(t *testing.T, machine object) {
	t.Helper()
	parts := machine.part("boot_disk").objects("partitions")
	if len(parts) != 2 || parts[0].str("filesystem", "mount_point") != "/boot/efi" || parts[1].str("filesystem", "mount_point") != "/" {
		t.Errorf("partitions %v, want /boot/efi and /", parts)
	}
}

// MAAS makes no EFI partition for a machine that never booted. (That installing it fails then takes a real installation to see.)
func TestLayoutFromBeforeTheFirstBootHasNoEFIPartition(t *testing.T) {
	eachThat(t, anyVersion, func(t *testing.T, m *maas) {
		m = m.unhurried()
		vm := m.newMachine(t, "commission", "true") // By hand: nothing is switched on.
		if vm.str("status_name") != "Commissioning" {
			t.Fatalf("%s, want Commissioning", vm.str("status_name"))
		}
		m.addDisk(t, vm).object(t)
		m.machineOp(t, vm, "mark_broken").object(t)
		m.machineOp(t, vm, "mark_fixed").object(t)
		got := m.machineOp(t, vm, "set_storage_layout", "storage_layout", "flat").object(t)
		parts := got.part("boot_disk").objects("partitions")
		if len(parts) != 1 || parts[0].str("filesystem", "mount_point") != "/" || got.at("bios_boot_method") != nil {
			t.Errorf("partitions %v, bios_boot_method %v; want / alone, and none", parts, got["bios_boot_method"])
		}
	})
}

func TestDiskIsAddedInAnyState(t *testing.T) {
	for name, machine := range map[string]func(*testing.T, *maas) object{
		"New":           func(t *testing.T, m *maas) object { return m.newMachine(t) },
		"Commissioning": func(t *testing.T, m *maas) object { return m.newMachine(t, "commission", "true") },
		"Deployed":      func(t *testing.T, m *maas) object { return m.newDeployedMachine(t) },
	} {
		t.Run(name, func(t *testing.T) {
			eachThat(t, anyVersion, func(t *testing.T, m *maas) {
				vm := machine(t, m)
				disk := m.addDisk(t, vm).object(t)
				if disk.str("name") != "sda" || disk.str("serial") != "lxd_root" || disk.id("size") != "8000000000" || disk.at("id_path") != "" && disk.at("id_path") != nil {
					t.Errorf("the disk is %v", disk)
				}
				m.addDisk(t, vm).refusesField(t, "__all__", "Block device with this Node config and Name already exists.")
				if disks := m.machine(t, vm.str("system_id")).objects("physicalblockdevice_set"); len(disks) != 1 {
					t.Errorf("%d disks, want one", len(disks))
				}
			})
		})
	}
}

func TestEnlistingTwiceIsRefused(t *testing.T) {
	const noCard = "Can't set power type to lxd without network interfaces"
	eachThat(t, anyVersion, func(t *testing.T, m *maas) {
		name, vm := uniqueName(), spareVM{address: unreachable, project: "p", name: "n", mac: newMAC()}
		m.newMachine(t, vm.pairs(t, m, "hostname", name, "commission", "false")...)
		inUse := "MAC address " + vm.mac + " already in use on " + name + "."
		refused := func(what string, fields map[string]string, more ...string) {
			t.Helper()
			pairs := vm.pairs(t, m, append(more, "commission", "false")...)
			m.removeMachineAfter(t, form(pairs...).Get("hostname"))
			got := m.create(t, "machines/", pairs...)
			for field, text := range fields {
				got.refusesField(t, field, text)
			}
			var body map[string][]string
			if err := json.Unmarshal(got.body, &body); err != nil || len(body) != len(fields) {
				t.Errorf("%s: %s, want %d fields", what, got.body, len(fields))
			}
		}
		refused("the same MAC address", map[string]string{"mac_addresses": inUse, "power_type": noCard})
		refused("the same name", map[string]string{"hostname": "Node with this Hostname already exists."}, "hostname", name, "mac_addresses", newMAC())
		refused("both", map[string]string{
			"mac_addresses": inUse, "power_type": noCard, "hostname": "Node with this Hostname already exists.",
		}, "hostname", name)
		m.newMachine(t, vm.pairs(t, m, "mac_addresses", newMAC(), "commission", "false")...) // The same VM again is none of its business.
	})
}

// Names and MAC addresses are one space for machines and devices, which have fixed addresses at once.
func TestEnlistingAMachineLikeADeviceIsRefused(t *testing.T) {
	eachThat(t, anyVersion, func(t *testing.T, m *maas) {
		name, mac := uniqueName(), newMAC()
		device := m.newDevice(t, "hostname", name, "mac_addresses", mac, "description", "mine").object(t)
		if device.str("owner") != m.me(t) || device.str("description") != "mine" || device.str("node_type_name") != "Device" {
			t.Errorf("device %v, want it to be mine", device)
		}
		vm := spareVM{address: unreachable, project: "p", name: "n", mac: mac}
		m.removeMachineAfter(t, name)
		got := m.create(t, "machines/", vm.pairs(t, m, "hostname", name, "commission", "false")...)
		got.refusesField(t, "mac_addresses", "MAC address "+mac+" already in use on "+name+".")
		got.refusesField(t, "hostname", "Node with this Hostname already exists.")
		again := m.newDevice(t, "hostname", name, "mac_addresses", mac)
		again.refusesField(t, "mac_addresses", "already in use on "+name+".")
		again.refusesField(t, "hostname", "already exists")
		subnet := m.subnetWithRoom(t)
		address := m.freeAddress(t, subnet)
		nic := device.objects("interface_set")[0]
		m.op(t, "nodes/"+device.str("system_id")+"/interfaces/"+nic.id("id")+"/", "link_subnet",
			"mode", "STATIC", "subnet", subnet.id("id"), "ip_address", address, "force", "true").object(t)
		path := "devices/" + device.str("system_id") + "/"
		m.op(t, path, "set_workload_annotations", "a", "b").object(t)
		read := m.get(t, path).object(t)
		if ips := read.strings("ip_addresses"); len(ips) != 1 || ips[0] != address || read.str("workload_annotations", "a") != "b" {
			t.Errorf("addresses %v, annotations %v", ips, read["workload_annotations"])
		}
		if found := m.machines(t, "hostname", name); len(found) != 0 {
			t.Errorf("%v are machines", systemIDs(found))
		}
		m.delete(t, path).gone(t)
		m.get(t, path).refuses(t, http.StatusNotFound, "No Device matches the given query.")
	})
}

// newDevice makes a device that is gone when the case ends.
func (m *maas) newDevice(t *testing.T, pairs ...string) *answer {
	t.Helper()
	t.Cleanup(func() {
		for _, device := range m.get(t, "devices/", "hostname", form(pairs...).Get("hostname")).list(t) {
			m.delete(t, "devices/"+device.str("system_id")+"/").gone(t)
		}
	})
	return m.create(t, "devices/", pairs...)
}

// A machine that can't be switched on stays, New and the caller's.
func TestEnlistedVMThatDoesNotStartIsLeftNew(t *testing.T) {
	eachThat(t, anyVersion, func(t *testing.T, m *maas) {
		certificate, key := newKeyPair(t)
		name, vm := uniqueName(), spareVM{address: unreachable, project: "p", name: "n", mac: newMAC(), certificate: certificate, key: key}
		m.removeMachineAfter(t, name)
		got := m.create(t, "machines/", vm.pairs(t, m, "hostname", name)...)
		if got.status < http.StatusInternalServerError {
			t.Fatalf("%d %s, want an error of MAAS's", got.status, got.excerpt())
		}
		left := m.machines(t, "mac_address", vm.mac)
		if len(left) != 1 || left[0].str("status_name") != "New" || left[0].str("owner") != m.me(t) {
			t.Errorf("%v are left, want one machine, New and mine", left)
		}
	})
}

func TestEnlistingByAPlainUserCommissionsNothing(t *testing.T) {
	eachThat(t, anyVersion, func(t *testing.T, m *maas) {
		plain, name := m.asPlainUser(t), uniqueName()
		m.removeMachineAfter(t, name)
		got := plain.create(t, "machines/", "hostname", name, "architecture", m.architecture(t), "mac_addresses", newMAC()).object(t)
		if got.str("status_name") != "New" || got.at("owner") != nil {
			t.Errorf("%s of %v, want New and nobody's", got.str("status_name"), got["owner"])
		}
		plain.delete(t, machinePath(got.str("system_id"))).refusesSilently(t, http.StatusForbidden)
	})
}

func TestEnlistedVMIsDeletedWhileItCommissions(t *testing.T) {
	eachThat(t, anyVersion, func(t *testing.T, m *maas) {
		m = m.unhurried()
		vm := m.spareVM(t)
		machine := m.enlist(t, vm)
		m.awaitBoot(t, machine)
		m.switchOff(t, machine.str("system_id"))
		m.delete(t, machinePath(machine.str("system_id"))).gone(t)
		m.awaitNoMachine(t, machine.str("system_id"))
		// The VM is not deleted with it: it can be enlisted again.
		m.enlist(t, vm)
	})
}

// rowOf makes machines of one LXD host that is never reached.
type rowOf struct {
	m       *maas
	project string
}

func (r rowOf) enlist(t *testing.T, certificate, key string) (id string) {
	t.Helper()
	vm := spareVM{address: unreachable, project: r.project, name: uniqueName(), mac: newMAC(), certificate: certificate, key: key}
	return r.m.newMachine(t, vm.pairs(t, r.m, "commission", "false")...).str("system_id")
}

func (r rowOf) check(t *testing.T, id, certificate, key string) {
	t.Helper()
	got := r.m.get(t, machinePath(id), "op", "power_parameters").object(t)
	if got.str("certificate") != strings.TrimSpace(certificate) || got.str("key") != strings.TrimSpace(key) {
		t.Errorf("machine %s has another certificate or key", id)
	}
	if got.str("power_address") != "https://"+unreachable || got.str("project") != r.project {
		t.Errorf("address %q, project %q", got.str("power_address"), got.str("project"))
	}
}

// Machines of one host have one row (models/node.py: set_power_config): what changes for one of them changes for all.
func TestMachinesOfAnLXDHostShareItsKey(t *testing.T) {
	eachThat(t, anyVersion, func(t *testing.T, m *maas) {
		certificate, key := newKeyPair(t)
		otherCertificate, otherKey := newKeyPair(t)
		row := rowOf{m, uniqueName()}
		first, second := row.enlist(t, certificate, key), row.enlist(t, certificate, key)
		row.check(t, first, certificate, key)
		m.put(t, machinePath(first), "power_parameters_key", otherKey).object(t)
		row.check(t, first, certificate, otherKey)
		row.check(t, second, certificate, otherKey)
		m.put(t, machinePath(first), "power_parameters_certificate", otherCertificate, "power_parameters_key", key).object(t)
		row.check(t, first, otherCertificate, key)
		row.check(t, second, otherCertificate, key)
	})
}

// A row can't get the parameters of another one. A machine that had another driver for a moment joins the other row, and
// leaves those with which it shared one alone.
func TestAMachineMovesToAnotherRowByAnotherDriver(t *testing.T) {
	eachThat(t, anyVersion, func(t *testing.T, m *maas) {
		certificate, key := newKeyPair(t)
		otherCertificate, otherKey := newKeyPair(t)
		row := rowOf{m, uniqueName()}
		first, second, moved := row.enlist(t, certificate, key), row.enlist(t, certificate, key), row.enlist(t, otherCertificate, otherKey)
		name := m.get(t, machinePath(first), "op", "power_parameters").object(t).str("instance_name")
		wanted := []string{
			"power_type", "lxd", "power_parameters_power_address", "https://" + unreachable, "power_parameters_project", row.project,
			"power_parameters_instance_name", name, "power_parameters_certificate", otherCertificate, "power_parameters_key", otherKey,
		}
		if !m.real { // A real one takes a minute to find that out.
			if got := m.put(t, machinePath(first), wanted...); got.status != http.StatusConflict {
				t.Errorf("the row gets another one's parameters: %d", got.status)
			}
		}
		manual := m.put(t, machinePath(first), "power_type", "manual").object(t)
		if manual.str("power_type") != "manual" {
			t.Errorf("the driver is %s", manual.str("power_type"))
		}
		if got := m.get(t, machinePath(first), "op", "power_parameters").object(t); len(got) > 0 {
			t.Errorf("%d power parameters are left", len(got))
		}
		if got := m.put(t, machinePath(first), wanted...).object(t); got.str("power_type") != "lxd" {
			t.Errorf("the driver is %s", got.str("power_type"))
		}
		row.check(t, first, otherCertificate, otherKey)
		row.check(t, second, certificate, key)
		row.check(t, moved, otherCertificate, otherKey)
	})
}

// The trap of VM hosts: a machine with exactly the parameters of one belongs to it.
func TestMachineWithAVMHostsParametersIsOnIt(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		certificate, key := newKeyPair(t)
		host := m.newUnreachableHost(t, "certificate", certificate, "key", key)
		parameters := m.get(t, vmHostPath(host), "op", "parameters").object(t)
		vm := spareVM{project: parameters.str("project"), name: uniqueName(), certificate: certificate, key: key}
		enlist := func(address string) object {
			vm.mac = newMAC()
			return m.newMachine(t, vm.pairs(t, m, "commission", "false", "power_parameters_power_address", address)...)
		}
		if got := enlist("https://" + parameters.str("power_address")); got.at("pod") != nil {
			t.Errorf("pod %v of a machine whose address is written in another way, want none", got["pod"])
		}
		if got := enlist(parameters.str("power_address")); got.id("pod", "id") != host.id("id") {
			t.Errorf("pod %v, want %s", got["pod"], host.str("name"))
		}
	})
}
