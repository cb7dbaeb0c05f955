// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/canonical/lxd/shared/api"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdnode"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// replacing is a node whose LXD has each name once, as newer ones, and strangers' certificates.
type replacing struct {
	*testNode
	gate      *gate
	env       map[string]string
	strangers []string // fingerprints
}

func newReplacing(t *testing.T) *replacing {
	t.Helper()
	n, g := newBed(t).newNode(), &gate{}
	r := &replacing{testNode: n, gate: g, env: map[string]string{"LXD_SOCKET": g.lxdSocket(n)}}
	// Our name alone, our common name alone, and what begins like ours.
	for name, commonName := range map[string]string{
		secretPrefix + "by-hand": "person", "person": secretPrefix + n.name, secretPrefix + n.name + "-0123456789ab": "person",
		"other": secretPrefix + "former",
	} {
		r.strangers = append(r.strangers, r.store(name, newCertificate(t, commonName)))
	}
	return r
}

// store puts a certificate, DER in base64, into LXD's trust store under a name, and returns its fingerprint.
func (r *replacing) store(name, certificate string) string {
	r.t.Helper()
	r.must(r.local().CreateCertificate(api.CertificatesPost{Name: name, Type: api.CertificateTypeClient, Certificate: certificate}))
	der, err := base64.StdEncoding.DecodeString(certificate)
	r.must(err)
	fingerprint, err := lxdnode.Fingerprint(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	r.must(err)
	return fingerprint
}

// storedEarlier stores the node's certificate as an earlier release did, under the client's name alone.
func (r *replacing) storedEarlier() {
	r.t.Helper()
	keys, fingerprint := r.keys()
	block, _ := pem.Decode(keys.Certificate)
	r.must(r.local().DeleteCertificate(fingerprint))
	r.must(r.local().CreateCertificate(api.CertificatesPost{
		Name: secretPrefix + r.name, Type: api.CertificateTypeClient, Restricted: true, Projects: []string{lxdnode.DefaultProject},
		Certificate: base64.StdEncoding.EncodeToString(block.Bytes),
	}))
}

// again is another process of the initializer, after the one before it died.
func (r *replacing) again() *agent { r.t.Helper(); return r.agent(r.env) }

// ours are the fingerprints that LXD trusts beside the strangers', which must all be there.
func (r *replacing) ours() []string {
	r.t.Helper()
	trusted := r.trusted()
	for _, stranger := range r.strangers {
		if !slices.Contains(trusted, stranger) {
			r.t.Fatalf("LXD trusts %v: a stranger's certificate is gone, %s", trusted, stranger)
		}
	}
	return slices.DeleteFunc(trusted, func(one string) bool { return slices.Contains(r.strangers, one) })
}

// used is the fingerprint of the certificate in the VM host's power parameters.
func (r *replacing) used() string {
	r.t.Helper()
	power, err := r.client.VMHostPower(r.t.Context(), r.onlyHost().ID)
	r.must(err)
	fingerprint, err := lxdnode.Fingerprint([]byte(power.Certificate))
	r.must(err)
	return fingerprint
}

// posts is how often LXD was asked to trust a certificate.
func (r *replacing) posts() (posts int) {
	for _, write := range r.gate.written() {
		if write == "LXD POST /1.0/certificates" {
			posts++
		}
	}
	return posts
}

// wantUsable checks that LXD trusts what MAAS uses, and nothing of ours but that and the current pair.
func (r *replacing) wantUsable(when string) {
	r.t.Helper()
	ours, used := r.ours(), r.used()
	if len(ours) > 2 || !slices.Contains(ours, used) {
		r.t.Fatalf("%s: LXD trusts %v of ours, and MAAS uses %s", when, ours, used)
	}
}

// wantOne checks that LXD trusts one key pair of ours, that of the Secret, which MAAS uses, too.
func (r *replacing) wantOne() {
	r.t.Helper()
	_, current := r.keys()
	if ours := r.ours(); !slices.Equal(ours, []string{current}) || r.used() != current {
		r.t.Errorf("LXD trusts %v of ours, and MAAS uses %s, want %s alone", ours, r.used(), current)
	}
	if _, err := r.client.RefreshVMHost(r.t.Context(), r.onlyHost().ID); err != nil {
		r.t.Errorf("MAAS can't use the VM host: %v", err)
	}
}

func (r *replacing) deleteSecret() {
	r.t.Helper()
	r.must(admin.CoreV1().Secrets(namespace).Delete(r.t.Context(), secretPrefix+r.name, metav1.DeleteOptions{}))
}

// putSecret replaces the pair in the Secret.
func (r *replacing) putSecret(keys lxdnode.Keys) {
	r.t.Helper()
	data, err := json.Marshal(map[string]any{"data": map[string][]byte{corev1.TLSCertKey: keys.Certificate, corev1.TLSPrivateKeyKey: keys.Key}})
	r.must(err)
	r.patchSecret(string(data))
}

// replacements are the ways in which a node comes to need another key pair.
var replacements = map[string]func(*replacing){
	"the Secret is lost": (*replacing).deleteSecret,
	"the Secret is lost, and LXD has the pair of an earlier release": func(r *replacing) {
		r.storedEarlier()
		r.deleteSecret()
	},
	"the Secret has another pair": func(r *replacing) {
		r.t.Helper()
		keys, err := lxdnode.NewKeys(secretPrefix + r.name)
		r.must(err)
		r.putSecret(keys)
	},
	"the Secret has a person's pair": func(r *replacing) {
		r.t.Helper()
		keys, err := lxdnode.NewKeys("person")
		r.must(err)
		r.putSecret(keys)
	},
	"the certificate is broken": func(r *replacing) { r.patchSecret(`{"data":{"tls.crt":"Z29uZQ=="}}`) },
	"the key is another's": func(r *replacing) {
		r.t.Helper()
		r.patchSecret(`{"data":{"tls.key":"` + base64.StdEncoding.EncodeToString(keysOf(r.t, -time.Hour, time.Hour).Key) + `"}}`)
	},
	"the pair ends soon": func(r *replacing) { r.putSecret(keysOf(r.t, -time.Hour, renewBefore-time.Hour)) },
	"the Node is made again": func(r *replacing) {
		r.t.Helper()
		r.deleteSecret()
		r.replaceNode("maas://zone-b/" + r.machine.SystemID)
	},
}

// The process dies after each step, twice, before it comes to the end.
func TestAKeyPairIsReplacedWhereverTheProcessDies(t *testing.T) {
	t.Parallel()
	for what, replace := range replacements {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r := newReplacing(t)
			r.settle(r.again())
			r.wantOne()
			_, former := r.keys()
			replace(r)
			posts := r.posts()

			first := &pass{agent: r.again()}
			for upTo := range first.steps() {
				for range 2 {
					p := &pass{agent: r.again()}
					r.must(p.readNode(t.Context()))
					steps := p.steps()[:upTo+1]
					if err := p.run(t.Context(), steps); err != nil && steps[upTo].name != "resources" {
						t.Fatalf("up to %s: %v", steps[upTo].name, err)
					}
					r.wantUsable("after " + steps[upTo].name)
				}
			}
			a := r.again()
			r.settle(a)
			r.wantCondition(corev1.ConditionTrue, reasonRegistered)
			r.wantOne()
			if _, current := r.keys(); current == former {
				t.Error("the pair is the former one")
			}
			if got := r.posts() - posts; got != 1 {
				t.Errorf("LXD was asked %d times to trust one certificate", got)
			}
			before := r.gate.written()
			for _, again := range []*agent{a, r.again()} {
				r.must(again.pass(t.Context()))
			}
			if after := r.gate.written(); len(after) != len(before) {
				t.Errorf("afterwards LXD was changed: %v", after[len(before):])
			}

			// Another one follows, and the retirement takes that.
			r.deleteSecret()
			r.settle(r.again())
			r.wantOne()
			r.retire(true)
			r.settle(r.again())
			if ours := r.ours(); len(ours) > 0 {
				t.Errorf("after the retirement LXD trusts %v", ours)
			}
		})
	}
}

