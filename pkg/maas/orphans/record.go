// SPDX-License-Identifier: Apache-2.0

package orphans

import (
	"context"
	"fmt"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

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
		if name != "" && !ours[f.Machine.SystemID] {
			continue
		}
		if name != "" {
			f.Proof = append(f.Proof, "MAAS recorded that "+name+" acquired it")
		}
		stand = append(stand, f)
	}
	return stand, nil
}

// records returns the filters for what MAAS must have recorded.
func records(findings []Finding) []maas.MachineFilter {
	var list []maas.MachineFilter
	for _, f := range findings {
		if name := f.AgentName(); name != "" && !f.Machine.Device {
			list = append(list, maas.MachineFilter{SystemIDs: []string{f.Machine.SystemID}, AgentNames: []string{name}})
		}
	}
	return list
}
