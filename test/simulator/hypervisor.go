// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdapi"
)

// hypervisor executes on a VM host. MAAS reaches it over the network: every call may fail, and may have taken effect
// although it failed. Slow calls are made in request.unlocked; timers use Simulator.onHost.
type hypervisor interface {
	// Discover returns the host's resources and VMs.
	Discover() (hostFacts, error)
	// Create makes a VM that is off.
	Create(vmSpec) (vmFacts, error)
	// Delete removes a VM; a missing VM is no error.
	Delete(name string) error
	// SetPower switches a VM.
	SetPower(name string, on bool) error
	// Power reports whether a VM is on.
	Power(name string) (bool, error)
}

// hostError is MAAS's message for an error of a VM host.
type hostError string

func (e hostError) Error() string { return string(e) }

func hostErrorf(format string, args ...any) error { return hostError(fmt.Sprintf(format, args...)) }

// noRoomError means that no storage pool has room for a disk. MAAS returns it as an internal error.
type noRoomError string

func (e noRoomError) Error() string { return string(e) }

// hostFacts are what a VM host reports of itself.
type hostFacts struct {
	name         string
	member       string // its name in a cluster of LXDs; empty: it is not clustered
	version      string
	architecture string // in MAAS's form; empty: amd64/generic
	cores        int
	memory       int // MiB
	pools        []storagePool
	networks     []HostNetwork // none on simulated hosts, unless SetHostNetworks gave them some
	macs         []string      // by which MAAS finds the host's machine
	vms          []vmFacts
	foreign      []vmFacts // VMs of other projects: they use the host, but are no machines
}

// vmSpec is a VM to make.
type vmSpec struct {
	name   string
	cores  int
	memory int // MiB
	disks  []vmDisk
	macs   []string     // for the VM on simulated hosts
	nics   []attachment // for the VM on real hosts
}

type vmDisk struct {
	size int64    // bytes
	pool string   // the host's default one; "" is any
	tags []string // storage pools among them are preferred to the default one
}

// vmFacts is a VM on its host.
type vmFacts struct {
	Name    string   `json:"name"`
	Project string   `json:"project"`
	Cores   int      `json:"cores"`
	Memory  int      `json:"memory"` // MiB
	Disks   []int64  `json:"disks"`  // bytes
	MACs    []string `json:"macs"`
	Running bool     `json:"running"`
	// Starts is how often a VM of a simulated host was switched on.
	Starts int `json:"starts"`

	pools []string // of the disks, if the host reports them
}

// storagePoolFor chooses the pool of a disk as MAAS's driver does (_get_usable_storage_pool in
// provisioningserver/drivers/pod/lxd.py): the first with room of those that the disk's tags name, or else the default
// one, or else any.
func storagePoolFor(d vmDisk, names []string, free func(name string) (int64, error)) (string, error) {
	complaint := "Not enough storage space on any storage pools: " + strings.Join(names, ", ")
	tagged := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !slices.Contains(d.tags, name) })
	switch {
	case len(tagged) > 0:
		names, complaint = tagged, "Not enough storage space on storage pools: "+strings.Join(tagged, ", ")
	case d.pool != "" && !slices.Contains(names, d.pool):
		return "", hostErrorf("Default storage pool '%s' doesn't exist.", d.pool)
	case d.pool != "":
		names, complaint = []string{d.pool}, "Not enough space in default storage pool: "+d.pool
	}
	for _, name := range names {
		left, err := free(name)
		if err != nil {
			return "", err
		}
		if d.size <= left {
			return name, nil
		}
	}
	return "", noRoomError(complaint)
}

// simulatedHost is a VM host without any real VMs. It is separate from MAAS's data of it, so that leaked VMs can be
// found.
type simulatedHost struct {
	mu    sync.Mutex
	facts hostFacts
	// unreachable refuses every call; losing executes creations but reports them as failed, and ignores deletions.
	unreachable bool
	losing      bool
	vms         []*vmFacts
}

// errUnreachable returns the error of a broken host, in the words of MAAS's LXD driver.
func (h *simulatedHost) errUnreachable() error {
	return hostErrorf("Pod %s: Failed to connect to the LXD REST API.", h.facts.name)
}

