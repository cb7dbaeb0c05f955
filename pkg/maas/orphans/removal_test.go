// SPDX-License-Identifier: Apache-2.0

package orphans

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/ownership"
)

func judged(t *testing.T, m *maas.Machine) Finding {
	t.Helper()
	f, not := NewClaims(here, "", []Cluster{alive, frozen}, nil).Judge(m)
	if not != "" {
		t.Fatalf("it is no orphan: %s", not)
	}
	return f
}

// Each kind of orphan is removed another way. The first command shows it as long as it is ours.
func TestHowAnOrphanIsRemoved(t *testing.T) {
	name := maas.Hostname("a", "owner1")
	unhosted := func(m *maas.Machine) { m.Pod, m.PowerType = nil, maas.PowerTypeLXD }
	acquired := []func(*maas.Machine){
		annotate(ownership.AnnotationOwner, "owner1"), annotate(ownership.AnnotationMachine, "ns.a"), inState(maas.StatusDeployed), ownedBy("capi"),
	}
	locked := func(m *maas.Machine) { m.Locked = true }
	for what, tc := range map[string]struct {
		machine *maas.Machine
		want    []string
	}{
		"bare metal": {metal("owner1", "a"), []string{
			"maas $PROFILE machines read id=id-a agent_name=capmaas/owner1/a", "maas $PROFILE machine release id-a",
		}},
		"a VM": {vm("owner1", "a", acquired...), []string{
			"maas $PROFILE machines read id=id-a agent_name=capmaas/owner1/a", "maas $PROFILE machine delete id-a",
			"maas $PROFILE vm-host refresh 1", "maas $PROFILE machines read hostname=" + name,
		}},
		"a VM that nobody acquired": {vm("owner1", "a"), []string{
			"maas $PROFILE machines read id=id-a hostname=" + name, "maas $PROFILE machine delete id-a",
			"maas $PROFILE vm-host refresh 1", "maas $PROFILE machines read hostname=" + name,
		}},
		"a VM without a VM host": {vm("owner1", "a", unhosted), []string{
			"maas $PROFILE machines read id=id-a hostname=" + name, "maas $PROFILE machine power-parameters id-a",
			"lxc delete --force $REMOTE:" + name + " --project=$PROJECT", "maas $PROFILE machine delete id-a",
		}},
		"a device": {device("owner1", "a", "owner1"), []string{
			"maas $PROFILE devices read id=id-a hostname=" + name, "lxc config show $REMOTE:" + name + " --project=$PROJECT",
			"lxc delete --force $REMOTE:" + name + " --project=$PROJECT", "maas $PROFILE device delete id-a",
		}},
		"one that is locked":     {metal("owner1", "a", locked), nil},
		"one that is in doubt":   {metal("owner1", "a", annotate(ownership.AnnotationManagement, elsewhere)), nil},
		"one of no cluster here": {metal("gone", "a"), nil},
	} {
		t.Run(what, func(t *testing.T) {
			f := judged(t, tc.machine)
			if diff := cmp.Diff(tc.want, f.Removal()); diff != "" {
				t.Errorf("the commands differ (-want +got):\n%s", diff)
			}
			if len(f.Hints()) == 0 && f.Doubt == "" {
				t.Error("it says nothing of what a person has to know")
			}
		})
	}
}

func TestTheHintsNameWhatARestoreTakes(t *testing.T) {
	m := metal("owner1", "a")
	m.Interfaces = []*maas.Interface{{Links: []maas.Link{{Mode: maas.LinkModeStatic, IPAddress: "10.77.0.50"}, {Mode: maas.LinkModeAuto, IPAddress: "10.77.0.51"}}}}
	f := judged(t, m)
	hints := strings.Join(f.Hints(), "\n")
	for word, want := range map[string]bool{"10.77.0.50": true, "10.77.0.51": false, "capmaas-excluded-id-a": true} {
		if strings.Contains(hints, word) != want {
			t.Errorf("the hints name %s: %t, want %t:\n%s", word, !want, want, hints)
		}
	}
	unlocked := len(f.Hints())
	if m.Locked = true; len(f.Hints()) != unlocked+1 {
		t.Errorf("nothing says that a locked machine is to be unlocked first: %v", f.Hints())
	}
}

// Whoever holds a machine in MAAS writes its annotations, and a person pastes the commands into a shell.
func TestNoWordOfACommandIsCode(t *testing.T) {
	for _, word := range []string{"a", "", "a b", "$(exit 7)", "`exit 7`", "a'; exit 7; '", "a\nexit 7", `\`, "*", "~", "#"} {
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf %s "+quoted(word)).Output()
		if err != nil || string(out) != word {
			t.Errorf("a shell reads %q of %q: %v", out, quoted(word), err)
		}
	}
	f := judged(t, metal("owner1", "a", annotate(ownership.AnnotationMachine, "ns.a; reboot")))
	if want := "agent_name='capmaas/owner1/a; reboot'"; !strings.HasSuffix(f.Removal()[0], want) {
		t.Errorf("the command is %s, want it with %s", f.Removal()[0], want)
	}
}
