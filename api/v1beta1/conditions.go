// SPDX-License-Identifier: Apache-2.0

package v1beta1

import clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

// Conditions of a MaasMachine. All have positive polarity.
const (
	// ReadyCondition sums up the other conditions of an object.
	ReadyCondition = clusterv1.ReadyCondition

	// MachineDeployedCondition is true while the machine is deployed and powered on in MAAS.
	MachineDeployedCondition = "MachineDeployed"

	// DNSAttachedCondition is true once the API endpoint's DNS record has the address of this control plane.
	DNSAttachedCondition = "DNSAttached"

	// LXDHostSelectedCondition is true once a VM host was chosen for the VM.
	LXDHostSelectedCondition = "LXDHostSelected"

	// LXDResourcesAllocatedCondition is true once the VM's cores, memory and disk are taken on its host.
	LXDResourcesAllocatedCondition = "LXDResourcesAllocated"

	// LXDVMCreatedCondition is true once the VM exists on its host.
	LXDVMCreatedCondition = "LXDVMCreated"

	// LXDVMDeployedCondition is true while the VM is deployed and powered on in MAAS.
	LXDVMDeployedCondition = "LXDVMDeployed"

	// HardwareHealthyCondition is true while MAAS's hardware tests of a bare-metal machine passed. It is no part of Ready.
	// The Machine has the same condition: its readiness gates, and MachineHealthChecks, can use it.
	HardwareHealthyCondition = "HardwareHealthy"
)

// Conditions of a MaasCluster. All have positive polarity.
const (
	// DNSReadyCondition is true while the API endpoint is as desired: its DNS record has the addresses of the control
	// planes, its virtual IP is reserved, or the user provides it.
	DNSReadyCondition = "DNSReady"

	// FailureDomainsReadyCondition is true while every failure domain is a zone of MAAS.
	FailureDomainsReadyCondition = "FailureDomainsReady"

	// MachinesHaveRoomCondition is false while machines of the cluster wait for room, on VM hosts or among the machines in
	// MAAS; else there is no such condition. It is no part of Ready.
	MachinesHaveRoomCondition = "MachinesHaveRoom"

	// LXDReadyCondition is true once every node of a host cluster is an LXD VM host of MAAS or, if MAAS has no VM hosts, an
	// LXDHost that is ready.
	LXDReadyCondition = "LXDReady"
)

// Conditions of an LXDHost. All have positive polarity.
const (
	// ReachableCondition is true while LXD responds; for a VM host of MAAS, while MAAS knows its resources.
	ReachableCondition = "Reachable"

	// TrustedCondition is true while LXD has the expected certificate, and trusts ours for its project.
	TrustedCondition = "Trusted"

	// RegisteredCondition is true while MAAS has the VM host; of another host, while MAAS has its zone and resource pool.
	RegisteredCondition = "Registered"

	// SchedulableCondition is true while VMs may be placed on the host.
	SchedulableCondition = "Schedulable"

	// KeysCurrentCondition is true while the client certificate of a direct host is valid for long, and MAAS switches all VMs
	// there with it. It is no part of Ready.
	KeysCurrentCondition = "KeysCurrent"

	// EvacuatedCondition is true while no VM of a MaasMachine is on a host that is to be empty; else there is no
	// such condition. It is no part of Ready.
	EvacuatedCondition = "Evacuated"

	// NoVMsLeftCondition is false while VMs may be left on the host whose MaasMachines are gone, because the host could
	// not be asked; else there is no such condition. It is no part of Ready.
	NoVMsLeftCondition = "NoVMsLeft"
)

// Conditions of a MaasRemediation. All have positive polarity.
const (
	// PowerCycledCondition is true once the machine was switched off and on.
	PowerCycledCondition = "PowerCycled"

	// HandedOverCondition is true once Cluster API was told to replace the Machine.
	HandedOverCondition = "HandedOver"
)
