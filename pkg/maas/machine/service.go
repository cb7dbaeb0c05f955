// SPDX-License-Identifier: Apache-2.0

// Package machine is the life of one machine in MAAS: find it again, acquire it, give it its address, deploy it, and
// give it back.
//
// Bare metal and LXD VMs live the same life; they differ in how a machine is acquired and how it is given back. Each
// step can be cut off anywhere and done again: what an earlier try did is found by a mark that MAAS set in the very call
// that took the machine (agent_name for bare metal, the hostname for a VM, which nobody owns until it is deployed).
package machine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
)

const (
	// AnnotationOwner is the workload annotation that holds the owner id of the cluster. Its name is for people who look
	// at the machine in MAAS; MAAS allows no slashes there.
	AnnotationOwner = "capmaas-owner"
	// AnnotationMachine is the workload annotation with the namespace and name of the MaasMachine.
	AnnotationMachine = "capmaas-machine"
	// AnnotationCluster is the workload annotation with the cluster's name.
	AnnotationCluster = "capmaas-cluster"

	comment = "cluster-api-provider-maas"

	vmHostsMaxAge = 30 * time.Second
)

// Identity is how a machine is known to be ours.
type Identity struct {
	// OwnerID is the cluster's, AgentName is made of it and the machine's name.
	OwnerID, AgentName string
	// Hostname is that of the VM; "" for bare metal.
	Hostname string
	// Annotations are for people.
	Annotations map[string]string
}

// Service does the steps for the machines of one MAAS.
type Service struct {
	inventory *inventory.Inventory
	lxd       *lxd.Service
	failures  *failures
	others    others
}

// NewService makes a service.
func NewService(inventory *inventory.Inventory, lxd *lxd.Service) *Service {
	return &Service{inventory: inventory, lxd: lxd, failures: newFailures()}
}

// LXD places and composes VMs.
func (s *Service) LXD() *lxd.Service { return s.lxd }

// Find looks for the machines that an earlier try acquired for this identity. There should be at most one.
func (s *Service) Find(ctx context.Context, id Identity) ([]*maas.Machine, error) {
	filter := maas.MachineFilter{AgentNames: []string{id.AgentName}}
	if id.Hostname != "" {
		filter = maas.MachineFilter{Hostnames: []string{id.Hostname}}
	}
	machines, err := s.inventory.Client().ListMachines(ctx, filter)
	if err != nil {
		return nil, fmt.Errorf("looking for a machine that was acquired before: %w", err)
	}
	return machines, nil
}

// IsOurs proves that a machine is ours, by MAAS's own record of who acquired it or by the VM's unique name.
func (s *Service) IsOurs(ctx context.Context, id Identity, machine *maas.Machine) (bool, error) {
	if id.Hostname != "" && machine.Hostname == id.Hostname {
		return true, nil
	}
	machines, err := s.inventory.Client().ListMachines(ctx, maas.MachineFilter{
		SystemIDs: []string{machine.SystemID}, AgentNames: []string{id.AgentName},
	})
	if err != nil {
		return false, fmt.Errorf("asking MAAS who acquired machine %s: %w", machine.SystemID, err)
	}
	return len(machines) == 1 || isStillOurs(id, machine), nil
}

// isStillOurs knows a machine whose release failed after MAAS took the agent name off it. MAAS takes our annotations off it only when
// the release is done, and nobody else can acquire it before that.
func isStillOurs(id Identity, machine *maas.Machine) bool {
	return machine.Status == maas.StatusReleasingFailed && machine.WorkloadAnnotations[AnnotationOwner] == id.OwnerID &&
		machine.WorkloadAnnotations[AnnotationMachine] == id.Annotations[AnnotationMachine]
}

