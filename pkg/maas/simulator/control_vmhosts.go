// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"net/http"
	"sort"
)

// VMHost is a VM host as it really is, registered in MAAS or not, with the VMs that are on it.
type VMHost struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	Cores   int    `json:"cores"`
	Memory  int    `json:"memory"` // MiB
	// Unreachable: it refuses every call. Losing: it makes VMs, but MAAS is told that it could not.
	Unreachable bool `json:"unreachable"`
	Losing      bool `json:"losing"`
	VMs         []VM `json:"vms"`
}

// VM is a virtual machine on a VM host. SystemID is empty when MAAS does not know it.
type VM struct {
	vmFacts
	SystemID string `json:"system_id"`
}

// VMHosts are all VM hosts of the description, sorted by name.
func (s *Simulator) VMHosts() []VMHost {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]VMHost, 0, len(s.lab))
	for address, lab := range s.lab {
		out = append(out, s.realHost(address, lab))
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

func (s *Simulator) realHost(address string, lab *simulatedHost) VMHost {
	lab.mu.Lock()
	defer lab.mu.Unlock()
	h := VMHost{
		Name: lab.facts.name, Address: address, Cores: lab.facts.cores, Memory: lab.facts.memory,
		Unreachable: lab.unreachable, Losing: lab.losing, VMs: []VM{},
	}
	for _, facts := range lab.vms {
		vm := VM{vmFacts: *facts}
		for _, m := range s.db.machines {
			if m.host != nil && m.host.hv == hypervisor(labProject{lab, facts.Project}) && m.vm == facts.Name {
				vm.SystemID = m.systemID
			}
		}
		h.VMs = append(h.VMs, vm)
	}
	return h
}

// BreakVMHost lets a VM host refuse every call (unreachable), or make VMs although it reports that it could not
// (losing); both false mend it. False when there is no host of that name.
func (s *Simulator) BreakVMHost(name string, unreachable, losing bool) bool {
	_, lab := s.labByName(name)
	if lab == nil {
		return false
	}
	lab.mu.Lock()
	defer lab.mu.Unlock()
	lab.unreachable, lab.losing = unreachable, losing
	return true
}

// DeleteVM takes a VM off its host behind MAAS's back; false when it is not there.
func (s *Simulator) DeleteVM(host, name string) bool {
	_, lab := s.labByName(host)
	return lab != nil && lab.remove(name)
}

func (s *Simulator) labByName(name string) (string, *simulatedHost) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for address, lab := range s.lab {
		if lab.facts.name == name {
			return address, lab
		}
	}
	return "", nil
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
	address, lab := s.labByName(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.realHost(address, lab), nil
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
	_, lab := s.labByName(r.PathValue("name"))
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
