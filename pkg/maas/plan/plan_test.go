// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

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

// health changes what Cluster API knows of machines; which counts from 0.
func health(machines []Machine, which int, change func(*Health)) []Machine {
	change(&machines[which].Health)
	return machines
}

func down(h *Health) { h.Sick, h.Unavailable = true, true }

func marked(h *Health) { h.Marked = true }

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
		"workers that may be fewer, one of which is down already": {
			Group{Replicas: 3, MaxSurge: 1, MaxUnavailable: 1, Source: vms([]lxd.Host{host("a1", "a", 3, 3)})}, health(running("o", "a1", "a1", "a1"), 1, down),
			[]string{"+#1 no"}, false,
		},
		"workers that go first, one of which is down": {
			Group{Replicas: 3, MaxUnavailable: 1, Source: vms([]lxd.Host{host("a1", "a", 3, 3)})}, health(running("o", "a1", "a1", "a1"), 1, down),
			[]string{"-o-1@a1", "+#1@a1", "-o-0@a1", "+#2@a1", "-o-2@a1", "+#3@a1"}, true,
		},
		"all workers are down": {
			Group{Replicas: 1, MaxSurge: 1, Source: vms(full)}, health(running("o", "a1"), 0, down), []string{"+#1 no"}, false,
		},
		"a worker that is marked": {
			Group{Replicas: 2, MaxSurge: 1, Source: vms([]lxd.Host{host("a1", "a", 3, 2)})}, health(running("o", "a1", "a1"), 1, marked),
			[]string{"+#1@a1", "-o-1@a1", "+#2@a1", "-o-0@a1"}, true,
		},
		"a control plane that is marked": {
			Group{ControlPlane: true, Replicas: 3, MaxSurge: 1, FailureDomains: zones, Source: vms(one)}, health(running("o", "a1", "b1", "c1"), 2, marked),
			[]string{"+#1@a1", "-o-2@c1", "+#2@c1", "-o-0@a1", "+#3@a1", "-o-1@b1"}, true,
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

// Of the old machines Cluster API deletes the first by name, however old it is, and those of an older MachineSet before
// those of a newer one. A rollout fits if it does then.
func TestOldWorkersGoByName(t *testing.T) {
	two := func(vm *lxd.VMSpec) { vm.Resources.Cores = 2 }
	for name, tc := range map[string]struct {
		order    DeletionOrder
		change   func(z, a *Machine)
		goesLast bool // o-a, which leaves no room for a new machine
	}{
		"o-z is older":                {Random, func(z, a *Machine) { z.Order, a.Order = 0, 1 }, false},
		"o-a is older":                {Random, func(z, a *Machine) { z.Order, a.Order = 1, 0 }, false},
		"no order":                    {"", func(z, _ *Machine) { z.Health.Age = time.Hour }, false},
		"the oldest":                  {Oldest, func(z, _ *Machine) { z.Health.Age = time.Hour }, true},
		"the newest":                  {Newest, func(_, a *Machine) { a.Health.Age = time.Hour }, true},
		"the oldest, after a year":    {Oldest, func(z, a *Machine) { z.Health.Age, a.Health.Age = 10000*time.Hour, 9500*time.Hour }, false},
		"the newest, after a year":    {Newest, func(z, a *Machine) { z.Health.Age, a.Health.Age = 9500*time.Hour, 10000*time.Hour }, false},
		"one of an older MachineSet":  {Random, func(_, a *Machine) { a.Set = 1 }, true},
		"an old one, and one is sick": {Oldest, func(z, a *Machine) { z.Health.Sick, a.Health.Age = true, 10000*time.Hour }, false},
	} {
		machines := running("o", "b1", "a1")
		z, a := &machines[0], &machines[1]
		z.Name, z.Has.Resources.Cores, a.Name = "o-z", 4, "o-a" // b1 has room for both new machines once o-z is gone.
		tc.change(z, a)
		group := Group{
			Cluster: "c", Owner: "o", Among: "c", Replicas: 2, MaxUnavailable: 1, DeletionOrder: tc.order,
			Source: vms([]lxd.Host{host("a1", "a", 1, 1), host("b1", "b", 4, 4)}, two),
		}
		s := New(machines)
		if fits := s.Roll(&group); fits != tc.goesLast || fits != s.Fits() {
			t.Errorf("%s: it fits: %t, want %t: %v", name, fits, tc.goesLast, short(s))
		}
	}
}

// A group that is to have fewer machines loses those that Cluster API deletes first.
func TestScaleDown(t *testing.T) {
	for name, tc := range map[string]struct {
		group Group
		want  []string
	}{
		"workers":        {Group{Replicas: 1}, []string{"-o-0@a1", "-o-1@b1"}},
		"control planes": {Group{ControlPlane: true, Replicas: 1, FailureDomains: []string{"a", "b"}, Source: vms([]lxd.Host{host("a1", "a", 9, 1), host("b1", "b", 9, 2)})}, []string{"-o-1@b1", "-o-0@a1"}},
		"paused":         {Group{Replicas: 1, Held: "paused"}, []string{"=o-0@a1 no"}},
	} {
		s := New(running("o", "a1", "b1", "b1"))
		tc.group.Cluster, tc.group.Owner = "c", "o"
		if fits := s.Scale(&tc.group); fits != (tc.group.Held == "") || !cmp.Equal(short(s), tc.want) {
			t.Errorf("%s: it fits: %t: %v, want %v", name, fits, short(s), tc.want)
		}
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
