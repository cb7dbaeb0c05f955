// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/cluster-api/util/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdnode"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
)

// LXDServer returns how the LXD of a host is reached, with a Secret that was read at most maxAge ago.
// *CredentialsError: the Secret in spec.credentialsRef is missing or has no pair of certificate and key; or, with an
// *lxd.OtherLXDError, the LXDHost leads to another LXD than the one with its VMs.
func (f *Factory) LXDServer(ctx context.Context, host *infrav1.LXDHost, maxAge time.Duration) (lxdhost.Options, error) {
	home, there := host.Annotations[infrav1.LXDAnnotation], PlaceOf(host)
	if home != "" && there != "" && home != there {
		return publicServer(host), &CredentialsError{Source: "LXDHost " + host.Name,
			cause: &lxd.OtherLXDError{Home: home, There: there}}
	}
	return f.AnyLXDServer(ctx, host, maxAge)
}

// PlaceOf returns which LXD and project an LXDHost leads to, in the form of infrav1.LXDAnnotation; "" if its
// certificate can't be read.
func PlaceOf(host *infrav1.LXDHost) string { return publicServer(host).Place() }

// AnyLXDServer is LXDServer, also if the LXDHost leads to another LXD than the one with its VMs. It is for finding that
// out.
func (f *Factory) AnyLXDServer(
	ctx context.Context, host *infrav1.LXDHost, maxAge time.Duration,
) (lxdhost.Options, error) {
	const field = "spec.credentialsRef"
	options := publicServer(host)
	if host.Spec.CredentialsRef == nil {
		return options, &CredentialsError{Source: field,
			cause: fmt.Errorf("name a Secret with tls.crt and tls.key, which LXD trusts")}
	}
	name := host.Spec.CredentialsRef.Name
	data, err := f.secret(ctx, field, client.ObjectKey{Namespace: host.Namespace, Name: name}, maxAge)
	if err != nil {
		return options, err
	}
	options.ClientCertificate, options.ClientKey = data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey]
	if len(options.ClientCertificate) == 0 || len(options.ClientKey) == 0 {
		return options, &CredentialsError{Source: "Secret " + name,
			cause: fmt.Errorf("it lacks %s or %s", corev1.TLSCertKey, corev1.TLSPrivateKeyKey)}
	}
	return options, nil
}

// publicServer returns what the LXDHost itself says of how its LXD is reached.
func publicServer(host *infrav1.LXDHost) lxdhost.Options {
	return lxdhost.Options{
		Address: lxdnode.WithPort(host.Spec.Address), ServerCertificate: []byte(host.Spec.ServerCertificate),
		Project: host.Spec.Project,
	}
}

const maasCredentialsField = "spec.maasCredentialsRef"

// LXDHostMAAS returns the credentials of the MAAS whose clusters may use a host, with a Secret that was read at most
// maxAge ago. The error is a *CredentialsError if there are none.
func (f *Factory) LXDHostMAAS(ctx context.Context, host *infrav1.LXDHost, maxAge time.Duration) (maas.Config, error) {
	ref := host.Spec.MAASCredentialsRef
	if ref == nil {
		return f.Manager.config(host.Namespace, maasCredentialsField)
	}
	key := client.ObjectKey{Namespace: host.Namespace, Name: ref.Name}
	data, err := f.secret(ctx, maasCredentialsField, key, maxAge)
	if err != nil {
		return maas.Config{}, err
	}
	return configOf(data), nil
}

// hostObjects are the LXDHosts of one MAAS, as one identity may use them.
type hostObjects struct {
	factory *Factory
	config  maas.Config
}

// HostObjects lists the LXDHosts of VM hosts, and those whose VMs are made through LXD's own API. The Problem of those
// that are for another MAAS says so: some may have been for this one.
func (h *hostObjects) HostObjects(ctx context.Context) ([]lxd.HostObject, error) {
	list := &infrav1.LXDHostList{}
	if err := h.factory.Client.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing LXDHosts: %w", err)
	}
	var objects []lxd.HostObject
	for i := range list.Items {
		host := &list.Items[i]
		if !h.factory.Places.Has(host) {
			continue
		}
		object := hostObject(host)
		if object.Direct {
			// An LXDHost that the manager does not watch would go before its VMs.
			object.Unschedulable = object.Unschedulable || !h.factory.watches(host)
			h.seal(host, &object)
		}
		if vmHost := host.Spec.VMHost; vmHost != nil && IsOfMAAS(host, h.config) {
			object.VMHost, object.VMHostID = lxd.VMHostKey(h.config.Server(), int(vmHost.ID)), int(vmHost.ID)
		}
		objects = append(objects, object)
	}
	return objects, nil
}

