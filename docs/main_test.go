// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/capmaas/cluster-api-provider-maas/test/allkinds"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/controlplane"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := endAPIServer(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

var (
	// sharedAPIServer starts a kube-apiserver with our CRDs, for the first test that needs it.
	sharedAPIServer = sync.OnceValues(startAPIServer)
	// endAPIServer ends it.
	endAPIServer = func() error { return nil }
)

// served is an API server.
type served struct {
	client.Client
	kubeconfig string // a file for kubectl
}

func startAPIServer() (s served, err error) {
	ctrl.SetLogger(logr.Discard())
	dir, err := os.MkdirTemp("", "docs-")
	if err != nil {
		return s, err
	}
	endAPIServer = func() error { return os.RemoveAll(dir) }
	server, err := controlplane.Start(context.Background(), controlplane.Options{Dir: filepath.Join(dir, "data"), LogDir: dir})
	if err != nil {
		return s, err
	}
	endAPIServer = func() error { return errors.Join(server.Stop(), os.RemoveAll(dir)) }
	crds := filepath.Join("..", "charts", "capmaas", "files", "crds")
	if _, err := envtest.InstallCRDs(server.RESTConfig(), envtest.CRDInstallOptions{Paths: []string{crds}, ErrorIfPathMissing: true}); err != nil {
		return s, err
	}
	scheme := allkinds.Scheme()
	if s.Client, err = client.New(server.RESTConfig(), client.Options{Scheme: scheme}); err != nil {
		return s, err
	}
	s.kubeconfig = filepath.Join(dir, "kubeconfig")
	return s, server.WriteKubeconfig(s.kubeconfig)
}

// apiServer returns the API server that the tests share. kubeconfig is the file for kubectl.
func apiServer(t *testing.T) (_ client.Client, kubeconfig string) {
	t.Helper()
	s, err := sharedAPIServer()
	if err != nil {
		t.Fatal(err)
	}
	return s.Client, s.kubeconfig
}
