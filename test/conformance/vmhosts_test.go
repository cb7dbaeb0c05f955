// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// unreachable is an address on which nothing listens, also from MAAS's rack controllers: it refuses at once. It is not
// 127.0.0.1, for which MAAS asks the rack controller on the region's own host (filter_by_url_accessible in
// maasserver/models/node.py): if there is none, deleting the VM host is an internal error.
const unreachable = "127.0.0.2:1"

// newUnreachableHost registers an LXD host that does not exist.
func (m *maas) newUnreachableHost(t *testing.T, pairs ...string) object {
	t.Helper()
	if m.reachesNowhere.Load() {
		lacks(t, "this MAAS's rack controllers find an LXD at %s", unreachable)
	}
	pairs = withDefaults(pairs, "type", "lxd", "power_address", unreachable, "name", uniqueName(),
		"project", prefix+"project")
	m.removeAfter(t, "vm-hosts/", "name", form(pairs...).Get("name"), "vm-hosts/")
	host := m.create(t, "vm-hosts/", pairs...).object(t)
	if host.str("version") != "" {
		m.reachesNowhere.Store(true)
		lacks(t, "this MAAS's rack controllers find an LXD at %s", unreachable)
	}
	return host
}

func TestVMHostHasAllKeys(t *testing.T) {
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
		hosts := m.get(t, "vm-hosts/").list(t)
		if len(hosts) == 0 {
			lacks(t, "there are no VM hosts")
		}
		for _, host := range hosts {
			checkVMHost(t, host)
		}
	})
}

func checkVMHost(t *testing.T, host object) {
	t.Helper()
	name := "VM host " + host.str("name")
	checkShape(t, name, host, shapes["VM host"])
	checkNoOtherKeys(t, name, host, shapes["VM host"])
	for _, resources := range []string{"total", "used", "available"} {
		checkShape(t, name+" "+resources, host.part(resources), shapes["VM host resources"])
	}
	checkShape(t, name+" zone", host.part("zone"), shapes["zone"])
	checkShape(t, name+" pool", host.part("pool"), shapes["pool"])
	checkShape(t, name+" host", host.part("host"), shape{"system_id": "s?", "__incomplete__": "b"})
	for _, pool := range host.objects("storage_pools") {
		checkShape(t, name+" storage pool", pool, shapes["storage pool"])
	}
	for _, resource := range []string{"cores", "memory", "local_storage"} {
		if got, want := host.num("available", resource), host.num("total", resource)-host.num("used", resource); got != want &&
			host.num("available", resource) >= 0 {
			t.Errorf("%s: %v %s available, want total less used, %v", name, got, resource, want)
		}
	}
}

func TestVMHostReadAloneIsTheOneOfTheList(t *testing.T) {
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
		host := m.newUnreachableHost(t)
		listed := find(m.get(t, "vm-hosts/").list(t), func(o object) bool { return o.id("id") == host.id("id") })
		if diff := cmp.Diff(listed, m.get(t, vmHostPath(host)).object(t)); diff != "" {
			t.Errorf("listed and alone:\n%s", diff)
		}
	})
}

// MAAS keeps a host that it cannot reach, and returns 200: only the version and the zeros show it.
func TestUnreachableVMHostIsSaved(t *testing.T) {
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
		host := m.newUnreachableHost(t)
		checkVMHost(t, host)
		if len(host.strings("architectures")) != 0 || host.num("total", "cores") != 0 || host.num("total", "memory") != 0 {
			t.Errorf("architectures %v, total %v; want none", host.strings("architectures"), host["total"])
		}
		if host.str("type") != "lxd" || host.at("host", "system_id") != nil {
			t.Errorf("type %s on machine %v, want lxd on none", host.str("type"), host.at("host", "system_id"))
		}
		if want := "/MAAS/api/2.0/vm-hosts/" + host.id("id") + "/"; host.str("resource_uri") != want {
			t.Errorf("resource_uri %q, want %q", host.str("resource_uri"), want)
		}
		m.delete(t, vmHostPath(host)).gone(t)
		m.get(t, vmHostPath(host)).refuses(t, http.StatusNotFound, "Not Found")
	})
}

