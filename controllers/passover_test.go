// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// takeOffNetwork unlinks a machine's network cards.
func (w *world) takeOffNetwork(id string) {
	w.t.Helper()
	m := w.readMachine(id)
	for _, nic := range m.Interfaces {
		for _, link := range nic.Links {
			w.maasCall(http.MethodPost, fmt.Sprintf("nodes/%s/interfaces/%d/?op=unlink_subnet", id, nic.ID), url.Values{"id": {fmt.Sprint(link.ID)}})
		}
	}
}

// A server that MAAS gives, and then refuses to deploy for its own sake, is not given to the next Machine again.
func TestAServerThatCantBeDeployedIsPassedOver(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t)
	id := w.named("metal-a")
	w.takeOffNetwork(id)
	inZone := infrav1.MaasMachineSpec{FailureDomain: "zone-a"}
	first := w.newMachine("md-0", false, inZone)
	w.eventually(first, "to be replaced", func() bool {
		return first.Spec.SystemID == id && first.Status.FailureReason == infrav1.MAASRefusedReason &&
			strings.Contains(first.Status.FailureMessage, "delete the Machine")
	})
	w.delete(first)

	second := w.newMachine("md-1", false, inZone)
	w.refusedWith(second, infrav1.NoMachineAvailableReason, "metal-a", "was refused when it was to be deployed")
	third := w.deployedMachine("md-2", false, infrav1.MaasMachineSpec{})
	if other := w.named("metal-b"); third.Spec.SystemID != other {
		t.Errorf("it is machine %s, want %s, which is free", third.Spec.SystemID, other)
	}
	w.delete(third)

	t.Run("and deployed where a spec names it", func(t *testing.T) {
		m := w.readMachine(id)
		w.maasCall(http.MethodPost, fmt.Sprintf("nodes/%s/interfaces/%d/?op=link_subnet", id, m.Interfaces[0].ID),
			url.Values{"mode": {"AUTO"}, "subnet": {"cidr:10.77.0.0/24"}})
		named := w.deployedMachine("named", false, infrav1.MaasMachineSpec{SystemID: id})
		if named.Status.FailureReason != "" {
			t.Errorf("it runs, and is a failure: %s", named.Status.FailureMessage)
		}
	})
}

// MAAS accepts each call that would switch a machine of the power type manual, and does nothing.
func TestAPersonIsToldToSwitchAMachineThatMAASCant(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t, func(w *world) { w.version, w.timeScale = "3.6.5", 30 })
	id := w.named("metal-a")
	w.maasCall(http.MethodPut, "machines/"+id+"/", url.Values{"power_type": {"manual"}})
	m := w.newMachine("md-0", false, infrav1.MaasMachineSpec{SystemID: id})
	const words = "MAAS can't switch this machine"
	w.refusedWith(m, infrav1.DeployingReason, words, "a person must")
	w.eventsOf(m, infrav1.SwitchedByHandReason, words, "a person must switch it on")
	w.deployed(m)
	w.delete(m)
	w.eventsOf(m, infrav1.SwitchedByHandReason, words, "a person must switch it off")
	w.eventsOf(m, "Deleted", words, "a person must switch it off")
}
