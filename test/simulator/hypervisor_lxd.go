// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/canonical/lxd/shared/api"

	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdapi"
)

// Timeouts of MAAS's connections to LXD, in real time.
const (
	lxdTimeout     = 2 * time.Minute // for a whole order, as in MAAS
	lxdDialTimeout = 5 * time.Second
	lxdPowerWait   = 30 // seconds, as in pylxd
)

// lxdPowerPauses are the pauses between the attempts to switch a VM. MAAS takes 85 seconds in all.
var lxdPowerPauses = []time.Duration{
	200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond, 1600 * time.Millisecond, 3200 * time.Millisecond,
}

// LXDUserAgent is what MAAS calls itself in its calls to LXD: pylxd sends them with this library.
const LXDUserAgent = "python-requests/2.25.1"

// lxdTrusted is LXD's word for a client whose certificate it knows.
const lxdTrusted = "trusted"

// lxdExtensions are the extensions that MAAS requires of an LXD host.
var lxdExtensions = []string{"custom_block_volumes", "projects", "virtual-machines"}

// lxdHost is a real LXD, driven over HTTPS as MAAS's LXD driver drives it (provisioningserver/drivers/pod/lxd.py): with
// only the power parameters, and without verifying the server.
type lxdHost struct {
	sim *Simulator
	// id is the VM host's, for MAAS's messages.
	id                                int
	address, project                  string
	certificate, privateKey, password string
	link                              *hostLink
}

// hostLink is the connection to a real host, which a tester can break.
type hostLink struct {
	mu                  sync.Mutex
	unreachable, losing bool
	vms                 map[string]*sync.Mutex // by project and name
}

// hold lets one order at a time change a VM, until release is called. Half a second of LXD would otherwise be minutes
// of a fast region's time, and orders would overlap that never do in reality.
func (l *hostLink) hold(project, name string) (release func()) {
	l.mu.Lock()
	key := project + "/" + name
	if l.vms == nil {
		l.vms = map[string]*sync.Mutex{}
	}
	if l.vms[key] == nil {
		l.vms[key] = &sync.Mutex{}
	}
	vm := l.vms[key]
	l.mu.Unlock()
	vm.Lock()
	return vm.Unlock
}

func (l *hostLink) set(unreachable, losing bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unreachable, l.losing = unreachable, losing
}

func (l *hostLink) state() (unreachable, losing bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unreachable, l.losing
}

// remote reports whether calls go over the network and take real time.
func remote(hv hypervisor) bool {
	_, ok := hv.(*lxdHost)
	return ok
}

// hypervisorAt returns the hypervisor at power parameters: a simulated host, or the LXD at their address. The caller
// holds s.mu.
func (s *Simulator) hypervisorAt(params map[string]string, id int) hypervisor {
	key, project := hostKey(params["power_address"]), orDefault(params["project"], defaultProject)
	if lab := s.lab[key]; lab != nil {
		return labProject{lab, project}
	}
	if s.links[key] == nil {
		s.links[key] = &hostLink{}
	}
	return &lxdHost{
		sim: s, id: id, address: "https://" + key, project: project, link: s.links[key],
		certificate: params["certificate"], privateKey: params["key"], password: params["password"],
	}
}

// lxdSession is a connection that LXD trusts.
type lxdSession struct {
	*lxdapi.Client
	server  *api.Server
	project string
	patched bool
}

// knowsDriver reports whether this LXD has what the driver asks for.
func (c *lxdSession) knowsDriver() bool { return c.patched || lxdapi.TraitsOf(c.server).TakesMAAS() }

// session connects, unless a tester has broken the link, and calls fn.
func (h *lxdHost) session(fn func(*lxdSession) error) error {
	if unreachable, _ := h.link.state(); unreachable {
		return h.connectionFailed(errors.New("broken by the tester"))
	}
	return h.connect(fn)
}

// connect connects, as MAAS does for each order, and calls fn.
func (h *lxdHost) connect(fn func(*lxdSession) error) error {
	ctx, cancel := context.WithTimeout(h.sim.ctx, lxdTimeout)
	defer cancel()
	if h.certificate == "" || h.privateKey == "" {
		return h.failed("No certificates available")
	}
	if complaint := checkKeyPair(h.certificate, h.privateKey); complaint != "" {
		return h.failed("%s", complaint)
	}
	keys, err := tls.X509KeyPair([]byte(h.certificate), []byte(h.privateKey))
	if err != nil {
		return h.failed("%v", err)
	}
	transport := dialled(keys, h.sim.opts.Dial)
	defer transport.inner.CloseIdleConnections()
	server, err := lxdapi.HTTPS(ctx, strings.TrimPrefix(h.address, "https://"), transport)
	if err != nil {
		return h.connectionFailed(err)
	}
	c, err := h.authenticate(server)
	if err != nil {
		return err
	}
	return fn(c)
}

