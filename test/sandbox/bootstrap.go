// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/capi"
)

// BootstrapProvider is a provider of others, most of them of bootstrap and control planes. `make tools-NAME` builds it into bin/.
type BootstrapProvider struct {
	// Name is also its directory's in hack/tools/providers, whose go.mod pins it.
	Name      string
	externals []capi.External
}

// resync makes a provider look at its objects again and again. Otherwise it does so after half a minute, or after a
// backoff of minutes where a slow computer made it fail often.
const resync = "--sync-period=2s"

// RKE2 is Rancher's provider of RKE2.
var RKE2 = BootstrapProvider{Name: "rke2", externals: []capi.External{
	{
		Name: "rke2-bootstrap", Module: "github.com/rancher/cluster-api-provider-rke2", Dir: "bootstrap",
		CertificateFlag: "--webhook-cert-dir", Args: []string{resync},
	},
	{
		Name: "rke2-control-plane", Module: "github.com/rancher/cluster-api-provider-rke2", Dir: "controlplane",
		CertificateFlag: "--webhook-cert-dir", Args: []string{resync},
	},
}}

// K3s is the k3s project's provider of k3s.
var K3s = BootstrapProvider{Name: "k3s", externals: []capi.External{
	{Name: "k3s-bootstrap", Module: "github.com/k3s-io/cluster-api-k3s", Dir: "bootstrap", Args: []string{resync}},
	{Name: "k3s-control-plane", Module: "github.com/k3s-io/cluster-api-k3s", Dir: "controlplane", Args: []string{resync}},
}}

// devAddress is where DevClusters in memory are reached.
const devAddress = "10.99.0.1"

// Dev is Cluster API's provider for its own tests: clusters and machines that are in its memory.
var Dev = BootstrapProvider{Name: "dev", externals: []capi.External{{
	Name: "dev", Module: "sigs.k8s.io/cluster-api/test", Dir: filepath.Join("infrastructure", "docker"),
	CertificateFlag: "--webhook-cert-dir", Args: []string{resync}, Env: []string{"POD_IP=" + devAddress}, Address: devAddress,
}}}

// ErrNotBuilt is returned for a provider whose programs are not in CAPMAAS_BIN.
var ErrNotBuilt = errors.New("it is not built")

func programs() string { return os.Getenv("CAPMAAS_BIN") }

// Built returns why the provider's programs can't be run, or nil.
func (p BootstrapProvider) Built() error {
	for _, external := range p.externals {
		if _, err := os.Stat(filepath.Join(programs(), external.Name)); err != nil {
			return fmt.Errorf("the provider %s: %w (make tools-%s): %w", p.Name, ErrNotBuilt, p.Name, err)
		}
	}
	return nil
}

// AddBootstrapProvider runs the controllers of a provider, and returns when they are ready. Stop ends them. It takes
// root.
func (s *Sandbox) AddBootstrapProvider(ctx context.Context, provider BootstrapProvider) error {
	s.options.Progress("Starting the bootstrap provider " + provider.Name)
	started, err := capi.StartExternal(ctx, capi.ExternalOptions{
		Config: s.RESTConfig, Kubeconfig: s.KubeconfigPath, Proxy: s.network.ProxyURL().Host, Programs: programs(),
		ModuleDir: filepath.Join(s.root, "hack", "tools", "providers", provider.Name), Env: s.env,
		Dir: filepath.Join(s.dir, "webhooks"), LogDir: s.LogDir, Route: s.network.Route,
	}, provider.externals)
	if err != nil {
		return fmt.Errorf("the provider %s: %w", provider.Name, err)
	}
	s.externals = append(s.externals, started)
	return nil
}
