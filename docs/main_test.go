// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capmaas/cluster-api-provider-maas/test/apiserver"
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

func startAPIServer() (*apiserver.Server, error) {
	ctrl.SetLogger(logr.Discard())
	server, err := apiserver.Start(context.Background(), apiserver.Options{Root: ".."})
	if err == nil {
		endAPIServer = server.Stop
	}
	return server, err
}

// apiServer returns the API server that the tests share. kubeconfig is the file for kubectl.
func apiServer(t *testing.T) (_ client.Client, kubeconfig string) {
	t.Helper()
	s, err := sharedAPIServer()
	if err != nil {
		t.Fatal(err)
	}
	return s.Client, s.Kubeconfig
}