// labProject is a project on a simulated host, as a VM host in MAAS has one: it does not see the VMs of other projects.
type labProject struct {
	host    *simulatedHost
	project string
}

func (p labProject) Discover() (hostFacts, error) {
	h := p.host
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.unreachable {
		return hostFacts{}, h.errUnreachable()
	}
	facts := h.facts
	facts.pools = slices.Clone(h.facts.pools)
	for _, vm := range h.vms {
		if vm.Project == p.project {
			facts.vms = append(facts.vms, *vm)
		} else {
			facts.foreign = append(facts.foreign, *vm)
		}
	}
	return facts, nil
}

func (p labProject) Create(spec vmSpec) (vmFacts, error) {
	h := p.host
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.unreachable && !h.losing {
		return vmFacts{}, h.errUnreachable()
	}
	vm := &vmFacts{Name: spec.name, Project: p.project, Cores: spec.cores, Memory: spec.memory, MACs: spec.macs}
	if err := h.addDisks(vm, spec.disks); err != nil {
		return vmFacts{}, err
	}
	if !lxdapi.IsInstanceName(spec.name) {
		return vmFacts{}, hostErrorf("Invalid instance name %q", spec.name)
	}
	if h.find(p.project, spec.name) != nil {
		return vmFacts{}, hostErrorf("Instance %q already exists", spec.name)
	}
	h.vms = append(h.vms, vm)
	if h.losing {
		return vmFacts{}, h.errUnreachable()
	}
	return *vm, nil
}

// addDisks puts the disks into storage pools with room for them. A host without any pool accepts all. The caller holds
// h.mu.
func (h *simulatedHost) addDisks(vm *vmFacts, disks []vmDisk) error {
	var names []string
	free := map[string]int64{}
	for _, p := range h.facts.pools {
		names = append(names, p.name)
		free[p.name] = p.total
	}
	for _, other := range h.vms {
		for i, size := range other.Disks {
			switch {
			case i < len(other.pools):
				free[other.pools[i]] -= size
			case len(names) > 0:
				free[names[0]] -= size
			}
		}
	}
	for _, d := range disks {
		vm.Disks = append(vm.Disks, d.size)
		if len(names) == 0 {
			continue
		}
		name, err := storagePoolFor(d, names, func(name string) (int64, error) { return free[name], nil })
		if err != nil {
			return err
		}
		free[name] -= d.size
		vm.pools = append(vm.pools, name)
	}
	return nil
}

func (p labProject) Delete(name string) error {
	h := p.host
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.unreachable || h.losing {
		return h.errUnreachable()
	}
	h.vms = slices.DeleteFunc(h.vms, func(vm *vmFacts) bool { return vm.Name == name && vm.Project == p.project })
	return nil
}

func (p labProject) SetPower(name string, on bool) error {
	h := p.host
	h.mu.Lock()
	defer h.mu.Unlock()
	vm, err := h.reach(p.project, name)
	if err == nil && vm.Running != on {
		vm.Running = on
		if on {
			vm.Starts++
		}
	}
	return err
}

func (p labProject) Power(name string) (bool, error) {
	h := p.host
	h.mu.Lock()
	defer h.mu.Unlock()
	vm, err := h.reach(p.project, name)
	return err == nil && vm.Running, err
}

// reach returns a VM on a host that may be broken. The caller holds h.mu.
func (h *simulatedHost) reach(project, name string) (*vmFacts, error) {
	if h.unreachable {
		return nil, h.errUnreachable()
	}
	if vm := h.find(project, name); vm != nil {
		return vm, nil
	}
	return nil, hostErrorf("LXD VM %s not found", name)
}

func (h *simulatedHost) find(project, name string) *vmFacts {
	for _, vm := range h.vms {
		if vm.Name == name && vm.Project == project {
			return vm
		}
	}
	return nil
}

// remove removes VMs of a name, also while the host is broken; false if there is none.
func (h *simulatedHost) remove(name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := len(h.vms)
	h.vms = slices.DeleteFunc(h.vms, func(vm *vmFacts) bool { return vm.Name == name })
	return len(h.vms) < before
}
