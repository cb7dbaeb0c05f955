// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"net/http"
	"sort"
)

// VMHost is the real state of a VM host, with its VMs: one of the region's description, registered in MAAS or not, or a
// real LXD that MAAS has discovered.
type VMHost struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	Cores   int    `json:"cores"`
	Memory  int    `json:"memory"` // MiB
	// Unreachable: it refuses every call, or, if it is real, does not respond. Losing: it makes VMs, but reports a
	// failure to MAAS; and it can't delete any.
	Unreachable bool `json:"unreachable"`
	Losing      bool `json:"losing"`
	VMs         []VM `json:"vms"`
}

// VM is a virtual machine on a VM host. SystemID is empty when MAAS does not know it.
type VM struct {
	vmFacts
	SystemID string `json:"system_id"`
}

// VMHosts returns all VM hosts of the description and all real ones that MAAS has discovered, sorted by name. Real ones
// are asked: each responds, or is unreachable, within two minutes.
func (s *Simulator) VMHosts() []VMHost {
	s.mu.Lock()
	out := make([]VMHost, 0, len(s.lab))
	for address, lab := range s.lab {
		out = append(out, s.simulatedVMHost(address, lab))
	}
	var found []*vmHost
	for _, h := range s.db.hosts {
		if remote(h.hv) && h.architectures != nil {
			found = append(found, h)
		}
	}
	s.mu.Unlock()
	for _, h := range found {
		out = append(out, s.realVMHost(h))
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

// realVMHost reads the VMs of a registered LXD. The caller does not hold s.mu.
func (s *Simulator) realVMHost(h *vmHost) VMHost {
	s.mu.Lock()
	hv, ok := h.hv.(*lxdHost)
	out := VMHost{Name: h.name, Address: h.params["power_address"], VMs: []VM{}}
	s.mu.Unlock()
	if !ok {
		return out
	}
	out.Unreachable, out.Losing = hv.link.state()
	facts, err := hv.inspect()
	if err != nil {
		s.log.V(1).Info("The VM host does not answer", "host", out.Name, "reason", err.Error())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out.Cores, out.Memory, out.Unreachable = facts.cores, facts.memory, out.Unreachable || err != nil
	for _, found := range facts.vms {
		vm := VM{vmFacts: found}
		for _, m := range s.db.machines {
			if m.host == h && m.vm == found.Name {
				vm.SystemID = m.systemID
			}
		}
		out.VMs = append(out.VMs, vm)
	}
	return out
}

func (s *Simulator) simulatedVMHost(address string, lab *simulatedHost) VMHost {
	lab.mu.Lock()
	defer lab.mu.Unlock()
	h := VMHost{
		Name: lab.facts.name, Address: address, Cores: lab.facts.cores, Memory: lab.facts.memory,
		Unreachable: lab.unreachable, Losing: lab.losing, VMs: []VM{},
	}
	for _, facts := range lab.vms {
		vm := VM{vmFacts: *facts}
		for _, m := range s.db.machines {
			if hv, name := s.behind(m); hv == hypervisor(labProject{lab, facts.Project}) && name == facts.Name {
				vm.SystemID = m.systemID
			}
		}
		h.VMs = append(h.VMs, vm)
	}
	return h
}

// BreakVMHost makes a VM host refuse every call (unreachable), or make VMs but report failures, and keep those that
// MAAS deletes (losing); both false repairs it. For a real host it breaks MAAS's connection to it. False if there is no
// host of that name.
func (s *Simulator) BreakVMHost(name string, unreachable, losing bool) bool {
	lab := s.labByName(name)
	if lab == nil {
		lxd := s.realByName(name)
		if lxd != nil {
			lxd.link.set(unreachable, losing)
		}
		return lxd != nil
	}
	lab.mu.Lock()
	defer lab.mu.Unlock()
	lab.unreachable, lab.losing = unreachable, losing
	return true
}

// SetHostNetworks sets the network interfaces that a VM host of the region's description reports. False if there is no
// host of that name.
func (s *Simulator) SetHostNetworks(name string, networks []HostNetwork) bool {
	lab := s.labByName(name)
	if lab == nil {
		return false
	}
	lab.mu.Lock()
	defer lab.mu.Unlock()
	lab.facts.networks, lab.facts.macs = networks, macsOf(networks)
	return true
}

// DeleteVM deletes a VM on its host, unnoticed by MAAS; false if it does not exist.
func (s *Simulator) DeleteVM(host, name string) bool {
	if lxd := s.realByName(host); lxd != nil {
		if _, err := lxd.Power(name); err != nil {
			return false
		}
		return lxd.Delete(name) == nil
	}
	lab := s.labByName(host)
	return lab != nil && lab.remove(name)
}

// realByName returns a registered VM host that is a real LXD, or nil.
func (s *Simulator) realByName(name string) *lxdHost {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.db.hosts {
		if lxd, ok := h.hv.(*lxdHost); ok && h.name == name {
			return lxd
		}
	}
	return nil
}

func (s *Simulator) labByName(name string) *simulatedHost {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, lab := range s.lab {
		if lab.facts.name == name {
			return lab
		}
	}
	return nil
}

func (s *Simulator) controlBreakHost(r *http.Request) (any, error) {
	var in struct {
		Unreachable bool `json:"unreachable"`
		Losing      bool `json:"losing"`
	}
	if err := readControl(r, &in); err != nil {
		return nil, err
	}
	name := r.PathValue("name")
	if !s.BreakVMHost(name, in.Unreachable, in.Losing) {
		return nil, controlMissing("VM host", name)
	}
	for _, h := range s.VMHosts() {
		if h.Name == name {
			return h, nil
		}
	}
	return nil, controlMissing("VM host", name)
}

func (s *Simulator) controlMakeVM(r *http.Request) (any, error) {
	var in struct {
		Name    string `json:"name"`
		Project string `json:"project"`
		Cores   int    `json:"cores"`
		Memory  int    `json:"memory"`
		Disks   []int  `json:"disks"` // GB
	}
	if err := readControl(r, &in); err != nil {
		return nil, err
	}
	lab := s.labByName(r.PathValue("name"))
	if lab == nil {
		return nil, controlMissing("VM host", r.PathValue("name"))
	}
	if in.Name == "" || in.Cores <= 0 || in.Memory <= 0 {
		return nil, controlRefusal("a VM needs a name, cores and memory (MiB)")
	}
	spec := vmSpec{name: in.Name, cores: in.Cores, memory: in.Memory}
	for _, size := range in.Disks {
		spec.disks = append(spec.disks, vmDisk{size: int64(size) * 1000 * 1000 * 1000})
	}
	s.mu.Lock()
	spec.macs = []string{s.newMAC(vmMACPrefix)}
	s.mu.Unlock()
	made, err := labProject{lab, orDefault(in.Project, defaultProject)}.Create(spec)
	if err != nil {
		return nil, controlRefusal("%v", err)
	}
	return made, nil
}

func (s *Simulator) controlDeleteVM(r *http.Request) (any, error) {
	if !s.DeleteVM(r.PathValue("name"), r.PathValue("vm")) {
		return nil, controlMissing("VM", r.PathValue("vm"))
	}
	return nil, nil
}
