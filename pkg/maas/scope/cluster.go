// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
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
	endpoints map[string]*endpoint
}

// endpoint is one MAAS.
type endpoint struct {
	looks *lxd.Looks
}

// Cluster is one MaasCluster for one reconcile.
type Cluster struct {
	*Region
	Cluster     *clusterv1.Cluster
	MaasCluster *infrav1.MaasCluster

	client       client.Client
	managementID string
}

// Cluster makes the scope of a cluster. Errors are *CredentialsError when its credentials can't be used.
func (f *Factory) Cluster(ctx context.Context, cluster *clusterv1.Cluster, maasCluster *infrav1.MaasCluster) (*Cluster, error) {
	config, source, err := f.config(ctx, maasCluster)
	if err != nil {
		return nil, err
	}
	inventory, err := f.Registry.For(client.ObjectKeyFromObject(maasCluster).String(), config)
	if err != nil {
		return nil, &CredentialsError{Source: source, cause: oneLine(err)}
	}
	return &Cluster{
		Region: f.region(config, inventory), Cluster: cluster, MaasCluster: maasCluster,
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
	config, err = f.Manager.config()
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
		f.regions, f.endpoints = map[string]*Region{}, map[string]*endpoint{}
	}
	address := strings.TrimSuffix(strings.TrimRight(config.Endpoint, "/"), "/api/2.0")
	if f.endpoints[address] == nil {
		f.endpoints[address] = &endpoint{looks: lxd.NewLooks()}
	}
	f.regions[id] = &Region{
		Inventory: inventory,
		Machines:  machine.NewService(inventory, lxd.NewService(lxd.NewVMHostComposer(inventory, f.endpoints[address].looks))),
		DNS:       dns.NewService(inventory),
	}
	return f.regions[id]
}

// OwnerID marks everything in MAAS that belongs to this cluster; "" until it was written.
func (c *Cluster) OwnerID() string { return c.MaasCluster.Annotations[infrav1.OwnerIDAnnotation] }

// EndpointName is the name that MAAS's DNS has, or would have, for the API endpoint.
func (c *Cluster) EndpointName() string {
	return maas.Hostname(c.MaasCluster.Name, c.OwnerID()) + "." + strings.TrimSuffix(c.MaasCluster.Spec.DNSDomain, ".")
}

// IsExternalEndpoint tells that the user provides the endpoint, so that MAAS's DNS is not touched.
func (c *Cluster) IsExternalEndpoint() bool {
	if _, annotated := c.MaasCluster.Annotations[infrav1.CustomDNSAnnotation]; annotated {
		return true
	}
	host := c.MaasCluster.Spec.ControlPlaneEndpoint.Host
	return host != "" && (c.MaasCluster.Spec.DNSDomain == "" || host != c.EndpointName())
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

// PreferredSubnets are the CIDRs whose addresses come first, from the spec or from the ConfigMap maas-preferred-subnet.
func (c *Cluster) PreferredSubnets(ctx context.Context) ([]netip.Prefix, error) {
	texts := c.MaasCluster.Spec.PreferredSubnets
	if len(texts) == 0 {
		config := &corev1.ConfigMap{}
		key := client.ObjectKey{Namespace: c.MaasCluster.Namespace, Name: infrav1.PreferredSubnetConfigMap}
		if err := c.client.Get(ctx, key, config); err != nil {
			if client.IgnoreNotFound(err) != nil {
				return nil, fmt.Errorf("reading ConfigMap %s: %w", key.Name, err)
			}
			return nil, nil
		}
		texts = strings.Split(config.Data[infrav1.PreferredSubnetKey], ",")
	}
	return parsePrefixes(texts), nil
}

// parsePrefixes leaves out what is no CIDR: a typing error in a ConfigMap must not stop machines.
func parsePrefixes(texts []string) []netip.Prefix {
	var prefixes []netip.Prefix
	for _, text := range texts {
		if prefix, err := netip.ParsePrefix(strings.TrimSpace(text)); err == nil {
			prefixes = append(prefixes, prefix)
		}
	}
	return prefixes
}

// SortAddresses puts addresses in the order of the preferred subnets; what is in none of them keeps MAAS's order behind.
func SortAddresses(addresses []string, preferred []netip.Prefix) []string {
	var sorted, rest []string
	taken := map[string]bool{"": true}
	for _, prefix := range preferred {
		for _, address := range addresses {
			if ip, err := netip.ParseAddr(address); err == nil && !taken[address] && prefix.Contains(ip) {
				taken[address] = true
				sorted = append(sorted, address)
			}
		}
	}
	for _, address := range addresses {
		if !taken[address] {
			taken[address] = true
			rest = append(rest, address)
		}
	}
	return append(sorted, rest...)
}
