// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

const (
	// ClusterFinalizer is removed from a MaasCluster once nothing of it is left in MAAS.
	ClusterFinalizer = "infrastructure.cluster.x-k8s.io/maascluster"

	// CredentialsFinalizer is on the Secrets of spec.credentialsRef and spec.lxdConfig.credentialsRef from before MAAS is
	// changed with them until no MaasCluster names them any more: without them nothing could be given back. It is also on
	// the Secrets of an LXDHost that people made, from when it is Trusted until it is gone.
	CredentialsFinalizer = "maascluster.infrastructure.cluster.x-k8s.io/credentials"

	// OwnerIDAnnotation holds the random id that marks everything in MAAS that belongs to a MaasCluster: 12 characters
	// of a-z and 0-9. It is written once, before the first call to MAAS that changes something, and survives
	// `clusterctl move`. On a MaasMachine it is the id with which its machine was requested: if it differs from that of
	// the MaasCluster, nothing is done and nothing given back.
	OwnerIDAnnotation = "capmaas.io/owner-id"

	// MAASAnnotation identifies the MAAS that has the machines of a MaasCluster: host and path of its URL, "#" and a
	// fingerprint of the last API key. It is written before the first call to MAAS that changes something. It follows
	// MAAS to another name, or the key to another one, as soon as the MAAS there is proven to have the cluster's
	// machines, or to have nothing of the cluster to lose: "#leaving" is appended before that is certain, and no machine
	// is taken then. A MaasCluster without it has nothing in MAAS, and can be deleted even if its credentials or its
	// endpoint never worked. On the LXDHost of a VM host it is the MAAS that has the VM host, without "#" and key.
	MAASAnnotation = "capmaas.io/maas"

	// AcceptVanishedAnnotation on a MaasCluster confirms that its machines which vanished from MAAS together with many
	// others are really gone: they are replaced, and their finalizers removed. Its value does not matter. Remove it
	// afterwards.
	AcceptVanishedAnnotation = "capmaas.io/accept-vanished"

	// CustomDNSAnnotation on a MaasCluster means that the user provides the API endpoint: no DNS record is kept in
	// MAAS. Its presence alone counts.
	CustomDNSAnnotation = "spectrocloud.com/custom-dns-provided"

	// PreferredSubnetConfigMap is the ConfigMap in the cluster's namespace whose key PreferredSubnetKey lists CIDRs,
	// comma-separated. MaasCluster.spec.preferredSubnets overrides it.
	PreferredSubnetConfigMap = "maas-preferred-subnet"

	// PreferredSubnetKey is the key in PreferredSubnetConfigMap.
	PreferredSubnetKey = "preferredSubnets"

	// LXDHostLabel is "true" on the Nodes of a host cluster that are VM hosts of MAAS, with resources that MAAS knows, or,
	// if MAAS has no VM hosts, that are prepared to be LXDHosts.
	LXDHostLabel = "capmaas.io/lxd-host"

	// LXDHostRetireAnnotation on a Node of a host cluster makes the initializer there take the node out of service: it
	// stops registering it, and removes the trust in its keys. The manager sets it before a host's machine is released.
	LXDHostRetireAnnotation = "capmaas.io/lxd-host-retire"

	// LXDKeysAnnotation on a Node of a host cluster is the fingerprint of the only client certificate of the node with
	// which the manager, and MAAS for the manager's VMs, still use LXD there. The initializer takes LXD's trust from
	// earlier ones.
	LXDKeysAnnotation = "capmaas.io/lxd-keys"

	// LXDHostReadyNodeCondition is the type of the condition on Nodes of a host cluster that reports the progress of
	// the initializer.
	LXDHostReadyNodeCondition = "capmaas.io/LXDHostReady"

	// LXDKeysPrefix and the name of a Node of a host cluster are the name of the Secret there, of type kubernetes.io/tls,
	// with the key pair that the Node's LXD trusts.
	LXDKeysPrefix = "lxd-initializer-"

	// LXDServerCertificateKey is the key in that Secret of LXD's own certificate in PEM. It is there if MAAS has no VM
	// hosts.
	LXDServerCertificateKey = "server.crt"

	// LXDAddressKey is the key beside it of the address at which LXD is reached: host:port.
	LXDAddressKey = "address"

	// LXDKeysFinalizer is on the Secret with the key pair for the LXDHost of a host cluster's machine until the machine is
	// given back: without the Secret it is not known whether VMs are on the host.
	LXDKeysFinalizer = "maasmachine.infrastructure.cluster.x-k8s.io/lxd-keys"

	// FailureDomainHosts is an attribute of a failure domain: how many VM hosts there can take a control plane, full
	// ones too. Only where the control planes are LXD VMs.
	FailureDomainHosts = "hosts"

	// FailureDomainMachines is an attribute of a failure domain: how many bare-metal machines there can be a control
	// plane, those in use too, about (see FailureDomainRoom). Only where the control planes are bare metal.
	FailureDomainMachines = "machines"

	// FailureDomainRoom is an attribute of a failure domain: how many more control planes there is room for, about: 0,
	// 1, 2-3, 4-7, 8-15 or 16+.
	FailureDomainRoom = "room"

	// DefaultAPIServerPort is the default port of the API endpoint.
	DefaultAPIServerPort int32 = 6443
)

