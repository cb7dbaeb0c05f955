// SPDX-License-Identifier: Apache-2.0

package simulator

import "fmt"

// Upgrade makes the region another, usually newer, MAAS; its data stays. From 3.8 there are no VM hosts: the machines of
// their VMs remain, with the hosts' power parameters, and so do their owners, addresses and annotations (migrations 0036
// and 0037 of maasserver). What is on the hosts is not touched.
func (s *Simulator) Upgrade(version string) error {
	next, err := parseVersion(version)
	if err != nil {
		return fmt.Errorf("upgrading: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version = next
	if next.hasVMHosts() {
		return nil
	}
	for _, m := range s.db.machines {
		m.powerParams = m.parameters()
		m.host, m.vm, m.vmID = nil, "", 0
		m.dynamic = false
	}
	s.db.hosts = nil
	return nil
}
