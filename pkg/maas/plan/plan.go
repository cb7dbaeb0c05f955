// SPDX-License-Identifier: Apache-2.0

// Package plan finds out where machines would go, and whether they fit, before anything is made. It is pure: what it
// knows of hosts and machines is given to it. VMs are placed by the code that places real ones.
package plan

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
)

// Action is what a step does.
type Action string

// The actions. They are part of the output of capmaasctl.
const (
	Create Action = "create"
	Delete Action = "delete"
	Keep   Action = "keep" // the machine stays; the reason says why
)

// Step is one machine that is made or deleted. The JSON names are part of the output of capmaasctl.
type Step struct {
	Number  int    `json:"number"`
	Action  Action `json:"action"`
	Cluster string `json:"cluster"` // namespace/name
	Owner   string `json:"owner"`   // what makes the machine, such as KubeadmControlPlane/name
	Machine string `json:"machine"` // a new one has no name yet: #1 is the first
	// Host is the LXD host, or the bare-metal machine that MAAS would allocate.
	Host string `json:"host,omitempty"`
	Zone string `json:"zone,omitempty"`
	// Fits: the step can be done when its turn has come.
	Fits bool `json:"fits"`
	// Reason is why it can't.
	Reason string `json:"reason,omitempty"`
	// Calls is how many calls to MAAS the step takes at most; 0 if that is not known. See Calls.
	Calls int `json:"calls,omitempty"`
	// Seconds is how long a new machine will take to come up, by what others took; 0 if none did yet.
	Seconds int `json:"seconds,omitempty"`
}

// Calls are how many calls to MAAS a machine takes at most, beside the lists that all machines share and the DNS record
// of the cluster's endpoint. 0 is not known.
type Calls struct{ Create, Delete int }

// On returns those of a VM on a host: they are not known where VMs are made through LXD's own API.
func (c Calls) On(host lxd.Host) Calls {
	if host.IsDirect() {
		return Calls{}
	}
	return c
}

// What a machine takes. A test of the manager counts the calls.
var (
	CallsForVM               = Calls{Create: 5, Delete: 4}
	CallsForVMWithAddress    = Calls{Create: 6, Delete: 4} // with a static address, from the spec or a pool
	CallsForMetal            = Calls{Create: 4, Delete: 2}
	CallsForMetalWithAddress = Calls{Create: 5, Delete: 6} // acquired once more, to take the address off
)

// Source is what machines are made from: a template, as its cluster sees MAAS.
type Source struct {
	// VM is the spec of VMs; nil for bare metal. VM.Cluster names the VMs that it is spread among.
	VM *lxd.VMSpec
	// Hosts are the hosts on which the VMs may be placed.
	Hosts []lxd.Host
	// Refused is why no machine can be made at all, or nil.
	Refused error
	// Constraints choose among Metal, the machines that MAAS can allocate now, or once they are released.
	Constraints maas.AllocateParams
	Metal       []*maas.Machine
	// Storage is the layout that the machines get; nil: they keep what they have.
	Storage *machine.StorageWish
	// Calls are those for one machine, unless it is a VM that is made through LXD's own API.
	Calls Calls
	// Takes is how long a machine takes to come up; 0 if that is not known.
	Takes time.Duration
}

// Machine is one that is there, or that was made before in the simulation.
type Machine struct {
	Name, Cluster, Owner string
	// Zone is where it is.
	Zone string
	// VM is its VM's hostname in MAAS, Host the name of its host and On its key; they are empty for bare metal.
	VM, Host string
	On       lxd.HostKey
	Has      lxd.Footprint
	// SystemID is that of bare metal.
	SystemID string
	// Among names the machines that it is spread among, as VMSpec.Cluster does.
	Among string
	// NoZone: Cluster API chose no zone for it.
	NoZone bool
	// Order is the order of age: the oldest is the first.
	Order int
	// Set is the order of age of its MachineSet, among those of its owner.
	Set    int
	Health Health
	// DeleteCalls is how many calls to MAAS its deletion takes at most; 0 if that is not known.
	DeleteCalls int

	calls Calls
}

// Simulation is what there is while machines are made and deleted one after the other.
type Simulation struct {
	trial    *lxd.Reservations
	machines []Machine
	inUse    map[string]bool // bare metal, by system id
	steps    []Step
	made     int
}

// New returns a simulation that begins with the machines that are there.
func New(machines []Machine) *Simulation {
	s := &Simulation{trial: lxd.NewReservations(), machines: slices.Clone(machines), inUse: map[string]bool{}}
	for _, m := range s.machines {
		s.inUse[m.SystemID] = true
	}
	return s
}

// Steps returns what was done so far.
func (s *Simulation) Steps() []Step { return s.steps }

func (s *Simulation) add(step Step) {
	step.Number = len(s.steps) + 1
	s.steps = append(s.steps, step)
}

// of returns the machines that are there and that an owner makes, the oldest first.
func (s *Simulation) of(cluster, owner string) []Machine {
	of := list.Where(s.machines, func(m Machine) bool { return m.Cluster == cluster && m.Owner == owner })
	slices.SortStableFunc(of, func(a, b Machine) int { return cmp.Compare(a.Order, b.Order) })
	return of
}

// peers are the machines that a VM is spread among.
func (s *Simulation) peers(among string) []lxd.Peer {
	there := list.Where(s.machines, func(m Machine) bool { return m.Among == among && (m.Host != "" || m.Zone != "") })
	return list.Each(there, func(m Machine) lxd.Peer { return lxd.Peer{VM: m.VM, Host: m.Host, Zone: m.Zone} })
}

