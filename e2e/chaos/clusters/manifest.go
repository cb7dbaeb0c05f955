// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

// Machine describes a machine of a cluster.
type Machine struct {
	// Name of the Machine and of the MaasMachine. It is unique in the namespace.
	Name string
	// Worker is false for a control plane, whose address the API endpoint contains.
	Worker bool
	// VM is composed on an LXD host; otherwise it is bare metal.
	VM bool
	// StaticIP and Tags are as in the spec of a MaasMachine.
	StaticIP string
	Tags     []string
	// VMHost is the only host for the VM, if it is not empty.
	VMHost string
	// Cores that it has at least. Default: 2.
	Cores int
}

const defaultCores = 2

// plain returns the cluster's manifest.
func (c *Cluster) plain() sandbox.Plain { return sandbox.Plain{Key: c.Key} }

func (m Machine) plain() sandbox.PlainMachine {
	spec := fmt.Sprintf("image: u-2204-k8s-1.35, minCPU: %d, minMemory: 2048, minDiskSize: 20", cmp.Or(m.Cores, defaultCores))
	if m.VM {
		spec += ", provisioningMode: lxd"
	}
	if m.VMHost != "" {
		spec += fmt.Sprintf(", lxdConfig: {vmHost: %s}", m.VMHost)
	}
	if m.StaticIP != "" {
		spec += ", staticIP: " + m.StaticIP
	}
	if len(m.Tags) > 0 {
		spec += fmt.Sprintf(", tags: [%s]", strings.Join(m.Tags, ", "))
	}
	return sandbox.PlainMachine{Name: m.Name, Worker: m.Worker, Spec: spec}
}
