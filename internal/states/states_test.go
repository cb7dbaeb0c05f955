// SPDX-License-Identifier: Apache-2.0

package states

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// meaning is the part of an assessment that tests compare.
type meaning struct {
	Reason string
	Then   consequence
	Phase  string
	Lost   bool
}

// maasState is a state of MAAS: its name in objects, and its meaning before the first deployment is done (first) and
// after it (later).
type maasState struct {
	name         string
	first, later meaning
}

var (
	releasedMeaning = meaning{"MachineReleased", Replace, "", true}
	runsMeaning     = meaning{"", Runs, "", false}
	rescueMeaning   = meaning{"RescueMode", Moving, "", false}
	stuckMeaning    = meaning{"RescueModeFailed", Person, "", false}
	deploysMeaning  = meaning{"Deploying", Moving, Deploying, false}
)

// maasStates are all states of MAAS by their numbers.
var maasStates = []maasState{
	{"New", meaning{"Commissioning", Moving, Commissioning, false}, releasedMeaning},
	{"Commissioning", meaning{"Commissioning", Moving, Commissioning, false}, releasedMeaning},
	{"Failed commissioning", meaning{"CommissioningFailed", Replace, "", true}, meaning{"CommissioningFailed", Replace, "", true}},
	{"Missing", meaning{"MachineMissing", Replace, "", false}, meaning{"MachineMissing", Replace, "", false}},
	{"Ready", meaning{"", Deploy, "", false}, releasedMeaning},
	{"Reserved", meaning{"MachineReserved", Person, "", false}, meaning{"MachineReserved", Replace, "", true}},
	{"Deployed", runsMeaning, runsMeaning},
	{"Retired", meaning{"MachineRetired", Replace, "", true}, meaning{"MachineRetired", Replace, "", true}},
	{"Broken", meaning{"MachineBroken", Replace, "", true}, meaning{"MachineBroken", Replace, "", true}},
	{"Deploying", deploysMeaning, deploysMeaning},
	{"Allocated", meaning{"", Deploy, "", false}, releasedMeaning},
	{"Failed deployment", meaning{"DeployFailed", Replace, "", false}, meaning{"DeployFailed", Replace, "", false}},
	{"Releasing", meaning{"Releasing", Moving, "", false}, releasedMeaning},
	{"Releasing failed", meaning{"ReleaseFailed", Replace, "", true}, meaning{"ReleaseFailed", Replace, "", true}},
	{"Disk erasing", meaning{"ErasingDisks", Moving, "", false}, releasedMeaning},
	{"Failed disk erasing", meaning{"EraseFailed", Replace, "", true}, meaning{"EraseFailed", Replace, "", true}},
	{"Rescue mode", meaning{"RescueMode", Person, "", false}, meaning{"RescueMode", Person, "", false}},
	{"Entering rescue mode", rescueMeaning, rescueMeaning},
	{"Failed to enter rescue mode", stuckMeaning, stuckMeaning},
	{"Exiting rescue mode", rescueMeaning, rescueMeaning},
	{"Failed to exit rescue mode", stuckMeaning, stuckMeaning},
	{"Testing", meaning{"Testing", Moving, Commissioning, false}, meaning{"Testing", Moving, "", false}},
	{"Failed testing", meaning{"TestingFailed", Replace, "", false}, meaning{"TestingFailed", Person, "", false}},
}

// wanted returns the expected meaning for a machine, given its lock, its power and its mode.
func (s maasState) wanted(m *maas.Machine, ran, vm bool) meaning {
	want := s.first
	if ran {
		want = s.later
	}
	switch {
	case s.name == "New" && !ran && !vm:
		return meaning{"NotCommissioned", Person, "", false}
	case want.Then == Runs && m.PowerState == maas.PowerOff && m.InMemory:
		return meaning{"PoweredOff", Replace, "", false}
	case want.Then == Runs && m.PowerState == maas.PowerOff:
		return meaning{"PoweredOff", Person, "", false}
	case want.Then == Deploy && m.Locked:
		return meaning{"MachineLocked", Person, "", false}
	}
	return want
}

func TestEachStateOfMAASHasItsReasonAndConsequence(t *testing.T) {
	if len(maasStates) != 23 || len(states) != len(maasStates) {
		t.Fatalf("%d states are handled and %d tested, MAAS has 23", len(states), len(maasStates))
	}
	for number, state := range maasStates {
		for _, power := range []string{maas.PowerOn, maas.PowerOff, "unknown", "error"} {
			for flags := range 16 {
				locked, ran, vm, inMemory := flags&1 != 0, flags&2 != 0, flags&4 != 0, flags&8 != 0
				m := &maas.Machine{Status: maas.Status(number), StatusName: state.name, Locked: locked, PowerState: power, InMemory: inMemory}
				got := Assess(m, ran, vm)
				name := fmt.Sprintf("%s locked=%v power=%s provisioned=%v vm=%v in memory=%v", state.name, locked, power, ran, vm, inMemory)
				if diff := cmp.Diff(state.wanted(m, ran, vm), meaning{got.Reason, got.Then, got.Phase, got.Lost}); diff != "" {
					t.Errorf("%s (-want +got):\n%s", name, diff)
				}
				if ran && got.Then == Deploy {
					t.Errorf("%s: a machine that ran must never be deployed again", name)
				}
				choice := got.Reason == infrav1.TestingFailedReason || got.Reason == infrav1.PoweredOffReason
				if (got.Then == Replace) != strings.Contains(got.Message, "delete the Machine") && !choice {
					t.Errorf("%s: %q does not name the remedy", name, got.Message)
				}
				if got.Then == Replace && strings.Contains(got.Message, "unlock") != locked {
					t.Errorf("%s: %q must mention the lock only if the machine is locked", name, got.Message)
				}
			}
		}
	}
}

func TestUnknownStatesNeedAPerson(t *testing.T) {
	for _, ran := range []bool{false, true} {
		got := Assess(&maas.Machine{Status: 99, StatusName: "Dancing"}, ran, true)
		if got.Reason != infrav1.MachineNotUsableReason || got.Then != Person || !strings.Contains(got.Message, "Dancing") {
			t.Errorf("provisioned=%v: %+v", ran, got)
		}
	}
}

// MAAS can't switch on what it has a device for.
func TestAVMThatIsOffIsStartedOnItsHost(t *testing.T) {
	for device, remedy := range map[bool]string{false: "in MAAS", true: "on its LXD host"} {
		off := &maas.Machine{Status: maas.StatusDeployed, PowerState: maas.PowerOff, Device: device}
		if got := Assess(off, true, true); got.Reason != infrav1.PoweredOffReason || !strings.Contains(got.Message, remedy) {
			t.Errorf("a device: %t: %+v", device, got)
		}
	}
}
