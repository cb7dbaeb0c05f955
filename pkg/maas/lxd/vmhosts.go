// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdapi"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
)

const (
	// hostsMaxAge is how old the hosts' figures may be; reservations cover what happened since.
	hostsMaxAge = 30 * time.Second
	// projectMaxAge is how old a host's LXD project may be. It is part of its power parameters.
	projectMaxAge = 10 * time.Minute

	gigabyte = 1_000_000_000 // as in compose
)

// vmHosts composes through MAAS's VM hosts (up to MAAS 3.8).
type vmHosts struct {
	inventory *inventory.Inventory
	refresher *HostRefresher
}

// Hosts returns MAAS's LXD VM hosts (GET vm-hosts/) with the state of their machines (GET machines/).
func (v *vmHosts) Hosts(ctx context.Context, _ VMSpec, maxAge time.Duration) ([]Host, error) {
	vmHosts, at, err := v.inventory.VMHosts(ctx, maxAge)
	if err != nil {
		return nil, fmt.Errorf("listing VM hosts: %w", err)
	}
	machines, err := v.inventory.HostMachines(ctx, maxAge)
	if err != nil {
		return nil, fmt.Errorf("listing the machines of VM hosts: %w", err)
	}
	hosts := make([]Host, 0, len(vmHosts))
	for _, h := range vmHosts {
		if h.Type == maas.VMHostTypeLXD {
			host := toHost(h, at)
			host.Server = v.inventory.Client().Server()
			host.Machine = toHostMachine(h.Host.SystemID, machines[h.Host.SystemID])
			hosts = append(hosts, host)
		}
	}
	v.refresher.markCoolingDown(hosts)
	return hosts, nil
}

func toHost(h maas.VMHost, at time.Time) Host {
	host := Host{
		ID: h.ID, Name: h.Name, MachineID: h.Host.SystemID, Zone: h.Zone.Name, ZoneID: h.Zone.ID, Pool: h.Pool.Name,
		PoolID: h.Pool.ID, Tags: h.Tags,
		Capacity: Resources{
			Cores:  int(float64(h.Total.Cores) * h.CPUOverCommit),
			Memory: int(float64(h.Total.Memory) * h.MemoryOverCommit),
			Disk:   int(h.Total.LocalStorage / gigabyte),
		},
		Largest:   Resources{Cores: h.Total.Cores, Memory: h.Total.Memory, Disk: int(h.Total.LocalStorage / gigabyte)},
		Used:      Resources{Cores: h.Used.Cores, Memory: h.Used.Memory, Disk: int(h.Used.LocalStorage / gigabyte)},
		Reachable: h.ResourcesKnown(),
		SeenAt:    at,
	}
	if len(h.Architectures) > 0 {
		host.Architecture = h.Architectures[0] // It is the one that compose takes by default.
	}
	if !lxdapi.OfVersion(h.Version).TakesMAAS() {
		host.TooNew = h.Version
	}
	for _, pool := range h.StoragePools {
		host.StoragePools = append(host.StoragePools, StoragePool{
			Name: pool.Name, Available: int(pool.Available / gigabyte), Default: pool.Default,
		})
	}
	return host
}

// Project returns the project in the host's power parameters (GET vm-hosts/{id}/ op=parameters).
func (v *vmHosts) Project(ctx context.Context, host Host) (string, error) {
	project, err := v.inventory.VMHostProject(ctx, host.ID, projectMaxAge)
	if err != nil {
		return "", fmt.Errorf("reading the LXD project of VM host %s: %w", host.Name, err)
	}
	return project, nil
}

// Compose makes MAAS compose the VM (POST vm-hosts/{id}/ op=compose).
func (v *vmHosts) Compose(ctx context.Context, permit maas.Permit, host Host, spec VMSpec) (VM, error) {
	// What can't be read now does not matter: MAAS, if it can't be reached, makes no VM either.
	now, _, _ := v.inventory.VMHosts(ctx, hostsMaxAge)
	if is := list.Find(now, func(h maas.VMHost) bool { return h.ID == host.ID }); is != nil {
		host.Tags = is.Tags
	}
	if err := mayStill(&host, &spec); err != nil {
		return VM{}, err
	}
	done, err := v.refresher.compose(ctx, host.Key())
	if err != nil {
		return VM{}, err
	}
	defer done()
	v.refresher.forget(v.vm(spec.Hostname))
	systemID, err := v.inventory.Client().Compose(ctx, permit, host.ID, composition(host, spec))
	if err != nil {
		return VM{}, err
	}
	return VM{
		SystemID: systemID, Hostname: spec.Hostname, Host: host.Name, HostID: host.ID, HostRef: HostRef(host),
		Project:     spec.Project,
		Commissions: spec.Commission,
	}, nil
}

