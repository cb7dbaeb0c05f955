// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
)

// MachineFinalizer is removed from a MaasMachine once its machine is back in MAAS's pool, or its VM is gone.
const MachineFinalizer = "infrastructure.cluster.x-k8s.io/maasmachine"

// RecordAnnotation on a MaasMachine, a MaasCluster, a MaasRemediation or an LXDHost is what the provider needs to
// continue after an interruption at any moment, as JSON: which calls to MAAS are pending, since when the machine is in
// its phase, which VM hosts may have its VM, the progress of removing it there, and that of its remediation; of an
// LXDHost, which VMs may be left there. It is written before MAAS is asked for anything. Don't edit it: what is in MAAS
// and not in the record is lost.
const RecordAnnotation = "capmaas.io/record"

// StaticIPAnnotation on a MaasMachine is the static address that its bare-metal machine got, and that is removed when
// the machine is back in the pool. It is written before MAAS assigns the address. On a machine that becomes a VM host
// it is the address that MAAS chose, which is then made static.
const StaticIPAnnotation = "capmaas.io/static-ip"

// InterfacesAnnotation on a MaasMachine is how the interfaces of its bare-metal machine were before spec.interfaces
// changed them, and what was changed, as JSON. It is written before MAAS is asked for anything, and undone when the
// machine is back in the pool.
const InterfacesAnnotation = "capmaas.io/interfaces"

// LeftVMAnnotation on an IPAddressClaim is the name of a VM that may run on a host which can't be asked, and whose
// MaasMachine is gone. The claim has no owner: it holds the VM's address until the host shows that the VM is gone.
// Delete it yourself only if you know that.
const LeftVMAnnotation = "capmaas.io/left-vm"

// Labels on a MaasMachine and on its Node, which the controller sets when the Node joins, beside
// topology.kubernetes.io/zone (the MAAS zone). A name in MAAS that can't be a label's value is left out.
const (
	// HostLabel is the host of an LXD VM.
	HostLabel = "node.cluster.x-k8s.io/lxd-host"

	// ResourcePoolLabel is the machine's resource pool in MAAS.
	ResourcePoolLabel = "node.cluster.x-k8s.io/resource-pool"
)

// ProvisioningMode is the kind of machine.
// +kubebuilder:validation:Enum=bare-metal;lxd
type ProvisioningMode string

const (
	// ProvisioningModeBareMetal allocates an existing machine of MAAS.
	ProvisioningModeBareMetal ProvisioningMode = "bare-metal"

	// ProvisioningModeLXD composes an LXD virtual machine on a VM host of MAAS.
	ProvisioningModeLXD ProvisioningMode = "lxd"
)

// Default sizes of an LXD VM.
const (
	DefaultVMCores    int32 = 2    // cores
	DefaultVMMemoryMB int32 = 4096 // MiB, as MAAS counts memory
	DefaultVMDiskGB   int32 = 20   // GB (10^9 bytes), as MAAS's compose counts
)

// PlaceName is the name of a zone or a resource pool of MAAS.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=256
type PlaceName = string

// LXDStorage is the root disk of an LXD VM.
type LXDStorage struct {
	// size of the root disk in GB, as a string of digits, at least 8. Default: minDiskSize, else 20.
	// +optional
	// +kubebuilder:validation:MaxLength=9
	// +kubebuilder:validation:XValidation:rule="self.matches('^[1-9][0-9]*$')",message="size is a number of GB in digits only, for example \"50\""
	// +kubebuilder:validation:XValidation:rule="!self.matches('^[1-7]$')",message="size of an LXD VM's root disk is at least 8 (GB): current Ubuntu does not install on less"
	Size string `json:"size,omitempty"`

	// pool is the name of the storage pool on the VM host. Hosts without it are not used. Default: the host's default
	// pool.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9][A-Za-z0-9._-]*$')",message="pool is the name of an LXD storage pool: letters, digits, '.', '_' and '-'"
	Pool string `json:"pool,omitempty"`
}

// LXDDisk is a disk of an LXD VM beside its root disk. It is empty, and deleted with the VM.
type LXDDisk struct {
	// size of the disk in GB, as a string of digits.
	// +required
	// +kubebuilder:validation:MaxLength=9
	// +kubebuilder:validation:XValidation:rule="self.matches('^[1-9][0-9]*$')",message="size is a number of GB in digits only, for example \"50\""
	Size string `json:"size"`

	// pool is the name of the storage pool on the VM host. Hosts without it are not used. Default: the host's default
	// pool.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9][A-Za-z0-9._-]*$')",message="pool is the name of an LXD storage pool: letters, digits, '.', '_' and '-'"
	Pool string `json:"pool,omitempty"`
}

// LXDDeviceType is LXD's type of a device.
// +kubebuilder:validation:Enum=gpu;pci;tpm;usb
type LXDDeviceType string

// LXDDevice is a device of the host that an LXD VM gets. LXD's project must allow it.
type LXDDevice struct {
	// name of the device in LXD, for example gpu0.
	// +required
	// +kubebuilder:validation:MaxLength=27
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z][a-z0-9-]*$')",message="name is the name of an LXD device: lower-case letters, digits and '-', for example gpu0"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^(root|disk[0-9]+|eth[0-9]+)$')",message="name is not root, disk1 or eth0: these are disks and interfaces of the VM"
	Name string `json:"name"`

	// type is LXD's type of the device: gpu, pci, tpm or usb.
	// +required
	Type LXDDeviceType `json:"type"`

	// properties are those that LXD documents for the type, for example vendorid and productid of a usb device.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="!('type' in self) && self.all(key, self[key].size() <= 1024)",message="properties have at most 1024 characters each, and no type: that is the field type"
	Properties map[string]string `json:"properties,omitempty"`
}

// LinkMode is how an interface gets its address.
// +kubebuilder:validation:Enum=auto;dhcp;static;link_up
type LinkMode string

const (
	// LinkModeAuto means that MAAS chooses an address of the subnet when the machine is deployed.
	LinkModeAuto LinkMode = "auto"

	// LinkModeDHCP means that the interface gets an address by DHCP.
	LinkModeDHCP LinkMode = "dhcp"

	// LinkModeStatic means that the interface has the machine's static address.
	LinkModeStatic LinkMode = "static"

	// LinkModeLinkUp means that the interface is up and has no address.
	LinkModeLinkUp LinkMode = "link_up"
)

