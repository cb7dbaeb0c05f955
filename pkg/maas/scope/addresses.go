// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
)

// Preference is which of a machine's addresses come first.
type Preference struct {
	// Interfaces are names of interfaces, or tags that they have in MAAS, in order. They count before Subnets.
	Interfaces []string
	// Subnets are in order, too.
	Subnets []netip.Prefix
}

// AddressPreference returns which addresses of the cluster's machines come first.
func (c *Cluster) AddressPreference(ctx context.Context) (Preference, error) {
	subnets, err := c.preferredSubnets(ctx)
	return Preference{Interfaces: c.MaasCluster.Spec.PreferredInterfaces, Subnets: subnets}, err
}

// preferredSubnets returns the CIDRs whose addresses come first, from the spec or from the ConfigMap
// maas-preferred-subnet.
func (c *Cluster) preferredSubnets(ctx context.Context) ([]netip.Prefix, error) {
	texts := c.MaasCluster.Spec.PreferredSubnets
	if len(texts) == 0 {
		config := &corev1.ConfigMap{}
		key := client.ObjectKey{Namespace: c.MaasCluster.Namespace, Name: infrav1.PreferredSubnetConfigMap}
		if err := c.client.Get(ctx, key, config); err != nil {
			if client.IgnoreNotFound(err) != nil {
				return nil, fmt.Errorf("reading ConfigMap %s: %w", key.Name, err)
			}
			return nil, nil
		}
		texts = strings.Split(config.Data[infrav1.PreferredSubnetKey], ",")
	}
	return parsePrefixes(texts), nil
}

// parsePrefixes leaves out what is no CIDR: a typo in a ConfigMap must not stop machines.
func parsePrefixes(texts []string) []netip.Prefix {
	var prefixes []netip.Prefix
	for _, text := range texts {
		if prefix, err := netip.ParsePrefix(strings.TrimSpace(text)); err == nil {
			prefixes = append(prefixes, prefix)
		}
	}
	return prefixes
}

// sharedAddressSpace is for carriers (RFC 6598): like private addresses, it can't be reached from outside.
var sharedAddressSpace = netip.MustParsePrefix("100.64.0.0/10")

// MachineAddresses returns a machine's addresses with the types of Cluster API and kubelet, each once: InternalIP, then
// ExternalIP, then the names. Those that are preferred come first, in the order of the preference; the others keep
// MAAS's order. Addresses that only the machine itself can use (link-local, loopback) are left out, and so are those in
// notIts. An address is an ExternalIP if it is public, not preferred, and the machine has another address of its
// family. Without an IP address the result is empty.
func MachineAddresses(m *maas.Machine, preferred Preference, notIts ...string) []clusterv1.MachineAddress {
	ips := usable(m.IPAddresses, notIts)
	if len(ips) == 0 {
		return nil
	}
	slices.SortStableFunc(ips, func(a, b netip.Addr) int { return preferred.rank(m, a) - preferred.rank(m, b) })
	internal := func(ip netip.Addr) bool {
		return ip.IsPrivate() || sharedAddressSpace.Contains(ip) || preferred.has(m, ip)
	}
	var list, external []clusterv1.MachineAddress
	for _, ip := range ips {
		hasInternal := slices.ContainsFunc(ips, func(other netip.Addr) bool {
			return other.Is4() == ip.Is4() && internal(other)
		})
		if internal(ip) || !hasInternal {
			list = append(list, clusterv1.MachineAddress{Type: clusterv1.MachineInternalIP, Address: ip.String()})
		} else {
			external = append(external, clusterv1.MachineAddress{Type: clusterv1.MachineExternalIP, Address: ip.String()})
		}
	}
	list = append(list, external...)
	if m.Hostname != "" {
		list = append(list, clusterv1.MachineAddress{Type: clusterv1.MachineHostName, Address: m.Hostname})
	}
	if m.FQDN != "" && m.FQDN != m.Hostname {
		list = append(list, clusterv1.MachineAddress{Type: clusterv1.MachineInternalDNS, Address: m.FQDN})
	}
	return list
}

// ForeignAddresses returns addresses of a machine outside of its boot VLAN that are not preferred. MAAS takes all
// addresses that a VM host's LXD or hardware sync reports for the machine's own, also those of its pod networks.
func ForeignAddresses(m *maas.Machine, preferred Preference) []string {
	if m.BootInterface == nil || m.BootInterface.VLAN == nil {
		return nil
	}
	var foreign []string
	for _, nic := range m.Interfaces {
		if nic.VLAN != nil && nic.VLAN.ID == m.BootInterface.VLAN.ID {
			continue
		}
		for _, link := range slices.Concat(nic.Links, nic.Discovered) {
			ip, err := netip.ParseAddr(link.IPAddress)
			if err == nil && !preferred.has(m, ip) {
				foreign = append(foreign, link.IPAddress)
			}
		}
	}
	return foreign
}

