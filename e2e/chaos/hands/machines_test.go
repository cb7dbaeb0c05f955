// SPDX-License-Identifier: Apache-2.0

package hands_test

import (
	"net/http"
	"slices"

	"github.com/google/go-cmp/cmp"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/e2e/chaos/clusters"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/simulator"
)

// A machine that is deployed and off is still ours, and may come back: the endpoint keeps its address.
func powerOffAndOn(b *bed) {
	vm, metal := b.vm("a"), b.metal("b")
	endpoint := b.serving(vm, metal)
	for _, name := range []string{vm.Name, metal.Name} {
		b.operator.Machine(b.In(name).SystemID, "power_off")
	}
	for _, name := range []string{vm.Name, metal.Name} {
		if m := b.AwaitReason(name, infrav1.PoweredOffReason); m.Status.FailureReason != "" {
			b.Errorf("%s: failureReason is %q, want none: it can be switched on", name, m.Status.FailureReason)
		}
	}
	if got := b.Record.Addresses(); !slices.Equal(got, slices.Sorted(slices.Values(endpoint))) {
		b.Errorf("while the control planes are off the endpoint leads to %v, want %v", got, endpoint)
	}
	for _, name := range []string{vm.Name, metal.Name} {
		b.operator.Machine(b.In(name).SystemID, "power_on")
	}
	for _, name := range []string{vm.Name, metal.Name} {
		b.AwaitRunning(name)
		b.checkEvents(name, infrav1.PoweredOffReason, 1)
	}
	b.LeadsTo(endpoint...)
	b.finish()
}

// Their addresses may be another machine's: the endpoint keeps only the remaining ones, also when another user deploys
// the released machines. We don't.
func releaseMachines(b *bed) {
	vm, metal, left := b.vm("a"), b.metal("b"), b.metal("c")
	there := b.serving(vm, metal, left)[2]
	ids := []string{b.In(vm.Name).SystemID, b.In(metal.Name).SystemID}
	for _, id := range ids {
		b.operator.Machine(id, "release")
	}
	b.replaced(vm.Name, infrav1.MachineReleasedReason)
	b.replaced(metal.Name, infrav1.MachineReleasedReason)
	b.LeadsTo(there)
	for _, id := range ids {
		if m, _ := box.MAAS.Machine(id); m.AgentName != "" || m.Image != "" {
			b.Errorf("%s is %s with the image %s, and nobody asked for it again", m.Hostname, m.Status, m.Image)
		}
	}
	taken := b.take(metal.Name, "operator")
	b.Wait("somebody's machine to be deployed", func() (bool, string, error) {
		m, _ := box.MAAS.Machine(taken.SystemID)
		return m.Status == "Deployed" && len(m.Addresses) > 0, m.Status, nil
	})
	if got := b.Record.Addresses(); !slices.Equal(got, []string{there}) {
		b.Errorf("the endpoint leads to %v, want %s alone", got, there)
	}
	b.Delete()
	b.CheckNothingLeft()
	b.untouched(taken)
}

// takenBy: MAAS knows by the agent name whose it is, also when the MAAS user is the same.
func takenBy(user string) func(*bed) {
	return func(b *bed) {
		metal := b.metal("a")
		b.running(metal)
		taken := b.take(metal.Name, user)
		b.replaced(metal.Name, infrav1.MachineNotOursReason)
		b.Delete()
		b.CheckNothingLeft()
		b.untouched(taken)
	}
}

// The machine is another user's before we know, and we are about to release it.
func takenWhileDeleting(b *bed) {
	metal := b.metal("a")
	b.running(metal)
	taken := b.take(metal.Name, "operator")
	b.Remove(metal.Name)
	b.AwaitGone(metal.Name)
	b.untouched(taken)
	b.Delete()
	b.CheckNothingLeft()
	b.untouched(taken)
}

// take releases a machine, and deploys it for another user.
func (b *bed) take(name, user string) simulator.MachineSnapshot {
	b.Helper()
	id := b.In(name).SystemID
	person := clusters.As(b.T, box, user)
	person.Machine(id, "release")
	b.Wait("the machine to be Ready", func() (bool, string, error) {
		m, _ := box.MAAS.Machine(id)
		return m.Status == "Ready", m.Status, nil
	})
	person.Do(http.MethodPost, "machines/", "allocate", "system_id", id, "agent_name", "somebody")
	person.Machine(id, "deploy", "distro_series", "jammy", "agent_name", "somebody")
	person.Machine(id, "set_workload_annotations", "purpose", "theirs")
	m, _ := box.MAAS.Machine(id)
	return m
}

