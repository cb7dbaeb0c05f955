// SPDX-License-Identifier: Apache-2.0

package report

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/dns"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/rights"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
	"github.com/capmaas/cluster-api-provider-maas/test/allkinds"
	"github.com/capmaas/cluster-api-provider-maas/test/golden"
	"github.com/capmaas/cluster-api-provider-maas/test/refused"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator/simtest"
)

const (
	administrator = "admin:token:secret"
	plainUser     = "joe:token:secret"
)

const messagesRegion = `
users:
- {name: admin, admin: true, keys: ["admin:token:secret"]}
- {name: joe, keys: ["joe:token:secret"]}
zones: [{name: zone-a}]
pools: [{name: capi}]
domains: [{name: maas.sim}, {name: ext.sim, authoritative: false}]
subnets:
- {cidr: 10.77.0.0/24, gateway: 10.77.0.1, dhcp: true, dynamic_ranges: [{start: 10.77.0.200, end: 10.77.0.254}]}
- {cidr: 10.78.0.0/30, fabric: other}
images: [{name: ubuntu/jammy}, {name: u-2204-k8s, uploaded: true}]
machines:
- {names: [metal-a, metal-b], zone: zone-a, pool: capi, cores: 8, memory: 32768, disks: [100]}
- {names: [metal-c], cores: 4, memory: 16384, disks: [100]}
vm_hosts:
- name: lxd-a
  zone: zone-a
  pool: capi
  cores: 8
  memory: 16384
  nics: [{name: br0}]
  storage_pools: [{name: default, type: zfs, size: 200}]
timings: {refresh: 0s}
`

// region is a MAAS, and what the provider asks it through.
type region struct {
	*scope.Region
	t       *testing.T
	sim     *simulator.Simulator
	url     string
	factory *scope.Factory
}

func newRegion(t *testing.T, version, key string) *region {
	t.Helper()
	sim, endpoint := simtest.Start(t, messagesRegion, simulator.Options{Version: version})
	r := &region{t: t, sim: sim, url: strings.TrimSuffix(endpoint, "/MAAS")}
	r.factory = factory(t, maas.Config{Endpoint: endpoint, APIKey: key})
	own, err := r.factory.Own()
	if err != nil {
		t.Fatal(err)
	}
	r.Region = own
	return r
}

// factory makes scopes with the manager's credentials, or those of a Secret.
func factory(t *testing.T, config maas.Config, secrets ...*corev1.Secret) *scope.Factory {
	t.Helper()
	client := fake.NewClientBuilder().WithScheme(allkinds.Scheme())
	for _, secret := range secrets {
		client = client.WithObjects(secret)
	}
	f := &scope.Factory{
		Client: client.Build(), Registry: inventory.NewRegistry(inventory.Options{}), Manager: scope.ManagerCredentials{Given: &config},
	}
	go func() { _ = f.Registry.Start(t.Context()) }()
	return f
}

// first is the first call of a cluster that names a Secret with this endpoint and key.
func first(t *testing.T, endpoint, key string) error {
	t.Helper()
	s, err := secret(t, map[string]string{"endpoint": endpoint, "apiKey": key})
	if err == nil {
		_, err = s.Inventory.Client().ListZones(t.Context())
		err = s.From(err)
	}
	return err
}

// own is the first call of a cluster that has the manager's credentials.
func own(t *testing.T, endpoint, key string) error {
	t.Helper()
	s, err := factory(t, maas.Config{Endpoint: endpoint, APIKey: key}).Cluster(t.Context(), &clusterv1.Cluster{}, &infrav1.MaasCluster{})
	if err == nil {
		_, err = s.Inventory.Client().ListZones(t.Context())
		err = s.From(err)
	}
	return err
}

func (r *region) names(p maas.AllocateParams) error { return r.Machines.CheckNames(r.t.Context(), p) }

func (r *region) nic(nic machine.NIC) error {
	return r.Machines.CheckNICs(r.t.Context(), []machine.NIC{nic}, nil)
}

func (r *region) address(address string) error {
	return fmt.Errorf("spec.staticIP: %w", r.nic(machine.NIC{Mode: maas.LinkModeStatic, Address: address})) // as the controller does
}

func (r *region) image(image, architecture string) error {
	return r.Machines.CheckImage(r.t.Context(), image, architecture)
}

// reserve gives another user of MAAS an address.
func (r *region) reserve(address string) {
	r.t.Helper()
	_, err := r.Inventory.Client().ReserveAddress(r.t.Context(), maas.Unrecorded("a test"), maas.ReserveParams{IP: address})
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *region) virtualIP(address, subnet string) error {
	_, err := r.DNS.ReserveVirtualIP(r.t.Context(), maas.Unrecorded("a test"), "api.maas.sim", address, subnet)
	return err
}

