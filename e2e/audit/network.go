// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/simulator"
)

// auditAddresses goes through reserved addresses and the links of machines.
func (a *Auditor) auditAddresses(now *maasState, c *claims, marks marks) []Finding {
	findings := a.auditReserved(now, c, marks)
	for _, m := range now.snapshots {
		links, holders := now.machines[m.SystemID], c.holders(m.SystemID)
		if len(holders) == 0 {
			before, there := a.before.machines[m.SystemID]
			if !marks.everybody && !marks.owner(a.wasLastOf(m.SystemID)) {
				continue // Another cluster's, which may be on its way.
			}
			if a.mayTake[m.SystemID] && there && m.Status == "Ready" && m.Owner == "" && before.links != links.links {
				findings = append(findings, Finding{Address, fmt.Sprintf("%s is back in the pool with the links %q, and had %q", describe(m), links.links, before.links)})
			}
			continue
		}
		spec := holders[0].Spec
		if marks.on(m) == "" || spec.StaticIPPoolRef != nil {
			continue
		}
		for _, ip := range links.static {
			if ip != spec.StaticIP {
				findings = append(findings, Finding{Address, fmt.Sprintf("%s has the static address %s, and %s has staticIP %q", describe(m), ip, holders[0], spec.StaticIP)})
			}
		}
	}
	return findings
}

// auditReserved goes through the addresses that MAAS keeps for somebody: those of clusters, as long as they are there.
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

// auditRecords goes through the DNS records.
func (a *Auditor) auditRecords(now *maasState, c *claims, marks marks) []Finding {
	var findings []Finding
	for fqdn, addresses := range now.records {
		label, _, _ := strings.Cut(fqdn, ".")
		if _, there := a.before.records[fqdn]; there || !(marks.everybody || marks.name(label)) {
			continue
		}
		at := slices.IndexFunc(c.clusters, func(one cluster) bool { return one.endpoint == fqdn })
		if at < 0 {
			findings = append(findings, Finding{Record, fmt.Sprintf("%s is left, and leads to %q", fqdn, addresses)})
			continue
		}
		findings = append(findings, c.auditEndpoint(now, c.clusters[at], strings.Fields(addresses))...)
	}
	for _, one := range c.clusters {
		if _, there := now.records[one.endpoint]; !there && !one.external && one.virtualIP == "" && marks.owner(one.owner) && len(c.published(one)) > 0 {
			findings = append(findings, Finding{Record, fmt.Sprintf("%s does not exist, and there are control planes", one.endpoint)})
		}
	}
	return findings
}

// auditEndpoint compares where the record of an API endpoint leads with the control planes that live, or with the virtual IP.
func (c *claims) auditEndpoint(now *maasState, of cluster, addresses []string) []Finding {
	if of.virtualIP != "" {
		if slices.Equal(addresses, []string{of.virtualIP}) {
			return nil
		}
		return []Finding{{Record, fmt.Sprintf("%s leads to %q, want the virtual IP %s", of.endpoint, addresses, of.virtualIP)}}
	}
	var live []string
	for _, o := range c.objects {
		if o.cluster.owner != of.owner || !o.isControlPlane() || !o.DeletionTimestamp.IsZero() {
			continue
		}
		at := slices.IndexFunc(now.snapshots, func(m simulator.MachineSnapshot) bool { return m.SystemID == o.Spec.SystemID })
		if at < 0 || now.snapshots[at].Status != "Deployed" {
			continue
		}
		for _, address := range now.snapshots[at].Addresses {
			live = append(live, address.String())
		}
	}
	var findings []Finding
	for _, address := range addresses {
		if !slices.Contains(live, address) && len(live) > 0 {
			findings = append(findings, Finding{Record, fmt.Sprintf("%s leads to %s, which is no live control plane's: those have %v", of.endpoint, address, live)})
		}
	}
	if len(addresses) == 0 && len(c.published(of)) > 0 {
		findings = append(findings, Finding{Record, of.endpoint + " leads nowhere, and there are control planes"})
	}
	return findings
}

// published are the control planes of a cluster that say that its endpoint leads to them.
func (c *claims) published(of cluster) []*object {
	return slices.DeleteFunc(slices.Clone(c.objects), func(o *object) bool {
		return o.cluster.owner != of.owner || !o.isControlPlane() || !o.DeletionTimestamp.IsZero() || !o.Status.DNSAttached
	})
}
