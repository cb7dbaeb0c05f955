// SPDX-License-Identifier: Apache-2.0

package lxdnode

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	lxd "github.com/canonical/lxd/client"
	"github.com/canonical/lxd/shared/api"
)

const (
	snapSocket = "/var/snap/lxd/common/lxd/unix.socket"
	debSocket  = "/var/lib/lxd/unix.socket"
)

// callTimeout bounds the calls of one step, but for those that make storage.
const callTimeout = 30 * time.Second

// SocketPath finds LXD's unix socket: $LXD_SOCKET, the snap's, or the Debian package's. The error is an *Error.
func SocketPath() (string, error) {
	if path := os.Getenv("LXD_SOCKET"); path != "" {
		return path, nil
	}
	for _, path := range []string{snapSocket, debSocket} {
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", &Error{Step: StepConnect, Problem: "there is no LXD socket at " + snapSocket + " and none at " + debSocket,
		Remedy: "install LXD (snap install lxd), or name its socket in LXD_SOCKET", cause: fs.ErrNotExist}
}

// Node is one node's LXD. It holds no connection, so a restart of LXD does not harm it. It is safe for concurrent use.
type Node struct {
	socket string
}

// Connect asks LXD once, and so finds out whether it answers there. The error is an *Error.
func Connect(ctx context.Context, socket string) (*Node, error) {
	n := &Node{socket: socket}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	server, err := n.getServer(ctx)
	if err != nil {
		return nil, connectError(socket, err)
	}
	if server.Auth != "trusted" {
		return nil, &Error{Step: StepConnect, Permanent: true,
			Problem: "LXD does not trust who comes through " + socket,
			Remedy:  "LXD_SOCKET must name the socket of the LXD daemon itself, usually " + snapSocket}
	}
	return n, nil
}

func connectError(socket string, err error) *Error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &Error{Step: StepConnect, Problem: "there is no LXD socket at " + socket, cause: err,
			Remedy: "install and start LXD, or name its socket in LXD_SOCKET"}
	case errors.Is(err, fs.ErrPermission):
		return &Error{Step: StepConnect, Problem: "no permission to use " + socket, cause: err, Permanent: true,
			Remedy: "run as root or as a member of the socket's group"}
	}
	e := asError(StepConnect, "asking LXD at "+socket, err)
	if e.Remedy == "" {
		e.Remedy = "is LXD running?"
	}
	return e
}

// client makes a client whose calls end with ctx. Making one costs nothing: the SDK opens a connection per request.
func (n *Node) client(ctx context.Context) (lxd.InstanceServer, error) {
	return lxd.ConnectLXDUnixWithContext(ctx, n.socket, &lxd.ConnectionArgs{SkipGetServer: true})
}

func (n *Node) getServer(ctx context.Context) (*api.Server, error) {
	client, err := n.client(ctx)
	if err != nil {
		return nil, err
	}
	server, _, err := client.GetServer()
	return server, err
}

// Facts is what MAAS and people want to know about a node's LXD.
type Facts struct {
	ServerName    string
	ServerVersion string
	// MissingExtensions of LXD's API that MAAS asks for.
	MissingExtensions []string
	// VMs tells whether LXD can run virtual machines. MAAS does not ask before it composes one.
	VMs bool
	// Clustered tells whether this LXD is a member of an LXD cluster.
	Clustered bool
	// Architectures as the kernel names them, for example x86_64; the first one is the node's own.
	Architectures []string
	// Cores counts threads, as MAAS does.
	Cores int
	// MemoryMiB is the node's memory.
	MemoryMiB int64
	// StorageDrivers that LXD lists as supported. LXD lists lvm also where the kernel lacks the device mapper.
	StorageDrivers []string
	// Addresses that LXD is configured to listen on, each as host:port; all of the node's for a wildcard.
	Addresses []string
	// CertificateFingerprint is the SHA-256 of the server's certificate in hex.
	CertificateFingerprint string
}

// Facts asks LXD about itself and its machine: /1.0 and /1.0/resources. The error is an *Error.
func (n *Node) Facts(ctx context.Context) (Facts, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	server, err := n.getServer(ctx)
	if err != nil {
		return Facts{}, asError(StepServer, "asking for the server", err)
	}
	client, err := n.client(ctx)
	if err != nil {
		return Facts{}, asError(StepServer, "asking for the node's resources", err)
	}
	resources, err := client.GetServerResources()
	if err != nil {
		return Facts{}, asError(StepServer, "asking for the node's resources", err)
	}
	environment := server.Environment
	return Facts{
		ServerName:             environment.ServerName,
		ServerVersion:          environment.ServerVersion,
		MissingExtensions:      missingExtensions(server),
		VMs:                    runsVMs(server),
		Clustered:              environment.ServerClustered,
		Architectures:          environment.Architectures,
		Cores:                  int(resources.CPU.Total),
		MemoryMiB:              int64(resources.Memory.Total / (1 << 20)),
		StorageDrivers:         storageDrivers(server),
		Addresses:              environment.Addresses,
		CertificateFingerprint: environment.CertificateFingerprint,
	}, nil
}

// missingExtensions names what MAAS's LXD driver requires at registration and this server lacks.
func missingExtensions(server *api.Server) []string {
	var missing []string
	for _, extension := range []string{"projects", "virtual-machines", "custom_block_volumes"} {
		if !slices.Contains(server.APIExtensions, extension) {
			missing = append(missing, extension)
		}
	}
	return missing
}

// runsVMs asks for the driver. The extension virtual-machines is there even where VMs can't run.
func runsVMs(server *api.Server) bool { return slices.Contains(drivers(server), "qemu") }

// drivers reads "lxc | qemu". LXD names them in changing order.
func drivers(server *api.Server) []string {
	names := strings.Split(server.Environment.Driver, "|")
	for i, name := range names {
		names[i] = strings.TrimSpace(name)
	}
	slices.Sort(names)
	return names
}

func storageDrivers(server *api.Server) []string {
	names := make([]string, 0, len(server.Environment.StorageSupportedDrivers))
	for _, driver := range server.Environment.StorageSupportedDrivers {
		names = append(names, driver.Name)
	}
	slices.Sort(names)
	return names
}