// vm looks for a host.
func (r *region) vm(change func(*lxd.VMSpec)) error {
	spec := lxd.VMSpec{Hostname: "vm", Cluster: "c", Resources: lxd.Resources{Cores: 2, Memory: 4096, Disk: 20}}
	change(&spec)
	hosts, err := r.Machines.LXD().GetAvailableLXDHosts(r.t.Context(), spec)
	if err == nil {
		_, err = r.Machines.LXD().SelectOptimalHost(hosts, spec, nil)
	}
	return err
}

// metal says why no machine can be allocated, as the controller does.
func (r *region) metal(p maas.AllocateParams) error {
	machines, err := r.Inventory.BareMetal(r.t.Context(), time.Hour)
	if err == nil {
		err = NotReady(Problem{Reason: infrav1.NoMachineAvailableReason, Message: r.Machines.WhyNone(machines, p)})
	}
	return err
}

func (r *region) may(what string, use rights.Use) error {
	return rights.Require(r.t.Context(), r.Inventory, what, use)
}

// tag makes a tag, which not every user may.
func (r *region) tag() error {
	return r.Inventory.Client().CreateTag(r.t.Context(), maas.Unrecorded("a test"), maas.Tag{Name: "t"})
}

// handshake asks MAAS over TLS, by a name and at a time; without a name the authority is not known.
func (r *region) handshake(name string, at time.Time) error {
	r.t.Helper()
	server := httptest.NewUnstartedServer(r.sim.Handler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // The handshakes are meant to fail.
	server.StartTLS()
	r.t.Cleanup(server.Close)
	if name == "" {
		return first(r.t, server.URL+"/MAAS", administrator)
	}
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	connection, err := (&net.Dialer{}).DialContext(r.t.Context(), "tcp", server.Listener.Addr().String())
	if err != nil {
		return err
	}
	defer connection.Close()
	config := &tls.Config{RootCAs: pool, ServerName: name, Time: func() time.Time { return at }, MinVersion: tls.VersionTLS12}
	return &untrusted{tls.Client(connection, config).HandshakeContext(r.t.Context())}
}

// untrusted stands for the client's error of a handshake that failed.
type untrusted struct{ cause error }

func (e *untrusted) Error() string { return e.cause.Error() }

func (e *untrusted) Unwrap() []error { return []error{maas.Untrusted, e.cause} }

// secret makes the scope of a cluster that names a Secret with these data.
func secret(t *testing.T, data map[string]string) (*scope.Cluster, error) {
	t.Helper()
	held := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "maas"}, Data: map[string][]byte{}}
	for key, value := range data {
		held.Data[key] = []byte(value)
	}
	cluster := &infrav1.MaasCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c"}}
	cluster.Spec.CredentialsRef = &infrav1.LocalObjectReference{Name: "maas"}
	return factory(t, maas.Config{}, held).Cluster(t.Context(), &clusterv1.Cluster{}, cluster)
}

// wrongSecret returns what is wrong with the data of a Secret.
func wrongSecret(t *testing.T, data map[string]string) error {
	t.Helper()
	_, err := secret(t, data)
	return err
}

