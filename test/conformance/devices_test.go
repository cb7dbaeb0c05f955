// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"net/http"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func devicePath(device object) string { return "devices/" + device.str("system_id") + "/" }

// cardPath is the path of a device's only interface.
func cardPath(device object) string {
	return "nodes/" + device.str("system_id") + "/interfaces/" + device.objects("interface_set")[0].id("id") + "/"
}

// spareDevice is a new device with a name and an interface.
func (m *maas) spareDevice(t *testing.T, pairs ...string) object {
	t.Helper()
	return m.newDevice(t, withDefaults(pairs, "hostname", uniqueName(), "mac_addresses", newMAC())...).object(t)
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

func (m *maas) device(t *testing.T, device object) object {
	t.Helper()
	return m.get(t, devicePath(device)).object(t)
}

func TestDevicesHaveTheirShape(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		device := m.spareDevice(t)
		for what, o := range map[string]object{
			"made": device, "read": m.device(t, device), "listed": m.get(t, "devices/", "id", device.str("system_id")).list(t)[0],
		} {
			checkShape(t, what, o, shapes["device"])
			checkNoOtherKeys(t, what, o, shapes["device"])
		}
	})
}

// MAAS chooses the address at once, unlike that of a machine, and its name resolves. When the device is gone, both are free.
func TestADeviceGetsAnAddressOfItsSubnet(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		subnet, device := m.subnetWithRoom(t), m.spareDevice(t)
		linked := m.op(t, cardPath(device), "link_subnet", "mode", "STATIC", "subnet", subnet.id("id")).object(t)
		links := linked.objects("links")
		if len(links) != 1 || links[0].str("mode") != "static" || links[0].id("subnet", "id") != subnet.id("id") {
			t.Fatalf("links %v, want a static one", links)
		}
		address := links[0].str("ip_address")
		if ip, err := netip.ParseAddr(address); err != nil || !netip.MustParsePrefix(subnet.str("cidr")).Contains(ip) {
			t.Errorf("the address is %q, want one of %s", address, subnet.str("cidr"))
		}
		if has := m.device(t, device).strings("ip_addresses"); !cmp.Equal(has, []string{address}) {
			t.Errorf("addresses %v, want %s", has, address)
		}
		isDevice := func(o object) bool { return o.str("fqdn") == device.str("fqdn") }
		record := find(m.get(t, "dnsresources/", "all", "true").list(t), isDevice)
		if record == nil || !has(record.objects("resource_records"), "rrdata", address) {
			t.Errorf("%v is the record of %s, want one of %s", record, device.str("fqdn"), address)
		}
		m.delete(t, devicePath(device)).gone(t)
		if record := find(m.get(t, "dnsresources/", "all", "true").list(t), isDevice); record != nil {
			t.Errorf("the record %v is left", record)
		}
		m.reserve(t, "ip", address)
	})
}

func TestADeviceTakesAnAddressOfChoiceOnce(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		subnet, device, other := m.subnetWithRoom(t), m.spareDevice(t), m.spareDevice(t)
		address := m.freeAddress(t, subnet)
		pairs := []string{"mode", "STATIC", "subnet", subnet.str("cidr"), "ip_address", address} // A CIDR is as good as an id.
		m.op(t, cardPath(device), "link_subnet", pairs...).object(t)
		for _, again := range []object{device, other} {
			m.op(t, cardPath(again), "link_subnet", pairs...).refuses(t, http.StatusNotFound, "IP address is already in use.")
		}
		if has := m.device(t, device).strings("ip_addresses"); !cmp.Equal(has, []string{address}) {
			t.Errorf("addresses %v, want %s alone", has, address)
		}
	})
}

// A repeated call gives a second address: MAAS takes no part in telling repetitions apart.
func TestAnotherLinkOfADeviceIsAnotherAddress(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		subnet, device := m.subnetWithRoom(t), m.spareDevice(t)
		pairs := []string{"mode", "STATIC", "subnet", subnet.id("id")}
		for want := 1; want <= 2; want++ {
			m.op(t, cardPath(device), "link_subnet", pairs...).object(t)
			if has := m.device(t, device).strings("ip_addresses"); len(has) != want {
				t.Errorf("addresses %v, want %d", has, want)
			}
		}
		m.op(t, cardPath(device), "link_subnet", append(pairs, "force", "true")...).object(t)
		if has := m.device(t, device).strings("ip_addresses"); len(has) != 1 {
			t.Errorf("addresses %v with force, want one", has)
		}
	})
}

// InterfaceHandler.link_subnet in maasserver/api/interfaces.py.
func TestADeviceHasStaticLinksAlone(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		subnet, device := m.subnetWithRoom(t), m.spareDevice(t)
		for _, mode := range []string{"auto", "dhcp", "link_up"} {
			m.op(t, cardPath(device), "link_subnet", "mode", mode, "subnet", subnet.id("id")).
				refusesField(t, "mode", "'"+mode+"' is not a valid mode.  It should be one of: 'static'.")
		}
	})
}

