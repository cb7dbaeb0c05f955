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

// Reasons that several conditions share.
const (
	// ReadyReason: it is as desired.
	ReadyReason = "Ready"

	// NotReadyReason: it is not as desired; the message has the reason.
	NotReadyReason = "NotReady"

	// DeletingReason: the object and its counterpart in MAAS are being deleted.
	DeletingReason = "Deleting"

	// CredentialsInvalidReason: there are no credentials, or MAAS does not accept them.
	CredentialsInvalidReason = "CredentialsInvalid"

	// OwnerIDTakenReason: the MaasCluster is a copy of one that still exists, with its annotation capmaas.io/owner-id.
	// Nothing is done for it.
	OwnerIDTakenReason = "OwnerIDTaken"

	// OwnerIDLostReason: the annotation capmaas.io/owner-id of the MaasCluster is gone, or is not the one with which
	// its machines were acquired. Nothing is done, and nothing is let go, until it is restored.
	OwnerIDLostReason = "OwnerIDLost"

	// OwnerIDInvalidReason: the annotation capmaas.io/owner-id of the MaasCluster is not 12 characters of a-z and 0-9.
	OwnerIDInvalidReason = "OwnerIDInvalid"

	// MAASBusyReason: MAAS gave up the request, because it was busy with others. It is retried when MAAS allows.
	MAASBusyReason = "MAASBusy"

	// MAASUnavailableReason: MAAS does not respond, or responds with an error that passes. It is retried.
	MAASUnavailableReason = "MAASUnavailable"

	// MAASRefusedReason: MAAS refuses a request for a reason that only a person can correct.
	MAASRefusedReason = "MAASRefused"
)

