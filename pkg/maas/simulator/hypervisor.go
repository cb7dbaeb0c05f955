// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"slices"
	"sync"
)

// hypervisor is what executes on a VM host. MAAS reaches it over the network: every call may fail, and may have taken
// effect although it failed. Calls that take long are made in request.unlocked; what timers need goes through
// Simulator.onHost.
type hypervisor interface {
	// Discover tells what the host has and which VMs are on it.
	Discover() (hostFacts, error)
	// Create makes a VM that is off.
	Create(vmSpec) (vmFacts, error)
	// Delete removes a VM; one that is not there is no error.
	Delete(name string) error
	// SetPower switches a VM.
	SetPower(name string, on bool) error
	// Power tells whether a VM is on.
	Power(name string) (bool, error)
}

// hostError is what MAAS says when a VM host fails it, in MAAS's own words.
type hostError string

func (e hostError) Error() string { return string(e) }

func hostErrorf(format string, args ...any) error { return hostError(fmt.Sprintf(format, args...)) }

// hostFacts are what a VM host tells of itself.
type hostFacts struct {
	name         string
	version      string
	architecture string // as MAAS names it; empty: amd64/generic
	cores        int
	memory       int // MiB
	pools        []storagePool
	networks     []hostNetwork // nil on simulated hosts
	macs         []string      // by which MAAS finds the host's machine
	vms          []vmFacts
	foreign      []vmFacts // VMs of other projects: they use the host, and are no machines
}

// vmSpec is a VM to be made.
type vmSpec struct {
	name   string
	cores  int
	memory int // MiB
	disks  []vmDisk
	macs   []string     // what simulated hosts give the VM
	nics   []attachment // what real hosts hang it on
}

type vmDisk struct {
	size int64 // bytes
	pool string
}

// vmFacts is a VM as it is on the host.
type vmFacts struct {
	Name    string   `json:"name"`
	Project string   `json:"project"`
	Cores   int      `json:"cores"`
	Memory  int      `json:"memory"` // MiB
	Disks   []int64  `json:"disks"`  // bytes
	MACs    []string `json:"macs"`
	Running bool     `json:"running"`

	pools []string // of the disks, where the host tells
}

// simulatedHost is a VM host without any real VMs. It lives apart from what MAAS knows of it, so that leaked VMs can be
// seen.
type simulatedHost struct {
	mu    sync.Mutex
	facts hostFacts
	// unreachable refuses every call; losing lets creations take effect although they are reported as failed, and keeps what is deleted.
	unreachable bool
	losing      bool
	vms         []*vmFacts
	// installedOn is the system id of the machine whose deployment installed it, if one did: it goes with that.
	installedOn string
}

// errUnreachable is what a broken host answers, in the words of MAAS's LXD driver.
func (h *simulatedHost) errUnreachable() error {
	return hostErrorf("Pod %s: Failed to connect to the LXD REST API.", h.facts.name)
}

// labProject is a project on a simulated host, as a VM host in MAAS has one: it sees no other project's VMs.
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
	if h.find(p.project, spec.name) != nil {
		return vmFacts{}, hostErrorf("Instance %q already exists", spec.name)
	}
	vm := &vmFacts{Name: spec.name, Project: p.project, Cores: spec.cores, Memory: spec.memory, MACs: spec.macs}
	for _, d := range spec.disks {
		vm.Disks = append(vm.Disks, d.size)
	}
	h.vms = append(h.vms, vm)
	if h.losing {
		return vmFacts{}, h.errUnreachable()
	}
	return *vm, nil
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
	if err == nil {
		vm.Running = on
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

// reach finds a VM on a host that may be broken. The caller holds h.mu.
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

// remove takes VMs of a name away, also while the host is broken; false when there is none.
func (h *simulatedHost) remove(name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := len(h.vms)
	h.vms = slices.DeleteFunc(h.vms, func(vm *vmFacts) bool { return vm.Name == name })
	return len(h.vms) < before
}
