// SPDX-License-Identifier: Apache-2.0

package simulator

import "slices"

// defaultProject is the LXD project if none is named.
const defaultProject = "default"

// instanceName is the power parameter with the name of the machine's VM on an LXD host.
const instanceName = "instance_name"

// behind returns the hypervisor of a machine that is a VM, and the VM's name there: its VM host, or the LXD host in its
// power parameters. nil: the machine is bare metal.
func (s *Simulator) behind(m *machine) (hypervisor, string) {
	if m.host != nil {
		return m.host.hv, m.vm
	}
	name := m.powerParams[instanceName]
	if m.powerType != "lxd" || name == "" {
		return nil, ""
	}
	return s.hypervisorAt(m.powerParams, m.id), name
}

// chassisParams are the power parameters of an LXD host; the others are the VM's own.
var chassisParams = []string{"power_address", "project", "certificate", "key", "password"}

// sameChassis reports whether two sets of parameters name one LXD host: then they are one row in MAAS.
func sameChassis(a, b map[string]string) bool {
	return !slices.ContainsFunc(chassisParams, func(key string) bool {
		return key != "password" && orDefault(a[key], chassisDefault(key)) != orDefault(b[key], chassisDefault(key))
	})
}

func chassisDefault(key string) string {
	if key == "project" {
		return defaultProject
	}
	return ""
}

// shareChassis copies the parameters of m to the machines that share its LXD host's row, which had the parameters old.
func (s *Simulator) shareChassis(m *machine, old map[string]string) {
	if m.powerType != "lxd" || len(old) == 0 {
		return
	}
	for _, other := range s.db.machines {
		if other == m || other.powerType != "lxd" || other.host != nil || !sameChassis(other.powerParams, old) {
			continue
		}
		for _, key := range chassisParams {
			other.powerParams[key] = m.powerParams[key]
		}
	}
}

// joinHost makes a machine that is registered with exactly a VM host's parameters one of that host's VMs.
func (s *Simulator) joinHost(m *machine) {
	if m.powerType != "lxd" || m.host != nil {
		return
	}
	for _, h := range s.db.hosts {
		if h.kind == "lxd" && h.hv != nil && sameChassis(h.params, m.powerParams) {
			m.host, m.vm, m.vmID = h, m.powerParams[instanceName], s.db.next("virtualmachine")
			s.recount(h)
			return
		}
	}
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
