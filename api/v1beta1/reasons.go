// SPDX-License-Identifier: Apache-2.0

package v1beta1

// The comment of each reason says what it means, what the provider does, and what is left to you, in Markdown as below
// docs. `make generate` makes docs/reasons.md of it, and what capmaasctl explain prints. A reason that needs no action
// is among the reasons of progress.

// # Everywhere
const (
	// CredentialsInvalidReason: there are no credentials; or MAAS returns 401 for the key; or the endpoint is another
	// MAAS than the one with the cluster's machines; or the key is new, and MAAS shows nothing of the cluster to it; or
	// the namespace may not use the manager's own credentials (`maas.namespaces`); or the LXDHost that has the VM is
	// for another MAAS, or it is not known for which; or it leads to another LXD, or project, than the one with the VM.
	//   - Provider: changes nothing in any MAAS. Checks again about once a minute, so a corrected Secret needs no
	//     restart. A running machine is Unknown, not False.
	//   - You: correct the Secret that the message names: that of `spec.credentialsRef` (keys `endpoint`, `apiKey`,
	//     `caBundle`), of an LXDHost's `spec.maasCredentialsRef`, or the manager's own (`maas-credentials`, and the
	//     ConfigMap `capmaas-config`). Test a key with `capmaasctl check maas`. For another MAAS see [machine
	//     states](machine-states.md#credentials-that-lead-to-another-maas). A Secret that was deleted while clusters
	//     use it [stays](troubleshooting.md#a-deletion-hangs), and works. If the message is about
	//     `spec.serverCertificate` or `spec.project`, put the former one back: [its
	//     LXD](lxdhost-objects.md#adding-a-direct-host).
	CredentialsInvalidReason = "CredentialsInvalid"

	// EndpointInvalidReason: a server responds at the endpoint of the credentials, and has no API of MAAS there: most
	// often, `/MAAS` is missing at the end of the URL.
	//   - You: correct `endpoint` in the Secret, or `maas.endpoint` of the chart. `capmaasctl check maas` and `helm
	//     test` say the same.
	EndpointInvalidReason = "EndpointInvalid"

	// CertificateInvalidReason: MAAS's certificate has expired, is for another name, or is signed by an authority that
	// the manager does not know; or the endpoint begins with `https://`, and MAAS speaks none. The message has the
	// remedy.
	//   - Provider: sends nothing. It tries again as [while MAAS does not
	//     answer](machine-states.md#while-maas-does-not-answer).
	//   - You: renew the certificate, correct the endpoint, or put the authority's certificate into `caBundle` of the
	//     Secret.
	CertificateInvalidReason = "CertificateInvalid"

	// OwnerIDTakenReason: the MaasCluster is a copy: its annotation `capmaas.io/owner-id` is that of an older one that
	// still exists, which the message names. It comes from a copied manifest, or a backup restored into another
	// namespace.
	//   - Provider: does nothing for the copy in MAAS, also during its deletion. The older one continues to work.
	//   - You: delete the copy; or delete its machines and remove the annotation, so that it is created anew. Only an
	//     administrator may do that ([why](security.md#tenants)), and only while the MaasCluster has this reason.
	OwnerIDTakenReason = "OwnerIDTaken"

	// OwnerIDLostReason: the annotation `capmaas.io/owner-id` of the MaasCluster is gone, or is not the one that its
	// machines were acquired with. `kubectl replace`, Argo CD with `Replace=true`, or a person did that; the chart's
	// [policy](security.md#tenants) refuses it.
	//   - Provider: makes no new id, and holds everything: nothing is replaced or given back, and no finalizer
	//     removed. Running machines are Unknown, not False.
	//   - You: restore the annotation to the value in the message: each MaasMachine has it in an annotation of the same
	//     name, and MAAS in the workload annotation `capmaas-owner` of the machines.
	OwnerIDLostReason = "OwnerIDLost"

	// OwnerIDInvalidReason: the annotation `capmaas.io/owner-id` of the MaasCluster is not 12 characters of a-z and
	// 0-9.
	//   - Provider: does nothing for the cluster, and holds its machines.
	//   - You: correct the annotation; on a cluster that has no machines yet, remove it.
	OwnerIDInvalidReason = "OwnerIDInvalid"

	// MAASBusyReason: MAAS gave up a request because it was busy (409 with `Retry-After`); or it is not this machine's
	// turn yet: MAAS acquires and deploys machines one after the other, and a VM host composes one VM after the other,
	// the next one when the last can be deployed.
	//   - Provider: retries when MAAS says, or when it is its turn: the machine closest to completion first, one that
	//     MAAS refused before last. It first looks for a VM that a compose may have left.
	//   - You: nothing. If it lasts, check what else uses this MAAS.
	MAASBusyReason = "MAASBusy"

	// MAASUnavailableReason: MAAS does not respond, or a proxy returns only errors, or the outcome of a request is
	// unknown because its response was lost.
	//   - Provider: after three calls without a response, it [sends one at a
	//     time](machine-states.md#while-maas-does-not-answer). It leaves running machines and DNS records as they are.
	//     After a lost response, it looks for the effect of the call, and repeats nothing before the settle time
	//     (`--settle-time`, 4 min; if the call switches power, four times as long, and at least `--power-settle-time`,
	//     16 min) is over.
	//   - You: check whether MAAS responds, from where the manager runs: `kubectl run maas --rm -i --restart=Never
	//     --image=curlimages/curl -- -sS http://maas.example.com:5240/MAAS/api/2.0/version/`.
	MAASUnavailableReason = "MAASUnavailable"

	// LXDUnavailableReason: the LXD of a direct host does not respond, or has not finished what it was asked for, or the
	// outcome of a request is unknown because its response was lost. The message has the host, what was being done, and
	// what LXD waits for, as far as it says.
	//   - Provider: leaves running machines as they are. After a lost response, it looks for the effect of the call on
	//     the host, and repeats nothing before the settle time is over, as with [MAAS](#maasunavailable).
	//   - You: `kubectl describe lxdhost NAME`; on the host, `lxc operation list --all-projects` and LXD's log
	//     (`journalctl -u snap.lxd.daemon`) show what it is busy with.
	LXDUnavailableReason = "LXDUnavailable"

	// MAASRefusedReason: MAAS responds, but refuses. The message is MAAS's own: a locked machine (403), a subnet
	// without a free address, a reserved IP that the machine can't have, a BMC that no rack controller reaches, a server
	// on no network.
	//   - Provider: retries every 30 seconds to a minute, and not sooner when something else wakes the object. Bare
	//     metal that waits for a person is [given back for now](#givenbackfornow) after 15 minutes. A server whose
	//     deployment is refused for its own network, disks or BMC is a failure (`status.failureReason`), and for half an
	//     hour no other Machine gets it.
	//   - You: follow the message. Without an address: free some in MAAS, or make the subnet or its ranges wider. With a
	//     reserved IP: link the interface to its subnet, or delete the reservation. Without a way to the BMC: check the
	//     rack controllers and the machine's power parameters.
	MAASRefusedReason = "MAASRefused"

	// NotReadyReason: anything else, as the message says; often an error of the management cluster's API. "not
	// reconciled yet" is normal in the first seconds.
	//   - Provider: retries with backoff.
	//   - You: if it lasts, read [the manager's log](troubleshooting.md#the-managers-log).
	NotReadyReason = "NotReady"
)