func (f *Factory) watches(host *infrav1.LXDHost) bool {
	return f.WatchFilter == "" || labels.HasWatchLabel(host, f.WatchFilter)
}

// seal leaves to Open what only Secrets have. With the manager's own MAAS, it is known at once who may use the host.
func (h *hostObjects) seal(host *infrav1.LXDHost, object *lxd.HostObject) {
	object.Problem, object.Unproven = lxd.ErrUnopened, host.Spec.MAASCredentialsRef != nil
	if !object.Unproven {
		config, err := h.factory.Manager.config(host.Namespace, maasCredentialsField)
		if h.admit(host, object, config, err); !object.Direct {
			return
		}
	}
	object.Open = func(ctx context.Context, object *lxd.HostObject, namespace string, maxAge time.Duration) {
		h.open(ctx, host, object, namespace, maxAge)
	}
}

// open reads the Secrets of a host, as far as it is for this MAAS, and for the namespace.
func (h *hostObjects) open(
	ctx context.Context, host *infrav1.LXDHost, object *lxd.HostObject, namespace string, maxAge time.Duration,
) {
	if host.Spec.MAASCredentialsRef != nil {
		config, err := h.factory.LXDHostMAAS(ctx, host, maxAge)
		h.admit(host, object, config, err)
		isOther := config.ID() != h.config.ID()
		if object.Direct && isOther && namespace == host.Namespace {
			h.exclude(host, object, h.factory.accepted(ctx, host, config))
		}
		if !object.Direct || (namespace != "" && !object.Allows(namespace)) {
			return
		}
	}
	object.Server, object.Problem = h.factory.LXDServer(ctx, host, maxAge)
}

// admit decides whether a host is for this MAAS, and for whom, by its own credentials of MAAS.
func (h *hostObjects) admit(host *infrav1.LXDHost, object *lxd.HostObject, config maas.Config, err error) {
	if err == nil && (config.Where() != h.config.Where() || !IsOfMAAS(host, config)) {
		err = fmt.Errorf("it is for the MAAS at %s", config.Where())
	}
	if h.exclude(host, object, err); err == nil && config.ID() != h.config.ID() {
		// Whoever makes an LXDHost sees what runs there. With another key, that person may have fewer rights in MAAS.
		object.Allows = func(namespace string) bool { return namespace == host.Namespace }
	}
}

// exclude makes a host none of this MAAS, if there is an error.
func (h *hostObjects) exclude(host *infrav1.LXDHost, object *lxd.HostObject, err error) {
	if err != nil {
		object.Direct, object.Problem = false, &CredentialsError{Source: "LXDHost " + host.Name, cause: err}
	}
}

// IsOfMAAS reports whether a host can be one of this MAAS: a former VM host is one of the MAAS that it was in.
func IsOfMAAS(host *infrav1.LXDHost, config maas.Config) bool {
	return host.Spec.VMHost == nil || host.Annotations[infrav1.MAASAnnotation] == config.Where()
}

// hostObject returns what an LXDHost itself says to placement.
func hostObject(host *infrav1.LXDHost) lxd.HostObject {
	spec := &host.Spec
	object := lxd.HostObject{
		Namespace: host.Namespace, Name: host.Name, Unschedulable: spec.Cordoned() || !host.DeletionTimestamp.IsZero(),
		Allows: func(namespace string) bool { return spec.Allows(host.Namespace, namespace) },
	}
	if spec.VMHost != nil && spec.CredentialsRef == nil {
		return object
	}
	object.Direct, object.Server = true, publicServer(host)
	for _, device := range spec.AllowedDevices {
		allowed := lxd.AllowedDevice{Type: string(device.Type), Properties: device.Properties}
		object.AllowedDevices = append(object.AllowedDevices, allowed)
	}
	object.Zone, object.ResourcePool, object.Tags = spec.Zone, spec.ResourcePool, spec.Tags
	object.StoragePool, object.Bridge = spec.StoragePool, spec.NetworkBridge
	object.Subnet, _ = netip.ParsePrefix(spec.Subnet) // The API server accepts only a CIDR.
	object.Nameservers = spec.Nameservers
	object.Overcommit = Overcommit(spec.OverCommit)
	return object
}