// Reasons of MachineDeployed, LXDVMDeployed and the conditions on the way there.
const (
	// WaitingForClusterInfrastructureReason: the MaasCluster is not provisioned yet.
	WaitingForClusterInfrastructureReason = "WaitingForClusterInfrastructure"

	// WaitingForBootstrapDataReason: the bootstrap provider has not written the user data yet, or its Secret is gone.
	WaitingForBootstrapDataReason = "WaitingForBootstrapData"

	// SpecImpossibleReason: the spec asks for what no machine can have, or what would harm. The message names the field.
	// No machine is taken.
	SpecImpossibleReason = "SpecImpossible"

	// AdministratorNeededReason: MAAS 3.7 or older, which lets only administrators do what the spec needs, and the API key's
	// user is none.
	AdministratorNeededReason = "AdministratorNeeded"
	// EntitlementMissingReason: MAAS 3.8 or newer, and no group of the API key's user has an entitlement that the spec
	// needs.
	EntitlementMissingReason = "EntitlementMissing"

	// TagNotFoundReason: MAAS has no tag of that name in spec.tags.
	TagNotFoundReason = "TagNotFound"

	// NoMachineAvailableReason: no machine in MAAS fits the constraints. It is tried again.
	NoMachineAvailableReason = "NoMachineAvailable"

	// KeptMachineLostReason: another user of MAAS got the machine that was kept for this one between its release and its
	// acquisition, and no other one fits. It is tried again.
	KeptMachineLostReason = "KeptMachineLost"

	// KeepingReason: the machine is switched off to wait for the next Machine, or that one is releasing it to take it.
	KeepingReason = "Keeping"

	// ImageNotFoundReason: MAAS has no such image, or not for the architecture. Nothing is acquired until it has.
	ImageNotFoundReason = "ImageNotFound"

	// WaitingForRoomReason: machines of the cluster wait for room; the message has the reason for each.
	WaitingForRoomReason = "WaitingForRoom"

	// NoHostAvailableReason: no VM host fits; the message has the reason for each host. It is tried again.
	NoHostAvailableReason = "NoHostAvailable"

	// HostSelectedReason: a VM host was chosen.
	HostSelectedReason = "HostSelected"

	// AllocatedReason: the resources of the VM are taken on its host.
	AllocatedReason = "Allocated"

	// CreatedReason: the VM exists on its host.
	CreatedReason = "Created"

	// CreatingReason: the VM is being composed.
	CreatingReason = "Creating"

	// VMCreationFailedReason: the VM could not be composed. It is tried again.
	VMCreationFailedReason = "VMCreationFailed"

	// VMHostsNotSupportedReason: this MAAS has no VM hosts (4.0 and newer).
	VMHostsNotSupportedReason = "VMHostsNotSupported"

	// ProfileNotFoundReason: the LXD profile can't be used.
	ProfileNotFoundReason = "ProfileNotFound"

	// CommissioningReason: MAAS commissions the machine.
	CommissioningReason = "Commissioning"

	// TestingReason: MAAS tests the machine.
	TestingReason = "Testing"

	// NotCommissionedReason: the machine is New in MAAS. An operator must commission it.
	NotCommissionedReason = "NotCommissioned"

	// CommissioningFailedReason: MAAS could not commission the machine.
	CommissioningFailedReason = "CommissioningFailed"

	// CommissioningTimedOutReason: commissioning and testing take longer than the manager's --commission-timeout. The
	// machine recovers if MAAS finishes after all.
	CommissioningTimedOutReason = "CommissioningTimedOut"

	// TestingFailedReason: the machine failed MAAS's tests.
	TestingFailedReason = "TestingFailed"

	// WaitingForIPAddressReason: the IPAM provider of the pool in staticIPPoolRef has not given an address yet.
	WaitingForIPAddressReason = "WaitingForIPAddress"

	// IPAddressRefusedReason: the IPAM provider of the pool in staticIPPoolRef gives no address; the message has its
	// reason.
	IPAddressRefusedReason = "IPAddressRefused"

	// IPPoolKindUnknownReason: the management cluster does not know the kind that staticIPPoolRef names.
	IPPoolKindUnknownReason = "IPPoolKindUnknown"

	// IPAddressClaimNotOursReason: an IPAddressClaim with the machine's name belongs to something else.
	IPAddressClaimNotOursReason = "IPAddressClaimNotOurs"

	// ReturningIPAddressReason: the machine is gone, and the IPAM provider takes its address back.
	ReturningIPAddressReason = "ReturningIPAddress"

	// StaticIPInUseReason: the static address is in use by something else.
	StaticIPInUseReason = "StaticIPInUse"

	// StaticIPOutsideSubnetsReason: the static address lies in no subnet of MAAS, or not in the one of the device that
	// carries it.
	StaticIPOutsideSubnetsReason = "StaticIPOutsideSubnets"

	// StaticIPInDynamicRangeReason: the static address lies in a range that MAAS hands out by DHCP.
	StaticIPInDynamicRangeReason = "StaticIPInDynamicRange"

	// StaticIPInvalidReason: the static address can't be given to the machine for another reason.
	StaticIPInvalidReason = "StaticIPInvalid"

	// NetworkDeviceInvalidReason: a device in lxdConfig.network.devices, or an interface in interfaces, can't be made or
	// connected as it should be.
	NetworkDeviceInvalidReason = "NetworkDeviceInvalid"

	// GivenBackForNowReason: the machine could not be deployed for a while, and is in the pool again until it can.
	GivenBackForNowReason = "GivenBackForNow"

	// DeployingReason: MAAS installs the image.
	DeployingReason = "Deploying"

	// TestsPassedReason: all hardware tests of the machine passed.
	TestsPassedReason = "TestsPassed"

	// TestsFailedReason: a hardware test of the machine failed. The message says of what.
	TestsFailedReason = "TestsFailed"

	// TestsDegradedReason: a hardware test of the machine found something degraded. The message says what.
	TestsDegradedReason = "TestsDegraded"

	// TestsRunningReason: MAAS is testing the machine's hardware.
	TestsRunningReason = "TestsRunning"

	// NotTestedReason: MAAS has no hardware test of the machine, or it was aborted.
	NotTestedReason = "NotTested"

	// DeployedReason: the machine runs.
	DeployedReason = "Deployed"

	// DeployFailedReason: MAAS could not install the image.
	DeployFailedReason = "DeployFailed"

	// DeployTimedOutReason: the deployment takes longer than the manager's --deploy-timeout. The machine recovers if
	// MAAS finishes after all.
	DeployTimedOutReason = "DeployTimedOut"

	// PoweredOffReason: the machine is deployed but powered off.
	PoweredOffReason = "PoweredOff"

	// MachineMissingReason: MAAS no longer has the machine, or calls it Missing.
	MachineMissingReason = "MachineMissing"

	// MachineHiddenReason: MAAS has the machine, and does not show it to the user of the API key. It is neither lost
	// nor let go.
	MachineHiddenReason = "MachineHidden"

	// MachinesVanishedReason: MAAS reports that it no longer has the machine, and reports the same of many machines at
	// once, as a restored or emptied MAAS does. Nothing is replaced or let go until a person confirms it.
	MachinesVanishedReason = "MachinesVanished"

	// StorageImpossibleReason: no machine that matches can have the layout of spec.storage. The message names machines and disks.
	StorageImpossibleReason = "StorageImpossible"

	// MachineDoesNotFitReason: the machine in spec.systemID does not meet the spec.
	MachineDoesNotFitReason = "MachineDoesNotFit"

	// MachineNotOursReason: the machine belongs to another user. It is not changed.
	MachineNotOursReason = "MachineNotOurs"

	// DeploymentNotOursReason: the machine is ours, and was deployed by a call that was not this MaasMachine's.
	DeploymentNotOursReason = "DeploymentNotOurs"

	// ProviderIDDiffersReason: the machine's Node has another provider ID than the machine. Only events have it.
	ProviderIDDiffersReason = "ProviderIDDiffers"

	// MachineReleasedReason: another user released the machine in MAAS after it was provisioned.
	MachineReleasedReason = "MachineReleased"

	// MachineReservedReason: another user reserved the machine in MAAS.
	MachineReservedReason = "MachineReserved"

	// MachineBrokenReason: another user marked the machine broken in MAAS, which releases it.
	MachineBrokenReason = "MachineBroken"

	// MachineRetiredReason: the machine is retired in MAAS.
	MachineRetiredReason = "MachineRetired"

	// MachineLockedReason: the machine is locked in MAAS, which refuses the necessary change.
	MachineLockedReason = "MachineLocked"

	// RescueModeReason: the machine is in rescue mode, or on the way there or back.
	RescueModeReason = "RescueMode"

	// RescueModeFailedReason: MAAS could not bring the machine into rescue mode, or out of it.
	RescueModeFailedReason = "RescueModeFailed"

	// MachineNotUsableReason: the machine is in a state of MAAS that this version does not know.
	MachineNotUsableReason = "MachineNotUsable"

	// ReleasingReason: the machine is on its way back to the pool, or the VM is being deleted.
	ReleasingReason = "Releasing"

	// ErasingDisksReason: MAAS erases the disks of the machine before it returns to the pool; the message has the time
	// since when.
	ErasingDisksReason = "ErasingDisks"

	// ReleaseOverdueReason: MAAS has been releasing the machine for longer than that should take. A person must check
	// it.
	ReleaseOverdueReason = "ReleaseOverdue"

	// EraseOverdueReason: MAAS has been erasing the disks for longer than that should take, and sets no limit itself. A
	// person must check it.
	EraseOverdueReason = "EraseOverdue"

	// EraseFailedReason: MAAS could not erase the disks. The machine stays acquired, and is not given back without the
	// erasing in spec.release. It is tried again, at growing intervals, and at once when spec.release changes.
	EraseFailedReason = "EraseFailed"

	// ReleaseFailedReason: MAAS could not release the machine. It is tried again as after EraseFailed.
	ReleaseFailedReason = "ReleaseFailed"

	// VerifyingVMReason: the VM is deleted in MAAS, and MAAS checks that its VM host no longer has it. If the response to the
	// deletion was lost, that waits until it can't take effect late any more.
	VerifyingVMReason = "VerifyingVM"

	// VMCameBackReason: MAAS called the VM deleted, and found it on its host again. It is deleted again, at growing
	// intervals.
	VMCameBackReason = "VMCameBack"

	// VMHostUnreachableReason: MAAS no longer has the VM, and can't refresh its host. That is tried again for a while;
	// then the MaasMachine is deleted, and an event names the VM that may be left. Or the VM may be on so many hosts that can't be
	// asked that it is made on no other one.
	VMHostUnreachableReason = "VMHostUnreachable"
)

