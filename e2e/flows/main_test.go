// SPDX-License-Identifier: Apache-2.0

// Package flows_test leads clusters of all kinds through their lives.
package flows_test

import (
	"fmt"
	"maps"
	"os"
	"testing"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

// box is the sandbox that all tests share.
var box *sandbox.Sandbox

const (
	dnsDomain = "maas.sim"
	// kubernetesVersion is that of the images of the sandbox's region.
	kubernetesVersion = "v1.35.0"
	image             = "u-2204-k8s-1.35"
	newImage          = "u-2404-k8s-1.35"
	// pool has all machines and VM hosts of the sandbox's region.
	pool = "capi"
)

func TestMain(m *testing.M) {
	region, err := sandbox.RegionWithMore(nil, map[string]any{
		"prefix": rackPrefix, "count": servers, "zone": "zone-a", "cores": 8, "memory": 16384, "disks": []any{100, 400},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// MAAS's durations and changing managers don't matter here: calls are counted.
	options := sandbox.Options{
		Region: region, TimeScale: 300, PollActive: 500 * time.Millisecond, PollIdle: 3 * time.Second, Eager: true,
	}
	os.Exit(life.Main(m, options, &box))
}

// topology is a Cluster of the ClusterClass capmaas, as JSON.
func topology(t *testing.T, name string, controlPlanes, workers int, variables map[string]any) string {
	t.Helper()
	with := map[string]any{"dnsDomain": dnsDomain, "image": image}
	maps.Copy(with, variables)
	return life.Topology(t, name, kubernetesVersion, controlPlanes, workers, with)
}

// lxd opts a topology into LXD control planes.
var lxd = map[string]any{"lxdConfig": map[string]any{}}
