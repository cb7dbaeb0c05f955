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
	// ownListenKey holds the address that was set here, to distinguish it from an operator's. While it is not known
	// whether LXD can listen there, it is "trying ADDRESS", or "trying ADDRESS instead of FORMER".
	ownListenKey = "user.capmaas.https-address"
	tryingPrefix = "trying "
	insteadOf    = " instead of "
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
// After it refused an address, LXD 5.0.2 has it in its configuration all the same, and does not start again with it.
// LXD 5.21 and 6.7 put back what was there before; 5.0.3 and 6.6 put back the address, but not the mark. So an address
// is set with the mark of a try, which names the former address, too: a run that finds it knows which ones were set
// here. The mark is removed when LXD has confirmed the address, or when the former one is back.
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
	if p.write && now.overtaken() {
		if now, err = now.write(client, now.address, now.own()); err != nil {
			return Failed, "", asError(StepListen, "recording the address", err)
		}
	}
	switch {
	case p.listensWell(now.address) && !now.tried():
		return OK, now.address, nil
	case now.address != "" && now.address != now.own() && !now.tried():
		return Failed, "", wrong("set "+SettingListen+" to an address and port that LXD listens on, or have LXD listen on "+
			"both: `lxc config set "+listenKey+" [::]:PORT`",
			"LXD listens on %s already, where %s does not lead", now.address, p.ListenAddress)
	case !p.write:
		return Missing, now.describe(), nil
	}
	former := now.own()
	if now.tried() { // LXD does not listen again on an address that it already has.
		if now, err = now.write(client, "", now.mark); err != nil {
			return Failed, "", asError(StepListen, "removing the recorded address", err)
		}
	}
	address := cmp.Or(p.ListenAddress, anyListen)
	if err := now.set(client, address, former); err != nil {
		return Failed, "", err
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

// tries returns the address whose outcome is unknown, and the one that was there before and had been set here. Both may
// be "".
func (l listening) tries() (address, former string) {
	if text, is := strings.CutPrefix(l.mark, tryingPrefix); is {
		address, former, _ = strings.Cut(text, insteadOf)
	}
	return address, former
}

// tried reports whether the address was set here and the outcome is unknown.
func (l listening) tried() bool {
	address, _ := l.tries()
	return l.address != "" && l.address == address
}

// overtaken reports whether there is another address than the one that was tried last: LXD has put back the former one,
// or an operator has set one.
func (l listening) overtaken() bool {
	address, _ := l.tries()
	return address != "" && l.address != "" && l.address != address
}

// own returns the last address that was set here and that LXD confirmed, if it has not been replaced since, or "".
func (l listening) own() string {
	address, former := l.tries()
	switch {
	case address == "" && l.mark == l.address, l.address == former:
		return l.address
	case l.address == "" || l.tried():
		return former
	}
	return ""
}

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

// set makes LXD listen on an address. Where LXD refuses that, it is to listen on the former one, which may be "", or on
// none if it refuses that as well. The error is why LXD refused. If that could not be undone, the mark stays for the
// next run.
func (l listening) set(client *lxdapi.Client, address, former string) error {
	mark := tryingPrefix + address
	if former != "" {
		mark += insteadOf + former
	}
	tried, err := l.write(client, address, mark)
	if err == nil {
		if _, err = tried.write(client, address, address); err != nil {
			return asError(StepListen, "recording the address", err)
		}
		return nil
	}
	if !lxdapi.IsRefused(err) {
		return asError(StepListen, "listening on "+address, err)
	}
	if former == address {
		former = ""
	}
	undone := l.undo(client, former)
	e := listenError(client, address, err)
	if undone != nil {
		e.cause = errors.Join(err, undone)
	}
	return e
}

// undo goes back to the former address after LXD refused one, whatever LXD has in its configuration now.
func (l listening) undo(client *lxdapi.Client, former string) error {
	refused, err := readListen(client)
	switch {
	case err != nil:
		return err
	case refused.address != l.address && !refused.tried():
		return nil // Another client has changed it since.
	case refused.address == former || former == "":
		// Also where no mark is shown: if there was none before, LXD 5.21 and 6.7 still have it in their database.
		_, err = refused.write(client, former, former)
		return err
	}
	return refused.set(client, former, former)
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
