// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// pair is a MAAS and one that shows the same ids and accepts the same keys: a tenant's own, or a copy that was restored
// from its database. They share what a scope.Factory shares.
type pair struct {
	real, fake   fuzzedRegion
	refresher    *HostRefresher
	ours, theirs *vmHosts
	ledger       *Ledger
}

func newPair(t *testing.T) *pair {
	t.Helper()
	text := strings.Replace(fuzzRegion, "compose: 0s", "compose: 0s, decompose: 0s, refresh: 0s", 1)
	p := &pair{real: newRegion(t, text), fake: newRegion(t, text), refresher: NewHostRefresher(), ledger: NewLedger()}
	p.ours, p.theirs = &vmHosts{p.real.inventory, p.refresher}, &vmHosts{p.fake.inventory, p.refresher}
	a, b := p.real.host(t, p.ours), p.fake.host(t, p.theirs)
	if a.ID != b.ID || a.MachineID != b.MachineID || a.Name != b.Name {
		t.Fatalf("the second MAAS shows another host than the first: %+v, %+v", a, b)
	}
	return p
}

func (p *pair) service(of *vmHosts) *Service {
	none := objectsOf(nil)
	all := &both{objects: none, vmHosts: of, images: &images{objects: none}}
	return NewService(all, p.ledger.Of(of.inventory.Client().Server()))
}

// hasRoom fails the test unless a small VM can be placed in the real MAAS.
func (p *pair) hasRoom(t *testing.T) {
	t.Helper()
	ours, small := p.service(p.ours), VMSpec{Hostname: "small", Resources: Resources{1, 1024, 8}}
	hosts, err := ours.GetAvailableLXDHosts(t.Context(), small)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ours.SelectOptimalHost(hosts, small, nil); err != nil {
		t.Errorf("the real MAAS has no room for a VM, and its host is empty (VMs %v): %v", p.real.sim.VMHosts()[0].VMs, err)
	}
}

func (p *pair) fault(t *testing.T, fault simulator.Fault) {
	t.Helper()
	if _, err := p.fake.sim.AddFault(fault); err != nil {
		t.Fatal(err)
	}
}

// A host kept a VM. That another MAAS has just refreshed its own host is no answer for this one.
func TestTheRefreshOfAnotherMAASProvesNothing(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	host := p.real.host(t, p.ours)
	vm, err := p.ours.Compose(t.Context(), maas.Unrecorded("a test"), host, VMSpec{Hostname: "vm", Resources: Resources{1, 2048, 8}})
	if err != nil {
		t.Fatal(err)
	}
	p.real.sim.BreakVMHost(host.Name, false, true) // It keeps what MAAS deletes.
	if err := p.ours.Decompose(t.Context(), maas.UnrecordedVM("a test"), vm); err != nil {
		t.Fatal(err)
	}
	vm.HostRef = HostRef(host)
	if asked, err := p.ours.Find(t.Context(), vm); err != nil || asked.State != Pending {
		t.Fatalf("the first question: %+v, %v", asked, err)
	}
	if asked, err := found(t, p.theirs, VM{Hostname: vm.Hostname, HostRef: vm.HostRef}); err != nil || asked.State != Gone {
		t.Fatalf("the other MAAS: %+v, %v", asked, err)
	}
	if asked, err := found(t, p.ours, vm); err != nil || asked.State != Present {
		t.Errorf("the VM is reported as %v (%v), and the host has %v", asked.State, err, p.real.sim.VMHosts()[0].VMs)
	}
}

// The answer to a compose is lost in one MAAS: the VM may be there, and not in the other one.
func TestAComposeThatIsInDoubtTakesNoRoomInAnotherMAAS(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	theirs, huge := p.service(p.theirs), VMSpec{Hostname: "huge", Resources: Resources{8, 16384, 8}}
	p.fault(t, simulator.Fault{Op: "compose", Garbage: true})
	hosts, err := theirs.GetAvailableLXDHosts(t.Context(), huge)
	if err != nil {
		t.Fatal(err)
	}
	on, err := theirs.SelectOptimalHost(hosts, huge, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := theirs.ComposeVM(t.Context(), maas.Unrecorded("a test"), on, huge); err == nil {
		t.Fatal("the other MAAS answered")
	}
	p.hasRoom(t)
}

// One MAAS can't reach its host. The other one can.
func TestAFailedRefreshPutsNoHostOfAnotherMAASOutOfUse(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.fault(t, simulator.Fault{Op: "refresh", Status: http.StatusServiceUnavailable, Body: "Failed talking to pod"})
	ref := HostRef(p.real.host(t, p.ours))
	if asked, err := found(t, p.theirs, VM{Hostname: "vm", HostRef: ref}); err != nil || asked.State != Unreachable {
		t.Fatalf("the other MAAS: %+v, %v", asked, err)
	}
	p.hasRoom(t)
	if asked, err := found(t, p.ours, VM{Hostname: "vm", HostRef: ref}); err != nil || asked.State != Gone {
		t.Errorf("a VM that never was: %+v, %v", asked, err)
	}
}

// One MAAS does not end a compose. Whether a VM of the other one is gone is known all the same.
func TestAHangingComposeDelaysNoRefreshOfAnotherMAAS(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	composing := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	p.fake.sim.SetHook(func(call simulator.Call, phase simulator.Phase) error {
		if call.Op == "compose" && phase == simulator.Before {
			close(composing)
			<-ctx.Done()
		}
		return nil
	})
	ended := make(chan struct{})
	t.Cleanup(func() { cancel(); <-ended })
	theirs := p.fake.host(t, p.theirs)
	go func() {
		defer close(ended)
		_, _ = p.theirs.Compose(ctx, maas.Unrecorded("a test"), theirs, VMSpec{Hostname: "hangs", Resources: Resources{1, 2048, 8}})
	}()
	<-composing
	if asked, err := found(t, p.ours, VM{Hostname: "vm", HostRef: HostRef(p.real.host(t, p.ours))}); err != nil || asked.State != Gone {
		t.Errorf("while the other MAAS composes: %+v, %v", asked, err)
	}
}

// Whoever may write a reference to a host could fill the manager's memory otherwise.
func TestHostsOfWhichNothingCountsAreForgotten(t *testing.T) {
	r := NewHostRefresher()
	server := maas.Config{Endpoint: "http://maas.example.com/MAAS"}.Server()
	for id := range 100 {
		r.remove(VMHostKey(server, id), server.Key("vm"))()
	}
	busy := VMHostKey(server, 1000)
	done := r.remove(busy, server.Key("vm"))
	defer done()
	for _, h := range r.hosts {
		h.used = h.used.Add(-2 * rememberAsked)
	}
	r.remove(VMHostKey(server, 2000), server.Key("vm"))()
	if _, kept := r.hosts[busy]; !kept || len(r.hosts) != 2 {
		t.Errorf("%d hosts are remembered, want the one where a VM is being deleted (%t), and the last", len(r.hosts), kept)
	}
}
