// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
)

// Fits reports whether everything so far could be done.
func (s *Simulation) Fits() bool {
	return !slices.ContainsFunc(s.steps, func(step Step) bool { return !step.Fits })
}

// host is a host with room for a number of VMs of one core, of which some are used.
func host(name, zone string, cores, used int) lxd.Host {
	return lxd.Host{
		ID: int(name[0]), Name: name, Zone: zone, Reachable: true,
		Capacity: lxd.Resources{Cores: cores, Memory: 1 << 20}, Largest: lxd.Resources{Cores: cores, Memory: 1 << 20}, Used: lxd.Resources{Cores: used},
	}
}

func vms(hosts []lxd.Host, change ...func(*lxd.VMSpec)) Source {
	vm := &lxd.VMSpec{Cluster: "c", Resources: lxd.Resources{Cores: 1, Memory: 1}}
	for _, c := range change {
		c(vm)
	}
	return Source{VM: vm, Hosts: hosts}
}

// running are machines on hosts, the oldest first; each host is of the zone that its first letter names.
func running(owner string, on ...string) (machines []Machine) {
	for i, name := range on {
		machines = append(machines, Machine{
			Name: fmt.Sprintf("%s-%d", owner, i), Cluster: "c", Owner: owner, Among: "c", VM: fmt.Sprintf("vm-%s-%d", owner, i), Host: name, Zone: name[:1],
			On: keyOfName(name), Has: lxd.Footprint{Resources: lxd.Resources{Cores: 1, Memory: 1}}, Order: i,
		})
	}
	return machines
}

func keyOfName(name string) lxd.HostKey {
	h := host(name, "", 0, 0)
	return h.Key()
}

// short is a plan in one line for each step: +#1@host is one that is created, -name@host one that is deleted.
func short(s *Simulation) (text []string) {
	signs := map[Action]string{Create: "+", Delete: "-", Keep: "="}
	for _, step := range s.Steps() {
		line := signs[step.Action] + step.Machine
		if step.Host != "" {
			line += "@" + step.Host
		}
		if !step.Fits {
			line += " no"
		}
		text = append(text, line)
	}
	return text
}

