// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// errNoCluster means that nothing says where the management cluster is.
var errNoCluster = errors.New("name the kubeconfig of the management cluster, and its --context if it has no current " +
	"one; ~/.kube/config has none")

// completeCluster sets o.cluster, o.namespace if it is not given, and that of o.subject.
func (o *options) completeCluster(s surroundings) {
	cluster, namespace, err := o.managementCluster(s)
	if err != nil {
		o.wrongCluster(err)
		return
	}
	o.cluster, o.namespace = cluster, cmp.Or(o.namespace, namespace)
	if o.subject.Name == "" || o.subject.Namespace != "" {
		return
	}
	if o.subject.Namespace = o.namespace; o.namespace == "" {
		o.wrong("--namespace is missing: the namespace of %s", o.subject.Name)
	}
}

func (o *options) wrongCluster(err error) { o.wrong("--kubeconfig (or KUBECONFIG): %v", err) }

// managementCluster returns a client for the management cluster, and the namespace there: from the flag, from
// KUBECONFIG, from where kubectl has it, or of a pod.
func (o *options) managementCluster(s surroundings) (client.Client, string, error) {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: o.kubeconfig,
		Precedence: filepath.SplitList(s.getenv("KUBECONFIG"))}
	named := cmp.Or(o.kubeconfig, strings.Join(rules.Precedence, ", "))
	if named == "" && s.home != "" {
		rules.Precedence = []string{filepath.Join(s.home, clientcmd.RecommendedHomeDir, clientcmd.RecommendedFileName)}
	}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: o.context})
	config, err := loader.ClientConfig()
	raw, unreadable := loader.RawConfig()
	isEmpty := clientcmd.IsEmptyConfig(err) || err != nil && unreadable == nil && len(raw.Clusters) == 0
	switch {
	case isEmpty && named == "":
		return nil, "", errNoCluster
	case isEmpty:
		return nil, "", fmt.Errorf("%s: no such file, or it has no cluster, or no current context (see --context)", named)
	case err != nil:
		return nil, "", err
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, "", err
	}
	scheme := runtime.NewScheme()
	add := runtime.NewSchemeBuilder(clientgoscheme.AddToScheme, clusterv1.AddToScheme, infrav1.AddToScheme)
	if err := add.AddToScheme(scheme); err != nil {
		return nil, "", err
	}
	cluster, err := client.New(config, client.Options{Scheme: scheme})
	return cluster, namespace, err
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
	there := list.Where(all.Items, func(other metav1.PartialObjectMetadata) bool { return other.Name == key.Name })
	if len(there) == 0 {
		return fmt.Errorf("%w in namespace %s, nor in any other", err, key.Namespace)
	}
	flags := list.Each(there, func(other metav1.PartialObjectMetadata) string { return "--namespace=" + other.Namespace })
	return fmt.Errorf("%w in namespace %s: add %s", err, key.Namespace, strings.Join(flags, ", or "))
}

// connect sets o.region to the MAAS that is given, or else to the manager's.
func (o *options) connect(ctx context.Context, c command) (err error) {
	if !c.needsMAAS || len(o.image.hosts) > 0 {
		return nil
	}
	if o.maas.Endpoint == "" {
		config, from, err := managersMAAS(ctx, o.cluster)
		if guard.Is[*noMAASError](err) && (c.asksClusters || o.image.cluster != "") {
			return nil // Its clusters have credentials of their own.
		}
		if err != nil {
			return err
		}
		if len(o.maas.CABundle) > 0 {
			config.CABundle = o.maas.CABundle
		}
		o.maas, o.maasFrom = config, from
	}
	o.region, err = maas.NewClient(o.maas)
	return err
}

// noMAASError means that the management cluster does not name exactly one MAAS.
type noMAASError struct{ problem string }

const giveMAAS = "give --maas-endpoint and --maas-api-key-file"

func (e *noMAASError) Error() string { return e.problem + ": " + giveMAAS }

// managerLabels are those of the manager's Deployment.
var managerLabels = client.MatchingLabels{"cluster.x-k8s.io/provider": "infrastructure-maas",
	"control-plane": "controller-manager"}

// noManager says that no manager runs that would do something for objects; "" if one does, or that may not be read.
func noManager(ctx context.Context, reader client.Reader) string {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	managers := &appsv1.DeploymentList{}
	if err := reader.List(ctx, managers, managerLabels); err != nil {
		return ""
	}
	names := []string{}
	for i := range managers.Items {
		m := &managers.Items[i]
		if m.Status.AvailableReplicas > 0 {
			return ""
		}
		names = append(names, m.Namespace+"/"+m.Name)
	}
	if len(names) == 0 {
		return "no manager of this provider runs: it has no Deployment in this management cluster"
	}
	return "no manager of this provider runs: no replica of Deployment " + strings.Join(names, ", ") + " is available"
}

// managersMAAS returns the URL and the key of the manager in the management cluster, which its pods mount, and whose
// they are.
func managersMAAS(ctx context.Context, reader client.Reader) (_ maas.Config, from string, _ error) {
	managers := &appsv1.DeploymentList{}
	if err := reader.List(ctx, managers, managerLabels); err != nil {
		return maas.Config{}, "", fmt.Errorf("looking for the manager, whose MAAS is meant without --maas-endpoint: %w", err)
	}
	if len(managers.Items) != 1 {
		return maas.Config{}, "", &noMAASError{fmt.Sprintf("the management cluster has %d managers of this provider",
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
			return maas.Config{}, "", fmt.Errorf("reading the MAAS of the manager %s/%s: %w", manager.Namespace,
				manager.Name, err)
		}
	}
	found := maas.Config{
		Endpoint: strings.TrimSpace(config.Data["maasEndpoint"]), APIKey: strings.TrimSpace(string(secret.Data["apiKey"])),
		CABundle: secret.Data["caBundle"],
	}
	if found.Endpoint == "" || found.APIKey == "" {
		return maas.Config{}, "", &noMAASError{fmt.Sprintf("the manager %s/%s has no MAAS of its own", manager.Namespace,
			manager.Name)}
	}
	from = fmt.Sprintf("those of the manager, %s/%s (ConfigMap %s, Secret %s)", manager.Namespace, manager.Name,
		config.Name, secret.Name)
	return found, from, nil
}
