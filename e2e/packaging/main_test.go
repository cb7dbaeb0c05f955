// SPDX-License-Identifier: Apache-2.0

// Package packaging tests what users install: the Helm chart, the clusterctl repository, the ClusterClass and the
// cluster templates, on a real kube-apiserver with Cluster API's own controllers and webhooks.
package packaging

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/capi"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/controlplane"
)

// sources is the directory of this project's sources.
var sources = filepath.Join("..", "..")

// management is the management cluster that all tests share: Cluster API, and the chart as release capmaas.
// There is no kubelet, so the manager does not run.
var management struct {
	client.Client
	// strict is a client that gets errors about fields that don't exist, as kubectl is.
	strict client.Client
	// kubeconfig is the path of the administrator's.
	kubeconfig string
	// dir is removed after the tests.
	dir string
}

func TestMain(m *testing.M) {
	code, err := runWithManagementCluster(context.Background(), m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runWithManagementCluster(ctx context.Context, m *testing.M) (code int, err error) {
	ctrl.SetLogger(logr.Discard())
	dir, err := os.MkdirTemp("", "packaging-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	management.dir = dir

	logs, webhooks := filepath.Join(dir, "logs"), filepath.Join(dir, "webhooks")
	if err := errors.Join(os.Mkdir(logs, 0o700), os.Mkdir(webhooks, 0o700)); err != nil {
		return 0, err
	}
	plane, err := controlplane.Start(ctx, controlplane.Options{Dir: filepath.Join(dir, "k8s"), LogDir: logs})
	if err != nil {
		return 0, fmt.Errorf("starting the control plane (`make test` builds it and sets KUBEBUILDER_ASSETS): %w", err)
	}
	defer func() { err = errors.Join(err, plane.Stop()) }()
	management.kubeconfig = filepath.Join(dir, "kubeconfig")
	if err := plane.WriteKubeconfig(management.kubeconfig); err != nil {
		return 0, err
	}

	providers, err := capi.Start(ctx, capi.Options{Config: plane.RESTConfig(), ModuleDir: sources, Dir: webhooks, Logger: logr.Discard(), TopologyOnly: true})
	if err != nil {
		return 0, fmt.Errorf("starting Cluster API: %w", err)
	}
	defer func() { err = errors.Join(err, providers.Err(), providers.Stop()) }()

	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, clusterv1.AddToScheme, bootstrapv1.AddToScheme,
		controlplanev1.AddToScheme, infrav1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return 0, err
		}
	}
	config := plane.RESTConfig()
	// Whoever polls is not slowed down.
	config.QPS = -1
	if management.Client, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return 0, err
	}
	management.strict = client.WithFieldValidation(management.Client, "Strict")
	if err := createNamespace(ctx, releaseNamespace, restricted); err != nil {
		return 0, err
	}
	if err := installChart(ctx, releaseName, releaseNamespace, nil); err != nil {
		return 0, fmt.Errorf("installing the chart: %w", err)
	}
	return m.Run(), nil
}
