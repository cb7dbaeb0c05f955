// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// reservedUnder reserves an address under a name of the default domain that is new; neither is left when the case ends.
func (m *maas) reservedUnder(t *testing.T) (address, fqdn string) {
	t.Helper()
	fqdn = uniqueName() + "." + m.defaultDomain(t).str("name")
	m.removeAfter(t, "dnsresources/", "fqdn", fqdn, "dnsresources/")
	return m.reserve(t, "ip", m.freeAddress(t, m.subnetWithRoom(t)), "hostname", fqdn).str("ip"), fqdn
}

// recordOf reads the DNS resource of a name, or nil.
func (m *maas) recordOf(t *testing.T, fqdn string) object {
	t.Helper()
	found := m.get(t, "dnsresources/", "fqdn", fqdn).list(t)
	if len(found) == 0 {
		return nil
	}
	return found[0]
}

// newRange makes an IP range of one address that nothing uses, and removes it when the case ends.
func (m *maas) newRange(t *testing.T, subnet object) string {
	t.Helper()
	address := m.freeAddress(t, subnet)
	made := m.create(t, "ipranges/", "type", "reserved", "start_ip", address, "end_ip", address, "subnet", subnet.id("id")).object(t)
	m.deleteAfter(t, "ipranges/"+made.id("id")+"/")
	return address
}

// The type distinguishes a reservation from a machine's address (_claim_ip in api/ip_addresses.py).
func TestRecordOfAReservationHasItsType(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		address, fqdn := m.reservedUnder(t)
		addresses := m.recordOf(t, fqdn).objects("ip_addresses")
		if len(addresses) != 1 || addresses[0].str("ip") != address || addresses[0].num("alloc_type") != 4 {
			t.Errorf("the record has %v, want %s with alloc_type 4", addresses, address)
		}
	})
}

// get_or_create in _claim_ip: a name that is there gets the address too.
func TestReserveUnderANameThatIsThereAddsTheAddress(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		first, fqdn := m.reservedUnder(t)
		second := m.reserve(t, "ip", m.freeAddress(t, m.subnetWithRoom(t)), "hostname", fqdn).str("ip")
		if diff := cmp.Diff(sorted(first, second), addressesOf(m.recordOf(t, fqdn))); diff != "" {
			t.Errorf("addresses (-want +got):\n%s", diff)
		}
	})
}

// What is behind the first dot is the domain, by its exact name (_claim_ip; get_domain_or_404 in models/domain.py).
// Nothing is reserved.
func TestReserveUnderANameOfNoDomainIsNotFound(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		domain := m.defaultDomain(t).str("name")
		for _, hostname := range []string{uniqueName() + ".nosuch.test", uniqueName() + ".sub." + domain} {
			address := m.freeAddress(t, m.subnetWithRoom(t))
			m.freeAfter(t, address)
			m.op(t, "ipaddresses/", "reserve", "ip", address, "hostname", hostname).wants(t, http.StatusNotFound)
			if listed := m.get(t, "ipaddresses/", "ip", address).list(t); len(listed) != 0 {
				t.Errorf("%s: %v is reserved all the same", hostname, listed)
			}
		}
	})
}

// validate_static_ip in models/subnet.py. The status is that of an address in use.
func TestReserveInAReservedRangeIsNotFound(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		address := m.newRange(t, m.subnetWithRoom(t))
		m.op(t, "ipaddresses/", "reserve", "ip", address).
			refuses(t, http.StatusNotFound, address+" is within the reserved range from "+address+" to "+address)
	})
}

// IPRangesHandler in api/ip_ranges.py; get_MAASIPRange in models/iprange.py.
func TestReservedRangeIsListed(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		subnet := m.subnetWithRoom(t)
		address := m.newRange(t, subnet)
		listed := find(m.get(t, "ipranges/").list(t), func(o object) bool { return o.str("start_ip") == address })
		if listed.str("type") != "reserved" || listed.str("end_ip") != address {
			t.Errorf("ipranges/ has %v, want a reserved range of %s", listed, address)
		}
		used := find(m.get(t, subnetPath(subnet), "op", "reserved_ip_ranges").list(t), func(r object) bool { return inRange(r, address) })
		if !slices.Contains(used.strings("purpose"), "reserved") {
			t.Errorf("the subnet has %s in %v, want the purpose reserved", address, used)
		}
	})
}

