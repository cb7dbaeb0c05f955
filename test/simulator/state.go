// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"encoding/json"
	"sort"
)

// State returns all data of MAAS and of the VM hosts, as canonical, indented JSON with sorted keys. It omits events,
// counters, nonces, script results and times, so that it is the same before and after something was made and cleanly
// removed again.
func (s *Simulator) State() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := object{
		"machines": s.stateMachines(), "vm_hosts": s.stateHosts(), "virtual_machines": s.labVMs(),
		"ip_addresses": s.stateAddresses(), "dns_resources": s.stateDNS(), "devices": s.stateDevices(),
	}
	list := func(name string, n int, at func(int) any) {
		out := make([]any, 0, n)
		for i := range n {
			out = append(out, at(i))
		}
		state[name] = out
	}
	db := s.db
	list("users", len(db.users), func(i int) any { return renderUser(db.users[i]) })
	list("zones", len(db.zones), func(i int) any { return renderZone(db.zones[i]) })
	list("pools", len(db.pools), func(i int) any { return renderPool(db.pools[i]) })
	list("domains", len(db.domains), func(i int) any {
		d := db.domains[i]
		return object{"id": d.id, "name": d.name, "ttl": d.ttl, "default": d.isDefault}
	})
	list("subnets", len(db.subnets), func(i int) any { return renderSubnet(db.subnets[i]) })
	list("ip_ranges", len(db.ranges), func(i int) any { return renderRange(db.ranges[i]) })
	list("tags", len(db.tags), func(i int) any { return renderTag(db.tags[i]) })
	list("images", len(db.images), func(i int) any {
		return object{"id": db.images[i].id, "name": db.images[i].name, "architecture": db.images[i].architecture}
	})
	raw, err := json.MarshalIndent(state, "", "  ")
	if err != nil {
		// It contains only maps, slices, strings and numbers.
		panic(err)
	}
	return append(raw, '\n')
}

// volatile are the fields with a machine's history, not its state.
var volatile = []string{
	"status_message", "status_action", "current_commissioning_result_id", "current_testing_result_id",
	"current_installation_result_id", "domain", "min_hwe_kernel", "ephemeral_deploy", "enable_kernel_crash_dump",
	"error_description",
}

func (s *Simulator) stateMachines() []any {
	out := make([]any, 0, len(s.db.machines))
	for _, m := range s.db.machines {
		one := s.renderMachine(m)
		for _, key := range volatile {
			delete(one, key)
		}
		for _, nic := range one["interface_set"].([]any) {
			for _, link := range nic.(object)["links"].([]any) {
				delete(link.(object), "id") // A link that replaced another and was replaced again is as good as the first.
			}
		}
		forgetMade(one["blockdevice_set"])
		one["domain"] = m.domain.name
		one["agent_name"], one["running"], one["dynamic"] = m.agentName, m.running, m.dynamic
		one["pod"], one["virtualmachine_id"] = renderPod(m.host), nilIfZero(m.vmID) // Also in a version that shows neither.
		one["power_parameters"] = m.parameters()
		out = append(out, one)
	}
	return out
}

// forgetMade removes the ids that partitions get when they are made: those of a layout that is set again differ.
func forgetMade(disks any) {
	for _, disk := range disks.([]any) {
		for _, part := range disk.(object)["partitions"].([]any) {
			part := part.(object)
			if fs, formatted := part["filesystem"].(object); formatted {
				delete(fs, "uuid")
			}
			for _, key := range []string{"id", "uuid", "resource_uri"} {
				delete(part, key)
			}
		}
	}
}

func (s *Simulator) stateDevices() []any {
	out := make([]any, 0, len(s.db.devices))
	for _, d := range s.db.devices {
		one := s.renderDevice(d)
		one["domain"] = d.domain.name
		out = append(out, one)
	}
	return out
}

func (s *Simulator) stateHosts() []any {
	out := make([]any, 0, len(s.db.hosts))
	for _, h := range s.db.hosts {
		one := s.renderVMHost(h)
		one["parameters"] = h.params
		out = append(out, one)
	}
	return out
}

// labVMs returns the VMs that are really on the hosts, by the hosts' names.
func (s *Simulator) labVMs() map[string][]vmFacts {
	out := map[string][]vmFacts{}
	for _, lab := range s.lab {
		lab.mu.Lock()
		vms := make([]vmFacts, 0, len(lab.vms))
		for _, vm := range lab.vms {
			vms = append(vms, *vm)
		}
		lab.mu.Unlock()
		sort.Slice(vms, func(i, j int) bool { return vms[i].Name < vms[j].Name })
		out[lab.facts.name] = vms
	}
	return out
}

func (s *Simulator) stateAddresses() []any {
	out := []any{}
	for _, a := range sortedAddresses(s.db.addrs) {
		if a.kind == allocUserReserved {
			one := renderAddress(a)
			delete(one, "created")
			out = append(out, one)
		}
	}
	return out
}

func (s *Simulator) stateDNS() []any {
	out := []any{}
	for _, r := range s.db.dns {
		out = append(out, object{"id": r.id, "fqdn": r.fqdn(), "ttl": r.ttl, "addresses": len(r.addrs)})
	}
	return out
}
