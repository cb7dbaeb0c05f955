// SPDX-License-Identifier: Apache-2.0

package v1beta1

import clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

// The comment of each condition says when it is true, and after that whatever else there is to know. `make generate`
// makes the table of docs/reasons.md of it, and what comes next in capmaasctl explain. All have positive polarity.

// # all
const (
	// ReadyCondition is true while those of its conditions are that matter. Else it has the reason of the first that is
	// not.
	ReadyCondition = clusterv1.ReadyCondition
)

// # MaasMachine
const (
	// LXDHostSelectedCondition is true once a host for the VM is chosen.
	LXDHostSelectedCondition = "LXDHostSelected"

	// LXDResourcesAllocatedCondition is true once the VM's cores, memory and disk are taken on its host.
	LXDResourcesAllocatedCondition = "LXDResourcesAllocated"

	// LXDVMCreatedCondition is true once the VM is made on its host.
	LXDVMCreatedCondition = "LXDVMCreated"

	// LXDVMDeployedCondition is true while the VM is deployed and on.
	LXDVMDeployedCondition = "LXDVMDeployed"

	// MachineDeployedCondition is true while a machine is acquired, deployed, and on.
	MachineDeployedCondition = "MachineDeployed"

	// DNSAttachedCondition is true once its address is in the DNS record of the API endpoint. Of control planes.
	DNSAttachedCondition = "DNSAttached"

	// NodeJoinedCondition is true while its Node is the one of this deployment. It is only there while it is not: the Node
	// that has its name is of the server's former life, or being deleted, or a Node that had joined is gone.
	NodeJoinedCondition = "NodeJoined"

	// HardwareHealthyCondition is true while MAAS's hardware tests of the bare-metal machine passed. It is no part of
	// Ready. The Machine has it, too.
	HardwareHealthyCondition = "HardwareHealthy"

	// HardwareProvenCondition is true once the bare-metal machine has passed the tests of spec.checks. It is no part of
	// Ready, and only there with spec.checks. The Machine has it, too.
	HardwareProvenCondition = "HardwareProven"
)

// # MaasCluster
const (
	// FailureDomainsReadyCondition is true while every failure domain is a zone of MAAS.
	FailureDomainsReadyCondition = "FailureDomainsReady"

	// DNSReadyCondition is true while the API endpoint is published, or its virtual IP reserved, or it is the user's own.
	DNSReadyCondition = "DNSReady"

	// LXDReadyCondition is true while every node is an LXD host. Of host clusters.
	LXDReadyCondition = "LXDReady"

	// MachinesHaveRoomCondition is true while no machine of the cluster waits for room. It is no part of Ready, and
	// only there while it is false.
	MachinesHaveRoomCondition = "MachinesHaveRoom"
)

// # LXDHost
const (
	// ReachableCondition is true while LXD responds. For a VM host of MAAS: while MAAS knows its resources.
	ReachableCondition = "Reachable"

	// TrustedCondition is true while LXD has the expected certificate, and trusts ours.
	TrustedCondition = "Trusted"

	// RegisteredCondition is true while MAAS has the VM host, or its zone and resource pool.
	RegisteredCondition = "Registered"

	// SchedulableCondition is true while VMs are placed there.
	SchedulableCondition = "Schedulable"

	// KeysCurrentCondition is true while the client certificate of the direct host is valid for long. It is no part of
	// Ready.
	KeysCurrentCondition = "KeysCurrent"

	// EvacuatedCondition is true while no VM of a MaasMachine is on the host. It is no part of Ready, and only there
	// while the host is to be empty.
	EvacuatedCondition = "Evacuated"

	// NoVMsLeftCondition is true while no VM without a MaasMachine may be left on the host. It is no part of Ready, and
	// only there while it is not true.
	NoVMsLeftCondition = "NoVMsLeft"
)

// # MaasRemediation
const (
	// PowerCycledCondition is true once the machine is switched off and on.
	PowerCycledCondition = "PowerCycled"

	// HandedOverCondition is true once Cluster API replaces the Machine, if it is not healthy by then.
	HandedOverCondition = "HandedOver"
)
