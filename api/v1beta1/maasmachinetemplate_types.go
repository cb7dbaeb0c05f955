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

// MaasMachineTemplateStatus is what the cluster autoscaler needs to scale from zero.
type MaasMachineTemplateStatus struct {
	// capacity of a machine made from this template.
	// +optional
	Capacity corev1.ResourceList `json:"capacity,omitempty"`

	// nodeInfo describes a node made from this template.
	// +optional
	NodeInfo NodeInfo `json:"nodeInfo,omitempty,omitzero"`
}

// MaasMachineTemplate is a template of MaasMachines. Its spec is immutable: make a new template, and point to it.
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=maasmachinetemplates,shortName=mmt,scope=Namespaced,categories=cluster-api
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.template.spec.provisioningMode`,description="bare-metal (when empty) or lxd"
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.spec.template.spec.image`,description="What is deployed"
// +kubebuilder:printcolumn:name="CPU",type=integer,JSONPath=`.spec.template.spec.minCPU`,description="Least number of cores"
// +kubebuilder:printcolumn:name="Memory",type=integer,JSONPath=`.spec.template.spec.minMemory`,description="Least memory in MB"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since creation"
type MaasMachineTemplate struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state.
	// +required
	Spec MaasMachineTemplateSpec `json:"spec"`

	// status is what the cluster autoscaler needs to scale from zero.
	// +optional
	Status MaasMachineTemplateStatus `json:"status,omitempty,omitzero"`
}

// MaasMachineTemplateList is a list of MaasMachineTemplates.
// +kubebuilder:object:root=true
type MaasMachineTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MaasMachineTemplate `json:"items"`
}