// # Before a machine is taken
const (
	// WaitingForClusterInfrastructureReason: the MaasCluster is not provisioned: it has no endpoint yet. Or it does not
	// [record its MAAS](adr/0019-a-cluster-keeps-to-its-maas.md) yet, though that responds; if that lasts, it lacks the
	// label of the chart's `watchFilter`, or the manager can't write it. During a machine's deletion: the MaasCluster is
	// gone, and its credentials with it. Or `infrastructureRef` of the Cluster names an object of another kind or API
	// group, and the message says which MaasCluster the machine lacks ([mixed clusters](mixed-clusters.md)).
	//   - Provider: takes nothing before that. Looks again once a minute.
	//   - You: check the MaasCluster's conditions. If the message names a label, give it to the MaasCluster; if it says
	//     only that the MAAS is not recorded, read [the manager's log](troubleshooting.md#the-managers-log). On an
	//     externally managed MaasCluster, set what the message names, or remove the annotation
	//     `cluster.x-k8s.io/managed-by` ([how](concepts.md#a-maascluster-that-something-else-manages)). If a person
	//     removed the MaasCluster by force, give the machine back in MAAS yourself; only then remove the finalizer
	//     `infrastructure.cluster.x-k8s.io/maasmachine`.
	WaitingForClusterInfrastructureReason = "WaitingForClusterInfrastructure"

	// WaitingForOwnerReason: no Cluster owns the MaasCluster, or no Machine the MaasMachine. Cluster API makes the one
	// that names it in `spec.infrastructureRef` its owner; the manager makes that Cluster the owner whose name is
	// `spec.clusterName` of the MaasCluster, unless it was made anew since ([mixed clusters](mixed-clusters.md)).
	//   - Provider: does nothing for it.
	//   - You: if it lasts, compare the names: does `spec.infrastructureRef` of the Cluster or Machine name this object,
	//     in this namespace? Does Cluster API run? Delete an object that nothing should use.
	WaitingForOwnerReason = "WaitingForOwner"

	// WaitingForBootstrapDataReason: there is no bootstrap data Secret. All control planes but the first wait for the
	// first one to run. Or the Machine names a Secret that does not exist, or has no data; the message has its name.
	//   - Provider: waits, and takes nothing. Looks for a named Secret again every 30 seconds.
	//   - You: check the first control plane, and its KubeadmConfig: `kubectl describe kubeadmconfig`. If the message
	//     names a Secret: create it, or delete the Machine.
	WaitingForBootstrapDataReason = "WaitingForBootstrapData"

	// BootstrapFormatNotSupportedReason: the bootstrap data Secret has another `format` than cloud-config, for example
	// ignition; the message has its name. The machines of MAAS and LXD read cloud-config only.
	//   - Provider: takes no machine, and asks MAAS for none.
	//   - You: set the format in the template of the bootstrap configuration (`spec.format` of a KubeadmConfig), so that
	//     the machine is replaced.
	BootstrapFormatNotSupportedReason = "BootstrapFormatNotSupported"

	// AdministratorNeededReason: MAAS, up to 3.7, lets only administrators do what the spec needs, and the user of the
	// API key is none. The message names the user, and what needs one: a VM, `spec.interfaces`, `spec.storage`, a
	// static address, or, on a MaasCluster, a name in MAAS's DNS.
	//   - You: make the user an administrator, or use an administrator's key in the Secret of `spec.credentialsRef`, or
	//     in the manager's credentials.
	AdministratorNeededReason = "AdministratorNeeded"

	// EntitlementMissingReason: MAAS forbids the API key's user a call that not everybody may make. From 3.8 on, no group
	// of the user has the entitlement for it; before, the user is no administrator. The message names the call, [what it
	// is for](security.md#the-least-key), the entitlement, and whether it must be for a resource pool or for all of MAAS.
	//   - Provider: tries again each minute. Bare metal that it has by then is [given back for now](#givenbackfornow)
	//     after 15 minutes.
	//   - You: give a group of the user the entitlement, or use another key. If the key is for one resource pool, name
	//     that in `spec.resourcePool`. A machine that is locked in MAAS is refused in the same way: unlock it.
	EntitlementMissingReason = "EntitlementMissing"

	// TagNotFoundReason: MAAS has no tag of a name in `spec.tags`. It would refuse to allocate a machine.
	//   - You: create it (`maas admin tags create name=NAME`) and put it on machines, or correct the
	//     MaasMachineTemplate.
	TagNotFoundReason = "TagNotFound"

	// ImageNotFoundReason: MAAS has no image of the name in `spec.image`, or not for `spec.architecture`, or not all of
	// its files, or only as `custom/NAME`, which [MAAS 3.8 and newer can't deploy](image-upload.md#upload); or the
	// LXDHost that was chosen lost its image of this name meanwhile. The message says which. Nothing was acquired for
	// it.
	//   - Provider: looks again every 30 seconds.
	//   - You: compare with `capmaasctl image list`. Import Ubuntu's images in MAAS, [upload your
	//     own](image-upload.md), to [LXDHosts](image-upload.md#images-on-lxdhosts) too, or correct the name in the
	//     MaasMachineTemplate.
	ImageNotFoundReason = "ImageNotFound"

	// NoMachineAvailableReason: no Ready machine in MAAS fits zone, pool, tags and sizes: the message counts all
	// machines by the first thing that each lacks, as in `8 machine(s): 5 in use; 3 with less than 64000 MiB of memory
	// (spec.minMemory), at most 32768`; or those that fit are in [quarantine](machine-states.md#quarantine), and the
	// message names them, why, and until when; or they have [no root file system](storage.md#raid), and the template
	// sets no layout; or they are DPUs, which MAAS neither switches off nor erases when they are released.
	//   - Provider: retries every 30 seconds. It never lets MAAS compose a VM instead.
	//   - You: compare the message with MAAS: `maas admin machines read | jq -r '.[] | [.hostname, .status_name,
	//     .zone.name, .pool.name, .cpu_count, .memory, (.tag_names|join(","))] | @tsv'`. Free or add a machine, or
	//     change the template. A repaired machine is allocated again at once after `capmaasctl machines lift NAME`.
	NoMachineAvailableReason = "NoMachineAvailable"

	// KeptMachineLostReason: a machine was [kept](giving-back.md#the-same-machine-again) for this MaasMachine, another
	// user of MAAS got it between its release and its allocation, and no other machine fits. The message names the
	// machine and the user.
	//   - Provider: touches that machine no more, and retries with any other every 30 seconds.
	//   - You: release the machine in MAAS, or add one. Keep other users off with a resource pool that they may not
	//     use.
	KeptMachineLostReason = "KeptMachineLost"

	// WaitingForRoomReason: of a MaasCluster (`MachinesHaveRoom`): machines of it have the reason `NoHostAvailable` or
	// `NoMachineAvailable`, so a rollout or scaling waits. The message has each with what the placement says.
	//   - Provider: goes on when they have room. The cluster stays Ready.
	//   - You: see these reasons. `capmaasctl plan` shows beforehand whether a change
	//     [fits](capacity.md#what-a-change-will-do).
	WaitingForRoomReason = "WaitingForRoom"

	// StorageImpossibleReason: the machines that match can't have the layout of `spec.storage`. The message names them
	// and the reason: "server-1 (abc123) has no such root disk: sda lacks the tag nvme, sdb has 400 GB", or MAAS's own
	// words. None was acquired, and nothing on them was changed.
	//   - Provider: passes over such machines, and retries every 30 seconds. It looks again at the machine that
	//     `spec.systemID` names each minute.
	//   - You: compare with the disks in MAAS: `maas admin block-devices read SYSTEM_ID | jq -r '.[] | [.name, .size,
	//     .serial, (.tags|join(","))] | @tsv'`. Choose machines with such disks by tags of machines, or change
	//     [`spec.storage`](storage.md) in the MaasMachineTemplate.
	StorageImpossibleReason = "StorageImpossible"

	// MachineDoesNotFitReason: the machine that `spec.systemID` names is not in the requested failure domain, zone or
	// resource pool, or lacks cores, memory, disk or a tag; or it has [no root file system](storage.md#raid), and the
	// spec sets no layout. The message says which.
	//   - You: name another machine, or change the request.
	MachineDoesNotFitReason = "MachineDoesNotFit"

	// NoHostAvailableReason: no host can take the VM. The message counts the causes, with the field that each is about:
	// "3 host(s): 2 out of memory (host-a1, host-a2), as spec.minMemory is 8192 MiB, and at most 4096 are free on one, 1
	// not in zone rack-a (host-b1), which is the failure domain".
	//   - Provider: retries every 30 seconds.
	//   - You: find each phrase in [the filters](placement.md#hosts-what-filters). Add a host, free room, raise the
	//     over-commit of the host, or change the template.
	NoHostAvailableReason = "NoHostAvailable"

	// ProfileNotFoundReason: `lxdConfig.profile` is not `maas`, and there are no direct hosts. MAAS can apply no other.
	//   - You: remove it from the template. Put your settings into the profile `maas` of the LXD project, on each host.
	//     No disks: MAAS would lose the VMs.
	ProfileNotFoundReason = "ProfileNotFound"

	// VMCreationFailedReason: MAAS could not compose the VM on the host that the message names. The rest of the message
	// is MAAS's, or LXD's.
	//   - Provider: puts the host in [cooldown](machine-states.md#cooldowns), and tries another one.
	//   - You: repair on that host what the message names; use `lxc info` and `journalctl -u snap.lxd.daemon` there.
	//     Check that MAAS reaches it: `capmaasctl check vm-host`.
	VMCreationFailedReason = "VMCreationFailed"

	// VMHostsNotSupportedReason: MAAS 4.0 and newer have no VM hosts. On an LXDHost: it was one of MAAS's VM hosts
	// before MAAS was upgraded. On a MaasMachine that is being deleted: its VM is on such a host.
	//   - Provider: bare metal works; new VMs, and the deletion of VMs that MAAS composed, wait until the LXDHost leads
	//     to LXD. The nodes of host clusters become direct hosts by themselves.
	//   - You: [prepare the LXDHosts](maas-4.md#prepare-the-lxdhosts) of the former VM hosts, or add [direct
	//     hosts](lxdhost-objects.md#adding-a-direct-host).
	VMHostsNotSupportedReason = "VMHostsNotSupported"

	// LXDTooNewReason: MAAS can make no VMs on this version of LXD: its driver for VM hosts, up to MAAS 3.8, needs what
	// LXD 6.7 removed. On an LXDHost of a VM host, and on the node of a host cluster. Direct hosts are not concerned.
	//   - Provider: does not register the node, and places no new VM on the VM host. One that MAAS has, and its VMs, are
	//     left as they are.
	//   - You: see [VM hosts of MAAS](lxd-versions.md#vm-hosts-of-maas).
	LXDTooNewReason = "LXDTooNew"
)

