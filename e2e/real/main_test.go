// SPDX-License-Identifier: Apache-2.0

// Package real_test makes clusters of real nodes: the user data runs as it is, on Debian with systemd, cloud-init,
// containerd, kubelet and kubeadm. `make real` runs it.
package real_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/charts"
	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/realnode"
)

// dataTag is the tag of the only server that has a disk for data, dataDisk.
const dataTag, dataDisk = "data", "sdb"

// timeScale is how much faster than real time machines deploy.
const timeScale = 60

// box is the sandbox that all tests share.
var box *sandbox.Sandbox

func TestMain(m *testing.M) {
	if os.Getenv("CAPMAAS_REAL_NODES") != "1" {
		fmt.Println("Real nodes are not tested: CAPMAAS_REAL_NODES is not 1 (`make real` sets it, and builds what they need)")
		return
	}
	options, err := settings()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(life.Main(m, options, &box))
}

// settings are those of each management cluster here.
func settings() (sandbox.Options, error) {
	region, err := sandbox.RegionWithMore(nil, map[string]any{
		"names": []any{"data-1"}, "zone": "zone-b", "pool": "capi", "cores": 8, "memory": 16384, "disks": []any{100, 400}, "tags": []any{dataTag},
	})
	return sandbox.Options{
		Region: region, TimeScale: timeScale, RealNodes: true, RealHosts: true, PollActive: 500 * time.Millisecond, PollIdle: 3 * time.Second, Eager: true,
		NoDeprecated: true, Values: map[string]any{
			"evacuation":     map[string]any{"enabled": true},
			"lxdInitializer": map[string]any{"image": charts.Image(realnode.InitializerImage)},
		},
	}, err
}