// composition is what MAAS is asked for.
func composition(host Host, spec VMSpec) maas.ComposeParams {
	return maas.ComposeParams{
		Hostname: spec.Hostname, Cores: spec.Cores, Memory: spec.Memory,
		Storage: storage(spec.disks()), Interfaces: interfaces(spec.Devices),
		ZoneID: host.ZoneID, PoolID: host.PoolID, SkipCommissioning: !spec.Commission,
	}
}

// comment is that of the calls here, for people who read MAAS's events.
const comment = "cluster-api-provider-maas"

// claim acquires a VM that is to be deleted, if no user of MAAS has it (GET machines/{id}/, POST machines/
// op=allocate): another one could take it before it is deleted, and MAAS may do that late. What MAAS does not let
// anybody allocate needs no claim, nor one that the caller has proven to be acquired by us.
func (v *vmHosts) claim(ctx context.Context, permit maas.Permit, vm VM) error {
	known := vm.Machine != nil && (vm.Machine.Device || !vm.Machine.Unacquired())
	if known || vm.SystemID == "" || (vm.HostFirst && vm.Machine == nil) {
		return nil
	}
	now, err := v.inventory.Client().GetMachine(ctx, vm.SystemID)
	if err != nil {
		return fmt.Errorf("reading machine %s, which is to be deleted: %w", vm.SystemID, err)
	}
	if !now.Unacquired() {
		ours, err := v.deletable(ctx, vm.Mark, []*maas.Machine{now})
		if err == nil && len(ours) == 0 {
			err = &TakenError{Machine: now}
		}
		return err
	}
	if now.Status != maas.StatusReady {
		return nil
	}
	_, err = v.inventory.Change(vm.SystemID, func(client *maas.Client) (*maas.Machine, error) {
		return client.AllocateMachine(ctx, permit, maas.AllocateParams{AgentName: vm.Mark, Comment: comment,
			SystemID: vm.SystemID})
	})
	if err != nil {
		return fmt.Errorf("claiming machine %s, which is to be deleted: %w", vm.SystemID, err)
	}
	return nil
}

// deletable returns those of the machines that no user has acquired, or that were acquired under a mark: such a one was
// claimed to be deleted (GET machines/).
func (v *vmHosts) deletable(ctx context.Context, mark string, machines []*maas.Machine) ([]*maas.Machine, error) {
	free := list.Where(machines, (*maas.Machine).Unacquired)
	if len(free) == len(machines) || mark == "" {
		return free, nil
	}
	ours, err := v.inventory.Client().ListMachines(ctx, maas.MachineFilter{AgentNames: []string{mark}})
	if err != nil {
		return nil, fmt.Errorf("searching for machines of %s: %w", mark, err)
	}
	return list.Where(machines, func(m *maas.Machine) bool {
		return m.Unacquired() || slices.ContainsFunc(ours, func(our *maas.Machine) bool { return our.SystemID == m.SystemID })
	}), nil
}

// Decompose deletes the VM's machine; MAAS then deletes the VM (DELETE machines/{id}/).
func (v *vmHosts) Decompose(ctx context.Context, permit maas.VMPermit, vm VM) error {
	defer v.refresher.remove(v.key(vm.HostID), v.vm(vm.Hostname))()
	return v.inventory.Client().DeleteMachine(ctx, permit.Machine(), vm.SystemID)
}

// key returns the HostKey of a VM host.
func (v *vmHosts) key(id int) HostKey { return VMHostKey(v.inventory.Client().Server(), id) }

// vm returns the key of a VM.
func (v *vmHosts) vm(hostname string) guard.Key { return v.inventory.Client().Server().Key(hostname) }

// storage returns disks in the form of MAAS's constraint: label:GB(pool),label:GB(pool).
func storage(disks []Disk) string {
	constraints := make([]string, 0, len(disks))
	for i, disk := range disks {
		label := "root"
		if i > 0 {
			label = fmt.Sprintf("disk%d", i)
		}
		constraint := fmt.Sprintf("%s:%d", label, disk.Size)
		if disk.Pool != "" {
			constraint += "(" + disk.Pool + ")"
		}
		constraints = append(constraints, constraint)
	}
	return strings.Join(constraints, ",")
}

// interfaces returns devices in the form of MAAS's constraint: label:key=value;label:key=value.
func interfaces(devices []Device) string {
	constraints := make([]string, 0, len(devices))
	for _, device := range devices {
		constraint := "name=" + device.Bridge
		if device.Subnet != "" {
			constraint = "subnet_cidr=" + device.Subnet
		}
		constraints = append(constraints, device.Name+":"+constraint)
	}
	return strings.Join(constraints, ";")
}