// # Addresses
//
// [Addresses](addresses.md) has how a machine gets them.
const (
	// WaitingForIPAddressReason: the IPAddressClaim exists, and the pool's provider has not responded; or an old claim
	// is being deleted.
	//   - You: is an IPAM provider running that serves this kind of pool in this namespace? `kubectl describe
	//     ipaddressclaim`.
	WaitingForIPAddressReason = "WaitingForIPAddress"

	// IPAddressRefusedReason: the pool's provider refuses an address; its reason is in the message (`PoolExhausted`,
	// `PoolNotReady`, `AllocationFailed`).
	//   - You: add addresses to the pool, or repair it.
	IPAddressRefusedReason = "IPAddressRefused"

	// IPPoolKindUnknownReason: the management cluster has no such kind of pool.
	//   - You: install the IPAM provider, or correct `staticIPPoolRef` in a new template.
	IPPoolKindUnknownReason = "IPPoolKindUnknown"

	// IPAddressClaimNotOursReason: an IPAddressClaim with the MaasMachine's name exists and belongs to something else.
	//   - You: delete the claim if nothing needs it, else the Machine: the next one has another name.
	IPAddressClaimNotOursReason = "IPAddressClaimNotOurs"

	// StaticIPInUseReason: something in MAAS has the address: a machine, a device, a reservation, or what MAAS has seen
	// in the network; or another MaasMachine is to have it. The message names it.
	//   - Provider: takes no machine for it. Checks again about once a minute.
	//   - You: free the address there, or use another one. In a rollout with a fixed `staticIP` it is the old machine's:
	//     change the address with the rollout. For several machines use a pool (`staticIPPoolRef`).
	StaticIPInUseReason = "StaticIPInUse"

	// StaticIPOutsideSubnetsReason: MAAS has no subnet with the address, or the device for it names another subnet.
	//   - You: add the subnet to MAAS, or correct the template.
	StaticIPOutsideSubnetsReason = "StaticIPOutsideSubnets"

	// StaticIPInDynamicRangeReason: the address is in a range that MAAS uses for DHCP; the message names it.
	//   - You: choose another address, or shrink the range.
	StaticIPInDynamicRangeReason = "StaticIPInDynamicRange"

	// StaticIPInvalidReason: MAAS refuses the address for another reason, which is in the message.
	//   - You: follow the message.
	StaticIPInvalidReason = "StaticIPInvalid"

	// NetworkDeviceInvalidReason: a VM's interface can't be linked as `lxdConfig.network.devices` says: MAAS has no
	// such subnet, or no interface of that name. Or a bare-metal machine can't have one of `spec.interfaces`: the
	// message names it and why.
	//   - Provider: checks again about once a minute. It has changed nothing on bare metal.
	//   - You: correct the devices or the interfaces in a new template, or add the subnet or the VLAN to MAAS, or
	//     correct the machine there ([each reason](interfaces.md#when-a-machine-cant-have-them)).
	NetworkDeviceInvalidReason = "NetworkDeviceInvalid"

	// GivenBackForNowReason: a bare-metal machine was allocated, and could not be deployed for 15 minutes, because of
	// something that a person must correct: its address or one of its interfaces is not as the spec says, MAAS refuses
	// to deploy it ([MAASRefused](#maasrefused)), or its bootstrap Secret is gone. The event of this name has the
	// reason.
	//   - Provider: has given the machine back as it was, with its disks erased as `spec.release` says if its
	//     deployment had begun. If it is free 15 minutes later, it is claimed again; if another user has it, the
	//     reason is [MachineNotOurs](#machinenotours). A VM is not given back.
	//   - You: do what the event says, or delete the Machine: its successor gets any machine that fits.
	GivenBackForNowReason = "GivenBackForNow"
)

