// SPDX-License-Identifier: Apache-2.0

// Package lxd places LXD virtual machines on hosts, and has them created and removed.
//
// Placement is pure (place.go); what happens on a host is behind the Composer seam, because MAAS 3.8 has no VM hosts
// any more. Nothing above that seam may know about vm-hosts.
package lxd

import (
	"context"
	"fmt"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// Composer creates and removes VMs on LXD hosts.
type Composer interface {
	// Hosts returns all LXD hosts. Their figures are from the time in Host.SeenAt.
	Hosts(ctx context.Context) ([]Host, error)
	// Project returns the LXD project that VMs on a host are created in.
	Project(ctx context.Context, host Host) (string, error)
	// Compose creates a VM. After an error the VM may exist all the same: look for it by VMSpec.Hostname.
	Compose(ctx context.Context, permit maas.Permit, host Host, spec VMSpec) (VM, error)
	// Decompose removes a VM from MAAS and from its host. The caller waits until MAAS does not have it any more, and then looks for it on its host: Find.
	Decompose(ctx context.Context, permit maas.Permit, vm VM) error
	// HostRef is how a host is recorded, for VM.HostRef: one line without commas, to be kept for as long as a VM may be there.
	HostRef(host Host) string
	// Find looks for a VM on the host in VM.HostRef, where it was or may have been made, though MAAS does not know it. The error says that MAAS
	// can't be asked. A host that is gone has no VMs.
	Find(ctx context.Context, vm VM) (Presence, error)
}

// State is what is known of a VM on a host.
type State int

const (
	// Gone means that the host does not have it.
	Gone State = iota
	// Present means that the host has it, and by now MAAS has it again.
	Present
	// Pending means that MAAS is still looking, or waits for others who look. Look again after Presence.After.
	Pending
	// Unreachable means that MAAS can't look at the host, for the reason in Presence.Why. Look again after Presence.After.
	Unreachable
)

// Presence is what is known of a VM on a host.
type Presence struct {
	State State
	Host  string // the VM host's name
	VM    *VM    // the one that is Present
	After time.Duration
	Why   error // MAAS's error
	// Never means that it will stay Unreachable: MAAS has no VM hosts any more, or does not let the key's user look at them (maas.Forbidden).
	Never bool
}

// Host is an LXD host that VMs can be placed on.
type Host struct {
	ID           int
	Name         string
	Zone, Pool   string
	ZoneID       int
	PoolID       int
	Tags         []string
	StoragePools []StoragePool
	// Architecture of its VMs, as MAAS names it: amd64/generic. "" while it is not known.
	Architecture string
	// Capacity has over-commit worked in; Used is what MAAS says. Cores, MiB and GB.
	Capacity, Used Resources
	// Largest is the most that a single VM can have: over-commit is for all VMs together.
	Largest Resources
	// Reachable is false while MAAS has never reached the host, or does not know its resources yet.
	Reachable bool
	// CooldownUntil is set while nothing is composed on the host because of what it lately FailedTo do: compose a VM, or answer MAAS.
	CooldownUntil time.Time
	FailedTo      string
	// SeenAt is when the figures were asked for.
	SeenAt time.Time
	// MachineID is the system id of the machine that the host runs on; "" where MAAS does not tell.
	MachineID string
	// Machine is what is known of it; nil where MAAS does not show it.
	Machine *HostMachine
}

// Key tells the host apart from all others, by whatever URL its MAAS is reached.
func (h *Host) Key() HostKey { return hostKey(h.ID, h.MachineID) }

// HostKey is a VM host of any MAAS. Each MAAS numbers its own, and gives machines random system ids.
type HostKey string

func hostKey(id int, machineID string) HostKey {
	return HostKey(fmt.Sprintf("%d on %s", id, machineID))
}

// StoragePool is a storage pool of a host; Available is in GB.
type StoragePool struct {
	Name      string
	Available int
	Default   bool
}

// Resources are cores, memory in MiB, and disk in GB.
type Resources struct {
	Cores, Memory, Disk int
}

func (r Resources) add(other Resources) Resources {
	return Resources{sum(r.Cores, other.Cores), sum(r.Memory, other.Memory), sum(r.Disk, other.Disk)}
}

// VMSpec is what a VM shall be like, and where it may be placed.
type VMSpec struct {
	// Hostname is unique over all of MAAS, and the mark that the VM is found again by.
	Hostname string
	// Cluster groups VMs that are spread over zones and hosts: those of a cluster and a role.
	Cluster string
	Resources

	// Zone, ResourcePool, HostName, Project, StoragePool, Bridge and Tags limit the hosts, where they are not empty.
	Zone, ResourcePool, HostName, Project, StoragePool string
	Profile                                            string
	Tags                                               []string
	// AntiAffinity says whether the VM may share a host with others of its cluster.
	AntiAffinity AntiAffinity
	// Devices are the VM's network interfaces; none: MAAS chooses.
	Devices []Device
	// Commission has MAAS commission the VM before it is Ready.
	Commission bool
}

// Device is a network interface, on a bridge of the host or on a subnet (CIDR).
type Device struct {
	Name, Bridge, Subnet string
}

// VM is a virtual machine on a host.
type VM struct {
	SystemID string
	Hostname string
	Host     string
	HostID   int
	Project  string // "" where none was asked for
	// HostRef is where it was, as Composer.HostRef writes it. HostRef and Namesakes are for Find alone.
	HostRef string
	// Namesakes reports whether there were several VMs of this name: MAAS may have taken this one in under another. SystemID, where it is set,
	// is then that of one that is as it should be.
	Namesakes bool
}
