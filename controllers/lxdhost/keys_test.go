// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/test/allkinds"
)

// reconcilerOf reads objects.
func reconcilerOf(t *testing.T, objects ...client.Object) *Reconciler {
	t.Helper()
	return &Reconciler{Base: reconciler.Base{Client: fake.NewClientBuilder().WithScheme(allkinds.Scheme()).WithObjects(objects...).Build()}}
}

func directHost(certificate *infrav1.LXDClientCertificate) *infrav1.LXDHost {
	return &infrav1.LXDHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "host-a"},
		Spec:       infrav1.LXDHostSpec{CredentialsRef: &infrav1.LocalObjectReference{Name: "keys"}},
		Status:     infrav1.LXDHostStatus{ClientCertificate: certificate},
	}
}

func TestAKeyPairIsCurrentUntilItEndsSoon(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ends time.Duration
		want string
	}{
		"it lasts":     {2 * expiresSoon, infrav1.ReadyReason},
		"it ends soon": {expiresSoon / 2, infrav1.CertificateExpiresReason},
		"it has ended": {-time.Hour, infrav1.CertificateExpiresReason},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := directHost(&infrav1.LXDClientCertificate{Fingerprint: "new", Expires: metav1.NewTime(time.Now().Add(c.ends))})
			markKeys(host)
			if got := conditions.Get(host, infrav1.KeysCurrentCondition); got.Reason != c.want || (got.Status == metav1.ConditionTrue) != (c.want == infrav1.ReadyReason) {
				t.Errorf("KeysCurrent is %s, %s (%s), want %s", got.Status, got.Reason, got.Message, c.want)
			}
		})
	}
	without := directHost(&infrav1.LXDClientCertificate{Fingerprint: "old", Expires: metav1.NewTime(time.Now().Add(time.Hour))})
	markKeys(without)
	without.Spec.CredentialsRef = nil // A person's edit of a former VM host.
	for what, host := range map[string]*infrav1.LXDHost{"LXD has not accepted yet": directHost(nil), "has no key pair any more": without} {
		if markKeys(host); conditions.Get(host, infrav1.KeysCurrentCondition) != nil || host.Status.ClientCertificate != nil {
			t.Errorf("of a host that %s, KeysCurrent is %v", what, host.Status.Conditions)
		}
	}
}

func TestAKeyPairIsAnnouncedOnce(t *testing.T) {
	t.Parallel()
	host := func(status metav1.ConditionStatus, reason string) *infrav1.LXDHost {
		host := directHost(nil)
		if reason != "" {
			conditions.Set(host, metav1.Condition{Type: infrav1.KeysCurrentCondition, Status: status, Reason: reason})
		}
		return host
	}
	const none = ""
	for _, c := range []struct {
		name          string
		before, after *infrav1.LXDHost
		want          int
	}{
		{"first seen", host(none, none), host(metav1.ConditionTrue, infrav1.ReadyReason), 0},
		{"as before", host(metav1.ConditionTrue, infrav1.ReadyReason), host(metav1.ConditionTrue, infrav1.ReadyReason), 0},
		{"replaced", host(metav1.ConditionFalse, infrav1.CertificateExpiresReason), host(metav1.ConditionTrue, infrav1.ReadyReason), 0},
		{"ends soon", host(metav1.ConditionTrue, infrav1.ReadyReason), host(metav1.ConditionFalse, infrav1.CertificateExpiresReason), 1},
		{"still ends soon", host(metav1.ConditionFalse, infrav1.CertificateExpiresReason), host(metav1.ConditionFalse, infrav1.CertificateExpiresReason), 0},
	} {
		recorder := events.NewFakeRecorder(2)
		announce(recorder, c.before, c.after)
		if got := len(recorder.Events); got != c.want {
			t.Errorf("%s: %d events, want %d", c.name, got, c.want)
		}
	}
}

func TestAHostShowsTheNodeThatItIs(t *testing.T) {
	t.Parallel()
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "machine", UID: "uid"}}
	machine.Status.NodeRef.Name = "node-a"
	owned := func(kind, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "uid", OwnerReferences: []metav1.OwnerReference{{Kind: kind, Name: "machine", UID: "uid"}}}
	}
	maasMachine := &infrav1.MaasMachine{ObjectMeta: owned("Machine", "machine")}
	maasMachine.OwnerReferences[0].APIVersion = clusterv1.GroupVersion.String()
	ours := infrav1.GroupVersion.String()
	owner := func(group string, uid types.UID) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: group, Kind: clusters.MaasMachineKind.Kind, Name: "machine", UID: uid}
	}
	for _, c := range []struct {
		name   string
		owners []metav1.OwnerReference
		want   string
	}{
		{"a machine of a host cluster", []metav1.OwnerReference{owner(ours, "uid")}, "node-a"},
		{"a machine of a host cluster, and another kind's of its name", []metav1.OwnerReference{owner("other.example.com/v1", "uid2"), owner(ours, "uid")}, "node-a"},
		{"a machine of a host cluster, and an earlier one", []metav1.OwnerReference{owner(ours, "earlier"), owner(ours, "uid")}, "node-a"},
		{"another kind's", []metav1.OwnerReference{owner("other.example.com/v1", "uid")}, ""},
		{"an earlier machine of that name", []metav1.OwnerReference{owner(ours, "other")}, "before"},
		{"a person's", nil, ""},
	} {
		host := directHost(nil)
		host.OwnerReferences, host.Status.NodeName = c.owners, "before"
		if err := reconcilerOf(t, machine, maasMachine).showNode(t.Context(), host); err != nil {
			t.Fatal(err)
		}
		if host.Status.NodeName != c.want {
			t.Errorf("%s: the Node is %q, want %q", c.name, host.Status.NodeName, c.want)
		}
	}
}