// # Commissioning and deploying
const (
	// NotCommissionedReason: the bare-metal machine is New in MAAS.
	//   - Provider: commissions only what it composed.
	//   - You: commission it in MAAS.
	NotCommissionedReason = "NotCommissioned"

	// CommissioningFailedReason: MAAS could not commission the machine.
	//   - You: read the script results in MAAS; then delete the Machine, or commission the machine again in MAAS.
	CommissioningFailedReason = "CommissioningFailed"

	// CommissioningTimedOutReason: commissioning and testing take longer than
	// [`--commission-timeout`](machine-states.md#deadlines). It goes on if MAAS finishes after all.
	//   - You: check [the machine's console](troubleshooting.md#the-machines-console-and-logs), or delete the Machine.
	CommissioningTimedOutReason = "CommissioningTimedOut"

	// TestingFailedReason: the machine failed MAAS's hardware tests.
	//   - Provider: after the first deployment: waits for a person. So does the deletion, because a release would give
	//     the machine to others. A machine that failed [`spec.checks`](hardware-checks.md) is released, in quarantine.
	//   - You: read the results in MAAS, and override them there (the machine, and a deletion, go on), or repair the
	//     machine.
	TestingFailedReason = "TestingFailed"

	// DeployFailedReason: MAAS could not install the image: its state is Failed deployment, which only a release ends.
	//   - Provider: leaves the machine as it is, for you to inspect. It is in
	//     [quarantine](machine-states.md#quarantine).
	//   - You: read the machine's events and its installation output in MAAS; then delete the Machine. See [the machine
	//     does not boot](troubleshooting.md#the-machine-does-not-boot).
	DeployFailedReason = "DeployFailed"

	// SwitchedByHandReason: the machine's power type is manual: MAAS accepts each call that would switch it, and does
	// nothing. A deployment begins when a person switches it on, and a released machine runs on with what was deployed. It
	// is the reason of an event, not of a condition.
	//   - You: switch it, or exclude such machines with a tag in MAAS and `notTags`.
	SwitchedByHandReason = "SwitchedByHand"

	// DeployTimedOutReason: the deployment takes longer than [`--deploy-timeout`](machine-states.md#deadlines), or the
	// machine is Deployed and MAAS shows no address for it. It goes on if MAAS finishes after all.
	//   - You: as for DeployFailed. Without an address: check the machine's interfaces in MAAS.
	DeployTimedOutReason = "DeployTimedOut"
)