func TestRoll(t *testing.T) {
	full := []lxd.Host{host("a1", "a", 1, 1), host("b1", "b", 1, 1), host("c1", "c", 1, 1)}
	one := []lxd.Host{host("a1", "a", 2, 1), host("b1", "b", 1, 1), host("c1", "c", 1, 1)}
	zones := []string{"a", "b", "c"}
	for name, tc := range map[string]struct {
		group   Group
		running []Machine
		want    []string
		fits    bool
	}{
		"control planes, one by one, each in the zone with room": {
			Group{ControlPlane: true, Replicas: 3, MaxSurge: 1, FailureDomains: zones, Source: vms(one)}, running("o", "a1", "b1", "c1"),
			[]string{"+#1@a1", "-o-0@a1", "+#2@a1", "-o-1@b1", "+#3@b1", "-o-2@c1"}, true,
		},
		"control planes without room": {
			Group{ControlPlane: true, Replicas: 3, MaxSurge: 1, FailureDomains: zones, Source: vms(full)}, running("o", "a1", "b1", "c1"),
			[]string{"+#1 no"}, false,
		},
		"control planes without room in zones, with room beside them": {
			Group{ControlPlane: true, Replicas: 1, MaxSurge: 1, FailureDomains: zones[1:], Source: vms(one)}, running("o", "b1"),
			[]string{"+#1@a1", "-o-0@b1"}, true,
		},
		"control planes without room in the only zones": {
			Group{ControlPlane: true, Replicas: 1, MaxSurge: 1, FailureDomains: zones[1:], Only: true, Source: vms(one)}, running("o", "b1"),
			[]string{"+#1 no"}, false,
		},
		"control planes that go first": {
			Group{ControlPlane: true, Replicas: 3, MaxSurge: 0, FailureDomains: zones, Source: vms(full)}, running("o", "a1", "b1", "c1"),
			[]string{"-o-0@a1", "+#1@a1", "-o-1@b1", "+#2@b1", "-o-2@c1", "+#3@c1"}, true,
		},
		"a zone with two control planes loses one first": {
			Group{ControlPlane: true, Replicas: 3, MaxSurge: 1, FailureDomains: zones, Source: vms([]lxd.Host{host("a1", "a", 9, 1), host("b1", "b", 9, 2)})},
			running("o", "a1", "b1", "b1"), []string{"+#1@a1", "-o-1@b1", "+#2@b1", "-o-0@a1", "+#3@a1", "-o-2@b1"}, true,
		},
		"workers, two more at a time": {
			Group{Replicas: 2, MaxSurge: 2, Source: vms([]lxd.Host{host("a1", "a", 4, 2)})}, running("o", "a1", "a1"),
			[]string{"+#1@a1", "+#2@a1", "-o-0@a1", "-o-1@a1"}, true,
		},
		"workers that may be fewer make room": {
			Group{Replicas: 2, MaxSurge: 1, MaxUnavailable: 1, Source: vms([]lxd.Host{host("a1", "a", 2, 2)})}, running("o", "a1", "a1"),
			[]string{"-o-0@a1", "+#1@a1", "-o-1@a1", "+#2@a1"}, true,
		},
		"workers without room": {
			Group{Replicas: 2, MaxSurge: 1, Source: vms([]lxd.Host{host("a1", "a", 2, 2)})}, running("o", "a1", "a1"), []string{"+#1 no"}, false,
		},
		"nothing may change": {
			Group{Replicas: 1, Source: vms(one)}, running("o", "a1"), []string{"=o-0@a1 no"}, false,
		},
		"only when somebody deletes them": {
			Group{Replicas: 1, MaxSurge: 1, OnDelete: true, Source: vms(one)}, running("o", "a1"), []string{"=o-0@a1"}, true,
		},
		"paused": {
			Group{Replicas: 1, MaxSurge: 1, Held: "paused", Source: vms(one)}, running("o", "a1"), []string{"=o-0@a1 no"}, false,
		},
		"machines that are missing": {
			Group{Replicas: 2, MaxSurge: 1, Source: vms(one)}, nil, []string{"+#1@a1", "+#2 no"}, false,
		},
		"no host may be used": {
			Group{Replicas: 1, MaxSurge: 1, Source: Source{VM: &lxd.VMSpec{}, Refused: errNoMachine}}, nil, []string{"+#1 no"}, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(tc.running)
			tc.group.Cluster, tc.group.Owner, tc.group.Among = "c", "o", "c"
			if got := s.Roll(&tc.group); got != tc.fits || s.Fits() != tc.fits {
				t.Errorf("it comes to its end: %t, and fits: %t, want %t", got, s.Fits(), tc.fits)
			}
			if diff := cmp.Diff(tc.want, short(s)); diff != "" {
				t.Errorf("the plan differs (-want +got):\n%s", diff)
			}
			for _, step := range s.Steps() {
				if !step.Fits && step.Reason == "" {
					t.Errorf("there is no reason in %+v", step)
				}
			}
		})
	}
}

