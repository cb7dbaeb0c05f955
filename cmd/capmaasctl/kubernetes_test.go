// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/apiserver"
)

// kubernetes is a management cluster: a real API server with the CRDs.
type kubernetes struct {
	client     client.Client
	kubeconfig string
	id         string // of the management cluster
}

var (
	// management starts the management cluster that all tests share, for the first that needs it.
	management = sync.OnceValues(startKubernetes)
	// endManagement ends it.
	endManagement = func() error { return nil }
)

func startKubernetes() (k kubernetes, err error) {
	ctx := context.Background()
	server, err := apiserver.Start(ctx, apiserver.Options{
		Root: filepath.Join("..", ".."), ClusterAPI: []string{"core", "controlplane/kubeadm"}, Deprecated: true,
	})
	if err != nil {
		return k, err
	}
	endManagement = server.Stop
	k.client, k.kubeconfig = server.Client, server.Kubeconfig
	system := &corev1.Namespace{}
	if err := k.client.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, system); err != nil {
		return k, err
	}
	k.id = string(system.UID)
	return k, nil
}

// newKubernetes returns the management cluster, which has nothing of other tests.
func newKubernetes(t *testing.T) kubernetes {
	t.Helper()
	k, err := management()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.clear(t) })
	return k
}

// madeKinds are those of which tests make objects in namespaces.
var madeKinds = map[schema.GroupVersion][]string{
	infrav1.GroupVersion:   {"MaasMachine", "MaasCluster", "MaasMachineTemplate", "LXDHost"},
	clusterv1.GroupVersion: {"Cluster", "MachineDeployment"},
	{Group: "controlplane.cluster.x-k8s.io", Version: "v1beta2"}: {"KubeadmControlPlane"},
	{Group: "apps", Version: "v1"}:                               {"Deployment"},
	corev1.SchemeGroupVersion:                                    {"ConfigMap", "Secret"},
}

// clear deletes what a test has made: the next one would see it.
func (k *kubernetes) clear(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	for version, kinds := range madeKinds {
		for _, kind := range kinds {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(version.WithKind(kind + "List"))
			if err := k.client.List(ctx, list); err != nil {
				t.Fatal(err)
			}
			for i := range list.Items {
				object := &list.Items[i]
				if strings.HasPrefix(object.GetNamespace(), "kube-") {
					continue
				}
				if kept := object.GetFinalizers(); len(kept) > 0 {
					t.Errorf("%s %s stays for the next test: it has the finalizers %v", kind, client.ObjectKeyFromObject(object), kept)
				}
				if err := k.client.Delete(ctx, object); client.IgnoreNotFound(err) != nil {
					t.Errorf("deleting %s %s: %v", kind, client.ObjectKeyFromObject(object), err)
				}
			}
		}
	}
}