// # A machine that ran, and does not any more
//
// [MAAS's states](machine-states.md) has them in one table.
const (
	// PoweredOffReason: the machine is Deployed, and MAAS found it off.
	//   - Provider: does not switch it on. A control plane leaves the endpoint's DNS record after 5 minutes.
	//   - You: switch it on in MAAS, or delete the Machine. If it was deployed in memory, delete the Machine: MAAS would
	//     deploy it anew, without its bootstrap.
	PoweredOffReason = "PoweredOff"

	// MachineMissingReason: MAAS no longer has the machine, or reports it as Missing; or the LXDHost no longer has the VM.
	//   - Provider: empties the addresses, unless it is only the device of a VM that MAAS lost.
	//   - You: delete the Machine.
	MachineMissingReason = "MachineMissing"

	// MachineHiddenReason: MAAS has the machine, but hides it from the key's user (403): that user lost its resource
	// pool, or the key is another user's.
	//   - Provider: holds: the machine counts neither as lost nor as given back, and is Unknown if it ran. The alert
	//     `CapmaasMachinesVanished` fires.
	//   - You: give the user access to the machine again, or use a key with access.
	MachineHiddenReason = "MachineHidden"

	// MachinesVanishedReason: at least three machines, and more than a third of all, are gone from MAAS at once, as
	// after MAAS was restored from an old backup, or emptied.
	//   - Provider: holds: nothing is replaced, and no object is removed. The alert `CapmaasMachinesVanished` fires.
	//   - You: repair MAAS. If the machines are really gone, set the annotation `capmaas.io/accept-vanished` (any
	//     value) on the MaasCluster, and remove it when they have been replaced.
	MachinesVanishedReason = "MachinesVanished"

	// MachineReleasedReason: a person released the machine in MAAS after it had run.
	//   - You: delete the Machine, and find out who: `maas admin events query hostname=HOSTNAME`.
	MachineReleasedReason = "MachineReleased"

	// MachineBrokenReason: a person marked the machine broken, which releases it in MAAS: it is no longer ours.
	//   - You: delete the Machine; repair the machine and mark it fixed in MAAS.
	MachineBrokenReason = "MachineBroken"

	// MachineRetiredReason: the machine is Retired in MAAS.
	//   - You: delete the Machine.
	MachineRetiredReason = "MachineRetired"

	// MachineReservedReason: a person reserved the machine in MAAS.
	//   - You: release it in MAAS; then delete the Machine.
	MachineReservedReason = "MachineReserved"

	// MachineLockedReason: the machine is locked in MAAS, which refuses the next operation on it (deploying, releasing,
	// deleting).
	//   - You: unlock it in MAAS.
	MachineLockedReason = "MachineLocked"

	// RescueModeReason: the machine is in rescue mode, or entering or leaving it. A person may be saving data.
	//   - You: exit rescue mode in MAAS.
	RescueModeReason = "RescueMode"

	// RescueModeFailedReason: MAAS could not bring the machine into rescue mode or out of it.
	//   - Provider: waits. A deletion exits rescue mode by itself, and retries.
	//   - You: exit rescue mode in MAAS, or delete the Machine.
	RescueModeFailedReason = "RescueModeFailed"

	// MachineNotUsableReason: the machine is in a state of MAAS that this version of the provider does not know.
	//   - You: bring it out of that state in MAAS; report the state to us.
	MachineNotUsableReason = "MachineNotUsable"

	// MachineNotOursReason: MAAS has no record that this cluster acquired the machine; or a machine or device of
	// MAAS's, or a VM in LXD, that is not proven ours has a VM's name or MAC address.
	//   - Provider: never touches it, also when the Machine is deleted.
	//   - You: find out who has it: the message names the MAAS user. If that is the provider's own, the machine is
	//     another cluster's, or this cluster no longer has the owner id that it was acquired with. Delete the Machine:
	//     its successor has another name, and with that, on an LXDHost, another MAC address. If the name is the problem,
	//     you may also rename the other machine in MAAS.
	MachineNotOursReason = "MachineNotOurs"

	// DeploymentNotOursReason: the machine is this cluster's, and another call than this MaasMachine's had MAAS deploy
	// it: an administrator's, or one of an earlier manager that took effect late. What runs on it is not known.
	//   - You: delete the Machine. A MachineHealthCheck does so by itself.
	DeploymentNotOursReason = "DeploymentNotOurs"

	// ProviderIDDiffersReason: the Node with the machine's name has another provider ID, for example `rke2://NAME`: a
	// cloud controller, or a kubelet's argument, has set it. Cluster API does not find the Node. It is the reason of an
	// event, not of a condition.
	//   - Provider: leaves the Node alone. A provider ID never changes.
	//   - You: switch that cloud controller off ([provider IDs](bootstrap-providers.md#provider-ids)), and replace the
	//     Machine.
	ProviderIDDiffersReason = "ProviderIDDiffers"

	// ProviderIDTakenReason: another Node of the workload cluster has the machine's provider ID: it is left of an
	// earlier Machine, or its machine is in another MAAS, in a zone of the same name, with the same system id. Cluster
	// API finds neither of two such Nodes. It is the reason of an event, not of a condition.
	//   - Provider: does not give the ID to a second Node, and tries again every few minutes.
	//   - You: delete the Node that the event names if its machine is gone. Otherwise replace this Machine.
	ProviderIDTakenReason = "ProviderIDTaken"

	// FormerNodeReason: the Node with the machine's name is being deleted, or is older than this deployment, and no
	// kubelet of it has reported there: it was left when the server was another user's, or is held by a finalizer.
	//   - Provider: leaves that Node alone. When the machine's own one is there, it gets its provider ID and labels at
	//     once.
	//   - You: have what holds the Node let it go, or delete it. A kubelet that has started by then registers its Node at
	//     its next start: restart it.
	FormerNodeReason = "FormerNode"

	// NodeGoneReason: the machine's Node was deleted in the workload cluster, and its machine runs. A kubelet registers
	// its Node only when it starts.
	//   - Provider: gives the Node its provider ID and labels again when it is registered.
	//   - You: restart the kubelet, or delete the Machine. A MachineHealthCheck does so by itself.
	NodeGoneReason = "NodeGone"
)

// # Giving a machine back
const (
	// EraseFailedReason: MAAS could not erase the disks. (Before a deletion: another user released the machine, and
	// that failed.)
	//   - Provider: keeps the machine. Retries [with backoff](giving-back.md#when-it-fails) up to an hour, and at once
	//     when `spec.release.erase` changes.
	//   - You: repair the disks or the machine; or give it back unerased: `kubectl patch maasmachine NAME --type merge
	//     -p '{"spec":{"release":{"erase":"none"}}}'`.
	EraseFailedReason = "EraseFailed"

	// EraseOverdueReason: erasing takes longer than [expected](giving-back.md#while-disks-are-erased). MAAS itself has
	// no limit.
	//   - You: check the machine's console. *Abort* in MAAS makes the attempt fail, and the provider repeats it.
	EraseOverdueReason = "EraseOverdue"

	// ReleaseFailedReason: MAAS could not release the machine, most often because it can't switch it off.
	//   - Provider: as for EraseFailed.
	//   - You: repair the machine's power control (BMC) in MAAS: *Check power*.
	ReleaseFailedReason = "ReleaseFailed"

	// ReleaseOverdueReason: the machine has been Releasing for longer than
	// [expected](giving-back.md#while-it-is-released).
	//   - You: check the machine's power and its events in MAAS.
	ReleaseOverdueReason = "ReleaseOverdue"

	// VMCameBackReason: the VM was deleted, and its host has it again.
	//   - Provider: deletes it again, after 5 s, 10 s and so on up to 5 minutes, until it is gone.
	//   - You: on the host, `lxc list --project maas` and `lxc info --project maas --show-log VM` show why LXD can't
	//     delete it.
	VMCameBackReason = "VMCameBack"

	// VMHostUnreachableReason: the VM is being deleted, and its host can't be asked whether it is gone: MAAS can't refresh
	// the VM host, or does not have it any more, or the LXD of the LXDHost does not respond. Or a VM that is being made
	// may be on 32 hosts already, none of which can be asked: it is made on no other one until one of them can.
	//   - Provider: retries for `--vm-host-unreachable-timeout` (5 minutes); then it removes the finalizer, and the
	//     event `VMMayRemain` names VM and host.
	//   - You: nothing: the VM is deleted when the host is back ([a host that dies](maintenance.md#a-host-that-dies)).
	//     Without an LXDHost, refresh the VM host in MAAS then; `capmaasctl orphans` finds what is left. If MAAS does not
	//     have the VM host any more, delete the VM in its LXD.
	VMHostUnreachableReason = "VMHostUnreachable"

	// VMHostGoneReason: MAAS does not have the VM host of the LXDHost any more, and VMs may be left on it.
	//   - Provider: keeps the LXDHost, which alone remembers them (`NoVMsLeft`).
	//   - You: register the VM host in MAAS again under its name, so that the VMs are deleted; or, if it is gone for good,
	//     delete the LXDHost.
	VMHostGoneReason = "VMHostGone"

	// VMsOnHostReason: the machine is a host and is being deleted, but VMs live on it; or its LXDHost is not gone yet,
	// and the message is the LXDHost's. Of an LXDHost that is deleted: LXD has VMs with the provider's marks, or a
	// MaasMachine may be making one there.
	//   - Provider: puts no new VM there, and waits. It deletes no VM of others.
	//   - You: delete the Machines of the VMs that the message names, or the VMs that you made yourself. If LXD does
	//     not respond any more, `kubectl describe lxdhost NAME` says what to do.
	VMsOnHostReason = "VMsOnHost"

	// VMHostUnclearReason: the machine is a VM host and is being deleted, but it is uncertain which VM host of MAAS
	// runs on it, and so whether VMs live there: MAAS shows none on the machine, although its Node is one, or was one
	// and can't be read; or one whose address or certificate says otherwise.
	//   - Provider: the initializer registers a VM host that a person removed, [while LXD has no
	//     VMs](host-clusters.md#vms-that-maas-does-not-know). The machine is neither switched off nor released.
	//   - You: follow the message. If MAAS confuses machines, interfaces of the nodes share a MAC address, as with
	//     [Calico](host-clusters.md#the-network-plugin).
	VMHostUnclearReason = "VMHostUnclear"
)

