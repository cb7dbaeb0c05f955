// SPDX-License-Identifier: Apache-2.0

// Package keep_test upgrades a cluster on exactly as many servers as it has machines, while another user of MAAS takes
// whatever is Ready.
package keep_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

// box is the sandbox.
var box *sandbox.Sandbox

// rack is a region with five servers, each with a disk for data, and two users.
const rack = `
users:
  - {name: admin, admin: true, keys: ["sandboxadmin:7fc2dQXUnGJbVqYgkT:Hw5xEVjC3bRkN8sTzPqLmA4yUe6FgD9K"]}
  - {name: thief, keys: ["thief:token:secret"]}
domains: [{name: maas.sim, default: true}]
subnets: [{cidr: 10.77.0.0/24, gateway: 10.77.0.1, dns_servers: [10.77.0.2], dhcp: true, dynamic_ranges: [{start: 10.77.0.200, end: 10.77.0.254}]}]
images: [{name: ubuntu/jammy}, {name: ubuntu/noble}, {name: u-2204-k8s-1.35, uploaded: true}, {name: u-2404-k8s-1.35, uploaded: true}]
machines:
  - {prefix: server-, count: 5, cores: 8, memory: 16384, disks: [100, 400]}
`

func TestMain(m *testing.M) {
	options := sandbox.Options{
		LXD: sandbox.LXDOff, Region: strings.NewReader(rack),
		TimeScale: 300, PollActive: 500 * time.Millisecond, PollIdle: 3 * time.Second, Eager: true, Lease: 20 * time.Second,
	}
	os.Exit(life.Main(m, options, &box))
}
