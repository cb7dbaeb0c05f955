// SPDX-License-Identifier: Apache-2.0

package lxdnode

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/canonical/lxd/shared/api"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdapi"
)

const (
	listenKey = "core.https_address"
	// ownListenKey holds the address that was set here, to distinguish it from an operator's. It has tryingPrefix while
	// it is not known whether LXD could listen there.
	ownListenKey = "user.capmaas.https-address"
	tryingPrefix = "trying "
	// anyListen is all addresses of both families.
	anyListen = "[::]:8443"
	// defaultPort is LXD's if core.https_address has none.
	defaultPort = "8443"
)

// maxConflicts bounds how often the step restarts because another client wrote first.
const maxConflicts = 5

// errConflict means that another client has changed the server's configuration since it was read.
var errConflict = errors.New("LXD's configuration is being changed by another client")

// ensureListen makes LXD reachable at the address.
//
// LXD 5.0 shows a new address as configured even after it reported that it could not listen there. So the address is
// set with the mark of a try; the mark is removed when LXD has confirmed, and the old address restored when it has
// refused. A run that finds the mark does not know the outcome, and sets the address again.
func (p *pass) ensureListen(client *lxdapi.Client) (State, string, error) {
	for try := 1; ; try++ {
		state, found, err := p.tryListen(client)
		if !errors.Is(err, errConflict) || try == maxConflicts {
			return state, found, err
		}
	}
}

func (p *pass) tryListen(client *lxdapi.Client) (State, string, error) {
	now, err := readListen(client)
	if err != nil {
		return Failed, "", err
	}
	switch {
	case p.listensWell(now.address) && !now.tried():
		return OK, now.address, nil
	case now.address != "" && now.address != now.mark && !now.tried():
		return Failed, "", wrong("set "+SettingListen+" to an address and port that LXD listens on, or have LXD listen on "+
			"both: `lxc config set "+listenKey+" [::]:PORT`",
			"LXD listens on %s already, where %s does not lead", now.address, p.ListenAddress)
	case !p.write:
		return Missing, now.describe(), nil
	}
	if now.tried() { // LXD does not listen again on an address that it already has.
		if now, err = now.write(client, "", ""); err != nil {
			return Failed, "", asError(StepListen, "removing the recorded address", err)
		}
	}
	address := cmp.Or(p.ListenAddress, anyListen)
	tried, err := now.write(client, address, tryingPrefix+address)
	if err != nil {
		return Failed, "", now.restore(client, address, err)
	}
	if _, err := tried.write(client, address, address); err != nil {
		return Failed, "", asError(StepListen, "recording the address", err)
	}
	return Changed, address, nil
}

// listening is the address in the server's configuration, at one moment.
type listening struct {
	address, mark string

	config map[string]any
	etag   string
}

func readListen(client *lxdapi.Client) (listening, error) {
	server, etag, err := client.GetServer()
	if err != nil {
		return listening{}, asError(StepListen, "reading the server's configuration", err)
	}
	text := func(key string) string {
		value, _ := server.Config[key].(string)
		return value
	}
	return listening{address: text(listenKey), mark: text(ownListenKey), config: server.Config, etag: etag}, nil
}

// tried reports whether the address was set here and the outcome is unknown.
func (l listening) tried() bool { return l.address != "" && l.mark == tryingPrefix+l.address }

func (l listening) describe() string {
	switch {
	case l.address == "":
		return "LXD does not listen on the network"
	case l.tried():
		return "LXD is configured to listen on " + l.address + "; whether it does is not known"
	}
	return "LXD listens on " + l.address
}

// write changes address and mark, if no other client has changed the configuration since it was read, and reads it
// again. LXD replaces the configuration as a whole, but keeps user keys (user.*) that are left out: keys to remove are
// sent empty.
func (l listening) write(client *lxdapi.Client, address, mark string) (listening, error) {
	config := maps.Clone(l.config)
	if config == nil {
		config = map[string]any{}
	}
	config[listenKey], config[ownListenKey] = address, mark
	err := client.Put(client.Path(), api.ServerPut{Config: config}, l.etag)
	if api.StatusErrorCheck(err, http.StatusPreconditionFailed) {
		return l, errConflict
	}
	if err != nil {
		return l, err
	}
	written, err := readListen(client)
	if err == nil && (written.address != address || written.mark != mark) {
		return l, errConflict
	}
	return written, err
}

// restore undoes a try that LXD refused, and returns the reason. If that fails too, the mark stays for the next run.
func (l listening) restore(client *lxdapi.Client, address string, cause error) error {
	if errors.Is(cause, errConflict) || !api.StatusErrorCheck(cause) {
		return asError(StepListen, "listening on "+address, cause)
	}
	e := listenError(client, address, cause)
	refused, err := readListen(client)
	if err == nil && refused.address == address && refused.tried() {
		_, err = refused.write(client, l.address, l.mark)
	}
	if err != nil {
		e.cause = errors.Join(cause, err)
	}
	return e
}

// listensWell reports whether LXD, listening on current, is reachable at the wanted address. If none is wanted, any
// address will do. LXD accepts addresses without a port.
func (p *pass) listensWell(current string) bool {
	if current == "" || p.ListenAddress == "" {
		return current != ""
	}
	has, err := parseListen(WithPort(current))
	if err != nil { // a host name: it may or may not be the wanted address
		return false
	}
	wanted, err := parseListen(p.ListenAddress)
	return err == nil && serves(has, wanted)
}

// listenError finds out why LXD could not listen, which LXD does not report: an address that the node does not have, or
// a port that is taken.
func listenError(client *lxdapi.Client, address string, cause error) *Error {
	e := asError(StepListen, "listening on "+address, cause)
	wanted, err := parseListen(address)
	if err != nil || !api.StatusErrorCheck(cause, http.StatusInternalServerError) {
		return e
	}
	addresses, err := nodeAddresses(client)
	if err != nil {
		return e
	}
	host := wanted.Addr()
	if host.IsValid() && !host.IsUnspecified() && !slices.Contains(addresses, host) {
		e.Problem = fmt.Sprintf("the node has no address %s; it has %s", host, joinAddresses(addresses))
		e.Remedy = "set " + SettingListen + " to an address of the node"
		e.Permanent = true
		return e
	}
	e.Problem = fmt.Sprintf("LXD can't listen on %s: something else does (%s)", address,
		text.Steady(cause.Error(), maxMessage))
	e.Remedy = fmt.Sprintf("stop what listens there (`ss -ltnp sport = :%d` on the node shows it), or set %s to "+
		"another port", wanted.Port(), SettingListen)
	return e
}

// nodeAddresses lists the addresses of all interfaces, LXD's and the host's.
func nodeAddresses(client *lxdapi.Client) ([]netip.Addr, error) {
	networks, err := client.GetNetworks()
	if err != nil {
		return nil, err
	}
	var addresses []netip.Addr
	for _, network := range networks {
		state, err := client.GetNetworkState(network.Name)
		if err != nil {
			continue // It was removed since, or is no interface.
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
	text := list.Each(addresses, netip.Addr.String)
	slices.Sort(text)
	return strings.Join(text, ", ")
}
