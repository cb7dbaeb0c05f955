// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"context"
	"errors"
	"fmt"

	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
)

// FormerHostError means that MAAS has no VM hosts any more, and that VMs on one of them can't be reached otherwise
// yet.
type FormerHostError struct {
	// VMHost is the name of the former VM host.
	VMHost string
	// LXDHost is namespace/name of its object, which lacks what leads to LXD; "" if there is none.
	LXDHost string
}

// Error names the remedy.
func (e *FormerHostError) Error() string {
	if e.LXDHost == "" {
		return fmt.Sprintf("this MAAS has no VM hosts any more, and VM host %s has no LXDHost: delete its VMs in LXD",
			e.VMHost)
	}
	return fmt.Sprintf("this MAAS has no VM hosts any more: set address, serverCertificate and credentialsRef in the "+
		"LXDHost %s, which was VM host %s",
		e.LXDHost, e.VMHost)
}

// former returns the LXDHost that was the VM host of a VM, as far as it leads to LXD, and allows the VM's namespace:
// what it says of a VM decides whether that is gone.
func (i *images) former(ctx context.Context, vm VM) (*HostObject, error) {
	objects, err := i.objects.HostObjects(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing LXDHosts: %w", err)
	}
	id, name := parseHostRef(vm.HostRef)
	missing := &FormerHostError{VMHost: name}
	for at := range objects {
		o := &objects[at]
		switch {
		case o.VMHostID == 0 || (id != 0 && o.VMHostID != id) || (id == 0 && o.Name != name) || !o.Allows(vm.Namespace):
		case o.Direct:
			return o.opened(ctx, "", 0), nil
		default:
			missing.LXDHost = o.Namespace + "/" + o.Name
		}
	}
	return nil, missing
}

// Adopt marks the VM in LXD (PATCH instances/NAME), on the first of the recorded VM hosts that has it.
func (i *images) Adopt(ctx context.Context, vm VM, recorded, addresses []string) (string, *Host, error) {
	for _, ref := range vmHostRefs(recorded) {
		vm.HostRef = ref
		object, err := i.adopt(ctx, vm, addresses)
		if err == nil {
			host := unread(object)
			return ref, &host, nil
		}
		if lxdhost.KindOf(err) != lxdhost.KindNotFound {
			return ref, nil, err
		}
	}
	return "", nil, nil
}

// adopt marks the VM on what was the VM host in VM.HostRef, and returns that; nil if nothing leads there.
func (i *images) adopt(ctx context.Context, vm VM, addresses []string) (*HostObject, error) {
	object, err := i.former(ctx, vm)
	if err != nil {
		return nil, err
	}
	server, err := i.server(ctx, object)
	if err == nil {
		err = server.Adopt(ctx, vm.Hostname, vm.Marks, addresses)
	}
	if err != nil {
		return object, &DirectError{Host: object.Name, cause: err}
	}
	return object, nil
}

// findFormer looks for a VM that MAAS does not have any more on what was its VM host. Its addresses prove that it is
// ours, or our marks. One that has the name alone is not known to be ours: it is left. asked is what MAAS said.
func (i *images) findFormer(ctx context.Context, vm VM, asked Presence) (Presence, error) {
	object, err := i.adopt(ctx, vm, vm.Addresses)
	missing, is := errors.AsType[*FormerHostError](err)
	switch {
	case is:
		asked.Why, asked.Never = err, missing.LXDHost == ""
		return asked, nil
	case object == nil:
		return Presence{}, err
	case len(vm.Addresses) == 0 && lxdhost.KindOf(err) == lxdhost.KindConflict:
		return Presence{State: Unreachable, Host: object.Name, Never: true, Why: err}, nil
	case err != nil:
		return notFound(object, err), nil
	}
	vm.HostRef = DirectRef(object.Namespace, object.Name)
	return i.Find(ctx, vm)
}
