// SPDX-License-Identifier: Apache-2.0

package lxdnode

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	lxd "github.com/canonical/lxd/client"
	"github.com/canonical/lxd/shared/api"

	"github.com/capmaas/cluster-api-provider-maas/internal/text"
)

const (
	listenKey = "core.https_address"
	// ownListenKey holds the address that was set here, so that it is known from an operator's; with tryingPrefix as
	// long as it is not known whether LXD could listen there.
	ownListenKey = "user.capmaas.https-address"
	tryingPrefix = "trying "
	// anyListen is all addresses of both families.
	anyListen = "[::]:8443"
	// defaultPort is LXD's where core.https_address names none.
	defaultPort = "8443"
)

// maxConflicts bounds how often the step starts over because another client's write came first.
const maxConflicts = 5

// errConflict says that another client changed the server's configuration since it was read.
var errConflict = errors.New("LXD's configuration is being changed by somebody else")

// ensureListen wants LXD to be reached at the address.
//
// LXD 5.0 shows a new address as configured also when it could not listen there and has said so. So the address is set
// with a note that it is a try; the note is settled when LXD has agreed, and the old address restored when it has not.
// Who finds such a note does not know the outcome, and sets the address again.
func (p *pass) ensureListen(client lxd.InstanceServer) (State, string, error) {
	for try := 1; ; try++ {
		state, found, err := p.tryListen(client)
		if !errors.Is(err, errConflict) || try == maxConflicts {
			return state, found, err
		}
	}
}

func (p *pass) tryListen(client lxd.InstanceServer) (State, string, error) {
	now, err := readListen(client)
	if err != nil {
		return Failed, "", err
	}
	switch {
	case p.listensWell(now.address) && !now.tried():
		return OK, now.address, nil
	case now.address != "" && now.address != now.note && !now.tried():
		return Failed, "", p.foreignListen(now.address)
	case !p.write:
		return Missing, now.describe(), nil
	}
	if now.tried() { // LXD does not listen anew on an address that it has already.
		if now, err = now.write(client, "", ""); err != nil {
			return Failed, "", asError(StepListen, "forgetting an address", err)
		}
	}
	address := cmp.Or(p.ListenAddress, anyListen)
	tried, err := now.write(client, address, tryingPrefix+address)
	if err != nil {
		return Failed, "", now.restore(client, address, err)
	}
	if _, err := tried.write(client, address, address); err != nil {
		return Failed, "", asError(StepListen, "noting the address", err)
	}
	return Changed, address, nil
}

// listening is what the server's configuration says about the address, at one moment.
type listening struct {
	address, note string

	config map[string]any
	etag   string
}

func readListen(client lxd.InstanceServer) (listening, error) {
	server, etag, err := client.GetServer()
	if err != nil {
		return listening{}, asError(StepListen, "asking for the server's configuration", err)
	}
	text := func(key string) string {
		value, _ := server.Config[key].(string)
		return value
	}
	return listening{address: text(listenKey), note: text(ownListenKey), config: server.Config, etag: etag}, nil
}

// tried reports whether the address was set here without LXD's answer being known.
func (l listening) tried() bool { return l.address != "" && l.note == tryingPrefix+l.address }

func (l listening) describe() string {
	switch {
	case l.address == "":
		return "LXD does not listen on the network"
	case l.tried():
		return "LXD was told to listen on " + l.address + "; whether it does is not known"
	}
	return "LXD listens on " + l.address
}

// write changes address and note, if no other client changed the configuration since it was read, and reads it again. LXD takes the
// configuration as a whole, but keeps keys of users (user.*) that are left out: what is to go is sent empty.
func (l listening) write(client lxd.InstanceServer, address, note string) (listening, error) {
	config := maps.Clone(l.config)
	if config == nil {
		config = map[string]any{}
	}
	config[listenKey], config[ownListenKey] = address, note
	err := client.UpdateServer(api.ServerPut{Config: config}, l.etag)
	if api.StatusErrorCheck(err, http.StatusPreconditionFailed) {
		return l, errConflict
	}
	if err != nil {
		return l, err
	}
	written, err := readListen(client)
	if err == nil && (written.address != address || written.note != note) {
		return l, errConflict
	}
	return written, err
}

