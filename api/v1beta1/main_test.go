// SPDX-License-Identifier: Apache-2.0

package v1beta1_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// crds is where the generated CRDs are; the chart installs the same files.
var crds = filepath.Join("..", "..", "charts", "capmaas", "files", "crds")

// api is a kube-apiserver with our CRDs.
var api client.Client

func TestMain(m *testing.M) {
	code, err := runWithAPIServer(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runWithAPIServer(m *testing.M) (code int, err error) {
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	if assets == "" {
		return 0, errors.New("KUBEBUILDER_ASSETS is not set: it is the directory of kube-apiserver and etcd (`make test` builds them and sets it)")
	}
	env := &envtest.Environment{
		BinaryAssetsDirectory: assets,
		CRDDirectoryPaths:     []string{crds},
		ErrorIfCRDPathMissing: true,
	}
	// Without it, kube-apiserver looks for a default route, which a sandboxed host does not have.
	env.ControlPlane.GetAPIServer().Configure().Set("advertise-address", "127.0.0.1")
	config, err := env.Start()
	if err != nil {
		return 0, fmt.Errorf("starting kube-apiserver with our CRDs: %w", errors.Join(err, env.Stop()))
	}
	defer func() { err = errors.Join(err, env.Stop()) }()

	if err := infrav1.AddToScheme(scheme.Scheme); err != nil {
		return 0, err
	}
	if api, err = client.New(config, client.Options{Scheme: scheme.Scheme}); err != nil {
		return 0, err
	}
	return m.Run(), nil
}