// LXDNetworkDevice is one network interface of an LXD VM.
// +kubebuilder:validation:XValidation:rule="has(self.bridge) != has(self.subnet)",message="a network device names either a bridge of the VM host or a subnet of MAAS, and not both"
type LXDNetworkDevice struct {
	// name of the interface in the VM, for example eth1.
	// +required
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z][a-z0-9-]*$')",message="name is the name of an interface: lower-case letters, digits and '-', at most 15 characters, for example eth1"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^(root|disk[0-9]+)$')",message="name is not root or disk1: LXD devices of these names are disks"
	Name string `json:"name"`

	// bridge is the VM host's bridge that the interface is attached to.
	// +optional
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9][A-Za-z0-9._-]*$')",message="bridge is the name of a Linux bridge (at most 15 characters), for example br0"
	Bridge string `json:"bridge,omitempty"`

	// subnet is the CIDR of a MAAS subnet on which the VM host has an interface. The interface's address is one of this
	// subnet; with bridge, it is one of the first subnet that MAAS knows on the bridge's VLAN.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="subnet is a CIDR, for example 10.77.0.0/24"
	Subnet string `json:"subnet,omitempty"`

	// linkMode is how the interface gets its address: auto (MAAS chooses one when the VM is deployed), dhcp, static
	// (the address of staticIP or staticIPPoolRef; one device only) or link_up (none). Default: static for the first
	// device if there is a static address that no other device has, else auto.
	// +optional
	LinkMode LinkMode `json:"linkMode,omitempty"`
}

// LXDNetwork is the network of an LXD VM.
// +kubebuilder:validation:XValidation:rule="!(has(self.bridge) && has(self.devices))",message="give either bridge (one interface) or devices (several), and not both"
type LXDNetwork struct {
	// bridge is the VM host's bridge that the VM's only interface is attached to. Default: MAAS chooses.
	// +optional
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9][A-Za-z0-9._-]*$')",message="bridge is the name of a Linux bridge (at most 15 characters), for example br0"
	Bridge string `json:"bridge,omitempty"`

	// devices are the VM's interfaces, in the alphabetical order of their names. The first one boots, on a VLAN where
	// MAAS serves DHCP.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="[1, 2, 3, 4, 5, 6, 7].all(i, i >= self.size() || self[i - 1].name < self[i].name)",message="devices are in the alphabetical order of their names, for example eth0, eth1: MAAS would mix them up otherwise"
	// +kubebuilder:validation:XValidation:rule="self.filter(d, has(d.linkMode) && d.linkMode == 'static').size() <= 1",message="one device at most has linkMode static: a machine has one static address"
	Devices []LXDNetworkDevice `json:"devices,omitempty"`
}

// InterfaceType is the type of an interface that contains others.
// +kubebuilder:validation:Enum=bond;vlan;bridge
type InterfaceType string

// Interfaces that are made on a machine.
const (
	InterfaceTypeBond   InterfaceType = "bond"
	InterfaceTypeVLAN   InterfaceType = "vlan"
	InterfaceTypeBridge InterfaceType = "bridge"
)

// InterfaceParameter is the value of a parameter of a bond or a bridge: a word or a number of MAAS.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=20
// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9.+-]+$')",message="the value of a parameter is a word or a number of MAAS, for example 802.3ad"
type InterfaceParameter string

// MachineInterface is an interface of a bare-metal machine: a network card, or a bond, a VLAN or a bridge that is made.
// +kubebuilder:validation:XValidation:rule="has(self.type) == has(self.parents)",message="a bond, a vlan and a bridge have parents, and a network card (an interface without type) has none: give both type and parents, or neither"
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'vlan') == has(self.vid)",fieldPath=".vid",message="vid is the tag of an interface of type vlan, which needs one"
// +kubebuilder:validation:XValidation:rule="!has(self.type) || self.type == 'bond' || !has(self.parents) || self.parents.size() == 1",fieldPath=".parents",message="a vlan and a bridge have one parent"
// +kubebuilder:validation:XValidation:rule="!has(self.type) || self.name.size() <= 15",fieldPath=".name",message="the name of an interface has at most 15 characters"
// +kubebuilder:validation:XValidation:rule="!has(self.parameters) || (has(self.type) && self.parameters.all(key, (self.type == 'bond' && key.startsWith('bond_')) || (self.type == 'bridge' && key.startsWith('bridge_'))))",fieldPath=".parameters",message="parameters are those of MAAS: bond_... of a bond, bridge_... of a bridge"
type MachineInterface struct {
	// name of the interface in MAAS. A network card may also be named by its MAC address, or by a tag in MAAS that no
	// other card of the machine has.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9_.:-]+$')",message="name is the name of an interface, for example bond0, or the MAC address or tag of a network card"
	Name string `json:"name"`

	// type is what is made: a bond, a vlan or a bridge. Default: nothing; the interface is a network card that the
	// machine has.
	// +optional
	Type InterfaceType `json:"type,omitempty"`

	// parents are what the interface contains: one interface, or the network cards of a bond. Each is the name of an
	// interface of the machine or of one further up in this list, or the MAC address or tag of a network card; a bond
	// contains all cards with the tag.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[A-Za-z0-9_.:-]+$')",message="parents are names of interfaces, or MAC addresses or tags of network cards"
	Parents []string `json:"parents,omitempty"`

	// vid is the tag of a vlan. MAAS must have that VLAN in the fabric of the parent.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4094
	VID int32 `json:"vid,omitempty"`

	// parameters of a bond or a bridge, as MAAS names them: bond_mode, bond_miimon, bond_downdelay, bond_updelay,
	// bond_lacp_rate, bond_xmit_hash_policy, bond_num_grat_arp; bridge_type, bridge_stp, bridge_fd. Default: MAAS's own.
	// +optional
	// +kubebuilder:validation:MaxProperties=8
	// +kubebuilder:validation:XValidation:rule="self.all(key, key in ['bond_mode', 'bond_miimon', 'bond_downdelay', 'bond_updelay', 'bond_lacp_rate', 'bond_xmit_hash_policy', 'bond_num_grat_arp', 'bridge_type', 'bridge_stp', 'bridge_fd'])",message="parameters are bond_mode, bond_miimon, bond_downdelay, bond_updelay, bond_lacp_rate, bond_xmit_hash_policy and bond_num_grat_arp, or bridge_type, bridge_stp and bridge_fd"
	Parameters map[string]InterfaceParameter `json:"parameters,omitempty"`

	// mtu of the interface. It is at most that of its parents here. Default: that of its VLAN in MAAS.
	// +optional
	// +kubebuilder:validation:Minimum=552
	// +kubebuilder:validation:Maximum=65535
	MTU int32 `json:"mtu,omitempty"`

	// subnet is the CIDR of the MAAS subnet that the interface is connected to. Default: the one that it is on.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="subnet is a CIDR, for example 10.77.0.0/24"
	Subnet string `json:"subnet,omitempty"`

	// linkMode is how the interface gets its address: auto (MAAS chooses one when the machine is deployed), dhcp,
	// static (the address of staticIP or staticIPPoolRef; one interface only) or link_up (none). Default: auto if there
	// is a subnet, else as MAAS has it.
	// +optional
	LinkMode LinkMode `json:"linkMode,omitempty"`
}

// AntiAffinity is how strictly VMs of one cluster are kept on different VM hosts.
// +kubebuilder:validation:Enum=Preferred;Required
type AntiAffinity string

const (
	// AntiAffinityPreferred shares a VM host only if there is no other.
	AntiAffinityPreferred AntiAffinity = "Preferred"

	// AntiAffinityRequired never shares a VM host.
	AntiAffinityRequired AntiAffinity = "Required"
)

