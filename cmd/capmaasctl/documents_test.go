// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/document"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/directhost"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/lxdtest"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// The commands of documents that ask MAAS, LXD or an LXDHost are run here as a reader types them.

// reads opens a page for a reader with a management cluster and an administrator's key in the file key.
func (k *kubernetes) reads(t *testing.T, page, maasURL string) *document.Shell {
	t.Helper()
	shell := document.Open(t, filepath.Join("..", "..", "docs", page), "KUBECONFIG="+k.kubeconfig, "MAAS_ENDPOINT="+maasURL, "MAAS_API_KEY="+adminKey)
	shell.Rename("http://maas.example.com:5240/MAAS", maasURL)
	writes(t, shell, "key", []byte(adminKey))
	return shell
}

// writes makes a file that the reader has.
func writes(t *testing.T, shell *document.Shell, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(shell.Dir, name), content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (k *kubernetes) makes(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := k.client.Create(t.Context(), o); err != nil && !(o.GetNamespace() == "" && apierrors.IsAlreadyExists(err)) {
			t.Fatalf("%T %s: %v", o, o.GetName(), err)
		}
	}
}

// shows runs a step, whose output must have the patterns.
func shows(t *testing.T, shell *document.Shell, step string, patterns ...string) {
	t.Helper()
	got := shell.Run(t, step)
	for _, pattern := range patterns {
		if !regexp.MustCompile(pattern).MatchString(got) {
			t.Errorf("%s shows no %s:\n%s", step, pattern, got)
		}
	}
}