// What a spec, a Secret or the chart's values can have wrong, with the sentence that conditions, helm test and capmaasctl have
// for it: it names the field, what MAAS has, and the remedy.
func TestMessagesForWrongInput(t *testing.T) {
	r := newRegion(t, "3.6", administrator)
	joe, joe38 := newRegion(t, "3.6", plainUser), newRegion(t, "3.8", plainUser)
	without := newRegion(t, "4.0", administrator)
	r.reserve("10.77.0.121")
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "<html>It works!</html>")
	}))
	t.Cleanup(page.Close)
	valid := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	nobody := refused.Port(t)
	for _, full := range []string{"10.78.0.1", "10.78.0.2"} {
		r.reserve(full)
	}
	zones, err := r.Inventory.Zones(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	domains, err := r.Inventory.Domains(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]error{
		"a zone":                                r.names(maas.AllocateParams{Zone: "zone-x"}),
		"a resource pool":                       r.names(maas.AllocateParams{Pool: "cappi"}),
		"a tag":                                 r.names(maas.AllocateParams{Tags: []string{"fast"}}),
		"failure domains of a cluster":          machine.Has(zones, machine.MissingZone, "spec.failureDomains", "zone-a", "zone-x", "zone-y"),
		"a domain":                              dns.CheckDomain(domains, "mass.sim"),
		"a domain that MAAS does not serve":     dns.CheckDomain(domains, "ext.sim"),
		"an image":                              r.image("custom/u-2404-k8s", ""),
		"an image for another architecture":     r.image("custom/u-2204-k8s", "arm64/generic"),
		"an address in no subnet":               r.address("192.168.9.9"),
		"an address that DHCP gives away":       r.address("10.77.0.220"),
		"an address that is taken":              r.address("10.77.0.121"),
		"no address":                            r.address("10.77.0"),
		"the subnet of an interface":            r.nic(machine.NIC{Name: "bond0", Mode: maas.LinkModeAuto, Subnet: "10.99.0.0/24"}),
		"a virtual IP that is taken":            r.virtualIP("10.77.0.121", ""),
		"a virtual IP that DHCP gives away":     r.virtualIP("10.77.0.220", ""),
		"a virtual IP in a full subnet":         r.virtualIP("", "10.78.0.0/30"),
		"a virtual IP in no subnet":             r.virtualIP("", "10.99.0.0/24"),
		"a VM's zone":                           r.vm(func(s *lxd.VMSpec) { s.Zone = "default" }),
		"a VM's resource pool":                  r.vm(func(s *lxd.VMSpec) { s.ResourcePool = "default" }),
		"a VM's tag":                            r.vm(func(s *lxd.VMSpec) { s.Tags = []string{"fast"} }),
		"a VM's storage pool":                   r.vm(func(s *lxd.VMSpec) { s.StoragePool = "fast" }),
		"a VM's bridge":                         r.vm(func(s *lxd.VMSpec) { s.Devices = []lxd.Device{{Name: "eth0", Bridge: "br9"}} }),
		"a VM's profile":                        r.vm(func(s *lxd.VMSpec) { s.Profile = "fast" }),
		"a VM's project":                        r.vm(func(s *lxd.VMSpec) { s.Project = "nosuch" }),
		"a VM that is too large":                r.vm(func(s *lxd.VMSpec) { s.Cores = 64 }),
		"a VM where MAAS has no VM hosts":       without.vm(func(*lxd.VMSpec) {}),
		"bare metal with too much memory":       r.metal(maas.AllocateParams{MinMemory: 64000}),
		"bare metal with too many cores":        r.metal(maas.AllocateParams{Pool: "capi", MinCPU: 64}),
		"bare metal with too large a disk":      r.metal(maas.AllocateParams{MinDiskSize: 1000}),
		"bare metal that another pool has":      r.metal(maas.AllocateParams{Pool: "other"}),
		"bare metal of another architecture":    r.metal(maas.AllocateParams{Architecture: "arm64"}),
		"a plain user's key for a VM":           joe.may("a VM (spec.provisioningMode)", rights.VMs),
		"a plain user's key for interfaces":     joe.may("spec.interfaces", rights.Interfaces),
		"a plain user's key, MAAS 3.8":          joe38.tag(),
		"a key that MAAS does not know":         first(t, r.url+"/MAAS", "nobody:token:secret"),
		"the manager's key":                     own(t, r.url+"/MAAS", "nobody:token:secret"),
		"a VM with too much memory":             r.vm(func(s *lxd.VMSpec) { s.Memory = 1 << 20 }),
		"a VM with too large a disk":            r.vm(func(s *lxd.VMSpec) { s.Disk = 1000 }),
		"a VM's host":                           r.vm(func(s *lxd.VMSpec) { s.HostName = "lxd-z9" }),
		"a key with a wrong secret":             first(t, r.url+"/MAAS", "admin:token:wrong"),
		"a URL without /MAAS":                   first(t, r.url, administrator),
		"a URL of another server":               first(t, page.URL+"/MAAS", administrator),
		"https where it is http":                first(t, strings.Replace(r.url, "http:", "https:", 1)+"/MAAS", administrator),
		"a port on which nobody listens":        first(t, "http://"+nobody+"/MAAS", administrator),
		"a certificate of an unknown authority": r.handshake("", valid),
		"a certificate that has expired":        r.handshake("example.com", time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)),
		"a certificate for another name":        r.handshake("maas.example.org", valid),
		"a Secret without the API key":          wrongSecret(t, map[string]string{"endpoint": r.url, "api-key": administrator}),
		"a Secret without the endpoint":         wrongSecret(t, map[string]string{"url": r.url, "apiKey": administrator}),
		"a Secret without keys":                 wrongSecret(t, nil),
		"a Secret with a malformed API key":     wrongSecret(t, map[string]string{"endpoint": r.url, "apiKey": "admin"}),
		"a Secret with a malformed endpoint":    wrongSecret(t, map[string]string{"endpoint": "maas.example.com", "apiKey": administrator}),
		"a Secret with a malformed CA":          wrongSecret(t, map[string]string{"endpoint": r.url, "apiKey": administrator, "caBundle": "x"}),
	}
	sentences := map[string]string{}
	for name, err := range got {
		if err == nil {
			t.Errorf("%s is not refused", name)
			continue
		}
		p := Explain(err)
		sentences[name] = p.Reason + ": " + strings.ReplaceAll(p.Message, nobody, "nobody:5240")
		if strings.Contains(p.Message, administrator) {
			t.Errorf("%s: the message has the key", name)
		}
	}
	golden.Sentences(t, "conditions.txt", sentences)
}
