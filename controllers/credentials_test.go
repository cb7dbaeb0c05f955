// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/directhost"
)

// setKey puts another API key into the credentials.
func (w *world) setKey(key string) {
	w.t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "maas", Namespace: w.namespace}}
	patch := `{"stringData": {"apiKey": "` + key + `"}}`
	w.must(w.client.Patch(w.t.Context(), secret, client.RawPatch("application/merge-patch+json", []byte(patch))))
}

// withTwoKeys gives the administrator a second API key.
func withTwoKeys(w *world) {
	w.region = strings.Replace(w.region, `keys: ["admin:token:secret"`, `keys: ["admin:token:secret", "admin2:token2:secret2"`, 1)
}

// The deadline of the test is shorter than MendRetry: a change of the Secret must trigger a reconcile.
func TestCredentialsAreRotatedWithoutARestart(t *testing.T) {
	t.Parallel()
	for name, direct := range map[string]bool{"a VM on a VM host": false, "a VM on a direct host": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var w *world
			if direct {
				server := directhost.Start(t)
				w = newWorld(t, withLXDHosts, withTwoKeys)
				w.addLXDHost(server, "host-a", "zone-a")
			} else {
				w = newWorld(t, withTwoKeys)
			}
			w.rotates()
		})
	}
}

// rotates gives a cluster a wrong key, and then a good one.
func (w *world) rotates() {
	w.t.Helper()
	cluster := w.provisionedCluster()
	m := w.deployedMachine("cp", true, vm)
	w.eventually(m, "it is attached", func() bool { return conditions.IsTrue(m, infrav1.DNSAttachedCondition) })
	lost := func(object conditions.Getter, condition string) func() bool {
		return func() bool {
			return !conditions.IsTrue(object, condition) && conditions.GetReason(object, condition) == infrav1.CredentialsInvalidReason
		}
	}

	w.setKey("admin:token:wrong")
	w.eventually(cluster, "the cluster reports the wrong key", lost(cluster, infrav1.FailureDomainsReadyCondition))
	w.eventually(m, "the machine reports the wrong key", lost(m, infrav1.MachineDeployedCondition))
	if len(w.endpoint(cluster)) != 1 {
		w.t.Errorf("with a wrong key the endpoint leads to %v, want what it was", w.endpoint(cluster))
	}

	w.setKey("admin2:token2:secret2")
	w.eventually(cluster, "the cluster is ready again", func() bool { return conditions.IsTrue(cluster, infrav1.ReadyCondition) })
	w.eventually(m, "the machine is ready again", func() bool { return conditions.IsTrue(m, infrav1.ReadyCondition) })
	w.delete(m)
}

// setEndpoint sets the MAAS URL in the credentials.
func (w *world) setEndpoint(endpoint string) {
	w.t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "maas", Namespace: w.namespace}}
	patch := `{"stringData": {"endpoint": "` + endpoint + `"}}`
	w.must(w.client.Patch(w.t.Context(), secret, client.RawPatch("application/merge-patch+json", []byte(patch))))
}

// Another MAAS has nothing of the cluster, and another user of the same MAAS sees only its DNS record: its machines would
// count as gone, be replaced, and be left behind.
func TestCredentialsThatLeadToAnotherMAASLoseNothing(t *testing.T) {
	t.Parallel()
	elsewhere := func(w *world) { w.setEndpoint(w.startMAAS()) }
	for name, tc := range map[string]struct {
		spec infrav1.MaasMachineSpec
		lead func(*world)
	}{
		"VM":           {vm, elsewhere},
		"bare metal":   {infrav1.MaasMachineSpec{}, elsewhere},
		"another user": {infrav1.MaasMachineSpec{}, func(w *world) { w.setKey(otherKey) }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, withOtherUser(false))
			home, homeURL, before := w.maas, w.maasURL, w.maas.State()
			cluster := w.provisionedCluster()
			m := w.deployedMachine("cp", true, tc.spec)
			w.eventually(m, "it is attached", func() bool { return conditions.IsTrue(m, infrav1.DNSAttachedCondition) })

			tc.lead(w)
			other := w.maas.State()
			w.eventually(cluster, "the cluster reports it", func() bool {
				return conditions.GetReason(cluster, infrav1.FailureDomainsReadyCondition) == infrav1.CredentialsInvalidReason
			})
			w.eventually(m, "the machine reports it", func() bool {
				return conditions.GetReason(m, infrav1.MachineDeployedCondition) == infrav1.CredentialsInvalidReason
			})
			w.beginDeletion(m)
			w.poke(m)
			w.eventually(m, "it stays", func() bool { return conditions.GetReason(m, infrav1.ReadyCondition) == infrav1.DeletingReason })
			w.unchanged(other)

			w.setEndpoint(homeURL)
			w.setKey("admin:token:secret")
			w.goes(m)
			w.deleteCluster(cluster)
			w.maas = home
			w.unchanged(before)
		})
	}
}

