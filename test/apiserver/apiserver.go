// SPDX-License-Identifier: Apache-2.0

// Package apiserver runs a Kubernetes API server that serves the project's kinds, for all tests of a package.
package apiserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/capmaas/cluster-api-provider-maas/test/allkinds"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/controlplane"
)

// Options are what a server serves, besides our kinds.
type Options struct {
	// Root is the repository's directory, as the package's tests see it.
	Root string
	// ClusterAPI are directories of Cluster API's module below which there are CRDs in config/crd/bases.
	ClusterAPI []string
	// Deprecated serves deprecated versions, too. The API server holds and decodes all objects once more for each.
	Deprecated bool
	// Controllers has those of kube-controller-manager run: they end namespaces, and collect garbage.
	Controllers bool
}

// Server is a running API server.
type Server struct {
	*controlplane.ControlPlane
	// Client is the administrator's. It knows the kinds of allkinds.
	Client client.Client
	// Kubeconfig is the administrator's, a file.
	Kubeconfig string

	dir string
}

// Start runs a server, and returns when it serves all kinds. Its processes end with this one, also if that panics.
func Start(ctx context.Context, options Options) (_ *Server, err error) {
	s := &Server{}
	if s.dir, err = os.MkdirTemp("", "capmaas-apiserver-"); err != nil {
		return nil, fmt.Errorf("making a directory: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop())
		}
	}()
	s.ControlPlane, err = controlplane.Start(ctx, controlplane.Options{
		Dir: filepath.Join(s.dir, "data"), LogDir: s.dir, NoControllers: !options.Controllers,
	})
	if err != nil {
		return nil, err
	}
	crds, err := kinds(ctx, options)
	if err != nil {
		return nil, err
	}
	if _, err := envtest.InstallCRDs(s.RESTConfig(), envtest.CRDInstallOptions{CRDs: crds, MaxTime: eventually.Limit}); err != nil {
		return nil, fmt.Errorf("installing CRDs: %w", err)
	}
	s.Kubeconfig = filepath.Join(s.dir, "kubeconfig")
	if err := s.WriteKubeconfig(s.Kubeconfig); err != nil {
		return nil, err
	}
	s.Client, err = client.New(s.RESTConfig(), client.Options{Scheme: allkinds.Scheme()})
	return s, err
}

// Stop ends the server, and removes what it stored.
func (s *Server) Stop() error {
	var err error
	if s.ControlPlane != nil {
		err = s.ControlPlane.Stop()
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// kinds reads CRDs.
func kinds(ctx context.Context, options Options) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	files := envtest.CRDInstallOptions{
		Paths: []string{filepath.Join(options.Root, "charts", "capmaas", "files", "crds")}, ErrorIfPathMissing: true,
	}
	if len(options.ClusterAPI) > 0 {
		module, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api").Output()
		if err != nil {
			return nil, fmt.Errorf("finding Cluster API's CRDs: %w", err)
		}
		for _, dir := range options.ClusterAPI {
			bases := filepath.Join(strings.TrimSpace(string(module)), filepath.FromSlash(dir), "config", "crd", "bases")
			files.Paths = append(files.Paths, bases)
		}
	}
	if err := envtest.ReadCRDFiles(&files); err != nil {
		return nil, fmt.Errorf("reading CRDs: %w", err)
	}
	for _, crd := range files.CRDs {
		if !options.Deprecated {
			crd.Spec.Versions = slices.DeleteFunc(crd.Spec.Versions, isDeprecated)
		}
	}
	return files.CRDs, nil
}

func isDeprecated(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
	return v.Deprecated && !v.Storage
}
