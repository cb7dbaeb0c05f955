// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// registrar keeps MAAS's devices of VMs that LXD makes from images: names, addresses and marks.
type registrar struct{ client *maas.Client }

// registration is the device that MAAS is to have for a VM.
type registration struct {
	Hostname, Zone string
	// Mark is the description, which is set in the call that makes the device.
	Mark        string
	Annotations map[string]string
	Cards       []card
}

// card is a network card: its MAC address, and the subnet of its address. Without an address MAAS chooses one; without
// a subnet there is none.
type card struct {
	MAC string
	// Name is the VM's for it; "": eth0, eth1 and so on.
	Name    string
	Subnet  netip.Prefix
	Address netip.Addr
}

// in returns which interface of a device the card is; below 0: none.
func (c card) in(device *maas.Device) int {
	return slices.IndexFunc(device.Interfaces, func(nic *maas.Interface) bool {
		return strings.EqualFold(nic.MACAddress, c.MAC)
	})
}

// NameTakenError means that a machine or a device that is not ours has the VM's name or one of its MAC addresses. It
// was not changed.
type NameTakenError struct {
	Hostname string
	// SystemID and Owner are the device's; "" if MAAS shows none of the name.
	SystemID, Owner string
	cause           error
}

// Error says what is in the way.
func (e *NameTakenError) Error() string {
	if e.SystemID == "" {
		return fmt.Sprintf("MAAS has another machine or device with the name %s or a MAC address of it: %s", e.Hostname,
			maas.Message(e.cause))
	}
	return fmt.Sprintf("MAAS has the device %s (%s) of user %q, which is not ours", e.Hostname, e.SystemID, e.Owner)
}

// Unwrap returns MAAS's refusal, if there was one.
func (e *NameTakenError) Unwrap() error { return e.cause }

// Register makes the device, or goes on with the one that an earlier call made, until each card has its address. It is
// called again only when nothing of an earlier call may take effect any more: MAAS would give a card two addresses.
// *NameTakenError: nothing was changed.
//
// A device that an earlier call made for a host in another zone or subnet, or that was renamed, is deleted, and made
// anew: nothing runs with its addresses yet.
//
// It calls POST devices/, for each card with a subnet POST nodes/ID/interfaces/ID/ op=link_subnet, and POST devices/ID/
// op=set_workload_annotations.
func (r *registrar) Register(ctx context.Context, permit maas.Permit, want registration) (*maas.Device, error) {
	device, err := r.made(ctx, permit, want)
	if err != nil {
		return nil, err
	}
	for _, c := range want.Cards {
		if err := r.link(ctx, permit, device, c); err != nil {
			return nil, err
		}
	}
	if hasAll(device.WorkloadAnnotations, want.Annotations) {
		return device, nil
	}
	marked, err := r.client.AnnotateDevice(ctx, permit, device.SystemID, want.Annotations)
	if err != nil {
		return nil, fmt.Errorf("annotating device %s: %w", device.SystemID, err)
	}
	return marked, want.accepts(marked)
}

// made returns the device of the VM, which is made if there is none, or if it is for another host or was renamed.
func (r *registrar) made(ctx context.Context, permit maas.Permit, want registration) (*maas.Device, error) {
	device, err := r.make(ctx, permit, want)
	if !maas.InvalidField(err, "hostname") && !maas.InvalidField(err, "mac_addresses") {
		return device, err
	}
	found, failed := r.Find(ctx, want)
	switch {
	case failed != nil:
		return nil, failed
	case found == nil:
		return nil, &NameTakenError{Hostname: want.Hostname, cause: err}
	case want.fits(found):
		return found, nil
	}
	// It was for another host, or was renamed. Nothing runs with its addresses.
	if err := r.Unregister(ctx, permit, found.AsMachine(), want.Mark); err != nil {
		return nil, err
	}
	return r.make(ctx, permit, want)
}

func (r *registrar) make(ctx context.Context, permit maas.Permit, want registration) (*maas.Device, error) {
	device, err := r.client.CreateDevice(ctx, permit, maas.CreateDeviceParams{
		Hostname: want.Hostname, Zone: want.Zone, Description: want.Mark,
		MACAddresses: list.Each(want.Cards, func(c card) string { return c.MAC }),
	})
	if err != nil {
		return nil, fmt.Errorf("making device %s: %w", want.Hostname, err)
	}
	return device, want.accepts(device)
}

// fits reports whether a device has the name and the zone, and no address but those that are wanted.
func (want registration) fits(device *maas.Device) bool {
	for _, nic := range device.Interfaces {
		at := slices.IndexFunc(want.Cards, func(c card) bool { return strings.EqualFold(nic.MACAddress, c.MAC) })
		for _, link := range nic.Links {
			ip, err := netip.ParseAddr(link.IPAddress)
			if err == nil && (at < 0 || !want.Cards[at].mayHave(ip)) {
				return false
			}
		}
	}
	return device.Hostname == want.Hostname && (want.Zone == "" || device.Zone.Name == want.Zone)
}

func (c card) mayHave(ip netip.Addr) bool {
	return c.Subnet.IsValid() && c.Subnet.Contains(ip) && (!c.Address.IsValid() || c.Address == ip)
}

