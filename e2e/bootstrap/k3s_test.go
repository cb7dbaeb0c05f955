// SPDX-License-Identifier: Apache-2.0

package bootstrap_test

import (
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

func TestK3s(t *testing.T) {
	lead(t, distribution{
		provider: sandbox.K3s, flavor: "lxd-k3s", name: "k3s", kind: "KThreesControlPlane", version: "v1.35.0+k3s1", newVersion: "v1.36.0+k3s1",
	})
}
