// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/ownership"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/quarantine"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator/simtest"
)

const region = `
users: [{name: admin, admin: true, keys: ["admin:token:secret"]}]
zones: [{name: zone-a}, {name: zone-b}]
subnets: [{cidr: 10.77.0.0/24, gateway: 10.77.0.1, dhcp: true}]
images: [{name: ubuntu/jammy}]
machines:
  - {names: [metal-a], zone: zone-a, cores: 4, memory: 8192, disks: [100]}
  - {names: [metal-b], zone: zone-b, cores: 8, memory: 16384, disks: [100]}
vm_hosts:
  - {name: lxd-a, address: "10.77.0.11:8443", unregistered: true, cores: 32, memory: 65536, storage_pools: [{name: default, size: 500}]}
`

// pool is a MAAS and a service on it whose clock stands.
type pool struct {
	*Service
	t      *testing.T
	maas   *simulator.Simulator
	client *maas.Client
	now    time.Time
}

func newPool(t *testing.T) *pool {
	t.Helper()
	sim, endpoint := simtest.Start(t, region, simulator.Options{TimeScale: 2000})
	client := simtest.Client(t, endpoint, "admin:token:secret")
	p := &pool{Service: NewService(inventory.New(client, inventory.Options{}), nil), t: t, maas: sim, client: client, now: time.Unix(100000, 0)}
	p.Quarantine.SetClock(func() time.Time { return p.now })
	return p
}

// allocate takes a machine and returns it.
func (p *pool) allocate(constraints maas.AllocateParams) (*maas.Machine, error) {
	p.t.Helper()
	return p.Allocate(p.t.Context(), maas.Unrecorded("a test"), ownership.Identity{AgentName: "capmaas/owner/m"}, constraints)
}

// took wants to get a certain machine, and gives it back.
func (p *pool) took(hostname string, constraints maas.AllocateParams) {
	p.t.Helper()
	m, err := p.allocate(constraints)
	if err != nil || m.Hostname != hostname {
		p.t.Fatalf("allocated %+v: %v, want %s", m, err, hostname)
	}
	p.release(m)
}

func (p *pool) release(m *maas.Machine) {
	p.t.Helper()
	if err := p.Release(p.t.Context(), maas.UnrecordedRelease("a test"), m, maas.EraseDefault); err != nil {
		p.t.Fatal(err)
	}
	p.await("it is back", func() bool {
		seen, _ := p.maas.Machine(m.SystemID)
		return seen.Status == "Ready"
	})
	m.Status = maas.StatusReady
	p.Quarantine.BackInPool(m)
}

func (p *pool) await(what string, done func() bool) {
	p.t.Helper()
	eventually.True(p.t, what, done)
}

// fail takes a machine, makes it fail while seenBy has it, and gives it back.
func (p *pool) fail(hostname, seenBy string) *maas.Machine {
	p.t.Helper()
	all, err := p.client.ListMachines(p.t.Context(), maas.MachineFilter{Hostnames: []string{hostname}})
	if err != nil || len(all) != 1 {
		p.t.Fatal(all, err)
	}
	m, err := p.allocate(maas.AllocateParams{SystemID: all[0].SystemID})
	if err != nil {
		p.t.Fatal(err)
	}
	p.Quarantine.Remember(m, quarantine.Cause{By: seenBy})
	p.Quarantine.Remember(m, quarantine.Cause{By: seenBy})
	p.release(m)
	return m
}

func TestAMachineThatFailedIsNotAllocatedWhileItIsLeftAlone(t *testing.T) {
	p := newPool(t)
	p.took("metal-a", maas.AllocateParams{})
	failed := p.fail("metal-a", "m1")
	p.took("metal-b", maas.AllocateParams{})
	p.now = p.now.Add(quarantine.Limits.First - time.Second)
	p.took("metal-b", maas.AllocateParams{})
	if !p.Quarantine.FailedRecently(failed) {
		t.Error("it is not known to be left alone")
	}
	p.now = p.now.Add(time.Second)
	p.took("metal-a", maas.AllocateParams{})
	if p.Quarantine.FailedRecently(failed) {
		t.Error("it is still known to be left alone")
	}
}

func TestWithoutAnotherMachineNoneFits(t *testing.T) {
	p := newPool(t)
	a, b := p.fail("metal-a", "m1"), p.fail("metal-b", "m1")
	if m, err := p.allocate(maas.AllocateParams{}); !errors.Is(err, maas.Conflict) {
		t.Fatalf("allocated %+v: %v, want %s", m, err, maas.Conflict)
	}
	until, list := p.now.Add(quarantine.Limits.First), p.Quarantine.Remembered()
	if len(list) != 2 || !slices.Equal(slices.Sorted(slices.Values([]string{a.SystemID, b.SystemID})), []string{list[0].SystemID, list[1].SystemID}) {
		t.Fatalf("left alone are %+v", list)
	}
	for _, m := range list {
		if m.Status != maas.StatusReady || m.Failures != 1 || !m.Until.Equal(until) {
			t.Errorf("%s is left alone: %+v, want until %s", m, m.Note, until)
		}
	}
}

