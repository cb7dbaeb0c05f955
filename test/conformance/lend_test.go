// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// lend is a Ready machine of the region that the case may use. When the case ends, it is given back as it was found.
func (m *maas) lend(t *testing.T) object {
	t.Helper()
	found := m.readyBareMetal(t)
	systemID := found.str("system_id")
	m.lent.Store(systemID, true)
	t.Cleanup(func() {
		m.giveBack(t, systemID)
		m.asFound(t, found)
		m.lent.Delete(systemID)
	})
	return found
}

// wayBack is the operation that leads a machine from a state towards Ready; "" is to wait. It is release from any other.
var wayBack = map[string]string{
	"Broken": "mark_fixed", "Rescue mode": "exit_rescue_mode", "Testing": "abort", "Failed testing": "override_failed_testing", "Commissioning": "abort",
	"Releasing": "", "Disk erasing": "", "Entering rescue mode": "", "Exiting rescue mode": "",
}

// giveBack makes a machine Ready and nobody's, whatever became of it.
func (m *maas) giveBack(t *testing.T, systemID string) {
	m.await(t, "machine "+systemID+" to be Ready and nobody's", func() (bool, string) {
		machine := m.machine(t, systemID)
		status := machine.str("status_name")
		switch op, known := wayBack[status]; {
		case status == "Ready" && machine.at("owner") == nil && machine.str("power_state") == "off":
			return true, status
		case machine.flag("locked"):
			m.op(t, machinePath(systemID), "unlock").object(t)
		case !known:
			m.op(t, machinePath(systemID), "release", "comment", "the conformance case has ended") // Or it is on its way.
		case op != "":
			m.op(t, machinePath(systemID), op)
		}
		return false, status + ", power " + machine.str("power_state")
	})
}

// asFound undoes what a case changed on a machine of the region: interfaces that it made, links, names, and storage.
func (m *maas) asFound(t *testing.T, found object) {
	path := machinePath(found.str("system_id"))
	nics := found.objects("interface_set")
	for _, now := range m.machine(t, found.str("system_id")).objects("interface_set") {
		at := slices.IndexFunc(nics, func(o object) bool { return o.id("id") == now.id("id") })
		if at < 0 {
			m.delete(t, nicPath(now)) // With what is on it.
			continue
		}
		m.relink(t, nics[at], now)
	}
	m.put(t, path, "hostname", found.str("hostname"), "description", found.str("description"),
		"zone", found.str("zone", "name"), "pool", found.str("pool", "name")).object(t)
	if now := m.machine(t, found.str("system_id")); !slices.Equal(use(now), use(found)) {
		m.op(t, path, "restore_storage_configuration").object(t)
	}
	if diff := cmp.Diff(whatIs(found), whatIs(m.machine(t, found.str("system_id")))); diff != "" {
		t.Errorf("machine %s is not given back as it was found (-found +now):\n%s", found.str("system_id"), diff)
	}
}

// relink gives an interface the VLAN and the links that it had.
func (m *maas) relink(t *testing.T, before, now object) {
	if slices.Equal(linksOf(before), linksOf(now)) && before.id("vlan", "id") == now.id("vlan", "id") {
		return
	}
	for _, link := range now.objects("links") {
		m.op(t, nicPath(before), "unlink_subnet", "id", link.id("id")).wants(t, http.StatusOK)
	}
	m.put(t, nicPath(before), "vlan", before.id("vlan", "id")).object(t)
	for _, link := range before.objects("links") {
		pairs := []string{"mode", link.str("mode"), "force", "true"}
		if link.at("subnet") != nil {
			pairs = append(pairs, "subnet", link.id("subnet", "id"))
		}
		if link.str("mode") == "static" {
			pairs = append(pairs, "ip_address", link.str("ip_address"))
		}
		m.op(t, nicPath(before), "link_subnet", pairs...).object(t)
	}
}

// linksOf describes an interface's links.
func linksOf(nic object) (links []string) {
	for _, link := range nic.objects("links") {
		links = append(links, link.str("mode")+" "+link.str("subnet", "cidr")+" "+link.str("ip_address"))
	}
	slices.Sort(links)
	return links
}

// whatIs describes what a case may change on a machine.
func whatIs(machine object) []string {
	is := []string{
		machine.str("hostname"), machine.str("status_name"), machine.str("zone", "name"), machine.str("pool", "name"),
		strings.Join(machine.strings("tag_names"), " "), machine.str("description"),
	}
	for _, nic := range machine.objects("interface_set") {
		is = append(is, nic.str("name")+" on "+nic.str("vlan", "name")+": "+strings.Join(linksOf(nic), ", "))
	}
	return append(is, use(machine)...)
}
