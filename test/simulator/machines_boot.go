// SPDX-License-Identifier: Apache-2.0

package simulator

import "slices"

// bootUEFI is MAAS's name of how VMs and today's hardware boot. MAAS learns it when a machine is commissioned; until then,
// its bios_boot_method is null.
const bootUEFI = "uefi"

// learnBoot stores what a PXE request tells: how the machine boots, and on which VLAN (get_config in maasserver/rpc/boot.py).
func (s *Simulator) learnBoot(m *machine) {
	m.bootMethod = bootUEFI
	if nic := m.bootIface(); nic != nil && nic.vlan == nil {
		nic.vlan = s.bootVLAN()
	}
}

// addCard gives a machine a network card of which MAAS knows only the MAC address.
func (s *Simulator) addCard(m *machine, mac string) {
	m.ifaces = append(m.ifaces, &iface{
		id: s.db.next("interface"), name: "eth" + string(rune('0'+len(m.ifaces)%10)), kind: NetworkPhysical,
		mac: mac, enabled: true, machine: m,
	})
}

// bootVLAN returns the VLAN on which a machine boots if MAAS does not know it: the first with DHCP. nil: there is no VLAN.
func (s *Simulator) bootVLAN() *vlan {
	if at := slices.IndexFunc(s.db.vlans, func(v *vlan) bool { return v.dhcpOn }); at >= 0 {
		return s.db.vlans[at]
	}
	if len(s.db.vlans) == 0 {
		return nil
	}
	return s.db.vlans[0]
}
