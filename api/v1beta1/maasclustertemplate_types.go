// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// MaasClusterTemplateResource is the template of a MaasCluster.
type MaasClusterTemplateResource struct {
	// metadata is put on every MaasCluster made from this template.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is the spec of every MaasCluster made from this template.
	// +required
	// +kubebuilder:validation:XValidation:rule="!has(self.clusterName)",fieldPath=".clusterName",message="clusterName is of one MaasCluster that is no Cluster's infrastructure: remove it from the template, which makes those that are"
	Spec MaasClusterSpec `json:"spec"`
}

// MaasClusterTemplateSpec is the desired state of a MaasClusterTemplate.
type MaasClusterTemplateSpec struct {
	// template is the template of the MaasClusters.
	// +required
	Template MaasClusterTemplateResource `json:"template"`
}

// MaasClusterTemplate is the template from which a ClusterClass makes MaasClusters. Its spec is immutable.
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=maasclustertemplates,shortName=mct,scope=Namespaced,categories=cluster-api
// +kubebuilder:printcolumn:name="Domain",type=string,JSONPath=`.spec.template.spec.dnsDomain`,description="Domain of the API endpoint"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since creation"
type MaasClusterTemplate struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state.
	// +required
	Spec MaasClusterTemplateSpec `json:"spec"`
}

// MaasClusterTemplateList is a list of MaasClusterTemplates.
// +kubebuilder:object:root=true
type MaasClusterTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MaasClusterTemplate `json:"items"`
}
