// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/capmaas/cluster-api-provider-maas/e2e/ledger"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/simulator"
)

// watch notes what happens to machines that are not ours, also when it is undone later, and which cluster had a machine last.
func (a *Auditor) watch(m simulator.MachineSnapshot, change simulator.Change) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if owner := ownerIn(m.AgentName); owner != "" {
		a.hadLast[m.SystemID] = owner
	}
	if _, stranger := a.strangers[m.SystemID]; !stranger {
		return
	}
	if _, already := a.touched[m.SystemID]; !already {
		a.touched[m.SystemID] = fmt.Sprintf("%s was never ours: its %s changed from %q to %q", describe(m), change.Kind, change.From, change.To)
	}
}

// ownerIn is the owner id in an agent name; "" means that it is none of ours.
func ownerIn(agentName string) string {
	rest, ours := strings.CutPrefix(agentName, "capmaas/")
	if !ours {
		return ""
	}
	owner, _, _ := strings.Cut(rest, "/")
	return owner
}

// wasLastOf is the owner id of the cluster that had a machine last.
func (a *Auditor) wasLastOf(systemID string) string {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return a.hadLast[systemID]
}

func (a *Auditor) isStranger(systemID string) bool {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	_, is := a.strangers[systemID]
	return is
}

// auditStrangers compares what was never ours with how it was.
func (a *Auditor) auditStrangers(now *maasState) []Finding {
	findings := a.auditStrangeMachines(now)
	for fqdn, addresses := range a.before.records {
		if is, there := now.records[fqdn]; !there || is != addresses {
			findings = append(findings, Finding{Wiped, fmt.Sprintf("DNS record %s was never ours: it led to %q, and leads to %q", fqdn, addresses, is)})
		}
	}
	for ip, was := range a.before.reserved {
		if now.reserved[ip] != was {
			findings = append(findings, Finding{Wiped, fmt.Sprintf("the reservation of %s was never ours: %q became %q", ip, was, now.reserved[ip])})
		}
	}
	for _, name := range immutable {
		if was, is := a.before.sections[name], now.sections[name]; was != is {
			findings = append(findings, Finding{Wiped, fmt.Sprintf("the %s of MAAS changed from %s to %s", name, was, is)})
		}
	}
	return append(findings, a.auditStrangeVMs(now)...)
}

func (a *Auditor) auditStrangeMachines(now *maasState) []Finding {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	var findings []Finding
	for _, what := range a.touched {
		findings = append(findings, Finding{Wiped, what})
	}
	for id, was := range a.strangers {
		is, there := now.machines[id]
		switch {
		case !there:
			findings = append(findings, Finding{Wiped, fmt.Sprintf("machine %s was never ours, and is gone", id)})
		case is.text != was:
			findings = append(findings, Finding{Wiped, fmt.Sprintf("machine %s was never ours, and changed: %s", id, difference(was, is.text))})
		}
	}
	return findings
}

// auditStrangeVMs looks for VMs that were on a host before.
func (a *Auditor) auditStrangeVMs(now *maasState) []Finding {
	var findings []Finding
	for _, host := range a.before.hosts {
		at := slices.IndexFunc(now.hosts, func(h simulator.VMHost) bool { return h.Name == host.Name })
		if at >= 0 && now.hosts[at].Unreachable {
			continue // It is said that it can't be seen.
		}
		for _, vm := range host.VMs {
			if at < 0 || !slices.ContainsFunc(now.hosts[at].VMs, func(is simulator.VM) bool { return is.Name == vm.Name && is.Project == vm.Project }) {
				findings = append(findings, Finding{Wiped, fmt.Sprintf("VM %s on host %s was never ours, and is gone", vm.Name, host.Name)})
			}
		}
	}
	return findings
}

// difference shows the fields of a machine that changed.
func difference(was, is string) string {
	state := func(machine string) []byte { return []byte(`{"machines":[` + machine + `]}`) }
	lines, err := ledger.Remains(state(was), state(is))
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(lines)
}