// Reasons of DNSReady and DNSAttached.
const (
	// WaitingForControlPlaneReason: no control plane has an address yet.
	WaitingForControlPlaneReason = "WaitingForControlPlane"

	// ExternalEndpointReason: the user provides the endpoint; MAAS's DNS is not touched.
	ExternalEndpointReason = "ExternalEndpoint"

	// EndpointDiffersReason: the Cluster has another API endpoint than the MaasCluster has, or would get.
	EndpointDiffersReason = "EndpointDiffers"

	// VirtualIPReason: the endpoint is a virtual IP, which MAAS has reserved for the cluster.
	VirtualIPReason = "VirtualIP"

	// VirtualIPInUseReason: something else has the address of spec.virtualIP.
	VirtualIPInUseReason = "VirtualIPInUse"

	// VirtualIPInvalidReason: MAAS can't reserve the address of spec.virtualIP, or none in its subnet.
	VirtualIPInvalidReason = "VirtualIPInvalid"

	// DomainNotFoundReason: MAAS has no domain spec.dnsDomain.
	DomainNotFoundReason = "DomainNotFound"

	// DomainNotAuthoritativeReason: MAAS has spec.dnsDomain, and is not authoritative for it: no name there resolves.
	DomainNotAuthoritativeReason = "DomainNotAuthoritative"

	// NotAttachedReason: the DNS record does not have the machine's address yet.
	NotAttachedReason = "NotAttached"
)

