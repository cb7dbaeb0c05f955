// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"context"
	"errors"
	"fmt"

	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
)

// NoSuccessorError means that MAAS has no VM hosts any more, and that VMs on one of them can't be reached otherwise
// yet.
type NoSuccessorError struct {
	// VMHost is the name of the former VM host.
	VMHost string
	// LXDHost is namespace/name of its object, which lacks what leads to LXD; "" if there is none.
	LXDHost string
}

// Error names the remedy.
func (e *NoSuccessorError) Error() string {
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
	missing := &NoSuccessorError{VMHost: name}
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
		host, err := i.adoptOn(ctx, vm, addresses)
		if lxdhost.KindOf(err) != lxdhost.KindNotFound {
			return ref, host, err
		}
	}
	return "", nil, nil
}

func (i *images) adoptOn(ctx context.Context, vm VM, addresses []string) (*Host, error) {
	object, err := i.former(ctx, vm)
	if err != nil {
		return nil, err
	}
	if err := i.adopt(ctx, object, vm, addresses); err != nil {
		return nil, &DirectError{Host: object.Name, cause: err}
	}
	host := unread(object)
	return &host, nil
}

func (i *images) adopt(ctx context.Context, object *HostObject, vm VM, addresses []string) error {
	server, err := i.server(ctx, object)
	if err != nil {
		return err
	}
	return server.Adopt(ctx, vm.Hostname, vm.Marks, addresses)
}

// findFormer looks for a VM that MAAS does not have any more on what was its VM host. Its addresses prove that it is
// ours, or our marks. Of one that has the name alone nobody knows: it is left. asked is what came of asking MAAS.
func (i *images) findFormer(ctx context.Context, vm VM, asked Presence) (Presence, error) {
	object, err := i.former(ctx, vm)
	var missing *NoSuccessorError
	if errors.As(err, &missing) {
		asked.Why, asked.Never = err, missing.LXDHost == ""
		return asked, nil
	}
	if err != nil {
		return Presence{}, err
	}
	if err := i.adopt(ctx, object, vm, vm.Addresses); err != nil {
		if len(vm.Addresses) == 0 && lxdhost.KindOf(err) == lxdhost.KindConflict {
			return Presence{State: Unreachable, Host: object.Name, Never: true, Why: err}, nil
		}
		return notFound(object, err), nil
	}
	vm.HostRef = i.HostRef(unread(object))
	vm.HostFirst = true
	return i.Find(ctx, vm)
}
