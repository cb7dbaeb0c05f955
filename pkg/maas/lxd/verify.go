// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// Find makes MAAS refresh the VM host (POST vm-hosts/{id}/ op=refresh), and then searches for the VM by its name. MAAS
// creates a machine for each unknown VM on the host, under the VM's name, or under any name if that is taken. It is
// commissioned, and has no owner.
func (v *vmHosts) Find(ctx context.Context, vm VM) (Presence, error) {
	since := v.refresher.askedSince(v.vm(vm.Hostname), vm.HostRef)
	var hosts []int
	failed := v.refreshAt(ctx, vm.HostRef, func(id int) error {
		hosts = append(hosts, id)
		return v.refresher.refresh(ctx, v.key(id), since, func(ctx context.Context) error {
			_, err := v.inventory.Client().RefreshVMHost(ctx, id)
			return err
		})
	})
	_, name := parseHostRef(vm.HostRef)
	var later *guard.LaterError
	switch {
	case errors.As(failed, &later):
		return Presence{State: Pending, Host: name, After: later.After}, nil
	case errors.Is(failed, maas.Forbidden):
		return unreachable(name, failed), nil
	case isOurOwn(failed):
		return Presence{}, failed
	}
	// Also after a failure: another caller may have refreshed the host. And it distinguishes an unreachable host from
	// an unreachable MAAS.
	back, err := v.findBack(ctx, vm, hosts)
	switch {
	case err != nil:
		return Presence{}, err
	case back != nil:
		// After it was deleted again, a later refresh must show that it is gone. The deletion uses its name in MAAS.
		v.refresher.forget(v.vm(vm.Hostname))
		return Presence{State: Present, Host: back.Host, VM: back}, nil
	case failed != nil:
		return unreachable(name, failed), nil
	}
	v.refresher.forget(v.vm(vm.Hostname))
	return Presence{State: Gone, Host: name}, nil
}

// findBack finds a VM by its name, or, if it may have another name in MAAS, by its name on the host.
func (v *vmHosts) findBack(ctx context.Context, vm VM, hosts []int) (*VM, error) {
	found, err := v.inventory.Client().ListMachines(ctx, maas.MachineFilter{Hostnames: []string{vm.Hostname}})
	if err != nil {
		return nil, fmt.Errorf("searching for VM %s in MAAS: %w", vm.Hostname, err)
	}
	// A VM that another user acquired is theirs.
	found, err = v.deletable(ctx, vm.Mark, list.Where(found, func(m *maas.Machine) bool {
		return m.Pod != nil && m.SystemID != vm.SystemID
	}))
	if err != nil || len(found) > 0 {
		return v.firstOf(found, vm), err
	}
	if !vm.Namesakes {
		return nil, nil
	}
	return v.findInstance(ctx, vm, hosts)
}

// firstOf returns the first of the machines as the VM that was searched for; nil if there is none.
func (v *vmHosts) firstOf(found []*maas.Machine, vm VM) *VM {
	if len(found) == 0 {
		return nil
	}
	m := found[0]
	ref := HostRef(Host{ID: m.Pod.ID, Name: m.Pod.Name})
	return &VM{SystemID: m.SystemID, Hostname: m.Hostname, Host: m.Pod.Name, HostID: m.Pod.ID, HostRef: ref, Mark: vm.Mark,
		Machine: m}
}

// findInstance finds a VM by its name in LXD (GET machines/, and op=power_parameters), unless another user has acquired
// it: under its new name in MAAS any user may take it.
func (v *vmHosts) findInstance(ctx context.Context, vm VM, ids []int) (*VM, error) {
	hosts, _, err := v.inventory.AnyVMHosts(ctx, hostsMaxAge)
	if err != nil {
		return nil, err
	}
	hosts = list.Where(hosts, func(host maas.VMHost) bool { return slices.Contains(ids, host.ID) })
	filter := maas.MachineFilter{VMHosts: list.Each(hosts, func(host maas.VMHost) string { return host.Name })}
	if len(filter.VMHosts) == 0 {
		return nil, nil // MAAS no longer has the host, nor its VMs: refreshAt says so.
	}
	vms, err := v.inventory.Client().ListMachines(ctx, filter)
	if err != nil {
		return nil, fmt.Errorf("listing the VMs on %s: %w", strings.Join(filter.VMHosts, ", "), err)
	}
	vms, err = v.deletable(ctx, vm.Mark, list.Where(vms, func(m *maas.Machine) bool {
		return m.Pod != nil && m.SystemID != vm.SystemID
	}))
	if err != nil {
		return nil, err
	}
	systemIDs := list.Each(vms, func(m *maas.Machine) string { return m.SystemID })
	names, err := v.inventory.Client().InstanceNames(ctx, systemIDs)
	if err != nil {
		return nil, fmt.Errorf("reading the names of the VMs on %s: %w", strings.Join(filter.VMHosts, ", "), err)
	}
	return v.firstOf(list.Where(vms, func(m *maas.Machine) bool { return names[m.SystemID] == vm.Hostname }), vm), nil
}

// refreshAt calls refresh for the host of a reference, under any id that it has now. *MissingVMHostError: it has none.
// maas.Gone: this MAAS no longer has VM hosts.
func (v *vmHosts) refreshAt(ctx context.Context, ref string, refresh func(id int) error) error {
	id, name := parseHostRef(ref)
	if id != 0 {
		if err := refresh(id); !errors.Is(err, maas.NotFound) {
			return err
		}
	}
	hosts, _, err := v.inventory.VMHosts(ctx, hostsMaxAge)
	if err != nil {
		return err
	}
	for _, host := range hosts {
		if host.Name == name && host.ID != id {
			if err := refresh(host.ID); !errors.Is(err, maas.NotFound) {
				return err
			}
		}
	}
	return &MissingVMHostError{VMHost: name}
}

// isOurOwn reports whether an error is unrelated to the host.
func isOurOwn(err error) bool {
	return errors.Is(err, maas.Forbidden) || errors.Is(err, maas.Unauthorized) || maas.NotSent(err) ||
		errors.Is(err, context.Canceled)
}

func unreachable(host string, failed error) Presence {
	p := Presence{
		State: Unreachable, Host: host, After: firstRefreshRetry, Why: failed,
		Never: errors.Is(failed, maas.Gone) || errors.Is(failed, maas.Forbidden),
	}
	var failure *refreshFailedError
	if errors.As(failed, &failure) {
		p.After = failure.after
	}
	return p
}