// Overcommit returns what may be promised of an LXDHost's resources.
func Overcommit(o infrav1.LXDOverCommit) lxdhost.Overcommit {
	const percent = 100
	return lxdhost.Overcommit{Cores: float64(o.CPUPercent) / percent, Memory: float64(o.MemoryPercent) / percent}
}

// LXDHostRegion returns the MAAS whose clusters may use a host, until ReleaseLXDHost. The error is a *CredentialsError
// if there are no credentials for it, or bad ones.
func (f *Factory) LXDHostRegion(ctx context.Context, host *infrav1.LXDHost) (*Region, error) {
	config, err := f.LXDHostMAAS(ctx, host, 0)
	if err != nil {
		return nil, err
	}
	return f.useForHost(host, config)
}

func (f *Factory) useForHost(host *infrav1.LXDHost, config maas.Config) (*Region, error) {
	return f.use(config, lxdHostSource(host), hostUser(client.ObjectKeyFromObject(host)))
}

// lxdHostSource names where the credentials of an LXDHost's MAAS are from.
func lxdHostSource(host *infrav1.LXDHost) string {
	if ref := host.Spec.MAASCredentialsRef; ref != nil {
		return "Secret " + ref.Name
	}
	return managerSource
}

// ReleaseLXDHost removes an LXDHost from the users of its MAAS.
func (f *Factory) ReleaseLXDHost(host client.ObjectKey) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Registry.Release(hostUser(host).String())
	f.prune()
}

// ofHosts begins the names of LXDHosts among the users of a MAAS: no MaasCluster has such a name.
const ofHosts = "lxdhosts/"

func hostUser(host client.ObjectKey) client.ObjectKey {
	return client.ObjectKey{Namespace: ofHosts + host.Namespace, Name: host.Name}
}

// NamespacesOf returns the namespaces whose MaasClusters and LXDHosts use regions, sorted.
func (f *Factory) NamespacesOf(regions []*Region) []string {
	var namespaces []string
	for _, region := range regions {
		for _, user := range f.Registry.UsersOf(region.Inventory) {
			if namespace, _, _ := strings.Cut(strings.TrimPrefix(user, ofHosts), "/"); namespace != "" { // The manager has none.
				namespaces = append(namespaces, namespace)
			}
		}
	}
	slices.Sort(namespaces)
	return slices.Compact(namespaces)
}

// Server is the MAAS: regions with the same value are one MAAS, as several identities see it.
func (r *Region) Server() guard.Server { return r.server }

// Where is how objects record the MAAS: regions with the same value are one MAAS, as several identities see it.
func (r *Region) Where() string { return r.server.Address() }

// Regions returns the regions that are in use, always in the same order.
func (f *Factory) Regions() []*Region {
	f.mu.Lock()
	defer f.mu.Unlock()
	return list.Each(slices.Sorted(maps.Keys(f.regions)), func(id string) *Region { return f.regions[id] })
}

// Places are where the LXDHosts of MAAS's VM hosts belong, as MAAS has proven it. No other object of a VM host counts.
// The zero value knows none.
type Places struct {
	mu    sync.RWMutex
	known map[place]client.ObjectKey
}

type place struct {
	where string
	id    int64
}

// Put records which LXDHost is that of its VM host in the MAAS at where.
func (p *Places) Put(where string, host *infrav1.LXDHost) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil {
		p.known = map[place]client.ObjectKey{}
	}
	p.known[place{where, host.Spec.VMHost.ID}] = client.ObjectKeyFromObject(host)
}

// Forget forgets VM hosts that are gone.
func (p *Places) Forget(gone func(where string, id int) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.known, func(at place, _ client.ObjectKey) bool { return gone(at.where, int(at.id)) })
}

// Has reports whether an LXDHost is in its place: it is no VM host's, it is that of its VM host, or it is not known yet
// which one that is. Whoever claims a VM host then has the right to adopt one.
func (p *Places) Has(host *infrav1.LXDHost) bool {
	if host.Spec.VMHost == nil {
		return true
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	key, known := p.known[place{host.Annotations[infrav1.MAASAnnotation], host.Spec.VMHost.ID}]
	return !known || key == client.ObjectKeyFromObject(host)
}
