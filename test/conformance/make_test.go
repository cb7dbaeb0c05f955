// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// prefix begins the name of everything that this run of the suite makes.
var prefix = "capmaas-conf-" + randomHex(2) + "-"

// uniqueName is a name that nothing has, fit for a hostname, a zone, a pool and a tag.
func uniqueName() string { return prefix + randomHex(4) }

// newMAC is a locally administered MAC address.
func newMAC() string {
	hex := randomHex(5)
	return fmt.Sprintf("02:%s:%s:%s:%s:%s", hex[0:2], hex[2:4], hex[4:6], hex[6:8], hex[8:10])
}

// withDefaults are the pairs, and those of the defaults whose name is not among them.
func withDefaults(pairs []string, defaults ...string) []string {
	given := form(pairs...)
	out := slices.Clone(pairs)
	for i := 0; i+1 < len(defaults); i += 2 {
		if !given.Has(defaults[i]) {
			out = append(out, defaults[i], defaults[i+1])
		}
	}
	return out
}

// newMachine creates a machine record that no power driver can reach: it is New, and costs nothing.
func (m *maas) newMachine(t *testing.T, pairs ...string) object {
	t.Helper()
	pairs = withDefaults(pairs, "hostname", uniqueName(), "power_type", "manual", "commission", "false",
		"mac_addresses", newMAC(), "architecture", m.architecture(t))
	m.removeMachineAfter(t, form(pairs...).Get("hostname"))
	return m.create(t, "machines/", pairs...).object(t)
}

// newDeployedMachine creates a machine record that is Deployed from the start and ours, without any deployment.
func (m *maas) newDeployedMachine(t *testing.T, pairs ...string) object {
	t.Helper()
	return m.newMachine(t, append(pairs, "deployed", "true")...)
}

// composeOn makes a VM on a VM host, small and without commissioning unless the pairs say otherwise.
func (m *maas) composeOn(t *testing.T, host object, pairs ...string) *answer {
	t.Helper()
	pairs = withDefaults(pairs, "hostname", uniqueName(), "cores", "1", "memory", fmt.Sprint(vmMemoryMiB),
		"storage", fmt.Sprintf("root:%d", vmDiskGB), "skip_commissioning", "true")
	m.removeMachineAfter(t, form(pairs...).Get("hostname"))
	return m.op(t, vmHostPath(host), "compose", pairs...)
}

// spare is a machine that a case may do anything with but delete it, Ready and without an owner: a VM of ours, or a
// machine of the region where there are no VM hosts. The pairs are those of composing; a case that has some needs VM hosts.
func (m *maas) spare(t *testing.T, pairs ...string) object {
	t.Helper()
	if !m.facts.vmHosts && len(pairs) == 0 {
		return m.lend(t)
	}
	composed := m.composeOn(t, m.vmHostWithRoom(t), pairs...).object(t)
	return m.machine(t, composed.str("system_id"))
}

// allocated is a spare machine that is Allocated.
func (m *maas) allocated(t *testing.T, pairs ...string) object {
	t.Helper()
	spare := m.spare(t)
	pairs = append(pairs, "system_id", spare.str("system_id"))
	return m.op(t, "machines/", "allocate", pairs...).object(t)
}

// deployed is a spare machine that is Deployed and on.
func (m *maas) deployed(t *testing.T, pairs ...string) object {
	t.Helper()
	spare := m.spare(t)
	m.deploy(t, spare, pairs...).object(t)
	return m.awaitStatus(t, spare.str("system_id"), "Deployed")
}

// deploy asks for a deployment, of an image that the region has unless the pairs name one.
func (m *maas) deploy(t *testing.T, machine object, pairs ...string) *answer {
	t.Helper()
	pairs = withDefaults(pairs, "distro_series", m.series(t))
	return m.op(t, machinePath(machine.str("system_id")), "deploy", pairs...)
}

// borrow allocates a Ready machine of the region, and gives it back when the case ends.
func (m *maas) borrow(t *testing.T, pairs ...string) object {
	t.Helper()
	systemID := m.lend(t).str("system_id")
	return m.op(t, "machines/", "allocate", append(pairs, "system_id", systemID)...).object(t)
}

// awaitStatus waits until the machine has the status, and fails at once in a state that it can't leave.
func (m *maas) awaitStatus(t *testing.T, systemID, status string) object {
	t.Helper()
	return m.awaitMachine(t, systemID, status, func(o object) bool { return o.str("status_name") == status })
}

// awaitMachine waits until the condition holds for the machine. Where one machine of the region never came to be that,
// later cases do not wait for another.
func (m *maas) awaitMachine(t *testing.T, systemID, what string, condition func(object) bool) object {
	t.Helper()
	if _, inVain := m.stuck.Load(what); inVain {
		lacks(t, "an earlier case waited %v for a machine to be %s", m.deadline, what)
	}
	var machine object
	done, saw := m.awaited(func() (bool, string) {
		machine = m.machine(t, systemID)
		if condition(machine) {
			return true, ""
		}
		if strings.Contains(strings.ToLower(machine.str("status_name")), "failed") {
			t.Fatalf("machine %s: %s (%s), want %s",
				systemID, machine.str("status_name"), machine.str("status_message"), what)
		}
		return false, fmt.Sprintf("%s, power %s, addresses %v",
			machine.str("status_name"), machine.str("power_state"), machine.strings("ip_addresses"))
	})
	if !done {
		m.stuck.Store(what, true)
		t.Fatalf("waited %v for machine %s to be %s; last seen: %s", m.deadline, systemID, what, saw)
	}
	return machine
}

