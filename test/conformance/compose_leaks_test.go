// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// addressOfHost is an address that nothing uses, on a subnet of the VM host's machine where machines can boot.
func (m *maas) addressOfHost(t *testing.T, host object) string {
	t.Helper()
	if host.str("host", "system_id") == "" {
		t.Skipf("VM host %s is on no machine", host.str("name"))
	}
	for _, iface := range m.machine(t, host.str("host", "system_id")).objects("interface_set") {
		for _, link := range iface.objects("links") {
			if iface.flag("vlan", "dhcp_on") && link.at("subnet") != nil {
				return m.freeAddress(t, link.part("subnet"))
			}
		}
	}
	t.Skipf("VM host %s is on no subnet with MAAS's DHCP", host.str("name"))
	return ""
}

// removeLeakedVM removes, when the case ends, a VM that is on the host without a machine in MAAS: a refresh adds the
// machine.
func (m *maas) removeLeakedVM(t *testing.T, host object, hostname string) {
	t.Helper()
	t.Cleanup(func() {
		m.op(t, vmHostPath(host), "refresh").object(t)
		for _, machine := range m.machines(t, "hostname", hostname) {
			m.removeMachine(t, machine)
		}
	})
}

// create_machine in maasserver/models/bmc.py saves the machine when the host has made the VM, and nothing undoes that
// (compose in maasserver/forms/pods.py): the VM has the name on the host, and the host refuses the same request from
// then on.
func TestComposeThatFailsAfterTheVMIsMadeLeavesTheVM(t *testing.T) {
	tests := []struct {
		name   string
		pairs  func(t *testing.T, m *maas, host object) []string
		refuse func(t *testing.T, m *maas, got *answer)
	}{
		{"an address that is in use", func(t *testing.T, m *maas, host object) []string {
			return []string{"interfaces", "eth0:ip=" + m.reserve(t, "ip", m.addressOfHost(t, host)).str("ip")}
		}, func(t *testing.T, _ *maas, got *answer) {
			got.refuses(t, http.StatusNotFound, "The IP address ", " is already in use.")
		}},
		{"a disk of no size", func(*testing.T, *maas, object) []string { return []string{"storage", "root:0"} },
			func(t *testing.T, m *maas, got *answer) {
				if m.real && (got.status == http.StatusServiceUnavailable || got.status == http.StatusOK) {
					t.Skip("this LXD makes no disk without a size")
				}
				got.refusesField(t, "size", "Ensure this value is greater than or equal to 4194304.")
			}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			each(t, func(t *testing.T, m *maas) {
				host, hostname := m.vmHostWithRoom(t), uniqueName()
				pairs := append(test.pairs(t, m, host), "hostname", hostname)
				m.removeLeakedVM(t, host, hostname)
				test.refuse(t, m, m.composeOn(t, host, pairs...))
				if found := m.machines(t, "hostname", hostname); len(found) != 0 {
					t.Errorf("MAAS has %v of a refused composition", systemIDs(found))
				}
				m.composeOn(t, host, "hostname", hostname).refuses(t, http.StatusServiceUnavailable, hostname, "already exists")
				m.op(t, vmHostPath(host), "refresh").object(t)
				if found := m.machines(t, "hostname", hostname); len(found) != 1 {
					t.Errorf("%v after a refresh, want the VM to be enlisted under its name", systemIDs(found))
				}
			})
		})
	}
}

// _get_usable_storage_pool in provisioningserver/drivers/pod/lxd.py raises PodInvalidResources, which compose_machine
// in maasserver/clusterrpc/pods.py does not turn into a PodProblem: an internal error, before anything is made.
func TestComposeOfMoreDiskThanTheHostHasIsAnInternalError(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		host, hostname := m.vmHostWithRoom(t), uniqueName()
		tooMuch := fmt.Sprintf("root:%.0f", host.num("total", "local_storage")/1e9+1000)
		m.composeOn(t, host, "hostname", hostname, "storage", tooMuch).refuses(t, http.StatusInternalServerError, "Not enough ", "space ")
		m.composeOn(t, host, "hostname", hostname).object(t)
	})
}