// APIEndpoint is where the workload cluster's Kubernetes API is reached.
// +kubebuilder:validation:MinProperties=1
type APIEndpoint struct {
	// host is the DNS name or IP address of the API endpoint, without scheme and port. An empty text is no host.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == \"\" || isIP(self) || !format.dns1123Subdomain().validate(self.lowerAscii()).hasValue()",message="host must be a DNS name or an IP address, without scheme, port or path, for example api.example.com"
	Host string `json:"host,omitempty"`

	// port is the TCP port of the API endpoint. Default, also for 0: the port in
	// Cluster.spec.clusterNetwork.apiServerPort, else 6443.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
}

// IsZero is true when neither host nor port is set.
func (e APIEndpoint) IsZero() bool { return e.Host == "" && e.Port == 0 }

// VirtualIP is an address that belongs to no machine: one control plane at a time holds it, for example with kube-vip.
// +kubebuilder:validation:XValidation:rule="has(self.address) != has(self.subnet)",message="virtualIP takes either address or subnet, and not both"
type VirtualIP struct {
	// address is reserved in MAAS for this cluster. It must lie in a subnet of MAAS, outside of its dynamic and its
	// reserved ranges, and be unused.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="address is an IP address without prefix length, for example 10.77.0.20"
	Address string `json:"address,omitempty"`

	// subnet is the CIDR of a subnet of MAAS, which chooses a free address there.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="subnet is the CIDR of a subnet of MAAS, for example 10.77.0.0/24"
	Subnet string `json:"subnet,omitempty"`
}

