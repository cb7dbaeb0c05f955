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
	if m.host != nil {
		return m.host.hv, m.vm
	}
	name := m.powerParams[instanceName]
	if m.powerType != lxdDriver || name == "" {
		return nil, ""
	}
	return s.hypervisorAt(m.powerParams, m.id), name
}

// chassisParams are the power parameters of an LXD host; the others are the VM's own.
var chassisParams = []string{"power_address", "project", "certificate", "key", "password"}

// chassisSecrets are those of chassisParams that don't identify the host. The certificate does.
var chassisSecrets = []string{"key", "password"}

// sameChassis reports whether two sets of parameters name one LXD host: then they are one row in MAAS. Addresses are
// compared as texts, and secrets not at all.
func sameChassis(a, b map[string]string) bool {
	return !slices.ContainsFunc(chassisParams, func(key string) bool {
		return !slices.Contains(chassisSecrets, key) && orDefault(a[key], chassisDefault(key)) != orDefault(b[key], chassisDefault(key))
	})
}

func chassisDefault(key string) string {
	if key == "project" {
		return defaultProject
	}
	return ""
}

// setPower gives a machine other power parameters (models/node.py: set_power_config). With the same driver, the row of an
// LXD host changes for all machines that are on it; with another driver, the machine leaves the row.
func (s *Simulator) setPower(m *machine, kind string, params map[string]string) {
	before := m.powerParams
	sameRow := kind == m.powerType && m.host == nil
	m.powerType, m.powerParams = kind, params
	if h := m.host; h != nil && (m.powerType != lxdDriver || !sameChassis(h.params, params)) {
		m.host, m.vmID = nil, 0
		s.recount(h)
	}
	if m.powerType != lxdDriver {
		return
	}
	for _, other := range s.db.machines {
		if other == m || other.powerType != lxdDriver || other.host != nil {
			continue
		}
		if sameRow && sameChassis(other.powerParams, before) {
			moveRow(other.powerParams, params)
		}
		shareSecrets(other.powerParams, params)
	}
	for _, h := range s.db.hosts {
		if h.kind == lxdDriver {
			shareSecrets(h.params, params)
		}
	}
	s.joinHost(m)
}

// moveRow gives a machine the parameters that its row has now.
func moveRow(params, row map[string]string) {
	for _, key := range chassisParams {
		params[key] = row[key]
	}
}

// isOthersRow reports whether the row of an LXD host can't get these parameters, because another row has them: MAAS then
// fails at the index of the table, again and again (maasserver_bmc_power_type_parameters_idx).
func (s *Simulator) isOthersRow(m *machine, kind string, params map[string]string) bool {
	if kind != lxdDriver || m.powerType != lxdDriver || m.host != nil || sameChassis(m.powerParams, params) {
		return false
	}
	for _, other := range s.db.machines {
		if other.powerType == lxdDriver && other.host == nil && sameChassis(other.powerParams, params) {
			return true
		}
	}
	return slices.ContainsFunc(s.db.hosts, func(h *vmHost) bool { return h.kind == lxdDriver && sameChassis(h.params, params) })
}

// shareSecrets copies secrets to a machine or VM host of the same row.
func shareSecrets(to, from map[string]string) {
	if !sameChassis(to, from) {
		return
	}
	for _, key := range chassisSecrets {
		if from[key] != "" {
			to[key] = from[key]
		}
	}
}

// joinHost makes a machine with exactly a VM host's parameters one of that host's VMs, if this MAAS has VM hosts.
func (s *Simulator) joinHost(m *machine) {
	name := m.powerParams[instanceName]
	if m.powerType != lxdDriver || m.host != nil || name == "" || !s.hasVMHosts() {
		return
	}
	for _, h := range s.db.hosts {
		if h.kind == lxdDriver && h.hv != nil && sameChassis(h.params, m.powerParams) {
			m.host, m.vm, m.vmID = h, name, s.db.next("virtualmachine")
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
		if err == nil && m.isDirect() {
			m.running = at >= 0 && facts.vms[at].Running
		}
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
