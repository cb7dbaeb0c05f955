// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"path/filepath"
	"slices"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/guest"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/kubelet"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/network"
)

// LXDMode is whether machines that install LXD run a real daemon.
type LXDMode int

const (
	// LXDAuto runs daemons where this computer can.
	LXDAuto LXDMode = iota
	// LXDRequired is an error of Start where this computer can't.
	LXDRequired
	// LXDOff leaves machines without.
	LXDOff
)

const (
	// InitializerContainer is the name of the container that makes a node an LXD host, for Kubelet.Kill.
	InitializerContainer = "lxd-initializer"
	initializerProgram   = "/lxd-initializer"
	// PoolGB is the size of the storage pool of a host, as a flavor's variable. The initializer refuses one that is
	// larger than what this computer has free: it has to be small. Two VMs with disks of VMDiskGB fit.
	PoolGB = "18"
	// VMDiskGB is the size of the disk of a VM on such a host, as a flavor's variable.
	VMDiskGB = "8"
	// snapDir is the data directory of a machine's LXD from the snap.
	snapDir = "/var/snap/lxd/common/lxd"
)

// HostNode is a node of a host cluster that runs, with what runs its pods.
type HostNode struct {
	guest.Node
	Kubelet *kubelet.Kubelet
}

// HostNodes are the nodes of host clusters whose machines are powered on, by name.
func (s *Sandbox) HostNodes() []HostNode {
	s.hostMutex.Lock()
	defer s.hostMutex.Unlock()
	return slices.SortedFunc(maps.Values(s.hostNodes), func(a, b HostNode) int { return cmp.Compare(a.Name, b.Name) })
}

// Hang stops all that runs on a machine, until its next boot; with a bad disk, until it is deployed again. The machine
// stays powered on.
func (s *Sandbox) Hang(systemID string, badDisk bool) error { return s.guests.Hang(systemID, badDisk) }

// LXD returns the daemon on a machine, also while the machine is powered off, or nil if none is installed.
func (s *Sandbox) LXD(systemID string) *lxd.Daemon {
	return s.guests.LXD(systemID)
}

// LXDs are the daemons of machines that are powered on, by hostname.
func (s *Sandbox) LXDs() map[string]*lxd.Daemon {
	daemons := s.guests.LXDs()
	maps.DeleteFunc(daemons, func(_ string, d *lxd.Daemon) bool { return !d.Running() })
	return daemons
}

// withLXD reports whether machines have LXD.
func (s *Sandbox) withLXD() (bool, error) {
	if s.options.LXD == LXDOff {
		return false, nil
	}
	err := lxd.Missing()
	if err != nil && s.options.LXD == LXDRequired {
		return false, err
	}
	if err != nil {
		s.logger.Info("Machines have no LXD", "reason", err.Error())
	}
	return err == nil, nil
}

// runHostNode runs the pods of a node of a host cluster, until stop is called.
func (s *Sandbox) runHostNode(ctx context.Context, node guest.Node) (stop func(), err error) {
	program, err := s.initializer().wait(ctx)
	if err != nil {
		return nil, err
	}
	options := kubelet.Options{
		Config: node.Config, CA: node.CA, Namespace: Namespace,
		NodeName: node.Name, NodeExists: true, HostIP: node.Address.String(),
		Programs: map[string]string{initializerProgram: program},
		Dir:      filepath.Join(s.dir, "pods-"+node.SystemID), LogDir: s.LogDir,
		Logger: s.logger.WithName("kubelet").WithValues("node", node.Name),
	}
	if node.LXD != nil {
		if err := startPodNetwork(ctx, node); err != nil {
			return nil, err
		}
		options.HostPaths = map[string]string{snapDir: node.LXD.Dir()}
	}
	k, err := kubelet.Start(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("starting the kubelet of %s: %w", node.Name, err)
	}
	s.hostMutex.Lock()
	s.hostNodes[node.SystemID] = HostNode{Node: node, Kubelet: k}
	s.hostMutex.Unlock()
	return func() {
		s.hostMutex.Lock()
		delete(s.hostNodes, node.SystemID)
		s.hostMutex.Unlock()
		if err := k.Stop(); err != nil {
			s.logger.Error(err, "Stopping a kubelet", "node", node.Name)
		}
	}, nil
}

// initializer returns the program of the DaemonSet, which is built when the first node needs it.
func (s *Sandbox) initializer() *build {
	s.hostMutex.Lock()
	defer s.hostMutex.Unlock()
	if s.initializerBuild == nil {
		s.initializerBuild = s.buildProgram(context.Background(), "lxd-initializer")
	}
	return s.initializerBuild
}

// startedInitializerBuild is the build, or nil where no node has needed it.
func (s *Sandbox) startedInitializerBuild() *build {
	s.hostMutex.Lock()
	defer s.hostMutex.Unlock()
	return s.initializerBuild
}

var errNoNetwork = errors.New("the machines' network is not there yet")

// dialMachine is how the region reaches LXD on machines: by their addresses and names alone. No machine has an address of
// the loopback interface: an LXD there belongs to the test.
func (s *Sandbox) dialMachine(ctx context.Context, protocol, address string) (net.Conn, error) {
	if to, err := netip.ParseAddrPort(address); err == nil && to.Addr().IsLoopback() {
		return new(net.Dialer).DialContext(ctx, protocol, address)
	}
	machines := s.machines.Load()
	if machines == nil {
		return nil, &net.OpError{Op: "dial", Net: protocol, Err: fmt.Errorf("%w: %w", network.ErrUnreachable, errNoNetwork)}
	}
	return machines.Dial(ctx, address)
}
