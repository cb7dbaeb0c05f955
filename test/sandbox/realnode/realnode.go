// SPDX-License-Identifier: Apache-2.0

// Package realnode gives machines of the simulated MAAS a real operating system: a system container of LXD with systemd,
// cloud-init, containerd, kubelet and kubeadm, which runs the user data as it is. It is an alternative to package guest.
//
// A machine's disk is a copy of a prepared container with the files that MAAS's installer leaves, or what LXD tells a VM;
// its network cards have the MAC addresses that MAAS knows, on a bridge in a network of their own. There are MAAS, with its metadata, and
// a DNS server that responds with MAAS's names. Nothing leaves this machine, and no setting of its kernel is changed.
package realnode

import (
	"context"
	_ "embed" // the pod network
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/canonical/lxd/shared/api"
	"github.com/go-logr/logr"

	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/guest"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

const (
	nodePrefix = "node-"
	// powerInterval is how often machines are checked for power that was switched without MAAS.
	powerInterval = time.Second
	bridge        = "br0"
	// regionPort and rackPort are where MAAS's controllers listen.
	regionPort, rackPort = 5240, 5248
	readHeaderTimeout    = eventually.Limit
	// poolSize bounds what all disks take; they share what is the same.
	poolSize = "60GiB"
)

// PodNetwork is the manifest of a pod network for clusters of real nodes: what a user would install.
//
//go:embed podnetwork.yaml
var PodNetwork []byte

// Greeters is the manifest of two pods on two nodes, and of the Service greeter of both, in the namespace default.
//
//go:embed greeters.yaml
var Greeters []byte

// Machines are MAAS's.
type Machines interface {
	guest.Machines
	// InstalledFiles are what cloud-init finds on a machine's disk, by path: left by MAAS's installer, or the seed of a VM
	// that LXD made from an image.
	InstalledFiles(systemID, metadataURL string) (map[string][]byte, error)
}

// Options are where nodes live.
type Options struct {
	Logger logr.Logger
	// Bin is the directory of tools, in the repository.
	Bin string
	// Initializer is the program of InitializerImage. "": there is no such image, and machines can't install LXD.
	Initializer string
	// LogFile is LXD's.
	LogFile string
	// Gateway is the address of the router in the machines' subnet, and MAAS that of MAAS and its DNS server.
	Gateway netip.Prefix
	MAAS    netip.Addr
	// Handler serves MAAS there.
	Handler http.Handler
}

// Nodes are the operating systems of all machines.
type Nodes struct {
	machines    Machines
	options     Options
	daemon      *lxd.Daemon
	work        string
	containers  containers
	disk        *disk
	config      map[string]string
	store       map[string]map[string]string // the devices of machines that may install LXD
	dns         net.PacketConn
	maas        *http.Server
	unsubscribe func()
	cancel      context.CancelFunc
	done        sync.WaitGroup

	mutex sync.Mutex
	kicks map[string]chan struct{}
}

// Start gives machines an operating system, now and whenever one is deployed. It prepares their disks first, which
// takes a minute.
func Start(ctx context.Context, machines Machines, options Options) (*Nodes, error) {
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	n := &Nodes{machines: machines, options: options, cancel: cancel, unsubscribe: func() {}, kicks: map[string]chan struct{}{}}
	if err := n.start(ctx, running); err != nil {
		return nil, errors.Join(err, n.Stop())
	}
	return n, nil
}

// start prepares everything within ctx, and follows machines until running ends.
func (n *Nodes) start(ctx, running context.Context) error {
	err := removeCgroups(cgroupRoot)
	if err != nil {
		return err
	}
	if n.daemon, err = lxd.Start(ctx, lxd.Options{LogFile: n.options.LogFile, Bridge: bridge, Address: n.options.Gateway}); err != nil {
		return err
	}
	// With LXD's directory, it goes even if this program is killed.
	n.work = filepath.Join(n.daemon.Dir(), "nodes")
	if err := os.Mkdir(n.work, 0o755); err != nil {
		return err
	}
	client, err := lxd.Connect(context.WithoutCancel(running), n.daemon.Socket()) // Stop still takes machines away.
	if err != nil {
		return err
	}
	n.containers = containers{client}
	if err := n.startMAAS(ctx); err != nil {
		return err
	}
	if err := n.prepare(ctx); err != nil {
		return err
	}
	n.unsubscribe = n.machines.Subscribe(func(m simulator.MachineSnapshot, _ simulator.Change) { n.kick(running, m.SystemID) })
	n.done.Go(func() { n.watchPower(running) })
	return nil
}

// startMAAS gives the network MAAS, with its DNS server, and the way to it.
func (n *Nodes) startMAAS(ctx context.Context) error {
	address := netip.PrefixFrom(n.options.MAAS, n.options.Gateway.Bits())
	if err := n.daemon.Run(ctx, "ip", "address", "add", address.String(), "dev", bridge); err != nil {
		return err
	}
	if err := n.daemon.Run(ctx, "sysctl", "-qw", "net.ipv4.ip_forward=1"); err != nil {
		return err
	}
	conn, err := n.daemon.ListenPacket(ctx, "udp", netip.AddrPortFrom(n.options.MAAS, 53).String())
	if err != nil {
		return fmt.Errorf("starting the machines' DNS: %w", err)
	}
	n.dns = conn
	n.done.Go(func() { serveDNS(conn, n.machines.Lookup) })
	n.maas = &http.Server{Handler: n.options.Handler, ReadHeaderTimeout: readHeaderTimeout}
	for _, port := range []uint16{regionPort, rackPort} {
		listener, err := n.daemon.Listen(ctx, "tcp", netip.AddrPortFrom(n.options.MAAS, port).String())
		if err != nil {
			return fmt.Errorf("starting MAAS in the machines' network: %w", err)
		}
		n.done.Go(func() { _ = n.maas.Serve(listener) })
	}
	return nil
}

// metadataURL is where machines find their metadata: as in reality, at the rack controller.
func (n *Nodes) metadataURL() string {
	return fmt.Sprintf("http://%s/MAAS/metadata/", netip.AddrPortFrom(n.options.MAAS, rackPort))
}

func (n *Nodes) prepare(ctx context.Context) error {
	began := time.Now()
	err := n.containers.CreateStoragePool(api.StoragePoolsPost{
		Name: pool, Driver: "btrfs", StoragePoolPut: api.StoragePoolPut{Config: map[string]string{"size": poolSize}},
	})
	if err != nil {
		return fmt.Errorf("making the pool of machines' disks: %w", err)
	}
	tunables := filepath.Join(n.work, "tunables")
	if err := os.Mkdir(tunables, 0o755); err != nil {
		return err
	}
	for name, value := range kubeletTunables {
		if err := os.WriteFile(filepath.Join(tunables, strings.ReplaceAll(name, "/", ".")), []byte(value+"\n"), 0o600); err != nil {
			return err
		}
	}
	n.config = settings(tunables)
	if err := n.addStore(); err != nil {
		return err
	}
	if n.disk, err = newDisk(ctx, n.containers, n.options, n.work); err != nil {
		return err
	}
	if err := n.disk.prepare(ctx, n.config); err != nil {
		return fmt.Errorf("preparing machines' disks: %w", err)
	}
	n.options.Logger.Info("Machines' disks are prepared", "took", time.Since(began).Round(time.Second))
	return nil
}

// Run runs a shell script on a machine, as root, and returns its output.
func (n *Nodes) Run(ctx context.Context, systemID, script string) ([]byte, error) {
	return n.containers.run(ctx, containerOf(systemID), script)
}

// Shell returns the command that opens a shell on a machine.
func (n *Nodes) Shell(systemID string) string {
	return fmt.Sprintf("LXD_DIR=%s lxc exec %s -- bash", n.daemon.Dir(), containerOf(systemID))
}

// containerOf names the container of a machine.
func containerOf(systemID string) string { return nodePrefix + systemID }

func (n *Nodes) watchPower(ctx context.Context) {
	for {
		for _, m := range n.machines.Machines() {
			n.kick(ctx, m.SystemID)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(powerInterval):
		}
	}
}

// kick has a machine looked at, one look at a time.
func (n *Nodes) kick(ctx context.Context, id string) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if ctx.Err() != nil {
		return
	}
	if n.kicks[id] == nil {
		kicks := make(chan struct{}, 1)
		n.kicks[id] = kicks
		n.done.Go(func() { n.follow(ctx, id, kicks) })
	}
	select {
	case n.kicks[id] <- struct{}{}:
	default:
	}
}