// Reasons of FailureDomainsReady and LXDReady.
const (
	// EndpointInvalidReason: a server responds at the endpoint of the credentials, and has no API of MAAS there; also of
	// MachineDeployed.
	EndpointInvalidReason = "EndpointInvalid"

	// CertificateInvalidReason: MAAS's certificate can't be verified, or there is none; also of MachineDeployed.
	CertificateInvalidReason = "CertificateInvalid"

	// ZonesNotFoundReason: MAAS has no zone of that name; also of MachineDeployed.
	ZonesNotFoundReason = "ZonesNotFound"

	// WaitingForWorkloadClusterReason: the host cluster's Kubernetes API does not respond yet.
	WaitingForWorkloadClusterReason = "WaitingForWorkloadCluster"

	// HostsNotReadyReason: some nodes are not VM hosts yet, or MAAS does not know their resources, or their LXDHosts are
	// not ready; the message has their number.
	HostsNotReadyReason = "HostsNotReady"

	// InitializerNotAppliedReason: the host cluster refuses the initializer's objects.
	InitializerNotAppliedReason = "InitializerNotApplied"
)

// Reasons of MachineDeployed while the machine of a host cluster is deleted.
const (
	// VMsOnHostReason: VMs of clusters run on the machine, or on the LXDHost. Its deletion continues when they are gone.
	VMsOnHostReason = "VMsOnHost"

	// RetiringReason: the node is taken out of service as a VM host.
	RetiringReason = "Retiring"

	// VMHostUnclearReason: MAAS does not report for sure which VM host runs on the machine, so that it is unknown
	// whether there are VMs on it.
	VMHostUnclearReason = "VMHostUnclear"
)

