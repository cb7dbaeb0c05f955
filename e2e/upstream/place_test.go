// SPDX-License-Identifier: Apache-2.0

package upstream_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/onsi/ginkgo/v2"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/cluster-api/feature"
	"sigs.k8s.io/cluster-api/test/framework"
	"sigs.k8s.io/cluster-api/test/framework/clusterctl"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/directhost"
)

const (
	providerVersion = "v0.1.0"
	startTimeout    = 15 * time.Minute
)

// infrastructure names the provider with its version, so that clusterctl does not look for it in the management cluster.
var infrastructure = "maas:" + providerVersion

// place is a management cluster, with the settings of the specs.
type place struct {
	box       *sandbox.Sandbox // nil: the cluster was there before
	proxy     framework.ClusterProxy
	config    *clusterctl.E2EConfig
	artifacts string
	// clusterctl is the path of clusterctl's configuration.
	clusterctl string
}

// newPlace connects to the management cluster, or starts one.
func newPlace(artifacts string) (*place, error) {
	artifacts, err := filepath.Abs(artifacts)
	if err != nil {
		return nil, err
	}
	p := &place{artifacts: artifacts}
	kubeconfig := os.Getenv(kubeconfigVariable)
	if kubeconfig == "" {
		p.config = &clusterctl.E2EConfig{Variables: sandboxVariables(), Intervals: sandboxIntervals()}
		if err := p.startSandbox(); err != nil {
			return nil, err
		}
		kubeconfig = p.box.KubeconfigPath
	} else {
		variables, err := readVariables(os.Getenv(variablesVariable))
		if err != nil {
			return nil, err
		}
		p.config = &clusterctl.E2EConfig{Variables: variables, Intervals: realIntervals()}
	}
	if err := p.writeRepository(context.Background()); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	scheme := runtime.NewScheme()
	framework.TryAddDefaultSchemes(scheme)
	if err := infrav1.AddToScheme(scheme); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	p.proxy = framework.NewClusterProxy("management", kubeconfig, scheme)
	return p, nil
}

// readVariables reads the variables of a management cluster.
func readVariables(file string) (map[string]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the file in %s: %w", variablesVariable, err)
	}
	variables := map[string]string{}
	if err := yaml.UnmarshalStrict(text, &variables); err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	return variables, nil
}

func (p *place) startSandbox() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	region, err := sandboxRegion()
	if err != nil {
		return err
	}
	// Cluster API's own suite sets it, too.
	if err := feature.MutableGates.Set("MachineTaintPropagation=true"); err != nil {
		return fmt.Errorf("setting Cluster API's feature gates: %w", err)
	}
	version, err := maasVersion()
	if err != nil {
		return err
	}
	p.box, err = sandbox.Start(ctx, sandbox.Options{
		Region: region, MAASVersion: version.String(), TimeScale: 300, LXD: sandbox.LXDOff, PollActive: 500 * time.Millisecond, PollIdle: 3 * time.Second,
		Eager: true, Lease: time.Minute, BeforeKubeadm: awaitSignal,
	})
	if err != nil {
		return fmt.Errorf("starting the sandbox: %w", err)
	}
	if version.AtLeast(4, 0, 0) { // It has no VM hosts.
		if err := p.addLXDHosts(ctx); err != nil {
			return errors.Join(err, p.stop())
		}
	}
	return p.announce(ctx)
}

// addLXDHosts runs an LXD that has a project for each zone, and makes LXDHosts of them.
func (p *place) addLXDHosts(ctx context.Context) error {
	server := directhost.StartAt(ginkgo.GinkgoTB(), netip.MustParsePrefix("10.77.0.180/24"))
	p.box.AddLXD("lxd", server.Daemon)
	for _, zone := range []string{"a", "b", "c"} {
		key := client.ObjectKey{Namespace: sandbox.Namespace, Name: "lxd-" + zone}
		project := server.In(zone) // Short: a path with project and VM has at most 107 characters.
		for _, version := range []string{sandboxVersion, sandboxVersionUpgradeTo} {
			if err := project.AddImage(ctx, sandboxImage+version); err != nil {
				return err
			}
		}
		host, secret := project.Objects(key, "zone-"+zone)
		// The machines are simulated, and do nothing.
		host.Spec.OverCommit = infrav1.LXDOverCommit{CPUPercent: 1000, MemoryPercent: 1000}
		host.Spec.ResourcePool = sandboxPool
		host.Spec.AllowedNamespaces = []string{"*"}
		for _, object := range []client.Object{secret, host} {
			if err := p.box.Client.Create(ctx, object); err != nil {
				return fmt.Errorf("making the LXDHost %s: %w", key, err)
			}
		}
		err := eventually.Wait(ctx, "LXDHost "+key.String()+" to be ready", func() (bool, string, error) {
			err := p.box.Client.Get(ctx, key, host)
			return conditions.IsTrue(host, infrav1.ReadyCondition), sandbox.Conditions(host.Status.Conditions), err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// writeRepository writes what `clusterctl generate cluster` reads: the release, the flavors of the specs, and the
// variables.
func (p *place) writeRepository(ctx context.Context) error {
	dir := filepath.Join(p.artifacts, "repository")
	write := exec.CommandContext(ctx, "go", "run", "./hack/manifests", "--out", dir, "--version", providerVersion)
	write.Dir = repositoryRoot
	if out, err := write.CombinedOutput(); err != nil {
		return fmt.Errorf("hack/manifests: %w: %s", err, out)
	}
	if err := writeFlavors(filepath.Join(dir, "infrastructure-maas", providerVersion)); err != nil {
		return err
	}
	p.clusterctl = filepath.Join(dir, "clusterctl.yaml")
	text, err := os.ReadFile(p.clusterctl)
	if err != nil {
		return err
	}
	settings := map[string]any{}
	if err := yaml.Unmarshal(text, &settings); err != nil {
		return fmt.Errorf("reading %s: %w", p.clusterctl, err)
	}
	for name, value := range p.config.Variables {
		settings[name] = value
	}
	if text, err = yaml.Marshal(settings); err != nil {
		return fmt.Errorf("writing %s: %w", p.clusterctl, err)
	}
	return os.WriteFile(p.clusterctl, text, 0o600)
}

// stop ends the sandbox.
func (p *place) stop() error {
	if p.box == nil {
		return nil
	}
	return errors.Join(keepLogs(p.box.LogDir, p.artifacts), p.box.Stop())
}

// with returns the variables that a spec needs in addition.
func (p *place) with(more map[string]string) *clusterctl.E2EConfig {
	config := p.config.DeepCopy()
	maps.Copy(config.Variables, more)
	return config
}
