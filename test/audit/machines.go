// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/ownership"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// marks identify the objects of some clusters in MAAS.
type marks struct {
	who       Who
	everybody bool
	owners    map[string]bool // the ids of the clusters that are audited
	others    map[string]bool // the ids of all other clusters
}

func (a *Auditor) marks(who Who) marks {
	m := marks{who: who, everybody: who.everybody(), owners: map[string]bool{}, others: map[string]bool{}}
	for _, c := range a.known(Who{}) {
		m.others[c.owner] = true
	}
	for _, c := range a.known(who) {
		delete(m.others, c.owner)
		m.owners[c.owner] = true
	}
	return m
}

// name reports whether a VM, or a DNS label, has a name that is made for one of the clusters.
func (m marks) name(name string) bool {
	for owner := range m.owners {
		isEnd := func(suffix string) bool { return strings.HasSuffix(name, suffix) }
		if slices.ContainsFunc(maas.HostnameSuffixes(owner), isEnd) || maas.IsEndpointLabel(name, owner) {
			return true
		}
	}
	return false
}

// owner reports whether an owner id is one of the clusters', or, for everybody, one that no cluster has.
func (m marks) owner(id string) bool { return m.owners[id] || (m.everybody && !m.others[id]) }

// on returns the mark by which a machine is theirs; "" means that it is not.
func (m marks) on(snapshot simulator.MachineSnapshot) string {
	if rest, ours := strings.CutPrefix(snapshot.AgentName, "capmaas/"); ours {
		owner, _, _ := strings.Cut(rest, "/")
		if m.owner(owner) {
			return "agent_name " + snapshot.AgentName
		}
		return ""
	}
	if owner := snapshot.Annotations[ownership.AnnotationOwner]; owner != "" {
		if m.owner(owner) {
			return fmt.Sprintf("annotations %s=%s, %s=%s", ownership.AnnotationOwner, owner,
				ownership.AnnotationMachine, snapshot.Annotations[ownership.AnnotationMachine])
		}
		return ""
	}
	isVM := snapshot.VMHost != "" || snapshot.PowerType == maas.PowerTypeLXD || snapshot.Device
	// With another's agent_name it is theirs, whose name it may have kept.
	if isVM && snapshot.AgentName == "" && m.name(snapshot.Hostname) {
		return "its hostname"
	}
	return ""
}

func describe(m simulator.MachineSnapshot) string {
	text := fmt.Sprintf("machine %s (%s, %s", m.Hostname, m.SystemID, m.Status)
	if m.Device {
		text = fmt.Sprintf("device %s (%s", m.Hostname, m.SystemID)
	}
	if m.VMHost != "" {
		text += ", VM on " + m.VMHost
	}
	return text + ")"
}

// auditMachines checks the machines with our marks.
func (a *Auditor) auditMachines(now *maasState, c *claims, marks marks) []Finding {
	var findings []Finding
	for _, m := range now.snapshots {
		holders := c.holders(m.SystemID)
		if a.isStranger(m.SystemID) {
			// It may have marks like ours: another management cluster's, or the hostname that it had when it was ours.
			findings = append(findings, a.auditStolen(m, holders)...)
			continue
		}
		holders = slices.DeleteFunc(holders, func(o *object) bool { return o.gaveBack(m) })
		thieves := thieves(m, holders, marks)
		for _, thief := range thieves {
			findings = append(findings, Finding{Stolen, fmt.Sprintf("%s is that of another by %s, and %s has it", describe(m), marksOf(m), thief)})
		}
		holders = slices.DeleteFunc(holders, func(o *object) bool { return slices.Contains(thieves, o) })
		if len(holders) > 1 {
			holders = slices.DeleteFunc(holders, func(o *object) bool { return !o.held })
		}
		if len(holders) > 1 {
			findings = append(findings, Finding{Doubled, fmt.Sprintf("%s is that of %s and of %s", describe(m), holders[0], holders[1])})
		}
		if mark := a.mark(m, marks); mark != "" {
			findings = append(findings, auditClaim(m, c.marked(m), holders, mark)...)
		}
	}
	return append(findings, a.auditMarks(now, marks)...)
}

// auditClaim compares the holder of a machine with its owner by its marks.
func auditClaim(m simulator.MachineSnapshot, marked *object, holders []*object, mark string) []Finding {
	switch {
	case len(holders) == 0 && marked == nil:
		return []Finding{{Leaked, fmt.Sprintf("no object claims %s, which is ours by %s", describe(m), mark)}}
	case len(holders) == 0 && marked.Spec.SystemID != "" && marked.Spec.SystemID != m.SystemID:
		return []Finding{{Doubled, fmt.Sprintf("%s is marked as that of %s, which has %s", describe(m), marked, marked.Spec.SystemID)}}
	case len(holders) == 1 && marked != nil && marked != holders[0]:
		return []Finding{{Doubled, fmt.Sprintf("%s is that of %s, and marked as that of %s", describe(m), holders[0], marked)}}
	}
	return nil
}

// auditStolen checks the objects that have a machine of another user. The object from which that user took it may still
// name it, and nothing more.
func (a *Auditor) auditStolen(m simulator.MachineSnapshot, holders []*object) []Finding {
	var findings []Finding
	for _, o := range holders {
		switch {
		case !a.wasTaken(m.SystemID):
			findings = append(findings, Finding{Stolen, fmt.Sprintf("%s was never ours, and %s has it", describe(m), o)})
		case o.isRunning():
			findings = append(findings, Finding{Stolen, fmt.Sprintf("another user took %s, and %s says that it runs", describe(m), o)})
		}
	}
	return findings
}