// Nor does it lose a server that waits for the next Machine: no MaasMachine tells of it.
func TestCredentialsThatLeadToAnotherMAASLoseNothingWithoutAMaasMachine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	home, homeURL, before := w.maas, w.maasURL, w.maas.State()
	cluster := w.provisionedCluster()
	w.keepsServer(infrav1.MaasMachineSpec{})
	w.setEndpoint(w.startMAAS())
	w.eventually(cluster, "the cluster reports it", func() bool {
		return conditions.GetReason(cluster, infrav1.FailureDomainsReadyCondition) == infrav1.CredentialsInvalidReason
	})
	if n := w.keptIn(cluster); n != 1 {
		t.Errorf("%d servers are kept, want 1", n)
	}
	w.setEndpoint(strings.Replace(homeURL, "127.0.0.1", "localhost", 1))
	w.eventually(cluster, "it follows", func() bool { return conditions.IsTrue(cluster, infrav1.FailureDomainsReadyCondition) })
	w.deleteCluster(cluster)
	w.maas = home
	w.unchanged(before)
}

// Another name of the same MAAS is recognized by the cluster's machines in it; if there is nothing to lose, any MAAS is
// accepted.
func TestMAASUnderAnotherNameIsFollowed(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		choose  func(*infrav1.MaasCluster)
		machine *infrav1.MaasMachineSpec
		// unmarked: a person has tried to release the machine, and MAAS could not switch it off.
		unmarked bool
	}{
		"nothing is there":          {choose: func(*infrav1.MaasCluster) {}},
		"a VM":                      {choose: func(*infrav1.MaasCluster) {}, machine: &vm},
		"a server":                  {choose: func(*infrav1.MaasCluster) {}, machine: &infrav1.MaasMachineSpec{}},
		"a server without its mark": {choose: func(*infrav1.MaasCluster) {}, machine: &infrav1.MaasMachineSpec{}, unmarked: true},
		"a virtual IP":              {choose: at(virtualIP)},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			before := w.maas.State()
			cluster := w.provisionedCluster(tc.choose)
			var m *infrav1.MaasMachine
			if tc.machine != nil {
				m = w.newMachine("m", false, *tc.machine)
				w.deployed(m)
			}
			if tc.unmarked {
				w.failNext("power")
				_, err := w.maasClient().ReleaseMachine(t.Context(), maas.UnrecordedRelease("a test"), m.Spec.SystemID, maas.ReleaseParams{})
				if now := w.metal(m.Spec.SystemID); err == nil || now.Status != "Deployed" || now.AgentName != "" {
					t.Fatalf("the release ended with %v, and the machine is %s, with the agent name %q", err, now.Status, now.AgentName)
				}
			}
			old := cluster.Annotations[infrav1.MAASAnnotation]
			if old == "" {
				t.Fatalf("the annotations are %v", cluster.Annotations)
			}
			w.setEndpoint(strings.Replace(w.maasURL, "127.0.0.1", "localhost", 1))
			w.eventually(cluster, "it follows", func() bool {
				return cluster.Annotations[infrav1.MAASAnnotation] != old && conditions.IsTrue(cluster, infrav1.FailureDomainsReadyCondition)
			})
			if m != nil {
				w.delete(m)
			}
			w.deleteCluster(cluster)
			w.unchanged(before)
		})
	}
}
