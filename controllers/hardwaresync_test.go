// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/quarantine"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// reportsItself has a machine of one card report itself to MAAS as a control plane with a virtual IP of its own, and with a
// network of pods.
func (w *world) reportsItself(m *infrav1.MaasMachine) {
	w.t.Helper()
	metal := w.metal(m.Spec.SystemID)
	nic := metal.Interfaces[0]
	addresses := append(slices.Clone(nic.Addresses), netip.MustParsePrefix(virtualIP+"/32"))
	err := w.maas.SyncHardware(metal.SystemID, simulator.HardwareReport{
		Networks: []simulator.HostNetwork{
			{Name: nic.Name, Kind: simulator.NetworkPhysical, MAC: nic.MAC, Addresses: addresses},
			{Name: "cni0", Kind: simulator.NetworkBridge, MAC: "aa:00:00:00:00:01", Addresses: []netip.Prefix{netip.MustParsePrefix("10.244.0.1/24")}},
			{Name: "kube-ipvs0", Kind: simulator.NetworkUnknown, MAC: "aa:00:00:00:00:02", Addresses: []netip.Prefix{netip.MustParsePrefix("10.96.0.1/32")}},
		},
	})
	if err != nil {
		w.t.Error(err) // It may be in a hook, in another goroutine.
	}
	if !slices.Contains(w.addressesOf(m), virtualIP) {
		w.t.Errorf("after its report the machine has %v, and not the virtual IP: nothing is tested", w.addressesOf(m))
	}
}

// metalState is what MAAS has of all machines. Subnets that it made of what they reported stay.
func (w *world) metalState() []byte {
	w.t.Helper()
	var state struct {
		Machines []map[string]any `json:"machines"`
	}
	w.must(json.Unmarshal(w.maas.State(), &state))
	text, err := json.MarshalIndent(state.Machines, "", "  ")
	if err != nil {
		w.t.Fatal(err)
	}
	return text
}

// sameMetal checks that MAAS has the machines as they were.
func (w *world) sameMetal(before []byte) {
	w.t.Helper()
	if after := w.metalState(); string(withoutIDs(before)) != string(withoutIDs(after)) {
		w.t.Errorf("the machines are not as they were:\n%s", lineDiff(before, after))
	}
}

// Whatever MAAS made of what ran on a machine: the next one that gets it comes up with its own address alone.
func TestAMachineThatReportedItselfIsGivenBackAsItWas(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]infrav1.MaasMachineSpec{
		"an automatic address": {HardwareSync: true},
		"a static address":     {HardwareSync: true, StaticIP: "10.77.0.50"},
		"a bond":               {HardwareSync: true, Interfaces: bonded},
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := clusterWorld(t)
			before := w.metalState()
			spec.FailureDomain = "zone-a"
			m := w.deployedMachine("first", false, spec)
			if spec.Interfaces == nil {
				w.reportsItself(m)
			}
			w.delete(m)
			w.sameMetal(before)
			next := w.deployedMachine("next", false, infrav1.MaasMachineSpec{SystemID: m.Spec.SystemID})
			if got := w.metal(next.Spec.SystemID).Addresses; len(got) != 1 || got[0].String() == virtualIP || w.inUse(virtualIP) {
				t.Errorf("the next machine comes up with %v", got)
			}
		})
	}
}

// A report may arrive when the release has already begun.
func TestAMachineThatReportsItselfAtTheLastMomentIsExcluded(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t)
	before := w.metalState()
	m := w.deployedMachine("md-0", false, infrav1.MaasMachineSpec{HardwareSync: true})
	reported, tagged := false, false
	w.maas.SetHook(func(call simulator.Call, phase simulator.Phase) error {
		if call.Op == "release" && call.SystemID == m.Spec.SystemID && phase == simulator.Before && !reported {
			reported = true // It is released once more when its network is as before.
			tagged = slices.ContainsFunc(w.metal(m.Spec.SystemID).Tags, func(tag string) bool { return tag == quarantine.ExcludeTag })
			w.reportsItself(m)
		}
		return nil
	})
	w.delete(m)
	if !tagged {
		t.Error("the machine was released without the tag that keeps others from allocating it")
	}
	w.maas.SetHook(nil)
	w.sameMetal(before)
}

