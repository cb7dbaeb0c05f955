// SPDX-License-Identifier: Apache-2.0

package lxdnode

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/canonical/lxd/shared/api"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdapi"
)

const (
	snapSocket = "/var/snap/lxd/common/lxd/unix.socket"
	debSocket  = "/var/lib/lxd/unix.socket"
)

// callTimeout bounds the calls of one step, except those that make storage.
const callTimeout = 30 * time.Second

// ErrNotInstalled is the cause of Connect's error on a node that has no socket of LXD, not even one without a listener.
var ErrNotInstalled = errors.New("there is no LXD")

// Sockets returns the paths of LXD's unix socket in a setting, separated by commas. An empty setting stands for the
// paths of LXD's packages: the snap's, then Debian's.
func Sockets(setting string) []string {
	if setting == "" {
		return []string{snapSocket, debSocket}
	}
	return strings.Split(setting, ",")
}

// Node is one node's LXD. It holds no connection, so a restart of LXD does not harm it. It is safe for concurrent use.
type Node struct {
	socket   string
	refusals *Refusals
}

// Connect calls LXD once, at the first of the sockets that accepts connections. The error is an *Error; its cause is
// ErrNotInstalled if none of the sockets exists.
func Connect(ctx context.Context, sockets ...string) (*Node, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	socket, err := firstAlive(ctx, sockets)
	if err != nil {
		return nil, err
	}
	n := &Node{socket: socket}
	server, err := n.getServer(ctx, StepConnect, "connecting to LXD at "+socket)
	if err != nil {
		return nil, connectError(socket, err)
	}
	if server.Auth != "trusted" {
		return nil, &Error{Step: StepConnect, Permanent: true,
			Problem: "LXD does not trust clients of " + socket,
			Remedy:  "LXD_SOCKET must name the socket of the LXD daemon itself, usually " + snapSocket}
	}
	return n, nil
}

// firstAlive returns the first socket that accepts connections. A package that was removed, or a daemon that was
// killed, may leave a dead one.
func firstAlive(ctx context.Context, sockets []string) (string, error) {
	var dead error
	for _, socket := range sockets {
		err := dial(ctx, socket)
		if err == nil {
			return socket, nil
		}
		if dead == nil && !errors.Is(err, fs.ErrNotExist) {
			dead = connectError(socket, err)
		}
	}
	if dead != nil {
		return "", dead
	}
	return "", &Error{Step: StepConnect, Problem: "there is no LXD socket at " + strings.Join(sockets, ", nor at "),
		cause:  ErrNotInstalled,
		Remedy: "install LXD on this node, as a snap (snap install lxd) or as the distribution's package, or start it"}
}

// dial checks the file first: a path that is too long for a socket can't be dialled, whether it exists or not.
func dial(ctx context.Context, socket string) error {
	if _, err := os.Stat(socket); err != nil {
		return err
	}
	connection, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return err
	}
	return connection.Close()
}

func connectError(socket string, err error) *Error {
	if errors.Is(err, fs.ErrPermission) {
		return &Error{Step: StepConnect, Problem: "no permission to use " + socket, cause: err, Permanent: true,
			Remedy: "run as root or as a member of the socket's group"}
	}
	e := asError(StepConnect, "connecting to LXD at "+socket, err)
	if e.Remedy == "" {
		e.Remedy = "is LXD running?"
	}
	return e
}

// client makes a client whose calls end with ctx. It costs nothing: the SDK opens a connection per request.
func (n *Node) client(ctx context.Context) (*lxdapi.Client, error) {
	return lxdapi.Unix(ctx, n.socket)
}

