// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

func TestComposeReturnsTheMachinesURL(t *testing.T) {
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
		got := m.composeOn(t, m.vmHostWithRoom(t)).object(t)
		checkShape(t, "composed", got, shapes["composed"])
		checkNoOtherKeys(t, "composed", got, shapes["composed"])
		if want := "/MAAS/api/2.0/machines/" + got.str("system_id") + "/"; got.str("resource_uri") != want {
			t.Errorf("resource_uri %q, want %q", got.str("resource_uri"), want)
		}
	})
}

func TestComposeWithoutCommissioningIsReadyAtOnce(t *testing.T) {
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
		hostname := uniqueName()
		got := m.spare(t, "hostname", hostname, "cores", "2", "memory", "3072")
		checkShape(t, "composed machine", got, m.machineShape())
		tests := []struct{ what, got, want string }{
			{"hostname", got.str("hostname"), hostname},
			{"status_name", got.str("status_name"), "Ready"},
			{"power_state", got.str("power_state"), "off"},
			{"power_type", got.str("power_type"), "lxd"},
			{"cpu_count", got.id("cpu_count"), "2"},
			{"memory", got.id("memory"), "3072"},
		}
		for _, test := range tests {
			if test.got != test.want {
				t.Errorf("%s %q, want %q", test.what, test.got, test.want)
			}
		}
		if got.at("owner") != nil {
			t.Errorf("owner %v, want nobody", got["owner"])
		}
	})
}

func TestComposedMachineHasAnAutoLinkWithoutAddress(t *testing.T) {
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
		vm := m.spare(t)
		if got := vm.strings("ip_addresses"); len(got) != 0 {
			t.Errorf("addresses %v, want none", got)
		}
		iface := vm.part("boot_interface")
		if iface == nil {
			t.Fatal("no boot interface")
		}
		checkInterface(t, iface)
		links := iface.objects("links")
		if len(links) != 1 || links[0].str("mode") != "auto" || links[0].str("subnet", "cidr") == "" {
			t.Fatalf("links %v, want one in AUTO mode on a subnet", links)
		}
		if address, ok := links[0]["ip_address"]; ok {
			t.Errorf("ip_address %v, want the key absent", address)
		}
	})
}

func TestComposedMachineNamesItsVMHost(t *testing.T) {
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
		host := m.vmHostWithRoom(t)
		vm := m.machine(t, m.composeOn(t, host).object(t).str("system_id"))
		if vm.id("pod", "id") != host.id("id") || vm.str("pod", "name") != host.str("name") {
			t.Errorf("pod %v, want %s %s", vm["pod"], host.id("id"), host.str("name"))
		}
		if want := "/MAAS/api/2.0/pods/" + host.id("id") + "/"; vm.str("pod", "resource_uri") != want {
			t.Errorf("the pod's resource_uri is %q, want %q: the old name", vm.str("pod", "resource_uri"), want)
		}
		if host.str("host", "system_id") != vm.str("parent", "system_id") {
			t.Errorf("parent %v, want the VM host's machine %s", vm["parent"], host.str("host", "system_id"))
		}
		if vm.at("virtualmachine_id") == nil {
			t.Error("virtualmachine_id is null")
		}
	})
}

func TestComposedMachineCarriesTheHostsTagsAndPool(t *testing.T) {
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
		host := m.vmHostWithRoom(t)
		vm := m.machine(t, m.composeOn(t, host).object(t).str("system_id"))
		for _, tag := range host.strings("tags") {
			if !slices.Contains(vm.strings("tag_names"), tag) {
				t.Errorf("tags %v, want %s of the host among them", vm.strings("tag_names"), tag)
			}
		}
		if vm.str("pool", "name") != host.str("pool", "name") {
			t.Errorf("pool %s, want the host's, %s", vm.str("pool", "name"), host.str("pool", "name"))
		}
	})
}

// The trap of composing: the host's zone is not the VM's.
func TestComposedMachineIsInTheDefaultZone(t *testing.T) {
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
		if got, want := m.spare(t).str("zone", "name"), m.defaultZone(t).str("name"); got != want {
			t.Errorf("zone %s, want the default zone %s", got, want)
		}
	})
}

func TestComposeTakesZoneAndPoolByID(t *testing.T) {
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
		zone, pool, domain := m.newZone(t), m.newPool(t), m.defaultDomain(t)
		vm := m.spare(t, "zone", zone.id("id"), "pool", pool.id("id"), "domain", domain.id("id"))
		if vm.str("zone", "name") != zone.str("name") || vm.str("pool", "name") != pool.str("name") ||
			vm.str("domain", "name") != domain.str("name") {
			t.Errorf("zone %s, pool %s, domain %s; want %s, %s, %s", vm.str("zone", "name"), vm.str("pool", "name"),
				vm.str("domain", "name"), zone.str("name"), pool.str("name"), domain.str("name"))
		}
	})
}

