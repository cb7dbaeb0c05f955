// SPDX-License-Identifier: Apache-2.0

// Package real_test makes clusters of real nodes: the user data runs as it is, on Debian with systemd, cloud-init,
// containerd, kubelet and kubeadm. `make real` runs it.
package real_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

// box is the sandbox that all tests share.
var box *sandbox.Sandbox

func TestMain(m *testing.M) {
	if os.Getenv("CAPMAAS_REAL_NODES") != "1" {
		fmt.Println("Real nodes are not tested: CAPMAAS_REAL_NODES is not 1 (`make real` sets it, and builds what they need)")
		return
	}
	options := sandbox.Options{RealNodes: true, PollActive: 500 * time.Millisecond, PollIdle: 3 * time.Second, Eager: true, Lease: 20 * time.Second}
	os.Exit(life.Main(m, options, &box))
}