// untouched checks that another user's machine is being deployed, or deployed, as they wanted it.
func (b *bed) untouched(taken simulator.MachineSnapshot) {
	b.Helper()
	now, _ := box.MAAS.Machine(taken.SystemID)
	type whose struct {
		Owner, Agent, Image string
		Annotations         map[string]string
	}
	of := func(m simulator.MachineSnapshot) whose { return whose{m.Owner, m.AgentName, m.Image, m.Annotations} }
	if diff := cmp.Diff(of(taken), of(now)); diff != "" {
		b.Errorf("somebody's machine (-before +after):\n%s", diff)
	}
	if now.Status != "Deploying" && now.Status != "Deployed" {
		b.Errorf("somebody's machine is %s", now.Status)
	}
}

// Marking a machine broken releases it: bare metal stays as it is, a VM is deleted with its object.
func markBroken(b *bed) {
	vm, metal := b.vm("a"), b.metal("b")
	b.running(vm, metal)
	id := b.In(metal.Name).SystemID
	us := clusters.As(b.T, box, "admin") // MAAS allows it to the owner alone
	us.Machine(b.In(vm.Name).SystemID, "mark_broken")
	us.Machine(id, "mark_broken")
	b.replaced(vm.Name, infrav1.MachineBrokenReason)
	b.replaced(metal.Name, infrav1.MachineBrokenReason)
	b.Delete()
	if m, _ := box.MAAS.Machine(id); m.Status != "Broken" {
		b.Errorf("the machine that was marked broken is %s", m.Status)
	}
	us.Machine(id, "release")
	b.finish()
}

// A locked machine works, and its deletion waits for the user who locked it.
func lock(b *bed) {
	vm, metal := b.vm("a"), b.metal("b")
	b.running(vm, metal)
	ids := []string{b.In(vm.Name).SystemID, b.In(metal.Name).SystemID}
	for _, id := range ids {
		b.operator.Machine(id, "lock")
	}
	for _, name := range []string{vm.Name, metal.Name} {
		b.Remove(name)
	}
	for _, name := range []string{vm.Name, metal.Name} {
		b.AwaitReason(name, infrav1.MachineLockedReason)
	}
	for _, id := range ids {
		if m, ok := box.MAAS.Machine(id); !ok || m.Status != "Deployed" {
			b.Errorf("the locked machine %s is %q", id, m.Status)
		}
		b.operator.Machine(id, "unlock")
	}
	b.AwaitGone(vm.Name, metal.Name)
	b.finish()
}

// The name does not identify a deployed machine.
func rename(b *bed) {
	vm, metal := b.vm("a"), b.metal("b")
	b.running(vm, metal)
	provider := b.providerIDs(vm.Name, metal.Name)
	was := b.In(metal.Name)
	renamed := map[string]string{vm.Name: "renamed-vm", metal.Name: "renamed-metal"}
	for name, hostname := range renamed {
		b.operator.Edit(b.In(name).SystemID, "hostname", hostname)
	}
	for name, hostname := range renamed {
		b.Wait(name+" to have the new name", func() (bool, string, error) {
			m := b.MaasMachine(name)
			return m.Status.Hostname == hostname, m.Status.Hostname, nil
		})
		b.AwaitRunning(name)
	}
	if diff := cmp.Diff(provider, b.providerIDs(vm.Name, metal.Name)); diff != "" {
		b.Errorf("provider IDs (-before +after):\n%s", diff)
	}
	b.Delete()
	b.operator.Edit(was.SystemID, "hostname", was.Hostname)
	b.finish()
}

// The provider ID has the zone of the first moment, and stays.
func move(b *bed) {
	vm, metal := b.vm("a"), b.metal("b")
	b.running(vm, metal)
	provider := b.providerIDs(vm.Name, metal.Name)
	was := b.In(metal.Name)
	for _, name := range []string{vm.Name, metal.Name} {
		b.operator.Edit(b.In(name).SystemID, "zone", "zone-b", "pool", "lab")
	}
	for _, name := range []string{vm.Name, metal.Name} {
		b.Wait(name+" to be in the other zone", func() (bool, string, error) {
			m := b.MaasMachine(name)
			return m.Status.FailureDomain == "zone-b", m.Status.FailureDomain, nil
		})
		b.AwaitRunning(name)
	}
	if diff := cmp.Diff(provider, b.providerIDs(vm.Name, metal.Name)); diff != "" {
		b.Errorf("provider IDs (-before +after):\n%s", diff)
	}
	b.Delete()
	b.operator.Edit(was.SystemID, "zone", was.Zone, "pool", was.Pool)
	b.finish()
}

func (b *bed) providerIDs(names ...string) (ids []string) {
	b.Helper()
	for _, name := range names {
		ids = append(ids, b.MaasMachine(name).Spec.ProviderID)
	}
	return ids
}
