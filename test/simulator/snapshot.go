// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// MachineSnapshot is a machine at one moment, including what the API does not show (AgentName, UserData, Running).
type MachineSnapshot struct {
	SystemID string `json:"system_id"`
	Hostname string `json:"hostname"`
	FQDN     string `json:"fqdn"`
	// Status is MAAS's name of the status, such as "Deployed".
	Status string `json:"status"`
	// Power is MAAS's view: on, off, unknown or error. Running is the truth.
	Power     string `json:"power"`
	Running   bool   `json:"running"`
	PowerType string `json:"power_type"`
	Owner     string `json:"owner"`
	AgentName string `json:"agent_name"`
	Locked    bool   `json:"locked"`
	// VMHost is the VM host of a VM, or empty; VMHostID is its id.
	VMHost   string   `json:"vm_host"`
	VMHostID int      `json:"vm_host_id"`
	Zone     string   `json:"zone"`
	Pool     string   `json:"pool"`
	Tags     []string `json:"tags"`
	Cores    int      `json:"cores"`
	Memory   int      `json:"memory"` // MiB
	Disks    []int64  `json:"disks"`  // bytes
	// Unlisted are the names of disks that the machine has, and MAAS does not list.
	Unlisted []string `json:"unlisted,omitempty"`
	// Storage is what its disks hold: name, bytes and use of each disk, partition and volume.
	Storage []string `json:"storage,omitempty"`
	// Data is what testers wrote to its disks, by their names.
	Data      map[string]string `json:"data,omitempty"`
	Addresses []netip.Addr      `json:"addresses"`
	// Interfaces begin with the boot interface.
	Interfaces []InterfaceSnapshot `json:"interfaces"`
	// Image is osystem/series, such as "ubuntu/jammy" or "custom/u-2204-k8s"; empty before a deploy.
	Image     string `json:"image"`
	Ephemeral bool   `json:"ephemeral"`
	// Erased is how the disks were erased since an image was written to them: quick, secure, full, or empty.
	Erased string `json:"erased,omitempty"`
	// UserData is what its system was deployed with, decoded.
	UserData    []byte            `json:"user_data,omitempty"`
	Annotations map[string]string `json:"annotations"`
	// Device means that it is no machine: MAAS neither switches nor installs it.
	Device      bool   `json:"device,omitempty"`
	Description string `json:"description,omitempty"`
}

// InterfaceSnapshot is one network card, bridge, bond or VLAN of a machine and its addresses, with subnet masks.
type InterfaceSnapshot struct {
	Name string `json:"name"`
	// Kind is physical, bridge, bond or vlan.
	Kind      string         `json:"kind"`
	MAC       string         `json:"mac"`
	Ports     []string       `json:"ports,omitempty"` // of a bridge, a bond or a VLAN
	Addresses []netip.Prefix `json:"addresses"`
	Gateway   string         `json:"gateway,omitempty"`
}

// Machines returns all machines, in the order in which MAAS lists them.
func (s *Simulator) Machines() []MachineSnapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]MachineSnapshot, 0, len(s.db.machines))
	for _, m := range s.db.machines {
		out = append(out, s.snapshot(m))
	}
	return out
}

// Devices returns all devices, in the order in which MAAS lists them. Changes of them are not published.
func (s *Simulator) Devices() []MachineSnapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]MachineSnapshot, 0, len(s.db.devices))
	for _, d := range s.db.devices {
		out = append(out, s.snapshot(d))
	}
	return out
}

// Machine returns one machine.
func (s *Simulator) Machine(systemID string) (MachineSnapshot, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.machineByID(systemID)
	if m == nil {
		return MachineSnapshot{}, false
	}
	return s.snapshot(m), true
}

func (s *Simulator) snapshot(m *machine) MachineSnapshot {
	snap := MachineSnapshot{
		SystemID: m.systemID, Hostname: m.hostname, FQDN: m.fqdn(), Status: m.status.String(),
		Power: m.powerState, Running: m.running, PowerType: m.powerType, AgentName: m.agentName, Locked: m.locked,
		Zone: m.zone.name, Pool: m.pool.name, Tags: tagNames(m.tags), Cores: m.cpuCount, Memory: m.memory,
		Addresses: m.addresses(), Image: imageName(m), Ephemeral: m.ephemeral, Erased: m.erased,
		UserData: slices.Clone(m.system), Annotations: maps.Clone(m.ownerData), Device: m.device, Description: m.description,
	}
	if m.owner != nil {
		snap.Owner = m.owner.name
	}
	if m.host != nil {
		snap.VMHost, snap.VMHostID = m.host.name, m.host.id
	}
	for _, d := range m.disks {
		snap.Disks = append(snap.Disks, d.size)
	}
	for _, d := range m.unlisted {
		snap.Unlisted = append(snap.Unlisted, d.name)
	}
	snap.Storage, snap.Data = m.storage.lines(m), m.contents()
	for _, nic := range m.ifaces {
		snap.Interfaces = append(snap.Interfaces, snapshotInterface(nic))
	}
	return snap
}

func snapshotInterface(nic *iface) InterfaceSnapshot {
	out := InterfaceSnapshot{Name: nic.name, Kind: nic.kind, MAC: nic.mac, Ports: slices.Clone(nic.ports)}
	links := nic.links
	if nic.leased != nil {
		links = append(slices.Clone(links), nic.leased)
	}
	for _, link := range links {
		if !link.ip.IsValid() {
			continue
		}
		out.Addresses = append(out.Addresses, netip.PrefixFrom(link.ip, link.subnet.cidr.Bits()))
		if out.Gateway == "" && link.subnet.gateway.IsValid() {
			out.Gateway = link.subnet.gateway.String()
		}
	}
	return out
}

func imageName(m *machine) string {
	if m.osystem == "" {
		return ""
	}
	return m.osystem + "/" + m.series
}

func tagNames(tags []*tag) []string {
	names := make([]string, 0, len(tags))
	for _, t := range tags {
		names = append(names, t.name)
	}
	return names
}

// Lookup returns what MAAS's DNS server would: the addresses of the DNS resource or machine with that name, sorted;
// none if there is no such name. A trailing dot and the case of letters do not matter.
func (s *Simulator) Lookup(fqdn string) []netip.Addr {
	name := strings.ToLower(strings.TrimSuffix(fqdn, "."))
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []netip.Addr
	for _, d := range s.db.dns {
		if d.domain.authoritative && strings.ToLower(d.fqdn()) == name {
			for _, a := range d.addrs {
				if a.ip.IsValid() {
					out = append(out, a.ip)
				}
			}
		}
	}
	for _, m := range s.nodes() {
		if strings.ToLower(m.fqdn()) == name {
			out = append(out, m.addresses()...)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}
