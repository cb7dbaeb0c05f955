// SPDX-License-Identifier: Apache-2.0

// Package ipam is a small provider of the Cluster API IPAM contract: it serves IPAddressClaims from pools that are
// lists of addresses.
package ipam

import (
	"context"
	"fmt"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
)

// Kind is the pools' kind.
var Kind = schema.GroupVersionKind{Group: "ipam.test.capmaas.io", Version: "v1alpha1", Kind: "TestIPPool"}

const plural = "testippools"

// NewPool makes a pool of these addresses; the caller creates it.
func NewPool(namespace, name string, addresses ...string) *unstructured.Unstructured {
	list := make([]any, 0, len(addresses))
	for _, address := range addresses {
		list = append(list, address)
	}
	pool := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"addresses": list}}}
	pool.SetGroupVersionKind(Kind)
	pool.SetNamespace(namespace)
	pool.SetName(name)
	return pool
}

// Ref is how staticIPPoolRef names a pool.
func Ref(pool string) ipamv1.IPPoolReference {
	return ipamv1.IPPoolReference{APIGroup: Kind.Group, Kind: Kind.Kind, Name: pool}
}

// addressesOf are the addresses of a pool.
func addressesOf(pool *unstructured.Unstructured) ([]string, error) {
	addresses, _, err := unstructured.NestedStringSlice(pool.Object, "spec", "addresses")
	if err != nil {
		return nil, fmt.Errorf("reading the pool %s: %w", pool.GetName(), err)
	}
	return addresses, nil
}

// Install makes the kind of the pools known, and waits until it is served. It may be called more than once, at the same
// time.
func Install(ctx context.Context, config *rest.Config) error {
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		return fmt.Errorf("making the scheme: %w", err)
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	crd := definition()
	err = c.Create(ctx, crd)
	if err == nil || apierrors.IsAlreadyExists(err) {
		err = envtest.WaitForCRDs(config, []*apiextensionsv1.CustomResourceDefinition{crd}, envtest.CRDInstallOptions{
			MaxTime: eventually.Limit, PollInterval: 100 * time.Millisecond,
		})
	}
	if err != nil {
		return fmt.Errorf("making the kind %s known: %w", Kind.Kind, err)
	}
	return nil
}

func definition() *apiextensionsv1.CustomResourceDefinition {
	addresses := apiextensionsv1.JSONSchemaProps{
		Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &apiextensionsv1.JSONSchemaProps{Type: "string"}},
	}
	spec := apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"addresses": addresses}}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{
			Name: plural + "." + Kind.Group,
			// An address has its pool as an owner, and `clusterctl move` moves nothing without its owners.
			Labels: map[string]string{clusterctlv1.ClusterctlLabel: "", clusterctlv1.ClusterctlMoveHierarchyLabel: ""},
		},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: Kind.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: Kind.Kind, ListKind: Kind.Kind + "List", Plural: plural, Singular: "testippool"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: Kind.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": spec},
				}},
			}},
		},
	}
}
