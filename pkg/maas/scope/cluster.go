// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/dns"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/internal/cache"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/turns"
)

// Region is one MAAS as one identity sees it, with the services for it.
type Region struct {
	Inventory *inventory.Inventory
	Machines  *machine.Service
	DNS       *dns.Service

	server guard.Server
	turns  *turns.Turns
}

// Turn waits for a turn in a line of this MAAS, which all identities share: see turns.Turns.
func (r *Region) Turn(ctx context.Context, line turns.Line, rank turns.Rank) (done func(), err error) {
	return r.turns.Take(ctx, r.server, line, rank)
}

// Factory makes scopes.
type Factory struct {
	Client client.Client
	// Watched has the metadata of Secrets, from a watch: one that has not changed there is not read again for a minute.
	// Nil: nobody watches them.
	Watched  client.Reader
	Registry *inventory.Registry
	Manager  ManagerCredentials
	// WatchFilter is the value of the label cluster.x-k8s.io/watch-filter that LXDHosts must have, if not empty.
	WatchFilter string
	// ManagementID identifies this management cluster: the UID of its namespace kube-system; "" while it is not known.
	ManagementID string
	// LXD has the connections to the LXDHosts whose VMs are made through LXD's own API.
	LXD lxdhost.Connections
	// Places are where the LXDHosts of VM hosts belong.
	Places Places

	turns   turns.Turns
	secrets cache.Values[aSecret, secret]
	mu      sync.Mutex
	regions map[string]*Region // by identity
	// verdicts are why MAAS refuses the keys of LXDHosts, by identity; nil: it accepts the key.
	verdicts cache.Values[string, error]
	// All identities share these, which distinguish the servers: see guard.Key.
	refresher *lxd.HostRefresher
	ledger    *lxd.Ledger
}

// Cluster is one MaasCluster for one reconcile.
type Cluster struct {
	*Region
	Cluster     *clusterv1.Cluster
	MaasCluster *infrav1.MaasCluster
	// Home is what the MaasCluster records of its MAAS: see homeOf.
	Home string

	client       client.Client
	managementID string
	source       string // of the credentials
}

// ElsewhereError means that the credentials lead to another MAAS than the one with the cluster's machines, or have
// another API key, which may see less. Nothing of the cluster would be found, and everything would be taken for lost.
type ElsewhereError struct {
	// Source is the Secret, or the manager's own credentials.
	Source string
	// Home is the recorded MAAS, There the one of the credentials, each with its key: see homeOf.
	Home, There string
}

// Error names both, and the remedies.
func (e *ElsewhereError) Error() string {
	where, _, _ := strings.Cut(e.There, keySeparator)
	if home, _, _ := strings.Cut(e.Home, keySeparator); home != where {
		return fmt.Sprintf("%s: the endpoint leads to MAAS at %s, and what belongs to this cluster is in MAAS at %s: "+
			"correct the endpoint; or, if it is the same MAAS, set the annotation %s of the MaasCluster to %s", e.Source, where,
			home, infrav1.MAASAnnotation, e.There)
	}
	return fmt.Sprintf("%s: MAAS at %s shows nothing of this cluster with this API key, which is another one than "+
		"before: use the key of a user who sees the cluster's machines; or, if nothing is left of them, set the annotation "+
		"%s of the MaasCluster to %s", e.Source, where, infrav1.MAASAnnotation, e.There)
}

// keySeparator separates MAAS's URL from the key in the MaasCluster's record. No host contains it, nor does a path.
const keySeparator = "#"

// homeOf returns what a MaasCluster records of its MAAS: its URL, and the key that was used. What another key sees must
// be proven to be the same: MAAS has no id that could be read, but no other MAAS knows the key.
func homeOf(config maas.Config) string { return config.Where() + keySeparator + config.KeyID() }

// Leaving is what a MaasCluster records in place of its MAAS from before it is certain that none of its machines takes
// anything there until it records another one, or the same again. No scope is made with it, but by Anywhere.
func Leaving(home string) string { return home + leaving }

const leaving = keySeparator + "leaving"

const managerSource = "the manager's MAAS credentials (Secret maas-credentials and ConfigMap capmaas-config, or " +
	"those that the chart's values name)"

// Cluster makes the scope of a cluster. Errors are *CredentialsError if its credentials can't be used, and
// *ElsewhereError.
func (f *Factory) Cluster(
	ctx context.Context, cluster *clusterv1.Cluster, maasCluster *infrav1.MaasCluster,
) (*Cluster, error) {
	return f.scope(ctx, cluster, maasCluster, maasCluster.Annotations[infrav1.MAASAnnotation])
}

// Anywhere makes the scope of a cluster with the MAAS of its credentials, even if that is another MAAS. It is for
// finding that out.
func (f *Factory) Anywhere(
	ctx context.Context, cluster *clusterv1.Cluster, maasCluster *infrav1.MaasCluster,
) (*Cluster, error) {
	return f.scope(ctx, cluster, maasCluster, "")
}

