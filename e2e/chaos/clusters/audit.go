// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/test/audit"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

// VMs returns the VMs on the LXD hosts with names of the cluster's VMs, whether MAAS knows them or not.
func (c *Cluster) VMs() []string {
	var names []string
	for _, host := range c.Box.MAAS.VMHosts() {
		for _, vm := range host.VMs {
			if maas.IsHostname(vm.Name, c.ownerID) {
				names = append(names, host.Name+"/"+vm.Name)
			}
		}
	}
	return names
}

// Settled waits until MAAS has what the cluster's objects require, and nothing else with its marks.
func (c *Cluster) Settled() {
	c.Helper()
	c.Wait("MAAS and the objects to agree", func() (bool, string, error) {
		findings, err := c.auditor.Steady(c.Context(), c.who())
		findings = c.concerning(findings)
		return len(findings) == 0, fmt.Sprint(findings), err
	})
}

// CheckNothingLeft checks that nothing in MAAS and on its hosts has the marks of the deleted cluster.
func (c *Cluster) CheckNothingLeft() {
	c.Helper()
	findings, err := c.auditor.Gone(c.Context(), c.who())
	if err != nil {
		c.Fatal(err)
	}
	for _, finding := range c.concerning(findings) {
		c.Error(finding)
	}
}

func (c *Cluster) who() audit.Who {
	return audit.Who{Namespace: c.Key.Namespace, Cluster: c.Key.Name}
}

// concerning are the findings that other tests have not caused.
func (c *Cluster) concerning(findings []audit.Finding) []audit.Finding {
	return slices.DeleteFunc(findings, func(f audit.Finding) bool {
		return c.neighbours && (f.Kind == audit.Unseen || f.Kind == audit.Wiped)
	})
}

// Events counts the events about a MaasMachine, by reason.
func (c *Cluster) Events(name string) map[string]int {
	c.Helper()
	list := &corev1.EventList{}
	if err := c.Box.Client.List(c.Context(), list, client.InNamespace(c.Key.Namespace)); err != nil {
		c.Fatal(err)
	}
	counts := map[string]int{}
	for _, event := range list.Items {
		if event.InvolvedObject.Kind != "MaasMachine" || event.InvolvedObject.Name != name {
			continue
		}
		times := max(1, int(event.Count))
		if event.Series != nil {
			times = int(event.Series.Count)
		}
		counts[event.Reason] += times
	}
	return counts
}

// dump shows how the cluster is.
func (c *Cluster) dump() {
	var out strings.Builder
	list := &infrav1.MaasMachineList{}
	if err := c.Box.Client.List(c.Context(), list, client.InNamespace(c.Key.Namespace), client.MatchingLabels{"cluster.x-k8s.io/cluster-name": c.Key.Name}); err != nil {
		fmt.Fprintln(&out, err)
	}
	for _, m := range list.Items {
		fmt.Fprintf(&out, "MaasMachine %s %s %s %v\n  %s\n  events %v\n", m.Name, m.Spec.SystemID, m.Status.MachineState, m.Annotations,
			strings.ReplaceAll(sandbox.Conditions(m.Status.Conditions), "; ", "\n  "), c.Events(m.Name))
	}
	for _, m := range c.Box.MAAS.Machines() {
		fmt.Fprintf(&out, "in MAAS: %s %s %s power=%s zone=%s host=%s owner=%s agent=%s locked=%t addresses=%v\n",
			m.SystemID, m.Hostname, m.Status, m.Power, m.Zone, m.VMHost, m.Owner, m.AgentName, m.Locked, m.Addresses)
	}
	for _, host := range c.Box.MAAS.VMHosts() {
		fmt.Fprintf(&out, "VM host: %s %d cores, unreachable=%t, %v\n", host.Name, host.Cores, host.Unreachable, host.VMs)
	}
	c.Log(out.String())
}
