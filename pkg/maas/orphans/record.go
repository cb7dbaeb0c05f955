// SPDX-License-Identifier: Apache-2.0

package orphans

import (
	"context"
	"fmt"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// recordBatch is how many machines one list asks for: ids and names go into the URL.
const recordBatch = 100

// Recorded holds findings against MAAS's own record of who acquired each machine, which no list shows and nobody can change
// afterwards (GET machines/ with the filters id and agent_name), and answers those that stand. The others were left over, and
// then acquired by somebody else. What nobody acquired yet needs no record.
func Recorded(ctx context.Context, client *maas.Client, findings []Finding) ([]Finding, error) {
	ours := map[string]bool{}
	for rest := acquired(findings); len(rest) > 0; rest = rest[min(len(rest), recordBatch):] {
		filter := maas.MachineFilter{}
		for _, f := range rest[:min(len(rest), recordBatch)] {
			filter.SystemIDs = append(filter.SystemIDs, f.Machine.SystemID)
			filter.AgentNames = append(filter.AgentNames, f.AgentName())
		}
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

func acquired(findings []Finding) []Finding {
	var list []Finding
	for _, f := range findings {
		if f.AgentName() != "" {
			list = append(list, f)
		}
	}
	return list
}
