// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"net/netip"
	"slices"
)

// learn stores a host's data. A member of a cluster gets its name there, whatever its name in MAAS was.
func (s *Simulator) learn(h *vmHost, facts hostFacts) {
	h.name = orDefault(facts.member, h.name)
	h.version, h.architectures = facts.version, []string{orDefault(facts.architecture, "amd64/generic")}
	h.totalCores, h.totalMemory = facts.cores, facts.memory
	h.storage, h.networks, h.foreign = facts.pools, facts.networks, facts.foreign
	if !slices.ContainsFunc(facts.pools, func(p storagePool) bool { return p.name == h.defaultPool }) && len(facts.pools) > 0 {
		h.defaultPool = facts.pools[0].name
	}
	s.recount(h)
}

// recount sets MAAS's figures of the used resources: the sum over the machines that it knows on the host, and over the
// VMs of other projects that it saw.
func (s *Simulator) recount(h *vmHost) {
	h.usedCores, h.usedMemory = 0, 0
	used := map[string]int64{}
	for _, m := range s.db.machines {
		if m.host != h {
			continue
		}
		h.usedCores += m.cpuCount
		h.usedMemory += m.memory
		for _, d := range m.disks {
			used[d.storagePool] += d.size
		}
	}
	for _, vm := range h.foreign {
		h.usedCores += vm.Cores
		h.usedMemory += vm.Memory
		for i, size := range vm.Disks {
			pool := h.defaultPool
			if i < len(vm.pools) {
				pool = vm.pools[i]
			}
			used[pool] += size
		}
	}
	for i := range h.storage {
		h.storage[i].used = used[h.storage[i].name]
	}
}

// syncHost reads the host's data and stores it. Cores and memory come a moment after the first time. The error is a
// hostError, or an *apiError if MAAS cannot store the data.
func (rq *request) syncHost(h *vmHost) error {
	h.hv = rq.hypervisorAt(h.params, h.id)
	known := slices.DeleteFunc(slices.Clone(rq.db.machines), func(m *machine) bool { return m.host != h })
	var facts hostFacts
	var err error
	rq.unlocked(func() {
		rq.sleep(rq.timings.refresh())
		facts, err = h.hv.Discover()
	})
	if err != nil {
		return err
	}
	if rq.hostByID(h.id) != h {
		return hostErrorf("Pod %d: deleted while it was discovered.", h.id)
	}
	rq.learn(h, facts)
	m, err := rq.hostMachine(h, facts)
	if err != nil {
		return err
	}
	h.machine = m
	if from := m.status; from != statusDeployed {
		// MAAS writes only the status: the machine's operation goes on.
		m.status = statusDeployed
		rq.publish(m, ChangeStatus, from.String(), m.status.String())
	}
	delete(h.params, "password")
	rq.enlistFound(h, known, facts)
	if !h.known {
		h.totalCores, h.totalMemory = 0, 0
	}
	rq.in(rq.timings.vmHostSync(), func() { rq.commissioned(h, facts) })
	return nil
}

// commissioned is what follows a moment after a host was discovered: MAAS stores the data of its machine, as if it were
// commissioned.
func (s *Simulator) commissioned(h *vmHost, facts hostFacts) {
	if !h.known {
		h.known, h.totalCores, h.totalMemory = true, facts.cores, facts.memory
	}
	if len(facts.networks) > 0 && h.machine != nil && !h.machine.gone {
		s.takeInterfaces(h.machine, facts.networks)
	}
}

// hostNode returns the machine on which MAAS shows a VM host: the one that it found, or, until it has reached the host,
// the one with its address. nil: none.
func (s *Simulator) hostNode(h *vmHost) *machine {
	if h.machine != nil {
		return h.machine
	}
	return s.machineAt(h.params["power_address"])
}

// machineAt returns the machine with the host of a power address, or nil.
func (s *Simulator) machineAt(powerAddress string) *machine {
	address, err := netip.ParseAddrPort(hostKey(powerAddress))
	if err != nil {
		return nil
	}
	for _, m := range s.db.machines {
		if slices.Contains(m.addresses(), address.Addr()) {
			return m
		}
	}
	return nil
}