// # The API endpoint and the zones
const (
	// DomainNotFoundReason: MAAS does not serve `spec.dnsDomain`. Upper and lower case must match MAAS's.
	//   - You: create the domain in MAAS (`maas admin domains create name=NAME`), or name one of `maas admin domains
	//     read`.
	DomainNotFoundReason = "DomainNotFound"

	// DomainNotAuthoritativeReason: MAAS has `spec.dnsDomain`, and is not authoritative for it: its DNS serves no
	// name there. Terraform's `maas_dns_domain` makes such domains by default.
	//   - You: make it authoritative (`maas admin domain update NAME authoritative=true`), or name another domain.
	DomainNotAuthoritativeReason = "DomainNotAuthoritative"

	// ZonesNotFoundReason: a zone in `spec.failureDomains` of a MaasCluster, `spec.zone` of an LXDHost, or the failure
	// domain of a machine, is not in MAAS.
	//   - Provider: uses the others; if there are none, a new MaasCluster waits, and of another one the new control
	//     planes; puts no VM on that host; takes no machine.
	//   - You: create it (`maas admin zones create name=NAME`), or change the MaasCluster, the LXDHost, or the
	//     Machine's owner.
	ZonesNotFoundReason = "ZonesNotFound"

	// VirtualIPInUseReason: something else has the address of `spec.virtualIP`. If the cluster has its endpoint
	// already, the address was released in MAAS, and something took it.
	//   - Provider: checks again once a minute; never releases reservations of others.
	//   - You: free it in MAAS, or use another one while the cluster has no endpoint yet.
	VirtualIPInUseReason = "VirtualIPInUse"

	// VirtualIPInvalidReason: MAAS can't reserve the address: it is in a dynamic or a reserved range, or in no subnet;
	// or the subnet is unknown or full.
	//   - You: correct `spec.virtualIP`, or the ranges in MAAS.
	VirtualIPInvalidReason = "VirtualIPInvalid"

	// EndpointDiffersReason: the Cluster has another API endpoint than the MaasCluster has, or would get. Clients and
	// nodes use the Cluster's; this provider maintains the MaasCluster's.
	//   - Provider: keeps an existing endpoint up to date; a new cluster is not provisioned.
	//   - You: remove `spec.controlPlaneEndpoint` of a new Cluster, or set the MaasCluster's to the same if you provide
	//     the endpoint. If clients of an old cluster use the MaasCluster's, set the Cluster's to it; if they use the
	//     Cluster's, [make a MaasCluster](clusterctl.md#make-a-cluster-anew-over-its-machines) that has it.
	EndpointDiffersReason = "EndpointDiffers"

	// WaitingForControlPlaneReason: no control plane has an address yet, so there is no DNS record.
	//   - You: check the first control plane.
	WaitingForControlPlaneReason = "WaitingForControlPlane"

	// NotAttachedReason: the DNS record does not contain this control plane's address. The address is added once the
	// control plane has joined, and removed 5 minutes after it stopped running.
	//   - Provider: does not empty the record: if no control plane would be left, it stays as it is.
	//   - You: if the Node exists and the reason lasts: `kubectl describe maascluster`, condition `DNSReady`.
	NotAttachedReason = "NotAttached"
)

// # Host clusters
const (
	// WaitingForWorkloadClusterReason: the host cluster's Kubernetes API does not respond.
	//   - You: check its control planes; check that the management cluster resolves and reaches the endpoint.
	WaitingForWorkloadClusterReason = "WaitingForWorkloadCluster"

	// HostsNotReadyReason: some nodes are not VM hosts yet or, if MAAS has no VM hosts, have no LXDHost that is Ready.
	// The message counts them, and names what the first ones lack.
	//   - You: see [a node does not become a VM host](troubleshooting.md#a-node-does-not-become-a-vm-host). If the
	//     message is about an LXDHost or a Secret of the management cluster: [MAAS without VM
	//     hosts](host-clusters.md#maas-without-vm-hosts).
	HostsNotReadyReason = "HostsNotReady"

	// InitializerNotAppliedReason: the host cluster's API refuses the initializer's objects; the message is the API's.
	//   - Provider: retries every 30 seconds.
	//   - You: Kubernetes 1.30 or newer is needed there; check for an admission webhook or policy that forbids
	//     hostPath.
	InitializerNotAppliedReason = "InitializerNotApplied"
)

