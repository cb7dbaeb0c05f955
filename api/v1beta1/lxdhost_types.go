// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// LXDHostFinalizer is removed from an LXDHost once no VM of a MaasMachine is left on it.
	LXDHostFinalizer = "infrastructure.cluster.x-k8s.io/lxdhost"

	// BroughtByLabel on an LXDHost in the manager's namespace is the namespace that uses the MAAS of its VM host, which is
	// not the manager's own.
	BroughtByLabel = "capmaas.io/brought-by"

	// LXDAnnotation identifies the LXD and the project that have the VMs of a direct host: LXD's own fingerprint of its
	// certificate (SHA-256, in hex), "/" and the project. Without it, VMs are there as spec says.
	LXDAnnotation = "capmaas.io/lxd"

	// AllNamespaces in LXDHost.spec.allowedNamespaces stands for every namespace.
	AllNamespaces = "*"
)

// VMHostReference identifies a VM host of MAAS.
type VMHostReference struct {
	// id is MAAS's id of the VM host.
	// +required
	// +kubebuilder:validation:Minimum=1
	ID int64 `json:"id"`

	// systemID is MAAS's id of the machine that the VM host runs on. Empty: MAAS does not know it.
	// +optional
	// +kubebuilder:validation:MaxLength=41
	SystemID string `json:"systemID,omitempty"`
}

// LXDOverCommit is how much of an LXD host may be promised to VMs.
type LXDOverCommit struct {
	// cpuPercent is how many cores may be promised to VMs, in percent of the host's. Default: 100.
	// +optional
	// +kubebuilder:default=100
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	CPUPercent int32 `json:"cpuPercent,omitempty"`

	// memoryPercent is how much memory may be promised to VMs, in percent of the host's. Default: 100.
	// +optional
	// +kubebuilder:default=100
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MemoryPercent int32 `json:"memoryPercent,omitempty"`
}

// LXDAllowedDevice are devices of an LXD host that VMs of other namespaces may get: those of a type that have all
// properties.
type LXDAllowedDevice struct {
	// type is LXD's type of the devices: gpu, pci, tpm or usb.
	// +required
	Type LXDDeviceType `json:"type"`

	// properties that a device in lxdConfig.devices of a MaasMachine must have, with these values, in LXD's words: for
	// example address of a pci device, or vendorid and productid of a usb device. Default: none, any device of the type.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="!('type' in self) && self.all(key, self[key].size() <= 1024)",message="properties have at most 1024 characters each, and no type: that is the field type"
	Properties map[string]string `json:"properties,omitempty"`
}

