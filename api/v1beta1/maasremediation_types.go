// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// RemediationFinalizer is removed from a MaasRemediation when its machine is not switched off because of it.
const RemediationFinalizer = "infrastructure.cluster.x-k8s.io/maasremediation"

// Defaults of PowerCycleRemediation.
const (
	DefaultPowerCycleTries          int32 = 1
	DefaultPowerCycleTimeoutSeconds int32 = 900
)

// PowerCycleRemediation is when and how often a machine is switched off and on.
type PowerCycleRemediation struct {
	// tries is how often the machine is switched off and on before it is replaced, 0 to 5; 0: it is replaced at once.
	// Default: 1.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=5
	Tries *int32 `json:"tries,omitempty"`

	// timeoutSeconds is how long the Node may take to be healthy after its machine was switched on, 60 to 86400. A server
	// may need many minutes to start. Default: 900.
	// +optional
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=86400
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`
}

// MaasRemediationSpec is what is done with an unhealthy Machine: its machine is switched off and on; if that does not
// help, the Machine is replaced.
type MaasRemediationSpec struct {
	// powerCycle is when and how often the machine is switched off and on.
	// +optional
	PowerCycle PowerCycleRemediation `json:"powerCycle,omitempty,omitzero"`
}

// RemediationStep is a step of a remediation.
// +kubebuilder:validation:Enum=LeaveEndpoint;PowerOff;PowerOn;Recover;Replace
type RemediationStep string

const (
	// RemediationLeaveEndpoint means that a control plane leaves the API endpoint's DNS record, before it is switched off.
	RemediationLeaveEndpoint RemediationStep = "LeaveEndpoint"

	// RemediationPowerOff means that the machine is switched off.
	RemediationPowerOff RemediationStep = "PowerOff"

	// RemediationPowerOn means that the machine is switched on again.
	RemediationPowerOn RemediationStep = "PowerOn"

	// RemediationRecover means that the machine was switched on, and its Node may take a while to be healthy.
	RemediationRecover RemediationStep = "Recover"

	// RemediationReplace means that Cluster API replaces the Machine.
	RemediationReplace RemediationStep = "Replace"
)

// RemediationProgress is how far a remediation is.
type RemediationProgress struct {
	// step that the remediation is at; empty: none has begun.
	// +optional
	Step RemediationStep `json:"step,omitempty"`

	// since is when the step began.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`

	// powerCycles is how many power cycles have begun.
	// +optional
	PowerCycles int32 `json:"powerCycles,omitempty"`

	// requests is how often MAAS was asked to switch the machine in this step.
	// +optional
	Requests int32 `json:"requests,omitempty"`

	// requested is when MAAS was last asked to.
	// +optional
	Requested *metav1.Time `json:"requested,omitempty"`
}

// MaasRemediationStatus is how far the remediation is.
type MaasRemediationStatus struct {
	// observedGeneration is the generation of the object that the status is about. It is -1 until the manager has seen the
	// object, so that whoever waits for it (Helm, Flux) does not take it for done.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	RemediationProgress `json:",inline"`

	// conditions: PowerCycled (the machine was switched off and on), HandedOver (Cluster API replaces the Machine),
	// Paused.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// MaasRemediation is the remediation of one unhealthy Machine, which has its name and owns it. A MachineHealthCheck
// makes it from a MaasRemediationTemplate, and deletes it when the Machine is healthy again.
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=maasremediations,shortName=mr,scope=Namespaced,categories=cluster-api
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.metadata.labels.cluster\.x-k8s\.io/cluster-name`,description="Cluster of the Machine"
// +kubebuilder:printcolumn:name="Step",type=string,JSONPath=`.status.step`,description="Step that the remediation is at"
// +kubebuilder:printcolumn:name="Cycles",type=integer,JSONPath=`.status.powerCycles`,description="How often the machine was switched off and on"
// +kubebuilder:printcolumn:name="PowerCycled",type=string,JSONPath=`.status.conditions[?(@.type=="PowerCycled")].reason`,description="Why the machine is, or is not, switched off and on"
// +kubebuilder:printcolumn:name="HandedOver",type=string,JSONPath=`.status.conditions[?(@.type=="HandedOver")].reason`,description="Why the Machine is, or is not, replaced"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since creation"
type MaasRemediation struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what is done.
	// +optional
	Spec MaasRemediationSpec `json:"spec,omitempty,omitzero"`

	// status is how far it is.
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status MaasRemediationStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions of this object.
func (r *MaasRemediation) GetConditions() []metav1.Condition { return r.Status.Conditions }

// SetConditions sets the conditions of this object.
func (r *MaasRemediation) SetConditions(conditions []metav1.Condition) {
	r.Status.Conditions = conditions
}

// MaasRemediationList is a list of MaasRemediations.
// +kubebuilder:object:root=true
type MaasRemediationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MaasRemediation `json:"items"`
}

// MaasRemediationTemplateResource is the template of a MaasRemediation.
type MaasRemediationTemplateResource struct {
	// metadata is put on every MaasRemediation made from this template.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is the spec of every MaasRemediation made from this template.
	// +optional
	Spec MaasRemediationSpec `json:"spec,omitempty,omitzero"`
}

// MaasRemediationTemplateSpec is the desired state of a MaasRemediationTemplate.
type MaasRemediationTemplateSpec struct {
	// template is the template of the MaasRemediations.
	// +required
	Template MaasRemediationTemplateResource `json:"template"`
}

// MaasRemediationTemplate is the template from which MachineHealthChecks make MaasRemediations. A change of it is for
// remediations that are made afterwards.
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=maasremediationtemplates,shortName=mrt,scope=Namespaced,categories=cluster-api
// +kubebuilder:printcolumn:name="Tries",type=integer,JSONPath=`.spec.template.spec.powerCycle.tries`,description="How often a machine is switched off and on"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since creation"
type MaasRemediationTemplate struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state.
	// +required
	Spec MaasRemediationTemplateSpec `json:"spec"`
}

// MaasRemediationTemplateList is a list of MaasRemediationTemplates.
// +kubebuilder:object:root=true
type MaasRemediationTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MaasRemediationTemplate `json:"items"`
}
