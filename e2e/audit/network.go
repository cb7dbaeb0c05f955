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
	var findings []Finding
	for ip := range now.reserved {
		if _, there := a.before.reserved[ip]; marks.everybody && !there {
			findings = append(findings, Finding{Address, ip + " is reserved in MAAS, and was not"})
		}
	}
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
		if _, there := now.records[one.endpoint]; !there && !one.external && marks.owner(one.owner) && len(c.published(one)) > 0 {
			findings = append(findings, Finding{Record, fmt.Sprintf("%s does not exist, and there are control planes", one.endpoint)})
		}
	}
	return findings
}

// auditEndpoint compares where the record of an API endpoint leads with the control planes that live.
func (c *claims) auditEndpoint(now *maasState, of cluster, addresses []string) []Finding {
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
