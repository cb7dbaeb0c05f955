// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// newScheme returns a scheme with the kinds that a test of the provider uses.
func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme,
		clusterv1.AddToScheme, bootstrapv1.AddToScheme, controlplanev1.AddToScheme, ipamv1.AddToScheme,
		infrav1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("making the scheme: %w", err)
		}
	}
	return scheme, nil
}

func newClient(config *rest.Config) (client.Client, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return c, nil
}

// WorkloadClient reaches a workload cluster as its administrator, with the kubeconfig that Cluster API keeps, through
// the API endpoint's DNS name.
func (s *Sandbox) WorkloadClient(ctx context.Context, cluster client.ObjectKey) (client.Client, error) {
	config, err := s.workloadConfig(ctx, cluster)
	if err != nil {
		return nil, err
	}
	return newClient(config)
}

func (s *Sandbox) workloadConfig(ctx context.Context, cluster client.ObjectKey) (*rest.Config, error) {
	kubeconfig, err := s.workloadKubeconfig(ctx, cluster)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig of %s: %w", cluster, err)
	}
	config.Proxy = http.ProxyURL(s.network.ProxyURL())
	return config, nil
}

// ProxyURL is where programs outside of the sandbox reach the machines of the region: their HTTPS_PROXY.
func (s *Sandbox) ProxyURL() string { return s.network.ProxyURL().String() }

// WriteWorkloadKubeconfig writes a kubeconfig of a workload cluster that kubectl can use on this computer, and returns
// its path.
func (s *Sandbox) WriteWorkloadKubeconfig(ctx context.Context, cluster client.ObjectKey) (string, error) {
	kubeconfig, err := s.workloadKubeconfig(ctx, cluster)
	if err != nil {
		return "", err
	}
	config, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return "", fmt.Errorf("reading the kubeconfig of %s: %w", cluster, err)
	}
	for _, target := range config.Clusters {
		target.ProxyURL = s.network.ProxyURL().String()
	}
	data, err := clientcmd.Write(*config)
	if err != nil {
		return "", fmt.Errorf("writing the kubeconfig of %s: %w", cluster, err)
	}
	file := filepath.Join(s.dir, cluster.Namespace+"-"+cluster.Name+".kubeconfig")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return "", fmt.Errorf("writing the kubeconfig of %s: %w", cluster, err)
	}
	return file, nil
}

func (s *Sandbox) workloadKubeconfig(ctx context.Context, cluster client.ObjectKey) ([]byte, error) {
	stored := &corev1.Secret{}
	name := client.ObjectKey{Namespace: cluster.Namespace, Name: secret.Name(cluster.Name, secret.Kubeconfig)}
	if err := s.Client.Get(ctx, name, stored); err != nil {
		return nil, fmt.Errorf("reading the kubeconfig of %s: %w", cluster, err)
	}
	return stored.Data[secret.KubeconfigDataName], nil
}
