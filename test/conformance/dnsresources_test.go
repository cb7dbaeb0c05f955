// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// addressesOf are the addresses of a DNS resource, in order.
func addressesOf(resource object) []string {
	out := []string{}
	for _, address := range resource.objects("ip_addresses") {
		out = append(out, address.str("ip"))
	}
	slices.Sort(out)
	return out
}

// twoFreeAddresses picks two addresses that nothing uses, and sees to it that they are free when the case ends.
func (m *maas) twoFreeAddresses(t *testing.T) (string, string) {
	t.Helper()
	subnet := m.subnetWithRoom(t)
	first := m.freeAddress(t, subnet)
	second := m.freeAddress(t, subnet)
	for second == first {
		second = m.freeAddress(t, subnet)
	}
	m.freeAfter(t, first)
	m.freeAfter(t, second)
	return first, second
}

func sorted(texts ...string) []string {
	slices.Sort(texts)
	return texts
}

func TestCreateDNSResourceByFQDN(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		first, second := m.twoFreeAddresses(t)
		got := m.newDNSResource(t, "ip_addresses", first+" "+second, "address_ttl", "17")
		checkShape(t, "DNS resource", got, shapes["DNS resource"])
		checkNoOtherKeys(t, "DNS resource", got, shapes["DNS resource"])
		if name := strings.TrimSuffix(got.str("fqdn"), "."+m.defaultDomain(t).str("name")); !strings.HasPrefix(name, prefix) ||
			strings.Contains(name, ".") || got.num("address_ttl") != 17 {
			t.Errorf("fqdn %q, address_ttl %v; want the name that was given, 17", got.str("fqdn"), got["address_ttl"])
		}
		if diff := cmp.Diff(sorted(first, second), addressesOf(got)); diff != "" {
			t.Errorf("addresses (-want +got):\n%s", diff)
		}
		if want := "/MAAS/api/2.0/dnsresources/" + got.id("id") + "/"; got.str("resource_uri") != want {
			t.Errorf("resource_uri %q, want %q", got.str("resource_uri"), want)
		}
	})
}

func TestAddressesOfADNSResourceAreReservedForTheCaller(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		first, _ := m.twoFreeAddresses(t)
		got := m.newDNSResource(t, "ip_addresses", first)
		addresses := got.objects("ip_addresses")
		if len(addresses) != 1 {
			t.Fatalf("%d addresses, want 1", len(addresses))
		}
		checkShape(t, "address", addresses[0], shapes["address"])
		if addresses[0].num("alloc_type") != 4 || addresses[0].str("owner", "username") != m.me(t) {
			t.Errorf("alloc_type %v of %v, want 4 (user reserved) of the caller", addresses[0]["alloc_type"], addresses[0]["owner"])
		}
		if listed := m.get(t, "ipaddresses/", "ip", first).list(t); len(listed) != 1 {
			t.Errorf("ipaddresses/ lists %d times %s, want once", len(listed), first)
		}
	})
}

func TestDNSResourceOfAnAddressThatAMachineHas(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		spare := m.spare(t)
		address := m.giveStaticAddress(t, spare)
		got := m.newDNSResource(t, "ip_addresses", address)
		if diff := cmp.Diff([]string{address}, addressesOf(got)); diff != "" {
			t.Errorf("addresses (-want +got):\n%s", diff)
		}
		m.delete(t, "dnsresources/"+got.id("id")+"/").gone(t)
		if got := m.machine(t, spare.str("system_id")).strings("ip_addresses"); !cmp.Equal(got, []string{address}) {
			t.Errorf("the machine's addresses are %v after the DNS resource went, want %s still", got, address)
		}
	})
}

