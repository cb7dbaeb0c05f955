// SPDX-License-Identifier: Apache-2.0

package lxdapi

import (
	"context"
	"net/http"

	lxd "github.com/canonical/lxd/client"
	"github.com/canonical/lxd/shared/api"
)

// Reader is what is read of LXD, in one project. The methods are those of LXD's own client. An error of LXD is an
// api.StatusError with the HTTP status of its response.
type Reader interface {
	GetServer() (server *api.Server, etag string, err error)
	GetServerResources() (resources *api.Resources, err error)
	GetProjectNames() (names []string, err error)
	GetProject(name string) (project *api.Project, etag string, err error)
	GetProjectState(name string) (project *api.ProjectState, err error)
	GetProfile(name string) (profile *api.Profile, etag string, err error)
	GetNetworks() (networks []api.Network, err error)
	GetNetwork(name string) (network *api.Network, etag string, err error)
	GetNetworkState(name string) (state *api.NetworkState, err error)
	GetStoragePoolNames() (names []string, err error)
	GetStoragePools() (pools []api.StoragePool, err error)
	GetStoragePool(name string) (pool *api.StoragePool, etag string, err error)
	GetStoragePoolResources(name string) (resources *api.ResourcesStoragePool, err error)
	GetStoragePoolVolume(pool, volType, name string) (volume *api.StorageVolume, etag string, err error)
	GetInstanceNames(instanceType api.InstanceType) (names []string, err error)
	GetInstances(instanceType api.InstanceType) (instances []api.Instance, err error)
	GetInstance(name string) (instance *api.Instance, etag string, err error)
	GetImages() (images []api.Image, err error)
	GetImage(fingerprint string) (image *api.Image, etag string, err error)
	GetImageAlias(name string) (alias *api.ImageAliasesEntry, etag string, err error)
	GetCertificates() (certificates []api.Certificate, err error)
	GetCertificate(fingerprint string) (certificate *api.Certificate, etag string, err error)
	GetClusterMembers() (members []api.ClusterMember, err error)
	GetOperations() (operations []api.Operation, err error)
}

// Client calls one LXD, in one project. Its calls end with its context.
type Client struct {
	Reader

	ctx     context.Context //nolint:containedctx // LXD's own client has it, too: a Client lives for one method
	sdk     lxd.InstanceServer
	base    string
	project string
}

// unixBase is the address of an LXD behind a unix socket, whose name is never read.
const unixBase = "http://lxd"

// Unix returns a client of the LXD at a unix socket, in its default project. It makes no call. The error says that the
// path can't be one.
func Unix(ctx context.Context, socket string) (*Client, error) {
	sdk, err := lxd.ConnectLXDUnixWithContext(ctx, socket, &lxd.ConnectionArgs{SkipGetServer: true})
	if err != nil {
		return nil, err
	}
	return Of(ctx, sdk, unixBase), nil
}

// Transport makes an LXD's requests. It replaces the transport of LXD's own client, which it may look into.
type Transport interface {
	Transport() *http.Transport
	RoundTrip(request *http.Request) (*http.Response, error)
}

// HTTPS returns a client of the LXD at an address, host:port, in its default project. It makes no call. The error says
// that the address can't be one.
func HTTPS(ctx context.Context, address string, transport Transport) (*Client, error) {
	base := "https://" + address
	sdk, err := lxd.ConnectLXDWithContext(ctx, base, &lxd.ConnectionArgs{
		SkipGetServer:    true,
		TransportWrapper: func(*http.Transport) lxd.HTTPTransporter { return transport },
	})
	if err != nil {
		return nil, err
	}
	return Of(ctx, sdk, base), nil
}

// Of returns a client for what LXD's own client is connected to, in its default project. base is the address, with the
// scheme.
func Of(ctx context.Context, sdk lxd.InstanceServer, base string) *Client {
	return &Client{Reader: sdk, ctx: ctx, sdk: sdk, base: base}
}

// In returns the client for a project; "" is the default one, which is for what belongs to no project, too.
func (c *Client) In(project string) *Client {
	inside := *c
	inside.sdk = c.sdk.UseProject(project)
	inside.Reader, inside.project = inside.sdk, project
	return &inside
}

// Path returns the endpoint of something, in the client's project.
func (c *Client) Path(parts ...string) *api.URL {
	return api.NewURL().Path(append([]string{"1.0"}, parts...)...).Project(c.project)
}

// URL is Path with the address: for what is sent to another LXD.
func (c *Client) URL(parts ...string) string { return c.base + c.Path(parts...).String() }
