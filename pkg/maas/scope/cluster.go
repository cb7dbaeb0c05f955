// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"context"
	"fmt"
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
)

// Region is one MAAS as one identity sees it, and what can be done there.
type Region struct {
	Inventory *inventory.Inventory
	Machines  *machine.Service
	DNS       *dns.Service
}

// Factory makes scopes.
type Factory struct {
	Client   client.Client
	Registry *inventory.Registry
	Manager  ManagerCredentials
	// ManagementID tells this management cluster apart from others: the UID of its namespace kube-system; "" where it is not known.
	ManagementID string

	mu      sync.Mutex
	regions map[string]*Region // by identity
	// endpoints have what all identities of a MAAS share: its VM hosts are the same for all.
	endpoints map[string]*endpoint // by where MAAS is
}

// endpoint is what all identities must share that see one MAAS.
type endpoint struct {
	looks        *lxd.Looks
	reservations *lxd.Reservations
}

// Cluster is one MaasCluster for one reconcile.
type Cluster struct {
	*Region
	Cluster     *clusterv1.Cluster
	MaasCluster *infrav1.MaasCluster
	// Where the MAAS is: see maas.Config.
	Where string

	client       client.Client
	managementID string
}

// ElsewhereError says that the credentials lead to another MAAS than the one that has what belongs to the cluster. There, nothing of it
// would be found, and all would be taken for lost.
type ElsewhereError struct {
	// Source is the Secret, or the manager's own credentials.
	Source string
	// Home is the MAAS that has it, There the one that they lead to.
	Home, There string
}

// Error names both, and the remedies.
func (e *ElsewhereError) Error() string {
	return fmt.Sprintf("%s: the endpoint leads to MAAS at %s, and what belongs to this cluster is in MAAS at %s: correct the endpoint; "+
		"or, if it is the same MAAS, set the annotation %s of the MaasCluster to %s", e.Source, e.There, e.Home, infrav1.MAASAnnotation, e.There)
}

// Cluster makes the scope of a cluster. Errors are *CredentialsError when its credentials can't be used, and *ElsewhereError.
func (f *Factory) Cluster(ctx context.Context, cluster *clusterv1.Cluster, maasCluster *infrav1.MaasCluster) (*Cluster, error) {
	config, source, err := f.config(ctx, maasCluster)
	if err != nil {
		return nil, err
	}
	if home := maasCluster.Annotations[infrav1.MAASAnnotation]; home != "" && home != config.Where() && config.Validate() == nil {
		return nil, &ElsewhereError{Source: source, Home: home, There: config.Where()}
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
	inventory, err := f.Registry.For(client.ObjectKeyFromObject(maasCluster).String(), config)
	if err != nil {
		return nil, &CredentialsError{Source: source, cause: oneLine(err)}
	}
	return &Cluster{
		Region: f.region(config, inventory), Cluster: cluster, MaasCluster: maasCluster, Where: config.Where(),
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

// Release tells that a MaasCluster is gone.
func (f *Factory) Release(maasCluster *infrav1.MaasCluster) {
	f.Registry.Release(client.ObjectKeyFromObject(maasCluster).String())
}

func (f *Factory) config(ctx context.Context, maasCluster *infrav1.MaasCluster) (config maas.Config, source string, err error) {
	if ref := maasCluster.Spec.CredentialsRef; ref != nil {
		config, err = secretConfig(ctx, f.Client, "spec.credentialsRef", maasCluster.Namespace, ref.Name)
		return config, "Secret " + ref.Name, err
	}
	config, err = f.Manager.config(maasCluster.Namespace)
	return config, "the manager's MAAS credentials", err
}

// region keeps what is done in one MAAS together: reservations and DNS writes of all clusters must know of each other.
func (f *Factory) region(config maas.Config, inventory *inventory.Inventory) *Region {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := config.ID()
	if region := f.regions[id]; region != nil && region.Inventory == inventory {
		return region
	}
	if f.regions == nil {
		f.regions = map[string]*Region{}
	}
	shared := f.endpoint(config)
	f.regions[id] = &Region{
		Inventory: inventory,
		Machines:  machine.NewService(inventory, lxd.NewService(lxd.NewVMHostComposer(inventory, shared.looks), shared.reservations)),
		DNS:       dns.NewService(inventory),
	}
	return f.regions[id]
}

// endpoint answers what is shared by those who see the same MAAS. Call it with the lock held.
func (f *Factory) endpoint(config maas.Config) *endpoint {
	where := config.Where()
	if f.endpoints[where] == nil {
		if f.endpoints == nil {
			f.endpoints = map[string]*endpoint{}
		}
		f.endpoints[where] = &endpoint{looks: lxd.NewLooks(), reservations: lxd.NewReservations()}
	}
	return f.endpoints[where]
}

// OwnerID marks everything in MAAS that belongs to this cluster; "" until it was written.
func (c *Cluster) OwnerID() string { return c.MaasCluster.Annotations[infrav1.OwnerIDAnnotation] }

// EndpointName is the name that MAAS's DNS has, or would have, for the API endpoint, or for its virtual IP.
func (c *Cluster) EndpointName() string {
	return maas.Hostname(c.MaasCluster.Name, c.OwnerID()) + "." + strings.TrimSuffix(c.MaasCluster.Spec.DNSDomain, ".")
}

// Endpoint is how a cluster's API is reached.
type Endpoint string

const (
	// EndpointDNS is a name in MAAS's DNS that follows the control planes.
	EndpointDNS Endpoint = "DNS"
	// EndpointVirtualIP is an address that MAAS has reserved, and that the control planes hold in turn.
	EndpointVirtualIP Endpoint = "VirtualIP"
	// EndpointExternal is the user's. MAAS is not touched.
	EndpointExternal Endpoint = "External"
)

// Endpoint tells how the API is reached. It stays what it was when the endpoint was made: an annotation that comes later does not turn
// MAAS's name into one of the user's.
func (c *Cluster) Endpoint() Endpoint {
	host := c.MaasCluster.Spec.ControlPlaneEndpoint.Host
	_, annotated := c.MaasCluster.Annotations[infrav1.CustomDNSAnnotation]
	switch {
	case c.MaasCluster.Spec.VirtualIP != nil:
		return EndpointVirtualIP
	case c.MaasCluster.Spec.DNSDomain == "":
		return EndpointExternal
	case host == c.EndpointName():
		return EndpointDNS
	case host != "" || annotated:
		return EndpointExternal
	}
	return EndpointDNS
}

// APIServerPort is the port of the endpoint: the user's, the Cluster's, or the default.
func (c *Cluster) APIServerPort() int32 {
	if port := c.MaasCluster.Spec.ControlPlaneEndpoint.Port; port != 0 {
		return port
	}
	if port := c.Cluster.Spec.ClusterNetwork.APIServerPort; port != 0 {
		return port
	}
	return infrav1.DefaultAPIServerPort
}