// attempt makes a machine of a group where it fits. The step is not added if it does not.
func (s *Simulation) attempt(g *Group) (step Step, fits bool) {
	zone := s.zone(g)
	m := s.successor(g, zone)
	step = Step{Action: Create, Cluster: g.Cluster, Owner: g.Owner, Machine: m.Name, Zone: zone}
	if err := s.place(&m, &g.Source, zone); err != nil {
		step.Reason = err.Error()
		return step, false
	}
	step.Fits, step.Zone, step.Host, step.Seconds = true, m.Zone, m.Host, int(g.Source.Takes.Seconds())
	step.Calls, m.DeleteCalls = m.calls.Create, m.calls.Delete
	if m.SystemID != "" {
		step.Host = hostname(&g.Source, m.SystemID)
	}
	s.made++
	s.machines = append(s.machines, m)
	s.add(step)
	return step, true
}

// successor returns the next new machine of a group, which has no place yet, in the zone that Cluster API chooses.
func (s *Simulation) successor(g *Group, zone string) Machine {
	n := s.made + 1
	return Machine{Name: fmt.Sprintf("#%d", n), Cluster: g.Cluster, Owner: g.Owner, Order: newest + n, Among: g.Among,
		NoZone: zone == ""}
}

// domain returns the zone that Cluster API chose for a machine, or "".
func (m *Machine) domain() string {
	if m.NoZone {
		return ""
	}
	return m.Zone
}

// probe returns why the next machine of a group fits nowhere; "" if it does.
func (s *Simulation) probe(g *Group) string {
	zone := s.zone(g)
	m := s.successor(g, zone)
	if err := s.place(&m, &g.Source, zone); err != nil {
		return err.Error()
	}
	s.free(&m)
	return ""
}

// free returns the room of a machine.
func (s *Simulation) free(m *Machine) {
	if m.On != (lxd.HostKey{}) {
		s.trial.Remove(m.VM, m.On, m.Has)
	}
	delete(s.inUse, m.SystemID)
}

// newest is greater than the Order of any machine that was there from the beginning.
const newest = 1 << 30

func hostname(source *Source, systemID string) string {
	at := slices.IndexFunc(source.Metal, func(m *maas.Machine) bool { return m.SystemID == systemID })
	return source.Metal[at].Hostname
}

// errNoMachine is the reason where no bare metal is left.
var errNoMachine = errors.New("MAAS has no machine left that is Ready and fits")

// place finds the place for a machine.
func (s *Simulation) place(m *Machine, source *Source, zone string) error {
	m.calls = source.Calls
	if source.Refused != nil {
		return source.Refused
	}
	if source.VM == nil {
		return s.allocate(m, source, zone)
	}
	spec := *source.VM
	spec.Hostname, spec.Zone = m.Cluster+" "+m.Name, cmp.Or(zone, spec.Zone)
	host, err := s.trial.Place(source.Hosts, spec, s.peers(spec.Cluster))
	if err != nil {
		return err
	}
	m.VM, m.Host, m.On, m.Zone, m.Has = spec.Hostname, host.Name, host.Key(), host.Zone, spec.Footprint()
	m.calls = source.Calls.On(host)
	return nil
}

// allocate takes what MAAS would: of the machines that fit the one with the least sum of cores and GiB of memory.
func (s *Simulation) allocate(m *Machine, source *Source, zone string) error {
	constraints := source.Constraints
	constraints.Zone = cmp.Or(zone, constraints.Zone)
	fit := list.Where(source.Metal, func(m *maas.Machine) bool {
		return !s.inUse[m.SystemID] && machine.Misfit(m, constraints) == "" && source.canStore(m)
	})
	if len(fit) == 0 {
		return errNoMachine
	}
	best := slices.MinFunc(fit, func(a, b *maas.Machine) int {
		return cmp.Or(cmp.Compare(cost(a), cost(b)), cmp.Compare(a.SystemID, b.SystemID))
	})
	s.inUse[best.SystemID] = true
	m.SystemID, m.Zone = best.SystemID, best.Zone.Name
	return nil
}

// canStore reports whether a machine can have the storage layout, as far as is known before MAAS is asked.
func (source *Source) canStore(m *maas.Machine) bool {
	if source.Storage == nil {
		return true
	}
	_, misfit := source.Storage.Plan(m)
	return misfit == ""
}

func cost(m *maas.Machine) float64 { return float64(m.CPUCount) + float64(m.Memory)/1024 }

// remove deletes a machine, whose room is free then.
func (s *Simulation) remove(m Machine) {
	s.machines = slices.DeleteFunc(s.machines, func(other Machine) bool {
		return other.Name == m.Name && other.Cluster == m.Cluster
	})
	s.free(&m)
	s.add(Step{Action: Delete, Cluster: m.Cluster, Owner: m.Owner, Machine: m.Name, Host: m.Host, Zone: m.Zone, Fits: true,
		Calls: m.DeleteCalls})
}

// keep adds that a machine stays. fits: that is as it should be.
func (s *Simulation) keep(m Machine, fits bool, reason string) {
	s.add(Step{Action: Keep, Cluster: m.Cluster, Owner: m.Owner, Machine: m.Name, Host: m.Host, Zone: m.Zone, Fits: fits,
		Reason: reason})
}