// LXDHostSpec is the desired state of an LXDHost.
// +kubebuilder:validation:XValidation:rule="has(self.vmHost) || (has(self.address) && has(self.serverCertificate))",message="address and serverCertificate are required: the address of LXD's HTTPS API, and the certificate that LXD has there (server.crt)"
// +kubebuilder:validation:XValidation:rule="has(self.vmHost) || has(self.credentialsRef)",fieldPath=".credentialsRef",message="credentialsRef is required: a Secret with a client certificate that LXD trusts for the project, and its key (tls.crt, tls.key)"
// +kubebuilder:validation:XValidation:rule="!has(self.credentialsRef) || (has(self.address) && has(self.serverCertificate))",fieldPath=".credentialsRef",message="credentialsRef needs address and serverCertificate: the address of LXD's HTTPS API, and the certificate that LXD has there (server.crt)"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.credentialsRef) || self.project == oldSelf.project",fieldPath=".project",message="project is immutable: the VMs are in it; make another LXDHost for another project"
type LXDHostSpec struct {
	// vmHost is the VM host of MAAS that this is, or was. The controller sets it on the LXDHosts that it makes for the VM
	// hosts of MAAS; zone, resourcePool, tags, storagePool, overCommit and allowedNamespaces follow MAAS there. When MAAS
	// has no VM hosts any more (4.0 and newer), and credentialsRef is set, VMs are made through LXD's own API, and MAAS's
	// VMs on this host are adopted. Empty: VMs are made through LXD's own API from the beginning.
	// +optional
	VMHost *VMHostReference `json:"vmHost,omitempty"`

	// address is where the manager reaches LXD's HTTPS API: an IP address or a name, and a port if it is not 8443. For
	// example 10.77.0.11 or [fd00::11]:8443.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=261
	// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9.-]+|\\\\[[0-9A-Fa-f:.]+\\\\])(:[0-9]{1,5})?$')",message="address is an IP address or a name, with or without a port and without https://, for example 10.77.0.11:8443; an IPv6 address is in brackets"
	Address string `json:"address,omitempty"`

	// serverCertificate is the certificate of LXD in PEM: server.crt in LXD's directory, or what `lxc info` shows. No
	// other certificate is accepted from the address, whoever signed it.
	// +optional
	// +kubebuilder:validation:MaxLength=16384
	// +kubebuilder:validation:XValidation:rule="self.startsWith('-----BEGIN CERTIFICATE-----')",message="serverCertificate is a certificate in PEM: it begins with -----BEGIN CERTIFICATE-----"
	ServerCertificate string `json:"serverCertificate,omitempty"`

	// project is the LXD project of the VMs. LXD 5.0 starts a VM only if its name and the project's have up to 55
	// characters together; names of VMs have up to 48.
	// +optional
	// +kubebuilder:default=maas
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!self.contains('/')",message="project is the name of an LXD project: it contains no '/'"
	Project string `json:"project,omitempty"`

	// credentialsRef names a Secret in this namespace with a client certificate that LXD trusts for the project, and its
	// key, in PEM: tls.crt and tls.key. Required without vmHost. With it, it counts from when MAAS has no VM hosts any
	// more, and may be set before.
	// +optional
	CredentialsRef *LocalObjectReference `json:"credentialsRef,omitempty"`

	// maasCredentialsRef names a Secret in this namespace with the keys endpoint, apiKey and, optionally, caBundle: the
	// MAAS whose clusters may use this host. Default: the manager's own MAAS.
	// +optional
	MAASCredentialsRef *LocalObjectReference `json:"maasCredentialsRef,omitempty"`

	// zone is the MAAS zone of the host and of its VMs.
	// +optional
	// +kubebuilder:default=default
	Zone PlaceName `json:"zone,omitempty"`

	// resourcePool is the MAAS resource pool of the host and of its VMs.
	// +optional
	// +kubebuilder:default=default
	ResourcePool PlaceName `json:"resourcePool,omitempty"`

	// tags are what MaasMachines ask for in spec.tags.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=256
	Tags []string `json:"tags,omitempty"`

	// storagePool is the LXD storage pool of root disks, where a MaasMachine names none.
	// +optional
	// +kubebuilder:default=default
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	StoragePool string `json:"storagePool,omitempty"`

	// networkBridge is the bridge of VMs' first network card, where a MaasMachine names none.
	// +optional
	// +kubebuilder:default=br0
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9][A-Za-z0-9._-]*$')",message="networkBridge is the name of a Linux bridge (at most 15 characters), for example br0"
	NetworkBridge string `json:"networkBridge,omitempty"`

	// subnet is the CIDR of MAAS's subnet on networkBridge, of which VMs that are made through LXD's own API have their
	// addresses: without it none is placed on the host. On the nodes of host clusters it is set if MAAS shows the
	// bridge's subnet.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="subnet is a CIDR, for example 10.77.0.0/24"
	Subnet string `json:"subnet,omitempty"`

	// nameservers are the IP addresses of the DNS servers of VMs that are made through LXD's own API, where their subnet
	// in MAAS has no dns_servers: MAAS's own are usually those of its controllers. Default: none; if none of a VM's
	// subnets has dns_servers, it is not placed on the host.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="self.all(address, isIP(address))",message="nameservers are IP addresses, for example 10.77.0.2"
	Nameservers []string `json:"nameservers,omitempty"`

	// overCommit is how much of the host may be promised to VMs.
	// +optional
	// +kubebuilder:default={}
	OverCommit LXDOverCommit `json:"overCommit,omitempty,omitzero"`

	// unschedulable keeps new VMs off the host; running ones stay. Only the condition Schedulable shows it: the host stays
	// Ready. Default: false.
	// +optional
	Unschedulable bool `json:"unschedulable,omitempty"`

	// evacuate empties the host: no new VMs are placed there, and the Machines of those that run there are replaced, a
	// few at a time, so that each cluster keeps working. The condition Evacuated says what is left, and why. It needs
	// the chart's value evacuation.enabled. Back to false, no further Machine is deleted; those that are being deleted
	// go all the same. Default: false.
	// +optional
	Evacuate bool `json:"evacuate,omitempty"`

	// allowedNamespaces are the namespaces whose MaasMachines may be placed here, beside this one. * is every namespace.
	// Without vmHost, their clusters must have the same MAAS API key as the host.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=63
	AllowedNamespaces []string `json:"allowedNamespaces,omitempty"`

	// allowedDevices are the devices of the host that VMs of MaasMachines of other namespaces may get by
	// lxdConfig.devices. Those of this namespace may get any. A tpm needs no entry: it is the VM's own. Default: none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	AllowedDevices []LXDAllowedDevice `json:"allowedDevices,omitempty"`
}

