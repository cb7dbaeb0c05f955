// SPDX-License-Identifier: Apache-2.0

// Package guest is the operating system of simulated machines.
//
// When MAAS has deployed a machine and it is powered on, cloud-init runs with the user data from MAAS. Of the contents
// of real user data, the installer of Kubernetes matters here (kubeadm, or that of a distribution): it gets its files
// from the user data alone. It starts a workload cluster or adds to one, and behaves like the real one: it reaches the
// cluster through the API endpoint's DNS name, checks token and CA, and waits if a record is missing. A machine that loses power
// takes its API server and etcd member with it; a machine that is released is wiped.
//
// The workload clusters live in memory (Cluster API's in-memory server), except host clusters: a cluster whose first
// machine installs LXD has a real control plane behind its API servers, for the pods, the rights and the policies that
// make its nodes LXD hosts. Only etcd's members and the pods of kube-system are in memory there, too. Commands before
// and after kubeadm are not run (see Options.BeforeKubeadm), except the installation of LXD: a machine with it has a
// real daemon while it is powered on, in its own network with the machine's address.
package guest

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	cloudv1 "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/cloud/api/v1alpha1"
	inmemory "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/runtime"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/network"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/process"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// powerInterval is how often machines are checked for power that was switched without MAAS.
const powerInterval = 250 * time.Millisecond

// Machines returns MAAS's machines, the addresses of names, and where addresses are forwarded to.
type Machines interface {
	Machine(systemID string) (simulator.MachineSnapshot, bool)
	Machines() []simulator.MachineSnapshot
	Subscribe(fn func(simulator.MachineSnapshot, simulator.Change)) (cancel func())
	Lookup(host string) []netip.Addr
}

// Options are the possible software of machines, and directories.
type Options struct {
	// Logger gets what happens on machines.
	Logger logr.Logger
	// LXD has machines whose user data installs LXD run a real daemon.
	LXD bool
	// Dir is where host clusters keep their data. Default: os.TempDir().
	Dir string
	// LogDir gets logs of daemons, and for each host cluster a directory with those of its control plane.
	LogDir string
	// Audit has the API servers of host clusters keep an audit log.
	Audit bool
	// Proxy returns the address of an HTTP proxy by which the LXDs of machines reach each other. Default: they don't.
	Proxy func() string
	// BeforeKubeadm does what commands of the user data would do before kubeadm, which waits for it; commands are not run
	// otherwise. The context ends when the machine's power does.
	BeforeKubeadm func(ctx context.Context, commands []string) error
	// OnNode is called when a node of a host cluster is up, and the returned function when the machine is about to go
	// down. The context ends when the machine's power does.
	OnNode func(ctx context.Context, node Node) (down func(), err error)
}

// Guests are the operating systems of all machines of a region.
type Guests struct {
	machines    Machines
	options     Options
	logger      logr.Logger
	scheme      *runtime.Scheme
	inmemory    inmemory.Manager
	unsubscribe func()
	cancel      context.CancelFunc
	done        sync.WaitGroup

	observing sync.Mutex // changes are dealt with one after the other

	mutex    sync.Mutex
	hosts    map[string]*host    // by system id
	clusters map[string]*cluster // by the hash of the CA
}

// schemes have the kinds of workload clusters.
var schemes = []func(*runtime.Scheme) error{cloudv1.AddToScheme, corev1.AddToScheme, appsv1.AddToScheme, rbacv1.AddToScheme}

// Start gives every machine an operating system, now and whenever one is deployed.
func Start(ctx context.Context, machines Machines, options Options) (*Guests, error) {
	scheme := runtime.NewScheme()
	for _, add := range schemes {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("making the scheme of workload clusters: %w", err)
		}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	manager := inmemory.NewManager(scheme)
	if err := manager.Start(ctx); err != nil {
		cancel()
		return nil, fmt.Errorf("starting workload clusters: %w", err)
	}
	g := &Guests{
		machines: machines,
		options:  options,
		logger:   options.Logger,
		scheme:   scheme,
		inmemory: manager,
		cancel:   cancel,
		hosts:    map[string]*host{},
		clusters: map[string]*cluster{},
	}
	// Changes that come meanwhile wait until the existing machines have been checked.
	g.observing.Lock()
	defer g.observing.Unlock()
	g.unsubscribe = machines.Subscribe(func(m simulator.MachineSnapshot, change simulator.Change) {
		g.observing.Lock()
		defer g.observing.Unlock()
		g.observe(ctx, m, change.Kind == simulator.ChangeDeleted)
	})
	for _, m := range machines.Machines() {
		g.observe(ctx, m, false)
	}
	g.done.Go(func() { g.watchPower(ctx) })
	return g, nil
}

