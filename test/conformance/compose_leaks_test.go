// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

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
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
		host, hostname := m.vmHostWithRoom(t), uniqueName()
		m.removeLeakedVM(t, host, hostname)
		got := m.composeOn(t, host, "storage", "root:0", "hostname", hostname)
		if m.real && (got.status == http.StatusServiceUnavailable || got.status == http.StatusOK) {
			lacks(t, "this LXD makes no disk without a size")
		}
		got.refusesField(t, "size", "Ensure this value is greater than or equal to 4194304.")
		if found := m.machines(t, "hostname", hostname); len(found) != 0 {
			t.Errorf("MAAS has %v of a refused composition", systemIDs(found))
		}
		m.composeOn(t, host, "hostname", hostname).refuses(t, http.StatusServiceUnavailable, hostname, "already exists")
		m.op(t, vmHostPath(host), "refresh").object(t)
		if found := m.machines(t, "hostname", hostname); len(found) != 1 {
			t.Errorf("%v after a refresh, want the VM to be enlisted under its name", systemIDs(found))
		}
	})
}

// _get_usable_storage_pool in provisioningserver/drivers/pod/lxd.py raises PodInvalidResources, which compose_machine
// in maasserver/clusterrpc/pods.py does not turn into a PodProblem: an internal error, before anything is made.
func TestComposeOfMoreDiskThanTheHostHasIsAnInternalError(t *testing.T) {
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
		host, hostname := m.vmHostWithRoom(t), uniqueName()
		tooMuch := fmt.Sprintf("root:%.0f", host.num("total", "local_storage")/1e9+1000)
		m.composeOn(t, host, "hostname", hostname, "storage", tooMuch).refuses(t, http.StatusInternalServerError, "Not enough ", "space ")
		m.composeOn(t, host, "hostname", hostname).object(t)
	})
}

// create_machine accepts names that begin with a letter and have two characters or more (_machine_name_re); any other
// VM becomes a machine with a name that MAAS makes up.
func TestComposeUnderANameThatMAASDoesNotTake(t *testing.T) {
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
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
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
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
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
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
