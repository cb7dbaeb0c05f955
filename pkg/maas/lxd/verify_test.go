// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// found retries until Find knows whether a VM is gone.
func found(t *testing.T, composer interface {
	Find(context.Context, VM) (Presence, error)
}, vm VM) (p Presence, err error) {
	t.Helper()
	eventually.True(t, "it is reported", func() bool {
		p, err = composer.Find(t.Context(), vm)
		return p.State != Pending
	}, func() any { return err })
	return p, err
}

func (r fuzzedRegion) host(t *testing.T, composer *vmHosts) Host {
	t.Helper()
	hosts, err := composer.Hosts(t.Context(), VMSpec{}, hostsMaxAge)
	if err != nil || len(hosts) != 1 {
		t.Fatalf("hosts %v: %v", hosts, err)
	}
	return hosts[0]
}

func TestFind(t *testing.T) {
	for name, tc := range map[string]struct {
		fault       *simulator.Fault
		losing      bool   // the host keeps what MAAS deletes
		unreachable bool   // while it is verified
		place       string // "": as recorded
		back        bool
		want        maas.Kind
		missing     bool
		unreached   bool // it is the host's failure, not MAAS's
	}{
		"gone":                              {},
		"kept by its host":                  {losing: true, back: true},
		"noted by its host's name alone":    {losing: true, place: "0/host", back: true},
		"on a host that has another id now": {losing: true, place: "77/host", back: true},
		"on a host that MAAS does not have": {losing: true, place: "77/other", missing: true, unreached: true},
		"on a host that can't be reached":   {losing: true, unreachable: true, want: maas.Unavailable, unreached: true},
		"without the right to refresh":      {fault: &simulator.Fault{Op: "refresh", Status: http.StatusForbidden}, want: maas.Forbidden, unreached: true},
		"in a MAAS without VM hosts":        {fault: &simulator.Fault{Op: "refresh", Status: http.StatusGone}, want: maas.Gone, unreached: true},
		"while the refresh got no response": {fault: &simulator.Fault{Op: "refresh", Garbage: true}, want: maas.Unavailable, unreached: true},
		"while MAAS is away":                {fault: &simulator.Fault{DropBefore: true}, want: maas.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			region := newRegion(t, strings.Replace(fuzzRegion, "compose: 0s", "compose: 0s, decompose: 0s, refresh: 0s", 1))
			composer := &vmHosts{region.inventory, NewHostRefresher()}
			host := region.host(t, composer)
			vm, err := composer.Compose(t.Context(), maas.Unrecorded("a test"), host, VMSpec{Hostname: "vm", Resources: Resources{1, 2048, 8}})
			if err != nil {
				t.Fatal(err)
			}
			region.sim.BreakVMHost(host.Name, false, tc.losing)
			if err := composer.Decompose(t.Context(), maas.UnrecordedVM("a test"), vm); err != nil {
				t.Fatal(err)
			}
			region.sim.BreakVMHost(host.Name, tc.unreachable, tc.losing)
			if tc.fault != nil {
				if _, err := region.sim.AddFault(*tc.fault); err != nil {
					t.Fatal(err)
				}
			}
			if vm.HostRef = tc.place; vm.HostRef == "" {
				vm.HostRef = HostRef(host)
			}
			p, err := found(t, composer, vm)
			if (p.State == Present) != tc.back || (p.State == Unreachable) != tc.unreached || (err != nil) != (tc.want != "" && !tc.unreached) {
				t.Fatalf("got %+v, error %v", p, err)
			}
			if p.Never != (tc.want == maas.Gone || tc.want == maas.Forbidden) {
				t.Errorf("it will never be reported: %v", p.Never)
			}
			if guard.Is[*MissingVMHostError](p.Why) != tc.missing {
				t.Errorf("MAAS does not have the host: %v", p.Why)
			}
			if tc.want != "" && !errors.Is(errors.Join(err, p.Why), tc.want) {
				t.Errorf("the error is %v, why %v, want %s", err, p.Why, tc.want)
			}
			back := p.VM
			if back != nil && (back.SystemID == vm.SystemID || back.Hostname != vm.Hostname || back.HostID != host.ID) {
				t.Errorf("%+v came back", back)
			}
		})
	}
}