// LocalObjectReference names an object in the same namespace.
type LocalObjectReference struct {
	// name of the object, in the namespace of the object that refers to it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// StorageBackend is a storage driver of LXD.
// +kubebuilder:validation:Enum=zfs;btrfs;lvm;dir
type StorageBackend string

// The storage drivers for LXD hosts.
const (
	StorageBackendZFS   StorageBackend = "zfs"
	StorageBackendBtrfs StorageBackend = "btrfs"
	StorageBackendLVM   StorageBackend = "lvm"
	StorageBackendDir   StorageBackend = "dir"
)

// LXDHostConfig is how the nodes of a host cluster are prepared as LXD VM hosts.
type LXDHostConfig struct {
	// storageBackend is the driver of the LXD storage pool for VMs.
	// +optional
	// +kubebuilder:default=zfs
	StorageBackend StorageBackend `json:"storageBackend,omitempty"`

	// storageSize is the size of the storage pool in GB, as a string of digits. The driver dir takes no size and
	// ignores it. The pool is a file on the machine's disk, so the machines' minDiskSize should be at least 20 more.
	// A pool that exists keeps its size: replace the machine for another one.
	// +optional
	// +kubebuilder:default="50"
	// +kubebuilder:validation:MaxLength=9
	// +kubebuilder:validation:XValidation:rule="self.matches('^[1-9][0-9]*$')",message="storageSize is a number of GB in digits only, for example \"50\""
	StorageSize string `json:"storageSize,omitempty"`

	// networkBridge is the bridge on each node that VMs are attached to, on a VLAN where MAAS serves DHCP. If a machine
	// has none of this name, it is made on the boot interface, until the machine is released; the credentials of the
	// cluster must be an administrator's then or, from MAAS 3.8 on, of a user with can_edit_machines in its pool.
	// +optional
	// +kubebuilder:default=br0
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9][A-Za-z0-9._-]*$')",message="networkBridge is the name of a Linux bridge (at most 15 characters), for example br0"
	NetworkBridge string `json:"networkBridge,omitempty"`

	// zone is the MAAS zone of the VM hosts. Default: for each the zone of its own machine.
	// +optional
	Zone PlaceName `json:"zone,omitempty"`

	// resourcePool is the MAAS resource pool of the VM hosts, which are moved there. Default: MAAS's default pool.
	// +optional
	ResourcePool PlaceName `json:"resourcePool,omitempty"`

	// credentialsRef names a Secret in this namespace with the keys endpoint, apiKey and, optionally, caBundle, as in
	// spec.credentialsRef. The nodes of the host cluster register themselves with these credentials, which are copied
	// there. The key's user must be an administrator of MAAS or, from 3.8 on, have can_edit_machines in all of MAAS.
	// Default: the credentials of this cluster itself.
	// +optional
	CredentialsRef *LocalObjectReference `json:"credentialsRef,omitempty"`
}

// DefaultLXDHostConfig returns the default of spec.lxdConfig.
func DefaultLXDHostConfig() LXDHostConfig {
	return LXDHostConfig{StorageBackend: StorageBackendZFS, StorageSize: "50", NetworkBridge: "br0"}
}

