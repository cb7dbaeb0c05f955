// SPDX-License-Identifier: Apache-2.0

package rights_test

import (
	"io"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/rights"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
	"github.com/capmaas/cluster-api-provider-maas/test/ledger"
	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

// The users of MAAS with the least entitlements: one for bare metal with a virtual IP, and one for VMs on VM hosts with
// a name, each in one resource pool; and one for the nodes of host clusters.
const (
	metalUser = "metal"
	vmsUser   = "vms"
	nodesUser = "nodes"
)

func regionWithLeastUsers() (io.Reader, error) {
	return sandbox.RegionWithUsers(map[string][]rights.Use{
		metalUser: {rights.BareMetal, rights.VirtualIP}, vmsUser: {rights.VMs, rights.DNSEndpoint}, nodesUser: {rights.Registration},
	})
}

// keyOf makes a Secret with the key of such a user, and returns its name.
func keyOf(t *testing.T, box *sandbox.Sandbox, user string) string {
	t.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: life.Namespace, Name: user + "-maas"},
		Data:       map[string][]byte{scope.EndpointKey: []byte(box.MAASURL), scope.APIKeyKey: []byte(sandbox.UserKey(user))},
	}
	if err := box.Client.Create(t.Context(), secret); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	return secret.Name
}

// nothingForbidden checks that a user has used the key, and needed nothing that it may not do.
func nothingForbidden(t *testing.T, box *sandbox.Sandbox, user string) {
	t.Helper()
	log := box.MAAS.Calls().Log
	used := false
	for _, call := range log {
		used = used || call.User == user
	}
	if !used {
		t.Errorf("the key of %s is not used", user)
	}
	for _, call := range ledger.Forbidden(log, user) {
		t.Errorf("%s %s %s is forbidden for %s", call.Method, call.Path, call.Op, user)
	}
}

// leadLeast runs clusters on a MAAS that has entitlements, with the keys of users who have the least: of bare metal, and,
// where MAAS has VM hosts, of a VM.
func leadLeast(t *testing.T, box *sandbox.Sandbox, vmHosts bool) {
	t.Helper()
	users := map[string]struct{ virtualIP, spec string }{
		metalUser: {"10.77.0.70", "image: ubuntu/jammy, resourcePool: capi"},
	}
	if vmHosts {
		users[vmsUser] = struct{ virtualIP, spec string }{"", "provisioningMode: lxd, image: ubuntu/jammy, resourcePool: capi"}
	}
	lives := map[string]func(*life.Life){}
	for user, of := range users {
		lives[user] = func(l *life.Life) {
			plain := sandbox.Plain{Key: l.Key, Credentials: keyOf(l.T, box, user), VirtualIP: of.virtualIP}
			l.Apply(plain.Manifest(sandbox.PlainMachine{Spec: of.spec}))
			l.Wait("the machine to be ready", func() (bool, string, error) {
				machine := &infrav1.MaasMachine{}
				err := box.Client.Get(l.Context(), l.Key, machine)
				return conditions.IsTrue(machine, infrav1.ReadyCondition), sandbox.Conditions(machine.Status.Conditions), client.IgnoreNotFound(err)
			})
			l.Delete()
		}
	}
	life.Together(t, box, lives)
	for user := range users {
		nothingForbidden(t, box, user)
	}
}
