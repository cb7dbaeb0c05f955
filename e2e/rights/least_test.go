// SPDX-License-Identifier: Apache-2.0

package rights_test

import (
	"io"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/rights"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
	"github.com/capmaas/cluster-api-provider-maas/test/ledger"
	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

// nodesUser is a user of MAAS with the least entitlements for the nodes of host clusters. The manager's keys are tested in
// controllers.
const nodesUser = "nodes"

func regionWithNodesUser() (io.Reader, error) {
	return sandbox.RegionWithUsers(map[string][]rights.Use{nodesUser: {rights.Registration}})
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
