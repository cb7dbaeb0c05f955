// SPDX-License-Identifier: Apache-2.0

package life

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

// ChangeLXDHost changes the spec of an LXDHost, which it reads first.
func ChangeLXDHost(t *testing.T, box *sandbox.Sandbox, host *infrav1.LXDHost, how func(*infrav1.LXDHostSpec)) {
	t.Helper()
	if err := box.Client.Get(t.Context(), client.ObjectKeyFromObject(host), host); err != nil {
		t.Fatal(err)
	}
	before := host.DeepCopy()
	how(&host.Spec)
	if err := box.Client.Patch(t.Context(), host, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}
