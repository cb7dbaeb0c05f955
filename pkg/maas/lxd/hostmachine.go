// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"net/netip"
	"slices"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// HostMachine is the machine that a VM host runs on, as MAAS shows it (GET machines/).
type HostMachine struct {
	// Missing: MAAS found no machine for the VM host.
	Missing bool
	// State is MAAS's name for the machine's state if that is not Deployed: LXD does not run there, or not for long.
	State string
	// Off: the machine was off when MAAS last saw it.
	Off bool
	// Interfaces are the devices that VMs can be attached to.
	Interfaces []HostInterface
}

// HostInterface is a network interface of the machine; a bridge is one, too.
type HostInterface struct {
	Name    string
	Subnets []netip.Prefix
	// Bootable: MAAS serves DHCP there, itself or through a relay.
	Bootable bool
}

// toHostMachine returns nil if the host is not among MAAS's machines: LXD runs on a rack controller, or this user does
// not see the machine. Each refresh of a VM host sets its machine to Deployed, whatever it was before; so another state
// is recent.
func toHostMachine(systemID string, m *maas.Machine) *HostMachine {
	if m == nil && systemID == "" {
		return &HostMachine{Missing: true}
	}
	if m == nil {
		return nil
	}
	machine := &HostMachine{Off: m.PowerState == maas.PowerOff}
	if m.Status != maas.StatusDeployed {
		machine.State = m.StatusName
	}
	for _, nic := range m.Interfaces {
		if nic == nil {
			continue
		}
		machine.Interfaces = append(machine.Interfaces, HostInterface{
			Name: nic.Name, Bootable: nic.VLAN.Bootable(), Subnets: nic.Subnets(),
		})
	}
	return machine
}

// down returns why nothing can run on the machine.
func (m *HostMachine) down() reason {
	switch {
	case m == nil:
		return fits
	case m.State != "":
		return reason{"on a machine that is ", m.State}
	}
	return when(m.Off, "on a machine that is powered off", "")
}

// unconnected returns what a VM's network devices lack on the machine. It refuses only what MAAS would refuse in
// compose: a bridge needs an interface of that name, a subnet an interface with an address in it, and one device needs
// DHCP.
func (m *HostMachine) unconnected(devices []Device) reason {
	if m == nil || len(devices) == 0 {
		return fits
	}
	if m.Missing {
		return reason{"on a machine that MAAS does not know, which network devices need", ""}
	}
	bootable := false
	for i := range devices {
		found := false
		for j := range m.Interfaces {
			if m.Interfaces[j].carries(&devices[i]) {
				found = true
				bootable = bootable || m.Interfaces[j].Bootable
			}
		}
		if !found && devices[i].Subnet != "" {
			return reason{"without an address in subnet ", devices[i].Subnet}
		}
		if !found {
			return reason{"without bridge ", devices[i].Bridge}
		}
	}
	return when(!bootable, "without MAAS's DHCP on any of the VM's networks", "")
}

func (h *HostInterface) carries(device *Device) bool {
	if device.Subnet == "" {
		return h.Name == device.Bridge
	}
	wanted, err := netip.ParsePrefix(device.Subnet)
	return err == nil && slices.Contains(h.Subnets, wanted.Masked())
}
