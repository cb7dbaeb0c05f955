// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// auditAddresses checks reserved addresses and the links of machines.
func (a *Auditor) auditAddresses(now *maasState, c *claims, marks marks) []Finding {
	findings := a.auditReserved(now, c, marks)
	for _, m := range now.snapshots {
		links, holders := now.machines[m.SystemID], c.holders(m.SystemID)
		if a.isStranger(m.SystemID) {
			continue
		}
		if len(holders) == 0 {
			before, there := a.before.machines[m.SystemID]
			if !marks.everybody && !marks.owner(a.lastOf(m.SystemID).owner) {
				continue // Another cluster's, which may be on its way.
			}
			if a.mayTake[m.SystemID] && there && m.Status == "Ready" && m.Owner == "" && before.links != links.links {
				findings = append(findings, Finding{Address, fmt.Sprintf("%s is back in the pool with the links %q, and had %q", describe(m), links.links, before.links)})
			}
			continue
		}
		spec, wanted := holders[0].Spec, holders[0].staticIP()
		if marks.on(m) == "" || spec.StaticIPPoolRef != nil {
			continue
		}
		if n := len(links.static); m.Device && n > links.cards {
			findings = append(findings, Finding{Address, fmt.Sprintf("%s has %d addresses, and %d network cards", describe(m), n, links.cards)})
		}
		for _, ip := range links.static {
			if ip != wanted && (wanted != "" || !m.Device) { // MAAS chooses one for each device.
				findings = append(findings, Finding{Address, fmt.Sprintf("%s has the static address %s, and %s has staticIP %q", describe(m), ip, holders[0], wanted)})
			}
		}
	}
	return findings
}

// auditReserved checks the addresses that MAAS keeps reserved: those of clusters, as long as they are there.
func (a *Auditor) auditReserved(now *maasState, c *claims, marks marks) []Finding {
	var findings []Finding
	had := slices.DeleteFunc(a.known(Who{}), func(one cluster) bool { return !marks.owner(one.owner) })
	for ip := range now.reserved {
		_, there := a.before.reserved[ip]
		if !there && !keeps(c.clusters, ip) && (marks.everybody || keeps(had, ip)) {
			findings = append(findings, Finding{Address, ip + " is reserved in MAAS, and was not"})
		}
	}
	for _, one := range c.clusters {
		if _, there := now.reserved[one.virtualIP]; one.virtualIP != "" && marks.owner(one.owner) && !there {
			findings = append(findings, Finding{Address, fmt.Sprintf("%s, the virtual IP of MaasCluster %s/%s, is not reserved in MAAS", one.virtualIP, one.namespace, one.name)})
		}
	}
	return findings
}

// auditRecords checks the DNS records.
func (a *Auditor) auditRecords(now *maasState, c *claims, marks marks) []Finding {
	var findings []Finding
	for fqdn, addresses := range now.records {
		label, _, _ := strings.Cut(fqdn, ".")
		if _, there := a.before.records[fqdn]; there || !(marks.everybody || marks.name(label)) {
			continue
		}
		named := slices.DeleteFunc(slices.Clone(c.clusters), func(one cluster) bool { return one.endpoint != fqdn })
		if len(named) == 0 {
			findings = append(findings, Finding{Record, fmt.Sprintf("%s is left, and leads to %q", fqdn, addresses)})
			continue
		}
		findings = append(findings, a.auditEndpoint(now, c, named, strings.Fields(addresses))...)
	}
	for _, one := range c.clusters {
		if _, there := now.records[one.endpoint]; !there && !one.external && one.virtualIP == "" && marks.owner(one.owner) && len(c.published(one)) > 0 {
			findings = append(findings, Finding{Record, fmt.Sprintf("%s does not exist, and there are control planes", one.endpoint)})
		}
	}
	return findings
}

// auditEndpoint compares where the record of an API endpoint leads with the control planes that live, or with the
// virtual IP. Of clusters with the same name for it all but one are copies, which have no machines.
func (a *Auditor) auditEndpoint(now *maasState, c *claims, of []cluster, addresses []string) []Finding {
	fqdn := of[0].endpoint
	if virtualIP := of[0].virtualIP; virtualIP != "" {
		if slices.Equal(addresses, []string{virtualIP}) {
			return nil
		}
		return []Finding{{Record, fmt.Sprintf("%s leads to %q, want the virtual IP %s", fqdn, addresses, virtualIP)}}
	}
	live, theirs := a.live(now, c, of), a.theirs(now)
	var findings []Finding
	for _, address := range addresses {
		switch stranger, leads := theirs[address]; {
		case slices.Contains(live, address):
		case leads:
			findings = append(findings, Finding{Record, fmt.Sprintf("%s leads to %s, which another user's %s has", fqdn, address, stranger)})
		case len(live) > 0:
			findings = append(findings, Finding{Record, fmt.Sprintf("%s leads to %s, which is no live control plane's: those have %v", fqdn, address, live)})
		}
	}
	if len(addresses) == 0 && slices.ContainsFunc(of, func(one cluster) bool { return len(c.published(one)) > 0 }) {
		findings = append(findings, Finding{Record, fqdn + " leads nowhere, and there are control planes"})
	}
	return findings
}

// live are the addresses of the control planes of clusters that run.
func (a *Auditor) live(now *maasState, c *claims, of []cluster) []string {
	var live []string
	for _, o := range c.objects {
		if !slices.Contains(of, o.cluster) || !o.isControlPlane() || !o.DeletionTimestamp.IsZero() || a.isStranger(o.Spec.SystemID) {
			continue
		}
		at := slices.IndexFunc(now.snapshots, func(m simulator.MachineSnapshot) bool { return m.SystemID == o.Spec.SystemID })
		if at < 0 || now.snapshots[at].Status != "Deployed" || o.denied(now.snapshots[at]) {
			continue
		}
		for _, address := range now.snapshots[at].Addresses {
			live = append(live, address.String())
		}
	}
	return live
}

// theirs returns the machines that other users have, by their addresses.
func (a *Auditor) theirs(now *maasState) map[string]string {
	theirs := map[string]string{}
	for _, m := range now.snapshots {
		if !a.isStranger(m.SystemID) {
			continue
		}
		for _, address := range m.Addresses {
			theirs[address.String()] = describe(m)
		}
	}
	return theirs
}

// published returns the control planes of a cluster that report that its endpoint contains them.
func (c *claims) published(of cluster) []*object {
	return slices.DeleteFunc(slices.Clone(c.objects), func(o *object) bool {
		return o.cluster != of || !o.isControlPlane() || !o.DeletionTimestamp.IsZero() || !o.Status.DNSAttached
	})
}
