// SPDX-License-Identifier: Apache-2.0

package simulator

import "slices"

// bootUEFI is MAAS's name of how VMs and today's hardware boot. MAAS learns it from a machine's first PXE request; until
// then, its bios_boot_method is null.
const bootUEFI = "uefi"

// isDirect reports whether the machine is a VM that MAAS did not compose: it knows only its LXD host and its name there.
func (m *machine) isDirect() bool {
	return m.host == nil && m.powerType == lxdDriver && m.powerParams[instanceName] != ""
}

// boots lets a machine that was just switched on ask for PXE a moment later. What MAAS does with it meanwhile makes no
// difference: a machine that it deleted runs on.
func (s *Simulator) boots(m *machine) {
	if m.powerType == "manual" {
		return // A person does that, some time before the end of commissioning.
	}
	on := s.bootVLAN(m)
	if !m.isDirect() {
		s.in(s.timings.pxe(), func() {
			if !m.gone && m.running {
				s.learnBoot(m, on)
			}
		})
		return
	}
	hv, name := s.behind(m)
	macs := make([]string, 0, len(m.ifaces))
	for _, nic := range m.ifaces {
		if nic.kind == NetworkPhysical {
			macs = append(macs, nic.mac)
		}
	}
	s.in(s.timings.pxe(), func() {
		running := false
		s.onHost(hv, func() (err error) { running, err = hv.Power(name); return err }, func(err error) {
			if err == nil && running {
				s.pxeRequest(macs, on)
			}
		})
	})
}

// pxeRequest is the request of a VM for what to boot. MAAS finds the machine by the MAC address, and enlists one that it
// does not know: New, and nobody's.
func (s *Simulator) pxeRequest(macs []string, on *vlan) {
	if m := s.machineByMACs(macs); m != nil {
		s.learnBoot(m, on)
		return
	}
	if len(macs) == 0 {
		return
	}
	m := s.newMachine(s.petname())
	m.architecture, m.powerType, m.powerState, m.running = "amd64/generic", "", "unknown", true
	for _, mac := range macs {
		s.addCard(m, mac)
	}
	s.db.machines = append(s.db.machines, m)
	s.learnBoot(m, on)
	s.publish(m, ChangeCreated, "", m.status.String())
}

// learnBoot stores what a PXE request tells: how the machine boots, and on which VLAN (get_config in maasserver/rpc/boot.py).
func (s *Simulator) learnBoot(m *machine, on *vlan) {
	m.bootMethod = bootUEFI
	if nic := m.bootIface(); nic != nil && nic.vlan == nil {
		nic.vlan = on
	}
}

// addCard gives a machine a network card of which MAAS knows only the MAC address.
func (s *Simulator) addCard(m *machine, mac string) {
	m.ifaces = append(m.ifaces, &iface{
		id: s.db.next("interface"), name: "eth" + string(rune('0'+len(m.ifaces)%10)), kind: NetworkPhysical,
		mac: mac, enabled: true, machine: m,
	})
}

// bootVLAN returns the VLAN on which a machine boots if MAAS does not know it: for a VM that of its host, otherwise the
// first with DHCP. nil: there is no VLAN.
func (s *Simulator) bootVLAN(m *machine) *vlan {
	withDHCP := func(nic *iface) bool { return nic.vlan != nil && nic.vlan.dhcpOn }
	if host := s.machineAt(m.parameters()["power_address"]); host != nil && host != m {
		if at := slices.IndexFunc(host.ifaces, withDHCP); at >= 0 {
			return host.ifaces[at].vlan
		}
	}
	if at := slices.IndexFunc(s.db.vlans, func(v *vlan) bool { return v.dhcpOn }); at >= 0 {
		return s.db.vlans[at]
	}
	if len(s.db.vlans) == 0 {
		return nil
	}
	return s.db.vlans[0]
}