// awaitNoMachine waits until MAAS does not know the machine any more.
func (m *maas) awaitNoMachine(t *testing.T, systemID string) {
	t.Helper()
	m.await(t, "machine "+systemID+" to be gone", func() (bool, string) {
		got := m.get(t, machinePath(systemID))
		return got.status == http.StatusNotFound, fmt.Sprint(got.status)
	})
}

// removeMachineAfter deletes, when the case ends, the machine that has the hostname by then. It finds it by name and
// not by id, so that it also finds a machine whose creation returned an error or nothing at all.
func (m *maas) removeMachineAfter(t *testing.T, hostname string) {
	t.Helper()
	if !strings.HasPrefix(hostname, prefix) {
		return // not a name of ours: nothing that we may delete by it
	}
	t.Cleanup(func() {
		for _, machine := range m.machines(t, "hostname", hostname) {
			m.removeMachine(t, machine)
		}
	})
}

func (m *maas) removeMachine(t *testing.T, machine object) {
	systemID := machine.str("system_id")
	if machine.flag("locked") {
		m.op(t, machinePath(systemID), "unlock").object(t)
	}
	m.delete(t, machinePath(systemID)).gone(t)
	m.awaitNoMachine(t, systemID)
}

// deleteAfter deletes the object at the path when the case ends; it may be gone by then.
func (m *maas) deleteAfter(t *testing.T, path string) {
	t.Helper()
	t.Cleanup(func() {
		if got := m.delete(t, path); got.status != http.StatusNotFound {
			got.gone(t)
		}
	})
}

// removeAfter deletes, when the case ends, the object of the collection that has the name by then, also if the response
// to its creation was lost. Objects have their numbers below the path single.
func (m *maas) removeAfter(t *testing.T, collection, key, name, single string) {
	t.Helper()
	t.Cleanup(func() {
		for _, o := range m.get(t, collection).list(t) {
			if o.str(key) == name {
				m.delete(t, single+o.id("id")+"/").gone(t)
			}
		}
	})
}

// newZone makes a zone.
func (m *maas) newZone(t *testing.T) object {
	t.Helper()
	name := uniqueName()
	m.deleteAfter(t, "zones/"+name+"/")
	return m.create(t, "zones/", "name", name, "description", "made by the conformance suite").object(t)
}

// newPool makes a resource pool.
func (m *maas) newPool(t *testing.T) object {
	t.Helper()
	name := uniqueName()
	m.removeAfter(t, "resourcepools/", "name", name, "resourcepool/")
	return m.create(t, "resourcepools/", "name", name, "description", "made by the conformance suite").object(t)
}

// newDomain makes a DNS domain.
func (m *maas) newDomain(t *testing.T, pairs ...string) object {
	t.Helper()
	name := uniqueName() + ".example"
	m.removeAfter(t, "domains/", "name", name, "domains/")
	return m.create(t, "domains/", append([]string{"name", name}, pairs...)...).object(t)
}

// newTag makes a tag, and puts it on the machines.
func (m *maas) newTag(t *testing.T, machines ...object) string {
	t.Helper()
	name := uniqueName()
	m.deleteAfter(t, "tags/"+name+"/")
	m.create(t, "tags/", "name", name, "comment", "made by the conformance suite").object(t)
	for _, machine := range machines {
		m.op(t, "tags/"+name+"/", "update_nodes", "add", machine.str("system_id")).object(t)
	}
	return name
}

// reserve reserves an address and releases it when the case ends.
func (m *maas) reserve(t *testing.T, pairs ...string) object {
	t.Helper()
	reserved := m.op(t, "ipaddresses/", "reserve", pairs...).object(t)
	m.freeAfter(t, reserved.str("ip"))
	return reserved
}

// freeAfter releases an address when the case ends, whoever has it by then; it may be free.
func (m *maas) freeAfter(t *testing.T, address string) {
	t.Helper()
	t.Cleanup(func() {
		got := m.op(t, "ipaddresses/", "release", "ip", address, "force", "true")
		if got.status != http.StatusBadRequest {
			got.gone(t)
		}
	})
}

// newDNSResource makes a DNS resource of the default domain that is gone when the case ends.
func (m *maas) newDNSResource(t *testing.T, pairs ...string) object {
	t.Helper()
	fqdn := uniqueName() + "." + m.defaultDomain(t).str("name")
	m.removeAfter(t, "dnsresources/", "fqdn", fqdn, "dnsresources/")
	return m.create(t, "dnsresources/", append([]string{"fqdn", fqdn}, pairs...)...).object(t)
}

// leftBehind lists what still carries a name of this run when all cases have ended.
func (m *maas) leftBehind(ctx context.Context) []string {
	keys := map[string]string{
		"machines/": "hostname", "zones/": "name", "resourcepools/": "name", "tags/": "name", "dnsresources/": "fqdn", "domains/": "name",
		"scripts/": "name",
	}
	if m.facts.vmHosts {
		keys["vm-hosts/"] = "name"
	}
	if m.facts.entitlements {
		keys["groups/"] = "name"
	}
	var left []string
	for path, key := range keys {
		names, err := m.namesOf(ctx, path, key)
		if err != nil {
			left = append(left, err.Error())
		}
		for _, name := range names {
			if strings.HasPrefix(name, prefix) {
				left = append(left, path+" "+name)
			}
		}
	}
	return left
}

// namesOf lists the names of a collection, outside of any case.
func (m *maas) namesOf(ctx context.Context, path, key string) ([]string, error) {
	got, err := m.send(ctx, request{method: http.MethodGet, path: path})
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", path, err)
	}
	var list []object
	if err := json.Unmarshal(got.body, &list); err != nil {
		return nil, fmt.Errorf("listing %s: status %d: %w", path, got.status, err)
	}
	var names []string
	for _, o := range list {
		names = append(names, o.str(key))
	}
	return names, nil
}