// MAAS is checked, machines are put into quarantine, and orphans are looked for, as the pages say.
func TestCommandsThatAskMAAS(t *testing.T) {
	k := newKubernetes(t)
	b := newBed(t, strings.ReplaceAll(machinesRegion, "maas.test", "maas"), simulator.Options{})
	shows(t, k.reads(t, "quick-start.md", b.url), "check", `ok`)
	shows(t, k.reads(t, "machine-states.md", b.url), "quarantine", `machine/metal-a already lifted`, `machine/metal-b quarantined until 20`)
	shell := k.reads(t, "orphans.md", b.url)
	config, err := os.ReadFile(k.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	writes(t, shell, "management.kubeconfig", config)
	shows(t, shell, "orphans", `No orphans\.`)
	k.makes(t, &infrav1.MaasMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cp-0"}, Spec: infrav1.MaasMachineSpec{Image: "i"}})
	shows(t, k.reads(t, "maas-4.md", b.url), "orphans", `default +cp-0`, `No orphans\.`)
}

// An image is uploaded, listed and checked, alone and as that of a Cluster.
func TestCommandsAboutImages(t *testing.T) {
	k := newKubernetes(t)
	region := strings.Replace(planRegion, "ubuntu/jammy", "ubuntu/noble", 1)
	b := &planBed{bed: newBed(t, region, simulator.Options{TimeScale: 2000, Seed: seeds.Add(1)}), kubernetes: k, t: t, namespace: "default", dir: t.TempDir()}
	b.manifest(2, 1)
	b.apply(b.rewrite("name: c1", "name: my-cluster", "clusterName: c1", "clusterName: my-cluster", "ubuntu/jammy", "custom/u-2404-k8s-1.35.0"))
	shell := k.reads(t, "image-upload.md", b.url)
	writes(t, shell, "ubuntu-2404-efi-kube-v1.35.0.tar.gz", []byte("\x1f\x8b an image"))
	shows(t, shell, "images", `(?m)^custom/u-2404-k8s-1.35.0 `, `amd64`)
}

// An image is uploaded to all LXDHosts, and checked.
func TestCommandsAboutImagesOnHosts(t *testing.T) {
	b := newHostImageBed(t)
	shell := b.reads(t, "image-upload.md", "")
	disk, err := os.ReadFile(b.disk("disk"))
	if err != nil {
		t.Fatal(err)
	}
	writes(t, shell, "u-2404-k8s-1.35.0.qcow2", disk)
	shows(t, shell, "hosts", `LXDHost default/lxd-a`, `LXDHost default/lxd-b`)
}

// What fits is seen and planned.
func TestCommandsAboutCapacity(t *testing.T) {
	k := newKubernetes(t)
	b := &planBed{bed: newBed(t, planRegion, simulator.Options{TimeScale: 2000, Seed: seeds.Add(1)}), kubernetes: k, t: t, namespace: "default", dir: t.TempDir()}
	manifest := b.manifest(2, 1)
	b.apply(manifest)
	b.controlPlanes(2)
	for i := range 3 {
		b.machine(fmt.Sprintf("cp-%d", i), false)
	}
	shell := k.reads(t, "capacity.md", b.url)
	shell.Rename("--namespace=capmaas-system", "--namespace=default")
	content, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	writes(t, shell, "cluster.yaml", content)
	shows(t, shell, "fits", `(?m)^NAME +MODE +IMAGE +CPU +MEMORY +FITS +AGE$\n^cp +lxd +ubuntu/jammy`)
	shows(t, shell, "plan", `(?m)^STEP +ACTION`, `It fits`)
	shows(t, shell, "upgrade", `(?m)^STEP +ACTION +CLUSTER +OWNER +MACHINE +HOST +ZONE +FITS$`, `It fits`)
}

// The program is a plugin of kubectl by links.
func TestThePluginOfKubectl(t *testing.T) {
	k := kubernetes{}
	shell := k.reads(t, "capmaasctl.md", "")
	shell.Run(t, "kubectl")
	for _, name := range []string{"kubectl-capmaas", "kubectl_complete-capmaas"} {
		if _, err := os.Stat(filepath.Join(shell.Home, ".local", "bin", name)); err != nil {
			t.Error(err)
		}
	}
}

// empties plays the manager until the test ends: each LXDHost that is to be empty is.
func (k *kubernetes) empties(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var done sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		done.Wait()
	})
	done.Go(func() {
		_ = wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			hosts := &infrav1.LXDHostList{}
			if err := k.client.List(ctx, hosts); err != nil {
				return false, nil //nolint:nilerr // The next look may find them.
			}
			for _, host := range hosts.Items {
				if host.Spec.Evacuate && !conditions.IsTrue(&host, infrav1.EvacuatedCondition) {
					host.Status.Evacuation = &infrav1.LXDEvacuationStatus{}
					conditions.Set(&host, metav1.Condition{Type: infrav1.EvacuatedCondition, Status: metav1.ConditionTrue, Reason: infrav1.EvacuatedReason})
					_ = k.client.Status().Update(ctx, &host) // Or at the next look.
				}
			}
			return false, nil
		})
	})
}

// Before MAAS 4.0, the VMs of VM hosts are moved away: all that are listed are planned, and emptied.
func TestCommandsThatEmptyVMHosts(t *testing.T) {
	k := newKubernetes(t)
	b := newPlanBed(t, k)
	b.apply(b.manifest(2, 1))
	b.controlPlanes(2)
	for i := range 3 {
		b.machine(fmt.Sprintf("cp-%d", i), false)
	}
	k.empties(t)
	k.install(t, "capmaas-system", nil)
	shell := k.reads(t, "maas-4.md", b.url)
	shows(t, shell, "move", `It fits`, `lxd-a cordoned`, `lxd-c drained`)
	manager := &appsv1.Deployment{}
	for _, step := range []struct {
		name string
		want int32
	}{{"stop", 0}, {"start", 1}} {
		shell.Run(t, step.name)
		if err := k.client.Get(t.Context(), client.ObjectKey{Namespace: "capmaas-system", Name: "capmaas-controller-manager"}, manager); err != nil {
			t.Fatal(err)
		}
		if got := *manager.Spec.Replicas; got != step.want {
			t.Errorf("%s: %d replicas, want %d", step.name, got, step.want)
		}
	}
}

