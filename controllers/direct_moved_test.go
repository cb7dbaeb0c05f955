// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/directhost"
)

// leadTo makes an LXDHost lead to an LXD, with a key pair that this one trusts, as a person may.
func (w *world) leadTo(host *infrav1.LXDHost, server *directhost.Host, name string) {
	w.t.Helper()
	there, secret := server.Objects(client.ObjectKey{Namespace: w.namespace, Name: name}, "zone-a")
	if err := w.client.Create(w.t.Context(), secret); client.IgnoreAlreadyExists(err) != nil {
		w.t.Fatal(err)
	}
	w.change(host, func(s *infrav1.LXDHostSpec) {
		s.Address, s.ServerCertificate, s.CredentialsRef = there.Spec.Address, there.Spec.ServerCertificate, there.Spec.CredentialsRef
	})
}

// keepsTo waits until an LXDHost is Ready, and its VMs are where it leads.
func (w *world) keepsTo(host *infrav1.LXDHost) {
	w.t.Helper()
	w.hostSays(host, infrav1.ReadyCondition, metav1.ConditionTrue, infrav1.ReadyReason)
	w.eventually(host, "kept to its LXD", func() bool { return host.Annotations[infrav1.LXDAnnotation] == scope.PlaceOf(host) })
}

// Somebody lets an LXDHost lead to another LXD, which has none of its VMs. That proves nothing of them: none has failed, and
// none is given up, until the LXDHost leads back. One without VMs may lead anywhere.
func TestAVMIsNotGoneWhereItNeverWas(t *testing.T) {
	t.Parallel()
	server, other := directhost.Start(t), directhost.Start(t)
	w := newWorld(t, withLXDHosts, func(w *world) { w.hostInterval = readOften })
	host := w.addLXDHost(server, "host-a", "zone-a")
	cluster := w.provisionedCluster()
	before := w.maas.State()
	m := w.deployedMachine("cp-0", true, vm)
	w.keepsTo(host)
	home := host.Annotations[infrav1.LXDAnnotation]

	isRefused := func() {
		t.Helper()
		w.leadTo(host, other, "other")
		w.hostSays(host, infrav1.TrustedCondition, metav1.ConditionFalse, infrav1.CredentialsInvalidReason)
		if message := conditions.GetMessage(host, infrav1.ReadyCondition); !strings.Contains(message, "spec.serverCertificate") {
			t.Errorf("Ready says: %s", message)
		}
		if got := host.Annotations[infrav1.LXDAnnotation]; got != home {
			t.Errorf("its VMs are at %s, and were made at %s", got, home)
		}
	}
	isRefused()
	w.stored(m)
	if m.Status.FailureReason != "" || !m.DeletionTimestamp.IsZero() {
		t.Errorf("the machine has %+v", m.Status)
	}
	w.leadTo(host, server, "host-a")
	w.keepsTo(host)
	w.deployed(m)

	isRefused()
	w.beginDeletion(m)
	w.eventually(m, "held", func() bool {
		return conditions.GetReason(m, infrav1.MachineDeployedCondition) == infrav1.CredentialsInvalidReason
	})
	if got := server.VMs(t); got[m.Status.Hostname] != "Running" {
		t.Errorf("LXD has %v", got)
	}
	if w.deviceOf(m) == nil {
		t.Error("MAAS gives the address of a VM that runs to others")
	}
	w.leadTo(host, server, "host-a")
	w.await(m.Name+" is gone", m, w.hostGone(m))
	if got := server.VMs(t); len(got) > 0 {
		t.Errorf("LXD has %v", got)
	}

	w.leadTo(host, other, "other")
	w.keepsTo(host)
	w.must(other.AddImage(t.Context(), vmImage))
	w.delete(w.deployedMachine("cp-1", true, vm))
	w.deleteCluster(cluster)
	w.unchanged(before)
}

// LXD has a new certificate and a new address. It is the same LXD, because it shows the VMs.
func TestALXDWithANewCertificateIsTheSame(t *testing.T) {
	t.Parallel()
	server := directhost.Start(t)
	w := newWorld(t, withLXDHosts, func(w *world) { w.hostInterval = readOften })
	host := w.addLXDHost(server, "host-a", "zone-a")
	cluster := w.provisionedCluster()
	m := w.deployedMachine("cp-0", true, vm)
	w.keepsTo(host)
	home := host.Annotations[infrav1.LXDAnnotation]
	w.leadTo(host, server.Behind(t, func(lxd http.Handler) http.Handler { return lxd }), "host-a")
	w.keepsTo(host)
	if got := host.Annotations[infrav1.LXDAnnotation]; got == home {
		t.Fatalf("the new certificate is the former one: %s", got)
	}
	w.eventUp(host, "LXDMoved")
	w.deployed(m)
	w.delete(m)
	if got := server.VMs(t); len(got) > 0 {
		t.Errorf("LXD has %v", got)
	}
	w.deleteCluster(cluster)
}