// LXDMachineConfig is how an LXD VM is composed, and on which host.
type LXDMachineConfig struct {
	// profile is the LXD profile of the VM. VM hosts of MAAS apply the profile maas if they have it, and can apply no
	// other; hosts that the manager reaches itself (LXDHost) apply any.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Profile string `json:"profile,omitempty"`

	// storage is the root disk.
	// +optional
	Storage LXDStorage `json:"storage,omitempty,omitzero"`

	// disks are further disks of the VM, which are deleted with it.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	Disks []LXDDisk `json:"disks,omitempty"`

	// devices are devices of the host that the VM gets, such as GPUs, and a TPM of its own. Only hosts that the manager
	// reaches itself (LXDHost) can give any: VM hosts of MAAS are not used.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	Devices []LXDDevice `json:"devices,omitempty"`

	// network is the network connection of the VM.
	// +optional
	Network LXDNetwork `json:"network,omitempty,omitzero"`

	// vmHost pins the VM to one VM host, by its name in MAAS. Default: the best one is chosen.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	VMHost string `json:"vmHost,omitempty"`

	// project is the LXD project; only VM hosts that MAAS uses with this project are considered.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!self.contains('/')",message="project is the name of an LXD project: it contains no '/'"
	Project string `json:"project,omitempty"`

	// secureBoot has the VM's firmware boot only what is signed with a key that it has (Microsoft's): the image must be.
	// Only hosts that the manager reaches itself (LXDHost) can do so: VM hosts of MAAS are not used. A TPM is one of
	// devices, of the type tpm. Default: false.
	// +optional
	SecureBoot bool `json:"secureBoot,omitempty"`

	// antiAffinity is whether the VM may share a VM host with others of the same cluster and role (control plane or
	// worker). Preferred: only if there is no other host. Required: never; then a rollout needs one host more than
	// there are replicas, or a rollout strategy with maxSurge 0. Default: Preferred.
	// +optional
	AntiAffinity AntiAffinity `json:"antiAffinity,omitempty"`

	// commission makes MAAS commission the VM before it is deployed. It takes minutes and proves little about a VM.
	// Default: false.
	// +optional
	Commission bool `json:"commission,omitempty"`
}

// StorageLayout is MAAS's name of a storage layout.
// +kubebuilder:validation:Enum=flat;lvm;bcache;vmfs6;vmfs7;custom;blank
type StorageLayout string

// DiskSelector chooses a physical disk of a machine: the boot disk if it fits, or else the first other one in MAAS that
// does.
// +kubebuilder:validation:MinProperties=1
type DiskSelector struct {
	// tags that the disk must have in MAAS, all of them, for example ssd, nvme or sata.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=256
	Tags []string `json:"tags,omitempty"`

	// serial number of the disk. It fits one machine only: choose that with systemID.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	Serial string `json:"serial,omitempty"`

	// minSize is the least size of the disk in GB.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MinSize int32 `json:"minSize,omitempty"`
}

// MachineStorage is what MAAS makes of the disks of a bare-metal machine before it installs the image.
// +kubebuilder:validation:XValidation:rule="!has(self.options) || self.options.all(o, o in ['boot_size', 'root_size', 'vg_name', 'lv_name', 'lv_size', 'cache_mode', 'cache_size', 'cache_no_part'])",fieldPath=".options",message="options are parameters of MAAS's set_storage_layout: boot_size, root_size, vg_name, lv_name, lv_size, cache_mode, cache_size, cache_no_part; choose the disk with rootDisk"
// +kubebuilder:validation:XValidation:rule="!has(self.options) || self.layout == 'lvm' || !self.options.exists(o, o in ['vg_name', 'lv_name', 'lv_size'])",fieldPath=".options",message="vg_name, lv_name and lv_size are options of the layout lvm: set layout to lvm, or remove them"
// +kubebuilder:validation:XValidation:rule="!has(self.options) || self.layout == 'bcache' || !self.options.exists(o, o in ['cache_mode', 'cache_size', 'cache_no_part'])",fieldPath=".options",message="cache_mode, cache_size and cache_no_part are options of the layout bcache: set layout to bcache, or remove them"
// +kubebuilder:validation:XValidation:rule="!(self.layout in ['custom', 'blank']) || (!has(self.options) && !has(self.rootDisk))",fieldPath=".layout",message="the layouts custom and blank have no options and no rootDisk: remove them, or set another layout"
type MachineStorage struct {
	// layout is one of MAAS's: flat (one root file system), lvm, bcache (needs a second disk with the tag ssd, of which
	// MAAS takes the smallest), vmfs6 and vmfs7 (for ESXi), custom (what a commissioning script of the machine has
	// written), or blank (nothing; only with deployInMemory).
	// +required
	Layout StorageLayout `json:"layout"`

	// rootDisk chooses the disk of the root file system; what the firmware reads stays on the boot disk. Machines without
	// such a disk are not used. Default: the boot disk.
	// +optional
	RootDisk *DiskSelector `json:"rootDisk,omitempty"`

	// options are parameters of the layout as MAAS names them: boot_size, root_size; for lvm also vg_name, lv_name,
	// lv_size; for bcache also cache_mode, cache_size, cache_no_part. Sizes are in bytes, with a unit (50G), or in percent
	// (80%).
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=8
	// +kubebuilder:validation:XValidation:rule="self.all(o, !o.endsWith('_size') || self[o].matches('^[1-9][0-9]{0,17}([KkMmGgTtPp]|([.][0-9]+)?%)?$'))",message="sizes are in bytes, with a unit, or in percent, for example 512M, 50G or 80%"
	// +kubebuilder:validation:XValidation:rule="!('cache_mode' in self) || self['cache_mode'] in ['writeback', 'writethrough', 'writearound']",message="cache_mode is writeback, writethrough or writearound"
	Options map[string]StorageOption `json:"options,omitempty"`
}

// StorageOption is the value of a parameter of a storage layout.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=64
type StorageOption string

// EraseMode is how the disks of a bare-metal machine are erased before it returns to MAAS's pool.
// +kubebuilder:validation:Enum=none;quick;secure;full
type EraseMode string

const (
	// EraseNone requests nothing; MAAS's own settings decide.
	EraseNone EraseMode = "none"

	// EraseQuick wipes the beginning and the end of each disk.
	EraseQuick EraseMode = "quick"

	// EraseSecure makes each disk erase itself, and overwrites those that can't.
	EraseSecure EraseMode = "secure"

	// EraseFull overwrites each disk.
	EraseFull EraseMode = "full"
)