// # LXD hosts
//
// These are of [LXDHosts](lxdhost-objects.md). In each case the provider places no new VM on the host, leaves those
// that run there, keeps the last figures, and looks again about every 30 s.
const (
	// LXDUnreachableReason: LXD does not respond at `spec.address`; the message has the network's reason.
	//   - You: check the host, its firewall, and that `lxc config get core.https_address` is that address.
	LXDUnreachableReason = "LXDUnreachable"

	// LXDFailedReason: LXD responds with an error; the message has its words.
	//   - You: look into LXD's log on the host (`journalctl -u snap.lxd.daemon`).
	LXDFailedReason = "LXDFailed"

	// CertificateMismatchReason: what responds at `spec.address` has another certificate than `spec.serverCertificate`:
	// LXD has a new one, or it is another server.
	//   - Provider: sends it nothing.
	//   - You: if it is this LXD, put its `server.crt` into the LXDHost; otherwise find out who has the address.
	CertificateMismatchReason = "CertificateMismatch"

	// NotTrustedReason: LXD does not trust the certificate in the Secret of `spec.credentialsRef`, or not for what is
	// asked.
	//   - You: `lxc config trust add tls.crt --restricted --projects maas` on the host, or correct the Secret. A
	//     fine-grained identity needs `can_view_resources` on the server, too.
	NotTrustedReason = "NotTrusted"

	// CertificateExpiresReason: the client certificate in the Secret of `spec.credentialsRef` ends within 30 days, or
	// has ended. LXD refuses one that has ended. `Ready` does not depend on it.
	//   - Provider: uses it as long as LXD accepts it. On nodes of host clusters, the initializer makes a new pair by
	//     itself.
	//   - You: [replace it](security.md#rotation-of-the-key-pairs-for-lxd). On a node of a host cluster: does the
	//     initializer run there, and what does the Node's condition say?
	CertificateExpiresReason = "CertificateExpires"

	// ProjectNotFoundReason: LXD has no project `spec.project`, or the certificate is not for it.
	//   - You: create the project, or let the certificate be for it, as in [adding a direct
	//     host](lxdhost-objects.md#adding-a-direct-host).
	ProjectNotFoundReason = "ProjectNotFound"

	// VMsNotSupportedReason: LXD runs containers there, but no virtual machines: QEMU or `/dev/kvm` is missing.
	//   - You: switch on virtualization in the firmware; install QEMU, if LXD is not the snap. The warnings of `lxc
	//     info` say what is missing.
	VMsNotSupportedReason = "VMsNotSupported"

	// LXDClusteredReason: LXD is a member of an LXD cluster, in which a VM may be on another host than the one that was
	// asked.
	//   - You: use an LXD that stands alone.
	LXDClusteredReason = "LXDClustered"

	// BridgeNotFoundReason: LXD shows no bridge `spec.networkBridge`; the message has those that it shows.
	//   - Provider: puts no VM there, not even one that names another bridge.
	//   - You: make the bridge on the host, or correct the LXDHost.
	BridgeNotFoundReason = "BridgeNotFound"

	// StoragePoolNotFoundReason: LXD has no storage pool `spec.storagePool`; the message has those that it has.
	//   - You: `lxc storage create` on the host, or correct the LXDHost.
	StoragePoolNotFoundReason = "StoragePoolNotFound"

	// ResourcePoolNotFoundReason: MAAS has no resource pool `spec.resourcePool`, of an LXDHost or a bare-metal machine.
	//   - Provider: puts no VM there; takes no machine.
	//   - You: create it (`maas admin resource-pools create name=NAME`), or correct the LXDHost or the
	//     MaasMachineTemplate.
	ResourcePoolNotFoundReason = "ResourcePoolNotFound"

	// ResourcesUnknownReason: MAAS has never reached this VM host, or does not know its cores and memory yet.
	//   - You: wait a minute after a registration; then check that MAAS reaches it: `maas admin vm-host refresh ID`.
	ResourcesUnknownReason = "ResourcesUnknown"

	// HostNotRunningReason: the machine of this VM host is not deployed in MAAS, or powered off.
	//   - You: switch it on, or repair it.
	HostNotRunningReason = "HostNotRunning"

	// EvacuationNotEnabledReason: the host is to be empty (`spec.evacuate`), or is being deleted, and the manager
	// has no right to replace Machines.
	//   - You: set the chart's value `evacuation.enabled` to true
	//     ([maintenance](maintenance.md#once-let-the-manager-replace-machines)); or delete the Machines yourself.
	EvacuationNotEnabledReason = "EvacuationNotEnabled"

	// VMsLeftReason: maasMachines were deleted while this host did not respond, and it may still have their VMs.
	//   - Provider: deletes them when the host is back ([a host that dies](maintenance.md#a-host-that-dies)).
	//   - You: nothing, or what the message says of a VM that is kept.
	VMsLeftReason = "VMsLeft"

	// VMsHeldReason: the VMs that are left on a host that is to be empty do not leave unless a person does something.
	// The message has each with its reason.
	//   - Provider: looks again every 15 s, and goes on as soon as it can.
	//   - You: do what the message says ([what does not leave](maintenance.md#what-does-not-leave)).
	VMsHeldReason = "VMsHeld"
)

// # Hardware
//
// The provider reports these (`HardwareHealthy`, `HardwareProven`), and goes on with a machine that runs.
const (
	// TestsFailedReason: a hardware test of this bare-metal machine failed, or timed out, in MAAS. The message says of
	// what: CPU, memory, storage, network.
	//   - You: see the results in MAAS (`maas admin node-script-results read ID`). Replace the Machine, or its broken
	//     part; a result that does not matter can be suppressed in MAAS.
	TestsFailedReason = "TestsFailed"

	// TestsDegradedReason: a hardware test of this bare-metal machine found something that works, and not as it should.
	//   - You: as for [TestsFailed](#testsfailed).
	TestsDegradedReason = "TestsDegraded"

	// NotTestedReason: MAAS has no hardware test of this bare-metal machine, or the last one was aborted.
	//   - You: nothing, unless you have Machines wait for it ([hardware](machine-states.md#hardware)): then have MAAS
	//     test machines while they are in the pool (`maas admin machine test ID`), or when it commissions them.
	NotTestedReason = "NotTested"

	// ChecksFailedReason: the machine failed a script of [`spec.checks`](hardware-checks.md), or the scripts did not end
	// in time. The message has the script, its result, MAAS's page of it and its last lines.
	//   - Provider: never deploys the machine. It is in [quarantine](machine-states.md#quarantine) until a person lifts
	//     it, or later tests in MAAS have passed what it had not. It goes back to the pool when the Machine is deleted.
	//   - You: delete the Machine, or let a [MachineHealthCheck](hardware-checks.md#another-server-is-taken) do it: the
	//     next one gets another server. Repair this one.
	ChecksFailedReason = "ChecksFailed"

	// TooManyFailedReason: as many servers as `spec.checks.maxFailed` says are in quarantine, because they failed the
	// checks of this template: the cause may be none of them.
	//   - Provider: takes and tests no further server for the template.
	//   - You: look at the results that the message names; then lift a quarantine (`capmaasctl machines lift NAME`), or
	//     change the template.
	TooManyFailedReason = "TooManyFailed"

	// ChecksInvalidReason: MAAS has no testing script with a name or tag of `spec.checks.scripts`, or refuses its
	// parameters.
	//   - Provider: takes no machine, or does not deploy the one that it has.
	//   - You: upload the script to MAAS ([how](hardware-checks.md#a-script-of-your-own)), or correct the template.
	ChecksInvalidReason = "ChecksInvalid"
)

// # Remediation
//
// These are of [MaasRemediations](remediation.md).
const (
	// RemediationHeldReason: a person, or MAAS, is not done with the machine: something is paused, the Machine has the
	// annotation `cluster.x-k8s.io/skip-remediation`, or the machine is locked, in rescue mode, being tested and so on;
	// or the MaasRemediation has no Machine.
	//   - You: do what the message says.
	RemediationHeldReason = "RemediationHeld"

	// WaitingForQuorumReason: the control plane can't do without this machine now: others are not healthy, or one is
	// being deleted. The message names one of them. Or the machine is of a host cluster and has no LXDHost, and so it is
	// not known which VMs are on it.
	//   - Provider: looks again every 10 s.
	//   - You: repair the other control planes. If that is not possible, restore etcd from a backup. Without an LXDHost,
	//     see why there is none in the manager's log, or delete the Machine.
	WaitingForQuorumReason = "WaitingForQuorum"

	// PowerCycleFailedReason: MAAS was asked 3 times to switch the machine off, or on, and it did not follow.
	//   - Provider: has Cluster API replace the Machine.
	//   - You: check the machine's power settings and its BMC in MAAS: *Check power* on its page.
	PowerCycleFailedReason = "PowerCycleFailed"
)