func TestVMHostTakesZonePoolTagsAndRatios(t *testing.T) {
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
		zone, pool := m.newZone(t).str("name"), m.newPool(t).str("name")
		host := m.newUnreachableHost(t, "zone", zone, "pool", pool, "tags", "a,b",
			"cpu_over_commit_ratio", "2.5", "memory_over_commit_ratio", "1.5")
		if host.str("zone", "name") != zone || host.str("pool", "name") != pool {
			t.Errorf("in zone %s and pool %s, want %s and %s", host.str("zone", "name"), host.str("pool", "name"), zone, pool)
		}
		for _, tag := range []string{"a", "b", "pod-console-logging"} {
			if !slices.Contains(host.strings("tags"), tag) {
				t.Errorf("tags %v, want %s among them", host.strings("tags"), tag)
			}
		}
		if host.num("cpu_over_commit_ratio") != 2.5 || host.num("memory_over_commit_ratio") != 1.5 {
			t.Errorf("ratios %v and %v, want 2.5 and 1.5", host["cpu_over_commit_ratio"], host["memory_over_commit_ratio"])
		}
	})
}

func TestVMHostIsInTheDefaultZoneByDefault(t *testing.T) {
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
		if got, want := m.newUnreachableHost(t).str("zone", "name"), m.defaultZone(t).str("name"); got != want {
			t.Errorf("in zone %s, want %s", got, want)
		}
	})
}

func TestCreateVMHostRefusals(t *testing.T) {
	tests := []struct {
		name  string
		pairs []string
		field string
		text  string
	}{
		{"no type", []string{"power_address", unreachable}, "type", "This field is required."},
		{"unknown type", []string{"type", "foo", "power_address", unreachable}, "type",
			"Select a valid choice. foo is not one of the available choices."},
		{"no address", []string{"type", "lxd"}, "power_address", "This field is required."},
		{"unknown zone", []string{"type", "lxd", "power_address", unreachable, "zone", "nosuch"}, "zone",
			"Select a valid choice. That choice is not one of the available choices."},
		{"unknown pool", []string{"type", "lxd", "power_address", unreachable, "pool", "nosuch"}, "pool",
			"Select a valid choice. That choice is not one of the available choices."},
		{"ratio too high", []string{"type", "lxd", "power_address", unreachable, "cpu_over_commit_ratio", "11"},
			"cpu_over_commit_ratio", "Ensure this value is less than or equal to 10."},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
				got := m.create(t, "vm-hosts/", test.pairs...)
				if got.status == http.StatusOK {
					m.deleteAfter(t, vmHostPath(got.object(t)))
				}
				got.refusesField(t, test.field, test.text)
			})
		})
	}
}

// Names of VM hosts are not unique; nor are addresses, as each registration has a certificate of its own.
func TestSameVMHostTwiceIsTwoHosts(t *testing.T) {
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
		first := m.newUnreachableHost(t)
		second := m.newUnreachableHost(t, "name", first.str("name"))
		if first.id("id") == second.id("id") || first.str("name") != second.str("name") {
			t.Errorf("hosts %s %q and %s %q, want two of one name",
				first.id("id"), first.str("name"), second.id("id"), second.str("name"))
		}
	})
}

func TestUpdateVMHostByNames(t *testing.T) {
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
		zone, pool, name := m.newZone(t).str("name"), m.newPool(t).str("name"), uniqueName()
		host := m.newUnreachableHost(t)
		m.removeAfter(t, "vm-hosts/", "name", name, "vm-hosts/")
		m.put(t, vmHostPath(host), "zone", zone).object(t)
		got := m.put(t, vmHostPath(host), "pool", pool, "name", name, "cpu_over_commit_ratio", "4").object(t)
		if got.str("zone", "name") != zone || got.str("pool", "name") != pool || got.str("name") != name ||
			got.num("cpu_over_commit_ratio") != 4 {
			t.Errorf("%s in zone %s and pool %s with ratio %v; want %s in %s and %s with 4", got.str("name"),
				got.str("zone", "name"), got.str("pool", "name"), got["cpu_over_commit_ratio"], name, zone, pool)
		}
		m.put(t, vmHostPath(host), "zone", "999999").refusesField(t, "zone", "Select a valid choice.")
	})
}

func TestVMHostParametersShowHowItIsReached(t *testing.T) {
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
		host := m.newUnreachableHost(t)
		got := m.get(t, vmHostPath(host), "op", "parameters").object(t)
		if !strings.Contains(got.str("power_address"), unreachable) || got.str("project") != prefix+"project" {
			t.Errorf("address %q, project %q; want %s and %s", got.str("power_address"), got.str("project"), unreachable,
				prefix+"project")
		}
		for _, key := range []string{"certificate", "key"} {
			if !strings.HasPrefix(got.str(key), "-----BEGIN ") {
				t.Errorf("%s %q, want PEM: MAAS makes one when none is given", key, got.str(key))
			}
		}
		refused := m.asPlainUser(t).get(t, vmHostPath(host), "op", "parameters")
		if m.facts.entitlements {
			refused.refusesSilently(t, http.StatusForbidden)
			return
		}
		refused.refuses(t, http.StatusForbidden, "This method is reserved for admin users.")
	})
}