// MachineRelease is how a bare-metal machine is given back.
// +kubebuilder:validation:XValidation:rule="!has(self.keep) || !has(self.erase) || self.erase == 'none'",fieldPath=".keep",message="keep needs erase: none, as erasing destroys what is on the disks; remove one of them"
type MachineRelease struct {
	// erase is how MAAS erases all disks of the machine before it is Ready for others. none: not at all, unless MAAS's
	// own settings require erasing on release. quick (minutes): removes file system and partition signatures, and
	// zeroes 2 MiB at the beginning and end of each disk; the data can still be recovered. secure (mostly minutes):
	// each disk erases itself (ATA secure erase, NVMe format); one that can't, or fails to, is overwritten as with
	// full. full (hours, for large disks days): every disk is overwritten with zeroes. If the settings of MAAS 3.5 and
	// newer require erasing, they override quick, secure and full. Default: none.
	// +optional
	// +kubebuilder:default=none
	Erase EraseMode `json:"erase,omitempty"`

	// keep leaves the machine to the next Machine of the same control plane, MachineDeployment or MachineSet if that
	// lacks one, as in a rollout with maxSurge 0, instead of giving it back. The machine is switched off and waits,
	// Deployed and ours in MAAS, so that no other user gets it; the next Machine, whose template must have keep, too,
	// releases it, acquires it again and deploys it. Its disks are not erased, but MAAS's installer removes the
	// signatures of all disks that MAAS lists. Default: the machine is given back.
	// +optional
	Keep *MachineKeep `json:"keep,omitempty"`
}

// MachineKeep is how a bare-metal machine waits for the next Machine.
type MachineKeep struct {
	// timeoutSeconds is after how many seconds the machine is given back if no Machine has taken it. Default: 3600.
	// +optional
	// +kubebuilder:default=3600
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=86400
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`
}

// Mode returns the erase mode, with the default applied.
func (r MachineRelease) Mode() EraseMode {
	if r.Erase == "" {
		return EraseNone
	}
	return r.Erase
}

// MachineReleaseStatus is the progress of a machine's return to MAAS's pool.
type MachineReleaseStatus struct {
	// erase is the erase mode of the last request.
	// +optional
	Erase EraseMode `json:"erase,omitempty"`

	// startTime is when MAAS was last asked to release the machine.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// failures is how many tries in a row have failed with this erase.
	// +optional
	Failures int32 `json:"failures,omitempty"`

	// failedTime is when the last try was seen to have failed; it is empty while one is under way.
	// +optional
	FailedTime *metav1.Time `json:"failedTime,omitempty"`
}

// CheckParameter is the value of a parameter of a testing script.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=256
type CheckParameter string

// MachineChecks are tests of MAAS that a bare-metal machine must have passed before it is deployed.
type MachineChecks struct {
	// scripts are names or tags of testing scripts in MAAS. A machine must have passed all of them. Scripts that MAAS
	// calls destructive erase its disks.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=255
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[A-Za-z0-9][A-Za-z0-9_.-]*$')",message="scripts are names or tags of testing scripts in MAAS, for example memtester"
	Scripts []string `json:"scripts"`

	// parameters of the scripts as MAAS names them: runtime is that of every script which has it, fio_runtime that of the
	// script fio alone. Don't put secrets here. Default: those of the scripts.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(name, name.matches('^[A-Za-z0-9][A-Za-z0-9_.-]*$') && !(name in ['testing_scripts', 'enable_ssh', 'op']))",message="parameters are those of scripts, by their names in MAAS, for example runtime or fio_runtime; the scripts are those of scripts"
	Parameters map[string]CheckParameter `json:"parameters,omitempty"`

	// timeoutSeconds is how long the scripts may take together, with booting, in seconds; then they are aborted, and count
	// as failed. Default: 14400.
	// +optional
	// +kubebuilder:default=14400
	// +kubebuilder:validation:Minimum=300
	// +kubebuilder:validation:Maximum=1209600
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`

	// validForSeconds is how old, in seconds, the results of earlier tests may be that MAAS has of the machine: if all
	// scripts have passed since, it is not tested again. Default: a machine is tested whenever it is taken.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=315360000
	ValidForSeconds int32 `json:"validForSeconds,omitempty"`

	// maxTesting is how many machines of the template are tested at once. Default: 10.
	// +optional
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxTesting int32 `json:"maxTesting,omitempty"`

	// maxFailed is how many machines of the template may fail: when as many are in quarantine for it, no further one is
	// taken until a person lifts one. Default: 3.
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxFailed int32 `json:"maxFailed,omitempty"`
}

// ResourceCount is how many of an extended resource a Node has.
// +kubebuilder:validation:Minimum=0
// +kubebuilder:validation:Maximum=1000000
type ResourceCount int32

