// SPDX-License-Identifier: Apache-2.0

package real_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/realnode"
)

const (
	namespace = "default"
	// createTimeout is enough on two processors that others use, too.
	createTimeout, deleteTimeout = 20 * time.Minute, 5 * time.Minute
)

// A cluster of the flavor lxd is made by kubeadm, with the Nodes that MAAS's machines are, and nothing of it is left.
func TestFlavorLXD(t *testing.T) {
	key := client.ObjectKey{Namespace: namespace, Name: "real"}
	before := box.MAAS.State()
	manifest, err := box.Flavor("lxd", map[string]string{
		"CLUSTER_NAME": key.Name, "NAMESPACE": key.Namespace, "KUBERNETES_VERSION": box.NodeVersion(), "MAAS_DNS_DOMAIN": "maas.sim",
		"MAAS_IMAGE": "u-2204-k8s-1.36", "CONTROL_PLANE_MACHINE_RESOURCEPOOL": "capi", "WORKER_MACHINE_RESOURCEPOOL": "capi",
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx := within(t, createTimeout)
	if err := box.ApplyYAML(ctx, strings.NewReader(manifest)); err != nil {
		t.Fatal(err)
	}
	workload := installPodNetwork(ctx, t, key)
	if err := box.WaitAvailable(ctx, key, 2); err != nil {
		t.Fatal(err)
	}
	checkNodes(t, workload)
	checkPods(ctx, t, workload)
	if err := box.DeleteCluster(within(t, deleteTimeout), key); err != nil {
		t.Fatal(err)
	}
	if after := box.MAAS.State(); !bytes.Equal(before, after) {
		t.Errorf("MAAS was\n%s\nand is\n%s", before, after)
	}
}

func within(t *testing.T, limit time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// installPodNetwork does what the user of a new cluster does first.
func installPodNetwork(ctx context.Context, t *testing.T, key client.ObjectKey) client.Client {
	t.Helper()
	var workload client.Client
	err := sandbox.WaitFor(ctx, "the pod network to be accepted", func() (bool, string, error) {
		var refused error // The API server is not there yet.
		if workload, refused = box.WorkloadClient(ctx, key); refused == nil {
			refused = create(ctx, workload, realnode.PodNetwork)
		}
		return refused == nil, fmt.Sprint(refused), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return workload
}

// create makes the objects that are not there yet.
func create(ctx context.Context, c client.Client, manifest []byte) error {
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := c.Create(ctx, object); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
}

// checkNodes compares each Node with its machine in MAAS.
func checkNodes(t *testing.T, workload client.Client) {
	t.Helper()
	nodes := &corev1.NodeList{}
	if err := workload.List(t.Context(), nodes); err != nil {
		t.Fatal(err)
	}
	for _, node := range nodes.Items {
		id := node.Spec.ProviderID[strings.LastIndex(node.Spec.ProviderID, "/")+1:]
		m, ok := box.MAAS.Machine(id)
		if !ok || m.Hostname != node.Name {
			t.Errorf("the Node %s has the provider id %q, of the machine %q", node.Name, node.Spec.ProviderID, m.Hostname)
			continue
		}
		var internal []string
		for _, address := range node.Status.Addresses {
			if address.Type == corev1.NodeInternalIP {
				internal = append(internal, address.Address)
			}
		}
		if len(internal) == 0 || !slices.ContainsFunc(m.Addresses, func(a netip.Addr) bool { return a.String() == internal[0] }) {
			t.Errorf("the Node %s has the internal addresses %v, its machine in MAAS has %v", node.Name, internal, m.Addresses)
		}
	}
}

// checkPods waits until the cluster's own pods run, on all nodes.
func checkPods(ctx context.Context, t *testing.T, workload client.Client) {
	t.Helper()
	err := sandbox.WaitFor(ctx, "the pods of kube-system to run", func() (bool, string, error) {
		sets, deployments := &appsv1.DaemonSetList{}, &appsv1.DeploymentList{}
		if err := workload.List(ctx, sets, client.InNamespace("kube-system")); err != nil {
			return false, "", err
		}
		if err := workload.List(ctx, deployments, client.InNamespace("kube-system")); err != nil {
			return false, "", err
		}
		said, ready := "", len(sets.Items) == 2 && len(deployments.Items) == 1
		for _, s := range sets.Items {
			said += fmt.Sprintf("%s %d of %d; ", s.Name, s.Status.NumberReady, s.Status.DesiredNumberScheduled)
			ready = ready && s.Status.NumberReady == 2
		}
		for _, d := range deployments.Items {
			said += fmt.Sprintf("%s %d of %d; ", d.Name, d.Status.ReadyReplicas, d.Status.Replicas)
			ready = ready && d.Status.ReadyReplicas == d.Status.Replicas && d.Status.Replicas > 0
		}
		return ready, said, nil
	})
	if err != nil {
		t.Error(err)
	}
}