// MAAS removes the address from a released machine's link, not the link from the DNS resource: the name has the
// machine's address again when any user deploys it.
func TestDNSResourceKeepsTheLinkOfAReleasedMachine(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		spare := m.spare(t, "skip_commissioning", "false")
		id := spare.str("system_id")
		m.awaitStatus(t, id, "Ready")
		deployed := func() []string {
			m.deploy(t, spare).object(t)
			return m.awaitStatus(t, id, "Deployed").strings("ip_addresses")
		}
		first := deployed()
		if len(first) == 0 {
			lacks(t, "this MAAS gives its VMs no addresses of its own")
		}
		path := "dnsresources/" + m.newDNSResource(t, "ip_addresses", first[0]).id("id") + "/"
		m.release(t, spare).object(t)
		m.awaitStatus(t, id, "Ready")
		links := m.get(t, path).object(t).objects("ip_addresses")
		if len(links) != 1 || links[0].at("ip") != nil {
			t.Fatalf("it holds %v after the release, want one link without an address", links)
		}
		if again, leads := deployed(), addressesOf(m.get(t, path).object(t)); len(leads) != 1 || !slices.Contains(again, leads[0]) {
			t.Errorf("it leads to %v, want one of the addresses that the machine has now: %v", leads, again)
		}
	})
}

// Deleting the machine deletes its link, and the DNS resource with its last link.
func TestDNSResourceGoesWithTheMachineOfItsOnlyAddress(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		machine := m.newMachine(t)
		made := m.newDNSResource(t, "ip_addresses", m.linkStatic(t, machine))
		m.removeMachine(t, machine)
		m.get(t, "dnsresources/"+made.id("id")+"/").refuses(t, http.StatusNotFound, "No DNSResource matches the given query.")
	})
}

func TestCreateDNSResourceRefusals(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		domain := m.defaultDomain(t).str("name")
		name := strings.TrimSuffix(m.newDNSResource(t).str("fqdn"), "."+domain)
		t.Run("duplicate", func(t *testing.T) {
			m.create(t, "dnsresources/", "fqdn", name+"."+domain).
				refusesField(t, "__all__", "Labels must be unique within their zone.")
		})
		t.Run("unknown domain", func(t *testing.T) {
			m.create(t, "dnsresources/", "fqdn", name+".nosuch.test").
				refuses(t, http.StatusNotFound, "No Domain matches the given query.")
		})
		t.Run("nothing given", func(t *testing.T) {
			got := m.create(t, "dnsresources/")
			got.refusesField(t, "name", "This field is required.")
			got.refusesField(t, "domain", "This field is required.")
		})
	})
}

func TestUpdateDNSResourceReplacesTheAddresses(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		first, second := m.twoFreeAddresses(t)
		made := m.newDNSResource(t, "ip_addresses", first)
		path := "dnsresources/" + made.id("id") + "/"
		got := m.put(t, path, "ip_addresses", second).object(t)
		if diff := cmp.Diff([]string{second}, addressesOf(got)); diff != "" {
			t.Errorf("addresses (-want +got):\n%s", diff)
		}
		if got.str("fqdn") != made.str("fqdn") {
			t.Errorf("fqdn %q, want %q still", got.str("fqdn"), made.str("fqdn"))
		}
		if diff := cmp.Diff([]string{second}, addressesOf(m.get(t, path).object(t))); diff != "" {
			t.Errorf("addresses when read (-want +got):\n%s", diff)
		}
		// What the resource does not name any more stays reserved, and its subnet shows no name of it.
		listed := m.get(t, "ipaddresses/", "ip", first).list(t)
		if len(listed) != 1 {
			t.Fatalf("ipaddresses/ lists %d times %s, want once still", len(listed), first)
		}
		named := map[string]bool{}
		for _, o := range m.get(t, subnetPath(listed[0].part("subnet")), "op", "ip_addresses").list(t) {
			named[o.str("ip")] = o.at("dns_records") != nil
		}
		if named[first] || !named[second] {
			t.Errorf("a name leads to %s: %t, to %s: %t", first, named[first], second, named[second])
		}
	})
}

