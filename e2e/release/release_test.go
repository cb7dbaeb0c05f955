// SPDX-License-Identifier: Apache-2.0

// Package release_test makes releases, publishes them on this computer alone, in a registry and as GitHub serves them, and
// installs, upgrades and verifies from there.
package release_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

const (
	before, version = "v0.1.0", "v0.1.1"
	managerName     = "capmaas-controller-manager"
)

func TestRelease(t *testing.T) {
	if os.Getenv("CAPMAAS_RELEASE") == "" {
		t.Skip("make release-dry-run runs it: it builds for all platforms, which takes minutes, and tools of its own")
	}
	p := newPublisher(t)
	p.release(t, before, "amd64", "linux/amd64")
	p.release(t, version, os.Getenv("RELEASE_ARCHS"), os.Getenv("RELEASE_PLATFORMS"))
	t.Run("Signatures", p.checkSignatures)
	t.Run("Plugin", p.checkPlugin)

	box := p.start(t)
	t.Run("Clusterctl", func(t *testing.T) { p.installByClusterctl(t, box) })
	t.Run("Helm", func(t *testing.T) { p.installByHelm(t, box) })
}

// checkSignatures verifies a release as its document says, and that what was changed is not verified.
func (p *publisher) checkSignatures(t *testing.T) {
	dir := p.assets(version)
	blob := []string{"verify-blob", "--key", p.publicKey, "--insecure-ignore-tlog", "--bundle", "SHA256SUMS.sigstore.json", "SHA256SUMS"}
	p.must(t, dir, "cosign", blob...)
	p.must(t, dir, "sha256sum", "--check", "--strict", "SHA256SUMS")
	for _, name := range []string{"charts/capmaas:" + strings.TrimPrefix(version, "v"), "capmaas-manager:" + version, "capmaas-lxd-initializer:" + version} {
		p.must(t, dir, "cosign", "verify", "--key", p.publicKey, "--insecure-ignore-tlog", p.registry+"/"+name)
	}
	other := t.TempDir()
	p.must(t, other, "cosign", "generate-key-pair")
	if _, err := p.run(t, dir, "cosign", "verify", "--key", filepath.Join(other, "cosign.pub"), "--insecure-ignore-tlog", p.registry+"/charts/capmaas:"+strings.TrimPrefix(version, "v")); err == nil {
		t.Error("the chart is verified with another key")
	}
	changed := t.TempDir()
	if err := os.CopyFS(changed, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"metadata.yaml", "SHA256SUMS"} {
		if err := os.WriteFile(filepath.Join(changed, name), []byte("changed\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.run(t, changed, "cosign", blob...); err == nil {
		t.Error("changed checksums are verified")
	}
	p.must(t, changed, "cp", filepath.Join(dir, "SHA256SUMS"), ".")
	if _, err := p.run(t, changed, "sha256sum", "--check", "--strict", "SHA256SUMS"); err == nil {
		t.Error("a changed file has its checksum")
	}
}

// checkPlugin installs capmaasctl with krew, from the archive, as a plugin of kubectl.
func (p *publisher) checkPlugin(t *testing.T) {
	dir := p.assets(version)
	p.must(t, dir, "krew", "install", "--manifest=capmaas.yaml", "--archive=capmaasctl_"+strings.TrimPrefix(version, "v")+"_linux_amd64.tar.gz")
	if out := p.must(t, dir, filepath.Join(p.home, ".krew", "bin", "kubectl-capmaas"), "version"); !strings.Contains(out, version) {
		t.Errorf("the plugin is %q, want %s", out, version)
	}
}

// start starts a sandbox in which the manager's pods run the program of the published image.
func (p *publisher) start(t *testing.T) *sandbox.Sandbox {
	t.Helper()
	t.Setenv("CAPMAAS_BUILT", "1")
	t.Setenv("CAPMAAS_BIN", p.programs(t))
	box, err := sandbox.Start(t.Context(), sandbox.Options{Parts: sandbox.MAAS, LXD: sandbox.LXDOff, TimeScale: 300, PollIdle: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := box.Stop(); err != nil {
			t.Error(err)
		}
	})
	if _, err := box.RunPods(t.Context(), sandbox.Namespace); err != nil { // Stop ends them.
		t.Fatal(err)
	}
	p.env = append(p.env, "KUBECONFIG="+box.KubeconfigPath, "MAAS_ENDPOINT="+box.MAASURL, "MAAS_API_KEY="+box.MAASAPIKey)
	return box
}

// installByClusterctl installs the provider from what GitHub would serve, upgrades it, and removes it.
func (p *publisher) installByClusterctl(t *testing.T, box *sandbox.Sandbox) {
	p.write(t, filepath.Join("cluster-api", "clusterctl.yaml"), "providers:\n- {name: maas, type: InfrastructureProvider, url: "+documentedURL+"}\n")
	p.apply(t, certManagerKinds)
	p.must(t, "", "clusterctl", "init", "--infrastructure", "maas:"+before)
	p.checkManager(t, box, before)
	plan := p.must(t, "", "clusterctl", "upgrade", "plan")
	if !strings.Contains(plan, version) {
		t.Errorf("the plan does not tell of %s:\n%s", version, plan)
	}
	p.must(t, "", "clusterctl", "upgrade", "apply", "--infrastructure", "maas:"+version)
	p.checkManager(t, box, version)
	p.must(t, "", "clusterctl", "delete", "--infrastructure", "maas", "--include-crd")
}

// installByHelm installs the chart from the registry, upgrades it, and has it test itself.
func (p *publisher) installByHelm(t *testing.T, box *sandbox.Sandbox) {
	values, err := yaml.Marshal(box.Values())
	if err != nil {
		t.Fatal(err)
	}
	file := p.write(t, "values.yaml", string(values))
	p.helm(t, "install", before, file)
	p.checkManager(t, box, before)
	p.helm(t, "upgrade", version, file)
	p.checkManager(t, box, version)
	p.must(t, "", "helm", "test", "capmaas", "--namespace", sandbox.Namespace, "--timeout", "3m")
}

func (p *publisher) helm(t *testing.T, verb, v, values string) {
	t.Helper()
	p.must(t, "", "helm", verb, "capmaas", "oci://"+p.registry+"/charts/capmaas", "--version", strings.TrimPrefix(v, "v"), "--plain-http",
		"--namespace", sandbox.Namespace, "--create-namespace", "--values", values, "--wait", "--timeout", "3m")
}

// checkManager waits until the manager of a version runs, from the image that was pushed for it.
func (p *publisher) checkManager(t *testing.T, box *sandbox.Sandbox, v string) {
	t.Helper()
	p.must(t, "", "kubectl", "--namespace", sandbox.Namespace, "rollout", "status", "deployment/"+managerName, "--timeout=3m")
	manager := &appsv1.Deployment{}
	if err := box.Client.Get(t.Context(), client.ObjectKey{Namespace: sandbox.Namespace, Name: managerName}, manager); err != nil {
		t.Fatal(err)
	}
	if got, want := manager.Spec.Template.Spec.Containers[0].Image, p.registry+"/capmaas-manager@"+p.digest(t, "capmaas-manager", v); got != want {
		t.Errorf("the manager's image is %s, want %s", got, want)
	}
}