// scope makes the scope of a cluster that is at home in a MAAS; "" is any.
func (f *Factory) scope(
	ctx context.Context, cluster *clusterv1.Cluster, maasCluster *infrav1.MaasCluster, home string,
) (*Cluster, error) {
	config, source, err := f.config(ctx, maasCluster)
	if err != nil {
		return nil, err
	}
	if home != "" && home != homeOf(config) && config.Validate() == nil {
		return nil, &ElsewhereError{Source: source, Home: strings.TrimSuffix(home, leaving), There: homeOf(config)}
	}
	region, err := f.use(config, source, client.ObjectKeyFromObject(maasCluster))
	if err != nil {
		return nil, err
	}
	guard.At(ctx, region.server)
	return &Cluster{
		Region: region, Cluster: cluster, MaasCluster: maasCluster, Home: homeOf(config), client: f.Client,
		managementID: f.ManagementID, source: source,
	}, nil
}

// Own returns the region of the manager's own credentials. *CredentialsError: it has none.
func (f *Factory) Own() (*Region, error) {
	config, err := f.Manager.Read()
	if err != nil {
		return nil, err
	}
	return f.use(config, managerSource, client.ObjectKey{})
}

// use returns the region of an identity, for a user: a MaasCluster, or with an empty key the manager.
func (f *Factory) use(config maas.Config, source string, user client.ObjectKey) (*Region, error) {
	f.mu.Lock() // Until the new identity's region exists: the shared services must not be dropped with the old one.
	defer f.mu.Unlock()
	inventory, err := f.Registry.For(user.String(), config)
	if err != nil {
		return nil, &CredentialsError{Source: source, cause: oneLine(err)}
	}
	defer f.prune()
	return f.region(config, inventory), nil
}

// HostCredentials returns the credentials with which the nodes of a host cluster register themselves: lxdConfig's own,
// or the cluster's.
func (f *Factory) HostCredentials(ctx context.Context, maasCluster *infrav1.MaasCluster) (maas.Config, error) {
	config, source, err := f.config(ctx, maasCluster)
	if lxd := maasCluster.Spec.LXDConfig; lxd != nil && lxd.CredentialsRef != nil {
		source = "Secret " + lxd.CredentialsRef.Name
		config, err = f.secretConfig(ctx, "spec.lxdConfig.credentialsRef", maasCluster.Namespace, lxd.CredentialsRef.Name)
	} else if err == nil && maasCluster.Spec.CredentialsRef == nil {
		err = f.Manager.mayBeCopied(maasCluster.Namespace)
	}
	if err != nil {
		return maas.Config{}, err
	}
	if err := config.Validate(); err != nil {
		return maas.Config{}, &CredentialsError{Source: source, cause: oneLine(err)}
	}
	return config, nil
}

// Release removes a MaasCluster.
func (f *Factory) Release(maasCluster *infrav1.MaasCluster) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Registry.Release(client.ObjectKeyFromObject(maasCluster).String())
	f.prune()
}

// prune drops the regions of identities that no cluster uses any more. Call it with the lock held.
func (f *Factory) prune() {
	maps.DeleteFunc(f.regions, func(_ string, region *Region) bool { return !f.Registry.Keeps(region.Inventory) })
}

func (f *Factory) config(
	ctx context.Context, maasCluster *infrav1.MaasCluster,
) (config maas.Config, source string, err error) {
	if ref := maasCluster.Spec.CredentialsRef; ref != nil {
		config, err = f.secretConfig(ctx, "spec.credentialsRef", maasCluster.Namespace, ref.Name)
		return config, "Secret " + ref.Name, err
	}
	config, err = f.Manager.config(maasCluster.Namespace, "spec.credentialsRef")
	return config, managerSource, err
}

// region returns the shared services of one MAAS: reservations and DNS writes of all clusters must know of each other.
// Call it with the lock held.
func (f *Factory) region(config maas.Config, inventory *inventory.Inventory) *Region {
	id := config.ID()
	if region := f.regions[id]; region != nil && region.Inventory == inventory {
		return region
	}
	if f.regions == nil {
		f.regions, f.refresher, f.ledger = map[string]*Region{}, lxd.NewHostRefresher(), lxd.NewLedger()
	}
	composer := lxd.NewComposer(inventory, f.refresher, &hostObjects{factory: f, config: config}, &f.LXD)
	f.regions[id] = &Region{
		Inventory: inventory, server: config.Server(), turns: &f.turns,
		Machines: machine.NewService(inventory, lxd.NewService(composer, f.ledger.Of(config.Server()))),
		DNS:      dns.NewService(inventory),
	}
	return f.regions[id]
}

