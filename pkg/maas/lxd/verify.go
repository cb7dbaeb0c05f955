// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// HostRef is id and name of a VM host. A host that was registered anew has the same name and another id; one whose name
// was changed keeps its id. ID 0 is one whose id is not known.
func (v *vmHosts) HostRef(host Host) string { return strconv.Itoa(host.ID) + "/" + host.Name }

func parseHostRef(place string) (id int, name string) {
	digits, name, _ := strings.Cut(place, "/")
	id, _ = strconv.Atoi(digits) // 0: looked for by its name.
	return id, name
}

// Find has MAAS look at the VM host (POST vm-hosts/{id}/ op=refresh), and then looks for the VM by its name. What MAAS finds on a host and does
// not know becomes a machine of the VM's name, or of any name where that is taken. It is commissioned, and has no owner.
func (v *vmHosts) Find(ctx context.Context, vm VM) (Presence, error) {
	since := v.looks.askedSince(vm.Hostname, vm.HostRef)
	var hosts []int
	failed := v.lookAt(ctx, vm.HostRef, func(id int) error {
		hosts = append(hosts, id)
		return v.looks.look(ctx, v.key(ctx, id), since, func(ctx context.Context) error {
			_, err := v.inventory.Client().RefreshVMHost(ctx, id)
			return err
		})
	})
	_, name := parseHostRef(vm.HostRef)
	var later *LaterError
	switch {
	case errors.As(failed, &later):
		return Presence{State: Pending, Host: name, After: later.After}, nil
	case errors.Is(failed, maas.Forbidden):
		return unreachable(name, failed), nil
	case isOurOwn(failed):
		return Presence{}, failed
	}
	// Also after a failure: another caller may have had MAAS look. And it tells a host that can't be reached from a MAAS that can't be.
	back, err := v.findBack(ctx, vm, hosts)
	switch {
	case err != nil:
		return Presence{}, err
	case back != nil:
		v.looks.forget(vm.Hostname) // Whether it is gone when it was deleted again, a later look must tell. Its deletion knows it by its name in MAAS.
		return Presence{State: Present, Host: back.Host, VM: back}, nil
	case failed != nil:
		return unreachable(name, failed), nil
	}
	v.looks.forget(vm.Hostname)
	return Presence{State: Gone, Host: name}, nil
}

// findBack finds a VM by its name, and one that may have got another by what it is called on its host.
func (v *vmHosts) findBack(ctx context.Context, vm VM, hosts []int) (*VM, error) {
	found, err := v.inventory.Client().ListMachines(ctx, maas.MachineFilter{Hostnames: []string{vm.Hostname}})
	if err != nil {
		return nil, fmt.Errorf("looking whether VM %s came back: %w", vm.Hostname, err)
	}
	for _, m := range found {
		if m.Pod != nil && m.SystemID != vm.SystemID && m.Unacquired() { // What another user acquired is theirs.
			return onHost(m), nil
		}
	}
	if !vm.Namesakes {
		return nil, nil
	}
	return v.findInstance(ctx, vm, hosts)
}

func onHost(m *maas.Machine) *VM {
	return &VM{SystemID: m.SystemID, Hostname: m.Hostname, Host: m.Pod.Name, HostID: m.Pod.ID}
}

// findInstance finds a VM of any name that LXD calls as we had it called (GET machines/, and op=power_parameters), if no user has acquired it:
// under its new name any user may take it.
func (v *vmHosts) findInstance(ctx context.Context, vm VM, ids []int) (*VM, error) {
	hosts, _, err := v.inventory.VMHosts(ctx, hostsMaxAge)
	if err != nil && !errors.Is(err, maas.Gone) {
		return nil, err
	}
	var filter maas.MachineFilter
	for _, host := range hosts {
		if slices.Contains(ids, host.ID) {
			filter.VMHosts = append(filter.VMHosts, host.Name)
		}
	}
	if len(filter.VMHosts) == 0 {
		return nil, nil // MAAS does not have the host any more, nor its VMs.
	}
	vms, err := v.inventory.Client().ListMachines(ctx, filter)
	if err != nil {
		return nil, fmt.Errorf("listing the VMs on %s: %w", strings.Join(filter.VMHosts, ", "), err)
	}
	vms = slices.DeleteFunc(vms, func(m *maas.Machine) bool { return m.Pod == nil || m.SystemID == vm.SystemID || !m.Unacquired() })
	systemIDs := make([]string, 0, len(vms))
	for _, m := range vms {
		systemIDs = append(systemIDs, m.SystemID)
	}
	names, err := v.inventory.Client().InstanceNames(ctx, systemIDs)
	if err != nil {
		return nil, fmt.Errorf("asking what the VMs on %s are called there: %w", strings.Join(filter.VMHosts, ", "), err)
	}
	for _, m := range vms {
		if names[m.SystemID] == vm.Hostname {
			return onHost(m), nil
		}
	}
	return nil, nil
}

// lookAt looks at the host of a place, wherever it is registered now. A host that MAAS does not have is no error. maas.Gone: this MAAS has no VM
// hosts any more, and can't look at any.
func (v *vmHosts) lookAt(ctx context.Context, place string, look func(id int) error) error {
	id, name := parseHostRef(place)
	if id != 0 {
		if err := look(id); !errors.Is(err, maas.NotFound) {
			return err
		}
	}
	hosts, _, err := v.inventory.VMHosts(ctx, hostsMaxAge)
	if err != nil {
		return err
	}
	for _, host := range hosts {
		if host.Name == name && host.ID != id {
			if err := look(host.ID); !errors.Is(err, maas.NotFound) {
				return err
			}
		}
	}
	return nil
}

// isOurOwn tells failures that say nothing about the host.
func isOurOwn(err error) bool {
	return errors.Is(err, maas.Forbidden) || errors.Is(err, maas.Unauthorized) || maas.NotSent(err) || errors.Is(err, context.Canceled)
}

func unreachable(host string, failed error) Presence {
	p := Presence{
		State: Unreachable, Host: host, After: firstLookRetry, Why: failed,
		Never: errors.Is(failed, maas.Gone) || errors.Is(failed, maas.Forbidden),
	}
	var look *lookFailedError
	if errors.As(failed, &look) {
		p.After = look.after
	}
	return p
}
