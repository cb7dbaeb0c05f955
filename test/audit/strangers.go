// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/quarantine"
	"github.com/capmaas/cluster-api-provider-maas/test/ledger"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// taken is a machine that another user took, ours or free, as it was then.
type taken struct {
	hostname, user, agent, image, pool, zone, tags, annotations, static string
}

func (s *maasState) taken(m simulator.MachineSnapshot) taken {
	// The tag of an exclusion is ours, and taken off whoever has the machine by then.
	tags := slices.DeleteFunc(slices.Clone(m.Tags), func(tag string) bool { return tag == quarantine.ExcludeTag })
	return taken{
		hostname: m.Hostname, user: m.Owner, agent: m.AgentName, image: m.Image, pool: m.Pool, zone: m.Zone,
		tags: fmt.Sprint(tags), annotations: fmt.Sprint(m.Annotations), static: fmt.Sprint(s.machines[m.SystemID].static),
	}
}

// Took records that another user took a machine that was ours, or that could have been. From now on it is theirs. Only
// their own requests may change it: it is deployed if they requested that.
func (a *Auditor) Took(systemID string) error {
	now, err := readState(a.region)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(now.snapshots, func(m simulator.MachineSnapshot) bool { return m.SystemID == systemID })
	if at < 0 {
		return fmt.Errorf("machine %s: %w", systemID, errNotThere)
	}
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.taken[systemID], a.takenAt[systemID], a.everTaken[systemID] = now.taken(now.snapshots[at]), now.began, true
	return nil
}

var errNotThere = errors.New("MAAS does not have it")

// GivesBack records that another user is about to give back, or to delete, a machine that they took. It returns
// unwanted changes before that.
func (a *Auditor) GivesBack(systemID string) ([]Finding, error) {
	now, err := readState(a.region)
	if err != nil {
		return nil, err
	}
	findings := slices.DeleteFunc(a.auditTaken(now), func(f Finding) bool { return !strings.Contains(f.What, systemID) })
	a.mutex.Lock()
	defer a.mutex.Unlock()
	delete(a.taken, systemID)
	return findings, nil
}

// wanted are the changes that follow from the requests of a user who has a machine.
var wanted = map[[2]string]bool{
	{"Ready", "Allocated"}: true, {"Allocated", "Deploying"}: true, {"Deploying", "Deployed"}: true, {"Deploying", "Failed deployment"}: true,
}

// watch records changes of machines that are not ours, also those that are undone later, and which cluster had a
// machine last.
func (a *Auditor) watch(m simulator.MachineSnapshot, change simulator.Change) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if owner := ownerIn(m.AgentName); owner != "" {
		a.hadLast[m.SystemID] = holder{owner: owner, user: m.Owner}
	}
	if couldNotBeAsked(change) {
		return
	}
	_, unwelcome := a.strangers[m.SystemID]
	// Reports from before it was taken don't concern the taker.
	if was, is := a.taken[m.SystemID]; is && m.Owner == was.user {
		unwelcome = change.Kind == simulator.ChangeDeleted || change.Kind == simulator.ChangeStatus && !wanted[[2]string{change.From, change.To}]
	}
	if _, already := a.touched[m.SystemID]; unwelcome && !already {
		a.touched[m.SystemID] = fmt.Sprintf("%s is not ours: its %s changed from %q to %q", describe(m), change.Kind, change.From, change.To)
	}
}

// couldNotBeAsked reports whether MAAS itself changed a machine's power, because its BMC did not respond, or does so again.
func couldNotBeAsked(change simulator.Change) bool {
	return change.Kind == simulator.ChangePower && slices.Contains([]string{change.From, change.To}, "error")
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

// holder is the cluster that had a machine, by its owner id, and the user of MAAS that acquired it for the cluster.
type holder struct{ owner, user string }

// lastOf is the cluster that had a machine last.
func (a *Auditor) lastOf(systemID string) holder {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return a.hadLast[systemID]
}

// isStranger reports whether another user has a machine now, and wasTaken whether another user took it once.
func (a *Auditor) isStranger(systemID string) bool {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	_, is := a.strangers[systemID]
	_, taken := a.taken[systemID]
	return is || taken
}

func (a *Auditor) wasTaken(systemID string) bool {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return a.everTaken[systemID]
}

// auditStrangers compares everything that was never ours with its earlier state.
func (a *Auditor) auditStrangers(now *maasState) []Finding {
	findings := append(a.auditStrangeMachines(now), a.auditTaken(now)...)
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

// auditTaken compares what other users took with how it was then.
func (a *Auditor) auditTaken(now *maasState) []Finding {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	var findings []Finding
	for id, was := range a.taken {
		if a.takenAt[id].After(now.began) {
			continue // It was taken after MAAS was read.
		}
		at := slices.IndexFunc(now.snapshots, func(m simulator.MachineSnapshot) bool { return m.SystemID == id })
		if at < 0 {
			findings = append(findings, Finding{Wiped, fmt.Sprintf("machine %s (%s) was %s's, and is gone", id, was.hostname, was.user)})
			continue
		}
		m := now.snapshots[at]
		if is := now.taken(m); is != was {
			findings = append(findings, Finding{Wiped, fmt.Sprintf("%s was %s's, and changed from %+v to %+v", describe(m), was.user, was, is)})
		}
	}
	return findings
}

// auditStrangeVMs checks that the VMs that were on a host before are still there.
func (a *Auditor) auditStrangeVMs(now *maasState) []Finding {
	var findings []Finding
	for _, host := range a.before.hosts {
		at := slices.IndexFunc(now.hosts, func(h simulator.VMHost) bool { return h.Name == host.Name })
		if at >= 0 && now.hosts[at].Unreachable {
			continue // It is already reported as invisible.
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
