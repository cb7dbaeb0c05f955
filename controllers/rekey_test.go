// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdnode"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/directhost"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// putKeys puts a key pair into the Secret of an LXDHost.
func (w *world) putKeys(host *infrav1.LXDHost, keys lxdnode.Keys) {
	w.t.Helper()
	secret := &corev1.Secret{}
	if err := w.client.Get(w.t.Context(), client.ObjectKey{Namespace: host.Namespace, Name: host.Spec.CredentialsRef.Name}, secret); err != nil {
		w.t.Fatal(err)
	}
	w.patch(secret, func() {
		secret.Data = map[string][]byte{corev1.TLSCertKey: keys.Certificate, corev1.TLSPrivateKeyKey: keys.Key}
	})
}

// switchedWith reports whether MAAS switches a VM with a key pair.
func (w *world) switchedWith(m *infrav1.MaasMachine, keys lxdnode.Keys) bool {
	w.t.Helper()
	power, err := w.maasClient().PowerParameters(w.t.Context(), m.Spec.SystemID)
	if err != nil {
		w.t.Fatal(err)
	}
	same := func(a string, b []byte) bool { return a == strings.TrimSpace(string(b)) } // MAAS strips them.
	return same(power.Certificate, keys.Certificate) && same(power.Key, keys.Key) && power.InstanceName == m.Status.Hostname
}

// keysAre waits until nothing on a host uses another key pair.
func (w *world) keysAre(host *infrav1.LXDHost, keys lxdnode.Keys) {
	w.t.Helper()
	want, err := lxdnode.Fingerprint(keys.Certificate)
	if err != nil {
		w.t.Fatal(err)
	}
	w.eventually(host, "using the new key pair alone", func() bool {
		accepted := host.Status.ClientCertificate
		return accepted != nil && accepted.Fingerprint == want && conditions.IsTrue(host, infrav1.KeysCurrentCondition)
	})
}

// forManyVMs is for a test's computer, which is small.
func forManyVMs(h *infrav1.LXDHost) {
	h.Spec.OverCommit = infrav1.LXDOverCommit{CPUPercent: 1000, MemoryPercent: 1000}
}

// A new key pair in the Secret is used at once, and by MAAS for each VM; LXD need not trust the earlier one then.
func TestTheKeyPairOfAnLXDHostIsReplaced(t *testing.T) {
	t.Parallel()
	server := directhost.Start(t)
	w := newWorld(t, withLXDHosts, func(w *world) { w.hostInterval = readOften })
	host := w.addLXDHost(server, "host-a", "zone-a", forManyVMs)
	cluster := w.newCluster()
	w.provisioned(cluster)
	before := w.maas.State()
	first := w.newMachine("cp-0", true, vm)
	w.deployed(first)
	w.keysAre(host, server.Keys)

	// Until LXD trusts the new pair, MAAS keeps the earlier one.
	stranger, err := lxdnode.NewKeys("stranger")
	if err != nil {
		t.Fatal(err)
	}
	w.putKeys(host, stranger)
	w.hostSays(host, infrav1.TrustedCondition, metav1.ConditionFalse, infrav1.NotTrustedReason)
	if !w.switchedWith(first, server.Keys) {
		t.Error("MAAS has a key pair that LXD does not trust")
	}

	keys := server.AnotherKeys(t)
	w.putKeys(host, keys)
	w.keysAre(host, keys)
	if !w.switchedWith(first, keys) {
		t.Error("MAAS has another key pair")
	}
	w.eventUp(first, "KeysChanged")
	w.eventUp(host, infrav1.KeysCurrentCondition)

	server.TrustOnly(t, keys)
	w.restart()
	second := w.newMachine("cp-1", true, vm)
	w.deployed(second)
	for _, m := range []*infrav1.MaasMachine{first, second} {
		if !w.switchedWith(m, keys) {
			t.Errorf("MAAS does not switch %s with the new key pair", m.Name)
		}
		w.delete(m)
	}
	if got := server.VMs(t); len(got) > 0 {
		t.Errorf("LXD has %v", got)
	}
	w.deleteCluster(cluster)
	w.unchanged(before)
}

// A VM that was made with the new pair is there before the others get it, and each response to a change is lost once, so
// the manager has to find out what became of it.
func TestAReplacementOfKeysThatIsInterruptedGoesOn(t *testing.T) {
	t.Parallel()
	server := directhost.Start(t)
	for _, phase := range []simulator.Phase{simulator.Before, simulator.After} {
		t.Run(fmt.Sprint(phase), func(t *testing.T) {
			w := newWorld(t, withLXDHosts, func(w *world) { w.hostInterval = readOften })
			host := w.addLXDHost(server, "host-a", "zone-a", forManyVMs)
			cluster := w.newCluster()
			w.provisioned(cluster)
			before := w.maas.State()
			first := w.newMachine("cp-0", true, vm)
			w.deployed(first)
			w.keysAre(host, server.Keys)

			hold := make(chan struct{})
			var lost atomic.Int32
			w.maas.SetHook(func(call simulator.Call, at simulator.Phase) error {
				if call.Method != http.MethodPut || call.Endpoint != "machines/{id}/" {
					return nil
				}
				<-hold
				if at == phase && lost.Add(1) <= 2 {
					return errors.New("lost")
				}
				return nil
			})
			keys := server.AnotherKeys(t)
			w.putKeys(host, keys)
			w.hostSays(host, infrav1.KeysCurrentCondition, metav1.ConditionFalse, infrav1.EarlierKeysInUseReason)
			second := w.newMachine("cp-1", true, vm)
			w.deployed(second)
			if !w.switchedWith(second, keys) {
				t.Error("a new VM has the earlier key pair")
			}
			close(hold)
			w.keysAre(host, keys)
			if !w.switchedWith(first, keys) {
				t.Error("MAAS has another key pair")
			}
			w.delete(first)
			w.delete(second)
			w.deleteCluster(cluster)
			w.maas.SetHook(nil)
			w.unchanged(before)
		})
	}
}