// Allows reports whether MaasMachines of a namespace may be placed on a host in the namespace home.
func (s *LXDHostSpec) Allows(home, namespace string) bool {
	return namespace == home || slices.Contains(s.AllowedNamespaces, namespace) ||
		slices.Contains(s.AllowedNamespaces, AllNamespaces)
}

// Cordoned reports whether a person keeps new VMs off the host.
func (s *LXDHostSpec) Cordoned() bool { return s.Unschedulable || s.Evacuate }

// LXDResources are cores, memory and disk.
type LXDResources struct {
	// cores are threads of the host's processors.
	// +optional
	Cores int64 `json:"cores"`

	// memory in MiB.
	// +optional
	Memory int64 `json:"memory"`

	// disk in GB, over all storage pools.
	// +optional
	Disk int64 `json:"disk"`
}

// LXDStoragePoolStatus is a storage pool of an LXD host.
type LXDStoragePoolStatus struct {
	// name of the storage pool.
	// +required
	Name string `json:"name"`

	// driver is LXD's storage driver, for example zfs.
	// +optional
	Driver string `json:"driver,omitempty"`

	// size in GB.
	// +optional
	Size int64 `json:"size"`

	// free in GB.
	// +optional
	Free int64 `json:"free"`
}

// LXDClusterVMs are the VMs of one cluster on an LXD host.
type LXDClusterVMs struct {
	// cluster is namespace/name of the Cluster.
	// +required
	Cluster string `json:"cluster"`

	// count is the number of its VMs.
	// +required
	Count int32 `json:"count"`
}

// LXDEvacuationState is how far the evacuation of a VM is.
// +kubebuilder:validation:Enum=Leaving;Waiting;Held
type LXDEvacuationState string

const (
	// LXDVMLeaving is a VM whose Machine is being deleted, or replaced.
	LXDVMLeaving LXDEvacuationState = "Leaving"
	// LXDVMWaiting is a VM whose turn comes by itself.
	LXDVMWaiting LXDEvacuationState = "Waiting"
	// LXDVMHeld is a VM that does not leave unless a person does something.
	LXDVMHeld LXDEvacuationState = "Held"
)