// Two identities of one MAAS share its hosts.
func TestARefreshWaitsForACompose(t *testing.T) {
	t.Parallel()
	region := newRegion(t, strings.Replace(fuzzRegion, "compose: 0s", "compose: 6s, refresh: 0s", 1))
	refresher := NewHostRefresher()
	one, other := &vmHosts{region.inventory, refresher}, &vmHosts{region.inventory, refresher}
	host := region.host(t, one)
	composed := make(chan error, 1)
	go func() {
		_, err := one.Compose(t.Context(), maas.Unrecorded("a test"), host, VMSpec{Hostname: "new", Resources: Resources{1, 2048, 8}})
		composed <- err
	}()
	// Half made: MAAS does not know it.
	eventually.True(t, "the VM is on its host", func() bool { return len(region.sim.VMHosts()[0].VMs) > 0 })
	if p, err := found(t, other, VM{Hostname: "old", HostRef: HostRef(host)}); err != nil || p.State != Gone {
		t.Errorf("looking for another VM: %+v, %v", p, err)
	}
	if err := <-composed; err != nil {
		t.Errorf("the compose was disturbed: %v", err)
	}
	for _, m := range region.sim.Machines() {
		if m.Hostname == "new" && m.Status == "Commissioning" {
			t.Error("MAAS took over the VM while it was composed")
		}
	}
}

// MAAS took a VM in under another name, because one elsewhere had its own; its host keeps it when it is deleted.
func TestAVMUnderAnotherNameIsFoundUntilItIsGone(t *testing.T) {
	t.Parallel()
	text := strings.Replace(fuzzRegion, "compose: 0s", "compose: 0s, decompose: 0s, refresh: 0s, commission: 24h", 1)
	text = strings.Replace(text, "vm_hosts: [", "vm_hosts: [{name: second, cores: 8, memory: 16384, storage_pools: [{name: default, size: 100000}]}, ", 1)
	region := newRegion(t, text)
	composer := &vmHosts{region.inventory, NewHostRefresher()}
	hosts, err := composer.Hosts(t.Context(), VMSpec{}, hostsMaxAge)
	if err != nil || len(hosts) != 2 {
		t.Fatalf("hosts %v: %v", hosts, err)
	}
	spec := VMSpec{Hostname: "vm", Resources: Resources{1, 2048, 8}}
	region.sim.BreakVMHost(hosts[0].Name, false, true)
	if vm, err := composer.Compose(t.Context(), maas.Unrecorded("a test"), hosts[0], spec); err == nil {
		t.Fatalf("MAAS knows of %+v", vm)
	}
	own, err := composer.Compose(t.Context(), maas.Unrecorded("a test"), hosts[1], spec)
	if err != nil {
		t.Fatal(err)
	}
	spare := VM{SystemID: own.SystemID, Hostname: "vm", HostRef: HostRef(hosts[0]), Namesakes: true}
	for _, lost := range []bool{true, false} {
		p, err := found(t, composer, spare)
		back := p.VM
		if err != nil || back == nil || back.SystemID == own.SystemID || back.Hostname == "vm" || back.HostID != hosts[0].ID {
			t.Fatalf("%+v came back: %v", back, err)
		}
		region.sim.BreakVMHost(hosts[0].Name, false, lost)
		if err := composer.Decompose(t.Context(), maas.UnrecordedVM("a test"), *back); err != nil {
			t.Fatal(err)
		}
		region.sim.BreakVMHost(hosts[0].Name, false, false)
	}
	if p, err := found(t, composer, spare); err != nil || p.State != Gone {
		t.Errorf("it came back: %+v, %v", p, err)
	}
	if m, err := region.inventory.Client().GetMachine(t.Context(), own.SystemID); err != nil || m.Hostname != "vm" {
		t.Errorf("the VM that is as it should be: %+v, %v", m, err)
	}
}
