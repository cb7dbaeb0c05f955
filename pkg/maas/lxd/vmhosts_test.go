// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"testing"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// MAAS says which LXD a VM host has. One of which it does not say that, it has not reached.
func TestAVMHostWithTooNewALXD(t *testing.T) {
	t.Parallel()
	for version, tooNew := range map[string]string{"": "", "5.0.2": "", "5.21.7": "", "6.6": "", "6.7": "6.7", "6.10.0": "6.10.0"} {
		if got := toHost(maas.VMHost{Version: version}, time.Time{}); got.TooNew != tooNew {
			t.Errorf("LXD %s is too new: %q", version, got.TooNew)
		}
	}
}
