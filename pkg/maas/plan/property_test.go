// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
)

// fleets are how many random fleets the plan is compared with what happens. A failure names the seed of its fleet.
const fleets = 500

func chance(r *rand.Rand, n int) bool { return r.IntN(n) == 0 }

func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

// randomHosts returns hosts of any size, some of which take no VMs.
func randomHosts(r *rand.Rand) []lxd.Host {
	hosts := make([]lxd.Host, 2+r.IntN(10))
	for i := range hosts {
		cores, memory, disk := 2+r.IntN(24), 2048*(1+r.IntN(24)), 40+r.IntN(400)
		ratio := pick(r, 1, 1, 1, 2)
		hosts[i] = lxd.Host{
			ID: i + 1, Name: fmt.Sprintf("h%02d", i), Zone: fmt.Sprint("z", r.IntN(3)), Pool: pick(r, "default", "default", "default", "other"), Reachable: !chance(r, 12),
			Largest:      lxd.Resources{Cores: cores, Memory: memory, Disk: disk},
			Capacity:     lxd.Resources{Cores: cores * ratio, Memory: memory * ratio, Disk: disk},
			StoragePools: []lxd.StoragePool{{Name: "default", Available: disk, Default: true}},
			Object:       &lxd.HostObject{Name: fmt.Sprint("h", i), Unschedulable: chance(r, 12), Allows: func(string) bool { return true }},
		}
		if chance(r, 12) {
			hosts[i].Tags = []string{lxd.RetiringTag}
		}
	}
	return hosts
}

// region is a MAAS of which only VM hosts matter. What is made or deleted shows in the hosts' figures when they are read.
type region struct {
	shown, truth []lxd.Host
}

func copyHosts(hosts []lxd.Host) []lxd.Host {
	hosts = slices.Clone(hosts)
	for i := range hosts {
		hosts[i].StoragePools = slices.Clone(hosts[i].StoragePools)
	}
	return hosts
}

// count adds a VM to a host, or takes it away with times -1.
func (f *region) count(host string, vm lxd.Resources, times int) {
	at := slices.IndexFunc(f.truth, func(h lxd.Host) bool { return h.Name == host })
	h := &f.truth[at]
	h.Used = lxd.Resources{Cores: h.Used.Cores + times*vm.Cores, Memory: h.Used.Memory + times*vm.Memory, Disk: h.Used.Disk + times*vm.Disk}
	h.StoragePools[0].Available -= times * vm.Disk
}

func (f *region) read() {
	f.shown = copyHosts(f.truth)
	for i := range f.shown {
		f.shown[i].SeenAt = time.Now()
	}
}

func (f *region) Hosts(context.Context, lxd.VMSpec, time.Duration) ([]lxd.Host, error) {
	return copyHosts(f.shown), nil
}

func (f *region) Compose(_ context.Context, _ maas.Permit, host lxd.Host, spec lxd.VMSpec) (lxd.VM, error) {
	f.count(host.Name, spec.Resources, 1)
	return lxd.VM{Hostname: spec.Hostname, Host: host.Name}, nil
}

func (f *region) Decompose(context.Context, maas.VMPermit, lxd.VM) error { return nil }

func (f *region) Project(context.Context, lxd.Host) (string, error) { return "", nil }

func (f *region) Stop(context.Context, maas.VMPermit, lxd.VM) error { return nil }

func (f *region) Start(context.Context, maas.VMPermit, lxd.VM) error { return nil }

func (f *region) Observe(context.Context, lxd.VM, time.Duration) (lxd.Seen, error) {
	return lxd.Seen{}, nil
}

func (f *region) Forget(context.Context, maas.Permit, *maas.Machine, string) error { return nil }

func (f *region) FindDevice(context.Context, lxd.VM, string) (*maas.Machine, error) { return nil, nil }

func (f *region) Adopt(context.Context, lxd.VM, []string, []string) (string, *lxd.Host, error) {
	return "", nil, errors.ErrUnsupported
}

func (f *region) Find(context.Context, lxd.VM) (lxd.Presence, error) { return lxd.Presence{}, nil }

// reality makes VMs one after the other, as the manager does: of equal groups, with equal names, on the same hosts.
type reality struct {
	region  *region
	service *lxd.Service
	vms     []Machine
	made    int
}

// make makes the VM of a step, and returns its host, or why there is none.
func (a *reality) make(t *testing.T, r *rand.Rand, g *Group, step Step) (string, error) {
	t.Helper()
	spec := *g.Source.VM
	a.made++
	spec.Hostname = fmt.Sprint("vm-", a.made)
	if g.Zone != "" || (g.ControlPlane && step.Fits) {
		spec.Zone = step.Zone
	}
	hosts, err := a.service.GetAvailableLXDHosts(t.Context(), spec)
	if err != nil {
		return "", err
	}
	var peers []lxd.Peer
	for _, m := range a.vms {
		if m.Among == spec.Cluster {
			peers = append(peers, lxd.Peer{VM: m.VM, Host: m.Host, Zone: m.Zone})
		}
	}
	host, err := a.service.SelectOptimalHost(hosts, spec, peers)
	if err != nil {
		return "", err
	}
	if _, err := a.service.ComposeVM(t.Context(), maas.Unrecorded("a test"), host, spec); err != nil {
		return "", err
	}
	a.vms = append(a.vms, Machine{Name: step.Machine, Cluster: step.Cluster, VM: spec.Hostname, Host: host.Name, Zone: host.Zone, Among: spec.Cluster, Has: spec.Footprint()})
	if chance(r, 3) {
		a.region.read()
	}
	return host.Name, nil
}