// MaasMachineSpec is the desired state of a MaasMachine. It is immutable except for release, and for what the
// controller records (systemID, providerID).
// +kubebuilder:validation:XValidation:rule="!(has(self.dynamicLXD) && self.dynamicLXD && has(self.provisioningMode) && self.provisioningMode == 'bare-metal')",fieldPath=".dynamicLXD",message="dynamicLXD: true means provisioningMode: lxd; remove one of the two, or set provisioningMode to lxd"
// +kubebuilder:validation:XValidation:rule="!has(self.lxdConfig) || (has(self.provisioningMode) && self.provisioningMode == 'lxd') || (has(self.dynamicLXD) && self.dynamicLXD)",fieldPath=".lxdConfig",message="lxdConfig is for LXD VMs: set provisioningMode to lxd, or remove lxdConfig"
// +kubebuilder:validation:XValidation:rule="!has(self.release) || !((has(self.provisioningMode) && self.provisioningMode == 'lxd') || (has(self.dynamicLXD) && self.dynamicLXD))",fieldPath=".release",message="release is for bare metal: an LXD VM is deleted together with its disks; remove release"
// +kubebuilder:validation:XValidation:rule="!(has(self.staticIP) && has(self.staticIPPoolRef))",fieldPath=".staticIPPoolRef",message="staticIP and staticIPPoolRef are mutually exclusive: give an address or a pool to take one from"
// +kubebuilder:validation:XValidation:rule="has(self.staticIP) || has(self.staticIPPoolRef) || !has(self.lxdConfig) || !has(self.lxdConfig.network) || !has(self.lxdConfig.network.devices) || !self.lxdConfig.network.devices.exists(d, has(d.linkMode) && d.linkMode == 'static')",fieldPath=".lxdConfig.network.devices",message="linkMode static is for the static address: set staticIP or staticIPPoolRef, or another linkMode"
// +kubebuilder:validation:XValidation:rule="!(has(self.staticIP) || has(self.staticIPPoolRef)) || !has(self.lxdConfig) || !has(self.lxdConfig.network) || !has(self.lxdConfig.network.devices) || !has(self.lxdConfig.network.devices[0].linkMode) || self.lxdConfig.network.devices.exists(d, has(d.linkMode) && d.linkMode == 'static')",fieldPath=".lxdConfig.network.devices",message="no device carries the static address: set linkMode static on one, or remove linkMode from the first"
// +kubebuilder:validation:XValidation:rule="!((has(self.provisioningMode) && self.provisioningMode == 'lxd') || (has(self.dynamicLXD) && self.dynamicLXD)) || !has(self.minMemory) || self.minMemory >= 2048",fieldPath=".minMemory",message="minMemory of an LXD VM is at least 2048 (MB): current Ubuntu does not boot with less"
// +kubebuilder:validation:XValidation:rule="!((has(self.provisioningMode) && self.provisioningMode == 'lxd') || (has(self.dynamicLXD) && self.dynamicLXD)) || !has(self.minDiskSize) || self.minDiskSize >= 8",fieldPath=".minDiskSize",message="minDiskSize of an LXD VM is at least 8 (GB): current Ubuntu does not install on less"
// +kubebuilder:validation:XValidation:rule="!has(self.providerID) || (has(self.systemID) && self.providerID.endsWith('/' + self.systemID))",fieldPath=".providerID",message="providerID is set by the controller and ends in systemID (maas://<zone>/<system id>): remove providerID"
// +kubebuilder:validation:XValidation:rule="!has(self.architecture) || !((has(self.provisioningMode) && self.provisioningMode == 'lxd') || (has(self.dynamicLXD) && self.dynamicLXD))",fieldPath=".architecture",message="architecture is for bare metal: an LXD VM has that of its host; remove architecture, and choose hosts by tags"
// +kubebuilder:validation:XValidation:rule="!has(self.interfaces) || !((has(self.provisioningMode) && self.provisioningMode == 'lxd') || (has(self.dynamicLXD) && self.dynamicLXD))",fieldPath=".interfaces",message="interfaces is for bare metal: give an LXD VM its interfaces in lxdConfig.network"
// +kubebuilder:validation:XValidation:rule="!has(self.interfaces) || has(self.staticIP) || has(self.staticIPPoolRef) || !self.interfaces.exists(i, has(i.linkMode) && i.linkMode == 'static')",fieldPath=".interfaces",message="linkMode static is for the static address: set staticIP or staticIPPoolRef"
// +kubebuilder:validation:XValidation:rule="!has(self.interfaces) || !(has(self.staticIP) || has(self.staticIPPoolRef)) || !self.interfaces.exists(i, has(i.linkMode) || has(i.subnet)) || self.interfaces.exists(i, has(i.linkMode) && i.linkMode == 'static')",fieldPath=".interfaces",message="no interface carries the static address: give one of them linkMode static"
// +kubebuilder:validation:XValidation:rule="!has(self.tags) || !has(self.notTags) || !self.tags.exists(t, t in self.notTags)",fieldPath=".notTags",message="a tag is in tags and in notTags: no machine has it and lacks it; remove one of the two"
// +kubebuilder:validation:XValidation:rule="!has(self.storage) || !((has(self.provisioningMode) && self.provisioningMode == 'lxd') || (has(self.dynamicLXD) && self.dynamicLXD))",fieldPath=".storage",message="storage is for bare metal: an LXD VM has the disks of lxdConfig; remove storage"
// +kubebuilder:validation:XValidation:rule="!has(self.checks) || !((has(self.provisioningMode) && self.provisioningMode == 'lxd') || (has(self.dynamicLXD) && self.dynamicLXD))",fieldPath=".checks",message="checks is for bare metal: test the host of an LXD VM; remove checks"
// +kubebuilder:validation:XValidation:rule="!has(self.storage) || self.storage.layout != 'blank' || (has(self.deployInMemory) && self.deployInMemory)",fieldPath=".storage.layout",message="the layout blank leaves nothing to install on: set deployInMemory, or another layout"
type MaasMachineSpec struct {
	// maasClusterName is the MaasCluster in this namespace that the machine is made with: the infrastructure of its
	// Cluster, or one whose spec.clusterName is its Cluster. Default: the former; if that is another provider's, the only
	// one of the latter.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="maasClusterName is the name of a MaasCluster in this namespace"
	MaasClusterName string `json:"maasClusterName,omitempty"`

	// failureDomain is the MAAS zone of the machine. Machine.spec.failureDomain overrides it. Default: any zone.
	// +optional
	FailureDomain PlaceName `json:"failureDomain,omitempty"`

	// systemID is MAAS's id of the machine. The controller records it; set it yourself to use one certain bare-metal
	// machine.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=41
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9]+$')",message="systemID is MAAS's id of a machine, for example nqpsap; it is not a hostname"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="systemID is immutable once it is set; delete the Machine to get another one"
	SystemID string `json:"systemID,omitempty"`

	// providerID is maas://<zone>/<system id>, or maas-lxd://<zone>/<system id> for LXD VMs. The controller sets it.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^maas(-lxd)?://[^/]*/[A-Za-z0-9]+$')",message="providerID is set by the controller (maas://<zone>/<system id>); leave it empty"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="providerID is immutable once it is set; delete the Machine to get another one"
	ProviderID string `json:"providerID,omitempty"`

	// resourcePool is the MAAS resource pool: bare metal is allocated from it, VM hosts are chosen from it. Default:
	// any pool.
	// +optional
	ResourcePool PlaceName `json:"resourcePool,omitempty"`

	// minCPU is the least number of cores of a bare-metal machine, and the number of cores of an LXD VM (default 2).
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4096
	MinCPU int32 `json:"minCPU,omitempty"`

	// minMemory is the least memory of a bare-metal machine in MB (1024 or more), and the memory of an LXD VM (default
	// 4096, at least 2048).
	// +optional
	// +kubebuilder:validation:XValidation:rule="self >= 1024",message="minMemory is in MB, and at least 1024"
	MinMemory int32 `json:"minMemory,omitempty"`

	// minDiskSize is the least size in GB of a bare-metal machine's disk, and of an LXD VM's root disk (default 20).
	// +optional
	// +kubebuilder:validation:Minimum=1
	MinDiskSize int32 `json:"minDiskSize,omitempty"`

	// extendedResources are what the Node has beside cores, memory and disk, by the names that device plugins give it:
	// {nvidia.com/gpu: 8}, for example. The cluster autoscaler reads them in the status of a MaasMachineTemplate. They
	// choose no machine: tags do. Default: the GPUs in lxdConfig.devices that have the vendorid of NVIDIA or AMD; 0 takes
	// one of these away.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(name, name.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$') && !name.contains('kubernetes.io/'))",message="extendedResources have the names that device plugins give them, with a domain that is not kubernetes.io, for example nvidia.com/gpu; cores, memory and disk follow from minCPU, minMemory and minDiskSize"
	ExtendedResources map[string]ResourceCount `json:"extendedResources,omitempty"`

	// tags that the machine (for an LXD VM: the VM host) must have in MAAS, all of them.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[a-zA-Z0-9_-]+$')",message="tags are names of MAAS tags: letters, digits, '_' and '-'"
	Tags []string `json:"tags,omitempty"`

	// notTags are tags that the machine (for an LXD VM: the VM host) must not have in MAAS, none of them.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[a-zA-Z0-9_-]+$')",message="notTags are names of MAAS tags: letters, digits, '_' and '-'"
	NotTags []string `json:"notTags,omitempty"`

	// architecture is that of a bare-metal machine, as MAAS names it: amd64, arm64, or with its subarchitecture
	// (arm64/generic). An LXD VM has that of its host. Default: that of the image; any, if MAAS has the image for several.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]+(/[a-z0-9._-]+)?$')",message="architecture is one of MAAS's, for example amd64 or arm64/generic"
	Architecture string `json:"architecture,omitempty"`

	// image is the image to deploy: osystem/series (ubuntu/jammy), or the name of an uploaded image (custom/u-2204-k8s
	// or u-2204-k8s).
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?$')",message="image is osystem/series or the name of an uploaded image, for example ubuntu/jammy, custom/u-2204-k8s or u-2204-k8s"
	Image string `json:"image"`

	// deployInMemory runs the image from memory and leaves the disks alone. It needs MAAS 3.5.10, 3.6.3 or 3.7.1 and
	// about 16 GB of memory. Such a machine does not survive a restart: MAAS deploys it anew, without its bootstrap.
	// +optional
	DeployInMemory bool `json:"deployInMemory,omitempty"`

	// kernel is the kernel of an Ubuntu image of MAAS: ga-24.04, hwe-24.04, hwe-24.04-lowlatency and so on. Images that
	// were uploaded have their own. Default: that of MAAS's settings.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^(ga|hwe)-[0-9]{2}[.][0-9]{2}(-[a-z]+)*$')",message="kernel is the name of an Ubuntu kernel in MAAS, for example ga-24.04 or hwe-24.04-lowlatency"
	Kernel string `json:"kernel,omitempty"`

	// provisioningMode is bare-metal (an existing machine of MAAS) or lxd (a VM composed on a VM host). Default:
	// bare-metal.
	// +optional
	ProvisioningMode ProvisioningMode `json:"provisioningMode,omitempty"`

	// dynamicLXD: true is the short form of provisioningMode: lxd.
	// +optional
	DynamicLXD bool `json:"dynamicLXD,omitempty"`

	// staticIP is the machine's address (IPv4 or IPv6) on its boot interface, or on the device of an LXD VM that has
	// linkMode static. It lies in a MAAS subnet and outside its dynamic ranges. One address serves one machine: for
	// several, use staticIPPoolRef.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="staticIP is an IP address without prefix length, for example 10.77.0.50"
	StaticIP string `json:"staticIP,omitempty"`

	// staticIPPoolRef is a Cluster API IPAM pool in this namespace for the static address, one for each machine:
	// through an IPAddressClaim that has the name of the MaasMachine and is deleted when the address is free in MAAS
	// again.
	// +optional
	StaticIPPoolRef *ipamv1.IPPoolReference `json:"staticIPPoolRef,omitempty"`

	// interfaces are the network of a bare-metal machine, where it differs from what MAAS has: bonds, VLANs, bridges,
	// MTUs and addresses. They are made in this order before the machine is deployed, and undone when it is back in
	// MAAS's pool. The credentials must be an administrator's or, from MAAS 3.8 on, of a user with can_edit_machines in
	// its resource pool and can_view_global_entities in all of MAAS.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.filter(i, has(i.linkMode) && i.linkMode == 'static').size() <= 1",message="one interface at most has linkMode static: a machine has one static address"
	Interfaces []MachineInterface `json:"interfaces,omitempty"`

	// lxdConfig is how an LXD VM is composed, and on which host. Only with provisioningMode lxd.
	// +optional
	LXDConfig *LXDMachineConfig `json:"lxdConfig,omitempty"`

	// storage is what MAAS makes of the disks of a bare-metal machine before it installs the image. Afterwards, when the
	// machine is back in the pool, it gets MAAS's default layout. It needs the API key of an administrator or, from MAAS
	// 3.8 on, of a user with can_edit_machines in its resource pool. Default: as the machine is in MAAS.
	// +optional
	Storage *MachineStorage `json:"storage,omitempty"`

	// checks are tests of MAAS that a bare-metal machine must have passed before it is deployed. A machine that fails is
	// put into quarantine until a person lifts it or a later test passes, and its Machine is to be replaced. It needs the
	// API key of an administrator or, from MAAS 3.8 on, of a user with can_edit_machines in its resource pool and
	// can_edit_global_entities in all of MAAS. Default: none.
	// +optional
	Checks *MachineChecks `json:"checks,omitempty"`

	// release is how a bare-metal machine is given back to MAAS when the MaasMachine is deleted. It may be changed at
	// any time, also during the deletion; while MAAS erases disks, a change counts only once that has failed.
	// +optional
	Release MachineRelease `json:"release,omitempty,omitzero"`
}