func TestComposeCountsStorageInGigabytes(t *testing.T) {
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
		vm := m.spare(t, "storage", "root:10,data:4")
		disks := vm.objects("physicalblockdevice_set")
		if len(disks) != 2 {
			t.Fatalf("%d disks, want 2", len(disks))
		}
		sizes := []string{disks[0].id("size"), disks[1].id("size")}
		slices.Sort(sizes)
		if !slices.Equal(sizes, []string{"10000000000", "4000000000"}) {
			t.Errorf("disks of %v bytes, want 10 and 4 times 10^9", sizes)
		}
		if vm.id("boot_disk", "size") != "10000000000" {
			t.Errorf("the boot disk has %s bytes, want the first one's 10^10", vm.id("boot_disk", "size"))
		}
		if got := vm.num("storage"); got != 14000 {
			t.Errorf("storage %v, want 14000 megabytes", got)
		}
	})
}

func TestComposeUsesTheHostsResources(t *testing.T) {
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
		before := m.vmHostWithRoom(t)
		m.composeOn(t, before).object(t)
		after := m.get(t, vmHostPath(before)).object(t)
		if got := after.num("used", "cores") - before.num("used", "cores"); got != 1 {
			t.Errorf("%v cores more in use, want 1", got)
		}
		if got := after.num("used", "memory") - before.num("used", "memory"); got != vmMemoryMiB {
			t.Errorf("%v MiB more in use, want %d", got, vmMemoryMiB)
		}
		if got := after.num("used", "local_storage") - before.num("used", "local_storage"); got != vmDiskGB*1e9 {
			t.Errorf("%v bytes more in use, want %d GB", got, vmDiskGB)
		}
	})
}

func TestComposeNamesTheMachineByDefault(t *testing.T) {
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
		host := m.vmHostWithRoom(t)
		composed := m.op(t, vmHostPath(host), "compose", "skip_commissioning", "true").object(t)
		systemID := composed.str("system_id")
		t.Cleanup(func() { m.removeMachine(t, composed) })
		vm := m.machine(t, systemID)
		if vm.str("hostname") == "" || vm.num("cpu_count") != 1 || vm.num("memory") != 2048 {
			t.Errorf("hostname %q, %v cores, %v MiB; want a made-up name, 1, 2048",
				vm.str("hostname"), vm["cpu_count"], vm["memory"])
		}
	})
}

// While it commissions, a VM belongs to the user who composed it; once Ready, it has no owner.
func TestComposeWithCommissioningEndsReady(t *testing.T) {
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
		vm := m.spare(t, "skip_commissioning", "false")
		switch vm.str("status_name") {
		case "Commissioning", "Testing":
			if vm.str("owner") != m.me(t) {
				t.Errorf("owner %v while %s, want %s", vm["owner"], vm.str("status_name"), m.me(t))
			}
		case "Ready": // too fast to be seen
		default:
			t.Errorf("%s after composing, want Commissioning", vm.str("status_name"))
		}
		ready := m.awaitStatus(t, vm.str("system_id"), "Ready")
		m.awaitMachine(t, vm.str("system_id"), "off", func(o object) bool { return o.str("power_state") == "off" })
		if ready.at("owner") != nil {
			t.Errorf("owner %v when Ready, want nobody", ready["owner"])
		}
	})
}

func TestReleaseOfACommissionedVMKeepsIt(t *testing.T) {
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
		vm := m.spare(t, "skip_commissioning", "false")
		systemID := vm.str("system_id")
		m.awaitMachine(t, systemID, "Ready and off", func(o object) bool {
			return o.str("status_name") == "Ready" && o.str("power_state") == "off"
		})
		m.allocate(t, "system_id", systemID).object(t)
		m.release(t, vm).object(t)
		m.awaitStatus(t, systemID, "Ready")
	})
}

func TestComposeRefusals(t *testing.T) {
	tests := []struct {
		name  string
		field string
		value func(host object) string
		text  string
	}{
		{"more cores than the host has", "cores",
			func(host object) string { return fmt.Sprint(host.int("total", "cores") + 1) },
			"Ensure this value is less than or equal to"},
		{"no cores", "cores", func(object) string { return "0" }, "Ensure this value is greater than or equal to 1."},
		{"cores that are no number", "cores", func(object) string { return "two" }, "Enter a whole number."},
		{"too little memory", "memory", func(object) string { return "1023" },
			"Ensure this value is greater than or equal to 1024."},
		{"more memory than the host has", "memory",
			func(host object) string { return fmt.Sprint(host.int("total", "memory") + 1) },
			"Ensure this value is less than or equal to"},
		{"malformed storage", "storage", func(object) string { return "garbage" },
			`Malformed storage constraint, "garbage".`},
		{"zone by name", "zone", func(host object) string { return host.str("zone", "name") }, "Select a valid choice."},
		{"pool by name", "pool", func(host object) string { return host.str("pool", "name") }, "Select a valid choice."},
		{"unknown zone", "zone", func(object) string { return "999999" }, "Select a valid choice."},
		{"unknown interface key", "interfaces", func(object) string { return "eth0:bogus=1" },
			"Unknown interfaces constraint: 'bogus"},
		// parse_labeled_constraint_map in provisioningserver/utils/constraints.py
		{"an interface without its key", "interfaces", func(object) string { return "eth0" },
			"Malformed constraint: 'eth0' (required format: '<label>:<key>=<value>[,<key2>=<value2>[,...]]')"},
		{"an interface without its value", "interfaces", func(object) string { return "eth0:name" },
			"Malformed key/value pair in constraint: 'name'"},
		{"an interface twice", "interfaces", func(object) string { return "eth0:name=a;eth0:name=b" },
			"Constraint label defined more than once: 'eth0'"},
		{"a label that is none", "interfaces", func(object) string { return "-:name=a" }, "Invalid label name: '-'"},
		// validate_hostname in maasserver/utils/dns.py
		{"a long hostname", "hostname", func(object) string { return strings.Repeat("x", 64) },
			"Label is too long: '" + strings.Repeat("x", 64) + "'.  Maximum allowed is 63 characters."},
		{"a hyphen before the hostname", "hostname", func(object) string { return "-a" }, "Label cannot start or end with hyphen: '-a'."},
		{"a hostname with an underscore", "hostname", func(object) string { return "a_b.c" }, "Host label cannot contain underscore: 'a_b'."},
		{"a hostname with a blank", "hostname", func(object) string { return "a b" }, "Label contains disallowed characters: 'a b'."},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
				host := m.vmHostWithRoom(t)
				m.composeOn(t, host, test.field, test.value(host)).refusesField(t, test.field, test.text)
			})
		})
	}
}

