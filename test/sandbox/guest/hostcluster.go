// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/controlplane"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// Node is a node of a host cluster, on a machine that runs.
type Node struct {
	// Name of the Node object.
	Name string
	// SystemID and Hostname of the machine in MAAS.
	SystemID, Hostname string
	// Address is the machine's own.
	Address netip.Addr
	// Config of the administrator of the cluster's real API server, and the CA, PEM, of that server's certificate.
	Config *rest.Config
	CA     []byte
	// LXD of the machine, or nil if none is installed or it did not start.
	LXD *lxd.Daemon
}

// backing is the real control plane behind the API servers of a host cluster.
type backing struct {
	controlPlane *controlplane.ControlPlane
	dir          string
	forwarder    *forwarder
}

// HostClusterLogs is the directory, in Options.LogDir, with the logs of the control plane of a host cluster.
func HostClusterLogs(logDir, cluster string) string {
	return filepath.Join(logDir, "host-cluster-"+cluster)
}

// startBacking runs a control plane for one cluster.
func (g *Guests) startBacking(ctx context.Context, name string) (*backing, error) {
	dir, err := os.MkdirTemp(g.options.Dir, "host-cluster-")
	if err != nil {
		return nil, fmt.Errorf("making the directory of a host cluster: %w", err)
	}
	b := &backing{dir: dir}
	logs := HostClusterLogs(g.options.LogDir, name)
	if err := os.MkdirAll(logs, 0o700); err != nil {
		return nil, errors.Join(fmt.Errorf("making the directory of a host cluster's logs: %w", err), b.stop())
	}
	b.controlPlane, err = controlplane.Start(ctx, controlplane.Options{
		Dir: filepath.Join(dir, "control-plane"), LogDir: logs, Audit: g.options.Audit,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting the control plane of a host cluster: %w", err), b.stop())
	}
	if b.forwarder, err = newForwarder(b.controlPlane.RESTConfig()); err != nil {
		return nil, errors.Join(err, b.stop())
	}
	return b, nil
}

// store is the real API server's.
func (b *backing) store(options client.Options) (store, error) {
	c, err := client.New(b.controlPlane.RESTConfig(), options)
	if err != nil {
		return nil, fmt.Errorf("making a client of the host cluster: %w", err)
	}
	return realAPI{c}, nil
}

func (b *backing) stop() error {
	var err error
	if b.forwarder != nil {
		b.forwarder.close()
	}
	if b.controlPlane != nil {
		err = b.controlPlane.Stop()
	}
	return errors.Join(err, os.RemoveAll(b.dir))
}

// nodeUp reports a node of a host cluster. The returned function is called before the node goes down.
func (h *host) nodeUp(ctx context.Context, m *member, machine simulator.MachineSnapshot) (down func()) {
	b, onNode := m.cluster.backing, h.guests.options.OnNode
	if b == nil || onNode == nil {
		return func() {}
	}
	node := Node{
		Name: m.node, SystemID: machine.SystemID, Hostname: machine.Hostname,
		Config: b.controlPlane.RESTConfig(), CA: b.controlPlane.CA(), LXD: h.daemon(),
	}
	if len(m.addresses) > 0 { // Those of its first boot: MAAS adds the addresses of pods to the machine's.
		node.Address = m.addresses[0]
	}
	down, err := onNode(ctx, node)
	if err != nil {
		if ctx.Err() == nil {
			h.logger.Error(err, "Starting what runs on the node")
		}
		return func() {}
	}
	return down
}
