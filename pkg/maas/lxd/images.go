// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// images makes VMs from images, through LXD's own API, and keeps a device in MAAS for each.
//
// No VM is without its device, which is made first and deleted last. A VM is made stopped: it is started when it is
// recorded on which host it is, and on no other one.
type images struct {
	objects   HostObjects
	servers   *lxdhost.Connections
	refresher *HostRefresher
	registrar *registrar
	// imagesMaxAge is the constant.
	imagesMaxAge time.Duration
}

// NoImageError means that a host lacks the image of a VM. Nothing was asked for.
type NoImageError struct{ Image string }

// Error names the image.
func (e *NoImageError) Error() string {
	return fmt.Sprintf("it has no image %s: `capmaasctl image upload --lxd-host` brings it there", e.Image)
}

// NotRegisteredError means that MAAS has no device for a VM yet, or that it is not complete. The host was not asked for
// the VM.
type NotRegisteredError struct {
	Hostname string
	cause    error
}

// Error names the VM, and MAAS's error.
func (e *NotRegisteredError) Error() string {
	return fmt.Sprintf("MAAS did not register VM %s: %s", e.Hostname, maas.Message(e.cause))
}

// Unwrap returns MAAS's error, or *NameTakenError, or *OtherAddressError.
func (e *NotRegisteredError) Unwrap() error { return e.cause }

// Compose makes the device and the VM, which stays stopped, or goes on where an earlier call ended. It is called again
// only when nothing of an earlier call may take effect any more. The system id is that of the device.
//
// *DirectError: the device is there, and the VM was not made, as far as is known; it is also for what the host lacks,
// of which nothing was asked for. *NotRegisteredError: nor was the VM asked for.
func (i *images) Compose(ctx context.Context, permit maas.Permit, host Host, spec VMSpec) (VM, error) {
	object, err := i.upToDate(ctx, host, &spec)
	if err != nil {
		return VM{}, err
	}
	failed := func(err error) (VM, error) { return VM{}, &DirectError{Host: object.Name, cause: err} }
	server, err := i.server(ctx, object)
	if err != nil {
		return failed(err)
	}
	seen, err := i.servers.Read(ctx, object.Server, hostsMaxAge)
	if err != nil {
		return failed(err)
	}
	image := seen.Image(spec.Image)
	if image.Fingerprint == "" {
		return failed(&NoImageError{Image: spec.Image})
	}
	want := object.registration(spec)
	device, err := i.registrar.Register(ctx, permit, want)
	if err != nil {
		return VM{}, &NotRegisteredError{Hostname: spec.Hostname, cause: err}
	}
	wanted := toInstance(object, spec)
	wanted.Image = image.Fingerprint
	if wanted.Config[lxdhost.KeyNetworkConfig], err = networkConfig(want, device, object.Nameservers); err != nil {
		return failed(err)
	}
	if err := clone(ctx, permit, server, wanted, seen); err != nil {
		return failed(err)
	}
	return VM{
		SystemID: device.SystemID, Hostname: spec.Hostname, Namespace: spec.Namespace, Host: object.Name,
		Project: object.Server.Project, Marks: spec.Marks, HostRef: HostRef(host), HostFirst: true,
		Machine: device.AsMachine(),
	}, nil
}

// maxClones is how often LXD is asked for a VM that it still makes; each time it is waited for, for up to a minute.
const maxClones = 10

// clone makes a VM in LXD, however long LXD needs for its image. What is sent after that is recorded anew. An error of
// something that was sent has precedence: what it asked for may still come, whatever became of a later try.
func clone(
	ctx context.Context, permit maas.Permit, server *lxdhost.Host, wanted lxdhost.Spec, seen lxdhost.Reading,
) error {
	var sent error
	for try := 1; ; try++ {
		wanted.SendBefore, _ = permit.SendBefore()
		err := server.Clone(ctx, wanted, seen)
		if err == nil {
			return nil
		}
		if failed, is := errors.AsType[*lxdhost.Error](err); is && failed.Sent {
			sent = err
		}
		kind := lxdhost.KindOf(err)
		if kind != lxdhost.KindUnfinished && kind != lxdhost.KindTooLate || try == maxClones {
			return cmp.Or(sent, err)
		}
		another, refused := permit.Again(ctx)
		if refused != nil {
			return cmp.Or(sent, err) // What came of the call is what counts.
		}
		permit = another
	}
}

