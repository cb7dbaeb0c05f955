// SPDX-License-Identifier: Apache-2.0

package capi

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/contract"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// apiVersionGetter returns the function with which the conversion webhooks choose the version of a provider's kind: the
// newest one that the CRD's labels list for the newest contract. Cluster API has it in an internal package.
func apiVersionGetter(reader client.Reader) func(context.Context, schema.GroupKind) (string, error) {
	return func(ctx context.Context, kind schema.GroupKind) (string, error) {
		crd := &metav1.PartialObjectMetadata{}
		crd.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
		name := contract.CalculateCRDName(kind.Group, kind.Kind)
		if err := reader.Get(ctx, client.ObjectKey{Name: name}, crd); err != nil {
			return "", fmt.Errorf("reading the CRD of %s: %w", kind, err)
		}
		for _, contractVersion := range []string{"v1beta2", "v1beta1"} {
			label := crd.Labels[clusterv1.GroupVersion.Group+"/"+contractVersion]
			if label == "" {
				continue
			}
			newest := slices.MaxFunc(strings.Split(label, "_"), version.CompareKubeAwareVersionStrings)
			return schema.GroupVersion{Group: kind.Group, Version: newest}.String(), nil
		}
		return "", fmt.Errorf("the CRD %s has no label of a contract", name)
	}
}
