// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSubnetsHaveTheirShape(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		subnets := m.get(t, "subnets/").list(t)
		if len(subnets) == 0 {
			lacks(t, "there are no subnets")
		}
		for _, subnet := range subnets {
			checkShape(t, "subnet "+subnet.str("cidr"), subnet, shapes["subnet"])
			checkNoOtherKeys(t, "subnet "+subnet.str("cidr"), subnet, shapes["subnet"])
			checkShape(t, "VLAN of "+subnet.str("cidr"), subnet.part("vlan"), shapes["vlan"])
		}
	})
}

// render_json_for_related_ips in maasserver/models/subnet.py.
func TestWhatHasAnAddressOfASubnet(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		subnet := m.subnetWithRoom(t)
		address := m.freeAddress(t, subnet)
		has := func() (found object) {
			for _, o := range m.get(t, subnetPath(subnet), "op", "ip_addresses").list(t) {
				if checkShape(t, "address of a subnet", o, shape{"ip": "s", "alloc_type": "i"}); o.str("ip") == address {
					found = o
				}
			}
			return found
		}
		if found := has(); found != nil {
			t.Errorf("the free address is %v", found)
		}
		m.reserve(t, "ip", address)
		if found := has(); found == nil || found.str("user") == "" {
			t.Errorf("the reserved address is %v, want it with its user", found)
		}
	})
}

func TestReservedAddressIsInTheReservedRanges(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		subnet := m.subnetWithRoom(t)
		address := m.freeAddress(t, subnet)
		m.reserve(t, "ip", address)
		for op, want := range map[string]bool{"reserved_ip_ranges": true, "unreserved_ip_ranges": false} {
			ranges := m.get(t, subnetPath(subnet), "op", op).list(t)
			for _, r := range ranges {
				checkShape(t, op, r, shape{"start": "s", "end": "s", "num_addresses": "i"})
			}
			if got := find(ranges, func(r object) bool { return inRange(r, address) }) != nil; got != want {
				t.Errorf("%s has %s: %v, want %v", op, address, got, want)
			}
		}
	})
}

func inRange(r object, address string) bool {
	start, err1 := netip.ParseAddr(r.str("start"))
	end, err2 := netip.ParseAddr(r.str("end"))
	at, err3 := netip.ParseAddr(address)
	return err1 == nil && err2 == nil && err3 == nil && !at.Less(start) && !end.Less(at)
}

func TestSubnetListsItsAddresses(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		spare := m.spare(t)
		address := m.giveStaticAddress(t, spare)
		subnet := spare.part("boot_interface").objects("links")[0].part("subnet")
		listed := m.get(t, subnetPath(subnet), "op", "ip_addresses").list(t)
		found := find(listed, func(o object) bool { return o.str("ip") == address })
		if found == nil || found.str("node_summary", "system_id") != spare.str("system_id") {
			t.Errorf("%v is the entry of %s, want the machine %s in it", found, address, spare.str("system_id"))
		}
	})
}

// _condense in provisioningserver/utils/network.py joins overlapping ranges, and adjacent ones with the same purposes.
func TestReservedRangesAreCondensed(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		const cidr = "198.51.100.224/28"
		if has(m.get(t, "subnets/").list(t), "cidr", cidr) {
			lacks(t, "there is a subnet %s", cidr)
		}
		subnet := m.create(t, "subnets/", "cidr", cidr).object(t)
		m.deleteAfter(t, subnetPath(subnet))
		for _, last := range []string{"225", "226", "227", "229", "231"} {
			m.reserve(t, "ip", "198.51.100."+last)
		}
		reserved := m.create(t, "ipranges/", "type", "reserved", "start_ip", "198.51.100.230", "end_ip", "198.51.100.233").object(t)
		m.deleteAfter(t, "ipranges/"+reserved.id("id")+"/")
		var got []string
		for _, r := range m.get(t, subnetPath(subnet), "op", "reserved_ip_ranges").list(t) {
			got = append(got, fmt.Sprintf("%s-%s %d %v", r.str("start"), r.str("end"), r.int("num_addresses"), r.strings("purpose")))
		}
		want := []string{
			"198.51.100.225-198.51.100.227 3 [assigned-ip]", "198.51.100.229-198.51.100.229 1 [assigned-ip]",
			"198.51.100.230-198.51.100.233 4 [assigned-ip reserved]",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("reserved ranges (-want +got):\n%s", diff)
		}
	})
}
