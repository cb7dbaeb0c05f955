// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/test/ledger"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// maasState is the contents of MAAS and of the VM hosts.
type maasState struct {
	began     time.Time // when it was begun to be read
	raw       []byte
	machines  map[string]maasMachine // by system id
	records   map[string]string      // DNS records by their names: their addresses, sorted, as text
	reserved  map[string]string      // addresses that any user reserved, as text
	sections  map[string]string      // what nothing of ours ever changes, as text
	snapshots []simulator.MachineSnapshot
	hosts     []simulator.VMHost
}

// maasMachine is a machine as the API shows it.
type maasMachine struct {
	text   string
	static []string // the addresses of its static links
	links  string   // of all interfaces, with their addresses, as text
	cards  int
}

// immutable are the sections of MAAS's state that neither a cluster nor a machine changes.
var immutable = []string{"users", "zones", "pools", "domains", "ip_ranges", "images"}

// readState reads MAAS and the VM hosts.
func readState(region Region) (*maasState, error) {
	var state struct {
		Machines  []json.RawMessage `json:"machines"`
		Devices   []json.RawMessage `json:"devices"`
		Records   []json.RawMessage `json:"dns_resources"`
		Addresses []json.RawMessage `json:"ip_addresses"`
	}
	s := &maasState{
		began: time.Now(), snapshots: slices.Concat(region.Machines(), devices(region)), hosts: region.VMHosts(),
		machines: map[string]maasMachine{}, records: map[string]string{}, reserved: map[string]string{}, sections: map[string]string{},
	}
	var err error
	if s.raw, err = ledger.Lasting(region.State()); err != nil {
		return nil, err
	}
	for i := range s.snapshots {
		s.snapshots[i].Tags = slices.DeleteFunc(slices.Clone(s.snapshots[i].Tags), ledger.IsQuarantine)
	}
	sections := map[string]json.RawMessage{}
	for _, into := range []any{&state, &sections} {
		if err := json.Unmarshal(s.raw, into); err != nil {
			return nil, fmt.Errorf("reading the state of MAAS: %w", err)
		}
	}
	for _, one := range slices.Concat(state.Machines, state.Devices) {
		id, m, err := readMachine(one)
		if err != nil {
			return nil, err
		}
		s.machines[id] = m
	}
	for _, one := range state.Records {
		var record struct {
			FQDN string `json:"fqdn"`
		}
		if err := json.Unmarshal(one, &record); err != nil {
			return nil, fmt.Errorf("reading a DNS record: %w", err)
		}
		s.records[record.FQDN] = addressesOf(region, record.FQDN)
	}
	for _, one := range state.Addresses {
		var address struct {
			IP string `json:"ip"`
		}
		if err := json.Unmarshal(one, &address); err != nil {
			return nil, fmt.Errorf("reading an address: %w", err)
		}
		s.reserved[address.IP] = compact(one)
	}
	for _, name := range immutable {
		s.sections[name] = compact(sections[name])
	}
	return s, nil
}

// devices returns MAAS's devices as machines that are deployed: the description has the mark.
func devices(region Region) []simulator.MachineSnapshot {
	all := region.Devices()
	for i := range all {
		all[i].AgentName, all[i].Status = all[i].Description, "Deployed"
	}
	return all
}

func readMachine(raw json.RawMessage) (systemID string, m maasMachine, err error) {
	var machine struct {
		SystemID   string `json:"system_id"`
		Interfaces []struct {
			Links []json.RawMessage `json:"links"`
		} `json:"interface_set"`
	}
	if err := json.Unmarshal(raw, &machine); err != nil {
		return "", m, fmt.Errorf("reading a machine: %w", err)
	}
	if m.text, err = withoutPower(raw); err != nil {
		return "", m, fmt.Errorf("reading machine %s: %w", machine.SystemID, err)
	}
	m.cards = len(machine.Interfaces)
	for _, nic := range machine.Interfaces {
		for _, one := range nic.Links {
			var link struct {
				Mode      string `json:"mode"`
				IPAddress string `json:"ip_address"`
			}
			if err := json.Unmarshal(one, &link); err != nil {
				return "", m, fmt.Errorf("reading the links of machine %s: %w", machine.SystemID, err)
			}
			m.links += link.Mode + " " + link.IPAddress + ";"
			if link.Mode == "static" {
				m.static = append(m.static, link.IPAddress)
			}
		}
	}
	return machine.SystemID, m, nil
}

// withoutPower leaves out what watch sees better: MAAS itself changes it when it can't ask a machine any more.
func withoutPower(raw json.RawMessage) (string, error) {
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(raw, &fields); err != nil {
		return "", fmt.Errorf("reading its fields: %w", err)
	}
	delete(fields, "power_state")
	text, err := json.Marshal(fields)
	return string(text), err
}

func compact(raw json.RawMessage) string {
	var out bytes.Buffer
	if err := json.Compact(&out, raw); err != nil {
		return string(raw)
	}
	return out.String()
}

func addressesOf(region Region, fqdn string) string {
	var list []string
	for _, address := range region.Lookup(fqdn) {
		list = append(list, address.String())
	}
	return strings.Join(list, " ")
}
