// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// MaasMachineTemplateResource is the template of a MaasMachine.
type MaasMachineTemplateResource struct {
	// metadata is put on every MaasMachine made from this template.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is the spec of every MaasMachine made from this template.
	// +required
	// +kubebuilder:validation:XValidation:rule="!has(self.providerID)",message="providerID belongs to one machine: remove it from the template"
	// +kubebuilder:validation:XValidation:rule="!has(self.systemID)",message="systemID belongs to one machine: remove it from the template, and use tags or resourcePool to choose machines"
	Spec MaasMachineSpec `json:"spec"`
}

// MaasMachineTemplateSpec is the desired state of a MaasMachineTemplate.
type MaasMachineTemplateSpec struct {
	// template is the template of the MaasMachines.
	// +required
	Template MaasMachineTemplateResource `json:"template"`
}

// Architecture is a processor architecture with Kubernetes' name.
// +kubebuilder:validation:Enum=amd64;arm64;s390x;ppc64le
type Architecture string

// NodeInfo describes a node made from a template.
// +kubebuilder:validation:MinProperties=1
type NodeInfo struct {
	// architecture is the processor architecture, for example amd64.
	// +optional
	Architecture Architecture `json:"architecture,omitempty"`

	// operatingSystem is the operating system, for example linux.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	OperatingSystem string `json:"operatingSystem,omitempty"`
}

// MachineCounts are the machines in MAAS that match a template, by what can be done with them.
type MachineCounts struct {
	// ready machines can be allocated now.
	// +optional
	Ready int32 `json:"ready"`

	// inUse are machines that a user of MAAS has, also while they are deployed or released.
	// +optional
	InUse int32 `json:"inUse"`

	// broken are machines that failed, or that are marked as broken in MAAS.
	// +optional
	Broken int32 `json:"broken"`

	// coolingDown are Ready in MAAS, and not allocated for a while: they failed recently, and are in quarantine.
	// +optional
	CoolingDown int32 `json:"coolingDown"`
}

// ZoneRoom is the room in one MAAS zone for machines of a template.
type ZoneRoom struct {
	// name of the zone.
	// +required
	Name PlaceName `json:"name"`

	// fits is how many more machines of the template this zone can take now; 1000 stands for more, too.
	// +optional
	Fits int32 `json:"fits"`

	// machines are those in MAAS that match the template. It is for bare metal alone.
	// +optional
	Machines *MachineCounts `json:"machines,omitempty"`
}

// TemplateRoom is the room for machines of a template.
type TemplateRoom struct {
	// fits is how many more machines of the template could be made now, if no other were: VMs that LXD hosts can take, or
	// machines that are Ready in MAAS. 1000 stands for more, too.
	// +optional
	Fits int32 `json:"fits"`

	// controlPlane: the control plane of the cluster makes its machines from this template.
	// +optional
	ControlPlane bool `json:"controlPlane,omitempty"`

	// machines are those in MAAS that match the template. It is for bare metal alone.
	// +optional
	Machines *MachineCounts `json:"machines,omitempty"`

	// zones is the room by MAAS zone. Those with no host, or machine, for the template are left out. For control planes,
	// they are the cluster's failure domains.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	Zones []ZoneRoom `json:"zones,omitempty"`
}

// MaasMachineTemplateStatus is what the cluster autoscaler needs to scale from zero, and the room for more machines.
type MaasMachineTemplateStatus struct {
	// observedGeneration is the generation of the object that the status is about. It is -1 until the manager has seen the
	// object, so that whoever waits for it (Helm, Flux) does not take it for done.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// capacity of a machine made from this template.
	// +optional
	Capacity corev1.ResourceList `json:"capacity,omitempty"`

	// nodeInfo describes a node made from this template.
	// +optional
	NodeInfo NodeInfo `json:"nodeInfo,omitempty,omitzero"`

	// room is how many more machines of this template could be made. It is not set for templates that belong to no
	// cluster. It follows the figures of LXDHosts within a minute, and MAAS's machines within about ten.
	// +optional
	Room *TemplateRoom `json:"room,omitempty"`
}

// MaasMachineTemplate is a template of MaasMachines. Its spec is immutable: make a new template, and point to it.
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=maasmachinetemplates,shortName=mmt,scope=Namespaced,categories=cluster-api
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.template.spec.provisioningMode`,description="bare-metal (when empty) or lxd"
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.spec.template.spec.image`,description="What is deployed"
// +kubebuilder:printcolumn:name="CPU",type=integer,JSONPath=`.spec.template.spec.minCPU`,description="Least number of cores"
// +kubebuilder:printcolumn:name="Memory",type=integer,JSONPath=`.spec.template.spec.minMemory`,description="Least memory in MB"
// +kubebuilder:printcolumn:name="Fits",type=integer,JSONPath=`.status.room.fits`,description="How many more machines could be made now"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since creation"
type MaasMachineTemplate struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state.
	// +required
	Spec MaasMachineTemplateSpec `json:"spec"`

	// status is what the cluster autoscaler needs to scale from zero, and the room for more machines.
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status MaasMachineTemplateStatus `json:"status,omitempty,omitzero"`
}

// MaasMachineTemplateList is a list of MaasMachineTemplates.
// +kubebuilder:object:root=true
type MaasMachineTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MaasMachineTemplate `json:"items"`
}