// IsLXD reports whether the machine is an LXD VM.
func (s *MaasMachineSpec) IsLXD() bool {
	return s.DynamicLXD || s.ProvisioningMode == ProvisioningModeLXD
}

// Mode returns the provisioning mode, with the default and the short form applied.
func (s *MaasMachineSpec) Mode() ProvisioningMode {
	if s.IsLXD() {
		return ProvisioningModeLXD
	}
	return ProvisioningModeBareMetal
}

// MachineInitialization is the progress of the first provisioning.
// +kubebuilder:validation:MinProperties=1
type MachineInitialization struct {
	// provisioned is true once the machine is deployed. It never becomes false again.
	// +optional
	Provisioned *bool `json:"provisioned,omitempty"`
}

// VMResourceUsage is what an LXD VM uses of its host.
type VMResourceUsage struct {
	// allocatedCores is the number of cores.
	// +optional
	AllocatedCores int32 `json:"allocatedCores,omitempty"`

	// allocatedMemory is the memory in MB.
	// +optional
	AllocatedMemory int32 `json:"allocatedMemory,omitempty"`

	// allocatedDisk is the size of the root disk in GB.
	// +optional
	AllocatedDisk int32 `json:"allocatedDisk,omitempty"`
}

// MachineHardware is what MAAS's commissioning found in a bare-metal machine.
type MachineHardware struct {
	// hostname is the machine's name in MAAS.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Hostname string `json:"hostname,omitempty"`

	// cores is the number of CPU cores.
	// +optional
	Cores int32 `json:"cores,omitempty"`

	// memory is in MB.
	// +optional
	Memory int64 `json:"memory,omitempty"`

	// vendor of the system.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Vendor string `json:"vendor,omitempty"`

	// product name of the system.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Product string `json:"product,omitempty"`

	// serial number of the system.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Serial string `json:"serial,omitempty"`

	// disks are the physical disks, in MAAS's order.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Disks []HardwareDisk `json:"disks,omitempty"`

	// nics are the physical network interfaces, in MAAS's order.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	NICs []HardwareNIC `json:"nics,omitempty"`
}

// HardwareDisk is a physical disk.
type HardwareDisk struct {
	// name in MAAS, for example sda.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Name string `json:"name,omitempty"`

	// model of the disk.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Model string `json:"model,omitempty"`

	// serial number of the disk.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Serial string `json:"serial,omitempty"`

	// size is in GB.
	// +optional
	Size int64 `json:"size,omitempty"`
}