func TestComposeOnNetworksThatTheHostLacksIsABadRequest(t *testing.T) {
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
		host := m.vmHostWithRoom(t)
		if host.str("host", "system_id") == "" {
			lacks(t, "VM host %s is on no machine", host.str("name"))
		}
		m.composeOn(t, host, "interfaces", "eth0:name=nosuch").
			refuses(t, http.StatusBadRequest, "This pod does not match the specified networks.")
	})
}

func TestComposeOnANetworkOfTheHost(t *testing.T) {
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
		host := m.vmHostWithRoom(t)
		if host.str("host", "system_id") == "" {
			lacks(t, "VM host %s is on no machine", host.str("name"))
		}
		bootable := find(m.machine(t, host.str("host", "system_id")).objects("interface_set"), func(o object) bool {
			links := o.objects("links")
			return o.flag("vlan", "dhcp_on") && len(links) > 0 && links[0].at("subnet") != nil
		})
		if bootable == nil {
			lacks(t, "VM host %s is on no subnet with MAAS's DHCP", host.str("name"))
		}
		cidr := bootable.objects("links")[0].str("subnet", "cidr")
		composed := m.composeOn(t, host, "interfaces", "eth0:subnet_cidr="+cidr).object(t)
		vm := m.machine(t, composed.str("system_id"))
		if vm.id("boot_interface", "vlan", "id") != bootable.id("vlan", "id") {
			t.Errorf("on VLAN %s, want %s", vm.id("boot_interface", "vlan", "id"), bootable.id("vlan", "id"))
		}
	})
}

func TestComposeWithATakenHostnameIsRefused(t *testing.T) {
	tests := map[string]func(t *testing.T, m *maas) object{
		"of a VM":      func(t *testing.T, m *maas) object { return m.spare(t) },
		"of a machine": func(t *testing.T, m *maas) object { return m.newMachine(t) },
	}
	for name, taken := range tests {
		t.Run(name, func(t *testing.T) {
			eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
				hostname := taken(t, m).str("hostname")
				m.composeOn(t, m.vmHostWithRoom(t), "hostname", hostname).
					refusesField(t, "hostname", `Node with hostname "`+hostname+`" already exists`)
				if found := m.machines(t, "hostname", hostname); len(found) != 1 {
					t.Errorf("%d machines of the name, want 1", len(found))
				}
			})
		})
	}
}

// The form accepts as many cores as the host has; what others use is counted afterwards, with another status.
func TestComposeBeyondTheOverCommitRatioIsUnavailable(t *testing.T) {
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
		host := m.vmHostWithRoom(t)
		if host.num("cpu_over_commit_ratio") > 1 {
			lacks(t, "VM host %s lets its cores be used %v times", host.str("name"), host["cpu_over_commit_ratio"])
		}
		m.composeOn(t, host).object(t)
		m.composeOn(t, host, "cores", host.id("total", "cores")).refuses(t, http.StatusServiceUnavailable,
			"Unable to compose KVM instance in '"+host.str("name")+"'.", "CPU overcommit ratio is",
			host.id("total", "cores")+" requested.")
	})
}

func TestDeletedVMFreesTheHost(t *testing.T) {
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
		before := m.vmHostWithRoom(t)
		composed := m.composeOn(t, before).object(t)
		m.delete(t, machinePath(composed.str("system_id"))).gone(t)
		m.awaitNoMachine(t, composed.str("system_id"))
		m.await(t, "the VM host's resources to be free", func() (bool, string) {
			after := m.get(t, vmHostPath(before)).object(t)
			same := after.num("used", "cores") == before.num("used", "cores") &&
				after.num("used", "memory") == before.num("used", "memory")
			return same, fmt.Sprint(after["used"])
		})
	})
}