func (n *Nodes) follow(ctx context.Context, id string, kicks <-chan struct{}) {
	h := &hardware{nodes: n, name: containerOf(id), logger: n.options.Logger.WithValues("systemID", id)}
	defer h.discard(context.WithoutCancel(ctx))
	said := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-kicks:
		}
		m, ok := n.machines.Machine(id)
		err := h.apply(ctx, m, ok && hasSystem(m))
		if err != nil && ctx.Err() == nil && err.Error() != said {
			said = err.Error()
			h.logger.Error(err, "A machine's hardware", "machine", m.Hostname)
		}
	}
}

// hasSystem reports whether the machine's disk holds an operating system that boots.
func hasSystem(m simulator.MachineSnapshot) bool {
	return len(m.UserData) > 0 &&
		slices.Contains([]string{"Deployed", "Broken", "Rescue mode", "Entering rescue mode", "Exiting rescue mode"}, m.Status)
}

// Dial connects to a machine.
func (n *Nodes) Dial(ctx context.Context, address netip.AddrPort) (net.Conn, error) {
	return n.daemon.Dial(ctx, "tcp", address.String())
}

// Stop ends all machines, and removes what they left.
func (n *Nodes) Stop() error {
	n.unsubscribe()
	n.mutex.Lock()
	n.cancel()
	n.mutex.Unlock()
	var err error
	if n.dns != nil {
		err = n.dns.Close()
	}
	if n.maas != nil {
		err = errors.Join(err, n.maas.Close())
	}
	n.done.Wait()
	if n.daemon != nil {
		err = errors.Join(err, n.daemon.Stop(), removeCgroups(cgroupRoot))
	}
	return err
}
