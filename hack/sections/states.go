// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/internal/states"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// stateNames are MAAS's words for its states, by their numbers.
var stateNames = []string{
	"New", "Commissioning", "Failed commissioning", "Missing", "Ready", "Reserved", "Deployed", "Retired", "Broken",
	"Deploying", "Allocated", "Failed deployment", "Releasing", "Releasing failed", "Disk erasing",
	"Failed disk erasing", "Rescue mode", "Entering rescue mode", "Failed to enter rescue mode",
	"Exiting rescue mode", "Failed to exit rescue mode", "Testing", "Failed testing",
}

// order are the states as a machine goes through them.
var order = []maas.Status{
	maas.StatusNew, maas.StatusCommissioning, maas.StatusFailedCommissioning, maas.StatusTesting,
	maas.StatusFailedTesting, maas.StatusReady, maas.StatusAllocated, maas.StatusReserved, maas.StatusDeploying,
	maas.StatusDeployed, maas.StatusFailedDeployment, maas.StatusReleasing, maas.StatusReleasingFailed,
	maas.StatusDiskErasing, maas.StatusFailedDiskErasing, maas.StatusBroken, maas.StatusMissing, maas.StatusRetired,
	maas.StatusEnteringRescueMode, maas.StatusRescueMode, maas.StatusExitingRescueMode, maas.StatusFailedToEnterRescue,
	maas.StatusFailedToExitRescueMode,
}

// statesTable returns the table of MAAS's states.
func statesTable(string) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("| state in MAAS | before the first deployment | after it |\n|---|---|---|\n")
	row := func(state, first, later string) { fmt.Fprintf(&b, "| %s | %s | %s |\n", state, first, later) }
	if len(order) != len(stateNames) {
		return nil, fmt.Errorf("%d states are named, and %d are in order", len(stateNames), len(order))
	}
	for _, status := range order {
		if states.Assess(&maas.Machine{Status: status}, false, true).Reason == infrav1.MachineNotUsableReason {
			return nil, fmt.Errorf("the manager does not know the state %s", stateNames[status])
		}
		row(stateNames[status], cell(status, false), cell(status, true))
	}
	m := &maas.Machine{}
	row("the machine is no longer in MAAS", words(states.Vanished), words(states.Vanished))
	row("another user has the machine", words(states.NotOurs(m, false)), words(states.NotOurs(m, true)))
	row("Deploying or Deployed, and this MaasMachine did not ask for it", words(states.DeployedByOthers(m)), "as the state")
	unknown := &maas.Machine{Status: -1}
	row("a state that is not in this list", words(states.Assess(unknown, false, false)), words(states.Assess(unknown, true, false)))
	return b.Bytes(), nil
}

// cell returns what a state means.
func cell(status maas.Status, ran bool) string {
	m := &maas.Machine{Status: status}
	vm, bare := words(states.Assess(m, ran, true)), words(states.Assess(m, ran, false))
	if vm != bare {
		return "VM: " + vm + ". Bare metal: " + bare
	}
	for _, special := range []struct {
		name    string
		machine *maas.Machine
	}{
		{"Powered off", &maas.Machine{Status: status, PowerState: maas.PowerOff}},
		{"Powered off, and deployed in memory",
			&maas.Machine{Status: status, PowerState: maas.PowerOff, InMemory: true}},
		{"Locked", &maas.Machine{Status: status, Locked: true}},
	} {
		if other := words(states.Assess(special.machine, ran, false)); other != bare {
			vm += ". " + special.name + ": " + other
		}
	}
	return vm
}

// words returns the reason and what follows.
func words(a states.Assessment) string {
	then := ", a person"
	switch a.Then {
	case states.Deploy:
		return "it is deployed"
	case states.Runs:
		return "it runs"
	case states.Replace:
		then = ", replace"
	case states.Moving:
		then = ", wait"
	}
	text := "`" + a.Reason + "`" + then
	if a.Phase != "" {
		text += "; [deadline](#deadlines)"
	}
	return text
}
