// SPDX-License-Identifier: Apache-2.0

package vmhosts_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdnode"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/vmhosts"
)

const (
	address1, address2 = "10.77.0.11:8443", "10.77.0.12:8443"
	otherMachine       = "zzzzzz"
)

// theirs is a VM host of another cluster, node-1 at address1, with a VM.
func (b *bed) theirs() (host maas.VMHost, vm string) {
	b.t.Helper()
	host = b.ensure(node("1")).Host
	host = b.known(host.ID)
	vm, err := b.client.Compose(b.t.Context(), maas.Unrecorded("a test"), host.ID, maas.ComposeParams{
		Hostname: "control-plane-0", Cores: 1, Memory: 2048, Storage: "root:8", SkipCommissioning: true, ZoneID: host.Zone.ID, PoolID: host.Pool.ID,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return host, vm
}

// unharmed checks that their VM host leads to their LXD, and that their VM is known there.
func (b *bed) unharmed(host maas.VMHost, vm string) {
	b.t.Helper()
	power, err := b.client.VMHostPower(b.t.Context(), host.ID)
	want := maas.VMHostPower{PowerAddress: address1, Project: "maas", Certificate: keys[0].certificate, Key: keys[0].key}
	if diff := cmp.Diff(want, power); diff != "" || err != nil {
		b.t.Errorf("how MAAS reaches their VM host (-want +got):\n%s%v", diff, err)
	}
	if _, err := b.client.RefreshVMHost(b.t.Context(), host.ID); err != nil { // as MAAS does by itself
		b.t.Error(err)
	}
	if _, err := b.client.GetMachine(b.t.Context(), vm); err != nil {
		b.t.Errorf("their VM: %v", err)
	}
}

// ours is a node of our own, node-1 at address2.
func ours() vmhosts.Registration {
	r := node("1")
	r.PowerAddress, r.Certificate, r.Key, r.SystemID = address2, keys[1].certificate, keys[1].key, otherMachine
	return r
}

// Each cluster may have a Node worker-1, and an address may have been another host's.
func TestAVMHostThatMayBeAnothersIsLeftAlone(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*vmhosts.Registration){
		"of the same name": func(*vmhosts.Registration) {},
		"of the same name, and our machine is not known":  func(r *vmhosts.Registration) { r.SystemID = "" },
		"of the same name, and we have no key":            func(r *vmhosts.Registration) { r.Certificate, r.Key = "", "" },
		"that was ours once, under its id":                func(r *vmhosts.Registration) { r.ID = 1 }, // the first one
		"at our address, of another name":                 func(r *vmhosts.Registration) { r.Name, r.PowerAddress = "node-2", address1 },
		"at our address, of the same name":                func(r *vmhosts.Registration) { r.PowerAddress = address1 },
		"of the same name, and ours had another key once": func(r *vmhosts.Registration) { r.Earlier = []string{fingerprint(t, 1)} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			host, vm := b.theirs()
			before, r := b.writes(), ours()
			change(&r)
			if r.ID != 0 && r.ID != host.ID {
				t.Fatalf("their VM host has the id %d", host.ID)
			}
			_, _, checked := b.Check(t.Context(), r)
			var taken *vmhosts.Error
			for what, err := range map[string]error{
				"Ensure": second(b.Ensure(t.Context(), maas.Unrecorded("a test"), r, noVMs)), "Check": checked,
			} {
				if !errors.As(err, &taken) || !isTaken(taken, host) {
					t.Errorf("%s: %v", what, err)
				}
			}
			if wrote := b.writes() - before; wrote > 0 || len(b.hosts()) != 1 {
				t.Errorf("%d writes, %d hosts", wrote, len(b.hosts()))
			}
			b.unharmed(host, vm)
		})
	}
}

func isTaken(e *vmhosts.Error, by maas.VMHost) bool {
	return e.Kind == vmhosts.Taken && slices.Equal(e.IDs, []int{by.ID})
}

func second[T any](_ T, err error) error { return err }

