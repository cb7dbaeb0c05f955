// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/guest"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
)

// podNetwork returns the interfaces that flannel makes with its vxlan backend. node, from 0 to 255, distinguishes the nodes'
// own subnets.
func podNetwork(node byte) []lxd.Interface {
	return []lxd.Interface{
		{Name: "flannel.1", Address: ofNode(node, 0, 32)},
		{Name: "cni0", Bridge: true, Address: ofNode(node, 1, 24)},
		{Name: "veth1f0a2b3c", In: "cni0"},
	}
}

func ofNode(node, d byte, bits int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, node, d}), bits)
}

func startPodNetwork(ctx context.Context, node guest.Node) error {
	for _, i := range podNetwork(nodeNumber(node)) {
		if err := node.LXD.AddInterface(ctx, i); err != nil {
			return fmt.Errorf("starting the pod network of %s: %w", node.Name, err)
		}
	}
	return nil
}

func nodeNumber(node guest.Node) byte {
	address := node.Address.AsSlice()
	if len(address) == 0 {
		return 0
	}
	return address[len(address)-1]
}