// pageHost is the LXDHost of the page.
func pageHost(t *testing.T) *infrav1.LXDHost {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "lxdhost-objects.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)```yaml\n(apiVersion: .*?)```").FindSubmatch(page)
	if found == nil {
		t.Fatal("the page has no LXDHost")
	}
	host := &infrav1.LXDHost{}
	if err := yaml.UnmarshalStrict(found[1], host); err != nil {
		t.Fatal(err)
	}
	return host
}

// A direct host is added, its key pair replaced, and it is removed, with the commands of the pages: LXD is real, and
// trusts what it is told to.
func TestCommandsOfADirectHost(t *testing.T) {
	server := directhost.Start(t)
	lxdtest.Open(t, server.Daemon, server.Address)
	k := newKubernetes(t)
	k.empties(t)
	open := func(page string) *document.Shell {
		shell := k.reads(t, page, "")
		shell.Set("LXD_DIR", server.Daemon.Dir())
		shell.Rename("10.77.0.11:8443", server.Address)
		return shell
	}
	shell := open("lxdhost-objects.md")
	shell.Run(t, "pair")
	shell.Run(t, "secret")
	earlier := fileOf(t, shell, "tls.crt")
	upgrade := open("maas-4.md")
	writes(t, upgrade, "tls.crt", earlier)
	writes(t, upgrade, "tls.key", fileOf(t, shell, "tls.key"))
	shows(t, upgrade, "trusted", `^trusted\n$`)

	host := pageHost(t)
	k.makes(t, host)
	conditions.Set(host, metav1.Condition{Type: infrav1.ReadyCondition, Status: metav1.ConditionTrue, Reason: infrav1.ReadyReason})
	if err := k.client.Status().Update(t.Context(), host); err != nil {
		t.Fatal(err)
	}
	shows(t, shell, "ready", `/lxd-host-1 condition met`)
	shows(t, shell, "list", `(?m)^NAMESPACE +NAME +ZONE +POOL +VMS +FREE CORES +FREE MEMORY +FREE DISK +SCHEDULABLE +READY +REASON +AGE$\n^default +lxd-host-1 `)

	rotation := open("security.md")
	rotation.Rename("EARLIER_FINGERPRINT", fingerprint(t, earlier))
	rotation.Run(t, "rotate")
	replacing := fileOf(t, rotation, "new.crt")
	stored := &corev1.Secret{}
	if err := k.client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "lxd-host-1"}, stored); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(stored.Data[corev1.TLSCertKey], replacing) {
		t.Error("the Secret has not the new certificate")
	}
	trusted, err := lxdtest.Connect(t, server.Daemon.Socket()).GetCertificateFingerprints()
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(trusted, fingerprint(t, earlier)) || !slices.Contains(trusted, fingerprint(t, replacing)) {
		t.Errorf("LXD trusts %v, want %s and not %s", trusted, fingerprint(t, replacing), fingerprint(t, earlier))
	}

	shows(t, shell, "remove", `lxd-host-1 drained`)
	k.gone(t, host)
	kept := pageHost(t)
	kept.Finalizers = []string{infrav1.LXDHostFinalizer}
	k.makes(t, kept)
	if err := k.client.Delete(t.Context(), kept); err != nil {
		t.Fatal(err)
	}
	shell.Run(t, "gone")
	k.gone(t, kept)
}

func (k *kubernetes) gone(t *testing.T, o client.Object) {
	t.Helper()
	if err := k.client.Get(t.Context(), client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
		t.Errorf("%s is not gone: %v", o.GetName(), err)
	}
}

// fileOf is what a step has written.
func fileOf(t *testing.T, shell *document.Shell, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(shell.Dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// fingerprint is LXD's of a certificate.
func fingerprint(t *testing.T, certificate []byte) string {
	t.Helper()
	block, _ := pem.Decode(certificate)
	if block == nil {
		t.Fatalf("%q is no certificate", certificate)
	}
	return fmt.Sprintf("%x", sha256.Sum256(block.Bytes))
}