// Find returns the device that an earlier call made, whatever it is called by now; nil if MAAS shows none with the MAC
// address of the first card, nor with the name. *NameTakenError: it is not ours. It calls GET devices/, at most twice,
// and GET users/ op=whoami if there is one.
func (r *registrar) Find(ctx context.Context, want registration) (*maas.Device, error) {
	for _, filter := range []maas.DeviceFilter{
		{MACAddresses: []string{want.Cards[0].MAC}}, {Hostnames: []string{want.Hostname}},
	} {
		found, err := r.client.ListDevices(ctx, filter)
		if err != nil {
			return nil, fmt.Errorf("searching for device %s: %w", want.Hostname, err)
		}
		if len(found) > 0 {
			return r.prove(ctx, want, found[0])
		}
	}
	return nil, nil
}

// prove returns a device that is ours; otherwise the error is a *NameTakenError.
func (r *registrar) prove(ctx context.Context, want registration, device *maas.Device) (*maas.Device, error) {
	user, err := r.client.WhoAmI(ctx)
	if err != nil {
		return nil, fmt.Errorf("asking MAAS who we are: %w", err)
	}
	if device.Owner != user.Username || !want.marks(device) {
		return nil, want.takenBy(device)
	}
	return device, nil
}

// marks reports whether a device has the mark and the MAC addresses. With our user as its owner, they prove that it is
// ours: only that user and administrators can have given it the mark. Its name proves nothing, and may be another.
func (want registration) marks(device *maas.Device) bool {
	lacks := func(c card) bool { return c.in(device) < 0 }
	return device.Description == want.Mark && !slices.ContainsFunc(want.Cards, lacks)
}

// accepts returns a *NameTakenError if a device is not as it was asked for.
func (want registration) accepts(device *maas.Device) error {
	if device.Hostname == want.Hostname && want.marks(device) {
		return nil
	}
	return want.takenBy(device)
}

func (want registration) takenBy(device *maas.Device) error {
	return &NameTakenError{Hostname: want.Hostname, SystemID: device.SystemID, Owner: device.Owner}
}

// link gives a card its address, unless it has one.
func (r *registrar) link(ctx context.Context, permit maas.Permit, device *maas.Device, c card) error {
	if !c.Subnet.IsValid() {
		return nil
	}
	if _, has := c.linkOf(device); has.IsValid() {
		return c.accepts(device)
	}
	params := maas.LinkParams{Mode: maas.LinkModeStatic, Subnet: c.Subnet.Masked().String()}
	if c.Address.IsValid() {
		params.IPAddress = c.Address.String()
	}
	at := c.in(device) // accepts has seen it.
	linked, err := r.client.LinkSubnet(ctx, permit, device.SystemID, device.Interfaces[at].ID, params)
	if c.Address.IsValid() && (errors.Is(err, maas.NotFound) || errors.Is(err, maas.Conflict)) {
		if _, failed := r.client.GetDevice(ctx, device.SystemID); failed == nil { // So it is not the device that is gone.
			return &OtherAddressError{SystemID: device.SystemID, Subnet: c.Subnet, Wanted: c.Address, Taken: maas.Message(err)}
		}
	}
	if err != nil {
		return fmt.Errorf("giving device %s an address of %s: %w", device.SystemID, c.Subnet, err)
	}
	device.Interfaces[at] = linked
	return c.accepts(device)
}

// OtherAddressError means that a card's address in MAAS is not what it was asked for.
type OtherAddressError struct {
	SystemID string
	Subnet   netip.Prefix
	// Wanted is the zero value for any address of the subnet; so is Has for none.
	Wanted, Has netip.Addr
	// Taken is what MAAS says if something else has the wanted one; else "".
	Taken string
}

// Error says which it is.
func (e *OtherAddressError) Error() string {
	if e.Taken != "" {
		return fmt.Sprintf("the static address %v is taken: free it in MAAS, or use another one; several "+
			"machines need a pool of addresses (spec.staticIPPoolRef) (MAAS: %s)", e.Wanted,
			e.Taken)
	}
	return fmt.Sprintf("device %s has the address %v of the subnet %s in MAAS, not %v", e.SystemID, e.Has, e.Subnet,
		e.Wanted)
}

func (c card) accepts(device *maas.Device) error {
	if _, has := c.linkOf(device); !has.IsValid() || (c.Address.IsValid() && has != c.Address) {
		return &OtherAddressError{SystemID: device.SystemID, Subnet: c.Subnet, Wanted: c.Address, Has: has}
	}
	return nil
}

// Unregister deletes a device that was seen, and returns nil when MAAS has proven that it is gone: it has deleted it,
// or does not list it (DELETE devices/ID/), and does not find it (GET devices/ID/). One without the mark is not
// deleted.
func (r *registrar) Unregister(ctx context.Context, permit maas.Permit, device *maas.Machine, mark string) error {
	if device.Description != mark {
		return &NameTakenError{Hostname: device.Hostname, SystemID: device.SystemID, Owner: device.Owner}
	}
	err := r.client.DeleteDevice(ctx, permit, device.SystemID)
	err = r.client.ProveGone(ctx, device.SystemID, err)
	if err != nil && !errors.Is(err, maas.NotFound) {
		return fmt.Errorf("deleting device %s: %w", device.SystemID, err)
	}
	_, err = r.client.GetDevice(ctx, device.SystemID)
	switch {
	case errors.Is(err, maas.NotFound):
		return nil
	case err != nil:
		return fmt.Errorf("looking whether device %s is gone: %w", device.SystemID, err)
	}
	return fmt.Errorf("deleting device %s: %w", device.SystemID, errStillThere)
}

// errStillThere means that MAAS still has what it has deleted.
var errStillThere = errors.New("MAAS still has it")

func hasAll(has, want map[string]string) bool {
	for key, value := range want {
		if has[key] != value {
			return false
		}
	}
	return true
}