// remove deletes the VM of a step. MAAS reads the host then.
func (a *reality) remove(t *testing.T, step Step) {
	t.Helper()
	at := slices.IndexFunc(a.vms, func(m Machine) bool { return m.Name == step.Machine && m.Cluster == step.Cluster })
	if at < 0 {
		t.Fatalf("step %d deletes %s of %s, which is not there", step.Number, step.Machine, step.Cluster)
	}
	a.region.count(a.vms[at].Host, a.vms[at].Has.Resources, -1)
	a.vms = slices.Delete(a.vms, at, at+1)
	a.region.read()
}

func randomGroups(r *rand.Rand) []*Group {
	groups := make([]*Group, 1+r.IntN(4))
	for i := range groups {
		cluster := fmt.Sprint("default/c", i/2)
		g := &Group{
			Cluster: cluster, Owner: fmt.Sprint("MachineDeployment/", i), Among: cluster, Replicas: 1 + r.IntN(5), MaxSurge: 1,
			MaxUnavailable: r.IntN(2), Zone: pick(r, "", "", "z1"),
		}
		if i%2 == 0 {
			g.Owner, g.Among, g.ControlPlane, g.Zone = "KubeadmControlPlane/cp", cluster+"/control-plane", true, ""
			g.FailureDomains = pick(r, []string{"z0", "z1", "z2"}, []string{"z1", "z2"}, nil)
			g.Replicas, g.MaxUnavailable = 1+2*r.IntN(3), 0
		}
		vm := lxd.VMSpec{Cluster: g.Among, Resources: lxd.Resources{Cores: 1 + r.IntN(6), Memory: 1024 * (1 + r.IntN(8)), Disk: 8 + r.IntN(40)}}
		if chance(r, 4) {
			vm.AntiAffinity = lxd.RequireApart
		}
		if chance(r, 5) {
			vm.ResourcePool = "default"
		}
		g.Source.VM = &vm
		groups[i] = g
	}
	return groups
}

// TestThePlanIsWhatHappens plans for random fleets, and then does what was planned with the placement of the manager: it
// puts each VM on the planned host, and refuses what the plan says does not fit, for the same reason.
func TestThePlanIsWhatHappens(t *testing.T) {
	created, refused, deleted := 0, 0, 0
	for seed := range uint64(fleets) {
		r := rand.New(rand.NewPCG(seed, 11))
		at := &region{truth: randomHosts(r)}
		at.read()
		manager := &reality{region: at, service: lxd.NewService(at, lxd.NewReservations())}
		groups := randomGroups(r)
		// The fleet has VMs already, which the plan knows as Kubernetes does.
		first := New(nil)
		for _, g := range groups {
			g.Source.Hosts = copyHosts(at.shown)
			first.Scale(g)
		}
		play(t, r, seed, manager, groups, first)
		at.read()
		manager.service = lxd.NewService(at, lxd.NewReservations()) // Time passes: nothing is reserved any more.
		for i := range manager.vms {
			m := &manager.vms[i]
			m.On, m.Order, m.Owner = keyOf(at, m.Host), i, ownerOf(first, *m)
			m.Name = "old-" + m.Name // The plan counts its new machines from #1 on.
		}
		plan := New(manager.vms)
		from := pick(r, at.truth...).Name
		drains := chance(r, 2)
		if drains {
			cordon(at, from)
		}
		for _, g := range groups {
			g.Source.Hosts = copyHosts(at.shown)
			if drains {
				plan.Drain(g, func(m Machine) bool { return m.Host == from })
			} else {
				plan.Roll(g)
			}
		}
		play(t, r, seed, manager, groups, plan)
		for _, step := range plan.Steps() {
			switch {
			case step.Action == Delete:
				deleted++
			case step.Fits:
				created++
			default:
				refused++
			}
		}
		if drains && plan.Fits() && slices.ContainsFunc(manager.vms, func(m Machine) bool { return m.Host == from }) {
			t.Errorf("seed %d: host %s is not empty", seed, from)
		}
		if t.Failed() {
			return
		}
	}
	if created < fleets || deleted < fleets || refused < fleets/20 {
		t.Errorf("only %d VMs were created, %d refused and %d deleted", created, refused, deleted)
	}
}

func keyOf(f *region, host string) lxd.HostKey {
	at := slices.IndexFunc(f.truth, func(h lxd.Host) bool { return h.Name == host })
	return f.truth[at].Key()
}

func ownerOf(s *Simulation, m Machine) string {
	at := slices.IndexFunc(s.machines, func(other Machine) bool { return other.Name == m.Name && other.Cluster == m.Cluster })
	return s.machines[at].Owner
}

func cordon(f *region, host string) {
	at := slices.IndexFunc(f.truth, func(h lxd.Host) bool { return h.Name == host })
	object := *f.truth[at].Object
	object.Unschedulable = true
	f.truth[at].Object = &object
	f.read()
}

// play does what was planned.
func play(t *testing.T, r *rand.Rand, seed uint64, manager *reality, groups []*Group, plan *Simulation) {
	t.Helper()
	for _, step := range plan.Steps() {
		switch step.Action {
		case Delete:
			manager.remove(t, step)
		case Create:
			at := slices.IndexFunc(groups, func(g *Group) bool { return g.Cluster == step.Cluster && g.Owner == step.Owner })
			host, err := manager.make(t, r, groups[at], step)
			reason := ""
			if err != nil {
				reason = err.Error()
			}
			if diff := cmp.Diff([]string{step.Host, step.Reason}, []string{host, reason}); diff != "" {
				t.Fatalf("seed %d: step %d differs (-plan +reality): %+v\n%s", seed, step.Number, step, diff)
			}
		}
	}
}