// VMHostNames are the hosts that bare metal must not come from: maas.AllocateParams.NotOnVMHosts.
func (s *Service) VMHostNames(ctx context.Context) ([]string, error) {
	hosts, _, err := s.inventory.VMHosts(ctx, vmHostsMaxAge)
	if err != nil && !errors.Is(err, maas.Gone) {
		return nil, fmt.Errorf("listing the VM hosts that must not be used: %w", err)
	}
	names := make([]string, 0, len(hosts))
	for _, host := range hosts {
		names = append(names, host.Name)
	}
	return names, nil
}

// Allocate takes a bare-metal machine, and none that is left alone unless constraints.SystemID asks for it. maas.Conflict means that none
// fits. MAAS would compose a VM then on a VM host that is not in
// constraints.NotOnVMHosts; should it do so on a host that we did not know yet, the VM is given back, which deletes it.
func (s *Service) Allocate(ctx context.Context, id Identity, constraints maas.AllocateParams) (*maas.Machine, error) {
	constraints.AgentName = id.AgentName
	constraints.Comment = comment
	if constraints.SystemID == "" {
		constraints.NotHostnames = s.failures.hostnames()
	}
	machine, err := s.inventory.Client().AllocateMachine(ctx, constraints)
	if err != nil {
		return nil, fmt.Errorf("allocating a machine: %w", err)
	}
	if machine.Pod != nil {
		s.inventory.DistrustVMHosts() // The next try knows the host.
		return nil, errors.Join(
			fmt.Errorf("allocating a machine: MAAS composed %s on the new VM host %s instead", machine.Hostname, machine.Pod.Name),
			s.Release(ctx, machine, maas.EraseDefault))
	}
	s.inventory.Wrote(machine)
	return machine, nil
}

// DeployRequest is what is installed on a machine.
type DeployRequest struct {
	Image    string
	UserData []byte
	InMemory bool
}

// Deploy installs the image. A machine that nobody acquired yet (a VM, or one that was pinned) is acquired with our mark in the
// same call. maas.Conflict: the state does not allow it; look again.
func (s *Service) Deploy(ctx context.Context, id Identity, machine *maas.Machine, request DeployRequest) (*maas.Machine, error) {
	deployed, err := s.inventory.Client().DeployMachine(ctx, machine.SystemID, maas.DeployParams{
		AgentName: id.AgentName, DistroSeries: request.Image, UserData: request.UserData, InMemory: request.InMemory,
		Comment: comment,
	})
	if err != nil {
		s.inventory.Distrust(machine.SystemID)
		return nil, fmt.Errorf("deploying machine %s: %w", machine.SystemID, err)
	}
	s.inventory.Wrote(deployed)
	return deployed, nil
}

// Release gives a bare-metal machine back to the pool, with its disks erased or not. maas.Conflict: the state does not allow it.
func (s *Service) Release(ctx context.Context, machine *maas.Machine, erase maas.Erase) error {
	released, err := s.inventory.Client().ReleaseMachine(ctx, machine.SystemID, maas.ReleaseParams{Erase: erase, Comment: comment})
	if err != nil {
		s.inventory.Distrust(machine.SystemID)
		return fmt.Errorf("releasing machine %s: %w", machine.SystemID, err)
	}
	s.inventory.Wrote(released)
	return nil
}

// DeleteVM deletes a VM. That MAAS does not have it any more is for the inventory to tell; whether its host does, for lxd.Service.VerifyVM.
func (s *Service) DeleteVM(ctx context.Context, machine *maas.Machine) error {
	vm := lxd.VM{SystemID: machine.SystemID, Hostname: machine.Hostname}
	if machine.Pod != nil {
		vm.Host, vm.HostID = machine.Pod.Name, machine.Pod.ID
	}
	err := s.lxd.DeleteVM(ctx, vm)
	s.inventory.Distrust(machine.SystemID)
	if err != nil && !errors.Is(err, maas.NotFound) {
		return fmt.Errorf("deleting VM %s: %w", machine.SystemID, err)
	}
	return nil
}
