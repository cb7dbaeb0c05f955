// SPDX-License-Identifier: Apache-2.0

package orphans

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/ownership"
)

// Finding is a machine that is ours, or may be because it is Unreadable, and that nothing claims.
type Finding struct {
	// Server is the MAAS that shows the machine; none if there is only one.
	Server  guard.Server
	Machine *maas.Machine
	// OwnerID is the cluster's; Cluster is nil if its MaasCluster no longer exists.
	OwnerID string
	Cluster *Cluster
	// Object is the MaasMachine that it was made for; its name is "" if it is unknown: not all hostnames hold it.
	Object Object
	// hostname is the VM's, if it was made for the cluster.
	hostname string
	// Proof lists the reasons why it is ours and unclaimed.
	Proof []string
	// Doubt is what the proof lacks; "" if it is complete.
	Doubt string
}

// Composed reports whether it is a VM with our hostname. Such a VM is deleted, once it is proven to be ours; other VMs
// are taken and given back like bare metal.
func (f *Finding) Composed() bool {
	return ownership.HasHostname(f.Machine, f.hostname)
}

// Unhosted reports whether MAAS can't delete this VM of ours, because its LXD is not a VM host.
func (f *Finding) Unhosted() bool {
	m := f.Machine
	return isUnhosted(m) && m.Hostname == f.hostname
}

func isUnhosted(m *maas.Machine) bool {
	return m.Device || m.Pod == nil && m.PowerType == maas.PowerTypeLXD
}

// VM reports whether it is a VM that was made for the cluster.
func (f *Finding) VM() bool { return f.Composed() || f.Unhosted() }

// AgentName returns the agent name that MAAS must have recorded when the machine was acquired. It is "" for a VM that
// is not acquired yet, for which the hostname is the only proof, and for a machine that is Unreadable, as the response
// would be. It is also "" for a machine whose release failed, and for a VM that was marked broken: MAAS removes the
// agent name when a release begins, the annotations when it is done, and no user can acquire the machine in between.
func (f *Finding) AgentName() string {
	annotated := f.Machine.WorkloadAnnotations[ownership.AnnotationOwner] != ""
	unreleased := ownership.ProvenByAnnotations(f.Machine, f.hostname)
	if f.Machine.Unreadable || (f.VM() && f.Machine.Unacquired()) || (annotated && unreleased) {
		return ""
	}
	return ownership.AgentName(f.OwnerID, f.Object.Name)
}

// List returns all machines of a MAAS, and its devices as machines (GET machines/, GET devices/).
func List(ctx context.Context, client *maas.Client) ([]*maas.Machine, error) {
	all, err := client.AllMachines(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing the machines: %w", err)
	}
	devices, err := client.ListDevices(ctx, maas.DeviceFilter{})
	if err != nil {
		return nil, fmt.Errorf("listing the devices: %w", err)
	}
	return append(all, list.Each(devices, (*maas.Device).AsMachine)...), nil
}

// Audit returns the orphans among all machines of a MAAS.
func (c *Claims) Audit(machines []*maas.Machine) []Finding {
	var found []Finding
	for _, m := range machines {
		if f, notOrphan := c.Judge(m); notOrphan == "" {
			found = append(found, f)
		}
	}
	return found
}

// Judge reports whether a machine is an orphan: notOrphan is "" then, else the reason why not.
func (c *Claims) Judge(m *maas.Machine) (f Finding, notOrphan string) {
	f, ok := c.recognize(m)
	if !ok && !m.Unreadable {
		return f, "it does not carry a mark of this management cluster"
	}
	if object, claimed := c.claimant(m); claimed {
		return f, fmt.Sprintf("MaasMachine %s claims it", object)
	}
	switch {
	case f.Cluster != nil && f.Cluster.Paused:
		return f, fmt.Sprintf("the cluster of MaasCluster %s is paused", f.Cluster)
	case m.Unreadable:
		f.Doubt = "MAAS lists it, and shows of it what no machine is: its marks, its owner and its state are not certain"
	case m.Status == maas.StatusReleasing || m.Status == maas.StatusDiskErasing:
		return f, "it is on its way back into the pool"
	case !f.VM() && m.Owner == "":
		return f, "nobody holds it"
	}
	f.Proof = append(f.Proof, c.unclaimed(f))
	return f, ""
}

// recognize identifies the owner of a machine by its marks.
func (c *Claims) recognize(m *maas.Machine) (Finding, bool) {
	f := Finding{Machine: m, OwnerID: m.WorkloadAnnotations[ownership.AnnotationOwner]}
	if f.OwnerID == "" {
		return c.recognizeHostname(f)
	}
	namespace, name, _ := strings.Cut(m.WorkloadAnnotations[ownership.AnnotationMachine], ".")
	f.Object, f.hostname = Object{Namespace: namespace, Name: name}, maas.Hostname(name, f.OwnerID)
	manager := m.WorkloadAnnotations[ownership.AnnotationManagement]
	cluster, known := c.clusters[f.OwnerID]
	if !known {
		return c.recognizeManagement(f, manager)
	}
	f.Cluster = &cluster
	f.Proof = append(f.Proof, fmt.Sprintf("its annotation %s=%s is the owner id of MaasCluster %s",
		ownership.AnnotationOwner, f.OwnerID, cluster))
	switch {
	case manager != "" && manager != c.management:
		f.Doubt = fmt.Sprintf("another management cluster marked it last (%s=%s): the cluster was moved from there, or is "+
			"there too", ownership.AnnotationManagement, manager)
	case manager != "":
		f.Proof = append(f.Proof, fmt.Sprintf("its annotation %s=%s is this management cluster",
			ownership.AnnotationManagement, manager))
	}
	return f, true
}

