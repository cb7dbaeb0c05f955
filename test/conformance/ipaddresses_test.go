// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"net/http"
	"net/netip"
	"testing"
)

func TestReserveAnAddress(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		subnet := m.subnetWithRoom(t)
		address := m.freeAddress(t, subnet)
		got := m.reserve(t, "ip", address)
		checkShape(t, "address", got, shapes["address"])
		checkNoOtherKeys(t, "address", got, shapes["address"])
		if got.str("ip") != address || got.num("alloc_type") != 4 || got.str("alloc_type_name") != "User reserved" {
			t.Errorf("%s, alloc_type %v (%s); want %s, 4 (User reserved)",
				got.str("ip"), got["alloc_type"], got.str("alloc_type_name"), address)
		}
		if got.str("owner", "username") != m.me(t) || got.id("subnet", "id") != subnet.id("id") {
			t.Errorf("of %v in %v, want mine in %s", got["owner"], got["subnet"], subnet.str("cidr"))
		}
	})
}

func TestReserveTheNextAddressOfASubnet(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		subnet := m.subnetWithRoom(t)
		network := netip.MustParsePrefix(subnet.str("cidr"))
		first, second := m.reserve(t, "subnet", subnet.str("cidr")), m.reserve(t, "subnet", subnet.id("id"))
		for _, reserved := range []object{first, second} {
			if address, err := netip.ParseAddr(reserved.str("ip")); err != nil || !network.Contains(address) {
				t.Errorf("%s is reserved, want an address of %s", reserved.str("ip"), network)
			}
		}
		if first.str("ip") == second.str("ip") {
			t.Errorf("%s was given twice", first.str("ip"))
		}
	})
}

func TestReserveWithHostnameMakesADNSRecord(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		domain := m.defaultDomain(t).str("name")
		for what, qualify := range map[string]string{"bare": "", "qualified": "." + domain} {
			name := uniqueName()
			m.removeAfter(t, "dnsresources/", "fqdn", name+"."+domain, "dnsresources/")
			reserved := m.reserve(t, "ip", m.freeAddress(t, m.subnetWithRoom(t)), "hostname", name+qualify)
			found := m.get(t, "dnsresources/", "fqdn", name+"."+domain).list(t)
			if len(found) != 1 {
				t.Fatalf("%s hostname: %d DNS resources, want 1", what, len(found))
			}
			if got := addressesOf(found[0]); len(got) != 1 || got[0] != reserved.str("ip") {
				t.Errorf("%s hostname: the record has %v, want %s", what, got, reserved.str("ip"))
			}
		}
	})
}

func TestReserveOfAnAddressInUseIsNotFound(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		address := m.freeAddress(t, m.subnetWithRoom(t))
		m.reserve(t, "ip", address)
		m.op(t, "ipaddresses/", "reserve", "ip", address).
			refuses(t, http.StatusNotFound, "The IP address "+address+" is already in use.")
	})
}

func TestReserveOfAMachinesAddressIsNotFound(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		address := m.giveStaticAddress(t, m.spare(t))
		m.op(t, "ipaddresses/", "reserve", "ip", address).
			refuses(t, http.StatusNotFound, "The IP address "+address+" is already in use.")
	})
}

func TestReserveOutsideOfAllSubnetsIsABadRequest(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		address := m.outside(t)
		m.op(t, "ipaddresses/", "reserve", "ip", address).
			refuses(t, http.StatusBadRequest, "No known subnet for IP address: "+address+".")
	})
}

func TestReserveInAnUnknownSubnetIsABadRequest(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		m.op(t, "ipaddresses/", "reserve", "subnet", "999999").
			refuses(t, http.StatusBadRequest, "Unable to identify subnet")
	})
}

func TestReserveInADynamicRangeIsForbidden(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		address, _ := m.inDynamicRange(t)
		m.op(t, "ipaddresses/", "reserve", "ip", address).
			refuses(t, http.StatusForbidden, "IP address "+address+" belongs to an existing dynamic range.")
	})
}

func TestReserveOfNothingIsABadRequest(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		m.op(t, "ipaddresses/", "reserve").
			refuses(t, http.StatusBadRequest, "Must supply either the 'subnet' or the 'ip' parameter.")
	})
}

func TestReserveOfNonsenseIsRefused(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		m.op(t, "ipaddresses/", "reserve", "ip", "nonsense").refusesField(t, "ip_address")
	})
}

func TestReleasedAddressIsFree(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		address := m.freeAddress(t, m.subnetWithRoom(t))
		m.reserve(t, "ip", address)
		m.op(t, "ipaddresses/", "release", "ip", address).gone(t)
		if listed := m.get(t, "ipaddresses/", "ip", address).list(t); len(listed) != 0 {
			t.Errorf("%v is listed after the release", listed)
		}
		m.reserve(t, "ip", address)
	})
}

func TestReleaseOfAFreeAddressIsABadRequest(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		address := m.freeAddress(t, m.subnetWithRoom(t))
		m.op(t, "ipaddresses/", "release", "ip", address).refuses(t, http.StatusBadRequest,
			"IP address "+address+" does not exist, is not the correct type of address, or does not belong to the requesting user.",
			"force=true")
		m.op(t, "ipaddresses/", "release", "ip", address, "force", "true").
			refuses(t, http.StatusBadRequest, "IP address "+address+" does not exist.")
	})
}

func TestReleaseOfNoAddressIsABadRequest(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		m.op(t, "ipaddresses/", "release").refuses(t, http.StatusBadRequest, "No provided ip!")
	})
}

func TestReleaseOfAMachinesAddressIsABadRequest(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		address := m.giveStaticAddress(t, m.spare(t))
		m.op(t, "ipaddresses/", "release", "ip", address).
			refuses(t, http.StatusBadRequest, "is not the correct type of address")
	})
}

func TestForcedReleaseIsForAdministrators(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		address := m.freeAddress(t, m.subnetWithRoom(t))
		m.asPlainUser(t).op(t, "ipaddresses/", "release", "ip", address, "force", "true").
			refuses(t, http.StatusForbidden, "Force-releasing an IP address requires admin privileges.")
	})
}