// observe applies a change of a machine to its operating system.
func (g *Guests) observe(ctx context.Context, m simulator.MachineSnapshot, deleted bool) {
	if ctx.Err() != nil {
		return
	}
	installed := !deleted && installedIn(m)
	g.mutex.Lock()
	h := g.hosts[m.SystemID]
	switch {
	case h == nil && installed:
		h = newHost(g, m)
		g.hosts[m.SystemID] = h
	case h != nil && !installed:
		delete(g.hosts, m.SystemID)
	}
	g.mutex.Unlock()
	switch {
	case h == nil:
	case !installed:
		g.logger.Info("The disk is wiped", "machine", m.Hostname)
		h.powerOff()
		h.leave()
	case m.Running:
		h.powerOn(ctx)
	default:
		h.powerOff()
	}
}

// watchPower detects power that is switched outside of MAAS, for which MAAS sends no notification.
func (g *Guests) watchPower(ctx context.Context) {
	for process.Pause(ctx, powerInterval) {
		g.observing.Lock()
		for _, h := range g.all() {
			if m, ok := g.machines.Machine(h.systemID); ok && installedIn(m) {
				g.observe(ctx, m, false)
			}
		}
		g.observing.Unlock()
	}
}

func (g *Guests) all() []*host {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	return slices.Collect(maps.Values(g.hosts))
}

// installedIn reports whether the machine's disk holds an operating system that boots: from the end of the deployment
// to its release. A deployed machine that is marked broken, locked or rebooted to the rescue system still has its disk.
func installedIn(m simulator.MachineSnapshot) bool {
	if len(m.UserData) == 0 {
		return false
	}
	return slices.Contains([]string{"Deployed", "Broken", "Rescue mode", "Entering rescue mode", "Exiting rescue mode"}, m.Status)
}

// Stop ends all workload clusters.
func (g *Guests) Stop() error {
	g.unsubscribe()
	g.cancel()
	for _, h := range g.all() {
		h.powerOff()
		h.leave()
	}
	return process.AwaitEnd("guests", &g.done)
}

// Dial connects to a port of the machine that has an address. API servers listen, and what LXD's network has.
func (g *Guests) Dial(ctx context.Context, address netip.AddrPort) (net.Conn, error) {
	server := g.serverAt(address, apiPort)
	if server == nil {
		if d := g.lxdAt(address.Addr()); d != nil {
			return d.Dial(ctx, "tcp", address.String())
		}
		return nil, fmt.Errorf("connecting to %s: nothing listens there: %w", address, network.ErrUnreachable)
	}
	var dialer net.Dialer
	return dialer.DialContext(ctx, "tcp", server.address())
}

// apiPort and joinPort are what a control plane's machine listens on.
func apiPort(m *member) uint16  { return m.port }
func joinPort(m *member) uint16 { return m.joinPort }

// serverAt is the control plane that runs at an address, where a port of it is the address's.
func (g *Guests) serverAt(address netip.AddrPort, port func(*member) uint16) *apiServer {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	for _, h := range g.hosts {
		server := h.apiServer()
		if server == nil || port(server.member) != address.Port() {
			continue
		}
		m, ok := g.machines.Machine(h.systemID)
		if ok && m.Running && (slices.Contains(m.Addresses, address.Addr()) || h.announces(address.Addr())) {
			return server
		}
	}
	return nil
}

// resolve finds a running control plane behind an endpoint, as a client on any machine would.
func (g *Guests) resolve(endpoint string, port func(*member) uint16) (*apiServer, error) {
	hostname, number, err := splitEndpoint(endpoint)
	if err != nil {
		return nil, err
	}
	addresses := g.machines.Lookup(hostname)
	if literal, err := netip.ParseAddr(hostname); err == nil && len(addresses) == 0 {
		addresses = []netip.Addr{literal}
	}
	if len(addresses) == 0 {
		return nil, fmt.Errorf("%s: no such name: %w", hostname, network.ErrUnreachable)
	}
	for _, address := range addresses {
		if server := g.serverAt(netip.AddrPortFrom(address, number), port); server != nil {
			return server, nil
		}
	}
	return nil, fmt.Errorf("%s: no API server answers at %v: %w", endpoint, addresses, network.ErrUnreachable)
}
