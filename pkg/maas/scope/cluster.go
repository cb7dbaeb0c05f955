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
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/dns"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/turns"
)

// Region is one MAAS as one identity sees it, and what can be done there.
type Region struct {
	Inventory *inventory.Inventory
	Machines  *machine.Service
	DNS       *dns.Service

	where string
	turns *turns.Turns
}

// Turn waits for a turn in a line of this MAAS, whichever identity the others have: see turns.Turns.
func (r *Region) Turn(ctx context.Context, line turns.Line, rank turns.Rank) (done func(), err error) {
	return r.turns.Take(ctx, r.where, line, rank)
}

// Factory makes scopes.
type Factory struct {
	Client   client.Client
	Registry *inventory.Registry
	Manager  ManagerCredentials
	// ManagementID tells this management cluster apart from others: the UID of its namespace kube-system; "" where it is not known.
	ManagementID string

	turns   turns.Turns
	mu      sync.Mutex
	regions map[string]*Region // by identity
	// All identities share these: VM hosts are the same for all, by whatever URL they see them.
	looks        *lxd.HostRefresher
	reservations *lxd.Reservations
}

// Cluster is one MaasCluster for one reconcile.
type Cluster struct {
	*Region
	Cluster     *clusterv1.Cluster
	MaasCluster *infrav1.MaasCluster
	// Home is what the MaasCluster notes of its MAAS: see homeOf.
	Home string

	client       client.Client
	managementID string
}

// ElsewhereError says that the credentials lead to another MAAS than the one that has what belongs to the cluster, or come with another API key
// that may see less. Nothing of it would be found, and all would be taken for lost.
type ElsewhereError struct {
	// Source is the Secret, or the manager's own credentials.
	Source string
	// Home is the MAAS that has it, There the one that they lead to, each with its key: see homeOf.
	Home, There string
}

// Error names both, and the remedies.
func (e *ElsewhereError) Error() string {
	where, _, _ := strings.Cut(e.There, keySeparator)
	if home, _, _ := strings.Cut(e.Home, keySeparator); home != where {
		return fmt.Sprintf("%s: the endpoint leads to MAAS at %s, and what belongs to this cluster is in MAAS at %s: correct the endpoint; "+
			"or, if it is the same MAAS, set the annotation %s of the MaasCluster to %s", e.Source, where, home, infrav1.MAASAnnotation, e.There)
	}
	return fmt.Sprintf("%s: MAAS at %s shows nothing of this cluster with this API key, which is another one than before: use the key of an administrator "+
		"who sees the cluster's machines; or, if nothing is left of them, set the annotation %s of the MaasCluster to %s", e.Source, where, infrav1.MAASAnnotation, e.There)
}

// keySeparator is between MAAS's URL and the key in what a MaasCluster notes. No host has it, nor does a path.
const keySeparator = "#"

// homeOf is what a MaasCluster notes of its MAAS: where it is, and by which key it was seen. What another key sees must be proven to be the same:
// MAAS has no id that can be asked for, but no other MAAS knows the key.
func homeOf(config maas.Config) string { return config.Where() + keySeparator + config.KeyID() }

// Cluster makes the scope of a cluster. Errors are *CredentialsError when its credentials can't be used, and *ElsewhereError.
func (f *Factory) Cluster(ctx context.Context, cluster *clusterv1.Cluster, maasCluster *infrav1.MaasCluster) (*Cluster, error) {
	config, source, err := f.config(ctx, maasCluster)
	if err != nil {
		return nil, err
	}
	if home := maasCluster.Annotations[infrav1.MAASAnnotation]; home != "" && home != homeOf(config) && config.Validate() == nil {
		return nil, &ElsewhereError{Source: source, Home: home, There: homeOf(config)}
	}
	return f.scope(config, source, cluster, maasCluster)
}

// Anywhere makes the scope of a cluster with the MAAS that its credentials lead to, whichever that is. It is for finding that out.
func (f *Factory) Anywhere(ctx context.Context, cluster *clusterv1.Cluster, maasCluster *infrav1.MaasCluster) (*Cluster, error) {
	config, source, err := f.config(ctx, maasCluster)
	if err != nil {
		return nil, err
	}
	return f.scope(config, source, cluster, maasCluster)
}

func (f *Factory) scope(config maas.Config, source string, cluster *clusterv1.Cluster, maasCluster *infrav1.MaasCluster) (*Cluster, error) {
	f.mu.Lock() // Until the new identity's region is there: what identities share must not go with the old one's.
	defer f.mu.Unlock()
	inventory, err := f.Registry.For(client.ObjectKeyFromObject(maasCluster).String(), config)
	if err != nil {
		return nil, &CredentialsError{Source: source, cause: oneLine(err)}
	}
	defer f.prune()
	return &Cluster{
		Region: f.region(config, inventory), Cluster: cluster, MaasCluster: maasCluster, Home: homeOf(config),
		client: f.Client, managementID: f.ManagementID,
	}, nil
}

// HostCredentials are those that the nodes of a host cluster register themselves with: lxdConfig's own, or the cluster's.
func (f *Factory) HostCredentials(ctx context.Context, maasCluster *infrav1.MaasCluster) (maas.Config, error) {
	config, source, err := f.config(ctx, maasCluster)
	if lxd := maasCluster.Spec.LXDConfig; lxd != nil && lxd.CredentialsRef != nil {
		source = "Secret " + lxd.CredentialsRef.Name
		config, err = secretConfig(ctx, f.Client, "spec.lxdConfig.credentialsRef", maasCluster.Namespace, lxd.CredentialsRef.Name)
	}
	if err != nil {
		return maas.Config{}, err
	}
	if err := config.Validate(); err != nil {
		return maas.Config{}, &CredentialsError{Source: source, cause: oneLine(err)}
	}
	return config, nil
}

