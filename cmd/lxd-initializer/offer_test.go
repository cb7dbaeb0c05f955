// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdnode"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator/simtest"
)

// withoutVMHosts upgrades MAAS to a version that has none.
func (b *bed) withoutVMHosts() {
	b.t.Helper()
	b.must(b.region.Upgrade("4.0"))
}

// wantOffered checks that LXD is usable with what is in the Secret.
func (n *testNode) wantOffered() {
	n.t.Helper()
	n.wantCondition(corev1.ConditionTrue, reasonPrepared)
	n.wantLabel(true)
	secret := n.secret()
	if secret == nil {
		n.t.Fatal("there is no Secret")
	}
	if want := n.ip + ":8443"; string(secret.Data[infrav1.LXDAddressKey]) != want {
		n.t.Errorf("the address in the Secret is %q, want %s", secret.Data[infrav1.LXDAddressKey], want)
	}
	host, err := new(lxdhost.Connections).Host(n.t.Context(), lxdhost.Options{
		Address: string(secret.Data[infrav1.LXDAddressKey]), ServerCertificate: secret.Data[infrav1.LXDServerCertificateKey],
		ClientCertificate: secret.Data[corev1.TLSCertKey], ClientKey: secret.Data[corev1.TLSPrivateKeyKey],
		Project: lxdnode.DefaultProject, Dial: n.dial,
	})
	if err != nil {
		n.t.Fatalf("LXD can't be used with what is in the Secret: %v", err)
	}
	host.Close()
}

func TestNodeIsOfferedToTheManagerWhereMAASHasNoVMHosts(t *testing.T) {
	t.Parallel()
	n := newBed(t).newNode()
	n.withoutVMHosts()
	a := n.agent()
	n.settle(a)
	n.wantOffered()
	if !a.ready.Load() {
		t.Error("the initializer is not ready")
	}
	if secret := n.secret(); secret.Type != corev1.SecretTypeTLS || len(secret.OwnerReferences) != 1 || secret.OwnerReferences[0].UID != n.node().UID {
		t.Errorf("the Secret has type %s and owners %v", secret.Type, secret.OwnerReferences)
	}
	if writes := n.writes(); len(writes) > 0 {
		t.Errorf("MAAS was asked to change something: %v", writes)
	}

	node, secret := n.node(), n.secret()
	for _, again := range []*agent{a, n.agent()} {
		n.must(again.pass(t.Context()))
	}
	if got := n.node().ResourceVersion; got != node.ResourceVersion {
		t.Errorf("the Node was written: %s", cmp.Diff(node, n.node()))
	}
	if got := n.secret().ResourceVersion; got != secret.ResourceVersion {
		t.Error("the Secret was written")
	}
}

func TestOfferIsKeptTrue(t *testing.T) {
	t.Parallel()
	n := newBed(t).newNode()
	n.withoutVMHosts()
	a := n.agent()
	n.settle(a)
	for _, c := range []struct {
		name   string
		change func()
		// told: the Node's condition says something else afterwards, which wakes the manager.
		told bool
	}{
		{"another address in the Secret", func() { n.patchSecret(`{"stringData":{"address":"10.0.2.99:8443"}}`) }, false},
		{"no certificate in the Secret", func() { n.patchSecret(`{"data":{"server.crt":null}}`) }, false},
		{"no Secret", func() {
			n.must(admin.CoreV1().Secrets(namespace).Delete(t.Context(), secretPrefix+n.name, metav1.DeleteOptions{}))
		}, true},
		{"LXD's certificate is replaced", n.replaceServerCertificate, true},
	} {
		before := n.condition().Message
		c.change()
		n.settle(a)
		n.wantOffered()
		if told := n.condition().Message != before; told != c.told {
			t.Errorf("%s: the condition says something else: %t", c.name, told)
		}
		if t.Failed() {
			t.Fatalf("after %s", c.name)
		}
	}
}

// replaceServerCertificate gives LXD another certificate, as an operator does.
func (n *testNode) replaceServerCertificate() {
	n.t.Helper()
	keys, err := lxdnode.NewKeys("server")
	if err != nil {
		n.t.Fatal(err)
	}
	for file, content := range map[string][]byte{"server.crt": keys.Certificate, "server.key": keys.Key} {
		n.must(os.WriteFile(filepath.Join(n.lxd.Dir(), file), content, 0o600))
	}
	n.must(n.lxd.Restart(n.t.Context()))
}

