// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
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
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/allkinds"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/controlplane"
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
	dir, err := os.MkdirTemp("", "capmaasctl-")
	if err != nil {
		return k, err
	}
	endManagement = func() error { return os.RemoveAll(dir) }
	server, err := controlplane.Start(ctx, controlplane.Options{Dir: filepath.Join(dir, "data"), LogDir: dir})
	if err != nil {
		return k, err
	}
	endManagement = func() error { return errors.Join(server.Stop(), os.RemoveAll(dir)) }
	module, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api").Output()
	if err != nil {
		return k, fmt.Errorf("finding Cluster API's CRDs: %w", err)
	}
	_, err = envtest.InstallCRDs(server.RESTConfig(), envtest.CRDInstallOptions{ErrorIfPathMissing: true, Paths: []string{
		filepath.Join("..", "..", "charts", "capmaas", "files", "crds"),
		filepath.Join(strings.TrimSpace(string(module)), "core", "config", "crd", "bases"),
		filepath.Join(strings.TrimSpace(string(module)), "controlplane", "kubeadm", "config", "crd", "bases"),
	}})
	if err != nil {
		return k, fmt.Errorf("installing CRDs: %w", err)
	}
	scheme := allkinds.Scheme()
	k.kubeconfig = filepath.Join(dir, "kubeconfig")
	if err := server.WriteKubeconfig(k.kubeconfig); err != nil {
		return k, err
	}
	if k.client, err = client.New(server.RESTConfig(), client.Options{Scheme: scheme}); err != nil {
		return k, err
	}
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
