// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"crypto/rand"
	"math/big"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// The size of a composed VM of the suite.
const (
	vmMemoryMiB = 2048
	vmDiskGB    = 8
)

// me is the name of the user that the key belongs to.
func (m *maas) me(t *testing.T) string {
	t.Helper()
	return m.get(t, "users/", "op", "whoami").object(t).str("username")
}

// machine reads a machine.
func (m *maas) machine(t *testing.T, systemID string) object {
	t.Helper()
	return m.get(t, machinePath(systemID)).object(t)
}

// machines lists machines.
func (m *maas) machines(t *testing.T, filters ...string) []object {
	t.Helper()
	return m.get(t, "machines/", filters...).list(t)
}

func machinePath(systemID string) string { return "machines/" + systemID + "/" }

// systemIDs are the ids of the machines, in order.
func systemIDs(machines []object) []string {
	ids := []string{}
	for _, machine := range machines {
		ids = append(ids, machine.str("system_id"))
	}
	slices.Sort(ids)
	return ids
}

// vmHostWithRoom returns an LXD VM host with room for a VM of the suite and a rest of each resource: the one with most
// free memory.
func (m *maas) vmHostWithRoom(t *testing.T) object {
	t.Helper()
	m.needs(t, vmHosts)
	var best object
	for _, host := range m.get(t, "vm-hosts/").list(t) {
		if canTake(host) && (best == nil || host.num("available", "memory") > best.num("available", "memory")) {
			best = host
		}
	}
	if best == nil {
		lacks(t, "no LXD VM host has room for another VM")
	}
	return best
}

// canTake reports whether MAAS would compose a VM of the suite on the host, by its own figures: used against total
// times the over-commit ratio.
func canTake(host object) bool {
	free := func(resource, ratio string) float64 {
		return host.num("total", resource)*host.num(ratio) - host.num("used", resource)
	}
	return host.str("type") == "lxd" && host.str("version") != "" &&
		slices.Contains(host.strings("capabilities"), "composable") &&
		len(host.strings("architectures")) > 0 &&
		host.num("total", "cores") >= 2 && free("cores", "cpu_over_commit_ratio") >= 2 &&
		free("memory", "memory_over_commit_ratio") >= 2*vmMemoryMiB &&
		host.num("available", "local_storage") >= 2*vmDiskGB*1e9
}

func vmHostPath(host object) string { return "vm-hosts/" + host.id("id") + "/" }

// readyBareMetal returns a machine without an owner that a release makes Ready again: it is off, and its commissioning
// passed (otherwise MAAS makes it New).
func (m *maas) readyBareMetal(t *testing.T) object {
	t.Helper()
	const passed = 2
	for _, machine := range m.machines(t, "status", "ready") {
		usable := machine.at("pod") == nil && machine.at("owner") == nil && !machine.flag("locked") &&
			machine.str("power_type") != "manual" && machine.str("power_state") == "off" &&
			machine.int("commissioning_status") == passed && machine.at("boot_disk") != nil &&
			machine.at("boot_interface") != nil
		if _, lent := m.lent.Load(machine.str("system_id")); usable && !lent {
			return machine
		}
	}
	lacks(t, "no machine outside VM hosts is Ready, off, commissioned and with a disk")
	return nil
}

// subnetWithRoom finds a managed IPv4 subnet with addresses to give.
func (m *maas) subnetWithRoom(t *testing.T) object {
	t.Helper()
	for _, subnet := range m.get(t, "subnets/").list(t) {
		prefix, err := netip.ParsePrefix(subnet.str("cidr"))
		if err != nil || !prefix.Addr().Is4() || !subnet.flag("managed") {
			continue
		}
		free := 0
		for _, unused := range m.get(t, subnetPath(subnet), "op", "unreserved_ip_ranges").list(t) {
			free += unused.int("num_addresses")
		}
		if free >= 16 {
			return subnet
		}
	}
	lacks(t, "no managed IPv4 subnet has 16 free addresses")
	return nil
}