// thieves are the objects that have a machine with the marks of another cluster's. They concern both clusters.
func thieves(m simulator.MachineSnapshot, holders []*object, marks marks) []*object {
	return slices.DeleteFunc(slices.Clone(holders), func(o *object) bool {
		concerned := marks.who.covers(o.cluster) || marks.owners[ownerOn(m)]
		return o.cluster.owner == "" || !concerned || !o.denied(m) || ownerOn(m) == o.cluster.owner && isOf(m, o.Namespace)
	})
}

// isOf reports whether a machine has no mark of another namespace.
func isOf(m simulator.MachineSnapshot, namespace string) bool {
	of := m.Annotations[ownership.AnnotationMachine]
	return of == "" || strings.HasPrefix(of, namespace+".")
}

// ownerOn returns the owner id on a machine; "" if there is none.
func ownerOn(m simulator.MachineSnapshot) string {
	if owner := ownerIn(m.AgentName); owner != "" {
		return owner
	}
	return m.Annotations[ownership.AnnotationOwner]
}

func marksOf(m simulator.MachineSnapshot) string {
	return fmt.Sprintf("agent_name %q, %s=%s", m.AgentName, ownership.AnnotationMachine, m.Annotations[ownership.AnnotationMachine])
}

// mark returns the mark that makes a machine one of the clusters'; "" if it is not. MAAS removes the marks when a
// release begins, and the machine is ours until it ends.
func (a *Auditor) mark(m simulator.MachineSnapshot, marks marks) string {
	if mark := marks.on(m); mark != "" || ownerOn(m) != "" || m.AgentName != "" {
		return mark
	}
	last := a.lastOf(m.SystemID)
	if last.owner != "" && marks.owner(last.owner) && m.Owner != "" && m.Owner == last.user {
		return "the agent_name that it had last, and its owner " + m.Owner
	}
	return ""
}

// auditMarks checks that no two machines have the same mark.
func (a *Auditor) auditMarks(now *maasState, marks marks) []Finding {
	var findings []Finding
	first := map[string]simulator.MachineSnapshot{}
	for _, m := range now.snapshots {
		if m.AgentName == "" || marks.on(m) == "" || a.isStranger(m.SystemID) {
			continue
		}
		if other, double := first[m.AgentName]; double {
			findings = append(findings, Finding{Doubled, fmt.Sprintf("%s and %s have the agent_name %s", describe(other), describe(m), m.AgentName)})
		}
		first[m.AgentName] = m
	}
	return findings
}

// auditObjects checks the objects that have a machine.
func (a *Auditor) auditObjects(now *maasState, c *claims, who Who) []Finding {
	var findings []Finding
	for _, o := range c.objects {
		id := o.Spec.SystemID
		if id == "" || !(who.everybody() || who.covers(o.cluster)) || a.wasTaken(id) {
			continue
		}
		if !slices.ContainsFunc(now.snapshots, func(m simulator.MachineSnapshot) bool { return m.SystemID == id }) {
			findings = append(findings, Finding{Lost, fmt.Sprintf("MAAS does not have machine %s, which is that of %s", id, o)})
		}
	}
	return findings
}

// auditHosts checks the VMs on the hosts.
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
			if there[place(host, vm)] || c.remembers(host, vm) {
				continue
			}
			switch {
			case vm.SystemID == "" && (marks.everybody || marks.name(vm.Name)):
				findings = append(findings, Finding{Leaked, fmt.Sprintf("MAAS does not know VM %s on host %s", vm.Name, host.Name)})
			case vm.SystemID != "" && marks.name(vm.Name):
				if m := a.forgotten(now, c, marks, vm); m != nil {
					findings = append(findings, Finding{Leaked, fmt.Sprintf("no object claims VM %s on host %s, which is %s", vm.Name, host.Name, describe(*m))})
				}
			}
		}
	}
	return findings
}

// forgotten returns the machine of a VM that has another name in MAAS than on its host, and no mark: MAAS took it in while
// its name was taken. Others' have none, and nil is returned.
func (a *Auditor) forgotten(now *maasState, c *claims, marks marks, vm simulator.VM) *simulator.MachineSnapshot {
	at := slices.IndexFunc(now.snapshots, func(m simulator.MachineSnapshot) bool { return m.SystemID == vm.SystemID })
	if at < 0 || a.isStranger(vm.SystemID) || len(c.holders(vm.SystemID)) > 0 {
		return nil
	}
	if m := now.snapshots[at]; m.AgentName == "" && ownerOn(m) == "" && a.mark(m, marks) == "" {
		return &m
	}
	return nil
}

// remembers reports whether an object has recorded that a host may have its VM, and has not asked that host since: it is
// still making one, runs on this host, or the host can't be asked. Otherwise the object has such a VM deleted.
func (c *claims) remembers(host simulator.VMHost, vm simulator.VM) bool {
	return slices.ContainsFunc(c.objects, func(o *object) bool {
		recorded, err := record.OfMachine(&o.MaasMachine)
		return err == nil && o.cluster.owner != "" && o.hostname() == vm.Name &&
			(host.Unreachable || o.Spec.SystemID == "" || o.Status.LXDHost == host.Name || !o.DeletionTimestamp.IsZero()) &&
			slices.ContainsFunc(recorded.Hosts, func(note string) bool { return strings.HasSuffix(note, "/"+host.Name) })
	})
}

func place(host simulator.VMHost, vm simulator.VM) string {
	return host.Name + " " + vm.Project + " " + vm.Name
}