func TestUpdateDNSResourceEmptiesIt(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		first, _ := m.twoFreeAddresses(t)
		made := m.newDNSResource(t, "ip_addresses", first)
		got := m.put(t, "dnsresources/"+made.id("id")+"/", "ip_addresses", "").object(t)
		if len(addressesOf(got)) != 0 {
			t.Errorf("addresses %v, want none", addressesOf(got))
		}
	})
}

func TestDeletedDNSResourceIsGone(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		made := m.newDNSResource(t)
		path := "dnsresources/" + made.id("id") + "/"
		m.delete(t, path).gone(t)
		m.get(t, path).refuses(t, http.StatusNotFound, "No DNSResource matches the given query.")
	})
}

// Up to 3.6.0 the addresses that were reserved for a DNS resource outlive it.
func TestDeletedDNSResourcesAddresses(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		first, _ := m.twoFreeAddresses(t)
		made := m.newDNSResource(t, "ip_addresses", first)
		m.delete(t, "dnsresources/"+made.id("id")+"/").gone(t)
		free := len(m.get(t, "ipaddresses/", "ip", first).list(t)) == 0
		if free != m.facts.dnsDeleteFreesAddresses {
			t.Errorf("the address is free: %v, want %v in MAAS %s", free, m.facts.dnsDeleteFreesAddresses, m.facts.version)
		}
	})
}

func TestDNSResourcesAreFoundByTheirName(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		made := m.newDNSResource(t)
		m.newDNSResource(t)
		if got := m.get(t, "dnsresources/", "fqdn", made.str("fqdn")).list(t); len(got) != 1 || got[0].id("id") != made.id("id") {
			t.Errorf("%v, want %s alone", got, made.str("fqdn"))
		}
		if got := m.get(t, "dnsresources/", "fqdn", uniqueName()+"."+m.defaultDomain(t).str("name")).list(t); len(got) != 0 {
			t.Errorf("%v, want none", got)
		}
	})
}

// The machines' own names are DNS records without a resource; all=true shows them with the id -1.
func TestAllDNSResourcesHavePseudoEntries(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		spare := m.spare(t)
		m.giveStaticAddress(t, spare)
		isVM := func(o object) bool { return o.str("fqdn") == spare.str("fqdn") }
		if found := find(m.get(t, "dnsresources/").list(t), isVM); found != nil {
			t.Errorf("the list has %v without all=true", found)
		}
		found := find(m.get(t, "dnsresources/", "all", "true").list(t), isVM)
		if found == nil || found.id("id") != "-1" {
			t.Errorf("%v is the record of %s, want one with the id -1", found, spare.str("fqdn"))
		}
		if addresses := found["ip_addresses"]; addresses != nil {
			t.Errorf("ip_addresses is %v, want null", addresses)
		}
	})
}

func TestDomainsHaveTheirShape(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		domains := m.get(t, "domains/").list(t)
		for _, domain := range domains {
			checkShape(t, "domain "+domain.str("name"), domain, shapes["domain"])
		}
		domain := m.defaultDomain(t)
		alone := m.get(t, "domains/"+domain.id("id")+"/").object(t)
		if alone.str("name") != domain.str("name") {
			t.Errorf("domain %s is %q alone, %q in the list", domain.id("id"), alone.str("name"), domain.str("name"))
		}
	})
}

// MAAS keeps records in a domain that it is not authoritative for, and writes no zone for it (get_dns_config in
// maasserver/dns/config.py): nothing but the field tells that no name there resolves.
func TestADomainThatMAASIsNotAuthoritativeFor(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		domain := m.newDomain(t, "authoritative", "false")
		if domain.flag("authoritative") {
			t.Error("it was made authoritative")
		}
		address := m.freeAddress(t, m.subnetWithRoom(t))
		m.freeAfter(t, address)
		fqdn := uniqueName() + "." + domain.str("name")
		m.removeAfter(t, "dnsresources/", "fqdn", fqdn, "dnsresources/")
		if got := m.create(t, "dnsresources/", "fqdn", fqdn, "ip_addresses", address).object(t); len(addressesOf(got)) != 1 {
			t.Errorf("its record is %v", got)
		}
		path := "domains/" + domain.id("id") + "/"
		if changed := m.put(t, path, "authoritative", "true").object(t); !changed.flag("authoritative") {
			t.Error("it did not become authoritative")
		}
		if listed := m.get(t, path).object(t); !listed.flag("authoritative") {
			t.Error("MAAS does not say that it is authoritative")
		}
	})
}

