// SPDX-License-Identifier: Apache-2.0

// Package release_test makes releases, publishes them on this computer alone, in a registry and as GitHub serves them, and
// installs, upgrades and verifies from there.
package release_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

const (
	before, version, fips = "v0.1.0", "v0.1.1", "v0.1.1-fips"
	fipsModule            = "v1.0.0"
	managerName           = "capmaas-controller-manager"
	// here is this computer's platform.
	here = runtime.GOOS + "/" + runtime.GOARCH
)

// certManagerKind makes clusterctl find a cert-manager: it only checks that the API server accepts a certificate.
const certManagerKind = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[2]ss.cert-manager.io}
spec:
  group: cert-manager.io
  scope: Namespaced
  names: {kind: %[1]s, plural: %[2]ss, singular: %[2]s}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
---
`

func TestRelease(t *testing.T) {
	if os.Getenv("CAPMAAS_RELEASE") == "" {
		t.Skip("make release-dry-run runs it: it builds for all platforms, which takes minutes, and tools of its own")
	}
	p := newPublisher(t)
	p.release(t, before, "RELEASE_ARCHS="+runtime.GOARCH, "RELEASE_PLATFORMS="+here)
	p.release(t, version, "RELEASE_ARCHS="+os.Getenv("RELEASE_ARCHS"), "RELEASE_PLATFORMS="+os.Getenv("RELEASE_PLATFORMS"))
	p.release(t, fips, "RELEASE_ARCHS="+runtime.GOARCH, "RELEASE_PLATFORMS="+here, "GOFIPS140="+fipsModule)
	t.Run("Assets", p.checkAssets)
	t.Run("Programs", p.checkPrograms)
	t.Run("Signatures", p.checkSignatures)
	t.Run("Plugin", p.checkPlugin)

	t.Run("FIPS", p.checkFIPS)

	t.Run("Clusterctl", p.installByClusterctl)
	t.Run("Operator", p.installByOperator)
	t.Run("Helm", p.installByHelm)
}

// checkSignatures verifies a release as its document says, and that what was changed is not verified.
func (p *publisher) checkSignatures(t *testing.T) {
	dir := p.assets(version)
	key := []string{"--key", p.publicKey, "--insecure-ignore-tlog"} // what a release with a key is verified by
	blob := append(append([]string{"verify-blob"}, key...), "--bundle", "SHA256SUMS.sigstore.json", "SHA256SUMS")
	chart := "charts/capmaas:" + strings.TrimPrefix(version, "v")
	p.must(t, dir, "cosign", blob...)
	p.must(t, dir, "sha256sum", "--check", "--strict", "SHA256SUMS")
	for _, name := range []string{chart, "capmaas-manager:" + version, "capmaas-lxd-initializer:" + version} {
		p.must(t, dir, "cosign", append(append([]string{"verify"}, key...), p.registry+"/"+name)...)
	}
	other := t.TempDir()
	p.must(t, other, "cosign", "generate-key-pair")
	if _, err := p.run(t, dir, "cosign", "verify", "--key", filepath.Join(other, "cosign.pub"), "--insecure-ignore-tlog",
		p.registry+"/"+chart); err == nil {
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
	p.must(t, dir, "krew", "install", "--manifest=capmaas.yaml", "--archive="+p.archive(version, here))
	if out := p.must(t, dir, filepath.Join(p.home, ".krew", "bin", "kubectl-capmaas"), "version"); !strings.Contains(out, version) {
		t.Errorf("the plugin is %q, want %s", out, version)
	}
}

// start starts a sandbox in which the manager's pods run the programs of published images: that of the version in use.
func (p *publisher) start(t *testing.T) *sandbox.Sandbox {
	t.Helper()
	launcher := fmt.Sprintf("#!/bin/sh\nexec '%s/current' \"$@\"\n", p.managers)
	if err := os.WriteFile(filepath.Join(p.managers, "manager"), []byte(launcher), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CAPMAAS_BUILT", "1")
	t.Setenv("CAPMAAS_BIN", p.managers)
	box, err := sandbox.Start(t.Context(), sandbox.Options{
		Parts: sandbox.MAAS, LXD: sandbox.LXDOff, TimeScale: 300, PollIdle: 2 * time.Second,
	})
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

// use has pods that are started from now on run the manager in the published image of a version.
func (p *publisher) use(t *testing.T, v string) {
	t.Helper()
	program := filepath.Join(p.managers, v)
	p.install(t, p.imageProgram(t, "manager", v, runtime.GOARCH), program)
	if out := p.must(t, "", program, "--version"); strings.TrimSpace(out) != v {
		t.Errorf("the manager in the image is %q, want %s", out, v)
	}
	current := filepath.Join(p.managers, "current")
	if err := os.Remove(current); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	if err := os.Symlink(v, current); err != nil {
		t.Fatal(err)
	}
}

// installByClusterctl installs the provider from what GitHub would serve, upgrades it, and removes it.
func (p *publisher) installByClusterctl(t *testing.T) {
	box := p.start(t)
	p.write(t, filepath.Join("cluster-api", "clusterctl.yaml"),
		"providers:\n- {name: maas, type: InfrastructureProvider, url: "+documentedURL+"}\n")
	p.apply(t, fmt.Sprintf(certManagerKind, "Issuer", "issuer")+fmt.Sprintf(certManagerKind, "Certificate", "certificate"))
	p.use(t, before)
	p.must(t, "", "clusterctl", "init", "--infrastructure", "maas:"+before)
	p.checkManager(t, box, before)
	plan := p.must(t, "", "clusterctl", "upgrade", "plan")
	if !strings.Contains(plan, version) {
		t.Errorf("the plan does not tell of %s:\n%s", version, plan)
	}
	p.use(t, version)
	p.must(t, "", "clusterctl", "upgrade", "apply", "--infrastructure", "maas:"+version)
	p.checkManager(t, box, version)
	p.must(t, "", "clusterctl", "delete", "--infrastructure", "maas")
}

// installByHelm installs the chart from the registry, and upgrades it, also to the variant for FIPS 140-3.
func (p *publisher) installByHelm(t *testing.T) {
	box := p.start(t)
	p.helm(t, box, "install", before)
	p.helm(t, box, "upgrade", version)
	p.helm(t, box, "upgrade", fips)
}

// helm installs or upgrades the chart, and has it test itself.
func (p *publisher) helm(t *testing.T, box *sandbox.Sandbox, verb, v string) {
	t.Helper()
	values, err := yaml.Marshal(box.Values())
	if err != nil {
		t.Fatal(err)
	}
	p.use(t, v)
	p.must(t, "", "helm", verb, "capmaas", "oci://"+p.registry+"/charts/capmaas", "--version", strings.TrimPrefix(v, "v"),
		"--plain-http", "--namespace", sandbox.Namespace, "--create-namespace", "--wait", "--timeout", "3m",
		"--values", p.write(t, "values.yaml", string(values)))
	p.checkManager(t, box, v)
	p.must(t, "", "helm", "test", "capmaas", "--namespace", sandbox.Namespace, "--timeout", "3m")
}

// checkManager waits until the manager of a version runs, from the image that was pushed for it.
func (p *publisher) checkManager(t *testing.T, box *sandbox.Sandbox, v string) {
	t.Helper()
	p.must(t, "", "kubectl", "--namespace", sandbox.Namespace, "rollout", "status", "deployment/"+managerName, "--timeout=3m")
	manager := &appsv1.Deployment{}
	if err := box.Client.Get(t.Context(), client.ObjectKey{Namespace: sandbox.Namespace, Name: managerName}, manager); err != nil {
		t.Fatal(err)
	}
	want := p.registry + "/capmaas-manager@" + p.digest(t, "capmaas-manager", v)
	if got := manager.Spec.Template.Spec.Containers[0].Image; got != want {
		t.Errorf("the manager's image is %s, want %s", got, want)
	}
}
