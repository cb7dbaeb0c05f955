// SPDX-License-Identifier: Apache-2.0

package simulator

import "fmt"

// Upgrade makes the region another, usually newer, MAAS; its data stays. From 4.0 on there are no VM hosts: the machines of
// their VMs remain, with the hosts' power parameters, and so do their owners, addresses and annotations (migrations 0036
// and 0037 in maasservicelayer/db/alembic/versions). The machine of a host remains the parent of theirs, so that they are
// deleted with it. What is on the hosts is not touched.
func (s *Simulator) Upgrade(version string) error {
	next, err := ParseVersion(version)
	if err != nil {
		return fmt.Errorf("upgrading: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version = next
	if s.hasVMHosts() {
		return nil
	}
	for _, m := range s.db.machines {
		m.powerParams, m.parent = m.parameters(), m.parentMachine()
		m.host, m.vm, m.vmID = nil, "", 0
	}
	s.db.hosts = nil
	return nil
}

// parentMachine returns the machine that a VM is, or was, on; nil if MAAS does not know it.
func (m *machine) parentMachine() *machine {
	if m.host != nil {
		return m.host.machine
	}
	return m.parent
}
