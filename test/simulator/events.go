// SPDX-License-Identifier: Apache-2.0

package simulator

// addEvent adds an event of a machine. Nobody asks for events; the machine shows the last one as its message.
func (s *Simulator) addEvent(m *machine, kind, description string) {
	m.statusMessage = kind
	if description != "" {
		m.statusMessage += " - " + description
	}
}