// separate_fqdn in maasserver/models/dnsresource.py: the part after the first character that no label has must be a
// domain of MAAS, whatever domain the name ends in. It returns nothing for a text that it cannot parse at all, which no
// caller expects.
func TestFQDNsThatMAASCannotPlace(t *testing.T) {
	tests := []struct {
		name   string
		fqdn   func(name, domain string) string
		status int
		text   string
	}{
		{"two labels", func(name, domain string) string { return name + "." + name + "." + domain }, http.StatusNotFound, "No Domain matches the given query."},
		// Its last two characters could be a separator and the id of a domain, so it ends in a letter.
		{"no dots", func(name, _ string) string { return name + "x" }, http.StatusNotFound, "No Domain matches the given query."},
		{"a blank", func(name, domain string) string { return name + " " + name + "." + domain }, http.StatusNotFound, "No Domain matches the given query."},
		{"an underscore", func(name, domain string) string { return name + "_" + name + "." + domain }, http.StatusNotFound, "No Domain matches the given query."},
		{"a wildcard", func(_, domain string) string { return "*." + domain }, http.StatusInternalServerError, "cannot unpack non-iterable NoneType object"},
		{"a sign", func(_, domain string) string { return "@." + domain }, http.StatusInternalServerError, "cannot unpack non-iterable NoneType object"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			each(t, func(t *testing.T, m *maas) {
				fqdn := test.fqdn(uniqueName(), m.defaultDomain(t).str("name"))
				m.removeAfter(t, "dnsresources/", "fqdn", fqdn, "dnsresources/")
				m.create(t, "dnsresources/", "fqdn", fqdn).refuses(t, test.status, test.text)
				m.get(t, "dnsresources/", "fqdn", fqdn).refuses(t, test.status, test.text)
			})
		})
	}
}

// DomainNameField in maasserver/fields.py takes the dot at its end off.
func TestAnFQDNMayEndWithADot(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		fqdn := uniqueName() + "." + m.defaultDomain(t).str("name")
		m.removeAfter(t, "dnsresources/", "fqdn", fqdn, "dnsresources/")
		if made := m.create(t, "dnsresources/", "fqdn", fqdn+".").object(t); made.str("fqdn") != fqdn {
			t.Errorf("%s. was made as %s", fqdn, made.str("fqdn"))
		}
		if found := m.get(t, "dnsresources/", "fqdn", fqdn+".").list(t); len(found) != 1 {
			t.Errorf("%s. is found %d times, want once", fqdn, len(found))
		}
	})
}

// save in maasserver/forms/dnsresource.py searches the subnet of any text between blanks.
func TestDNSResourceOfWhatIsNoAddressIsAnInternalError(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		first, second := m.twoFreeAddresses(t)
		for _, text := range []string{"garbage", first + "," + second} {
			fqdn := uniqueName() + "." + m.defaultDomain(t).str("name")
			m.removeAfter(t, "dnsresources/", "fqdn", fqdn, "dnsresources/")
			m.create(t, "dnsresources/", "fqdn", fqdn, "ip_addresses", text).
				refuses(t, http.StatusInternalServerError, "failed to detect a valid IP address from '"+text+"'")
			if got := m.get(t, "dnsresources/", "fqdn", fqdn).list(t); len(got) != 0 {
				t.Errorf("%q: %v was made all the same", text, got)
			}
		}
	})
}
