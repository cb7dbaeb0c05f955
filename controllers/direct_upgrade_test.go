// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"slices"
	"testing"

	"github.com/canonical/lxd/shared/api"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdnode"
	lxdbed "github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/directhost"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/lxdtest"
)

// A snap is upgraded by itself, under running VMs, and keys are replaced. What was made before is known and deleted after
// it, and what was trusted is trusted no more.
func TestADirectHostOutlivesItsKeysAndAnUpgradeOfLXD(t *testing.T) {
	t.Parallel()
	server := directhost.StartWith(t, directhost.Options{LXD: lxdbed.Options{Plays: "5.21.7"}})
	w := newWorld(t, withLXDHosts, func(w *world) { w.hostInterval = readOften })
	host := w.addLXDHost(server, "host-a", "zone-a", func(host *infrav1.LXDHost) {
		host.Spec.OverCommit = infrav1.LXDOverCommit{CPUPercent: 800, MemoryPercent: 400}
	})
	cluster := w.provisionedCluster()
	before := w.maas.State()
	volumes := volumesOf(t, server)
	old := w.deployedMachine("cp-0", true, withSpec(vm, func(s *infrav1.MaasMachineSpec) {
		s.LXDConfig = &infrav1.LXDMachineConfig{Disks: []infrav1.LXDDisk{{Size: "1"}}}
	}))

	former := w.replaceKeys(server, host)
	w.hasBootKey(server, old, "security.secureboot")

	w.must(server.Daemon.Play("6.9"))
	w.eventually(host, "of the new version", func() bool { return host.Status.Version == "6.9" })
	w.hostSays(host, infrav1.ReadyCondition, metav1.ConditionTrue, infrav1.ReadyReason)
	w.hasBootKey(server, old, "boot.mode")
	young := w.deployedMachine("md-0", false, vm)
	w.hasBootKey(server, young, "boot.mode")
	if got := server.VMs(t); len(got) != 2 || got[old.Status.Hostname] != "Running" || got[young.Status.Hostname] != "Running" {
		t.Errorf("LXD has %v", got)
	}
	w.delete(old)
	w.delete(young)
	w.deleteCluster(cluster)
	w.unchanged(before)
	if got := server.VMs(t); len(got) > 0 {
		t.Errorf("after the deletion LXD has the VMs %v", got)
	}
	if diff := cmp.Diff(volumes, volumesOf(t, server)); diff != "" {
		t.Errorf("after the deletion LXD has other volumes (-before +after):\n%s", diff)
	}
	if got := trustedBy(t, server); len(got) != 1 || got[0] == former {
		t.Errorf("LXD trusts %q, and the former key is %s", got, former)
	}
}

// replaceKeys replaces the key pair of an LXDHost, as an operator does, and returns the fingerprint of the former one.
func (w *world) replaceKeys(server *directhost.Host, host *infrav1.LXDHost) (former string) {
	w.t.Helper()
	former, err := lxdnode.Fingerprint(server.Keys.Certificate)
	w.must(err)
	keys, err := lxdnode.NewKeys("capmaas-" + directhost.Project)
	w.must(err)
	now, err := lxdnode.Fingerprint(keys.Certificate)
	w.must(err)
	node, err := lxdnode.Connect(w.t.Context(), server.Daemon.Socket())
	w.must(err)
	_, err = node.Trust(w.t.Context(), "capmaas-"+directhost.Project, directhost.Project, keys.Certificate)
	w.must(err)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: host.Spec.CredentialsRef.Name}}
	w.must(w.client.Get(w.t.Context(), client.ObjectKeyFromObject(secret), secret))
	w.patch(secret, func() {
		secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey] = keys.Certificate, keys.Key
	})
	w.eventually(host, "reached with the new key", func() bool {
		return host.Status.ClientCertificate != nil && host.Status.ClientCertificate.Fingerprint == now
	})
	w.must(node.Forget(w.t.Context(), former))
	return former
}

// hasBootKey wants a VM to have just this one of the keys by which versions of LXD know how it boots.
func (w *world) hasBootKey(server *directhost.Host, m *infrav1.MaasMachine, want string) {
	w.t.Helper()
	all, err := server.Instances()
	w.must(err)
	var got []string
	for _, key := range []string{"security.secureboot", "boot.mode"} {
		if all[m.Status.Hostname].Config[key] != "" {
			got = append(got, key)
		}
	}
	if diff := cmp.Diff([]string{want}, got); diff != "" {
		w.t.Errorf("the VM %s boots by other keys (-want +got):\n%s", m.Status.Hostname, diff)
	}
}

// volumesOf returns what a project has in its storage pool.
func volumesOf(t *testing.T, server *directhost.Host) (names []string) {
	t.Helper()
	client := lxdtest.Connect(t, server.Daemon.Socket()).UseProject(directhost.Project)
	all, err := client.GetStoragePoolVolumes(lxdnode.DefaultStoragePool)
	if err != nil {
		t.Fatal(err)
	}
	for _, volume := range all {
		names = append(names, volume.Type+"/"+volume.Name)
	}
	slices.Sort(names)
	return names
}

// trustedBy returns the fingerprints of the clients' certificates that an LXD trusts.
func trustedBy(t *testing.T, server *directhost.Host) (fingerprints []string) {
	t.Helper()
	all, err := lxdtest.Connect(t, server.Daemon.Socket()).GetCertificates()
	if err != nil {
		t.Fatal(err)
	}
	for _, certificate := range all {
		if certificate.Type == api.CertificateTypeClient {
			fingerprints = append(fingerprints, certificate.Fingerprint)
		}
	}
	return fingerprints
}
