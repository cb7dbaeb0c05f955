// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// podNamespace is where a pod finds its namespace.
const podNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// errNoCluster means that nothing says where the management cluster is.
var errNoCluster = errors.New("name the kubeconfig of the management cluster; there is no ~/.kube/config")

// completeCluster sets o.kubernetes, o.namespace if it is not given, and that of o.subject.
func (o *options) completeCluster(s surroundings) []string {
	config, namespace, err := o.managementCluster(s)
	if err != nil {
		return []string{fmt.Sprintf("--kubeconfig (or KUBECONFIG): %v", err)}
	}
	o.kubernetes = config
	if o.namespace == "" {
		o.namespace = namespace
	}
	if o.subject.Name == "" || o.subject.Namespace != "" {
		return nil
	}
	if o.subject.Namespace = o.namespace; o.namespace == "" {
		return []string{"--namespace is missing: the namespace of " + o.subject.Name}
	}
	return nil
}

// hasCluster reports whether there is a management cluster, and sets o.kubernetes to it. A kubeconfig that is wrong is
// reported when it is read again.
func (o *options) hasCluster(s surroundings) bool {
	config, _, err := o.managementCluster(s)
	o.kubernetes = config
	return err == nil
}

// managementCluster returns the configuration for the Kubernetes API and the namespace there: from the flag, from
// KUBECONFIG, from where kubectl has it, or of a pod.
func (o *options) managementCluster(s surroundings) (*rest.Config, string, error) {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: o.kubeconfig,
		Precedence: filepath.SplitList(s.getenv("KUBECONFIG"))}
	if o.kubeconfig == "" && len(rules.Precedence) == 0 {
		own := filepath.Join(s.getenv("HOME"), clientcmd.RecommendedHomeDir, clientcmd.RecommendedFileName)
		if _, err := os.Stat(own); s.getenv("HOME") == "" || err != nil {
			return inPod()
		}
		rules.Precedence = []string{own}
	}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: o.context})
	config, err := loader.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, "", fmt.Errorf("%s: no such file, or no cluster is in it",
			cmp.Or(o.kubeconfig, strings.Join(rules.Precedence, ", ")))
	}
	if err != nil {
		return nil, "", err
	}
	namespace, _, err := loader.Namespace()
	return config, namespace, err
}

func inPod() (*rest.Config, string, error) {
	config, err := rest.InClusterConfig()
	if errors.Is(err, rest.ErrNotInCluster) {
		return nil, "", errNoCluster
	}
	namespace, _ := os.ReadFile(podNamespace) // Without one, commands ask for --namespace.
	return config, strings.TrimSpace(string(namespace)), err
}

// kubernetesClient returns a client for the management cluster.
func kubernetesClient(o options) (client.Client, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, clusterv1.AddToScheme,
		infrav1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	kubernetes, err := client.New(o.kubernetes, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("reaching the management cluster: %w", err)
	}
	return kubernetes, nil
}

// elsewhere adds to the error of a read which namespaces have an object of the name, if this one has none.
func elsewhere(ctx context.Context, reader client.Client, err error, object client.Object, key client.ObjectKey) error {
	if !apierrors.IsNotFound(err) {
		return err
	}
	of, unknown := reader.GroupVersionKindFor(object)
	if unknown != nil {
		return err
	}
	all := &metav1.PartialObjectMetadataList{}
	all.SetGroupVersionKind(of.GroupVersion().WithKind(of.Kind + "List"))
	if forbidden := reader.List(ctx, all); forbidden != nil {
		return err // Who may read one namespace only knows no better.
	}
	var there []string
	for _, other := range all.Items {
		if other.Name == key.Name {
			there = append(there, "--namespace="+other.Namespace)
		}
	}
	if len(there) == 0 {
		return fmt.Errorf("%w in namespace %s, nor in any other", err, key.Namespace)
	}
	return fmt.Errorf("%w in namespace %s: add %s", err, key.Namespace, strings.Join(there, ", or "))
}

// askCluster sets o.maas to the manager's, if none is given.
func (o *options) askCluster(ctx context.Context, c command) error {
	if !c.needsMAAS || o.maas.Endpoint != "" || len(o.image.hosts) > 0 {
		return nil
	}
	kubernetes, err := kubernetesClient(*o)
	if err != nil {
		return err
	}
	config, err := managersMAAS(ctx, kubernetes)
	if err != nil {
		if guard.Is[*noMAASError](err) && (c.asksClusters || o.image.cluster != "") {
			return nil // Its clusters have credentials of their own.
		}
		return err
	}
	if len(o.maas.CABundle) > 0 {
		config.CABundle = o.maas.CABundle
	}
	o.maas = config
	return nil
}

// noMAASError means that the management cluster does not tell one MAAS.
type noMAASError struct{ problem string }

func (e *noMAASError) Error() string {
	return e.problem + ": give --maas-endpoint and --maas-api-key-file"
}

// managersMAAS returns the URL and the key of the manager in the management cluster, which its pods mount.
func managersMAAS(ctx context.Context, reader client.Reader) (maas.Config, error) {
	managers := &appsv1.DeploymentList{}
	labels := client.MatchingLabels{"cluster.x-k8s.io/provider": "infrastructure-maas",
		"control-plane": "controller-manager"}
	if err := reader.List(ctx, managers, labels); err != nil {
		return maas.Config{}, fmt.Errorf("looking for the manager, whose MAAS is meant without --maas-endpoint: %w", err)
	}
	if len(managers.Items) != 1 {
		return maas.Config{}, &noMAASError{fmt.Sprintf("the management cluster has %d managers of this provider",
			len(managers.Items))}
	}
	manager := &managers.Items[0]
	config, secret := &corev1.ConfigMap{}, &corev1.Secret{}
	for _, volume := range manager.Spec.Template.Spec.Volumes {
		var err error
		switch {
		case volume.ConfigMap != nil && volume.Name == "config":
			err = reader.Get(ctx, client.ObjectKey{Namespace: manager.Namespace, Name: volume.ConfigMap.Name}, config)
		case volume.Secret != nil && volume.Name == "credentials":
			err = reader.Get(ctx, client.ObjectKey{Namespace: manager.Namespace, Name: volume.Secret.SecretName}, secret)
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return maas.Config{}, fmt.Errorf("reading the MAAS of the manager %s/%s: %w", manager.Namespace, manager.Name, err)
		}
	}
	found := maas.Config{
		Endpoint: strings.TrimSpace(config.Data["maasEndpoint"]), APIKey: strings.TrimSpace(string(secret.Data["apiKey"])),
		CABundle: secret.Data["caBundle"],
	}
	if found.Endpoint == "" || found.APIKey == "" {
		return maas.Config{}, &noMAASError{fmt.Sprintf("the manager %s/%s has no MAAS of its own", manager.Namespace,
			manager.Name)}
	}
	return found, found.Validate()
}