// MaasClusterSpec is the desired state of a MaasCluster.
// +kubebuilder:validation:XValidation:rule="!has(self.lxdConfig) || (has(self.lxdControlPlaneCluster) && self.lxdControlPlaneCluster)",fieldPath=".lxdConfig",message="lxdConfig prepares the nodes of a host cluster: set lxdControlPlaneCluster to true, or remove lxdConfig"
// +kubebuilder:validation:XValidation:rule="!has(self.virtualIP) || !has(self.lxdControlPlaneCluster) || !self.lxdControlPlaneCluster || (oldSelf.hasValue() && has(oldSelf.value().virtualIP) && has(oldSelf.value().lxdControlPlaneCluster) && oldSelf.value().lxdControlPlaneCluster)",optionalOldSelf=true,fieldPath=".virtualIP",message="virtualIP is not for clusters of VM hosts (lxdControlPlaneCluster): MAAS takes the address for one of the host's own, and drops the reservation. Use dnsDomain alone, or an endpoint of your own in controlPlaneEndpoint.host"
// +kubebuilder:validation:XValidation:rule="!has(self.virtualIP) || has(self.dnsDomain) || has(self.clusterName)",fieldPath=".dnsDomain",reason=FieldValueRequired,message="virtualIP needs dnsDomain (a domain that MAAS serves): the address is reserved under a name in it"
// +kubebuilder:validation:XValidation:rule="!has(self.virtualIP) || !has(self.virtualIP.address) || self.?controlPlaneEndpoint.?host.orValue(\"\") == \"\" || self.controlPlaneEndpoint.host == self.virtualIP.address",fieldPath=".virtualIP.address",message="virtualIP.address and controlPlaneEndpoint.host differ: remove controlPlaneEndpoint.host, it becomes the virtual IP; or remove virtualIP to provide the endpoint yourself"
// +kubebuilder:validation:XValidation:rule="!has(self.virtualIP) || !has(self.virtualIP.subnet) || self.?controlPlaneEndpoint.?host.orValue(\"\") == \"\" || (isIP(self.controlPlaneEndpoint.host) && cidr(self.virtualIP.subnet).containsIP(self.controlPlaneEndpoint.host))",fieldPath=".virtualIP.subnet",message="controlPlaneEndpoint.host is not in virtualIP.subnet: remove controlPlaneEndpoint.host, it becomes the virtual IP; or remove virtualIP to provide the endpoint yourself"
// +kubebuilder:validation:XValidation:rule="!has(self.clusterName) || !has(self.dnsDomain)",fieldPath=".dnsDomain",message="dnsDomain is for the API endpoint, which the infrastructure of the Cluster provides where clusterName is set: remove dnsDomain; or, if this MaasCluster is to be the infrastructure of the Cluster, remove clusterName and name it in the infrastructureRef of the Cluster"
// +kubebuilder:validation:XValidation:rule="!has(self.clusterName) || !has(self.controlPlaneEndpoint)",fieldPath=".controlPlaneEndpoint",message="controlPlaneEndpoint is provided by the infrastructure of the Cluster where clusterName is set: remove controlPlaneEndpoint; or, if this MaasCluster is to be the infrastructure of the Cluster, remove clusterName and name it in the infrastructureRef of the Cluster"
// +kubebuilder:validation:XValidation:rule="!has(self.clusterName) || !has(self.virtualIP)",fieldPath=".virtualIP",message="virtualIP is for the API endpoint, which the infrastructure of the Cluster provides where clusterName is set: remove virtualIP; or, if this MaasCluster is to be the infrastructure of the Cluster, remove clusterName and name it in the infrastructureRef of the Cluster"
// +kubebuilder:validation:XValidation:rule="!has(self.clusterName) || !has(self.lxdControlPlaneCluster) || !self.lxdControlPlaneCluster",fieldPath=".lxdControlPlaneCluster",message="lxdControlPlaneCluster makes hosts of all nodes of a Cluster, and clusterName is for a Cluster with nodes of others: remove lxdControlPlaneCluster, and make the host cluster a Cluster of its own"
type MaasClusterSpec struct {
	// clusterName is the Cluster in this namespace whose machines in MAAS are made with this MaasCluster, though its
	// infrastructureRef names another object: another provider's, or another MaasCluster. The API endpoint is not its
	// business. Empty: it is the infrastructure of the Cluster that names it. It can't be changed.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="clusterName is the name of a Cluster in this namespace, for example c1"
	ClusterName string `json:"clusterName,omitempty"`

	// dnsDomain is a domain that MAAS serves, for example maas. The API endpoint gets a DNS record in it that follows
	// the control planes. It is not needed where you or the control-plane provider provide the endpoint.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self.lowerAscii()).hasValue()",message="dnsDomain must be a DNS domain known to MAAS, for example maas or k8s.example.com"
	DNSDomain string `json:"dnsDomain,omitempty"`

	// controlPlaneEndpoint is where the Kubernetes API is reached. If it is empty, MAAS keeps a name in dnsDomain, or
	// an address with virtualIP; without dnsDomain, or with the annotation spectrocloud.com/custom-dns-provided, it
	// becomes that of the Cluster as soon as the control-plane provider has set it there. If you set a host, it is kept,
	// and you provide the endpoint: MAAS's DNS is not touched. It can't be changed: kubeconfigs, certificates and
	// kubelets contain it.
	// +optional
	ControlPlaneEndpoint APIEndpoint `json:"controlPlaneEndpoint,omitempty,omitzero"`

	// virtualIP makes the API endpoint an address instead of a name: MAAS reserves it for this cluster, and the control
	// planes must hold it, for example with kube-vip. It is given back when the cluster is deleted.
	// +optional
	VirtualIP *VirtualIP `json:"virtualIP,omitempty"`

	// failureDomains are the MAAS zones that machines are spread over. Default: all zones of MAAS; its built-in zone,
	// default, only if there is no other.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	FailureDomains []string `json:"failureDomains,omitempty"`

	// preferredSubnets are CIDRs in order of preference. A machine's address in the first one that matches is published
	// in DNS and listed first. Default: the ConfigMap maas-preferred-subnet in this namespace, if it exists, else
	// MAAS's order.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self)",message="preferredSubnets are CIDRs, for example 10.77.0.0/24"
	PreferredSubnets []string `json:"preferredSubnets,omitempty"`

	// preferredInterfaces are names of interfaces, or tags that interfaces have in MAAS, in order of preference. A
	// machine's addresses on the first one that it has, or on a bridge or bond on it, come before all others;
	// preferredSubnets orders those of one interface. Default: no interface is preferred.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=64
	PreferredInterfaces []string `json:"preferredInterfaces,omitempty"`

	// credentialsRef names a Secret in this namespace with the keys endpoint (MAAS's URL, for example
	// http://maas.example.com:5240/MAAS), apiKey (consumer:token:secret) and, optionally, caBundle (PEM).
	// Default: the manager's own credentials.
	// +optional
	CredentialsRef *LocalObjectReference `json:"credentialsRef,omitempty"`

	// lxdControlPlaneCluster makes this a host cluster: its bare-metal nodes are turned into LXD VM hosts of MAAS, for
	// the control planes of other clusters. It can be turned on later, but not off: delete the cluster for that.
	// +optional
	LXDControlPlaneCluster bool `json:"lxdControlPlaneCluster,omitempty"`

	// lxdConfig is how the nodes of a host cluster are prepared. Only with lxdControlPlaneCluster.
	// +optional
	LXDConfig *LXDHostConfig `json:"lxdConfig,omitempty"`
}