// Reserved ranges are for such addresses: _link_subnet_static in models/interface.py checks only dynamic ranges.
func TestStaticLinkInAReservedRange(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		subnet := m.subnetWithRoom(t)
		address := m.newRange(t, subnet)
		got := m.link(t, m.newMachine(t), "mode", "STATIC", "subnet", subnet.id("id"), "ip_address", address, "force", "true").object(t)
		if links := got.objects("links"); !has(links, "ip_address", address) {
			t.Errorf("links %v, want %s", links, address)
		}
	})
}

// StaticIPAddressExhaustion in exceptions.py, raised by get_next_ip_for_allocation in models/subnet.py.
func TestReserveInAFullSubnetIsUnavailable(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		const cidr = "198.51.100.240/30"
		if has(m.get(t, "subnets/").list(t), "cidr", cidr) {
			lacks(t, "there is a subnet %s", cidr)
		}
		subnet := m.create(t, "subnets/", "cidr", cidr).object(t)
		m.deleteAfter(t, subnetPath(subnet))
		for range 2 {
			m.reserve(t, "subnet", cidr)
		}
		if free := m.get(t, subnetPath(subnet), "op", "unreserved_ip_ranges").list(t); len(free) != 0 {
			t.Errorf("%v is free, want nothing", free)
		}
		m.op(t, "ipaddresses/", "reserve", "subnet", cidr).
			refuses(t, http.StatusServiceUnavailable, "No more IPs available in subnet: "+cidr+".")
	})
}

// release in api/ip_addresses.py: without force it finds only the caller's own.
func TestReleaseOfAnotherUsersReservation(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		address := m.freeAddress(t, m.subnetWithRoom(t))
		m.freeAfter(t, address)
		m.asPlainUser(t).op(t, "ipaddresses/", "reserve", "ip", address).object(t)
		m.op(t, "ipaddresses/", "release", "ip", address).
			refuses(t, http.StatusBadRequest, "or does not belong to the requesting user.", "force=true")
		m.op(t, "ipaddresses/", "release", "ip", address, "force", "true").gone(t)
		m.reserve(t, "ip", address)
	})
}

// post_delete_clean_up_dns in models/signals/staticipaddress.py.
func TestNameGoesWithItsLastReservation(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		first, fqdn := m.reservedUnder(t)
		second := m.reserve(t, "ip", m.freeAddress(t, m.subnetWithRoom(t)), "hostname", fqdn).str("ip")
		m.op(t, "ipaddresses/", "release", "ip", first).gone(t)
		if got := addressesOf(m.recordOf(t, fqdn)); !cmp.Equal(got, []string{second}) {
			t.Errorf("the record has %v, want %s still", got, second)
		}
		m.op(t, "ipaddresses/", "release", "ip", second).gone(t)
		if left := m.recordOf(t, fqdn); left != nil {
			t.Errorf("%v is left without an address", left)
		}
	})
}

// delete in models/dnsresource.py, from 3.6.1 on: is_safe_to_delete does not ask whose the address is.
func TestDeletedNameFreesAnotherUsersReservation(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		plain, made := m.asPlainUser(t), m.newDNSResource(t)
		address := m.freeAddress(t, m.subnetWithRoom(t))
		m.freeAfter(t, address)
		plain.op(t, "ipaddresses/", "reserve", "ip", address, "hostname", made.str("fqdn")).object(t)
		m.delete(t, "dnsresources/"+made.id("id")+"/").gone(t)
		if free := len(plain.get(t, "ipaddresses/", "ip", address).list(t)) == 0; free != m.facts.dnsDeleteFreesAddresses {
			t.Errorf("the address is free: %v, want %v in MAAS %s", free, m.facts.dnsDeleteFreesAddresses, m.facts.version)
		}
	})
}

// An emptied name can be deleted without that. An address that two names have is not freed with one of them, either.
func TestDeletedNameLeavesWhatItDoesNotNameAlone(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		emptied, fqdn := m.reservedUnder(t)
		path := "dnsresources/" + m.recordOf(t, fqdn).id("id") + "/"
		m.put(t, path, "ip_addresses", "").object(t)
		m.delete(t, path).gone(t)

		shared, fqdn := m.reservedUnder(t)
		m.newDNSResource(t, "ip_addresses", shared)
		m.delete(t, "dnsresources/"+m.recordOf(t, fqdn).id("id")+"/").gone(t)
		for what, address := range map[string]string{"of the emptied name": emptied, "of two names": shared} {
			if listed := m.get(t, "ipaddresses/", "ip", address).list(t); len(listed) != 1 {
				t.Errorf("ipaddresses/ lists %d times the address %s, want once", len(listed), what)
			}
		}
	})
}