// recognizeHostname is for VMs that have no annotations, because they were never deployed.
func (c *Claims) recognizeHostname(f Finding) (Finding, bool) {
	m := f.Machine
	if m.Pod == nil && !isUnhosted(m) || !strings.Contains(m.Hostname, "-") {
		return f, false
	}
	at := strings.LastIndex(m.Hostname, "-")
	cluster, known := c.suffixes[m.Hostname[at:]]
	if !known {
		return f, false
	}
	f.Cluster, f.OwnerID, f.hostname = &cluster, cluster.OwnerID, m.Hostname
	if name := m.Hostname[:at]; maas.Hostname(name, f.OwnerID) == m.Hostname {
		f.Object = Object{Namespace: cluster.Namespace, Name: name}
	}
	f.Proof = append(f.Proof, fmt.Sprintf("it is a VM on %s, and its hostname ends in %s, the hash of the owner id %s of "+
		"MaasCluster %s", hostOf(m), m.Hostname[at:], f.OwnerID, cluster))
	return f, true
}

// recognizeManagement is for machines whose MaasCluster no longer exists.
func (c *Claims) recognizeManagement(f Finding, manager string) (Finding, bool) {
	if manager == "" || manager != c.management || !c.sees(f.Object.Namespace) {
		return f, false
	}
	f.Proof = append(f.Proof,
		fmt.Sprintf("its annotation %s=%s is this management cluster", ownership.AnnotationManagement, manager),
		fmt.Sprintf("no MaasCluster has the owner id %s=%s", ownership.AnnotationOwner, f.OwnerID))
	f.Doubt = "its MaasCluster was deleted here, or moved to a management cluster that has not marked it yet"
	return f, true
}

// unclaimed describes the missing object.
func (c *Claims) unclaimed(f Finding) string {
	nothing := fmt.Sprintf("no MaasMachine has the system id %s", cmp.Or(f.Machine.SystemID, "(none)"))
	object, there := c.objects[f.Object.Namespace+"."+f.Object.Name]
	switch {
	case there:
		return fmt.Sprintf("%s; MaasMachine %s has %s", nothing, object, object.SystemID)
	case f.Object.Name != "":
		return fmt.Sprintf("%s, and there is no MaasMachine %s", nothing, f.Object)
	}
	return fmt.Sprintf("%s, and none has the hostname %s", nothing, cmp.Or(f.Machine.Hostname, "(none)"))
}

// hostOf names what a VM is on.
func hostOf(m *maas.Machine) string {
	if m.Pod == nil {
		return "an LXD that is not a VM host of MAAS"
	}
	return "VM host " + m.Pod.Name
}

// Recorded checks findings against MAAS's own record of who acquired each machine, which no list shows and nobody can
// change afterwards (GET machines/ with the filters id and agent_name). A device's mark is its description, which was
// listed: only its owner and administrators can set it. It returns the confirmed ones. The others were
// left over, and then acquired by another user. Machines that are not acquired yet need no record.
func Recorded(ctx context.Context, client *maas.Client, findings []Finding) ([]Finding, error) {
	ours := map[string]bool{}
	for _, f := range findings {
		ours[f.Machine.SystemID] = f.Machine.Device && f.Machine.Description == f.AgentName()
	}
	for _, filter := range maas.JoinFilters(records(findings)) {
		machines, err := client.ListMachines(ctx, filter)
		if err != nil {
			return nil, fmt.Errorf("asking MAAS who acquired the machines: %w", err)
		}
		for _, m := range machines {
			ours[m.SystemID] = true
		}
	}
	var stand []Finding
	for _, f := range findings {
		name := f.AgentName()
		switch {
		case name != "" && !ours[f.Machine.SystemID]:
			continue
		case name != "":
			f.Proof = append(f.Proof, "MAAS recorded that "+name+" acquired it")
		}
		stand = append(stand, f)
	}
	return stand, nil
}

// records returns the filters for what MAAS must have recorded.
func records(findings []Finding) []maas.MachineFilter {
	acquired := list.Where(findings, func(f Finding) bool { return f.AgentName() != "" && !f.Machine.Device })
	return list.Each(acquired, func(f Finding) maas.MachineFilter {
		return maas.MachineFilter{SystemIDs: []string{f.Machine.SystemID}, AgentNames: []string{f.AgentName()}}
	})
}