func fingerprint(t *testing.T, of int) string {
	t.Helper()
	f, err := lxdnode.Fingerprint([]byte(keys[of].certificate))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Its node got another address and another key pair, and has no provider ID.
func TestAVMHostWithAnEarlierCertificateOfTheNodeIsTheNodes(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	host := b.ensure(node("1")).Host
	r := ours()
	r.Earlier = []string{fingerprint(t, 1), fingerprint(t, 0)}
	if got := b.ensure(r); got.Host.ID != host.ID || !cmp.Equal(got.Changes, []string{"power address", "certificate"}) || len(b.hosts()) != 1 {
		t.Errorf("%+v, %d hosts", got, len(b.hosts()))
	}
}

// MAAS would restart the VMs of a host that it does not have. One that somebody registered is the host, whatever is on it.
func TestAHostWithVMsIsNotRegisteredAnew(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	host, _ := b.theirs()
	if err := b.Remove(t.Context(), maas.Unrecorded("a test"), host.ID); err != nil {
		t.Fatal(err)
	}
	r, before, asked := node("1"), b.writes(), ""
	one := func(_ context.Context, project string) (int, error) { asked = project; return 1, nil }
	var occupied *vmhosts.Error
	if _, err := b.Ensure(t.Context(), maas.Unrecorded("a test"), r, one); !errors.As(err, &occupied) || occupied.Kind != vmhosts.Occupied || asked != r.Project {
		t.Errorf("%v, of project %q", err, asked)
	}
	down := errors.New("LXD does not respond")
	failing := func(context.Context, string) (int, error) { return 0, down }
	if _, err := b.Ensure(t.Context(), maas.Unrecorded("a test"), r, failing); !errors.Is(err, down) {
		t.Errorf("without LXD: %v", err)
	}
	if wrote := b.writes() - before; wrote > 0 || len(b.hosts()) > 0 {
		t.Errorf("%d writes, %d hosts", wrote, len(b.hosts()))
	}
	byHand := maas.VMHostParams{Name: "by-hand", VMHostPower: maas.VMHostPower{PowerAddress: r.PowerAddress, Project: r.Project}}
	if _, err := b.client.CreateLXDHost(t.Context(), maas.Unrecorded("a test"), byHand); err != nil {
		t.Fatal(err)
	}
	if got, err := b.Ensure(t.Context(), maas.Unrecorded("a test"), r, one); err != nil || got.Created || len(b.hosts()) != 1 {
		t.Errorf("%+v: %v, %d hosts", got, err, len(b.hosts()))
	}
}

// A host that was found gets no name that another one has.
func TestANameThatAnotherVMHostHasIsNotGiven(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	host, vm := b.theirs()
	r := node("2")
	r.Certificate, r.Key = keys[1].certificate, keys[1].key
	found := b.ensure(r).Host
	before := b.writes()
	r.Name, r.SystemID = "node-1", found.Host.SystemID
	var taken *vmhosts.Error
	if _, err := b.Ensure(t.Context(), maas.Unrecorded("a test"), r, noVMs); !errors.As(err, &taken) || !isTaken(taken, host) || b.writes() != before {
		t.Errorf("%v, %d writes", err, b.writes()-before)
	}
	b.unharmed(host, vm)
}

// What OnNode returns is tagged, and deleted in MAAS.
func TestWhichVMHostsRunOnANode(t *testing.T) {
	t.Parallel()
	const here, elsewhere = "here", "elsewhere"
	for name, tc := range map[string]struct {
		shown   string // the machine on which MAAS shows the VM host, node-1 at address1
		node    vmhosts.Node
		on      bool
		inDoubt bool
	}{
		"its name, on its machine":                  {here, vmhosts.Node{Name: "node-1"}, true, false},
		"another name, on its machine":              {here, vmhosts.Node{Name: "other"}, false, true},
		"another name, at its address":              {here, vmhosts.Node{Name: "other", Addresses: []string{"10.77.0.11"}}, true, false},
		"another name, with its certificate":        {here, vmhosts.Node{Name: "other", Certificate: keys[0].certificate}, true, false},
		"another Node's name, on its machine":       {here, vmhosts.Node{Name: "other", Others: []string{"node-1"}}, false, false},
		"another Node's name, at its address":       {here, vmhosts.Node{Name: "other", Others: []string{"node-1"}, Addresses: []string{"10.77.0.11"}}, false, true},
		"its name, elsewhere":                       {elsewhere, vmhosts.Node{Name: "node-1"}, false, false},
		"its name, elsewhere, at another address":   {elsewhere, vmhosts.Node{Name: "node-1", Addresses: []string{"10.77.0.12"}}, false, false},
		"its name, elsewhere, at its address":       {elsewhere, vmhosts.Node{Name: "node-1", Addresses: []string{"10.77.0.11"}}, true, false},
		"its name, elsewhere, with its certificate": {elsewhere, vmhosts.Node{Name: "node-1", Certificate: keys[0].certificate}, true, false},
		"its name, elsewhere, with another certificate": {
			elsewhere, vmhosts.Node{Name: "node-1", Certificate: keys[1].certificate}, false, false,
		},
		"its name, elsewhere, at its address, with another certificate": {
			elsewhere, vmhosts.Node{Name: "node-1", Addresses: []string{"10.77.0.11"}, Certificate: keys[1].certificate}, false, true,
		},
		"another name, elsewhere, at its address": {elsewhere, vmhosts.Node{Name: "other", Addresses: []string{"10.77.0.11"}}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			host, _ := b.theirs()
			if tc.node.SystemID = otherMachine; tc.shown == here {
				tc.node.SystemID = host.Host.SystemID
			}
			on, inDoubt, err := b.OnNode(t.Context(), b.hosts(), tc.node)
			if err != nil || (len(on) == 1) != tc.on || (len(inDoubt) == 1) != tc.inDoubt {
				t.Errorf("on it %+v, in doubt %+v: %v", on, inDoubt, err)
			}
		})
	}
}
