// SPDX-License-Identifier: Apache-2.0

// Package hands_test makes other users change our clusters' machines and records by hand.
package hands_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

// box is the sandbox that all tests share.
var box *sandbox.Sandbox

// theirs is the region apart from the machines and hosts of the cases. The manager is admin; the others are other
// people.
const theirs = `
users:
- {name: admin, admin: true, keys: ["sandboxadmin:7fc2dQXUnGJbVqYgkT:Hw5xEVjC3bRkN8sTzPqLmA4yUe6FgD9K"]}
- {name: operator, admin: true, keys: ["operator:s4GkYpQmTzVbXcRnWd:Jf7LhNqB2vKxZtCgMr8SwEyUa5PdH3oT"]}
- {name: tenant, keys: ["tenant:k3GmVtYxQeUcRbPwNs:b7NfJ2hLqXzV5cKwTgRyS9dMuE4pA8Qj"]}
zones: [{name: zone-a}, {name: zone-b}]
pools: [{name: capi}, {name: lab}]
domains: [{name: maas.sim, default: true}]
subnets:
- cidr: 10.77.0.0/22
  gateway: 10.77.0.1
  dhcp: true
  dynamic_ranges: [{start: 10.77.3.0, end: 10.77.3.254}]
  reserved_ranges: [{start: 10.77.2.0, end: 10.77.2.255}] # static addresses are from it: MAAS gives none of them by itself
images: [{name: ubuntu/jammy}, {name: u-2204-k8s-1.35, uploaded: true}]
`

// hostCores is how many cores a VM host has.
const hostCores = 16

// recordTag is on the VM host of the test of DNS records.
const recordTag = "record"

// region gives each case machines and VM hosts of its own, which carry its tag.
func region() string {
	var machines, hosts strings.Builder
	for _, c := range cases {
		for n := range c.metal {
			fmt.Fprintf(&machines, "- {name: %s, zone: zone-a, pool: capi, cores: 8, memory: 16384, disks: [100], tags: [%s]}\n", metalName(c.tag, n), c.tag)
		}
		for n := range c.hosts {
			addHost(&hosts, c.tag, n)
		}
	}
	addHost(&hosts, recordTag, 0)
	return theirs + "machines:\n" + machines.String() + "vm_hosts:\n" + hosts.String()
}

func addHost(hosts *strings.Builder, tag string, n int) {
	fmt.Fprintf(hosts, "- {name: %s, zone: zone-a, pool: capi, cores: %d, memory: 65536, tags: [%s], storage_pools: [{name: default, size: 500}]}\n",
		hostName(tag, n), hostCores, tag)
}

func metalName(tag string, n int) string { return fmt.Sprintf("metal-%s-%d", tag, n) }
func hostName(tag string, n int) string  { return fmt.Sprintf("lxd-%s-%d", tag, n) }

func TestMain(m *testing.M) {
	// The cases wait for most of their time.
	if err := flag.Set("test.parallel", "32"); err != nil {
		panic(err)
	}
	os.Exit(life.Main(m, sandbox.Options{
		Region: strings.NewReader(region()), TimeScale: 300, LXD: sandbox.LXDOff,
		PollActive: 500 * time.Millisecond, PollIdle: 2 * time.Second,
		Values: map[string]any{"manager": map[string]any{"concurrency": 20, "extraArgs": []any{
			"--settle-time=10s", "--leader-elect-lease-duration=4s", "--leader-elect-renew-deadline=3s", "--leader-elect-retry-period=500ms",
		}}},
	}, &box))
}