func subnetPath(subnet object) string { return "subnets/" + subnet.id("id") + "/" }

// freeAddress returns an unused address of the subnet. It is a random one, so that it is unlikely to be the next one
// that MAAS allocates by itself.
func (m *maas) freeAddress(t *testing.T, subnet object) string {
	t.Helper()
	ranges := m.get(t, subnetPath(subnet), "op", "unreserved_ip_ranges").list(t)
	slices.SortFunc(ranges, func(a, b object) int { return b.int("num_addresses") - a.int("num_addresses") })
	if len(ranges) == 0 {
		lacks(t, "subnet %s has no free address", subnet.str("cidr"))
	}
	address, err := netip.ParseAddr(ranges[0].str("start"))
	if err != nil {
		t.Fatalf("subnet %s: free range %v: %v", subnet.str("cidr"), ranges[0], err)
	}
	steps, err := rand.Int(rand.Reader, big.NewInt(min(int64(ranges[0].int("num_addresses")), 1<<16)))
	if err != nil {
		t.Fatal(err)
	}
	for range steps.Int64() {
		address = address.Next()
	}
	return address.String()
}

// outside is an address that is in none of MAAS's subnets.
func (m *maas) outside(t *testing.T) string {
	t.Helper()
	for _, candidate := range []string{"198.51.100.77", "203.0.113.77", "192.0.2.201"} {
		address := netip.MustParseAddr(candidate)
		inSubnet := func(subnet object) bool {
			prefix, err := netip.ParsePrefix(subnet.str("cidr"))
			return err == nil && prefix.Contains(address)
		}
		if find(m.get(t, "subnets/").list(t), inSubnet) == nil {
			return candidate
		}
	}
	lacks(t, "all documentation networks are subnets of this MAAS")
	return ""
}

// inDynamicRange finds an address that MAAS's DHCP gives out by itself, and its subnet.
func (m *maas) inDynamicRange(t *testing.T) (string, object) {
	t.Helper()
	for _, subnet := range m.get(t, "subnets/").list(t) {
		for _, reserved := range m.get(t, subnetPath(subnet), "op", "reserved_ip_ranges").list(t) {
			if slices.Contains(reserved.strings("purpose"), "dynamic") && !strings.Contains(reserved.str("end"), ":") {
				return reserved.str("end"), subnet
			}
		}
	}
	lacks(t, "no IPv4 subnet has a dynamic range")
	return "", nil
}

// series finds an Ubuntu release that the region can deploy on amd64: the part of its name behind "ubuntu/".
func (m *maas) series(t *testing.T) string {
	t.Helper()
	images := m.get(t, "boot-resources/").list(t)
	for _, name := range []string{"jammy", "noble", "focal"} {
		image := find(images, func(o object) bool {
			return o.str("name") == "ubuntu/"+name && strings.HasPrefix(o.str("architecture"), "amd64/")
		})
		if image != nil {
			return name
		}
	}
	lacks(t, "no Ubuntu image for amd64 is imported")
	return ""
}

// architecture returns one for which the region has images.
func (m *maas) architecture(t *testing.T) string {
	t.Helper()
	for _, image := range m.get(t, "boot-resources/").list(t) {
		if arch, _, ok := strings.Cut(image.str("architecture"), "/"); ok {
			return arch + "/generic"
		}
	}
	lacks(t, "no image is imported, so MAAS takes no architecture")
	return ""
}

// defaultDomain is the domain that machines and DNS resources are in when no other is named.
func (m *maas) defaultDomain(t *testing.T) object {
	t.Helper()
	domain := find(m.get(t, "domains/").list(t), func(o object) bool { return o.flag("is_default") })
	if domain == nil {
		t.Fatal("no domain is the default one")
	}
	return domain
}

// defaultZone is the zone of objects that are not put into another one.
func (m *maas) defaultZone(t *testing.T) object {
	t.Helper()
	return m.newMachine(t).part("zone")
}