func TestAMachineThatIsKeptOutIsNotAllocatedUntilItIsLetInOrForgotten(t *testing.T) {
	p := newPool(t)
	m, err := p.allocate(maas.AllocateParams{})
	if err != nil {
		t.Fatal(err)
	}
	p.Withhold(m, "owner", Leftover{Address: "10.0.0.5"})
	p.release(m)
	p.took("metal-b", maas.AllocateParams{})
	p.StopWithholding(m.SystemID, "the owner before, which took longer to end")
	p.took("metal-b", maas.AllocateParams{})
	p.StopWithholding(m.SystemID, "owner")
	p.took("metal-a", maas.AllocateParams{})
	p.Withhold(m, "owner", Leftover{Address: "10.0.0.5"})
	p.now = p.now.Add(withheldFor)
	p.took("metal-b", maas.AllocateParams{})
	p.now = p.now.Add(time.Second)
	p.took("metal-a", maas.AllocateParams{})
}

// Another manager has quarantined it, and this one has not heard of that.
func TestAQuarantinedMachineIsNotAllocated(t *testing.T) {
	p := newPool(t)
	p.took("metal-a", maas.AllocateParams{})
	all, err := p.client.ListMachines(t.Context(), maas.MachineFilter{Hostnames: []string{"metal-a"}})
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	other := NewService(inventory.New(p.client, inventory.Options{}), nil)
	if _, err := other.Quarantine.Put(t.Context(), maas.Unrecorded("a test"), all[0].SystemID, quarantine.Cause{By: "m1"}); err != nil {
		t.Fatal(err)
	}
	p.took("metal-b", maas.AllocateParams{NotTags: []string{"virtual"}})
	if m, err := p.allocate(maas.AllocateParams{SystemID: all[0].SystemID}); !errors.Is(err, maas.Conflict) {
		t.Errorf("allocated %+v, %v; want %s", m, err, maas.Conflict)
	}
	if err := other.Quarantine.Lift(t.Context(), maas.Unrecorded("a test"), all[0].SystemID); err != nil {
		t.Fatal(err)
	}
	p.took("metal-a", maas.AllocateParams{})
}

func TestAMachineOfChoiceIsNeverLeftAlone(t *testing.T) {
	p := newPool(t)
	failed := p.fail("metal-a", "m1")
	if claimed, err := p.Claim(t.Context(), maas.Unrecorded("a test"), ownership.Identity{AgentName: "m2"}, failed.SystemID); err != nil || claimed.SystemID != failed.SystemID {
		t.Errorf("claimed %+v: %v", claimed, err)
	}
}

// MAAS composes a VM if no machine fits and it has a host that the call does not name. The caller gets the VM, to give
// it back.
func TestAllocateTellsOfAVMOnAHostThatIsNew(t *testing.T) {
	p := newPool(t)
	if names, err := p.VMHostNames(t.Context()); err != nil || len(names) != 0 {
		t.Fatal(names, err)
	}
	if _, err := p.client.CreateLXDHost(t.Context(), maas.Unrecorded("a test"), maas.VMHostParams{VMHostPower: maas.VMHostPower{PowerAddress: "10.77.0.11:8443"}, Name: "lxd-a"}); err != nil {
		t.Fatal(err)
	}
	p.await("MAAS knows what the host has", func() bool {
		hosts, err := p.client.ListVMHosts(t.Context())
		return err == nil && len(hosts) == 1 && hosts[0].Total.Cores > 0
	})
	before := len(p.maas.Machines())
	for try := range 3 {
		names, err := p.VMHostNames(t.Context()) // Remembered for a while.
		if err != nil {
			t.Fatal(err)
		}
		m, err := p.allocate(maas.AllocateParams{MinCPU: 16, NotOnVMHosts: names})
		if errors.Is(err, maas.Conflict) != (try > 0) || (err == nil) != (try == 0 && m.Pod != nil) {
			t.Fatalf("try %d with hosts %v: %+v, %v", try, names, m, err)
		}
		if err != nil {
			continue
		}
		if err := p.Release(t.Context(), maas.UnrecordedRelease("a test"), m, maas.EraseDefault); err != nil {
			t.Fatal(err)
		}
	}
	p.await("no VM is left", func() bool {
		return len(p.maas.Machines()) == before && len(p.maas.VMHosts()[0].VMs) == 0
	})
}

// Just after an upgrade of MAAS, VM hosts are known that it no longer has: the first try that names them fails, and the next
// one names none.
func TestVMHostsThatAnUpgradeTookAreNamedOnce(t *testing.T) {
	for name, ask := range map[string]func(*pool, maas.AllocateParams) error{
		"allocate": func(p *pool, params maas.AllocateParams) error { _, err := p.allocate(params); return err },
		"pick": func(p *pool, params maas.AllocateParams) error {
			_, err := p.Pick(p.t.Context(), params, nil)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPool(t)
			host := maas.VMHostParams{VMHostPower: maas.VMHostPower{PowerAddress: "10.77.0.11:8443"}, Name: "lxd-a"}
			if _, err := p.client.CreateLXDHost(t.Context(), maas.Unrecorded("a test"), host); err != nil {
				t.Fatal(err)
			}
			var errs []error
			for range 2 {
				names, err := p.VMHostNames(t.Context()) // Remembered for a while.
				if err != nil {
					t.Fatal(err)
				}
				if len(errs) == 0 {
					if err := p.maas.Upgrade("4.0"); err != nil || len(names) != 1 {
						t.Fatal(names, err)
					}
				}
				errs = append(errs, ask(p, maas.AllocateParams{NotOnVMHosts: names}))
			}
			var stale *StaleVMHostsError
			if !errors.As(errs[0], &stale) || !errors.Is(errs[0], maas.Invalid) || errs[1] != nil {
				t.Errorf("%v, want a *StaleVMHostsError and then a machine", errs)
			}
		})
	}
}