// usable parses addresses, and leaves out invalid ones, repeated ones, and those that can't be reached from outside.
func usable(texts, notIts []string) []netip.Addr {
	var ips []netip.Addr
	for _, text := range texts {
		ip, err := netip.ParseAddr(strings.TrimSpace(text))
		ip = ip.Unmap().WithZone("")
		if err != nil || !ip.IsGlobalUnicast() || slices.Contains(ips, ip) {
			continue
		}
		if !slices.ContainsFunc(notIts, func(other string) bool {
			its, err := netip.ParseAddr(other)
			return err == nil && its.Unmap() == ip
		}) {
			ips = append(ips, ip)
		}
	}
	return ips
}

// has reports whether an address of a machine is preferred to others.
func (p Preference) has(m *maas.Machine, ip netip.Addr) bool {
	return p.rank(m, ip) < len(p.Interfaces)*(len(p.Subnets)+1)+len(p.Subnets)
}

// rank returns the place of a machine's address: first by its interface, then by its subnet.
func (p Preference) rank(m *maas.Machine, ip netip.Addr) int {
	byInterface := len(p.Interfaces)
	for i := range m.Interfaces {
		if carries(m.Interfaces[i], ip) {
			byInterface = min(byInterface, p.rankOfInterface(m, i))
		}
	}
	bySubnet := slices.IndexFunc(p.Subnets, func(subnet netip.Prefix) bool { return subnet.Contains(ip) })
	if bySubnet < 0 {
		bySubnet = len(p.Subnets)
	}
	return byInterface*(len(p.Subnets)+1) + bySubnet
}

func carries(nic *maas.Interface, ip netip.Addr) bool {
	return slices.ContainsFunc(slices.Concat(nic.Links, nic.Discovered), func(link maas.Link) bool {
		its, err := netip.ParseAddr(link.IPAddress)
		return err == nil && its.Unmap() == ip
	})
}

// rankOfInterface returns the index of the first preference that names an interface of a machine, or one that it is on:
// MAAS moves the addresses of an interface to the bridge or bond on it. It is their number if none does.
func (p Preference) rankOfInterface(m *maas.Machine, at int) int {
	on := []int{at}
	for i := 0; i < len(on); i++ {
		for other := range m.Interfaces {
			if slices.Contains(m.Interfaces[other].Children, m.Interfaces[on[i]].Name) && !slices.Contains(on, other) {
				on = append(on, other)
			}
		}
	}
	for i, wanted := range p.Interfaces {
		if slices.ContainsFunc(on, func(nic int) bool {
			return m.Interfaces[nic].Name == wanted || slices.Contains(m.Interfaces[nic].Tags, wanted)
		}) {
			return i
		}
	}
	return len(p.Interfaces)
}

// Interfaces returns the wanted interfaces of bare metal.
func (m *Machine) Interfaces() []machine.WantedInterface {
	var wanted []machine.WantedInterface
	for _, i := range m.MaasMachine.Spec.Interfaces {
		w := machine.WantedInterface{Name: i.Name, Type: string(i.Type), Parents: i.Parents, VID: int(i.VID), MTU: int(i.MTU)}
		for key, value := range i.Parameters {
			if w.Params == nil {
				w.Params = maas.InterfaceParams{}
			}
			w.Params[key] = string(value)
		}
		wanted = append(wanted, w)
	}
	return wanted
}

// NICs returns the wanted connections of the machine's interfaces before it is deployed; address is its static one, or
// "". If no interface is to carry that, a VM has it on its first one, and bare metal on the boot interface.
func (m *Machine) NICs(address string) (nics []machine.NIC) {
	var wanted []machine.NIC
	for _, i := range m.MaasMachine.Spec.Interfaces {
		wanted = append(wanted, machine.NIC{Name: i.Name, Mode: string(i.LinkMode), Subnet: canonical(i.Subnet)})
	}
	if config := m.MaasMachine.Spec.LXDConfig; config != nil && len(wanted) == 0 {
		for _, d := range config.Network.Devices {
			wanted = append(wanted, machine.NIC{Name: d.Name, Mode: string(d.LinkMode), Subnet: canonical(d.Subnet)})
		}
	}
	carrier := slices.IndexFunc(wanted, func(nic machine.NIC) bool { return nic.Mode == maas.LinkModeStatic })
	if carrier < 0 && len(m.MaasMachine.Spec.Interfaces) == 0 {
		carrier = 0
	}
	for i, nic := range wanted {
		switch {
		case i == carrier && address != "":
			nic.Mode, nic.Address = maas.LinkModeStatic, address
		case nic.Mode == "" && nic.Subnet == "":
			continue // MAAS has linked it to a subnet on its VLAN, or leaves it as it is.
		case nic.Mode == "":
			nic.Mode = maas.LinkModeAuto
		}
		nics = append(nics, nic)
	}
	if address != "" && (carrier < 0 || len(wanted) == 0) {
		nics = append(nics, machine.NIC{Mode: maas.LinkModeStatic, Address: address})
	}
	return nics
}

// canonical returns a CIDR in MAAS's form.
func canonical(cidr string) string {
	if prefix, err := netip.ParsePrefix(cidr); err == nil {
		return prefix.Masked().String()
	}
	return cidr
}