// restore undoes a try that LXD refused, and says why it did. Where that fails too, the note stays for the next run.
func (l listening) restore(client lxd.InstanceServer, address string, cause error) error {
	if errors.Is(cause, errConflict) || !api.StatusErrorCheck(cause) {
		return asError(StepListen, "listening on "+address, cause)
	}
	e := listenError(client, address, cause)
	refused, err := readListen(client)
	if err == nil && refused.address == address && refused.tried() {
		_, err = refused.write(client, l.address, l.note)
	}
	if err != nil {
		e.cause = errors.Join(cause, err)
	}
	return e
}

// listensWell reports whether LXD, listening on current, is reached at the wanted address. Where none is wanted, any address will do. LXD takes
// addresses without a port.
func (p *pass) listensWell(current string) bool {
	if current == "" || p.ListenAddress == "" {
		return current != ""
	}
	if _, _, err := net.SplitHostPort(current); err != nil {
		current = net.JoinHostPort(strings.Trim(current, "[]"), defaultPort)
	}
	has, err := parseListen(current)
	if err != nil { // a name: who set it knows what it stands for, but not that it is the wanted address
		return false
	}
	wanted, err := parseListen(p.ListenAddress)
	return err == nil && has.serves(wanted)
}

func (p *pass) foreignListen(current string) *Error {
	return &Error{Step: StepListen, Permanent: true,
		Problem: fmt.Sprintf("LXD listens on %s already, where %s does not lead", current, p.ListenAddress),
		Remedy: fmt.Sprintf("set %s to an address and port that LXD listens on, or have LXD listen on both: "+
			"`lxc config set %s [::]:PORT`", SettingListen, listenKey)}
}

// listenError finds out why LXD could not listen, which it does not say: an address that the node does not have, or a
// port that is taken.
func listenError(client lxd.InstanceServer, address string, cause error) *Error {
	e := asError(StepListen, "listening on "+address, cause)
	wanted, err := parseListen(address)
	if err != nil || !api.StatusErrorCheck(cause, http.StatusInternalServerError) {
		return e
	}
	addresses, err := nodeAddresses(client)
	if err != nil {
		return e
	}
	if wanted.host.IsValid() && !wanted.host.IsUnspecified() && !slices.Contains(addresses, wanted.host) {
		e.Problem = fmt.Sprintf("the node has no address %s; it has %s", wanted.host, joinAddresses(addresses))
		e.Remedy = "set " + SettingListen + " to an address of the node"
		e.Permanent = true
		return e
	}
	e.Problem = fmt.Sprintf("LXD can't listen on %s: something else does (%s)", address, text.OneLine(cause.Error(), maxSaid))
	e.Remedy = fmt.Sprintf("stop what listens there (`ss -ltnp sport = :%d` on the node shows it), or set %s to another port",
		wanted.port, SettingListen)
	return e
}

// nodeAddresses lists the addresses of all interfaces, LXD's and the host's.
func nodeAddresses(client lxd.InstanceServer) ([]netip.Addr, error) {
	networks, err := client.GetNetworks()
	if err != nil {
		return nil, err
	}
	var addresses []netip.Addr
	for _, network := range networks {
		state, err := client.GetNetworkState(network.Name)
		if err != nil {
			continue // It has gone since, or is no interface.
		}
		for _, each := range state.Addresses {
			if address, err := netip.ParseAddr(each.Address); err == nil {
				addresses = append(addresses, address.Unmap())
			}
		}
	}
	return addresses, nil
}

func joinAddresses(addresses []netip.Addr) string {
	var text []string
	for _, address := range addresses {
		text = append(text, address.String())
	}
	slices.Sort(text)
	return strings.Join(text, ", ")
}