// The addresses of pods and services are not the machine's.
func TestTheAddressesOfAMachineThatReportsItselfAreThoseOfItsNetwork(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t)
	m := w.deployedMachine("md-0", false, infrav1.MaasMachineSpec{HardwareSync: true})
	w.reportsItself(m)
	w.eventually(m, "it has what it reported", func() bool { return slices.Contains(w.internal(m), virtualIP) })
	for _, address := range w.internal(m) {
		if strings.HasPrefix(address, "10.244.") || strings.HasPrefix(address, "10.96.") {
			t.Errorf("the machine has the address %s", address)
		}
	}
}

func TestWhatTheSpecShowsToBeImpossibleTakesNoMachine(t *testing.T) {
	t.Parallel()
	small := vm
	small.KernelCrashDump = true
	synced := vm
	synced.HardwareSync = true
	for name, test := range map[string]struct {
		controlPlane bool
		spec         infrav1.MaasMachineSpec
		field        string
	}{
		"hardware sync with a virtual IP":         {true, infrav1.MaasMachineSpec{HardwareSync: true}, "spec.hardwareSync"},
		"hardware sync of a VM with a virtual IP": {true, synced, "spec.hardwareSync"},
		"crash dumps of a small VM":               {false, small, "spec.kernelCrashDump"},
		"crash dumps with too much memory":        {false, infrav1.MaasMachineSpec{KernelCrashDump: true, MinMemory: 2<<20 + 1}, "spec.minMemory"},
		"crash dumps on POWER":                    {false, infrav1.MaasMachineSpec{KernelCrashDump: true, Architecture: "ppc64el"}, "spec.architecture"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.provisionedCluster(at(virtualIP))
			before := w.maas.State()
			m := w.newMachine("m", test.controlPlane, test.spec)
			w.refused(m, infrav1.MachineDeployedCondition, infrav1.SpecImpossibleReason)
			if message := conditions.GetMessage(m, infrav1.MachineDeployedCondition); !strings.Contains(message, test.field) {
				t.Errorf("%q does not name %s", message, test.field)
			}
			w.delete(m)
			w.unchanged(before)
			if n := w.calls("allocate") + w.calls("compose"); n != 0 {
				t.Errorf("%d machines were taken", n)
			}
		})
	}
}

// MAAS deploys a small machine without crash dumps, and does not say so: we do.
func TestAMachineThatGotNoCrashDumpsIsReported(t *testing.T) {
	t.Parallel()
	for name, version := range map[string]string{"too small": "3.6", "an old MAAS": "3.5"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(w *world) {
				w.version, w.region = version, strings.Replace(region, "names: [metal-a], zone: zone-a, cores: 8", "names: [metal-a], zone: zone-a, cores: 3", 1)
			})
			w.provisionedCluster()
			m := w.deployedMachine("md-0", false, infrav1.MaasMachineSpec{KernelCrashDump: true, FailureDomain: "zone-a"})
			w.eventsOf(m, "NoKernelCrashDump", "spec.kernelCrashDump")
		})
	}
	t.Run("large enough", func(t *testing.T) {
		w, _ := clusterWorld(t)
		m := w.deployedMachine("md-0", false, infrav1.MaasMachineSpec{KernelCrashDump: true, FailureDomain: "zone-a"})
		w.await("the end of its deployment is reported", m, func(context.Context) bool { return w.told(m, "Provisioned") })
		if w.told(m, "NoKernelCrashDump") {
			t.Error("a machine that dumps its kernel is said not to")
		}
	})
}

// told reports whether there is an event of a machine.
func (w *world) told(m *infrav1.MaasMachine, reason string) bool {
	w.t.Helper()
	list := &corev1.EventList{}
	w.must(w.client.List(w.t.Context(), list, client.InNamespace(w.namespace)))
	return slices.ContainsFunc(list.Items, func(e corev1.Event) bool { return e.Reason == reason && e.InvolvedObject.Name == m.Name })
}
