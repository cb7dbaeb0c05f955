// SPDX-License-Identifier: Apache-2.0

package v1beta1_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capmaas/cluster-api-provider-maas/test/apiserver"
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
	server, err := apiserver.Start(context.Background(), apiserver.Options{Root: filepath.Join("..", "..")})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	api = server.Client
	return m.Run(), nil
}