// OwnerID marks everything in MAAS that belongs to this cluster; "" until it is stored.
func (c *Cluster) OwnerID() string { return c.MaasCluster.Annotations[infrav1.OwnerIDAnnotation] }

// Foreign reports whether something else manages a MaasCluster, and always did. If the provider has managed it before,
// which the finalizer shows, what it made for it stays its own.
func Foreign(c *infrav1.MaasCluster) bool {
	return annotations.IsExternallyManaged(c) && !controllerutil.ContainsFinalizer(c, infrav1.ClusterFinalizer)
}

// EndpointName returns the name in MAAS's DNS for the API endpoint or its virtual IP, whether it exists or not. If a
// MaasCluster of another name has made the cluster's name, that name stays: kubeconfigs, certificates and kubelets
// contain it.
func (c *Cluster) EndpointName() string {
	if host := c.host(); c.owns(host) {
		return host
	}
	return maas.EndpointLabel(c.MaasCluster.Name, c.OwnerID()) + "." + c.domain()
}

// host returns the endpoint's host: the recorded one, or before that the Cluster's own; "" if there is none.
func (c *Cluster) host() string {
	return cmp.Or(c.MaasCluster.Spec.ControlPlaneEndpoint.Host, c.Cluster.Spec.ControlPlaneEndpoint.Host)
}

func (c *Cluster) domain() string { return strings.TrimSuffix(c.MaasCluster.Spec.DNSDomain, ".") }

// owns reports whether a name in the cluster's domain was made with its owner id.
func (c *Cluster) owns(host string) bool {
	label, domain, _ := strings.Cut(host, ".")
	if domain == "" || domain != c.domain() {
		return false
	}
	return maas.IsEndpointLabel(label, c.OwnerID())
}

// Endpoint is the kind of a cluster's API endpoint.
type Endpoint string

const (
	// EndpointDNS is a name in MAAS's DNS that follows the control planes.
	EndpointDNS Endpoint = "DNS"
	// EndpointVirtualIP is an address that MAAS has reserved, and that one control plane at a time holds.
	EndpointVirtualIP Endpoint = "VirtualIP"
	// EndpointExternal is the user's, or one that the Cluster came with and that this provider did not make. MAAS is
	// not touched.
	EndpointExternal Endpoint = "External"
)

// Endpoint returns the kind of the API endpoint. It stays what it was when the endpoint was made: an annotation that
// comes later does not turn MAAS's name into the user's.
func (c *Cluster) Endpoint() Endpoint {
	host := c.host()
	switch {
	case Foreign(c.MaasCluster):
		return EndpointExternal
	case c.MaasCluster.Spec.VirtualIP != nil:
		return EndpointVirtualIP
	case c.MaasCluster.Spec.DNSDomain == "":
		return EndpointExternal
	case c.owns(host):
		return EndpointDNS
	case host != "" || c.Annotated():
		return EndpointExternal
	}
	return EndpointDNS
}

// Host returns the host of the endpoint that the MaasCluster has, or would get: a name, an address, or the subnet of a
// virtual IP. If another party provides it, that is the Cluster's; "" while it has none.
func (c *Cluster) Host() string {
	recorded := c.MaasCluster.Spec.ControlPlaneEndpoint.Host
	switch vip := c.MaasCluster.Spec.VirtualIP; {
	case recorded != "":
		return recorded
	case vip != nil:
		return cmp.Or(vip.Address, vip.Subnet)
	case c.isProvided():
		return c.Cluster.Spec.ControlPlaneEndpoint.Host
	}
	return c.EndpointName()
}

// isProvided reports whether the MaasCluster says that another party provides the endpoint: the user, or whoever runs
// the control plane.
func (c *Cluster) isProvided() bool {
	return c.Endpoint() == EndpointExternal && (c.Annotated() || c.MaasCluster.Spec.DNSDomain == "")
}

// Annotated reports whether the MaasCluster has CustomDNSAnnotation.
func (c *Cluster) Annotated() bool {
	_, annotated := c.MaasCluster.Annotations[infrav1.CustomDNSAnnotation]
	return annotated
}

// EndpointDiffers reports whether the Cluster's endpoint differs from the one that the MaasCluster has, or would get.
// Clients and nodes use the Cluster's.
func (c *Cluster) EndpointDiffers() bool {
	host := c.Cluster.Spec.ControlPlaneEndpoint.Host
	return host != "" && !strings.EqualFold(host, c.Host()) && !maas.SameAddress(host, c.Host())
}

// APIServerPort returns the port of the endpoint: the user's, that of the Cluster's own endpoint, that of its API
// servers, or the default.
func (c *Cluster) APIServerPort() int32 {
	return cmp.Or(c.MaasCluster.Spec.ControlPlaneEndpoint.Port, c.Cluster.Spec.ControlPlaneEndpoint.Port,
		c.Cluster.Spec.ClusterNetwork.APIServerPort, infrav1.DefaultAPIServerPort)
}
