// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// errKernel is for machines whose network the kernel, which all share, can't have.
var errKernel = errors.New("this computer's kernel can't have it")

// optional are the kinds of interfaces that a kernel may lack, and how one is made.
var optional = map[string][]string{
	"bond": {"type", "bond"},
	"vlan": {"link", bridge, "type", "vlan", "id", "1"},
}

// checkKernel returns an error that names an interface of the machine that the kernel can't make: nothing could bring
// it up.
func (n *Nodes) checkKernel(ctx context.Context, m simulator.MachineSnapshot) error {
	for _, nic := range m.Interfaces {
		how, isOptional := optional[nic.Kind]
		if !isOptional {
			continue
		}
		const probe = "probe"
		if err := n.daemon.Run(ctx, "ip", slices.Concat([]string{"link", "add", "name", probe}, how)...); err != nil {
			return fmt.Errorf("the %s %s of %s: %w: %w", nic.Kind, nic.Name, m.Hostname, errKernel, err)
		}
		if err := n.daemon.Run(ctx, "ip", "link", "delete", probe); err != nil {
			return err
		}
	}
	return nil
}

// cards are the machine's network cards, as devices of a container. netplan makes the other interfaces of them.
func cards(m simulator.MachineSnapshot, bridge string) map[string]map[string]string {
	all := map[string]map[string]string{}
	for _, nic := range m.Interfaces {
		if nic.Kind == simulator.NetworkPhysical {
			all[nic.Name] = map[string]string{"type": "nic", "nictype": "bridged", "parent": bridge, "name": nic.Name, "hwaddr": nic.MAC}
		}
	}
	return all
}
