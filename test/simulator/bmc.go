// SPDX-License-Identifier: Apache-2.0

package simulator

import "slices"

// lxdDriver is the power driver of VMs on LXD hosts, and the type of VM hosts that are LXDs.
const lxdDriver = "lxd"

// defaultProject is the LXD project if none is named.
const defaultProject = "default"

// instanceName is the power parameter with the name of the machine's VM on an LXD host.
const instanceName = "instance_name"

// behind returns the hypervisor of a machine that is a VM, and the VM's name there: its VM host, or the LXD host in its
// power parameters. nil: the machine is bare metal.
func (s *Simulator) behind(m *machine) (hypervisor, string) {
	switch {
	case m.host != nil:
		return m.host.hv, m.vm
	case m.isVM():
		return s.hypervisorAt(m.powerParams, m.id), m.powerParams[instanceName]
	}
	return nil, ""
}

// The results of commissioning a bare-metal machine without a description.
const (
	unknownCores  = 4
	unknownMemory = 8192 // MiB
	unknownDisk   = 100  // GB
)

// discover sets the results of commissioning: the data of its VM, or defaults. Then it calls then.
func (s *Simulator) discover(m *machine, then func()) {
	hv, name := s.behind(m)
	if hv == nil {
		s.takeOver(m, vmFacts{Cores: unknownCores, Memory: unknownMemory, Disks: []int64{unknownDisk * 1000 * 1000 * 1000}})
		then()
		return
	}
	var facts hostFacts
	s.onHostFor(m, hv, func() (err error) { facts, err = hv.Discover(); return err }, func(err error) {
		at := slices.IndexFunc(facts.vms, func(vm vmFacts) bool { return vm.Name == name })
		if err == nil && at >= 0 {
			m.cpuCount, m.memory = 0, 0
			s.takeOver(m, facts.vms[at])
		}
		then()
	})
}

// takeOver sets what MAAS does not know of a machine yet.
func (s *Simulator) takeOver(m *machine, found vmFacts) {
	if m.cpuCount == 0 {
		m.cpuCount, m.memory = found.Cores, found.Memory
	}
	if len(m.disks) == 0 {
		for i, size := range found.Disks {
			s.addDisk(m, size, diskName(i), "")
		}
	}
}
