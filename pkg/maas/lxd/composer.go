// SPDX-License-Identifier: Apache-2.0

// Package lxd chooses hosts for LXD virtual machines, and creates and removes the VMs.
//
// Placement is pure (place.go). Everything that happens on a host is behind the interface Composer, of which there are
// two: MAAS's VM hosts (vmhosts.go), which MAAS 4.0 no longer has, and images on LXDHosts (images.go). Nothing above
// that interface may know which of them made a VM.
package lxd

import (
	"context"
	"net/netip"
	"strconv"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/rights"
)

// Composer creates and removes VMs on LXD hosts.
type Composer interface {
	VMs
	// Hosts returns the LXD hosts for VMs of a spec: those that are not for them are not Reachable, or are left out.
	// Host.SeenAt is the time of their figures, which are no older than maxAge.
	Hosts(ctx context.Context, spec VMSpec, maxAge time.Duration) ([]Host, error)
	// Project returns the LXD project that VMs on a host are created in.
	Project(ctx context.Context, host Host) (string, error)
	// Compose creates a VM. After an error the VM may exist all the same: search for it by VMSpec.Hostname.
	Compose(ctx context.Context, permit maas.Permit, host Host, spec VMSpec) (VM, error)
	// Decompose removes a VM from its host, and, unless VM.HostFirst, from MAAS. One that no user of MAAS has is claimed
	// under VM.Mark first: what another user takes is not deleted, also not late. The caller waits until MAAS no longer
	// has it, and then checks its host: Find. *TakenError: another user has it.
	Decompose(ctx context.Context, permit maas.VMPermit, vm VM) error
}

// VMs are those that a Composer has made, or may have.
type VMs interface {
	// Start starts a VM that Compose has left stopped, on the host in VM.HostRef. One that runs is not changed. A late
	// call would start the next VM of its name.
	Start(ctx context.Context, permit maas.VMPermit, vm VM) error
	// Stop cuts the power of a VM that MAAS does not switch, on the host in VM.HostRef. A late call would stop the next
	// VM of its name.
	Stop(ctx context.Context, permit maas.VMPermit, vm VM) error
	// Observe returns what the host in VM.HostRef shows of a VM that MAAS does not switch, as seen at most maxAge ago.
	Observe(ctx context.Context, vm VM, maxAge time.Duration) (Seen, error)
	// Forget removes from MAAS what it has of a VM that no host has any more, after VM.HostFirst. mark is the agent
	// name.
	Forget(ctx context.Context, permit maas.Permit, machine *maas.Machine, mark string) error
	// FindDevice returns what MAAS has of a VM that Compose may have left without its host; nil if there is nothing.
	FindDevice(ctx context.Context, vm VM, mark string) (*maas.Machine, error)
	// Adopt makes a VM ours on its host that MAAS composed on one of the recorded VM hosts, when MAAS has no VM hosts
	// any more. The VM's interfaces must have the addresses, and no other. It returns the reference to that VM host,
	// and the host as it is now; nil if MAAS has VM hosts, or if none has the VM.
	// *FormerHostError: no LXDHost leads there; a *DirectError of the kind lxdhost.KindConflict: the VM is not ours.
	Adopt(ctx context.Context, vm VM, recorded, addresses []string) (from string, now *Host, err error)
	// Find reports whether the host in VM.HostRef still has a VM. An error means that MAAS can't be asked. A host that
	// MAAS, or Kubernetes, does not have any more can't be asked: it is Unreachable.
	Find(ctx context.Context, vm VM) (Presence, error)
}

// State is the state of a VM on a host.
type State int

const (
	// Gone means that the host does not have it.
	Gone State = iota
	// Present means that the host has it, and by now MAAS has it again.
	Present
	// Pending means that the refresh is under way, or waits for other callers. Try again after Presence.After.
	Pending
	// Unreachable means that the host can't be asked, for the reason in Presence.Why: MAAS can't refresh it, or does not
	// have it (*MissingVMHostError), or its LXD does not respond. Try again after Presence.After.
	Unreachable
)