// Another machine gets the Node's name while the Secret of the former one is there. Its LXD has never seen that pair.
func TestAnotherMachineWithTheNodesNameGetsAPairOfItsOwn(t *testing.T) {
	t.Parallel()
	r := newReplacing(t)
	r.settle(r.again())
	_, former := r.keys()
	r.must(r.local().DeleteCertificate(former))
	r.patchSecret(`{"metadata":{"ownerReferences":null}}`) // Otherwise it may go with the Node, now or later.
	r.replaceNode("maas://zone-b/" + r.machine.SystemID)
	r.settle(r.again())
	r.wantOne()
	if _, current := r.keys(); current == former {
		t.Error("the machine has the pair of another one")
	}
}

// What an earlier release stored is no reason to change anything.
func TestAnUpgradeChangesNothingInTheTrustStore(t *testing.T) {
	t.Parallel()
	r := newReplacing(t)
	r.settle(r.again())
	r.storedEarlier()
	before := r.gate.written()
	a := r.again()
	for range 2 {
		r.must(a.pass(t.Context()))
	}
	if after := r.gate.written(); len(after) != len(before) {
		t.Errorf("LXD was changed: %v", after[len(before):])
	}
	r.wantOne()
	r.retire(true)
	r.settle(a)
	if ours := r.ours(); len(ours) > 0 {
		t.Errorf("after the retirement LXD trusts %v", ours)
	}
}