func TestDrain(t *testing.T) {
	hosts := []lxd.Host{host("a1", "a", 4, 2), host("b1", "b", 4, 0)}
	hosts[0].Object = &lxd.HostObject{Unschedulable: true, Allows: func(string) bool { return true }}
	leaves := func(m Machine) bool { return m.Host == "a1" }
	for name, tc := range map[string]struct {
		group   Group
		running []Machine
		want    []string
	}{
		"a worker has a successor first":     {Group{Replicas: 2, Source: vms(hosts)}, running("o", "a1", "b1"), []string{"+#1@b1", "-o-0@a1"}},
		"of three control planes one leaves": {Group{ControlPlane: true, Replicas: 3, Source: vms(hosts)}, running("o", "b1", "a1", "b1"), []string{"-o-1@a1", "+#1@b1"}},
		"the only control plane stays until there is another": {
			Group{ControlPlane: true, Replicas: 1, Source: vms(hosts)}, running("o", "a1"), []string{"+#1@b1", "-o-0@a1"},
		},
		"a control plane that fits nowhere else": {
			Group{ControlPlane: true, Replicas: 3, Source: vms(hosts, func(vm *lxd.VMSpec) { vm.HostName = "a1" })}, running("o", "a1", "b1", "b1"), []string{"=o-0@a1 no"},
		},
		"a worker that fits nowhere else": {
			Group{Replicas: 1, Source: vms(hosts, func(vm *lxd.VMSpec) { vm.AntiAffinity = lxd.RequireApart })}, running("o", "a1", "b1"), []string{"+#1 no"},
		},
		"held": {Group{Replicas: 1, Held: "paused", Source: vms(hosts)}, running("o", "a1"), []string{"=o-0@a1 no"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(tc.running)
			tc.group.Cluster, tc.group.Owner, tc.group.Among = "c", "o", "c"
			ok := s.Drain(&tc.group, leaves)
			if diff := cmp.Diff(tc.want, short(s)); diff != "" {
				t.Errorf("the plan differs (-want +got):\n%s", diff)
			}
			if refused := strings.Contains(strings.Join(tc.want, " "), "no"); ok == refused || s.Fits() == refused {
				t.Errorf("the host is emptied: %t, and it fits: %t", ok, s.Fits())
			}
		})
	}
}

func TestBareMetalIsTakenAsMAASDoes(t *testing.T) {
	metal := func(name, zone string, cores, memory int) *maas.Machine {
		return &maas.Machine{SystemID: name, Hostname: name, Zone: maas.Ref{Name: zone}, CPUCount: cores, Memory: memory}
	}
	pool := []*maas.Machine{metal("large", "a", 64, 1024), metal("small", "a", 4, 8192), metal("middle", "a", 4, 16384), metal("ours", "b", 4, 1024)}
	source := Source{Metal: pool, Constraints: maas.AllocateParams{MinCPU: 4}}
	s := New([]Machine{{Name: "old", Cluster: "c", Owner: "o", Zone: "b", SystemID: "ours"}})
	s.Roll(&Group{Cluster: "c", Owner: "o", Replicas: 4, MaxSurge: 1, Source: source})
	if diff := cmp.Diff([]string{"+#1@small", "+#2@middle", "+#3@large", "+#4 no"}, short(s)); diff != "" {
		t.Errorf("the plan differs (-want +got):\n%s", diff)
	}
	s = New([]Machine{{Name: "old", Cluster: "c", Owner: "o", Zone: "b", SystemID: "ours"}})
	s.Roll(&Group{Cluster: "c", Owner: "o", Replicas: 4, MaxUnavailable: 4, Source: source})
	if diff := cmp.Diff([]string{"+#1@small", "+#2@middle", "+#3@large", "-old", "+#4@ours"}, short(s)); diff != "" || !s.Fits() {
		t.Errorf("the plan differs (-want +got):\n%s", diff)
	}
}

// Machines whose disks can't have the storage layout are passed over.
func TestBareMetalHasTheDisks(t *testing.T) {
	metal := func(name string, tags ...string) *maas.Machine {
		disk := &maas.Disk{Name: "sda", Tags: tags}
		return &maas.Machine{SystemID: name, Hostname: name, BootDisk: disk, Disks: []*maas.Disk{disk}}
	}
	source := Source{
		Metal:   []*maas.Machine{metal("a-sata", "sata"), metal("b-nvme", "nvme"), {SystemID: "c-diskless"}},
		Storage: &machine.StorageWish{Layout: "flat", RootDisk: &machine.DiskWish{Tags: []string{"nvme"}}},
	}
	s := New(nil)
	s.Roll(&Group{Cluster: "c", Owner: "o", Replicas: 2, MaxSurge: 1, Source: source})
	if diff := cmp.Diff([]string{"+#1@b-nvme", "+#2 no"}, short(s)); diff != "" {
		t.Errorf("the plan differs (-want +got):\n%s", diff)
	}
}
