// SPDX-License-Identifier: Apache-2.0

package life

import (
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

// Together runs lives, by the names of their clusters, at the same time. When the last one has ended, MAAS is compared
// with its state before the first. The purpose of calls can't be determined in them.
func Together(t *testing.T, box *sandbox.Sandbox, lives map[string]func(*Life)) {
	t.Helper()
	before := box.MAAS.State()
	t.Run("lives", func(t *testing.T) { // It ends when the last of those in it does.
		for name, lead := range lives {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				l := Begin(t, box, name)
				l.among = true
				lead(l)
			})
		}
	})
	checkRemains(t, before, box)
}