// ClusterInitialization is the progress of the first provisioning.
// +kubebuilder:validation:MinProperties=1
type ClusterInitialization struct {
	// provisioned is true once machines of this cluster can be created. It never becomes false again.
	// +optional
	Provisioned *bool `json:"provisioned,omitempty"`
}

// ClusterNetworkStatus is the data that MAAS publishes for this cluster.
type ClusterNetworkStatus struct {
	// dnsName is the fully qualified name of the API endpoint.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	DNSName string `json:"dnsName,omitempty"`
}

// MaasClusterStatus is the observed state of a MaasCluster. All of it can be rebuilt from spec and MAAS.
type MaasClusterStatus struct {
	// observedGeneration is the generation of the object that the status is about. It is -1 until the manager has seen the
	// object, so that whoever waits for it (Helm, Flux) does not take it for done.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// initialization is the progress of the first provisioning.
	// +optional
	Initialization ClusterInitialization `json:"initialization,omitempty,omitzero"`

	// ready is true while the condition Ready is true.
	// +optional
	Ready bool `json:"ready,omitempty"`

	// network is the data that MAAS publishes for this cluster.
	// +optional
	Network ClusterNetworkStatus `json:"network,omitempty,omitzero"`

	// failureDomains are the MAAS zones for machines. controlPlane is true if a control plane fits there: for LXD VMs a
	// VM host of the zone has room, for bare metal the zone has a machine that meets the template. The attributes are
	// hosts or machines, and room.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	FailureDomains []clusterv1.FailureDomain `json:"failureDomains,omitempty"`

	// conditions are Ready (the summary), DNSReady, FailureDomainsReady, Paused, MachinesHaveRoom while machines wait for
	// room, and, for host clusters, LXDReady.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// MaasCluster is the MAAS side of a Cluster: its API endpoint, its zones and its credentials. With spec.clusterName it
// is that of the machines in MAAS of a Cluster whose infrastructure is another one.
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=maasclusters,shortName=mc,scope=Namespaced,categories=cluster-api
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.metadata.labels.cluster\.x-k8s\.io/cluster-name`,description="The Cluster this belongs to"
// +kubebuilder:printcolumn:name="Endpoint",type=string,JSONPath=`.spec.controlPlaneEndpoint.host`,description="Host of the Kubernetes API"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="The infrastructure is as desired"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why it is ready or not"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since creation"
// +kubebuilder:printcolumn:name="Port",type=integer,priority=10,JSONPath=`.spec.controlPlaneEndpoint.port`,description="Port of the Kubernetes API"
// +kubebuilder:printcolumn:name="Message",type=string,priority=10,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,description="The message of the condition Ready"
type MaasCluster struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state.
	// +required
	// +kubebuilder:validation:XValidation:rule="!has(oldSelf.dnsDomain) || (has(self.dnsDomain) && self.dnsDomain == oldSelf.dnsDomain) || (oldSelf.?controlPlaneEndpoint.?host.orValue(\"\") == \"\" && !has(oldSelf.virtualIP))",fieldPath=".dnsDomain",message="dnsDomain can't be changed once the cluster has an API endpoint, whose name is in it, nor while virtualIP is set: create a new cluster; or, before there is an endpoint, remove virtualIP first"
	// +kubebuilder:validation:XValidation:rule="oldSelf.?controlPlaneEndpoint.?host.orValue(\"\") == \"\" || self.?controlPlaneEndpoint.?host.orValue(\"\") == oldSelf.controlPlaneEndpoint.host",fieldPath=".controlPlaneEndpoint.host",message="controlPlaneEndpoint.host is immutable once it is set: certificates and kubeconfigs name it; create a new cluster"
	// +kubebuilder:validation:XValidation:rule="oldSelf.?controlPlaneEndpoint.?host.orValue(\"\") == \"\" || oldSelf.?controlPlaneEndpoint.?port.orValue(0) == 0 || self.?controlPlaneEndpoint.?port.orValue(0) == oldSelf.controlPlaneEndpoint.port",fieldPath=".controlPlaneEndpoint.port",message="controlPlaneEndpoint.port is immutable once the host is set: kubeconfigs name it; create a new cluster"
	// +kubebuilder:validation:XValidation:rule="oldSelf.?controlPlaneEndpoint.?host.orValue(\"\") == \"\" || (has(self.virtualIP) == has(oldSelf.virtualIP) && (!has(self.virtualIP) || self.virtualIP == oldSelf.virtualIP))",fieldPath=".virtualIP",message="virtualIP can't be changed once the cluster has an API endpoint: certificates and kubeconfigs name it; create a new cluster"
	// +kubebuilder:validation:XValidation:rule="!has(oldSelf.lxdControlPlaneCluster) || !oldSelf.lxdControlPlaneCluster || (has(self.lxdControlPlaneCluster) && self.lxdControlPlaneCluster)",fieldPath=".lxdControlPlaneCluster",message="lxdControlPlaneCluster can't be turned off: VMs of other clusters may run on the nodes; delete the cluster instead"
	// +kubebuilder:validation:XValidation:rule="has(self.clusterName) == has(oldSelf.clusterName) && (!has(self.clusterName) || self.clusterName == oldSelf.clusterName)",fieldPath=".clusterName",message="clusterName can't be set later, changed or removed: what is in MAAS belongs to machines of one Cluster; create a new MaasCluster"
	Spec MaasClusterSpec `json:"spec"`

	// status is the observed state.
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status MaasClusterStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions of this object.
func (c *MaasCluster) GetConditions() []metav1.Condition { return c.Status.Conditions }

// SetConditions sets the conditions of this object.
func (c *MaasCluster) SetConditions(conditions []metav1.Condition) { c.Status.Conditions = conditions }

// MaasClusterList is a list of MaasClusters.
// +kubebuilder:object:root=true
type MaasClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MaasCluster `json:"items"`
}
