// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"slices"
)

// onMachine runs fn on a machine under the region's lock.
func (s *Simulator) onMachine(systemID string, fn func(*machine) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.machineByID(systemID)
	if m == nil {
		return fmt.Errorf("there is no machine %s", systemID)
	}
	return fn(m)
}

// SwitchPower switches a machine as a person at the rack, or on the VM's host, does; MAAS notices at once.
func (s *Simulator) SwitchPower(systemID string, on bool) error {
	var hv hypervisor
	name := ""
	err := s.onMachine(systemID, func(m *machine) error { hv, name = s.behind(m); return nil })
	if err == nil && hv != nil {
		err = hv.SetPower(name, on)
	}
	if err != nil {
		return err
	}
	return s.onMachine(systemID, func(m *machine) error {
		m.running = on
		s.setPowerState(m, onOff(on))
		return nil
	})
}

// SetStatus sets a machine's status, by MAAS's short name, whatever MAAS's table says.
func (s *Simulator) SetStatus(systemID, short string) error {
	next, ok := statusByShortName(short)
	if !ok {
		return fmt.Errorf("status %q is none of MAAS's", short)
	}
	return s.onMachine(systemID, func(m *machine) error { s.setStatus(m, next); return nil })
}

// FailNext makes an operation (deploy, commission, release, erase, power or test) fail the next time that a machine does
// it, with MAAS's message.
func (s *Simulator) FailNext(operation, message string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return failIn(s.failNext, operation, message)
}

// FailNextOf is FailNext for one machine.
func (s *Simulator) FailNextOf(systemID, operation, message string) error {
	return s.onMachine(systemID, func(m *machine) error { return failIn(m.failing, operation, message) })
}

func failIn(failing map[string]string, operation, message string) error {
	if !slices.Contains(failable, operation) {
		return fmt.Errorf("operation %q cannot fail: want one of %v", operation, failable)
	}
	failing[operation] = message
	return nil
}