// LXDEvacuationVM is a VM that is to leave an LXD host.
type LXDEvacuationVM struct {
	// machine is namespace/name of the MaasMachine.
	// +required
	// +kubebuilder:validation:MaxLength=512
	Machine string `json:"machine"`

	// state is Leaving while its Machine is being deleted or replaced, Waiting while its turn is to come, and Held if it
	// does not leave unless a person does what message says.
	// +required
	State LXDEvacuationState `json:"state"`

	// message says what it waits for, and the remedy if it is held.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// LXDEvacuationStatus is how far the evacuation of an LXD host is.
type LXDEvacuationStatus struct {
	// leaving is the number of VMs whose Machines are being deleted or replaced.
	// +optional
	Leaving int32 `json:"leaving"`

	// waiting is the number of VMs whose turn is to come.
	// +optional
	Waiting int32 `json:"waiting"`

	// held is the number of VMs that do not leave unless a person does something.
	// +optional
	Held int32 `json:"held"`

	// vms are the VMs that are left, the held ones first; at most 100.
	// +optional
	// +listType=map
	// +listMapKey=machine
	// +kubebuilder:validation:MaxItems=100
	VMs []LXDEvacuationVM `json:"vms,omitempty"`
}

// LXDClientCertificate is a client certificate that LXD trusts.
type LXDClientCertificate struct {
	// fingerprint is LXD's name for it: the SHA-256 of the certificate, in hex.
	// +required
	// +kubebuilder:validation:MaxLength=64
	Fingerprint string `json:"fingerprint"`

	// expires is when it ends.
	// +required
	Expires metav1.Time `json:"expires"`
}

// LXDHostStatus is the observed state of an LXDHost. All of it can be rebuilt from LXD, MAAS and spec.
type LXDHostStatus struct {
	// observedGeneration is the generation of the object that the status is about. It is -1 until the manager has seen the
	// object, so that whoever waits for it (Helm, Flux) does not take it for done.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// version is LXD's version.
	// +optional
	Version string `json:"version,omitempty"`

	// capacity is what may be promised to VMs: the host's resources with overCommit.
	// +optional
	Capacity *LXDResources `json:"capacity,omitempty"`

	// allocated is what VMs have been promised.
	// +optional
	Allocated *LXDResources `json:"allocated,omitempty"`

	// free is what VMs can still be promised.
	// +optional
	Free *LXDResources `json:"free,omitempty"`

	// storagePools of the host.
	// +optional
	// +listType=map
	// +listMapKey=name
	StoragePools []LXDStoragePoolStatus `json:"storagePools,omitempty"`

	// bridges of the host that VMs can be attached to.
	// +optional
	// +listType=set
	Bridges []string `json:"bridges,omitempty"`

	// vms is the number of VMs of MaasMachines on the host.
	// +optional
	VMs *int32 `json:"vms,omitempty"`

	// clusters are the clusters that these VMs belong to.
	// +optional
	// +listType=map
	// +listMapKey=cluster
	Clusters []LXDClusterVMs `json:"clusters,omitempty"`

	// evacuation is how far the evacuation is of a host that is to be empty: with spec.evacuate, or while it, or its
	// machine, is being deleted.
	// +optional
	Evacuation *LXDEvacuationStatus `json:"evacuation,omitempty"`

	// systemID is MAAS's id of the machine that the host runs on, if MAAS knows it.
	// +optional
	SystemID string `json:"systemID,omitempty"`

	// nodeName is the Node of the host cluster that the host is.
	// +optional
	NodeName string `json:"nodeName,omitempty"`

	// clientCertificate is that of the Secret in spec.credentialsRef, as LXD last accepted it.
	// +optional
	ClientCertificate *LXDClientCertificate `json:"clientCertificate,omitempty"`

	// conditions are Ready (the summary), Reachable, Trusted, Registered and Schedulable, Evacuated while the host is to
	// be empty, NoVMsLeft while VMs without a MaasMachine may be left on it, KeysCurrent of hosts whose
	// VMs are made through LXD's own API, and Paused.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// LXDHost is one LXD server that VMs are placed on: a VM host of MAAS, or one whose VMs are made through LXD's own API.
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=lxdhosts,shortName=lxh,scope=Namespaced,categories=cluster-api
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Zone",type=string,JSONPath=`.spec.zone`,description="The MAAS zone of the host and its VMs"
// +kubebuilder:printcolumn:name="Pool",type=string,JSONPath=`.spec.resourcePool`,description="The MAAS resource pool of the host and its VMs"
// +kubebuilder:printcolumn:name="VMs",type=integer,JSONPath=`.status.vms`,description="VMs of MaasMachines on the host"
// +kubebuilder:printcolumn:name="Free cores",type=integer,JSONPath=`.status.free.cores`,description="Cores that VMs can still be promised"
// +kubebuilder:printcolumn:name="Free memory",type=integer,JSONPath=`.status.free.memory`,description="MiB that VMs can still be promised"
// +kubebuilder:printcolumn:name="Free disk",type=integer,JSONPath=`.status.free.disk`,description="GB that VMs can still be promised"
// +kubebuilder:printcolumn:name="Schedulable",type=string,JSONPath=`.status.conditions[?(@.type=="Schedulable")].status`,description="VMs are placed on the host"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="The host is as desired"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why it is ready or not"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since creation"
// +kubebuilder:printcolumn:name="Address",type=string,priority=10,JSONPath=`.spec.address`,description="Where LXD's API is reached"
// +kubebuilder:printcolumn:name="Version",type=string,priority=10,JSONPath=`.status.version`,description="LXD's version"
// +kubebuilder:printcolumn:name="Evacuated",type=string,priority=10,JSONPath=`.status.conditions[?(@.type=="Evacuated")].status`,description="Whether no VM is left on a host that is to be empty"
// +kubebuilder:printcolumn:name="Message",type=string,priority=10,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,description="The message of the condition Ready"
type LXDHost struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state.
	// +required
	// +kubebuilder:validation:XValidation:rule="has(self.vmHost) == has(oldSelf.vmHost) && (!has(self.vmHost) || self.vmHost.id == oldSelf.vmHost.id)",fieldPath=".vmHost",message="vmHost is immutable: delete the LXDHost, and the controller makes it anew"
	Spec LXDHostSpec `json:"spec"`

	// status is the observed state.
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status LXDHostStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions of this object.
func (h *LXDHost) GetConditions() []metav1.Condition { return h.Status.Conditions }

// SetConditions sets the conditions of this object.
func (h *LXDHost) SetConditions(conditions []metav1.Condition) { h.Status.Conditions = conditions }

// LXDHostList is a list of LXDHosts.
// +kubebuilder:object:root=true
type LXDHostList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []LXDHost `json:"items"`
}
