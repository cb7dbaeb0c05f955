// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// installCommand is one of a package manager that names LXD: `snap install lxd`, `apt-get install -y lxd`.
var installCommand = regexp.MustCompile(`\b(?:snap|apt|apt-get)\b[^\n;&|]*\sinstall\s(?:[^\n;&|]*\s)?lxd(?:[\s;&|=/]|$)`)

// InstallsLXD reports whether a machine has user data that installs LXD.
func InstallsLXD(m simulator.MachineSnapshot) bool {
	data, err := parseUserData(m.UserData, metadataOf(m))
	return err == nil && installsLXD(data)
}

// installsLXD reports whether the user data installs LXD, in a command or in a file that a command runs.
func installsLXD(data *userData) bool {
	for _, command := range data.commands {
		if installCommand.MatchString(command) {
			return true
		}
		for file, content := range data.files {
			if slices.Contains(words.FindAllString(command, -1), file) && installCommand.MatchString(content) {
				return true
			}
		}
	}
	return false
}

var words = regexp.MustCompile(`[^\s;&|]+`)

// startLXD boots the machine's LXD, which the first boot installs.
func (h *host) startLXD(ctx context.Context, m simulator.MachineSnapshot) error {
	if d := h.daemon(); d != nil {
		return d.Restart(ctx)
	}
	options := ownNetwork(m)
	options.LogFile = filepath.Join(h.guests.options.LogDir, "lxd-"+m.Hostname+".log")
	options.Proxy = h.guests.options.Proxy
	d, err := lxd.Start(ctx, options)
	if err != nil {
		return err
	}
	h.mutex.Lock()
	h.lxd = d
	h.mutex.Unlock()
	return nil
}

// ownNetwork returns the machine's first address with its network, and the device with it: a bridge with its card; or a
// card, which the image then puts into a bridge.
func ownNetwork(m simulator.MachineSnapshot) lxd.Options {
	for _, i := range m.Interfaces {
		for _, prefix := range i.Addresses {
			if len(m.Addresses) == 0 || prefix.Addr() != m.Addresses[0] {
				continue
			}
			options := lxd.Options{Address: prefix, MAC: i.MAC, Card: i.Name}
			if len(i.Ports) > 0 {
				options.Bridge, options.Card = i.Name, i.Ports[0]
			}
			return options
		}
	}
	return lxd.Options{}
}

// stopLXD cuts the power of the machine's LXD.
func (h *host) stopLXD() {
	if d := h.daemon(); d != nil {
		if err := d.PowerOff(); err != nil {
			h.logger.Error(err, "Stopping LXD")
		}
	}
}

// wipeLXD removes the machine's LXD with all that it stored.
func (h *host) wipeLXD() {
	h.mutex.Lock()
	d := h.lxd
	h.lxd = nil
	h.mutex.Unlock()
	if d == nil {
		return
	}
	if err := d.Stop(); err != nil {
		h.logger.Error(err, "Removing LXD")
	}
}

// daemon is the machine's LXD, running or not, or nil.
func (h *host) daemon() *lxd.Daemon {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return h.lxd
}

// LXD returns the daemon on a machine, also while the machine is powered off, or nil if none is installed.
func (g *Guests) LXD(systemID string) *lxd.Daemon {
	g.mutex.Lock()
	h := g.hosts[systemID]
	g.mutex.Unlock()
	if h == nil {
		return nil
	}
	return h.daemon()
}

// LXDs are the daemons of all machines, running or not, by hostname.
func (g *Guests) LXDs() map[string]*lxd.Daemon {
	daemons := map[string]*lxd.Daemon{}
	for _, h := range g.all() {
		if m, ok := g.machines.Machine(h.systemID); ok && h.daemon() != nil {
			daemons[m.Hostname] = h.daemon()
		}
	}
	return daemons
}

// lxdAt is the LXD of the running machine that has an address.
func (g *Guests) lxdAt(address netip.Addr) *lxd.Daemon {
	for _, h := range g.all() {
		d := h.daemon()
		if d == nil {
			continue
		}
		if m, ok := g.machines.Machine(h.systemID); ok && m.Running && slices.Contains(m.Addresses, address) {
			return d
		}
	}
	return nil
}
