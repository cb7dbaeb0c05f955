// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/netns"
)

// Run runs a program on the node, such as ip, and waits for it.
func (d *Daemon) Run(ctx context.Context, program string, args ...string) error {
	d.mu.Lock()
	n := d.node
	d.mu.Unlock()
	if n == nil {
		return fmt.Errorf("running %s: the node is down: %w", program, net.ErrClosed)
	}
	cmd := exec.CommandContext(ctx, "nsenter", append(n.namespaces(), append([]string{program}, args...)...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("running %s %q on the node: %w: %s", program, args, err, out)
	}
	return nil
}

// ListenPacket listens in the node's network, for as long as that is there.
func (d *Daemon) ListenPacket(ctx context.Context, network, address string) (net.PacketConn, error) {
	n, err := d.running("listen", network, address)
	if err != nil {
		return nil, err
	}
	return netns.ListenPacket(ctx, n.network, network, address)
}

// Listen listens in the node's network, for as long as that is there.
func (d *Daemon) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	n, err := d.running("listen", network, address)
	if err != nil {
		return nil, err
	}
	return netns.Listen(ctx, n.network, network, address)
}

// Interface is an interface that a CNI plugin makes on a node.
type Interface struct {
	Name string
	// MAC is "" for the kernel's choice.
	MAC string
	// Bridge makes a bridge. Other interfaces are ends of a pair, whose other end is in a pod.
	Bridge bool
	// In is the bridge that it is a port of, or "".
	In string
	// Address is the node's on it, or none.
	Address netip.Prefix
}

// interfaceScript makes an Interface. $1 is the file with the id of the process in whose network the other ends are.
const interfaceScript = `set -eu
if [ "$4" = bridge ]; then
	ip link add "$2" ${3:+address "$3"} type bridge
else
	ip link add "$2" ${3:+address "$3"} type veth peer name "$2" netns "$(cat "$1")"
fi
[ -z "$5" ] || ip link set "$2" master "$5"
[ -z "$6" ] || ip address add "$6" dev "$2"
ip link set "$2" up
`

// AddInterface makes an interface on the node, until it loses its power.
func (d *Daemon) AddInterface(ctx context.Context, i Interface) error {
	kind, address := "veth", ""
	if i.Bridge {
		kind = "bridge"
	}
	if i.Address.IsValid() {
		address = i.Address.String()
	}
	return d.Run(ctx, "sh", "-c", interfaceScript, "sh", filepath.Join(d.base, outsideFile), i.Name, i.MAC, kind, i.In, address)
}