// Presence is the result of Find.
type Presence struct {
	State State
	Host  string // the VM host's name
	VM    *VM    // the VM, if State is Present
	After time.Duration
	Why   error // MAAS's error
	// Never means that it will stay Unreachable: MAAS no longer has VM hosts, or does not let the key's user refresh
	// them (maas.Forbidden), or the host's LXDHost is gone, or nothing proves whose the VM is that has the name.
	Never bool
}

// Host is an LXD host for VMs.
type Host struct {
	// Server is the MAAS whose VM host it is; none for a host of LXD's own API.
	Server       guard.Server
	ID           int
	Name         string
	Zone, Pool   string
	ZoneID       int
	PoolID       int
	Tags         []string
	StoragePools []StoragePool
	// Architecture of its VMs, in MAAS's form: amd64/generic. "" while it is not known.
	Architecture string
	// TooNew is the version of a VM host's LXD, if MAAS can make no VMs on it; "" for any other.
	TooNew string
	// Images are those that the host has itself; MAAS has those for its VM hosts. Unsigned are those of them that LXD
	// starts no VM of with secure boot.
	Images, Unsigned []string
	// Capacity includes over-commit; Used is MAAS's figure. Cores, MiB and GB.
	Capacity, Used Resources
	// Largest is the most that a single VM can have: over-commit applies only to all VMs together.
	Largest Resources
	// Reachable is false while MAAS has never reached the host, or does not know its resources yet.
	Reachable bool
	// CooldownUntil is set while nothing is composed on the host because of what it recently FailedTo do: compose a VM,
	// or respond to MAAS.
	CooldownUntil time.Time
	FailedTo      string
	// Forbidden is why the API key's user may not make VMs there; nil if the user may.
	Forbidden *rights.Error
	// SeenAt is when the figures were requested.
	SeenAt time.Time
	// Object is the LXDHost of the host; nil if there is none.
	Object *HostObject
	// Nameless are MAAS's subnets without name servers, if the LXDHost names none for VMs there either.
	Nameless []netip.Prefix
	// MachineID is the system id of the machine that the host runs on; "" if MAAS does not name it.
	MachineID string
	// Machine is that machine; nil if MAAS does not show it.
	Machine *HostMachine
}

// Key identifies the host.
func (h *Host) Key() HostKey {
	if h.IsDirect() {
		return h.Object.serverKey()
	}
	return VMHostKey(h.Server, h.ID)
}

// IsDirect reports whether VMs are made through the LXD's own API.
func (h *Host) IsDirect() bool { return h.Object != nil && h.Object.Direct }

// HostKey identifies a host among those of all servers.
type HostKey guard.Key

// VMHostKey returns the key of a VM host: each MAAS numbers its own hosts. What runs on a machine may change.
func VMHostKey(server guard.Server, id int) HostKey { return HostKey(server.Key(strconv.Itoa(id))) }

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

// Disk is a disk of a VM: its size in GB, and its storage pool. "" is the host's default pool.
type Disk struct {
	Size int
	Pool string
}

// Footprint is what a VM has of its host: the disk of its Resources is the sum of its disks.
type Footprint struct {
	Resources
	Disks []Disk
}

// negative is what is free when the VM is gone.
func (f Footprint) negative() Footprint {
	return Footprint{
		Resources: Resources{-f.Cores, -f.Memory, -f.Disk},
		Disks:     list.Each(f.Disks, func(disk Disk) Disk { return Disk{-disk.Size, disk.Pool} }),
	}
}

