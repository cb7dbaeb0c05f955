// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/guest"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
)

// PodNetwork returns the interfaces that a node's CNI plugin makes on the node. node, from 0 to 255, distinguishes the
// nodes' own subnets.
type PodNetwork func(node byte) []lxd.Interface

// calicoMAC is that of each interface that Calico makes for a pod, on any node.
const calicoMAC = "ee:ee:ee:ee:ee:ee"

// Flannel is flannel with its vxlan backend.
func Flannel(node byte) []lxd.Interface {
	return []lxd.Interface{
		{Name: "flannel.1", Address: ofNode(10, 244, node, 0, 32)},
		{Name: "cni0", Bridge: true, Address: ofNode(10, 244, node, 1, 24)},
		{Name: "veth1f0a2b3c", In: "cni0"},
	}
}

// Cilium is Cilium with vxlan.
func Cilium(node byte) []lxd.Interface {
	return []lxd.Interface{
		{Name: "cilium_net"}, {Name: "cilium_host", Address: ofNode(10, 0, node, 1, 32)}, {Name: "cilium_vxlan"}, {Name: "lxc_health"}, {Name: "lxc1f0a2b3c4d5e"},
	}
}

// Calico is Calico with its default, vxlan.
func Calico(node byte) []lxd.Interface { return calico(node, "cali") }

// CalicoVeth is Calico whose interfaces are named as other veths are (FELIX_INTERFACEPREFIX=veth).
func CalicoVeth(node byte) []lxd.Interface { return calico(node, "veth") }

func calico(node byte, prefix string) []lxd.Interface {
	return []lxd.Interface{
		{Name: "vxlan.calico", Address: ofNode(192, 168, node, 0, 32)},
		{Name: prefix + "1f0a2b3c4d5", MAC: calicoMAC}, {Name: prefix + "6e7f8a9b0c1", MAC: calicoMAC},
	}
}

func ofNode(a, b, node, d byte, bits int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{a, b, node, d}), bits)
}

// SetPodNetwork chooses the CNI plugin of nodes of host clusters that start from now on.
func (s *Sandbox) SetPodNetwork(network PodNetwork) {
	s.hostMutex.Lock()
	defer s.hostMutex.Unlock()
	s.podNetwork = network
}

// ChangePodNetwork replaces the CNI plugin of a node that runs.
func (s *Sandbox) ChangePodNetwork(ctx context.Context, node HostNode, from, to PodNetwork) error {
	for _, i := range from(nodeNumber(node.Node)) {
		if err := node.LXD.RemoveInterface(ctx, i.Name); err != nil {
			return fmt.Errorf("changing the pod network of %s: %w", node.Name, err)
		}
	}
	return startPodNetwork(ctx, node.Node, to)
}

func startPodNetwork(ctx context.Context, node guest.Node, network PodNetwork) error {
	for _, i := range network(nodeNumber(node)) {
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