// HardwareNIC is a physical network interface.
type HardwareNIC struct {
	// name in MAAS, for example eno1.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Name string `json:"name,omitempty"`

	// macAddress of the interface.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	MACAddress string `json:"macAddress,omitempty"`

	// vendor of the card.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Vendor string `json:"vendor,omitempty"`

	// product name of the card.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Product string `json:"product,omitempty"`

	// linkSpeed is in Mbit/s. Empty if there is no link.
	// +optional
	LinkSpeed int32 `json:"linkSpeed,omitempty"`
}

// MaasMachineStatus is the observed state of a MaasMachine. All of it can be rebuilt from spec and MAAS.
type MaasMachineStatus struct {
	// observedGeneration is the generation of the object that the status is about. It is -1 until the manager has seen the
	// object, so that whoever waits for it (Helm, Flux) does not take it for done.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// initialization is the progress of the first provisioning.
	// +optional
	Initialization MachineInitialization `json:"initialization,omitempty,omitzero"`

	// ready is true while the condition Ready is true.
	// +optional
	Ready bool `json:"ready,omitempty"`

	// failureDomain is the MAAS zone that the machine really is in.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	FailureDomain string `json:"failureDomain,omitempty"`

	// machineState is MAAS's name for the state of the machine, for example Deployed.
	// +optional
	MachineState string `json:"machineState,omitempty"`

	// machinePowered is whether the machine was powered on when MAAS last checked.
	// +optional
	MachinePowered bool `json:"machinePowered,omitempty"`

	// nodeName is the Node of the workload cluster that has the machine's provider ID. Empty until it has joined.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	NodeName string `json:"nodeName,omitempty"`

	// hostname is the machine's name in MAAS, without the domain.
	// +optional
	Hostname string `json:"hostname,omitempty"`

	// dnsAttached is whether the API endpoint's DNS record has the address of this control plane.
	// +optional
	DNSAttached bool `json:"dnsAttached,omitempty"`

	// staticIP is the static address of the machine: spec.staticIP, or the one from the pool in spec.staticIPPoolRef.
	// +optional
	StaticIP string `json:"staticIP,omitempty"`

	// addresses of the machine: those in the cluster's preferred subnets first, then in MAAS's order. The API
	// endpoint's DNS record gets the first InternalIP.
	// +optional
	// +listType=atomic
	Addresses []clusterv1.MachineAddress `json:"addresses,omitempty"`

	// conditions are Ready (the summary), MachineDeployed, Paused, for control planes DNSAttached, for bare metal
	// HardwareHealthy, with spec.checks HardwareProven, for LXD VMs LXDHostSelected, LXDResourcesAllocated, LXDVMCreated
	// and LXDVMDeployed, and, only while it is False, NodeJoined.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// failureReason is the reason of a failure that does not resolve by itself: delete the Machine, or let a
	// MachineHealthCheck do it.
	// +optional
	FailureReason string `json:"failureReason,omitempty"`

	// failureMessage describes the failure.
	// +optional
	FailureMessage string `json:"failureMessage,omitempty"`

	// provisioningMode is the mode in use.
	// +optional
	ProvisioningMode ProvisioningMode `json:"provisioningMode,omitempty"`

	// lxdHost is the name of the VM host that the VM is on.
	// +optional
	LXDHost string `json:"lxdHost,omitempty"`

	// lxdProject is the LXD project of the VM, if lxdConfig names one.
	// +optional
	LXDProject string `json:"lxdProject,omitempty"`

	// hardware is what MAAS's commissioning found in a bare-metal machine.
	// +optional
	Hardware *MachineHardware `json:"hardware,omitempty"`

	// vmResourceUsage is what the VM uses of its host.
	// +optional
	VMResourceUsage *VMResourceUsage `json:"vmResourceUsage,omitempty"`

	// release is the progress of a bare-metal machine's return to MAAS's pool, once it is deleted.
	// +optional
	Release *MachineReleaseStatus `json:"release,omitempty"`
}