// MAAS has the key pairs of VM hosts in the power parameters of their VMs, also after its upgrade.
func TestEarlierKeyPairsStayTrustedWhileMAASMayUseThem(t *testing.T) {
	t.Parallel()
	n := newBed(t).newNode()
	a := n.agent()
	n.settle(a)
	n.wantHost()
	earlier := n.trusted()

	n.withoutVMHosts()
	n.settle(a)
	n.wantOffered()
	if diff := cmp.Diff(earlier, n.trusted()); diff != "" {
		t.Errorf("what LXD trusts after the upgrade (-want +got):\n%s", diff)
	}
	n.patchSecret(`{"data":{"tls.key":"Z29uZQ=="}}`)
	n.settle(a)
	n.wantOffered()
	if trusted := n.trusted(); len(trusted) != 2 || !slices.Contains(trusted, earlier[0]) {
		t.Errorf("LXD trusts %v, want two, and %v among them", trusted, earlier)
	}

	n.retire(true)
	n.settle(a)
	n.wantCondition(corev1.ConditionFalse, infrav1.LXDHostRetiredReason)
	n.wantLabel(false)
	if trusted := n.trusted(); len(trusted) > 0 {
		t.Errorf("LXD trusts %v after the retirement", trusted)
	}
	if n.secret() != nil {
		t.Error("the Secret is still there")
	}
	n.retire(false)
	n.await("the node is offered again", func(ctx context.Context) bool { return a.pass(ctx) == nil })
	n.wantOffered()
}

// usesKeys says on the Node, as the manager does, that one key pair alone is in use.
func (n *testNode) usesKeys(fingerprint string) {
	n.t.Helper()
	n.patchNode(`{"metadata":{"annotations":{"` + infrav1.LXDKeysAnnotation + `":"` + fingerprint + `"}}}`)
}

// enlistVM adds a machine to MAAS that is switched with a key pair, and returns its id.
func (n *testNode) enlistVM(keys lxdnode.Keys) string {
	n.t.Helper()
	return simtest.Enlist(n.t, n.region, apiKey, "vm-on-"+n.name, "00:16:3e:00:00:01", url.Values{
		"power_address": {"https://" + n.ip + ":8443"}, "project": {lxdnode.DefaultProject}, "instance_name": {"vm"},
		"certificate": {string(keys.Certificate)}, "key": {string(keys.Key)},
	})
}

// keys are those in the Secret.
func (n *testNode) keys() (keys lxdnode.Keys, fingerprint string) {
	n.t.Helper()
	secret := n.secret()
	keys = lxdnode.Keys{Certificate: secret.Data[corev1.TLSCertKey], Key: secret.Data[corev1.TLSPrivateKeyKey]}
	fingerprint, err := lxdnode.Fingerprint(keys.Certificate)
	if err != nil {
		n.t.Fatal(err)
	}
	return keys, fingerprint
}

// wantTrusted checks what LXD trusts, in any order.
func (n *testNode) wantTrusted(when string, want ...string) {
	n.t.Helper()
	got := n.trusted()
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		n.t.Fatalf("%s: LXD trusts (-want +got):\n%s", when, diff)
	}
}

// An earlier key pair goes when neither the manager nor MAAS uses it, and not before.
func TestAnEarlierKeyPairGoesWhenNothingUsesIt(t *testing.T) {
	t.Parallel()
	n := newBed(t).newNode()
	n.withoutVMHosts()
	a := n.agent()
	n.settle(a)
	first, firstPrint := n.keys()
	vm := n.enlistVM(first)
	ending := keysOf(t, -time.Hour, renewBefore-time.Hour)
	n.patchSecret(`{"data":{"tls.crt":"` + base64.StdEncoding.EncodeToString(ending.Certificate) + `","tls.key":"` + base64.StdEncoding.EncodeToString(ending.Key) + `"}}`)
	n.settle(a)
	n.wantOffered()
	second, secondPrint := n.keys()
	n.wantTrusted("the manager has said nothing", firstPrint, secondPrint)

	n.usesKeys(firstPrint)
	n.settle(a)
	n.wantTrusted("the manager uses the earlier pair", firstPrint, secondPrint)

	n.usesKeys(secondPrint)
	if !a.woken(t.Context()) {
		t.Error("the initializer is not woken")
	}
	n.settle(a)
	n.wantTrusted("MAAS switches a VM with the earlier pair", firstPrint, secondPrint)
	if message := n.condition().Message; !strings.Contains(message, "1 earlier") {
		t.Errorf("the condition says %q", message)
	}

	n.down.Store(true)
	if err := a.pass(t.Context()); err == nil {
		t.Error("a pass succeeds without MAAS")
	}
	n.wantTrusted("MAAS does not respond", firstPrint, secondPrint)
	n.down.Store(false)

	simtest.Call(t, n.region, apiKey, http.MethodPut, "machines/"+vm+"/", url.Values{
		"power_type": {"lxd"}, "power_parameters_certificate": {string(second.Certificate)},
		"power_parameters_key": {string(second.Key)},
	})
	n.settle(n.agent()) // Another process goes on.
	n.wantTrusted("nothing uses the earlier pair", secondPrint)
	n.wantOffered()
	if message := n.condition().Message; strings.Contains(message, "earlier") {
		t.Errorf("the condition says %q", message)
	}
}
