// SPDX-License-Identifier: Apache-2.0

// Package allkinds has the kinds of objects that tests make.
package allkinds

import (
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// Scheme has Kubernetes' own kinds, those of Cluster API and of IPAM providers, and ours.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	add := runtime.NewSchemeBuilder(clientgoscheme.AddToScheme, clusterv1.AddToScheme, ipamv1.AddToScheme, infrav1.AddToScheme)
	utilruntime.Must(add.AddToScheme(scheme))
	return scheme
}
