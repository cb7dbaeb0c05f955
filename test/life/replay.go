// SPDX-License-Identifier: Apache-2.0

package life

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capmaas/cluster-api-provider-maas/test/replay"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

// HeldAgainstTheModel has what the managers do from now on replayed at the end of the test, when they do nothing any
// more: what a model does not allow fails the test. settleTime is the managers'.
func HeldAgainstTheModel(t *testing.T, box *sandbox.Sandbox, settleTime time.Duration) {
	t.Helper()
	c, err := client.NewWithWatch(box.RESTConfig, client.Options{Scheme: box.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	run, err := replay.Follow(t.Context(), box.MAAS, c, replay.Options{Namespaces: []string{""}, SettleTime: settleTime})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { run.Check(t, "") })
}