// create_machine accepts names that begin with a letter and have two characters or more (_machine_name_re); any other
// VM becomes a machine with a name that MAAS makes up.
func TestComposeUnderANameThatMAASDoesNotTake(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		host, asked := m.vmHostWithRoom(t), "0-"+uniqueName()
		composed := m.composeOn(t, host, "hostname", asked).object(t)
		t.Cleanup(func() { m.removeMachine(t, composed) })
		if got := m.machine(t, composed.str("system_id")).str("hostname"); got == "" || got == asked {
			t.Errorf("hostname %q, want a made-up one", got)
		}
		if got := m.get(t, machinePath(composed.str("system_id")), "op", "power_parameters").object(t).str("instance_name"); got != asked {
			t.Errorf("the VM is called %q, want %q", got, asked)
		}
	})
}

// validate_hostname in maasserver/utils/dns.py accepts a name with a domain. LXD, which gets it unchanged, does not.
func TestComposeOfAQualifiedHostname(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		asked := uniqueName() + ".nosuch"
		got := m.composeOn(t, m.vmHostWithRoom(t), "hostname", asked)
		if got.status != http.StatusOK { // A VM host other than LXD may accept it.
			got.refuses(t, http.StatusServiceUnavailable, "Unable to compose machine because: Failed talking to pod:")
			return
		}
		composed := got.object(t)
		t.Cleanup(func() { m.removeMachine(t, composed) })
		if hostname := m.machine(t, composed.str("system_id")).str("hostname"); strings.HasPrefix(asked, hostname) {
			t.Errorf("hostname %q, want a made-up one", hostname)
		}
	})
}

// create_machine keeps the tags of a storage constraint with the disk; the default is root:8(local).
func TestComposedDisksHaveTheTagsOfTheConstraint(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		host := m.vmHostWithRoom(t)
		tests := []struct {
			storage string
			want    [][]string
		}{
			{"root:8(one,two),data:4", [][]string{{"one", "two"}, {}}},
			{"root:8,plain:4,tagged:4(one)", [][]string{{}, {"one"}, {}}}, // get_storage_constraints_from_string sorts them
			{"", [][]string{{"local"}}},
		}
		for _, test := range tests {
			composed := m.composeOn(t, host, "storage", test.storage).object(t)
			got := [][]string{}
			for _, disk := range m.machine(t, composed.str("system_id")).objects("physicalblockdevice_set") {
				got = append(got, disk.strings("tags"))
			}
			if !slices.EqualFunc(got, test.want, slices.Equal) {
				t.Errorf("storage %q: disks with the tags %v, want %v", test.storage, got, test.want)
			}
		}
	})
}

// _pick_interface in maasserver/forms/pods.py prefers bridges, then bonds, and of these the newest. mode= does not
// limit them.
func TestComposeOnAnyInterfaceTakesTheNewestBridge(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		host := m.vmHostWithRoom(t)
		if host.str("host", "system_id") == "" {
			t.Skipf("VM host %s is on no machine", host.str("name"))
		}
		rank := map[string]int{"bridge": 2, "bond": 1}
		best := slices.MaxFunc(m.machine(t, host.str("host", "system_id")).objects("interface_set"), func(a, b object) int {
			if less := rank[a.str("type")] - rank[b.str("type")]; less != 0 {
				return less
			}
			return a.int("id") - b.int("id")
		})
		got := m.composeOn(t, host, "interfaces", "eth0:mode=bogus")
		if !best.flag("vlan", "dhcp_on") {
			got.refuses(t, http.StatusBadRequest, "MAAS DHCP must be enabled on at least one VLAN attached to the specified interfaces.")
			return
		}
		if vm := m.machine(t, got.object(t).str("system_id")); vm.id("boot_interface", "vlan", "id") != best.id("vlan", "id") {
			t.Errorf("on VLAN %s, want that of %s, %s", vm.id("boot_interface", "vlan", "id"), best.str("name"), best.id("vlan", "id"))
		}
	})
}

// nodes_by_interface in maasserver/node_constraint_filter_forms.py turns an address into the VLAN of its subnet,
// unchecked.
func TestComposeAtAnAddressThatMAASCannotPlaceIsAnInternalError(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		host := m.vmHostWithRoom(t)
		if host.str("host", "system_id") == "" {
			t.Skipf("VM host %s is on no machine", host.str("name"))
		}
		m.composeOn(t, host, "interfaces", "eth0:ip="+m.outside(t)).
			refuses(t, http.StatusInternalServerError, "'NoneType' object has no attribute 'vlan'")
		m.composeOn(t, host, "interfaces", "eth0:ip=garbage").
			refuses(t, http.StatusInternalServerError, "failed to detect a valid IP address from 'garbage'")
	})
}