// hostMachine returns the machine of a VM host, by the MAC addresses that it reports or by its address. If there is
// none, MAAS makes one: Deployed, because something runs on it, and in the default zone and pool, whatever the VM
// host's are.
func (rq *request) hostMachine(h *vmHost, facts hostFacts) (*machine, error) {
	if m := rq.machineByMACs(facts.macs); m != nil {
		return m, nil
	}
	if h.machine != nil && !h.machine.gone {
		return h.machine, nil
	}
	if m := rq.machineAt(h.params["power_address"]); m != nil {
		return m, nil
	}
	hostname := h.name
	if len(facts.macs) == 0 {
		if m := rq.machineByHostname(facts.name); m != nil {
			return m, nil
		}
		if rq.nodeByHostname(hostname) != nil {
			hostname = rq.petname()
		}
	}
	if rq.nodeByHostname(hostname) != nil {
		return nil, invalidField("hostname", "Node with this Hostname already exists.")
	}
	return rq.makeHostMachine(h, hostname, facts), nil
}

func (rq *request) makeHostMachine(h *vmHost, hostname string, facts hostFacts) *machine {
	m := rq.newMachine(hostname)
	m.cpuCount, m.memory, m.architecture = facts.cores, facts.memory, h.architectures[0]
	m.hostOnly = true
	m.status, m.powerState, m.running, m.netboot = statusDeployed, "unknown", true, false
	m.owner, m.powerType = rq.user, "manual"
	for _, n := range facts.networks {
		if !slices.Contains(facts.macs, n.MAC) || slices.ContainsFunc(m.ifaces, func(nic *iface) bool { return nic.mac == n.MAC }) {
			continue
		}
		m.ifaces = append(m.ifaces, &iface{
			id: rq.db.next("interface"), name: n.Name, kind: "physical", mac: n.MAC, enabled: true, machine: m, vlan: rq.vlanOf(h, n),
		})
	}
	if len(facts.macs) == 0 && len(rq.db.subnets) > 0 {
		rq.addInterface(m, "eth0", metalMACPrefix, rq.db.subnets[0])
	}
	rq.db.machines = append(rq.db.machines, m)
	rq.publish(m, ChangeCreated, "", m.status.String())
	return m
}

// enlistFound makes machines of the VMs that MAAS does not know, and commissions them: also of a VM that is being
// composed; the compose then finds its name taken. A VM that MAAS knows by its MAC addresses moves to this host.
// Machines whose VM is gone are deleted, if they were known before the host was read: MAAS's transaction begins there,
// and does not see later ones.
func (rq *request) enlistFound(h *vmHost, known []*machine, facts hostFacts) {
	found := map[*machine]bool{}
	for _, vm := range facts.vms {
		if m := rq.machineOf(h, vm); m != nil {
			m.host, m.vm, found[m] = h, vm.Name, true
			rq.syncVM(m, vm)
			continue
		}
		m := rq.addVM(h, vm, composeSpec{hostname: vm.Name, zone: h.zone, pool: h.pool})
		rq.publish(m, ChangeCreated, "", m.status.String())
		rq.startCommission(m, rq.user, false, []string{commissioningTag})
	}
	for _, m := range known {
		if m.host == h && !m.gone && !found[m] {
			rq.removeMachine(m)
		}
	}
}

// machineOf returns MAAS's machine for a VM, or nil: by its MAC addresses, whatever its name, or, if those were
// changed, by its name.
func (s *Simulator) machineOf(h *vmHost, vm vmFacts) *machine {
	if m := s.machineByMACs(vm.MACs); m != nil {
		return m
	}
	at := slices.IndexFunc(s.db.machines, func(m *machine) bool { return m.host == h && m.vm == vm.Name })
	if at < 0 {
		return nil
	}
	return s.db.machines[at]
}

// syncVM updates the machine of a VM.
func (rq *request) syncVM(m *machine, vm vmFacts) {
	m.cpuCount, m.memory, m.running = vm.Cores, vm.Memory, vm.Running
	if state := onOff(vm.Running); m.powerState != state {
		rq.setPowerState(m, state)
	}
}
