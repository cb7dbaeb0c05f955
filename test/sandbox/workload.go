// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/realnode"
)

// InstallPodNetwork does what the user of a new cluster of real nodes does first, as soon as it has an API server.
func (s *Sandbox) InstallPodNetwork(ctx context.Context, cluster client.ObjectKey) error {
	return eventually.Wait(ctx, "the pod network of "+cluster.String()+" to be accepted", func() (bool, string, error) {
		c, err := s.WorkloadClient(ctx, cluster)
		if err == nil {
			err = create(ctx, c, realnode.PodNetwork)
		}
		return err == nil, fmt.Sprint(err), nil // The API server is not there yet.
	})
}

// create makes the objects that are not there yet.
func create(ctx context.Context, c client.Client, manifest []byte) error {
	return eachObject(bytes.NewReader(manifest), func(object *unstructured.Unstructured) error {
		return client.IgnoreAlreadyExists(c.Create(ctx, object))
	})
}

// Greet runs two pods on two real nodes, unless they run already, and returns when each of them has got responses of both
// through their Service, which it calls by its name in DNS.
func (s *Sandbox) Greet(ctx context.Context, cluster client.ObjectKey) error {
	config, err := s.workloadConfig(ctx, cluster)
	if err != nil {
		return err
	}
	calls, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client of %s: %w", cluster, err)
	}
	c, err := newClient(config)
	if err != nil {
		return err
	}
	if err := create(ctx, c, realnode.Greeters); err != nil {
		return fmt.Errorf("running pods in %s: %w", cluster, err)
	}
	return eventually.Wait(ctx, "pods on two nodes to reach each other through their Service", func() (bool, string, error) {
		pods := &corev1.PodList{}
		if err := c.List(ctx, pods, client.InNamespace("default"), client.MatchingLabels{"app": "greeter"}); err != nil {
			return false, err.Error(), nil //nolint:nilerr // the API server may be away for a moment
		}
		return greeted(ctx, calls, pods.Items)
	})
}

// greeted reports whether each of two pods has responses of the nodes of both.
func greeted(ctx context.Context, calls *kubernetes.Clientset, pods []corev1.Pod) (done bool, status string, err error) {
	var nodes []string
	for _, pod := range pods {
		if pod.DeletionTimestamp.IsZero() && pod.Status.Phase == corev1.PodRunning {
			nodes = append(nodes, pod.Spec.NodeName)
		}
	}
	slices.Sort(nodes)
	if len(nodes) != 2 || len(pods) != 2 || nodes[0] == nodes[1] {
		return false, fmt.Sprintf("of %d pods, there run some on %q", len(pods), nodes), nil
	}
	for _, pod := range pods {
		answers, err := calls.CoreV1().Pods(pod.Namespace).ProxyGet("http", pod.Name, "8080", "all", nil).DoRaw(ctx)
		if err != nil {
			return false, fmt.Sprintf("the pod on %s: %v: %s", pod.Spec.NodeName, err, answers), nil
		}
		if got := strings.Fields(string(answers)); !slices.Equal(got, nodes) {
			return false, fmt.Sprintf("the pod on %s got answers of %q", pod.Spec.NodeName, got), nil
		}
	}
	return true, "", nil
}