func TestVMHostTags(t *testing.T) {
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
		host := m.newUnreachableHost(t)
		tag := uniqueName()
		added := m.op(t, vmHostPath(host), "add_tag", "tag", tag).object(t)
		if !slices.Contains(added.strings("tags"), tag) {
			t.Errorf("tags %v, want %s among them", added.strings("tags"), tag)
		}
		if has(m.get(t, "tags/").list(t), "name", tag) {
			t.Error("a tag of machines was made of it")
		}
		m.op(t, vmHostPath(host), "add_tag", "tag", "a,b").refuses(t, http.StatusBadRequest, `Tag may not contain a ",".`)
	})
}

func TestRefreshOfUnreachableVMHostIsUnavailable(t *testing.T) {
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
		m.op(t, vmHostPath(m.newUnreachableHost(t)), "refresh").refuses(t, http.StatusServiceUnavailable)
	})
}

func TestRefreshReturnsTheVMHost(t *testing.T) {
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
		host := m.vmHostWithRoom(t)
		got := m.op(t, vmHostPath(host), "refresh").object(t)
		checkVMHost(t, got)
		if got.id("id") != host.id("id") || got.num("total", "cores") != host.num("total", "cores") {
			t.Errorf("VM host %s with %v cores, want %s with %v",
				got.id("id"), got.num("total", "cores"), host.id("id"), host.num("total", "cores"))
		}
	})
}

// VMs that MAAS knows on a host and finds there do not change.
func TestRefreshKeepsTheVMsThatAreThere(t *testing.T) {
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
		vm := m.spare(t)
		m.op(t, "vm-hosts/"+vm.id("pod", "id")+"/", "refresh").object(t)
		now := m.machine(t, vm.str("system_id"))
		if now.str("hostname") != vm.str("hostname") || now.str("status_name") != vm.str("status_name") {
			t.Errorf("the refresh made %s, %s of %s, %s", now.str("hostname"), now.str("status_name"), vm.str("hostname"), vm.str("status_name"))
		}
	})
}

func TestADeletedVMDoesNotComeBackAtARefresh(t *testing.T) {
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
		vm := m.spare(t)
		m.delete(t, machinePath(vm.str("system_id"))).gone(t)
		m.awaitNoMachine(t, vm.str("system_id"))
		m.op(t, "vm-hosts/"+vm.id("pod", "id")+"/", "refresh").object(t)
		if back := m.machines(t, "hostname", vm.str("hostname")); len(back) != 0 {
			t.Errorf("%v came back", systemIDs(back))
		}
	})
}

func TestRefreshIsForAdministrators(t *testing.T) {
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
		m.asPlainUser(t).op(t, vmHostPath(m.vmHostWithRoom(t)), "refresh").refuses(t, http.StatusForbidden)
	})
}

func TestRefreshOfAVMHostThatIsNotThereIsNotFound(t *testing.T) {
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
		m.op(t, "vm-hosts/999999/", "refresh").refuses(t, http.StatusNotFound, "No Pod matches the given query.")
	})
}

// MAAS adds unknown VMs that it finds on a host: under the VM's name, in the host's zone and pool, and commissions
// them.
func TestRefreshEnlistsAndCommissionsWhatItDoesNotKnow(t *testing.T) {
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
		project := uniqueName()
		host, vm := m.vmOfItsOwnHost(t, project)
		m.delete(t, vmHostPath(host)).gone(t)
		m.awaitNoMachine(t, vm.str("system_id"))
		again := m.newLXDHost(t, "project", project)
		m.op(t, vmHostPath(again), "refresh").object(t)
		found := m.machines(t, "hostname", vm.str("hostname"))
		if len(found) != 1 || found[0].str("system_id") == vm.str("system_id") || found[0].id("pod", "id") != again.id("id") {
			t.Fatalf("%v have the VM's name, want a new machine on the new VM host", systemIDs(found))
		}
		if status := found[0].str("status_name"); status != "Commissioning" && status != "New" {
			t.Errorf("it is %s, want it to be commissioned", status)
		}
	})
}

func TestComposeOnAnUnreachableVMHostIsRefused(t *testing.T) {
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
		got := m.composeOn(t, m.newUnreachableHost(t))
		got.refuses(t, http.StatusBadRequest, "VM host does not support composability.")
	})
}

