// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The life of a VM with a fixed address, in the order in which a provider lives it.
func TestVMWithAStaticAddressFromComposeToDeletion(t *testing.T) {
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
		spare := m.spare(t)
		systemID, agent := spare.str("system_id"), uniqueName()

		address := m.giveStaticAddress(t, spare)
		m.annotate(t, spare, "step", "ready").
			refuses(t, http.StatusConflict, "Cannot set workload annotation: it hasn't been acquired.")

		deploying := m.deploy(t, spare, "agent_name", agent).object(t)
		if deploying.str("status_name") != "Deploying" || deploying.str("owner") != m.me(t) {
			t.Errorf("%s of %v, want Deploying and mine", deploying.str("status_name"), deploying["owner"])
		}
		if got := deploying.strings("ip_addresses"); !cmp.Equal(got, []string{address}) {
			t.Errorf("addresses %v in the reply to deploy, want %s", got, address)
		}
		if got := systemIDs(m.machines(t, "agent_name", agent)); !cmp.Equal(got, []string{systemID}) {
			t.Errorf("machines of the agent name: %v, want %s", got, systemID)
		}
		m.annotate(t, spare, "step", "deploying").object(t)

		deployed := m.awaitStatus(t, systemID, "Deployed")
		if got := deployed.strings("ip_addresses"); !cmp.Equal(got, []string{address}) {
			t.Errorf("addresses %v when Deployed, want %s", got, address)
		}
		if got := deployed.str("workload_annotations", "step"); got != "deploying" {
			t.Errorf("annotation step is %q, want deploying", got)
		}

		m.delete(t, machinePath(systemID)).gone(t)
		m.awaitNoMachine(t, systemID)
		m.get(t, machinePath(systemID)).refuses(t, http.StatusNotFound, "No Machine matches the given query.")
	})
}

func TestTwoMachinesAreReadInOneCall(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		a, b := m.spare(t), m.spare(t)
		want := systemIDs([]object{a, b})
		if got := systemIDs(m.machines(t, "id", a.str("system_id"), "id", b.str("system_id"))); !slices.Equal(got, want) {
			t.Errorf("machines %v, want %v", got, want)
		}
	})
}

// The address of a deleted machine is free again.
func TestDeletedMachinesAddressIsFree(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		machine := m.newMachine(t)
		address := m.linkStatic(t, machine)
		m.removeMachine(t, machine)
		m.reserve(t, "ip", address)
	})
}
