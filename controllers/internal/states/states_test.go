// SPDX-License-Identifier: Apache-2.0

package states

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// said is what a test compares of a assessment.
type said struct {
	Reason string
	Then   consequence
	Phase  string
	Lost   bool
}

// maasState is a state of MAAS: its name in objects, and what is said of it on the way to the first deployment and
// after it.
type maasState struct {
	name         string
	first, later said
}

var (
	saidReleased = said{"MachineReleased", Replace, "", true}
	saidRuns     = said{"", Runs, "", false}
	saidRescue   = said{"RescueMode", Moving, "", false}
	saidStuck    = said{"RescueModeFailed", Person, "", false}
	saidDeploys  = said{"Deploying", Moving, Deploying, false}
)

// maasStates are all states of MAAS by their numbers.
var maasStates = []maasState{
	{"New", said{"Commissioning", Moving, Commissioning, false}, saidReleased},
	{"Commissioning", said{"Commissioning", Moving, Commissioning, false}, saidReleased},
	{"Failed commissioning", said{"CommissioningFailed", Replace, "", true}, said{"CommissioningFailed", Replace, "", true}},
	{"Missing", said{"MachineMissing", Replace, "", false}, said{"MachineMissing", Replace, "", false}},
	{"Ready", said{"", Deploy, "", false}, saidReleased},
	{"Reserved", said{"MachineReserved", Person, "", false}, said{"MachineReserved", Replace, "", true}},
	{"Deployed", saidRuns, saidRuns},
	{"Retired", said{"MachineRetired", Replace, "", true}, said{"MachineRetired", Replace, "", true}},
	{"Broken", said{"MachineBroken", Replace, "", true}, said{"MachineBroken", Replace, "", true}},
	{"Deploying", saidDeploys, saidDeploys},
	{"Allocated", said{"", Deploy, "", false}, saidReleased},
	{"Failed deployment", said{"DeployFailed", Replace, "", false}, said{"DeployFailed", Replace, "", false}},
	{"Releasing", said{"Releasing", Moving, "", false}, saidReleased},
	{"Releasing failed", said{"ReleaseFailed", Replace, "", true}, said{"ReleaseFailed", Replace, "", true}},
	{"Disk erasing", said{"ErasingDisks", Moving, "", false}, saidReleased},
	{"Failed disk erasing", said{"EraseFailed", Replace, "", true}, said{"EraseFailed", Replace, "", true}},
	{"Rescue mode", said{"RescueMode", Person, "", false}, said{"RescueMode", Person, "", false}},
	{"Entering rescue mode", saidRescue, saidRescue},
	{"Failed to enter rescue mode", saidStuck, saidStuck},
	{"Exiting rescue mode", saidRescue, saidRescue},
	{"Failed to exit rescue mode", saidStuck, saidStuck},
	{"Testing", said{"Testing", Moving, Commissioning, false}, said{"Testing", Moving, "", false}},
	{"Failed testing", said{"TestingFailed", Replace, "", false}, said{"TestingFailed", Person, "", false}},
}

// wanted is what is said of a machine, with what its lock, its power and its mode change about it.
func (s maasState) wanted(m *maas.Machine, ran, vm bool) said {
	want := s.first
	if ran {
		want = s.later
	}
	switch {
	case s.name == "New" && !ran && !vm:
		return said{"NotCommissioned", Person, "", false}
	case want.Then == Runs && m.PowerState == maas.PowerOff:
		return said{"PoweredOff", Person, "", false}
	case want.Then == Deploy && m.Locked:
		return said{"MachineLocked", Person, "", false}
	}
	return want
}

func TestEachStateOfMAASHasItsReasonAndConsequence(t *testing.T) {
	if len(maasStates) != 23 || len(states) != len(maasStates) {
		t.Fatalf("%d states are handled and %d tested, MAAS has 23", len(states), len(maasStates))
	}
	for number, state := range maasStates {
		for _, power := range []string{maas.PowerOn, maas.PowerOff, "unknown", "error"} {
			for flags := range 8 {
				locked, ran, vm := flags&1 != 0, flags&2 != 0, flags&4 != 0
				m := &maas.Machine{Status: maas.Status(number), StatusName: state.name, Locked: locked, PowerState: power}
				got := Assess(m, ran, vm)
				name := fmt.Sprintf("%s locked=%v power=%s provisioned=%v vm=%v", state.name, locked, power, ran, vm)
				if diff := cmp.Diff(state.wanted(m, ran, vm), said{got.Reason, got.Then, got.Phase, got.Lost}); diff != "" {
					t.Errorf("%s (-want +got):\n%s", name, diff)
				}
				if ran && got.Then == Deploy {
					t.Errorf("%s: what ran must never be deployed again", name)
				}
				if (got.Then == Replace) != strings.Contains(got.Says, "delete the Machine") && got.Reason != infrav1.TestingFailedReason {
					t.Errorf("%s: %q does not say the remedy", name, got.Says)
				}
				if got.Then == Replace && strings.Contains(got.Says, "unlock") != locked {
					t.Errorf("%s: %q is not about the lock", name, got.Says)
				}
			}
		}
	}
}

func TestAStateThatIsNotKnownIsForAPerson(t *testing.T) {
	for _, ran := range []bool{false, true} {
		got := Assess(&maas.Machine{Status: 99, StatusName: "Dancing"}, ran, true)
		if got.Reason != infrav1.MachineNotUsableReason || got.Then != Person || !strings.Contains(got.Says, "Dancing") {
			t.Errorf("provisioned=%v: %+v", ran, got)
		}
	}
}

func TestDocsNameEachStateWithItsReasons(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "machine-states.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for line := range strings.Lines(string(content)) {
		if cells := strings.SplitN(line, "|", 3); len(cells) == 3 {
			rows[strings.TrimSpace(cells[1])] = line
		}
	}
	for _, state := range maasStates {
		for _, reason := range []string{state.first.Reason, state.later.Reason} {
			if !strings.Contains(rows[state.name], "`"+reason+"`") && reason != "" {
				t.Errorf("docs/machine-states.md does not give %s the reason %s: %q", state.name, reason, rows[state.name])
			}
		}
		if rows[state.name] == "" {
			t.Errorf("docs/machine-states.md lacks %s", state.name)
		}
	}
}
