// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"net/netip"
	"slices"
)

// What MAAS installs on a machine that it deploys as a VM host.
const (
	deployedLXD     = "5.0.2"
	deployedProject = "maas"
)

// learn takes over what a host tells of itself.
func (s *Simulator) learn(h *vmHost, facts hostFacts) {
	h.version, h.architectures = facts.version, []string{"amd64/generic"}
	h.totalCores, h.totalMemory = facts.cores, facts.memory
	h.storage = facts.pools
	if h.defaultPool == "" && len(facts.pools) > 0 {
		h.defaultPool = facts.pools[0].name
	}
	s.recount(h)
}

// recount is what MAAS thinks is used on a host: the sum over the machines that it knows there.
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
	for i := range h.storage {
		h.storage[i].used = used[h.storage[i].name]
	}
}

// syncHost asks the host what it has and takes that over. Its cores and memory come a moment after the first time.
func (rq *request) syncHost(h *vmHost) error {
	lab := rq.lab[hostKey(h.params["power_address"])]
	if lab == nil {
		return hostErrorf("Pod %d: Failed to connect to the LXD REST API.", h.id)
	}
	h.hv = labProject{lab, orDefault(h.params["project"], defaultProject)}
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
	delete(h.params, "password")
	if h.machine == nil {
		h.machine = rq.hostMachine(h, facts)
	}
	rq.learn(h, facts)
	rq.enlistFound(h, facts)
	if !h.known {
		h.totalCores, h.totalMemory = 0, 0
		rq.in(rq.timings.vmHostSync(), func() {
			h.known, h.totalCores, h.totalMemory = true, facts.cores, facts.memory
		})
	}
	return nil
}

// hostMachine finds the machine that a VM host runs on, or makes it: Deployed, because something runs on it.
func (rq *request) hostMachine(h *vmHost, facts hostFacts) *machine {
	address, err := netip.ParseAddrPort(hostKey(h.params["power_address"]))
	for _, m := range rq.db.machines {
		if err == nil && slices.Contains(m.addresses(), address.Addr()) {
			return m
		}
	}
	if m := rq.machineByHostname(facts.name); m != nil {
		return m
	}
	hostname := h.name
	if rq.machineByHostname(hostname) != nil {
		hostname = rq.petname()
	}
	m := rq.newMachine(hostname)
	m.cpuCount, m.memory, m.architecture = facts.cores, facts.memory, "amd64/generic"
	m.zone, m.pool, m.hostOnly = h.zone, h.pool, true
	m.status, m.powerState, m.running, m.netboot = statusDeployed, "unknown", true, false
	m.owner, m.powerType = rq.user, "manual"
	if len(rq.db.subnets) > 0 {
		rq.addInterface(m, "eth0", metalMACPrefix, rq.db.subnets[0])
	}
	rq.db.machines = append(rq.db.machines, m)
	rq.tell(m, ChangeCreated, "", m.status.String())
	return m
}

// enlistFound makes machines of the VMs that MAAS does not know, and commissions them. One that MAAS knows by its MAC
// addresses moves to this host; machines whose VM is gone are deleted.
func (rq *request) enlistFound(h *vmHost, facts hostFacts) {
	for _, m := range slices.Clone(rq.db.machines) {
		if m.host == h && !slices.ContainsFunc(facts.vms, func(vm vmFacts) bool { return vm.Name == m.vm }) {
			rq.removeMachine(m)
		}
	}
	for _, vm := range facts.vms {
		if slices.ContainsFunc(rq.db.machines, func(m *machine) bool { return m.host == h && m.vm == vm.Name }) {
			continue
		}
		if known := rq.machineByMACs(vm.MACs); known != nil {
			known.host, known.vm = h, vm.Name
			continue
		}
		m := rq.addVM(h, vm, composeSpec{hostname: vm.Name, zone: h.zone, pool: h.pool})
		rq.tell(m, ChangeCreated, "", m.status.String())
		rq.startCommission(m, rq.user, false)
	}
}

// registerDeployed makes a VM host of a machine that was deployed to become one.
func (s *Simulator) registerDeployed(m *machine) {
	address := m.hostname + ":8443"
	if addrs := m.addresses(); len(addrs) > 0 {
		address = netip.AddrPortFrom(addrs[0], 8443).String()
	}
	lab := &simulatedHost{installedOn: m.systemID, facts: hostFacts{
		name: m.hostname, version: deployedLXD, cores: m.cpuCount, memory: m.memory,
		pools: []storagePool{{id: "default", name: "default", kind: "dir", path: "/var/snap/lxd/common/lxd/storage-pools/default"}},
	}}
	for _, d := range m.disks {
		lab.facts.pools[0].total += d.size
	}
	s.lab[hostKey(address)] = lab
	h := &vmHost{
		id: s.db.next("bmc"), name: m.hostname, kind: m.willHost, zone: m.zone, pool: m.pool, machine: m, known: true,
		hv: labProject{lab, deployedProject}, cpuRatio: 1, memRatio: 1, tags: []string{consoleTag},
		params: map[string]string{"power_address": address, "project": deployedProject},
	}
	s.ensureTag(consoleTag)
	s.db.hosts = append(s.db.hosts, h)
	s.learn(h, lab.facts)
}