// DeviceForm.has_perm in maasserver/forms: everybody may make devices, and what he may not do with a machine's interface he
// may do with that of his device.
func TestADeviceIsItsMakers(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		plain, subnet := m.asPlainUser(t), m.subnetWithRoom(t)
		device := plain.spareDevice(t, "description", "mark")
		if device.str("owner") != plain.me(t) {
			t.Errorf("its owner is %s, want who made it", device.str("owner"))
		}
		plain.op(t, cardPath(device), "link_subnet", "mode", "STATIC", "subnet", subnet.id("id")).object(t)
		plain.op(t, devicePath(device), "set_workload_annotations", "a", "b").object(t)
		if now := plain.put(t, devicePath(device), "description", "other").object(t); now.str("description") != "other" {
			t.Errorf("the description is %q, want the new one", now.str("description"))
		}
		plain.delete(t, devicePath(device)).gone(t)
	})
}

// MAASAuthorizationBackend in maasserver/auth/local.py: a device has no resource pool, and everybody who knows its id may
// read it. With entitlements, not even an administrator may change it.
func TestADeviceOfAnotherUser(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		plain, subnet := m.asPlainUser(t), m.subnetWithRoom(t)
		mine, theirs := m.spareDevice(t), plain.spareDevice(t)
		changes := map[string]func(m *maas, device object) *answer{
			"PUT":    func(m *maas, d object) *answer { return m.put(t, devicePath(d), "description", "changed") },
			"DELETE": func(m *maas, d object) *answer { return m.delete(t, devicePath(d)) },
			"link": func(m *maas, d object) *answer {
				return m.op(t, cardPath(d), "link_subnet", "mode", "STATIC", "subnet", subnet.id("id"))
			},
		}
		if got := plain.device(t, mine); got.str("hostname") != mine.str("hostname") {
			t.Errorf("a user reads %v of another's device", got)
		}
		if found := plain.get(t, "devices/", "id", mine.str("system_id")).list(t); len(found) != 0 {
			t.Errorf("a user finds another's device: %v", found)
		}
		if found := m.get(t, "devices/", "id", theirs.str("system_id")).list(t); len(found) != 1 {
			t.Errorf("an administrator finds %v, want a user's device", found)
		}
		for what, change := range changes {
			t.Run(what, func(t *testing.T) {
				change(plain, mine).wants(t, http.StatusForbidden)
				if m.facts.entitlements {
					change(m, theirs).wants(t, http.StatusForbidden)
				}
			})
		}
		annotate := []string{devicePath(theirs), "set_workload_annotations", "a", "b"}
		if m.facts.entitlements {
			m.op(t, annotate[0], annotate[1], annotate[2:]...).wants(t, http.StatusForbidden)
			return
		}
		m.op(t, annotate[0], annotate[1], annotate[2:]...).
			refuses(t, http.StatusConflict, "Cannot set workload annotation: it hasn't been acquired.")
		changes["link"](m, theirs).object(t)
		changes["PUT"](m, theirs).object(t)
		changes["DELETE"](m, theirs).gone(t)
	})
}

// NodesHandler.read in maasserver/api/nodes.py is one for machines and devices.
func TestDevicesAreFiltered(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		mac := newMAC()
		device := m.spareDevice(t, "mac_addresses", mac)
		m.spareDevice(t)
		id := device.str("system_id")
		for _, filter := range [][]string{
			{"id", id}, {"hostname", device.str("hostname")}, {"mac_address", mac},
			{"hostname", device.str("hostname"), "hostname", uniqueName()},
		} {
			if found := systemIDs(m.get(t, "devices/", filter...).list(t)); !cmp.Equal(found, []string{id}) {
				t.Errorf("%v finds %v, want %s", filter, found, id)
			}
		}
		if found := systemIDs(m.get(t, "devices/", "hostname", uniqueName()).list(t)); len(found) != 0 {
			t.Errorf("a name that nothing has finds %v", found)
		}
		m.get(t, "devices/", "nonsense", "x").refusesField(t, "nonsense", "No such constraint.")
		m.get(t, "machines/"+id+"/").refuses(t, http.StatusNotFound, "No Machine matches the given query.")
	})
}

// Names and MAC addresses are one space for machines and devices.
func TestADeviceLikeAMachineOrADeviceIsRefused(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		named := func(o object) []string {
			return []string{"hostname", o.str("hostname"), "mac_addresses", o.objects("interface_set")[0].str("mac_address")}
		}
		device, machine := m.spareDevice(t), m.newMachine(t)
		for _, other := range []object{device, machine} {
			got := m.newDevice(t, named(other)...)
			got.refusesField(t, "mac_addresses", "already in use on "+other.str("hostname")+".")
			got.refusesField(t, "hostname", "already exists")
		}
		got := m.create(t, "machines/", append(named(device), "architecture", m.architecture(t), "power_type", "manual", "commission", "false")...)
		got.refusesField(t, "mac_addresses", "already in use on "+device.str("hostname")+".")
		got.refusesField(t, "hostname", "already exists")
	})
}