// registration returns the device that MAAS is to have for a VM on the host.
func (o *HostObject) registration(spec VMSpec) registration {
	want := registration{
		Hostname: spec.Hostname, Zone: o.Zone, Mark: spec.AgentName, Annotations: spec.Annotations,
	}
	for i, device := range spec.cards() {
		each := card{MAC: spec.mac(i).String(), Name: device.Name, Subnet: o.subnetOf(device)}
		want.Cards = append(want.Cards, each)
	}
	want.Cards[0].Address = spec.Address
	return want
}

// subnetOf returns the subnet of a network device; the zero value if it is on a bridge of which none is known.
func (o *HostObject) subnetOf(device Device) netip.Prefix {
	subnet := o.Subnet
	switch {
	case device.Subnet != "":
		subnet, _ = netip.ParsePrefix(device.Subnet) // The API server accepts only a CIDR.
	case o.bridgeOf(device) != o.Bridge:
		return netip.Prefix{}
	}
	return subnet.Masked()
}

// cards are the VM's network devices; the first has its address, and is there in any case.
func (s *VMSpec) cards() []Device {
	if len(s.Devices) == 0 {
		return []Device{{}}
	}
	return s.Devices
}

// Start starts a VM on the host in VM.HostRef. One that runs is not changed.
func (i *images) Start(ctx context.Context, permit maas.VMPermit, vm VM) error {
	if !permit.IsGiven() {
		return errNoPermit
	}
	return i.on(ctx, vm, func(_ *HostObject, server *lxdhost.Host) error {
		return server.Start(ctx, vm.Hostname, vm.Marks, permit.SendBefore())
	})
}

// Stop cuts the power of a VM on the host in VM.HostRef. One that is stopped is not changed.
func (i *images) Stop(ctx context.Context, permit maas.VMPermit, vm VM) error {
	if !permit.IsGiven() {
		return errNoPermit
	}
	return i.on(ctx, vm, func(_ *HostObject, server *lxdhost.Host) error {
		return server.Stop(ctx, vm.Hostname, vm.Marks, permit.SendBefore())
	})
}

// GoneLXDHostError means that the LXDHost of a VM is gone: no host can be asked for the VM.
type GoneLXDHostError struct{ Ref string }

// Error names the LXDHost.
func (e *GoneLXDHostError) Error() string {
	return "there is no LXDHost " + nameIn(e.Ref) + " any more"
}

// at returns the LXDHost of a reference, or a *GoneLXDHostError.
func (i *images) at(ctx context.Context, ref string) (*HostObject, error) {
	object, err := i.object(ctx, ref)
	if err == nil && object == nil {
		err = &GoneLXDHostError{Ref: ref}
	}
	return object, err
}

// on does something on the host in VM.HostRef.
func (i *images) on(ctx context.Context, vm VM, do func(*HostObject, *lxdhost.Host) error) error {
	object, err := i.at(ctx, vm.HostRef)
	if err != nil {
		return err
	}
	server, err := i.server(ctx, object)
	if err == nil {
		err = do(object, server)
	}
	if err != nil {
		return &DirectError{Host: object.Name, cause: err}
	}
	return nil
}

// Seen is what a host shows of a VM.
type Seen struct {
	// State is "" if it shows no VM of the name with its marks.
	State lxdhost.State
	// Pool is the resource pool of the host.
	Pool string
	// At is when it was read.
	At time.Time
}

// Power returns the state in MAAS's words.
func (s Seen) Power() string {
	switch s.State {
	case lxdhost.StateRunning:
		return maas.PowerOn
	case lxdhost.StateStopped:
		return maas.PowerOff
	}
	return maas.PowerUnknown
}

// Observe returns what the host in VM.HostRef shows of a VM, as read at most maxAge ago: one list serves all VMs there.
// That a VM does not run is what the host shows now: it may have been started since the list was read.
func (i *images) Observe(ctx context.Context, vm VM, maxAge time.Duration) (Seen, error) {
	object, err := i.at(ctx, vm.HostRef)
	if err != nil {
		return Seen{}, err
	}
	called := time.Now()
	seen, err := i.observe(ctx, object, vm, maxAge)
	if err == nil && seen.State != lxdhost.StateRunning && seen.At.Before(called) {
		seen, err = i.observe(ctx, object, vm, 0)
	}
	return seen, err
}

