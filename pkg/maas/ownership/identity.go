// SPDX-License-Identifier: Apache-2.0

// Package ownership proves which machines in MAAS are ours.
//
// The proof is the agent name, MAAS's own record of who acquired a machine: MAAS sets it in the very call that acquires
// the machine. Hostnames and workload annotations can be changed by other users of MAAS: they prove something only
// while no other user can have acquired the machine.
package ownership

import (
	"slices"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// Workload annotations in MAAS, which allows no slashes in their names. They inform people, and prove that a machine is
// ours once its release has begun.
const (
	// AnnotationOwner holds the owner id of the cluster.
	AnnotationOwner = "capmaas-owner"
	// AnnotationMachine holds namespace and name of the MaasMachine, joined by a dot.
	AnnotationMachine = "capmaas-machine"
	// AnnotationCluster holds the cluster's name.
	AnnotationCluster = "capmaas-cluster"
	// AnnotationManagement holds the UID of the kube-system namespace of the management cluster that marked the machine
	// last.
	AnnotationManagement = "capmaas-management"
)

// Identity identifies the machine of one MaasMachine in MAAS.
type Identity struct {
	// OwnerID is the cluster's; AgentName is made of it and the machine's name.
	OwnerID, AgentName string
	// Hostname is the VM's; "" for bare metal.
	Hostname string
	// Annotations are the machine's workload annotations.
	Annotations map[string]string
}

// AgentName returns what MAAS records when a machine is acquired for a MaasMachine.
func AgentName(ownerID, name string) string { return "capmaas/" + ownerID + "/" + name }

// HasAnnotations reports whether the machine has all annotations of this identity. After `clusterctl move` that of the
// management cluster differs.
func (id Identity) HasAnnotations(machine *maas.Machine) bool {
	for key, value := range id.Annotations {
		if machine.WorkloadAnnotations[key] != value {
			return false
		}
	}
	return true
}

// isAnnotated reports whether a machine has our annotations of owner and machine.
func (id Identity) isAnnotated(machine *maas.Machine) bool {
	return machine.WorkloadAnnotations[AnnotationOwner] == id.OwnerID &&
		machine.WorkloadAnnotations[AnnotationMachine] == id.Annotations[AnnotationMachine]
}

// HasHostname reports whether a machine is a VM with the hostname of an identity.
func HasHostname(machine *maas.Machine, hostname string) bool {
	return hostname != "" && machine.Pod != nil && machine.Hostname == hostname
}

// mayBeRestored reports whether a machine is in a state that MAAS restores when it can't switch the machine off.
func mayBeRestored(machine *maas.Machine) bool {
	return slices.Contains([]maas.Status{maas.StatusAllocated, maas.StatusDeployed, maas.StatusFailedDeployment},
		machine.Status)
}

// ProvenByAnnotations reports whether our annotations prove that a machine is ours. They do after its release failed
// when MAAS had already removed the agent name, and for a VM of ours that was marked broken, which ends its
// commissioning, or begins a release that never ends. MAAS removes the annotations only when the release is done, and
// no other user can acquire the machine before that.
func ProvenByAnnotations(machine *maas.Machine, hostname string) bool {
	return machine.Status == maas.StatusReleasingFailed ||
		(machine.Status == maas.StatusBroken && hostname != "" && machine.Hostname == hostname)
}