// # Reasons of progress
//
// These need no action. If one lasts, follow the last column.
const (
	// ReadyReason: the object is as desired.
	ReadyReason = "Ready"

	// DeployedReason: the machine runs.
	DeployedReason = "Deployed"

	// HostSelectedReason: the VM will be on the host in `status.lxdHost`.
	HostSelectedReason = "HostSelected"

	// AllocatedReason: the cores, memory and disk of the VM are allocated.
	AllocatedReason = "Allocated"

	// CreatedReason: the VM exists.
	CreatedReason = "Created"

	// CreatingReason: the VM was composed, and MAAS does not show it yet; or the provider looks for it after a lost
	// response.
	//   - If it stays: [MAASUnavailable](#maasunavailable)
	CreatingReason = "Creating"

	// CommissioningReason: MAAS commissions the machine.
	//   - If it stays: [deadlines](machine-states.md#deadlines)
	CommissioningReason = "Commissioning"

	// TestingReason: MAAS tests the machine. In a deletion: the test is aborted.
	//   - If it stays: [deadlines](machine-states.md#deadlines)
	TestingReason = "Testing"

	// ChecksRunningReason: MAAS runs the scripts of `spec.checks` on the machine; or as many machines as
	// `spec.checks.maxTesting` says are being tested, and this one is next.
	//   - If it stays: [hardware checks](hardware-checks.md#how-long-it-takes)
	ChecksRunningReason = "ChecksRunning"

	// ChecksPassedReason: the machine has passed all scripts of `spec.checks`; the message says when.
	ChecksPassedReason = "ChecksPassed"

	// DeployingReason: MAAS installs the image, or does not show the address yet.
	//   - If it stays: [the machine does not boot](troubleshooting.md#the-machine-does-not-boot)
	DeployingReason = "Deploying"

	// ExternalEndpointReason: the endpoint is yours, or your control-plane provider's. If it is False: neither the
	// Cluster nor the MaasCluster has one yet, or the Cluster's infrastructure is a MaasCluster with `spec.clusterName`.
	//   - If it stays: [endpoints](endpoints.md#your-own), [hosted control planes](hosted-control-planes.md)
	ExternalEndpointReason = "ExternalEndpoint"

	// VirtualIPReason: the endpoint is an address that MAAS has reserved.
	//   - If it stays: [endpoints](endpoints.md#a-virtual-ip)
	VirtualIPReason = "VirtualIP"

	// DeletingReason: the object is being deleted; the message says what the deletion waits for.
	//   - If it stays: [a deletion hangs](troubleshooting.md#a-deletion-hangs)
	DeletingReason = "Deleting"

	// KeepingReason: the machine is switched off to wait for the next Machine, or that one is taking it.
	//   - If it stays: [the same machine again](giving-back.md#the-same-machine-again)
	KeepingReason = "Keeping"

	// ReleasingReason: the machine is on its way back to the pool, or the VM is being deleted.
	//   - If it stays: [giving back](giving-back.md#while-it-is-released)
	ReleasingReason = "Releasing"

	// ErasingDisksReason: MAAS erases the disks, as `spec.release.erase` says.
	//   - If it stays: [giving back](giving-back.md#while-disks-are-erased)
	ErasingDisksReason = "ErasingDisks"

	// VerifyingVMReason: the VM was deleted, and its host is being checked.
	//   - If it stays: [VMHostUnreachable](#vmhostunreachable)
	VerifyingVMReason = "VerifyingVM"

	// ReturningIPAddressReason: the machine is gone, and its IPAddressClaim is being deleted.
	//   - If it stays: is the IPAM provider running?
	ReturningIPAddressReason = "ReturningIPAddress"

	// RetiringReason: the node is being retired as a VM host.
	//   - If it stays: [host clusters](host-clusters.md#when-a-host-goes)
	RetiringReason = "Retiring"

	// TestsPassedReason: all hardware tests in MAAS passed.
	TestsPassedReason = "TestsPassed"

	// TestsRunningReason: MAAS is testing the machine.
	TestsRunningReason = "TestsRunning"

	// ThroughMAASReason: MAAS has certificates of its own for its VM hosts.
	ThroughMAASReason = "ThroughMAAS"

	// UnschedulableReason: a person keeps new VMs off the LXDHost with `spec.unschedulable`.
	//   - If it stays: [keeping VMs off](lxdhost-objects.md#keeping-vms-off-a-host)
	UnschedulableReason = "Unschedulable"

	// EvacuateReason: a person empties the LXDHost with `spec.evacuate`.
	//   - If it stays: [maintenance](maintenance.md)
	EvacuateReason = "Evacuate"

	// EvacuatingReason: VMs are leaving the LXDHost, or wait for their turn; the message has each.
	//   - If it stays: [what leaves when](maintenance.md#what-leaves-when)
	EvacuatingReason = "Evacuating"

	// EvacuatedReason: no VM of a MaasMachine is left on the LXDHost.
	EvacuatedReason = "Evacuated"

	// LXDHostRetiredReason: the host is retired, and waits for the others of its host cluster.
	//   - If it stays: [VMsOnHost](#vmsonhost) of another one
	LXDHostRetiredReason = "Retired"

	// MachineHealthyReason: the Machine is healthy, and nothing is done.
	//   - If it stays: delete the MaasRemediation, if no MachineHealthCheck does
	MachineHealthyReason = "MachineHealthy"

	// LeavingEndpointReason: the control plane leaves the DNS record.
	LeavingEndpointReason = "LeavingEndpoint"

	// PoweringOffReason: the machine is being switched off, or is off, and MAAS may try that once more. The message has
	// MAAS's own if it could not.
	//   - If it stays: [the steps](remediation.md#the-steps)
	PoweringOffReason = "PoweringOff"

	// PoweringOnReason: the machine is being switched on; the message has MAAS's own if it could not.
	//   - If it stays: [the steps](remediation.md#the-steps)
	PoweringOnReason = "PoweringOn"

	// PowerCycledReason: the machine was switched off and on.
	PowerCycledReason = "PowerCycled"

	// PowerCycleOmittedReason: a power cycle could not help; the message says why. The Machine is replaced.
	PowerCycleOmittedReason = "PowerCycleOmitted"

	// WaitingForNodeReason: the Node has time to be healthy, until the time in the message.
	WaitingForNodeReason = "WaitingForNode"

	// HandedOverReason: the Machine's owner replaces it.
	//   - If it stays: the Machine's condition `OwnerRemediated`
	HandedOverReason = "HandedOver"
)
