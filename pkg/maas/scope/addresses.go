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

// PreferredSubnets are the CIDRs whose addresses come first, from the spec or from the ConfigMap maas-preferred-subnet.
func (c *Cluster) PreferredSubnets(ctx context.Context) ([]netip.Prefix, error) {
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

// parsePrefixes leaves out what is no CIDR: a typing error in a ConfigMap must not stop machines.
func parsePrefixes(texts []string) []netip.Prefix {
	var prefixes []netip.Prefix
	for _, text := range texts {
		if prefix, err := netip.ParsePrefix(strings.TrimSpace(text)); err == nil {
			prefixes = append(prefixes, prefix)
		}
	}
	return prefixes
}

// sharedAddressSpace is of the carriers (RFC 6598): it is as little reached from outside as private addresses.
var sharedAddressSpace = netip.MustParsePrefix("100.64.0.0/10")

// MachineAddresses are a machine's addresses as Cluster API and kubelet type them, each once: InternalIP, then ExternalIP, then the names.
// Those in preferred subnets come first, in the order of the subnets; the others keep MAAS's order. Addresses that only the machine itself
// can use (link-local, loopback) are left out, and so are those in notIts. An address is an ExternalIP when it is public, in no preferred
// subnet, and not all that the machine has of its family. Without an IP address there is none at all.
func MachineAddresses(m *maas.Machine, preferred []netip.Prefix, notIts ...string) []clusterv1.MachineAddress {
	ips := sortAddresses(usable(m.IPAddresses, notIts), preferred)
	if len(ips) == 0 {
		return nil
	}
	internal := func(ip netip.Addr) bool {
		return ip.IsPrivate() || sharedAddressSpace.Contains(ip) || rank(ip, preferred) < len(preferred)
	}
	var list, external []clusterv1.MachineAddress
	for _, ip := range ips {
		hasInternal := slices.ContainsFunc(ips, func(other netip.Addr) bool { return other.Is4() == ip.Is4() && internal(other) })
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

// ForeignAddresses are a VM host's addresses outside of the VLAN that it boots from and of preferred subnets. MAAS takes all that LXD reports for the
// machine's own, also the networks of its pods.
func ForeignAddresses(m *maas.Machine, preferred []netip.Prefix) []string {
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
			if err == nil && rank(ip, preferred) == len(preferred) {
				foreign = append(foreign, link.IPAddress)
			}
		}
	}
	return foreign
}

// usable reads addresses, and leaves out what is none, what comes twice, and what the machine is not reached at from outside.
func usable(texts, notIts []string) []netip.Addr {
	var ips []netip.Addr
	for _, text := range texts {
		ip, err := netip.ParseAddr(strings.TrimSpace(text))
		ip = ip.Unmap().WithZone("")
		if err != nil || !ip.IsGlobalUnicast() || slices.Contains(ips, ip) {
			continue
		}
		if !slices.ContainsFunc(notIts, func(other string) bool { its, err := netip.ParseAddr(other); return err == nil && its.Unmap() == ip }) {
			ips = append(ips, ip)
		}
	}
	return ips
}

// sortAddresses puts addresses in the order of the preferred subnets; what is in none of them keeps its order behind.
func sortAddresses(ips []netip.Addr, preferred []netip.Prefix) []netip.Addr {
	slices.SortStableFunc(ips, func(a, b netip.Addr) int { return rank(a, preferred) - rank(b, preferred) })
	return ips
}

// rank is the first of the preferred subnets that has the address, or their number.
func rank(ip netip.Addr, preferred []netip.Prefix) int {
	if at := slices.IndexFunc(preferred, func(p netip.Prefix) bool { return p.Contains(ip) }); at >= 0 {
		return at
	}
	return len(preferred)
}

// NICs are how the machine's interfaces shall be connected before it is deployed; address is its static one, or "".
func (m *Machine) NICs(address string) []machine.NIC {
	config := m.MaasMachine.Spec.LXDConfig
	if config == nil || len(config.Network.Devices) == 0 {
		if address == "" {
			return nil
		}
		return []machine.NIC{{Mode: maas.LinkModeStatic, Address: address}}
	}
	devices := config.Network.Devices
	carrier := max(0, slices.IndexFunc(devices, func(d infrav1.LXDNetworkDevice) bool { return d.LinkMode == infrav1.LinkModeStatic }))
	var nics []machine.NIC
	for i, device := range devices {
		nic := machine.NIC{Name: device.Name, Mode: string(device.LinkMode), Subnet: canonical(device.Subnet)}
		switch {
		case i == carrier && address != "":
			nic.Mode, nic.Address = maas.LinkModeStatic, address
		case nic.Mode == "" && nic.Subnet == "":
			continue // MAAS has linked it to what it knows on the bridge's VLAN.
		case nic.Mode == "":
			nic.Mode = maas.LinkModeAuto
		}
		nics = append(nics, nic)
	}
	return nics
}

// canonical writes a CIDR as MAAS does.
func canonical(cidr string) string {
	if prefix, err := netip.ParsePrefix(cidr); err == nil {
		return prefix.Masked().String()
	}
	return cidr
}
