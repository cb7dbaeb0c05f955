// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
)

// DeletionOrder is which machines of a MachineDeployment Cluster API deletes first, as in its spec.deletion.order.
type DeletionOrder string

// The orders. Random is by name: it is the default, and so is what is none of these.
const (
	Random DeletionOrder = "Random"
	Oldest DeletionOrder = "Oldest"
	Newest DeletionOrder = "Newest"
)

// Health is what Cluster API deletes machines by. The zero value is a machine that is well, and just made.
type Health struct {
	// Deleting: it is being deleted. Marked: it has the annotation delete-machine, with any value. Updating: it is
	// updated in place.
	Deleting, Marked, Updating bool
	// Sick: it has no Node, or its Node or its health check fails; of a control plane, one of its components does.
	Sick bool
	// Unavailable: it does not count as one of those that there must be during a rollout.
	Unavailable bool
	Age         time.Duration
}

// What machines weigh for Cluster API: the heaviest goes first, and of several the first by name. Those that are well
// weigh less than sickWeight by their age, which counts less and less: beyond about a year the name alone decides.
const (
	deletingWeight = 100.0
	markedWeight   = 80.0
	updatingWeight = 75.0
	sickWeight     = 50.0
	wellWeight     = 20.0

	agePart = 10 * 24 * time.Hour // in which the difference to sickWeight shrinks to a part of 1/e
)

func (h Health) weight(order DeletionOrder) float64 {
	aged := sickWeight * (1 - math.Exp(-max(h.Age, 0).Seconds()/agePart.Seconds()))
	switch {
	case h.Deleting:
		return deletingWeight
	case h.Marked:
		return markedWeight
	case h.Updating:
		return updatingWeight
	case h.Sick:
		return sickWeight
	case order == Oldest:
		return aged
	case order == Newest:
		return sickWeight - aged
	}
	return wellWeight
}

// sortWorkers sorts machines of a MachineDeployment: the first is the one that Cluster API deletes first. The machines
// of an older MachineSet go before those of a newer one.
func sortWorkers(machines []Machine, order DeletionOrder) {
	slices.SortFunc(machines, func(a, b Machine) int {
		return cmp.Or(cmp.Compare(a.Set, b.Set), cmp.Compare(b.Health.weight(order), a.Health.weight(order)),
			cmp.Compare(a.Name, b.Name))
	})
}

// Next returns which of the old machines of a MachineDeployment goes next; false if none may. made are those that
// replace them and are available, and waits reports whether there is one that is not.
func (g *Group) Next(old []Machine, made int, waits bool) (goes Machine, ok bool) {
	isDown := func(m Machine) bool { return m.Health.Unavailable }
	least := max(g.Replicas-g.MaxUnavailable, 0)
	spare := len(old) + made - len(list.Where(old, isDown)) - least
	sortWorkers(old, g.DeletionOrder)
	sets := bySet(old)
	for _, downOnly := range []bool{true, false} { // A MachineSet with a machine that is not available comes first.
		for _, set := range sets {
			down := len(list.Where(set, isDown))
			mayGo := len(old)+made > least && (spare > 0 || down == len(set))
			if mayGo && (down > 0 || !downOnly) {
				return set[0], true
			}
		}
	}
	for _, set := range sets { // Nothing else goes on: Cluster API lets one go where one is not available.
		if !waits && slices.ContainsFunc(set, isDown) {
			return set[0], true
		}
	}
	return goes, false
}

// bySet returns sorted machines, those of each MachineSet.
func bySet(sorted []Machine) (sets [][]Machine) {
	for i, m := range sorted {
		if i == 0 || sorted[i-1].Set != m.Set {
			sets = append(sets, nil)
		}
		sets[len(sets)-1] = append(sets[len(sets)-1], m)
	}
	return sets
}

// nextControlPlane returns which of the machines of a control plane goes next: of those that are marked, else of those
// that are sick, else of all, one that is in no zone that takes control planes, else one of the zone with the most of
// them, then with the most machines at all; of several the oldest. Cluster API takes any of those zones that are equal,
// and this the first by name.
func nextControlPlane(of, all []Machine, zones []string) Machine {
	for _, comesFirst := range []func(Machine) bool{
		func(m Machine) bool { return m.Health.Marked },
		func(m Machine) bool { return m.Health.Sick },
	} {
		if some := list.Where(of, comesFirst); len(some) > 0 {
			of = some
			break
		}
	}
	oldest := func(zone string) Machine {
		return slices.MinFunc(list.Where(of, func(m Machine) bool { return m.domain() == zone }), byAge)
	}
	outside := list.Where(of, func(m Machine) bool { return !slices.Contains(zones, m.domain()) })
	if len(outside) > 0 {
		first := slices.MinFunc(outside, byAge)
		return oldest(first.domain())
	}
	count := func(machines []Machine, zone string) int {
		return len(list.Where(machines, func(m Machine) bool { return m.domain() == zone }))
	}
	return oldest(slices.MaxFunc(zones, func(a, b string) int {
		return cmp.Or(count(of, a)-count(of, b), count(all, a)-count(all, b), cmp.Compare(b, a))
	}))
}

func byAge(a, b Machine) int {
	return cmp.Or(cmp.Compare(a.Order, b.Order), cmp.Compare(a.Name, b.Name))
}
