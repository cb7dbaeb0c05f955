// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"fmt"
	"slices"
	"strings"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/simulator"
)

// marks are what the things of some clusters in MAAS are known by.
type marks struct {
	everybody bool
	owners    map[string]bool // the ids of the clusters that are audited
	suffixes  []string        // of theirs
	others    map[string]bool // the ids of all other clusters
}

func newMarks(all, audited []cluster, who Who) marks {
	m := marks{everybody: who.everybody(), owners: map[string]bool{}, others: map[string]bool{}}
	for _, c := range all {
		m.others[c.owner] = true
	}
	for _, c := range audited {
		delete(m.others, c.owner)
		m.owners[c.owner] = true
		m.suffixes = append(m.suffixes, suffix(c.owner))
	}
	return m
}

// name tells whether a VM, or a DNS label, has a name that is made for one of the clusters.
func (m marks) name(name string) bool {
	return slices.ContainsFunc(m.suffixes, func(suffix string) bool { return strings.HasSuffix(name, suffix) })
}

// owner tells whether an owner id is one of the clusters', or, for everybody, one that nobody knows.
func (m marks) owner(id string) bool { return m.owners[id] || (m.everybody && !m.others[id]) }

// on tells by which mark a machine is theirs; "" means that it is not.
func (m marks) on(snapshot simulator.MachineSnapshot) string {
	if rest, ours := strings.CutPrefix(snapshot.AgentName, "capmaas/"); ours {
		owner, _, _ := strings.Cut(rest, "/")
		if m.owner(owner) {
			return "agent_name " + snapshot.AgentName
		}
		return ""
	}
	if owner := snapshot.Annotations[machine.AnnotationOwner]; owner != "" {
		if m.owner(owner) {
			return fmt.Sprintf("annotations %s=%s, %s=%s", machine.AnnotationOwner, owner,
				machine.AnnotationMachine, snapshot.Annotations[machine.AnnotationMachine])
		}
		return ""
	}
	if snapshot.VMHost != "" && m.name(snapshot.Hostname) {
		return "its hostname"
	}
	return ""
}

func describe(m simulator.MachineSnapshot) string {
	text := fmt.Sprintf("machine %s (%s, %s", m.Hostname, m.SystemID, m.Status)
	if m.VMHost != "" {
		text += ", VM on " + m.VMHost
	}
	return text + ")"
}

// auditMachines goes through the machines with our marks.
func (a *Auditor) auditMachines(now *maasState, c *claims, marks marks) []Finding {
	var findings []Finding
	for _, m := range now.snapshots {
		holders := c.holders(m.SystemID)
		if a.isStranger(m.SystemID) {
			// It may have marks like ours: another management cluster's.
			if len(holders) > 0 {
				findings = append(findings, Finding{Doubled, fmt.Sprintf("%s was never ours, and %s has it", describe(m), holders[0])})
			}
			continue
		}
		holders = slices.DeleteFunc(holders, func(o *object) bool { return o.gaveBack(m) })
		if len(holders) > 1 {
			holders = slices.DeleteFunc(holders, func(o *object) bool { return !o.held })
		}
		if len(holders) > 1 {
			findings = append(findings, Finding{Doubled, fmt.Sprintf("%s is that of %s and of %s", describe(m), holders[0], holders[1])})
		}
		mark := marks.on(m)
		if mark == "" {
			continue
		}
		object := c.marked(m.AgentName, m.Hostname)
		switch {
		case len(holders) == 0 && object == nil:
			findings = append(findings, Finding{Leaked, fmt.Sprintf("no object claims %s, which is ours by %s", describe(m), mark)})
		case len(holders) == 0 && object.Spec.SystemID != "":
			findings = append(findings, Finding{Doubled, fmt.Sprintf("%s is marked as that of %s, which has %s", describe(m), object, object.Spec.SystemID)})
		case len(holders) == 1 && object != nil && object != holders[0]:
			findings = append(findings, Finding{Doubled, fmt.Sprintf("%s is that of %s, and marked as that of %s", describe(m), holders[0], object)})
		}
	}
	return append(findings, auditMarks(now, marks)...)
}

// auditMarks looks for a mark that two machines have.
func auditMarks(now *maasState, marks marks) []Finding {
	var findings []Finding
	first := map[string]simulator.MachineSnapshot{}
	for _, m := range now.snapshots {
		if m.AgentName == "" || marks.on(m) == "" {
			continue
		}
		if other, double := first[m.AgentName]; double {
			findings = append(findings, Finding{Doubled, fmt.Sprintf("%s and %s have the agent_name %s", describe(other), describe(m), m.AgentName)})
		}
		first[m.AgentName] = m
	}
	return findings
}

// auditObjects goes through the objects that have a machine.
func (c *claims) auditObjects(now *maasState, who Who) []Finding {
	var findings []Finding
	for _, o := range c.objects {
		id := o.Spec.SystemID
		if id == "" || !(who.everybody() || who.covers(o.cluster)) {
			continue
		}
		at := slices.IndexFunc(now.snapshots, func(m simulator.MachineSnapshot) bool { return m.SystemID == id })
		if at < 0 {
			findings = append(findings, Finding{Lost, fmt.Sprintf("MAAS does not have machine %s, which is that of %s", id, o)})
			continue
		}
		m := now.snapshots[at]
		if o.cluster.owner != "" && m.AgentName != "" && m.AgentName != o.agentName() && !o.gaveBack(m) {
			findings = append(findings, Finding{Doubled, fmt.Sprintf("%s is that of %s, and somebody else's by agent_name %s", describe(m), o, m.AgentName)})
		}
	}
	return findings
}

// auditHosts goes through the VMs that are on the hosts.
func (a *Auditor) auditHosts(now *maasState, c *claims, marks marks) []Finding {
	var findings []Finding
	there := map[string]bool{}
	for _, host := range a.before.hosts {
		for _, vm := range host.VMs {
			there[place(host, vm)] = true
		}
	}
	for _, host := range now.hosts {
		if host.Unreachable {
			findings = append(findings, Finding{Unseen, "VM host " + host.Name + " does not answer"})
		}
		for _, vm := range host.VMs {
			ours := marks.everybody || marks.name(vm.Name)
			if vm.SystemID == "" && ours && !there[place(host, vm)] && !c.remembers(host, vm) {
				findings = append(findings, Finding{Leaked, fmt.Sprintf("MAAS does not know VM %s on host %s", vm.Name, host.Name)})
			}
		}
	}
	return findings
}

// remembers tells whether an object has a note that its VM may be on a host: it looks for it there before it goes.
func (c *claims) remembers(host simulator.VMHost, vm simulator.VM) bool {
	return slices.ContainsFunc(c.objects, func(o *object) bool {
		notes := strings.Split(o.Annotations[infrav1.VMOnHostAnnotation], ",")
		return o.cluster.owner != "" && o.hostname() == vm.Name &&
			slices.ContainsFunc(notes, func(note string) bool { return strings.HasSuffix(note, "/"+host.Name) })
	})
}

func place(host simulator.VMHost, vm simulator.VM) string {
	return host.Name + " " + vm.Project + " " + vm.Name
}
