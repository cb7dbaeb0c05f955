// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// A user who acquires a machine between its release and the removal of its static address keeps both.
func TestTheAddressOfAMachineThatSomebodyTookAfterItsReleaseIsLeftAlone(t *testing.T) {
	t.Parallel()
	const address = "10.77.0.51"
	w, _ := clusterWorld(t)
	m := w.deployedMachine("md-0", false, infrav1.MaasMachineSpec{StaticIP: address})
	id := m.Spec.SystemID
	w.maas.ResetCalls()
	var taken atomic.Bool
	w.maas.SetHook(func(call simulator.Call, phase simulator.Phase) error {
		if now, _ := w.maas.Machine(id); phase == simulator.Before && call.Op == "allocate" && now.Status == "Ready" && !taken.Swap(true) {
			w.allocateAs("somebody", id)
		}
		return nil
	})
	w.beginDeletion(m)
	w.goes(m)
	if !taken.Load() {
		t.Error("nobody acquired the machine before its address was to be returned")
	}
	theirs, _ := w.maas.Machine(id)
	if theirs.Status != "Allocated" || theirs.AgentName != "somebody" || !slices.Contains(theirs.Addresses, netip.MustParseAddr(address)) {
		t.Errorf("another user's machine is now %+v, want it to have %s still", theirs, address)
	}
	for _, call := range w.maas.Calls().Log {
		if call.Op == "link_subnet" {
			t.Errorf("the links of another user's machine were replaced: %+v", call)
		}
	}
}