// authenticate ensures that LXD trusts the certificate; a trust password works if this LXD still has them.
func (h *lxdHost) authenticate(server *lxdapi.Client) (*lxdSession, error) {
	c := &lxdSession{Client: server.In(h.project), project: h.project, patched: h.sim.opts.PatchedLXDDriver}
	var err error
	if c.server, _, err = server.GetServer(); err != nil {
		return nil, h.connectionFailed(err)
	}
	if c.server.Auth != lxdTrusted && h.password != "" {
		if err := server.Post(server.Path("certificates"), api.CertificatesPost{Type: api.CertificateTypeClient, Password: h.password}); err != nil {
			return nil, h.failed("Password authentication failed: %v", err)
		}
		if c.server, _, err = server.GetServer(); err != nil {
			return nil, h.connectionFailed(err)
		}
	}
	if c.server.Auth != lxdTrusted {
		return nil, h.failed("Certificate is not trusted and no password was given")
	}
	return c, nil
}

func (h *lxdHost) failed(format string, args ...any) error {
	return hostErrorf("VM Host %d: %s", h.id, fmt.Sprintf(format, args...))
}

func (h *lxdHost) connectionFailed(err error) error {
	return hostErrorf("Pod %d: Failed to connect to the LXD REST API: %v", h.id, err)
}

// dialTransport is MAAS's way to LXD.
type dialTransport struct{ inner *http.Transport }

func (d dialTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set("User-Agent", LXDUserAgent)
	return d.inner.RoundTrip(r)
}
func (d dialTransport) Transport() *http.Transport { return d.inner }

// dialled returns a transport with a client certificate. As MAAS, it verifies no server and uses no proxy.
func dialled(keys tls.Certificate, dial func(context.Context, string, string) (net.Conn, error)) dialTransport {
	return dialTransport{&http.Transport{
		TLSClientConfig: &tls.Config{
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &keys, nil },
			InsecureSkipVerify:   true,
		},
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, lxdDialTimeout)
			defer cancel()
			return dial(ctx, network, address)
		},
	}}
}

// instance returns a VM of the project.
func (h *lxdHost) instance(c *lxdSession, name string) (*api.Instance, error) {
	found, _, err := c.GetInstance(name)
	if api.StatusErrorCheck(err, http.StatusNotFound) {
		return nil, errVMMissing{hostErrorf("Pod %d: LXD VM %s not found.", h.id, name)}
	}
	return found, err
}

// errVMMissing means that there is no VM of a name.
type errVMMissing struct{ error }

// isOn returns the power from an instance's status, as MAAS does.
func (h *lxdHost) isOn(vm *api.Instance) (bool, error) {
	switch vm.StatusCode {
	case api.Started, api.Running:
		return true, nil
	case api.Stopped, api.Frozen:
		return false, nil
	}
	return false, hostErrorf("Pod %d: Unknown power status code: %d", h.id, vm.StatusCode)
}

func (h *lxdHost) Power(name string) (on bool, err error) {
	err = h.session(func(c *lxdSession) error {
		vm, err := h.instance(c, name)
		if err != nil {
			return err
		}
		on, err = h.isOn(vm)
		return err
	})
	return on, err
}

// SetPower switches a VM. If LXD accepts the order and then fails, for example to stop a VM that is starting, it is
// tried again, as MAAS does.
func (h *lxdHost) SetPower(name string, on bool) error {
	action := "stop"
	if on {
		action = "start"
	}
	defer h.link.hold(h.project, name)()
	return h.session(func(c *lxdSession) error {
		for _, pause := range lxdPowerPauses {
			vm, err := h.instance(c, name)
			if err != nil {
				return err
			}
			if is, err := h.isOn(vm); err != nil || is == on {
				return err
			}
			err = c.switchVM(name, action)
			if failed, is := errors.AsType[*lxdapi.Error](err); !is || !failed.Refused || failed.Operation == "" {
				return err
			}
			h.sim.log.V(1).Info("LXD could not switch the VM", "vm", name, "action", action, "reason", err.Error())
			select {
			case <-time.After(pause):
			case <-h.sim.ctx.Done():
			}
		}
		return hostErrorf("Failed to power %s. BMC never transitioned from %s to %s.", name, onOff(!on), onOff(on))
	})
}

func (c *lxdSession) switchVM(name, action string) error {
	return c.Put(c.Path("instances", name, "state"), api.InstanceStatePut{Action: action, Timeout: lxdPowerWait, Force: true}, "")
}

// Delete stops and deletes a VM and then its further disks, which are separate volumes.
func (h *lxdHost) Delete(name string) error {
	defer h.link.hold(h.project, name)()
	if _, losing := h.link.state(); losing {
		return h.failed("broken by the tester")
	}
	return h.session(func(c *lxdSession) error {
		vm, err := h.instance(c, name)
		if missing := (errVMMissing{}); errors.As(err, &missing) {
			return nil
		}
		if err != nil {
			return err
		}
		if vm.StatusCode != api.Stopped {
			if err := c.switchVM(name, "stop"); err != nil {
				return err
			}
		}
		if err := c.Client.Delete(c.Path("instances", name)); err != nil {
			return err
		}
		for _, device := range vm.Devices {
			if device["type"] != "disk" || device["source"] == "" {
				continue
			}
			if err := c.Client.Delete(c.Path("storage-pools", device["pool"], "volumes", "custom", device["source"])); err != nil {
				h.sim.log.Info("A VM's volume stays", "vm", name, "volume", device["source"], "pool", device["pool"], "reason", err.Error())
			}
		}
		return nil
	})
}