// Release notes that a MaasCluster is gone.
func (f *Factory) Release(maasCluster *infrav1.MaasCluster) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Registry.Release(client.ObjectKeyFromObject(maasCluster).String())
	f.prune()
}

// prune drops what belongs to identities that no cluster uses any more. Call it with the lock held.
func (f *Factory) prune() {
	maps.DeleteFunc(f.regions, func(_ string, region *Region) bool { return !f.Registry.Keeps(region.Inventory) })
}

func (f *Factory) config(ctx context.Context, maasCluster *infrav1.MaasCluster) (config maas.Config, source string, err error) {
	if ref := maasCluster.Spec.CredentialsRef; ref != nil {
		config, err = secretConfig(ctx, f.Client, "spec.credentialsRef", maasCluster.Namespace, ref.Name)
		return config, "Secret " + ref.Name, err
	}
	config, err = f.Manager.config(maasCluster.Namespace)
	return config, "the manager's MAAS credentials", err
}

// region keeps what is done in one MAAS together: reservations and DNS writes of all clusters must know of each other. Call it with the
// lock held.
func (f *Factory) region(config maas.Config, inventory *inventory.Inventory) *Region {
	id := config.ID()
	if region := f.regions[id]; region != nil && region.Inventory == inventory {
		return region
	}
	if f.regions == nil {
		f.regions, f.looks, f.reservations = map[string]*Region{}, lxd.NewHostRefresher(), lxd.NewReservations()
	}
	f.regions[id] = &Region{
		Inventory: inventory, where: config.Where(), turns: &f.turns,
		Machines: machine.NewService(inventory, lxd.NewService(lxd.NewVMHostComposer(inventory, f.looks), f.reservations)),
		DNS:      dns.NewService(inventory),
	}
	return f.regions[id]
}

// OwnerID marks everything in MAAS that belongs to this cluster; "" until it was written.
func (c *Cluster) OwnerID() string { return c.MaasCluster.Annotations[infrav1.OwnerIDAnnotation] }

// EndpointName is the name that MAAS's DNS has, or would have, for the API endpoint, or for its virtual IP. A name that the cluster has
// from a MaasCluster of another name stays: kubeconfigs, certificates and kubelets name it.
func (c *Cluster) EndpointName() string {
	if host := c.host(); c.owns(host) {
		return host
	}
	return maas.EndpointLabel(c.MaasCluster.Name, c.OwnerID()) + "." + c.domain()
}

// host is the endpoint's: the recorded one, or before that the one that the Cluster came with; "" where there is none.
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
	return label == maas.EndpointLabel(c.MaasCluster.Name, c.OwnerID()) || strings.HasSuffix(label, maas.EndpointSuffix(c.OwnerID()))
}

// Endpoint is how a cluster's API is reached.
type Endpoint string

const (
	// EndpointDNS is a name in MAAS's DNS that follows the control planes.
	EndpointDNS Endpoint = "DNS"
	// EndpointVirtualIP is an address that MAAS has reserved, and that the control planes hold in turn.
	EndpointVirtualIP Endpoint = "VirtualIP"
	// EndpointExternal is the user's, or one that the Cluster came with and that this provider did not make. MAAS is not touched.
	EndpointExternal Endpoint = "External"
)

// Endpoint tells how the API is reached. It stays what it was when the endpoint was made: an annotation that comes later does not turn
// MAAS's name into one of the user's.
func (c *Cluster) Endpoint() Endpoint {
	host := c.host()
	_, annotated := c.MaasCluster.Annotations[infrav1.CustomDNSAnnotation]
	switch {
	case c.MaasCluster.Spec.VirtualIP != nil:
		return EndpointVirtualIP
	case c.MaasCluster.Spec.DNSDomain == "":
		return EndpointExternal
	case c.owns(host):
		return EndpointDNS
	case host != "" || annotated:
		return EndpointExternal
	}
	return EndpointDNS
}

// Host is the host of the endpoint that the MaasCluster has, or would get: a name, an address, or the subnet of a virtual IP; "" where
// the user is to set it.
func (c *Cluster) Host() string {
	recorded := c.MaasCluster.Spec.ControlPlaneEndpoint.Host
	_, annotated := c.MaasCluster.Annotations[infrav1.CustomDNSAnnotation]
	switch vip := c.MaasCluster.Spec.VirtualIP; {
	case recorded != "":
		return recorded
	case vip != nil:
		return cmp.Or(vip.Address, vip.Subnet)
	case annotated && c.Endpoint() == EndpointExternal:
		return ""
	}
	return c.EndpointName()
}

// EndpointDiffers reports whether the Cluster's endpoint is another one than the MaasCluster has, or would get. Clients and nodes use the
// Cluster's.
func (c *Cluster) EndpointDiffers() bool {
	host := c.Cluster.Spec.ControlPlaneEndpoint.Host
	return host != "" && !strings.EqualFold(host, c.Host()) && !maas.SameAddress(host, c.Host())
}

// APIServerPort is the port of the endpoint: the user's, that of the endpoint that the Cluster came with, its API servers', or the default.
func (c *Cluster) APIServerPort() int32 {
	return cmp.Or(c.MaasCluster.Spec.ControlPlaneEndpoint.Port, c.Cluster.Spec.ControlPlaneEndpoint.Port,
		c.Cluster.Spec.ClusterNetwork.APIServerPort, infrav1.DefaultAPIServerPort)
}