// Reasons of the conditions of an LXDHost.
const (
	// LXDUnreachableReason: LXD does not respond at spec.address.
	LXDUnreachableReason = "LXDUnreachable"

	// LXDFailedReason: LXD responds with an error; the message has its words.
	LXDFailedReason = "LXDFailed"

	// CertificateMismatchReason: what responds has another certificate than spec.serverCertificate.
	CertificateMismatchReason = "CertificateMismatch"

	// NotTrustedReason: LXD does not trust the certificate in the Secret, or not for what is asked.
	NotTrustedReason = "NotTrusted"

	// EarlierKeysInUseReason: MAAS switches VMs with an earlier key pair, or it is not known yet with which.
	EarlierKeysInUseReason = "EarlierKeysInUse"

	// CertificateExpiresReason: the client certificate in the Secret ends soon, or has ended.
	CertificateExpiresReason = "CertificateExpires"

	// ProjectNotFoundReason: LXD has no project spec.project, or the certificate is not for it.
	ProjectNotFoundReason = "ProjectNotFound"

	// VMsNotSupportedReason: LXD can't run virtual machines there.
	VMsNotSupportedReason = "VMsNotSupported"

	// LXDClusteredReason: LXD is a member of an LXD cluster, in which a VM may be on another host.
	LXDClusteredReason = "LXDClustered"

	// ThroughMAASReason: the host is reached through MAAS, which has its own certificates for it.
	ThroughMAASReason = "ThroughMAAS"

	// ResourcesUnknownReason: MAAS has never reached the VM host, or does not know its cores and memory yet.
	ResourcesUnknownReason = "ResourcesUnknown"

	// ResourcePoolNotFoundReason: MAAS has no resource pool spec.resourcePool; also of MachineDeployed.
	ResourcePoolNotFoundReason = "ResourcePoolNotFound"

	// UnschedulableReason: spec.unschedulable keeps new VMs off the host.
	UnschedulableReason = "Unschedulable"

	// EvacuateReason: spec.evacuate keeps new VMs off the host.
	EvacuateReason = "Evacuate"

	// EvacuatedReason: no VM of a MaasMachine is left on the host.
	EvacuatedReason = "Evacuated"

	// EvacuatingReason: VMs are leaving the host, or wait for their turn.
	EvacuatingReason = "Evacuating"

	// VMsHeldReason: what is left on the host does not leave unless somebody does what the message says.
	VMsHeldReason = "VMsHeld"

	// VMsLeftReason: VMs may be left on the host; the message names them.
	VMsLeftReason = "VMsLeft"

	// EvacuationNotEnabledReason: the manager may not replace Machines.
	EvacuationNotEnabledReason = "EvacuationNotEnabled"

	// BridgeNotFoundReason: LXD has no bridge spec.networkBridge.
	BridgeNotFoundReason = "BridgeNotFound"

	// StoragePoolNotFoundReason: LXD has no storage pool spec.storagePool.
	StoragePoolNotFoundReason = "StoragePoolNotFound"

	// HostNotRunningReason: the machine of the VM host is not deployed in MAAS, or off.
	HostNotRunningReason = "HostNotRunning"
)

// Reasons of the conditions of a MaasRemediation.
const (
	// MachineHealthyReason: the Machine is healthy. Nothing is done.
	MachineHealthyReason = "MachineHealthy"

	// RemediationHeldReason: nothing is done until a person, or MAAS, is done with the machine; the message has the reason.
	RemediationHeldReason = "RemediationHeld"

	// WaitingForQuorumReason: the other Machines of the control plane could not do without this one.
	WaitingForQuorumReason = "WaitingForQuorum"

	// LeavingEndpointReason: the control plane leaves the API endpoint's DNS record before it is switched off.
	LeavingEndpointReason = "LeavingEndpoint"

	// PoweringOffReason: the machine is being switched off.
	PoweringOffReason = "PoweringOff"

	// PoweringOnReason: the machine is being switched on.
	PoweringOnReason = "PoweringOn"

	// PowerCycledReason: the machine was switched off and on.
	PowerCycledReason = "PowerCycled"

	// PowerCycleFailedReason: MAAS could not switch the machine off or on.
	PowerCycleFailedReason = "PowerCycleFailed"

	// PowerCycleOmittedReason: the machine is not switched off and on, because that can't help; the message has the reason.
	PowerCycleOmittedReason = "PowerCycleOmitted"

	// WaitingForNodeReason: the machine was switched off and on, and its Node may still become healthy.
	WaitingForNodeReason = "WaitingForNode"

	// HandedOverReason: Cluster API was told to replace the Machine.
	HandedOverReason = "HandedOver"
)