// VMSpec is the wanted VM, and where it may be placed.
type VMSpec struct {
	// Hostname is unique in MAAS, and the mark by which the VM is found again.
	Hostname string
	// Marks are what the VM carries in LXD, where it is made through LXD's own API.
	Marks lxdhost.Marks
	// Namespace is that of the MaasMachine.
	Namespace string
	// Cluster groups VMs that are spread over zones and hosts: those of a cluster and a role.
	Cluster string
	// Resources have the size of the root disk.
	Resources

	// Zone, ResourcePool, HostName, Project, StoragePool, Tags and NotTags limit the hosts, where they are not empty.
	// StoragePool is that of the root disk.
	Zone, ResourcePool, HostName, Project, StoragePool string
	Profile                                            string
	Tags, NotTags                                      []string
	// Processors are those that there is an image for (amd64 and so on); none: they are not known.
	Processors []string
	// NoMAASImage: MAAS has no image for them, which its VM hosts need.
	NoMAASImage bool
	// MoreDisks are the VM's disks beside the root disk.
	MoreDisks []Disk
	// Hardware are devices of the host for the VM, in LXD's form, by name. VM hosts of MAAS can't give any.
	Hardware map[string]map[string]string
	// AntiAffinity decides whether the VM may share a host with others of its cluster.
	AntiAffinity AntiAffinity
	// Devices are the VM's network interfaces; without any, MAAS chooses.
	Devices []Device
	// Image is the name of what it boots, and UserData the bytes that it is given, where it is made from an image.
	Image, UserData string
	// AgentName and Annotations say in MAAS whose it is, where it is made from an image.
	AgentName   string
	Annotations map[string]string
	// Address is that of its first network card, where it is made from an image; the zero value: MAAS chooses one.
	Address netip.Addr
	// Commission makes MAAS commission the VM before it is Ready.
	Commission bool
	// SecureBoot has the VM's firmware boot only what is signed.
	SecureBoot bool
	// MayBeOn are hosts that may have the VM from an earlier try. It has the same addresses in each project of an LXD,
	// which starts only one of them.
	MayBeOn []Host
}

// Anywhere returns the spec without what limits it to some of the hosts that its namespace may use: for hosts on which
// other VMs are to be placed, too.
func (s *VMSpec) Anywhere() VMSpec {
	return VMSpec{Namespace: s.Namespace, Project: s.Project, Profile: s.Profile}
}

// disks are those of the VM; the first is the root disk.
func (s *VMSpec) disks() []Disk {
	return append([]Disk{{s.Disk, s.StoragePool}}, s.MoreDisks...)
}

// Footprint returns what the VM will have of its host.
func (s *VMSpec) Footprint() Footprint {
	all := Footprint{Resources: s.Resources, Disks: s.disks()}
	for _, disk := range s.MoreDisks {
		all.Disk = sum(all.Disk, disk.Size)
	}
	return all
}

// Device is a network interface, on a bridge of the host or on a subnet (CIDR).
type Device struct {
	Name, Bridge, Subnet string
}

// VM is a virtual machine on a host.
type VM struct {
	SystemID string
	Hostname string
	// Namespace is that of its MaasMachine.
	Namespace string
	Host      string
	HostID    int
	Project   string // "" if none was requested
	Marks     lxdhost.Marks
	// HostRef is where it is or was, as HostRef returns it; "" if that is not known.
	HostRef string
	// Commissions means that MAAS commissions it, as Compose requested.
	Commissions bool
	// HostFirst means that MAAS neither switches it nor deletes it: its host is asked, and MAAS forgets it last. What is
	// in HostRef is recorded before it is started.
	HostFirst bool
	// Mark is the agent name under which MAAS acquires it.
	Mark string
	// Machine is what MAAS showed of it, if that is known.
	Machine *maas.Machine
	// DeletedAt is for Find alone: when its host began to delete it, where HostFirst; the zero value: it did not.
	// One list of the host serves all that were deleted at about that time.
	DeletedAt time.Time
	// Elsewhere is for Find alone: the reference to the host that it runs on. Another one is searched for.
	Elsewhere string
	// Namesakes is for Find alone. It means that there were several VMs of this name: MAAS may have taken this one in
	// under another name. SystemID, if it is set, is then that of the right one.
	Namesakes bool
	// Addresses is for Find alone: the MAC addresses of a VM that MAAS composed, or nil if they are not known.
	Addresses []string
}
