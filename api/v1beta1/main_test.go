// SPDX-License-Identifier: Apache-2.0

package v1beta1_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/controlplane"
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
	dir, err := os.MkdirTemp("", "capmaas-api-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// Not envtest, whose processes stay when a test panics.
	server, err := controlplane.Start(context.Background(), controlplane.Options{Dir: filepath.Join(dir, "data"), LogDir: dir})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	if _, err := envtest.InstallCRDs(server.RESTConfig(), envtest.CRDInstallOptions{Paths: []string{crds}, ErrorIfPathMissing: true}); err != nil {
		return 0, fmt.Errorf("installing our CRDs: %w", err)
	}

	if err := infrav1.AddToScheme(scheme.Scheme); err != nil {
		return 0, err
	}
	if api, err = client.New(server.RESTConfig(), client.Options{Scheme: scheme.Scheme}); err != nil {
		return 0, err
	}
	return m.Run(), nil
}