// call makes calls within callTimeout. The error is an *Error.
func (n *Node) call(ctx context.Context, step, doing string, do func(*lxdapi.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	client, err := n.client(ctx)
	if err == nil {
		err = do(client)
	}
	if err != nil {
		return asError(step, doing, err)
	}
	return nil
}

func (n *Node) getServer(ctx context.Context, step, doing string) (server *api.Server, err error) {
	err = n.call(ctx, step, doing, func(client *lxdapi.Client) (err error) {
		server, _, err = client.GetServer()
		return err
	})
	return server, err
}

// Addresses returns those that LXD is configured to listen on, each as host:port; all of the node's for a wildcard. The
// error is an *Error.
func (n *Node) Addresses(ctx context.Context) ([]string, error) {
	server, err := n.getServer(ctx, StepServer, "reading the server")
	if err != nil {
		return nil, err
	}
	return server.Environment.Addresses, nil
}

// Traits returns what this LXD does as others do not. The error is an *Error.
func (n *Node) Traits(ctx context.Context) (lxdapi.Traits, error) {
	server, err := n.getServer(ctx, StepServer, "reading the server")
	if err != nil {
		return lxdapi.Traits{}, err
	}
	return lxdapi.TraitsOf(server), nil
}

// ServerCertificate returns the certificate (PEM) that LXD's clients see at its HTTPS address: environment.certificate
// of GET /1.0. The error is an *Error.
func (n *Node) ServerCertificate(ctx context.Context) ([]byte, error) {
	server, err := n.getServer(ctx, StepServer, "reading the server's certificate")
	if err != nil {
		return nil, err
	}
	certificate := []byte(server.Environment.Certificate)
	if _, err := ParseCertificate(certificate); err != nil {
		return nil, &Error{Step: StepServer, Problem: "the certificate that LXD reports as its own: " + err.Error(),
			cause: err}
	}
	return certificate, nil
}

// checkServer checks whether this LXD can be a VM host of MAAS at all.
func (p *pass) checkServer(client *lxdapi.Client) (State, string, error) {
	server, _, err := client.GetServer()
	if err != nil {
		return Failed, "", asError(StepServer, "reading the server", err)
	}
	p.server = server
	environment := server.Environment
	// MAAS's LXD driver requires these at registration, or Trust.
	needed := []string{"projects", "virtual-machines", "custom_block_volumes", "certificate_project"}
	lacks := func(extension string) bool { return !slices.Contains(server.APIExtensions, extension) }
	if missing := list.Where(needed, lacks); len(missing) > 0 {
		return Failed, "", wrong("install LXD 5.0 or newer", "LXD %s lacks required API extensions: %s",
			environment.ServerVersion, strings.Join(missing, ", "))
	}
	if environment.ServerClustered {
		return Failed, "", wrong("use LXD without clustering: MAAS makes VM hosts of all members, under the members' names, "+
			"as soon as it has one", "this LXD is a member of an LXD cluster")
	}
	if !RunsVMs(server) {
		return Failed, "", wrong("switch on virtualization in the firmware, check that /dev/kvm exists and that `modprobe "+
			"vhost_vsock` works, install QEMU where LXD comes from a Debian package, and restart LXD; LXD's log has the "+
			"reason", "LXD %s can't run virtual machines here (its drivers: %s)", environment.ServerVersion,
			strings.Join(drivers(server), ", "))
	}
	return OK, describe(server), nil
}

// describe says which LXD it is, and what to know of one that is so new.
func describe(server *api.Server) string {
	traits := lxdapi.TraitsOf(server)
	found := fmt.Sprintf("LXD %s, drivers %s", traits.Version, strings.Join(drivers(server), ", "))
	for _, note := range []string{traits.NotTried(), traits.NotForMAAS()} {
		if note != "" {
			found += "; " + note
		}
	}
	return found
}

// RunsVMs reports whether LXD has the driver for VMs. The extension virtual-machines exists even if VMs can't run.
func RunsVMs(server *api.Server) bool { return slices.Contains(drivers(server), "qemu") }

// drivers parses "lxc | qemu". LXD lists them in changing order.
func drivers(server *api.Server) []string {
	names := list.Each(strings.Split(server.Environment.Driver, "|"), strings.TrimSpace)
	slices.Sort(names)
	return names
}

func storageDrivers(server *api.Server) []string {
	names := list.Each(server.Environment.StorageSupportedDrivers,
		func(driver api.ServerStorageDriverInfo) string { return driver.Name })
	slices.Sort(names)
	return names
}
