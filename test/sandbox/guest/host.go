// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/process"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// retryInterval is how often an installer tries again to reach the cluster.
const retryInterval = 200 * time.Millisecond

// host is one installation of an operating system, from the end of a deployment to the machine's release.
type host struct {
	guests   *Guests
	systemID string
	logger   logr.Logger

	// power is held while the machine is switched on or off.
	power sync.Mutex
	off   context.CancelFunc // ends what runs, nil while powered off
	ran   chan struct{}      // closed when all of it has ended
	// badDisk keeps the machine from booting.
	badDisk bool

	mutex  sync.Mutex
	member *member // this machine as a part of its workload cluster, nil before it is installed
	server *apiServer
	// virtualIP is announced while the API server runs; zero: none.
	virtualIP netip.Addr
	lxd       *lxd.Daemon // nil before the first boot has installed it
}

func newHost(g *Guests, m simulator.MachineSnapshot) *host {
	return &host{guests: g, systemID: m.SystemID, logger: g.logger.WithValues("machine", m.Hostname, "systemID", m.SystemID)}
}

// powerOn boots the machine, unless it runs.
func (h *host) powerOn(ctx context.Context) {
	h.power.Lock()
	defer h.power.Unlock()
	if h.off != nil {
		return
	}
	if h.badDisk {
		h.runNothing()
		return
	}
	ctx, h.off = context.WithCancel(ctx)
	ran := make(chan struct{})
	h.ran = ran
	h.guests.done.Go(func() {
		defer close(ran)
		if err := h.run(ctx); err != nil && ctx.Err() == nil {
			h.logger.Error(err, "cloud-init failed; the machine stays as it is")
		}
	})
}

// powerOff cuts the power, unless it is off, and returns when nothing runs any more.
func (h *host) powerOff() {
	h.power.Lock()
	defer h.power.Unlock()
	if h.off == nil {
		return
	}
	h.off()
	<-h.ran
	h.off, h.ran = nil, nil
}

// run is a boot: the first one joins or makes a cluster, later ones bring the services back.
func (h *host) run(ctx context.Context) error {
	m, ok := h.guests.machines.Machine(h.systemID)
	if !ok {
		return nil
	}
	data, err := parseUserData(m.UserData, metadataOf(m))
	if err != nil {
		return err
	}
	defer h.stopLXD()
	if h.guests.options.LXD && installsLXD(data) {
		// Commands that fail before kubeadm do not keep it from running.
		if err := h.startLXD(ctx, m); err != nil && ctx.Err() == nil {
			h.logger.Error(err, "Starting LXD")
		}
	}
	if h.joined() == nil {
		if err := h.cloudInit(ctx, m, data); err != nil {
			return err
		}
	}
	if member := h.joined(); member != nil {
		return h.runNode(ctx, member, m)
	}
	<-ctx.Done()
	return nil
}

// runNode is the node's life from a boot to the loss of power.
func (h *host) runNode(ctx context.Context, member *member, m simulator.MachineSnapshot) error {
	defer func() {
		h.stopServer()
		if err := member.cluster.setDown(member); err != nil {
			h.logger.Error(err, "Marking the node as not ready")
		}
	}()
	if err := h.startServer(); err != nil {
		return err
	}
	if err := h.awaitEndpoint(ctx, member); err != nil {
		return err
	}
	if err := member.cluster.setUp(member); err != nil {
		return err
	}
	h.logger.Info("The node runs", "node", member.node)
	defer h.nodeUp(ctx, member, m)()
	<-ctx.Done()
	return nil
}

// cloudInit runs the installer that the user data contains, if any.
func (h *host) cloudInit(ctx context.Context, m simulator.MachineSnapshot, data *userData) error {
	run, err := readInstaller(data)
	if errors.Is(err, errNoInstaller) {
		h.logger.Info("The user data does not install Kubernetes")
		return nil
	}
	if err != nil {
		return err
	}
	if before := h.guests.options.BeforeKubeadm; before != nil {
		if err := before(ctx, data.commands); err != nil {
			return fmt.Errorf("running the commands before kubeadm: %w", err)
		}
	}
	h.logger.Info("The installer runs", "command", run.String(), "controlPlane", run.controlPlane())
	var joined *member
	if run.founds() {
		joined, err = h.guests.found(ctx, run, m, installsLXD(data))
	} else {
		joined, err = h.join(ctx, run, m)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", run, err)
	}
	announced, err := virtualIP(ctx, data, run.founds())
	if err != nil {
		return err
	}
	h.mutex.Lock()
	h.member, h.virtualIP = joined, announced
	h.mutex.Unlock()
	return nil
}

// join tries until the cluster can be reached, as all installers do. What the cluster refuses is refused again, and is
// logged when it changes.
func (h *host) join(ctx context.Context, run installer, m simulator.MachineSnapshot) (*member, error) {
	said := ""
	for {
		joined, err := h.guests.tryJoin(ctx, run, m)
		if err == nil {
			return joined, nil
		}
		if err.Error() != said {
			said = err.Error()
			h.logger.Info("The installer waits", "command", run.String(), "reason", said)
		}
		if !process.Pause(ctx, retryInterval) {
			return nil, ctx.Err()
		}
	}
}

// awaitEndpoint waits until the API endpoint's name leads to the cluster, if the kubelet registers its node through it.
func (h *host) awaitEndpoint(ctx context.Context, m *member) error {
	if m.cluster.endpoint == "" {
		return nil
	}
	said := ""
	for {
		server, err := h.guests.resolve(m.cluster.endpoint, apiPort)
		if err == nil && server.member.cluster == m.cluster {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("%s leads to another cluster", m.cluster.endpoint)
		}
		if err.Error() != said {
			said = err.Error()
			h.logger.Info("The kubelet can't register its node", "reason", said)
		}
		if !process.Pause(ctx, retryInterval) {
			return ctx.Err()
		}
	}
}

// startServer brings up the API server and the etcd member of a control plane.
func (h *host) startServer() error {
	member := h.joined()
	if !member.controlPlane {
		return nil
	}
	server, err := serve(member)
	if err != nil {
		return err
	}
	h.mutex.Lock()
	h.server = server
	h.mutex.Unlock()
	member.setServer(server)
	return nil
}

func (h *host) stopServer() {
	h.mutex.Lock()
	server, member := h.server, h.member
	h.server = nil
	h.mutex.Unlock()
	if server == nil {
		return
	}
	member.setServer(nil)
	if err := server.stop(); err != nil {
		h.logger.Error(err, "Stopping the API server")
	}
}

// leave ends the installation. Other components are not informed, as in reality: the node and the etcd member stay
// behind until they are removed. A cluster without machines is gone.
func (h *host) leave() {
	h.wipeLXD()
	if m := h.joined(); m != nil {
		h.guests.drop(m)
	}
}

func (h *host) joined() *member {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return h.member
}

func (h *host) apiServer() *apiServer {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return h.server
}

// announces reports whether the machine would take the virtual IP, if no other did.
func (h *host) announces(address netip.Addr) bool {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return h.virtualIP == address
}
