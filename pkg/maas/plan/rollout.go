// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"slices"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
)

// Group are the machines that one control plane, or one MachineDeployment, makes.
type Group struct {
	Cluster, Owner string
	ControlPlane   bool
	// Among names the machines that these are spread among, as VMSpec.Cluster does.
	Among    string
	Replicas int
	// MaxSurge is how many machines more there may be during a rollout, MaxUnavailable how many fewer.
	MaxSurge, MaxUnavailable int
	// Source is what new machines are made from.
	Source Source
	// FailureDomains are the zones that Cluster API chooses from for control planes. Only: there where none has room, too.
	FailureDomains []string
	Only           bool
	// Zone is where all the machines go; "" is anywhere, or by FailureDomains.
	Zone string
	// DeletionOrder is which workers go first.
	DeletionOrder DeletionOrder
	// OnDelete: machines are replaced only when a person deletes them.
	OnDelete bool
	// Held is why nothing is done with the machines, such as that the cluster is paused; "" if there is no reason.
	Held string
}

// Scale makes the machines that a group lacks, and reports whether they fit. Of several that don't, the first is a
// step. Machines that are too many are deleted.
func (s *Simulation) Scale(g *Group) bool {
	for {
		there := s.of(g.Cluster, g.Owner)
		switch {
		case len(there) == g.Replicas:
			return true
		case len(there) > g.Replicas && g.Held != "":
			s.keep(there[0], false, g.Held)
			return false
		case len(there) > g.Replicas:
			s.remove(s.surplus(g, there))
			continue
		}
		if step, fits := s.attempt(g); !fits {
			s.add(step)
			return false
		}
	}
}

// surplus returns which machine of a group that has too many goes first.
func (s *Simulation) surplus(g *Group, of []Machine) Machine {
	if g.ControlPlane {
		return nextControlPlane(of, of, s.able(g))
	}
	sortWorkers(of, g.DeletionOrder)
	return of[0]
}

const (
	onDelete = "its strategy is OnDelete: it is replaced when its Machine is deleted"
	noLeeway = "neither maxSurge nor maxUnavailable lets it be replaced"
)

// Roll replaces all machines of a group as Cluster API does, and reports whether that comes to its end. A group that
// lacks machines gets them.
func (s *Simulation) Roll(g *Group) bool {
	old := s.of(g.Cluster, g.Owner)
	if g.OnDelete || g.Held != "" {
		for _, m := range old {
			s.keep(m, g.Held == "", cmp.Or(g.Held, onDelete))
		}
		return g.Held == ""
	}
	made := 0
	var refused *Step // The machine that there is no room for, until another one goes.
	for len(old) > 0 || made < g.Replicas {
		if refused == nil && made < g.Replicas && len(old)+made < g.Replicas+g.MaxSurge {
			if step, fits := s.attempt(g); fits {
				made++
			} else {
				refused = &step
			}
			continue
		}
		goes, may := s.next(g, old, made, refused != nil)
		if !may {
			if refused == nil {
				s.keep(old[0], false, noLeeway)
			} else {
				s.add(*refused)
			}
			return false
		}
		s.remove(goes)
		old, refused = list.Where(old, func(m Machine) bool { return m.Name != goes.Name }), nil
	}
	return true
}

// next returns which of the old machines is deleted now; false if none may be. A control plane deletes none while it
// waits for a new one.
func (s *Simulation) next(g *Group, old []Machine, made int, waits bool) (goes Machine, ok bool) {
	switch {
	case len(old) == 0, g.ControlPlane && waits:
		return goes, false
	case g.ControlPlane:
		return nextControlPlane(old, s.of(g.Cluster, g.Owner), s.able(g)), true
	}
	return g.Next(old, made, waits)
}

// zone returns where the next machine of a group goes: a control plane to the zone with the fewest new ones, then with
// the fewest at all. Cluster API takes any of those that are equal, and this the first by name.
func (s *Simulation) zone(g *Group) string {
	able := s.able(g)
	if g.Zone != "" || !g.ControlPlane || len(able) == 0 {
		return g.Zone
	}
	fresh, all := map[string]int{}, map[string]int{}
	for _, m := range s.of(g.Cluster, g.Owner) {
		all[m.domain()]++
		if m.Order > newest {
			fresh[m.domain()]++
		}
	}
	return slices.MinFunc(able, func(a, b string) int {
		return cmp.Or(cmp.Compare(fresh[a], fresh[b]), cmp.Compare(all[a], all[b]), cmp.Compare(a, b))
	})
}

// able returns the failure domains that Cluster API takes for those that can take a machine of the group.
func (s *Simulation) able(g *Group) []string {
	fits := func(zone string) bool {
		return slices.ContainsFunc(g.Source.Metal, func(m *maas.Machine) bool {
			return m.Zone.Name == zone && machine.Misfit(m, g.Source.Constraints) == ""
		})
	}
	if g.Source.VM != nil {
		room := s.trial.Room(g.Source.Hosts, *g.Source.VM, s.peers(g.Source.VM.Cluster))
		fits = func(zone string) bool { return room[zone].VMs > 0 }
	}
	if g.Only && !slices.ContainsFunc(g.FailureDomains, fits) {
		return g.FailureDomains
	}
	return list.Where(g.FailureDomains, fits)
}

// Drain replaces the machines of a group that are on a host, which takes no VMs any more. A control plane is deleted
// before its successor is made, unless it is the only one: Cluster API makes none while one is being deleted. The
// successor of a worker is made while it is drained.
func (s *Simulation) Drain(g *Group, leaves func(Machine) bool) (ok bool) {
	ok = true
	for _, m := range s.of(g.Cluster, g.Owner) {
		if !leaves(m) {
			continue
		}
		if g.Held != "" {
			s.keep(m, false, g.Held)
			ok = false
			continue
		}
		ok = s.replace(g, m) && ok
	}
	return ok
}

func (s *Simulation) replace(g *Group, m Machine) bool {
	before := g.ControlPlane && g.Replicas > 1
	if reason := s.probe(g); before && reason != "" {
		s.keep(m, false, reason)
		return false
	}
	if before {
		s.remove(m)
	}
	if step, fits := s.attempt(g); !fits {
		s.add(step)
		return false
	}
	if !before {
		s.remove(m)
	}
	return true
}
