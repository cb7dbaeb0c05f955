// SPDX-License-Identifier: Apache-2.0

// Package v1beta1 holds the Kubernetes API of the MAAS infrastructure provider.
//
// It implements the Cluster API infrastructure contract v1beta2.
// +kubebuilder:object:generate=true
// +groupName=infrastructure.cluster.x-k8s.io
package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion is the group and version of all kinds in this package.
	GroupVersion = schema.GroupVersion{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta1"}

	schemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme adds the kinds of this package to a scheme.
	AddToScheme = schemeBuilder.AddToScheme
)

// SchemaAnnotation on a CRD is the number of its schema. A CRD with a lower number is of an earlier release, and would
// erase the fields that it does not have: the chart's policy refuses it.
const SchemaAnnotation = "capmaas.io/schema"

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&LXDHost{}, &LXDHostList{},
		&MaasCluster{}, &MaasClusterList{},
		&MaasClusterTemplate{}, &MaasClusterTemplateList{},
		&MaasMachine{}, &MaasMachineList{},
		&MaasMachineTemplate{}, &MaasMachineTemplateList{},
		&MaasRemediation{}, &MaasRemediationList{},
		&MaasRemediationTemplate{}, &MaasRemediationTemplateList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