// MaasMachine is one machine of a cluster: an existing bare-metal machine of MAAS, or an LXD VM composed on one of its
// VM hosts.
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=maasmachines,shortName=mm,scope=Namespaced,categories=cluster-api
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.metadata.labels.cluster\.x-k8s\.io/cluster-name`,description="The Cluster this belongs to"
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.status.provisioningMode`,description="bare-metal or lxd"
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.machineState`,description="The machine's state in MAAS"
// +kubebuilder:printcolumn:name="Zone",type=string,JSONPath=`.status.failureDomain`,description="The MAAS zone it is in"
// +kubebuilder:printcolumn:name="Server",type=string,JSONPath=`.status.hardware.hostname`,description="The name of bare metal in MAAS"
// +kubebuilder:printcolumn:name="Host",type=string,JSONPath=`.status.lxdHost`,description="The VM host of an LXD VM"
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.status.addresses[?(@.type=="InternalIP")].address`,description="Its addresses"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="The machine is as desired"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why it is ready or not"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since creation"
// +kubebuilder:printcolumn:name="ProviderID",type=string,priority=10,JSONPath=`.spec.providerID`,description="What the Node is found by"
// +kubebuilder:printcolumn:name="Cores",type=integer,priority=10,JSONPath=`.status.hardware.cores`,description="CPU cores of bare metal"
// +kubebuilder:printcolumn:name="Memory",type=integer,priority=10,JSONPath=`.status.hardware.memory`,description="Memory of bare metal, in MB"
// +kubebuilder:printcolumn:name="Product",type=string,priority=10,JSONPath=`.status.hardware.product`,description="Product name of bare metal"
// +kubebuilder:printcolumn:name="Serial",type=string,priority=10,JSONPath=`.status.hardware.serial`,description="Serial number of bare metal"
// +kubebuilder:printcolumn:name="Hardware",type=string,priority=10,JSONPath=`.status.conditions[?(@.type=="HardwareHealthy")].status`,description="MAAS's hardware tests passed"
// +kubebuilder:printcolumn:name="Proven",type=string,priority=10,JSONPath=`.status.conditions[?(@.type=="HardwareProven")].reason`,description="What became of spec.checks"
// +kubebuilder:printcolumn:name="Message",type=string,priority=10,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,description="The message of the condition Ready"
type MaasMachine struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state.
	// +required
	// +kubebuilder:validation:XValidation:rule="has(self.maasClusterName) == has(oldSelf.maasClusterName) && (!has(self.maasClusterName) || self.maasClusterName == oldSelf.maasClusterName)",fieldPath=".maasClusterName",message="maasClusterName is immutable: change the MaasMachineTemplate (or the topology's variables), and the machine is replaced"
	// +kubebuilder:validation:XValidation:rule="self.image == oldSelf.image",fieldPath=".image",message="image is immutable: change the MaasMachineTemplate (or the topology's variables), and the machine is replaced"
	// +kubebuilder:validation:XValidation:rule="has(self.failureDomain) == has(oldSelf.failureDomain) && (!has(self.failureDomain) || self.failureDomain == oldSelf.failureDomain)",fieldPath=".failureDomain",message="failureDomain is immutable: change the MaasMachineTemplate (or the topology's variables), and the machine is replaced"
	// +kubebuilder:validation:XValidation:rule="has(self.resourcePool) == has(oldSelf.resourcePool) && (!has(self.resourcePool) || self.resourcePool == oldSelf.resourcePool)",fieldPath=".resourcePool",message="resourcePool is immutable: change the MaasMachineTemplate (or the topology's variables), and the machine is replaced"
	// +kubebuilder:validation:XValidation:rule="has(self.minCPU) == has(oldSelf.minCPU) && (!has(self.minCPU) || self.minCPU == oldSelf.minCPU)",fieldPath=".minCPU",message="minCPU is immutable: change the MaasMachineTemplate (or the topology's variables), and the machine is replaced"
	// +kubebuilder:validation:XValidation:rule="has(self.minMemory) == has(oldSelf.minMemory) && (!has(self.minMemory) || self.minMemory == oldSelf.minMemory)",fieldPath=".minMemory",message="minMemory is immutable: change the MaasMachineTemplate (or the topology's variables), and the machine is replaced"
	// +kubebuilder:validation:XValidation:rule="has(self.minDiskSize) == has(oldSelf.minDiskSize) && (!has(self.minDiskSize) || self.minDiskSize == oldSelf.minDiskSize)",fieldPath=".minDiskSize",message="minDiskSize is immutable: change the MaasMachineTemplate (or the topology's variables), and the machine is replaced"
	// +kubebuilder:validation:XValidation:rule="has(self.extendedResources) == has(oldSelf.extendedResources) && (!has(self.extendedResources) || self.extendedResources == oldSelf.extendedResources)",fieldPath=".extendedResources",message="extendedResources is immutable: change the MaasMachineTemplate (or the topology's variables), and the machine is replaced"
	// +kubebuilder:validation:XValidation:rule="(has(self.tags) ? self.tags : []) == (has(oldSelf.tags) ? oldSelf.tags : [])",fieldPath=".tags",message="tags is immutable: change the MaasMachineTemplate (or the topology's variables), and the machine is replaced"
	// +kubebuilder:validation:XValidation:rule="(has(self.notTags) ? self.notTags : []) == (has(oldSelf.notTags) ? oldSelf.notTags : [])",fieldPath=".notTags",message="notTags is immutable: change the MaasMachineTemplate (or the topology's variables), and the machine is replaced"
	// +kubebuilder:validation:XValidation:rule="has(self.architecture) == has(oldSelf.architecture) && (!has(self.architecture) || self.architecture == oldSelf.architecture)",fieldPath=".architecture",message="architecture is immutable: change the MaasMachineTemplate (or the topology's variables), and the machine is replaced"
	// +kubebuilder:validation:XValidation:rule="has(self.kernel) == has(oldSelf.kernel) && (!has(self.kernel) || self.kernel == oldSelf.kernel)",fieldPath=".kernel",message="kernel is immutable: change the MaasMachineTemplate (or the topology's variables), and the machine is replaced"
	// +kubebuilder:validation:XValidation:rule="(has(self.deployInMemory) ? self.deployInMemory : false) == (has(oldSelf.deployInMemory) ? oldSelf.deployInMemory : false)",fieldPath=".deployInMemory",message="deployInMemory is immutable: change the MaasMachineTemplate (or the topology's variables), and the machine is replaced"
	// +kubebuilder:validation:XValidation:rule="has(self.provisioningMode) == has(oldSelf.provisioningMode) && (!has(self.provisioningMode) || self.provisioningMode == oldSelf.provisioningMode)",fieldPath=".provisioningMode",message="provisioningMode is immutable: change the MaasMachineTemplate (or the topology's variables), and the machine is replaced"
	// +kubebuilder:validation:XValidation:rule="(has(self.dynamicLXD) ? self.dynamicLXD : false) == (has(oldSelf.dynamicLXD) ? oldSelf.dynamicLXD : false)",fieldPath=".dynamicLXD",message="dynamicLXD is immutable: change the MaasMachineTemplate (or the topology's variables), and the machine is replaced"
	// +kubebuilder:validation:XValidation:rule="has(self.staticIP) == has(oldSelf.staticIP) && (!has(self.staticIP) || self.staticIP == oldSelf.staticIP)",fieldPath=".staticIP",message="staticIP is immutable: change the MaasMachineTemplate (or the topology's variables), and the machine is replaced"
	// +kubebuilder:validation:XValidation:rule="has(self.staticIPPoolRef) == has(oldSelf.staticIPPoolRef) && (!has(self.staticIPPoolRef) || self.staticIPPoolRef == oldSelf.staticIPPoolRef)",fieldPath=".staticIPPoolRef",message="staticIPPoolRef is immutable: change the MaasMachineTemplate (or the topology's variables), and the machine is replaced"
	// +kubebuilder:validation:XValidation:rule="has(self.interfaces) == has(oldSelf.interfaces) && (!has(self.interfaces) || self.interfaces == oldSelf.interfaces)",fieldPath=".interfaces",message="interfaces is immutable: change the MaasMachineTemplate (or the topology's variables), and the machine is replaced"
	// +kubebuilder:validation:XValidation:rule="has(self.lxdConfig) == has(oldSelf.lxdConfig) && (!has(self.lxdConfig) || self.lxdConfig == oldSelf.lxdConfig)",fieldPath=".lxdConfig",message="lxdConfig is immutable: change the MaasMachineTemplate (or the topology's variables), and the machine is replaced"
	// +kubebuilder:validation:XValidation:rule="has(self.storage) == has(oldSelf.storage) && (!has(self.storage) || self.storage == oldSelf.storage)",fieldPath=".storage",message="storage is immutable: change the MaasMachineTemplate (or the topology's variables), and the machine is replaced"
	// +kubebuilder:validation:XValidation:rule="has(self.checks) == has(oldSelf.checks) && (!has(self.checks) || self.checks == oldSelf.checks)",fieldPath=".checks",message="checks is immutable: change the MaasMachineTemplate (or the topology's variables), and the machine is replaced"
	// +kubebuilder:validation:XValidation:rule="!has(oldSelf.providerID) || has(self.providerID)",fieldPath=".providerID",message="providerID can't be removed once it is set; delete the Machine to get another one"
	// +kubebuilder:validation:XValidation:rule="!has(oldSelf.systemID) || has(self.systemID)",fieldPath=".systemID",message="systemID can't be removed once it is set; delete the Machine to get another one"
	Spec MaasMachineSpec `json:"spec"`

	// status is the observed state.
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status MaasMachineStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions of this object.
func (m *MaasMachine) GetConditions() []metav1.Condition { return m.Status.Conditions }

// SetConditions sets the conditions of this object.
func (m *MaasMachine) SetConditions(conditions []metav1.Condition) { m.Status.Conditions = conditions }

// MaasMachineList is a list of MaasMachines.
// +kubebuilder:object:root=true
type MaasMachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MaasMachine `json:"items"`
}