// newLXDHost registers an LXD host that exists.
func (m *maas) newLXDHost(t *testing.T, pairs ...string) object {
	t.Helper()
	if m.lxdAddress == "" {
		needsVariable(t, "MAAS_CONFORMANCE_LXD_ADDRESS")
	}
	pairs = withDefaults(pairs, "type", "lxd", "power_address", m.lxdAddress, "name", uniqueName(),
		"password", m.lxdPassword, "project", uniqueName())
	name := form(pairs...).Get("name")
	t.Cleanup(func() {
		for _, host := range m.get(t, "vm-hosts/").list(t) {
			if host.str("name") == name { // all VMs of its project are the suite's
				m.delete(t, vmHostPath(host), "decompose", "true").gone(t)
			}
		}
	})
	return m.create(t, "vm-hosts/", pairs...).object(t)
}

// vmOfItsOwnHost registers an LXD host in the project and composes a VM on it.
func (m *maas) vmOfItsOwnHost(t *testing.T, project string) (host, vm object) {
	t.Helper()
	host = m.newLXDHost(t, "project", project)
	m.await(t, "the new VM host to have room", func() (bool, string) {
		host = m.get(t, vmHostPath(host)).object(t)
		return canTake(host), fmt.Sprint(host["total"])
	})
	composed := m.composeOn(t, host).object(t)
	return host, m.machine(t, composed.str("system_id"))
}

func TestDeletionOfAVMHostForgetsItsMachinesAndKeepsTheVMs(t *testing.T) {
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
		project := uniqueName()
		host, vm := m.vmOfItsOwnHost(t, project)
		m.delete(t, vmHostPath(host)).gone(t)
		m.awaitNoMachine(t, vm.str("system_id"))
		// Registering a host adds the VMs that it has, and commissions them.
		again := m.newLXDHost(t, "project", project)
		var enlisted []object
		m.await(t, "the VM to be enlisted", func() (bool, string) {
			enlisted = m.machines(t, "pod", again.str("name"))
			return len(enlisted) > 0, "no machine on " + again.str("name")
		})
		if len(enlisted) != 1 || enlisted[0].str("hostname") != vm.str("hostname") {
			t.Errorf("%v are enlisted, want the one VM %s", systemIDs(enlisted), vm.str("hostname"))
		}
	})
}

func TestDeletionOfAVMHostCanDeleteTheVMs(t *testing.T) {
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
		project := uniqueName()
		host, vm := m.vmOfItsOwnHost(t, project)
		m.delete(t, vmHostPath(host), "decompose", "true").gone(t)
		m.awaitNoMachine(t, vm.str("system_id"))
		again := m.newLXDHost(t, "project", project)
		if found := m.machines(t, "pod", again.str("name")); len(found) != 0 {
			t.Errorf("%v are enlisted, want no VM to be left", systemIDs(found))
		}
	})
}

// A host's resources are known only after it was commissioned, a moment after MAAS's response.
func TestReachableVMHostIsFilledAfterTheReply(t *testing.T) {
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
		host := m.newLXDHost(t)
		if host.str("version") == "" || len(host.strings("architectures")) == 0 || host.str("host", "system_id") == "" {
			t.Fatalf("version %q, architectures %v, machine %q; want all of them", host.str("version"),
				host.strings("architectures"), host.str("host", "system_id"))
		}
		if host.num("total", "cores") != 0 || host.num("total", "memory") != 0 {
			t.Errorf("the reply has %v already, want no cores and no memory", host["total"])
		}
		m.await(t, "the VM host's cores and memory", func() (bool, string) {
			now := m.get(t, vmHostPath(host)).object(t)
			return now.num("total", "cores") > 0 && now.num("total", "memory") > 0, fmt.Sprint(now["total"])
		})
		if machine := m.machine(t, host.str("host", "system_id")); machine.str("status_name") != "Deployed" {
			t.Errorf("the VM host's machine is %s, want Deployed", machine.str("status_name"))
		}
	})
}

func TestMachineOfAVMHostCannotBeDeletedBeforeIt(t *testing.T) {
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
		before := m.machines(t)
		host := m.newLXDHost(t)
		systemID := host.str("host", "system_id")
		if has(before, "system_id", systemID) {
			lacks(t, "MAAS took machine %s, which is not the suite's, for the LXD host's own", systemID)
		}
		m.delete(t, machinePath(systemID)).refuses(t, http.StatusBadRequest,
			"The following VM hosts must be removed first: "+host.str("name"))
		m.delete(t, vmHostPath(host)).gone(t)
		m.awaitNoMachine(t, systemID)
	})
}