// Nothing is trusted whose key could be lost.
func TestTheTrustStoreDoesNotGrowWhileTheSecretCantBeMade(t *testing.T) {
	t.Parallel()
	r := newReplacing(t)
	r.settle(r.again())
	refuse := true
	r.between = func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			if refuse && request.Method == http.MethodPost && strings.HasSuffix(request.URL.Path, "/secrets") {
				status := metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: http.StatusForbidden,
					Reason: metav1.StatusReasonForbidden, Message: "exceeded quota"}
				body, err := json.Marshal(status)
				return &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{"Content-Type": {"application/json"}},
					Body: io.NopCloser(bytes.NewReader(body)), Request: request}, err
			}
			return next.RoundTrip(request)
		})
	}
	before := r.trusted()
	r.patchSecret(`{"data":{"tls.key":"Z29uZQ=="}}`)
	a := r.again()
	for range 3 {
		if err := a.pass(t.Context()); err == nil {
			t.Fatal("the pass succeeds without a Secret")
		}
		r.wantUsable("without a Secret")
	}
	r.wantTrusted("without a Secret", before...)
	if c := r.condition(); c.Status != corev1.ConditionFalse || !strings.Contains(c.Message, "quota") {
		t.Errorf("the condition is %+v", c)
	}
	refuse = false
	r.settle(a)
	r.wantOne()
}

// The former pair is what MAAS has, until it has the other.
func TestTheFormerPairIsTrustedWhileMAASHasIt(t *testing.T) {
	t.Parallel()
	r := newReplacing(t)
	a := r.again()
	r.settle(a)
	_, former := r.keys()
	r.deleteSecret()
	r.down.Store(true)
	for range 3 {
		if err := a.pass(t.Context()); err == nil {
			t.Fatal("the pass succeeds without MAAS")
		}
		if ours := r.ours(); len(ours) != 2 || !slices.Contains(ours, former) {
			t.Fatalf("LXD trusts %v of ours, want %s and the other", ours, former)
		}
	}
	r.wantCondition(corev1.ConditionUnknown, infrav1.MAASUnavailableReason)
	r.down.Store(false)
	r.settle(a)
	r.wantOne()
}

// LXD asks for nothing again that it refuses until a person did something, and the Node says what.
func TestANameThatAStrangerHasIsReported(t *testing.T) {
	t.Parallel()
	r := newReplacing(t)
	a := r.again()
	r.settle(a)
	r.deleteSecret()
	p := &pass{agent: r.again()}
	r.must(p.readNode(t.Context()))
	r.must(p.run(t.Context(), p.steps()[:4])) // The pair is made, and not trusted yet.
	_, current := r.keys()
	name := secretPrefix + r.name + "-" + current[:12]
	stranger := r.store(name, newCertificate(t, "person"))
	r.strangers = append(r.strangers, stranger)
	posts := r.posts()
	for range 2 {
		err := a.pass(t.Context())
		if err == nil || !problemOf(err).permanent {
			t.Errorf("the pass returned %v", err)
		}
		if delay := a.delay(err); delay < a.options.checkInterval {
			t.Errorf("the next pass is after %s, want the check interval, %s", delay, a.options.checkInterval)
		}
		r.wantCondition(corev1.ConditionFalse, reasonLXDNotReady)
		r.wantUsable("with a stranger of that name")
	}
	for _, word := range []string{name, stranger, "lxc config trust"} {
		if message := r.condition().Message; !strings.Contains(message, word) {
			t.Errorf("%q does not mention %s", message, word)
		}
	}
	if got := r.posts(); got != posts {
		t.Errorf("LXD was asked %d times for what it refuses", got-posts)
	}
	found, etag, err := r.local().GetCertificate(stranger)
	r.must(err)
	put := found.Writable()
	put.Name = "another"
	r.must(r.local().UpdateCertificate(stranger, put, etag))
	r.settle(a)
	r.wantOne()
}

// A node without a provider ID, at another address in MAAS, is known by the certificate that an earlier release stored.
func TestAVMHostWithTheKeyOfAnEarlierReleaseIsTheNodes(t *testing.T) {
	t.Parallel()
	r := newReplacing(t)
	r.replaceNode("")
	r.settle(r.again())
	host := r.onlyHost()
	elsewhere := maas.VMHostParams{VMHostPower: maas.VMHostPower{PowerAddress: "127.0.0.1:1"}}
	if _, err := r.client.UpdateVMHost(t.Context(), maas.Unrecorded("a test"), host.ID, elsewhere); err != nil {
		t.Fatal(err)
	}
	r.storedEarlier()
	r.deleteSecret()
	r.await("the node is a host", func(ctx context.Context) bool { return r.again().pass(ctx) == nil })
	if got := r.onlyHost(); got.ID != host.ID {
		t.Errorf("VM host %d became %d", host.ID, got.ID)
	}
	r.wantOne()
}