func (i *images) observe(ctx context.Context, object *HostObject, vm VM, maxAge time.Duration) (Seen, error) {
	reading, err := i.read(ctx, object, maxAge)
	if err != nil {
		return Seen{}, &DirectError{Host: object.Name, cause: err}
	}
	isIt := func(there lxdhost.VM) bool { return there.Name == vm.Hostname && there.Marks.Prove(vm.Marks) }
	return Seen{At: reading.At, Pool: object.ResourcePool, State: list.First(reading.VMs, isIt).State}, nil
}

// Decompose deletes the VM on the host in VM.HostRef. Another's of that name is not changed. The device stays: see
// Deregister.
func (i *images) Decompose(ctx context.Context, permit maas.VMPermit, vm VM) error {
	if !permit.IsGiven() {
		return errNoPermit
	}
	return i.on(ctx, vm, func(object *HostObject, server *lxdhost.Host) error {
		err := server.Delete(ctx, vm.Hostname, vm.Marks, permit.SendBefore())
		if err != nil && lxdhost.KindOf(err) != lxdhost.KindConflict {
			return err
		}
		i.servers.Freed(object.Server)
		return nil
	})
}

// Find asks the LXD of the host for a VM; not for the one that runs on the host in VM.Elsewhere. That one which was
// deleted is gone is proven by a list of the host that began later.
func (i *images) Find(ctx context.Context, vm VM) (Presence, error) {
	object, err := i.object(ctx, vm.HostRef)
	if err != nil {
		return Presence{}, err
	}
	if object == nil {
		gone := &GoneLXDHostError{Ref: vm.HostRef}
		return Presence{State: Unreachable, Host: nameIn(vm.HostRef), Never: true, Why: gone}, nil
	}
	if !vm.DeletedAt.IsZero() {
		listed, err := i.lists(ctx, object, vm.Hostname, vm.DeletedAt)
		switch {
		case err != nil:
			return unreachable(object.Name, err), nil
		case !listed:
			return Presence{State: Gone, Host: object.Name}, nil
		}
	}
	server, err := i.server(ctx, object)
	if err == nil {
		err = server.Find(ctx, vm.Hostname, vm.Marks)
	}
	if err != nil {
		return notFound(object, err), nil
	}
	if isDirectRef(vm.Elsewhere) {
		own, err := i.object(ctx, vm.Elsewhere)
		switch {
		case err != nil:
			return Presence{}, err
		case own == nil: // It may be the one that runs.
			gone := &GoneLXDHostError{Ref: vm.Elsewhere}
			return Presence{State: Unreachable, Host: object.Name, After: directRetry, Why: gone}, nil
		case guard.Is[*OtherLXDError](own.Problem): // It says no more which LXD that one runs on.
			return Presence{State: Unreachable, Host: object.Name, After: directRetry, Why: own.Problem}, nil
		case own.Server.Project == object.Server.Project && own.isSameLXD(object): // Both LXDHosts lead to it.
			return Presence{State: Gone, Host: object.Name}, nil
		}
	}
	vm.Host, vm.HostFirst = object.Name, true
	return Presence{State: Present, Host: object.Name, VM: &vm}, nil
}

// Forget deletes what MAAS has of a VM that no host has any more: its device, or the machine of one that MAAS composed
// when it had VM hosts (DELETE machines/{id}/). It returns nil when MAAS has proven that a device is gone.
// *NameTakenError: the device does not have the mark, and is not changed.
func (i *images) Forget(ctx context.Context, permit maas.Permit, machine *maas.Machine, mark string) error {
	if machine.Device {
		return i.registrar.Unregister(ctx, permit, machine, mark)
	}
	err := i.registrar.client.DeleteMachine(ctx, permit, machine.SystemID)
	err = i.registrar.client.ProveGone(ctx, machine.SystemID, err)
	if err != nil && !errors.Is(err, maas.NotFound) {
		return fmt.Errorf("deleting machine %s: %w", machine.SystemID, err)
	}
	return nil
}

// FindDevice returns the device of a VM that was to be made on any of the hosts, whatever it is called by now; nil if
// MAAS shows none. *NameTakenError: the one that has the VM's MAC address or its name is not ours.
func (i *images) FindDevice(ctx context.Context, vm VM, mark string) (*maas.Machine, error) {
	want := registration{Hostname: vm.Hostname, Mark: mark,
		Cards: []card{{MAC: lxdhost.DeriveMAC(vm.Marks.Owner, vm.Hostname).String()}}}
	device, err := i.registrar.Find(ctx, want)
	if device == nil {
		return nil, err
	}
	return device.AsMachine(), err
}
