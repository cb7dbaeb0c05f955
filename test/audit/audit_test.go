// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/juju/gomaasapi/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/ownership"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

const (
	adminKey = "admin:token:secret"
	otherKey = "other:token:secret"
	region   = `
users: [{name: admin, admin: true, keys: ["` + adminKey + `"]}, {name: other, admin: true, keys: ["` + otherKey + `"]}]
zones: [{name: zone-a}]
domains: [{name: maas.sim, default: true}]
subnets: [{cidr: 10.77.0.0/24, dhcp: true, dynamic_ranges: [{start: 10.77.0.200, end: 10.77.0.254}]}]
images: [{name: ubuntu/jammy}]
machines: [{names: [metal-a, metal-b, metal-c, metal-d], zone: zone-a, cores: 8, memory: 16384, disks: [100]}]
vm_hosts: [{name: lxd-a, zone: zone-a, cores: 16, memory: 65536, storage_pools: [{name: default, size: 500}]}]
timings: {vm_host_sync: 24h, power_poll: 24h}
`
	owner = "owner1"
)

// bed is a MAAS in which another user has things, and a cluster of ours with a VM as its control plane and a bare-metal
// worker.
type bed struct {
	*simulator.Simulator
	*testing.T
	url             string
	maas, other     *maas.Client
	kube            client.Client
	audit           *Auditor
	cluster         *infrav1.MaasCluster
	cp, worker      *infrav1.MaasMachine
	vm, metal       *maas.Machine
	record          *maas.DNSResource
	stranger, theVM *maas.Machine // not ours
	theDevice       *maas.Device
	foreignRecord   *maas.DNSResource
}

func newBed(t *testing.T) *bed {
	t.Helper()
	parsed, err := simulator.LoadRegion(strings.NewReader(region))
	if err != nil {
		t.Fatal(err)
	}
	sim, err := simulator.New(parsed, simulator.Options{TimeScale: 5000})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	server := httptest.NewServer(sim.Handler())
	t.Cleanup(server.Close)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{infrav1.AddToScheme, clusterv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	b := &bed{Simulator: sim, T: t, url: server.URL + "/MAAS", kube: fake.NewClientBuilder().WithScheme(scheme).Build()}
	b.maas, b.other = b.as(adminKey), b.as(otherKey)
	b.others()
	if b.audit, err = Open(sim, b.kube, Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.audit.Close)
	b.ours()
	return b
}

func (b *bed) as(key string) *maas.Client {
	b.Helper()
	return must(maas.NewClient(maas.Config{Endpoint: b.url, APIKey: key}))(b.T)
}

func must[V any](value V, err error) func(*testing.T) V {
	return func(t *testing.T) V {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// others makes objects that are not ours.
func (b *bed) others() {
	b.Helper()
	stranger := must(b.other.AllocateMachine(b.Context(), maas.Unrecorded("a test"), maas.AllocateParams{AgentName: "capmaas/elsewhere/a", NotOnVMHosts: []string{"lxd-a"}}))(b.T)
	must(b.other.DeployMachine(b.Context(), maas.Unrecorded("a test"), stranger.SystemID, maas.DeployParams{DistroSeries: "ubuntu/jammy"}))(b.T)
	b.stranger = b.become(stranger.SystemID, maas.StatusDeployed)
	b.theVM = b.become(b.compose("theirs"), maas.StatusReady)
	b.theDevice = must(b.other.CreateDevice(b.Context(), maas.Unrecorded("a test"), maas.CreateDeviceParams{
		Hostname: "printer", MACAddresses: []string{"00:16:3e:00:00:09"},
	}))(b.T)
	b.foreignRecord = must(b.other.CreateDNSResource(b.Context(), maas.Unrecorded("a test"), "www.maas.sim", []string{"10.77.0.9"}, 30))(b.T)
	b.post(otherKey, "ipaddresses/", "reserve", url.Values{"ip": {"10.77.0.8"}})
	b.quiet()
}

// quiet waits until nothing is on its way in MAAS.
func (b *bed) quiet() {
	b.Helper()
	b.waitFor("MAAS to be quiet", func() bool {
		state := string(b.State())
		return !slices.ContainsFunc(b.Machines(), func(m simulator.MachineSnapshot) bool {
			return m.Status != "Ready" && m.Status != "Deployed" && m.Status != "Allocated" || m.Running != (m.Power == "on")
		}) && state == string(b.State())
	})
}

func (b *bed) waitFor(what string, done func() bool) {
	b.Helper()
	eventually.True(b, what, done, func() any { return fmt.Sprintf("MAAS has %+v", b.Machines()) })
}

func (b *bed) become(systemID string, status maas.Status) (m *maas.Machine) {
	b.Helper()
	b.waitFor("machine "+systemID, func() bool {
		m = must(b.maas.GetMachine(b.Context(), systemID))(b.T)
		return m.Status == status && (status != maas.StatusDeployed || len(m.IPAddresses) > 0)
	})
	return m
}

func (b *bed) compose(hostname string) (systemID string) {
	b.Helper()
	hosts := must(b.maas.ListVMHosts(b.Context()))(b.T)
	return must(b.maas.Compose(b.Context(), maas.Unrecorded("a test"), hosts[0].ID, maas.ComposeParams{
		Hostname: hostname, Cores: 2, Memory: 2048, Storage: "root:10", ZoneID: hosts[0].Zone.ID, PoolID: hosts[0].Pool.ID, SkipCommissioning: true,
	}))(b.T)
}

// post makes calls that the client lacks.
func (b *bed) post(key, path, op string, values url.Values) {
	b.Helper()
	c := must(gomaasapi.NewAuthenticatedClient(b.url+"/api/2.0/", key))(b.T)
	must(c.Post(&url.URL{Path: path}, op, values, nil))(b.T)
}

func (b *bed) object(name string, controlPlane bool) *infrav1.MaasMachine {
	m := &infrav1.MaasMachine{}
	m.Namespace, m.Name = "ns", name
	m.Labels = map[string]string{clusterv1.ClusterNameLabel: "c1"}
	if controlPlane {
		m.Labels[clusterv1.MachineControlPlaneLabel] = ""
		m.Spec.ProvisioningMode = infrav1.ProvisioningModeLXD
		m.Status.DNSAttached = true
	}
	return m
}

func (b *bed) create(object client.Object) {
	b.Helper()
	if err := b.kube.Create(b.Context(), object); err != nil {
		b.Fatal(err)
	}
}

func (b *bed) update(object client.Object) {
	b.Helper()
	if err := b.kube.Update(b.Context(), object); err != nil {
		b.Fatal(err)
	}
}

// acquire takes bare metal as the provider does.
func (b *bed) acquire(name string) *maas.Machine {
	b.Helper()
	m := must(b.maas.AllocateMachine(b.Context(), maas.Unrecorded("a test"), maas.AllocateParams{AgentName: "capmaas/" + owner + "/" + name, NotOnVMHosts: []string{"lxd-a"}}))(b.T)
	return b.deploy(m.SystemID, name)
}

func (b *bed) deploy(systemID, name string) *maas.Machine {
	b.Helper()
	must(b.maas.DeployMachine(b.Context(), maas.Unrecorded("a test"), systemID, maas.DeployParams{AgentName: "capmaas/" + owner + "/" + name, DistroSeries: "ubuntu/jammy"}))(b.T)
	must(b.maas.SetWorkloadAnnotations(b.Context(), maas.Unrecorded("a test"), systemID, map[string]string{ownership.AnnotationOwner: owner, ownership.AnnotationMachine: "ns." + name}))(b.T)
	return b.become(systemID, maas.StatusDeployed)
}

// ours makes a cluster.
func (b *bed) ours() {
	b.Helper()
	b.cluster = &infrav1.MaasCluster{}
	b.cluster.Namespace, b.cluster.Name = "ns", "c1"
	b.cluster.Labels = map[string]string{clusterv1.ClusterNameLabel: "c1"}
	b.cluster.Annotations = map[string]string{infrav1.OwnerIDAnnotation: owner}
	b.cluster.Spec.DNSDomain = "maas.sim"
	b.create(b.cluster)
	b.cp, b.worker = b.object("cp", true), b.object("worker", false)
	vm := b.become(b.compose(maas.Hostname("cp", owner)), maas.StatusReady)
	b.link(vm, maas.LinkModeStatic, "10.77.0.60")
	b.vm, b.metal = b.deploy(vm.SystemID, "cp"), b.acquire("worker")
	b.cp.Spec.SystemID, b.worker.Spec.SystemID = b.vm.SystemID, b.metal.SystemID
	b.cp.Spec.StaticIP = "10.77.0.60"
	b.create(b.cp)
	b.create(b.worker)
	b.record = must(b.maas.CreateDNSResource(b.Context(), maas.Unrecorded("a test"), b.endpoint(), b.vm.IPAddresses, 10))(b.T)
	b.quiet()
}

func (b *bed) link(m *maas.Machine, mode, address string) {
	b.Helper()
	subnets := must(b.maas.ListSubnets(b.Context()))(b.T)
	must(b.maas.LinkSubnet(b.Context(), maas.Unrecorded("a test"), m.SystemID, m.BootInterface.ID, maas.LinkParams{
		Mode: mode, SubnetID: subnets[0].ID, IPAddress: address, Replace: true,
	}))(b.T)
}

// device registers a VM that MAAS does not manage, with an address, as the provider does.
func (b *bed) device(name, mac string) *maas.Device {
	b.Helper()
	device := must(b.maas.CreateDevice(b.Context(), maas.Unrecorded("a test"), maas.CreateDeviceParams{
		Hostname: maas.Hostname(name, owner), MACAddresses: []string{mac}, Description: "capmaas/" + owner + "/" + name,
	}))(b.T)
	b.address(device)
	return must(b.maas.AnnotateDevice(b.Context(), maas.Unrecorded("a test"), device.SystemID,
		map[string]string{ownership.AnnotationOwner: owner, ownership.AnnotationMachine: "ns." + name}))(b.T)
}

func (b *bed) address(device *maas.Device) {
	b.Helper()
	must(b.maas.LinkSubnet(b.Context(), maas.Unrecorded("a test"), device.SystemID, device.Interfaces[0].ID,
		maas.LinkParams{Mode: maas.LinkModeStatic, Subnet: "10.77.0.0/24"}))(b.T)
}

// registered makes an object whose VM MAAS has a device for.
func (b *bed) registered(name string) *maas.Device {
	b.Helper()
	device, object := b.device(name, "00:16:3e:00:00:02"), b.object(name, true)
	object.Spec.SystemID, object.Status.DNSAttached = device.SystemID, false
	b.create(object)
	return device
}

func (b *bed) endpoint() string { return maas.EndpointLabel("c1", owner) + ".maas.sim" }

func (b *bed) release(m *maas.Machine) {
	b.Helper()
	must(b.maas.ReleaseMachine(b.Context(), maas.UnrecordedRelease("a test"), m.SystemID, maas.ReleaseParams{}))(b.T)
	b.become(m.SystemID, maas.StatusReady)
	b.quiet()
}

// drop deletes objects.
func (b *bed) drop(objects ...client.Object) {
	b.Helper()
	for _, o := range objects {
		if err := b.kube.Delete(b.Context(), o); err != nil {
			b.Fatal(err)
		}
	}
}

// end deletes the cluster and all that it has.
func (b *bed) end() {
	b.Helper()
	if err := b.audit.Learn(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.deleteRecord(b.record)
	b.deleteVM(b.vm)
	b.release(b.metal)
	b.drop(b.cp, b.worker, b.cluster)
}

func (b *bed) deleteVM(m *maas.Machine) {
	b.Helper()
	if err := b.maas.DeleteMachine(b.Context(), maas.Unrecorded("a test"), m.SystemID); err != nil {
		b.Fatal(err)
	}
}

func (b *bed) deleteRecord(record *maas.DNSResource) {
	b.Helper()
	if err := b.maas.DeleteDNSResource(b.Context(), maas.Unrecorded("a test"), record.ID); err != nil {
		b.Fatal(err)
	}
}

func (b *bed) steady(who Who) []Finding {
	b.Helper()
	return must(b.audit.Steady(b.Context(), who))(b.T)
}

func (b *bed) gone(who Who) []Finding {
	b.Helper()
	return must(b.audit.Gone(b.Context(), who))(b.T)
}

// hasOnly checks that there is a finding of a kind that names all of these, and none of another kind.
func (b *bed) hasOnly(findings []Finding, kind Kind, names ...string) {
	b.Helper()
	found := false
	for _, f := range findings {
		named := !slices.ContainsFunc(names, func(name string) bool { return !strings.Contains(f.What, name) })
		found = found || f.Kind == kind && named
		if f.Kind != kind && f.Kind != Different {
			b.Errorf("found, and is not so: %s", f)
		}
	}
	if !found {
		b.Errorf("not found: %s %q; only %v", kind, names, findings)
	}
}

var (
	mine     = Who{Namespace: "ns", Cluster: "c1"}
	everyone = Who{}
)

func TestAClusterThatIsAsItShouldBeHasNoFindings(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	device := b.registered("direct")
	for _, who := range []Who{mine, everyone, {Namespace: "ns"}} {
		if diff := cmp.Diff([]Finding(nil), b.steady(who)); diff != "" {
			t.Errorf("while it lives, for %+v:\n%s", who, diff)
		}
	}
	if err := b.maas.DeleteDevice(t.Context(), maas.Unrecorded("a test"), device.SystemID); err != nil {
		t.Fatal(err)
	}
	b.drop(b.object("direct", true))
	b.end()
	for _, who := range []Who{mine, everyone} {
		if diff := cmp.Diff([]Finding(nil), b.gone(who)); diff != "" {
			t.Errorf("when it is gone, for %+v:\n%s", who, diff)
		}
	}
}

const virtualIP = "10.77.0.90"

// virtual gives the cluster a virtual IP in place of its record.
func (b *bed) virtual() {
	b.Helper()
	b.deleteRecord(b.record)
	b.post(adminKey, "ipaddresses/", "reserve", url.Values{"ip": {virtualIP}, "hostname": {b.endpoint()}})
	b.cluster.Spec.VirtualIP = &infrav1.VirtualIP{Address: virtualIP}
	b.cluster.Spec.ControlPlaneEndpoint = infrav1.APIEndpoint{Host: virtualIP, Port: infrav1.DefaultAPIServerPort}
	b.update(b.cluster)
	b.record = &must(b.maas.ListDNSResources(b.Context(), b.endpoint()))(b.T)[0]
}

func (b *bed) releaseVirtualIP() {
	b.post(adminKey, "ipaddresses/", "release", url.Values{"ip": {virtualIP}})
}

// The address of a cluster with a virtual IP is reserved, under its name, as long as the cluster is there.
func TestVirtualIP(t *testing.T) {
	t.Parallel()
	both := []Who{mine, everyone}
	t.Run("as it should be", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		b.virtual()
		for _, who := range both {
			if diff := cmp.Diff([]Finding(nil), b.steady(who)); diff != "" {
				t.Errorf("for %+v:\n%s", who, diff)
			}
		}
	})
	t.Run("not reserved", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		b.virtual()
		b.releaseVirtualIP()
		for _, who := range both {
			b.hasOnly(b.steady(who), Address, virtualIP)
		}
	})
	t.Run("its name leads elsewhere", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		b.virtual()
		must(b.maas.UpdateDNSResource(b.Context(), maas.Unrecorded("a test"), b.record.ID, b.stranger.IPAddresses))(b.T)
		for _, who := range both {
			b.hasOnly(b.steady(who), Record, b.endpoint(), virtualIP)
		}
	})
	t.Run("left behind", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		b.virtual()
		b.end()
		b.post(adminKey, "ipaddresses/", "reserve", url.Values{"ip": {virtualIP}})
		for _, who := range both {
			b.hasOnly(b.gone(who), Address, virtualIP)
		}
	})
}

// Each case breaks one thing in the life of the cluster.
func TestWhatIsWrongWithAClusterThatLivesIsFound(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		do   func(*bed)
		kind Kind
		says func(*bed) []string
		// global means that its owner is unknown.
		global bool
	}{
		"bare metal that no object claims": {do: func(b *bed) { b.drop(b.worker) }, kind: Leaked,
			says: func(b *bed) []string { return []string{b.metal.Hostname} }},
		"bare metal that was allocated, and nothing else": {kind: Leaked,
			do: func(b *bed) {
				must(b.maas.AllocateMachine(b.Context(), maas.Unrecorded("a test"), maas.AllocateParams{AgentName: "capmaas/" + owner + "/other", NotOnVMHosts: []string{"lxd-a"}}))(b.T)
			},
			says: func(*bed) []string { return []string{"capmaas/" + owner + "/other"} }},
		"a VM that was composed, and nothing else": {kind: Leaked,
			do:   func(b *bed) { b.become(b.compose(maas.Hostname("other", owner)), maas.StatusReady) },
			says: func(*bed) []string { return []string{maas.Hostname("other", owner)} }},
		"a VM that was enlisted, and nothing else": {kind: Leaked,
			do: func(b *bed) {
				b.post(adminKey, "machines/", "", url.Values{
					"hostname": {maas.Hostname("other", owner)}, "architecture": {"amd64/generic"}, "mac_addresses": {"00:16:3e:00:00:01"},
					"power_type": {maas.PowerTypeLXD}, "power_parameters_power_address": {"https://10.77.0.7:8443"},
					"power_parameters_instance_name": {"other"}, "commission": {"false"},
				})
			},
			says: func(*bed) []string { return []string{maas.Hostname("other", owner)} }},
		"a device that MAAS does not have": {kind: Lost, do: func(b *bed) {
			if err := b.maas.DeleteDevice(b.Context(), maas.Unrecorded("a test"), b.registered("direct").SystemID); err != nil {
				b.Fatal(err)
			}
		}, says: func(*bed) []string { return []string{"ns/direct"} }},
		"a device with a second address": {kind: Address, do: func(b *bed) { b.address(b.registered("direct")) },
			says: func(*bed) []string { return []string{maas.Hostname("direct", owner)} }},
		"a machine with our annotations alone": {kind: Leaked,
			do: func(b *bed) {
				m := must(b.maas.AllocateMachine(b.Context(), maas.Unrecorded("a test"), maas.AllocateParams{NotOnVMHosts: []string{"lxd-a"}}))(b.T)
				must(b.maas.SetWorkloadAnnotations(b.Context(), maas.Unrecorded("a test"), m.SystemID, map[string]string{ownership.AnnotationOwner: owner, ownership.AnnotationMachine: "ns.other"}))(b.T)
			},
			says: func(*bed) []string { return []string{"ns.other"} }},
		"a second machine for an object": {kind: Doubled,
			do: func(b *bed) {
				must(b.maas.AllocateMachine(b.Context(), maas.Unrecorded("a test"), maas.AllocateParams{AgentName: "capmaas/" + owner + "/worker", NotOnVMHosts: []string{"lxd-a"}}))(b.T)
			},
			says: func(b *bed) []string { return []string{"ns/worker", b.metal.SystemID} }},
		"a second object for a machine": {kind: Doubled,
			do: func(b *bed) {
				twin := b.object("twin", false)
				twin.Spec.SystemID = b.metal.SystemID
				b.create(twin)
			},
			says: func(*bed) []string { return []string{"ns/worker", "ns/twin"} }},
		"an object that has another user's machine": {kind: Stolen,
			do: func(b *bed) {
				thief := b.object("thief", false)
				thief.Spec.SystemID = b.stranger.SystemID
				b.create(thief)
			},
			says: func(b *bed) []string { return []string{"ns/thief", b.stranger.SystemID} }},
		"a device that is no object's": {kind: Leaked, do: func(b *bed) { b.register("any", "capmaas/"+owner+"/any") },
			says: func(*bed) []string { return []string{"any", "capmaas/" + owner + "/any"} }},
		"a machine that MAAS does not have": {kind: Lost, do: func(b *bed) {
			b.worker.Spec.SystemID = "nosuch"
			b.release(b.metal)
			b.update(b.worker)
		}, says: func(*bed) []string { return []string{"nosuch", "ns/worker"} }},
		"a static address that nobody asked for": {kind: Address, do: func(b *bed) {
			b.cp.Spec.StaticIP = "10.77.0.61"
			b.update(b.cp)
		}, says: func(*bed) []string { return []string{"10.77.0.60", "10.77.0.61"} }},
		"a record that leads elsewhere": {kind: Record, do: func(b *bed) {
			must(b.maas.UpdateDNSResource(b.Context(), maas.Unrecorded("a test"), b.record.ID, append(b.stranger.IPAddresses, b.vm.IPAddresses...)))(b.T)
		}, says: func(b *bed) []string { return []string{b.endpoint(), b.stranger.IPAddresses[0]} }},
		"a record that leads to a control plane that is being deleted": {kind: Record, do: func(b *bed) {
			second := b.object("cp2", true)
			second.Finalizers = []string{infrav1.MachineFinalizer}
			vm := b.deploy(b.compose(maas.Hostname("cp2", owner)), "cp2")
			second.Spec.SystemID, second.Status.DNSAttached = vm.SystemID, false
			b.create(second)
			b.drop(second)
			must(b.maas.UpdateDNSResource(b.Context(), maas.Unrecorded("a test"), b.record.ID, append(vm.IPAddresses, b.vm.IPAddresses...)))(b.T)
		}, says: func(b *bed) []string { return []string{b.endpoint()} }},
		"no record though there is a control plane": {kind: Record, do: func(b *bed) { b.deleteRecord(b.record) },
			says: func(b *bed) []string { return []string{b.endpoint()} }},
		"a VM on a host that MAAS does not know": {kind: Leaked,
			do:   func(b *bed) { b.stowaway(maas.Hostname("lost", owner)) },
			says: func(*bed) []string { return []string{maas.Hostname("lost", owner), "lxd-a"} }},
		"a VM that MAAS took in under another name": {kind: Leaked,
			do: func(b *bed) {
				name := maas.Hostname("lost", owner)
				b.post(adminKey, "machines/", "", url.Values{
					"hostname": {name}, "architecture": {"amd64/generic"}, "mac_addresses": {"00:16:3e:00:00:01"}, "power_type": {"manual"}, "commission": {"false"},
				})
				b.stowaway(name)
				must(b.maas.RefreshVMHost(b.Context(), must(b.maas.ListVMHosts(b.Context()))(b.T)[0].ID))(b.T)
			},
			says: func(*bed) []string { return []string{maas.Hostname("lost", owner), "lxd-a"} }},
		"bare metal that is being released when its object is gone": {kind: Leaked,
			do: func(b *bed) {
				m := must(b.maas.AllocateMachine(b.Context(), maas.Unrecorded("a test"), maas.AllocateParams{AgentName: "capmaas/" + owner + "/other", NotOnVMHosts: []string{"lxd-a"}}))(b.T)
				must(b.maas.DeployMachine(b.Context(), maas.Unrecorded("a test"), m.SystemID, maas.DeployParams{DistroSeries: "ubuntu/jammy"}))(b.T)
				b.become(m.SystemID, maas.StatusDeployed)
				b.quiet()
				if err := b.SetTimeScale(1); err != nil {
					b.Fatal(err)
				}
				must(b.maas.ReleaseMachine(b.Context(), maas.UnrecordedRelease("a test"), m.SystemID, maas.ReleaseParams{}))(b.T)
			},
			says: func(*bed) []string { return []string{"Releasing"} }},
		"a VM on a host that MAAS does not know, whosever": {kind: Leaked, global: true,
			do:   func(b *bed) { b.stowaway("whosever") },
			says: func(*bed) []string { return []string{"whosever", "lxd-a"} }},
		"an address that is reserved": {kind: Address, global: true,
			do:   func(b *bed) { b.post(adminKey, "ipaddresses/", "reserve", url.Values{"ip": {"10.77.0.70"}}) },
			says: func(*bed) []string { return []string{"10.77.0.70"} }},
		"a static link of a machine that is back in the pool": {kind: Address,
			do: func(b *bed) {
				b.drop(b.worker)
				b.release(b.metal)
				b.link(b.metal, maas.LinkModeStatic, "10.77.0.71")
			},
			says: func(b *bed) []string { return []string{b.metal.Hostname, "10.77.0.71"} }},
		"a record that is no cluster's": {kind: Record, global: true,
			do: func(b *bed) {
				must(b.maas.CreateDNSResource(b.Context(), maas.Unrecorded("a test"), "left.maas.sim", b.stranger.IPAddresses, 10))(b.T)
			},
			says: func(b *bed) []string { return []string{"left.maas.sim", b.stranger.IPAddresses[0]} }},
		"a host that can't be looked at": {kind: Unseen, do: func(b *bed) { b.BreakVMHost("lxd-a", true, false) },
			says: func(*bed) []string { return []string{"lxd-a"} }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			tc.do(b)
			b.hasOnly(b.steady(everyone), tc.kind, tc.says(b)...)
			if tc.global {
				if found := b.steady(mine); len(found) > 0 {
					t.Errorf("the cluster is blamed for what is not known to be its: %v", found)
				}
				return
			}
			b.hasOnly(b.steady(mine), tc.kind, tc.says(b)...)
		})
	}
}

// register makes a device.
func (b *bed) register(hostname, mark string) *maas.Device {
	b.Helper()
	params := maas.CreateDeviceParams{Hostname: hostname, Description: mark, MACAddresses: []string{"00:16:3e:00:00:01"}}
	return must(b.maas.CreateDevice(b.Context(), maas.Unrecorded("a test"), params))(b.T)
}

// stowaway makes a VM on a host behind MAAS's back.
func (b *bed) stowaway(name string) {
	b.Helper()
	body := `{"name": "` + name + `", "cores": 1, "memory": 1024, "disks": [5]}`
	request := must(http.NewRequestWithContext(b.Context(), http.MethodPost, strings.TrimSuffix(b.url, "/MAAS")+"/control/vm-hosts/lxd-a/vms", strings.NewReader(body)))(b.T)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		b.Fatal(answer.Status)
	}
}

func TestWhatWasNeverOursAndChangedIsFound(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		do   func(*bed)
		says func(*bed) string
	}{
		"a machine is released": {func(b *bed) { b.release(b.stranger) }, func(b *bed) string { return b.stranger.SystemID }},
		"a VM is deleted":       {func(b *bed) { b.deleteVM(b.theVM) }, func(b *bed) string { return b.theVM.SystemID }},
		"a device is deleted": {func(b *bed) {
			if err := b.other.DeleteDevice(b.Context(), maas.Unrecorded("a test"), b.theDevice.SystemID); err != nil {
				b.Fatal(err)
			}
		}, func(b *bed) string { return b.theDevice.SystemID }},
		"a VM leaves its host":   {func(b *bed) { b.DeleteVM("lxd-a", "theirs") }, func(*bed) string { return "theirs" }},
		"a record is edited":     {func(b *bed) { b.edit([]string{"10.77.0.99"}) }, func(*bed) string { return "www.maas.sim" }},
		"a record is deleted":    {func(b *bed) { b.deleteRecord(b.foreignRecord) }, func(*bed) string { return "www.maas.sim" }},
		"a reservation is freed": {func(b *bed) { b.post(otherKey, "ipaddresses/", "release", url.Values{"ip": {"10.77.0.8"}}) }, func(*bed) string { return "10.77.0.8" }},
		"a machine is annotated": {
			func(b *bed) {
				must(b.other.SetWorkloadAnnotations(b.Context(), maas.Unrecorded("a test"), b.stranger.SystemID, map[string]string{"a": "b"}))(b.T)
			},
			func(b *bed) string { return b.stranger.SystemID }},
		"a machine is powered off and on again": {func(b *bed) {
			must(b.other.PowerOffMachine(b.Context(), maas.Unrecorded("a test"), b.stranger.SystemID, ""))(b.T)
			b.waitFor("it to be off", func() bool { m, _ := b.Machine(b.stranger.SystemID); return m.Power == "off" })
			b.post(otherKey, "machines/"+b.stranger.SystemID+"/", "power_on", nil)
			b.waitFor("it to be on", func() bool { m, _ := b.Machine(b.stranger.SystemID); return m.Power == "on" })
		}, func(b *bed) string { return b.stranger.SystemID }},
		"a zone is made": {func(b *bed) { b.post(otherKey, "zones/", "", url.Values{"name": {"zone-x"}}) }, func(*bed) string { return "zones" }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			tc.do(b)
			b.waitFor("the auditor to hear of it", func() bool { return len(b.steady(mine)) > 0 })
			b.hasOnly(b.steady(mine), Wiped, tc.says(b))
		})
	}
}

func (b *bed) edit(addresses []string) {
	b.Helper()
	must(b.maas.UpdateDNSResource(b.Context(), maas.Unrecorded("a test"), b.foreignRecord.ID, addresses))(b.T)
}

// take makes another user acquire a Ready machine, and deploy it.
func (b *bed) take(systemID string) *maas.Machine {
	b.Helper()
	must(b.other.AllocateMachine(b.Context(), maas.Unrecorded("a test"), maas.AllocateParams{AgentName: "theirs", SystemID: systemID}))(b.T)
	must(b.other.DeployMachine(b.Context(), maas.Unrecorded("a test"), systemID, maas.DeployParams{DistroSeries: "ubuntu/jammy"}))(b.T)
	if err := b.audit.Took(systemID); err != nil {
		b.Fatal(err)
	}
	m := b.become(systemID, maas.StatusDeployed)
	b.quiet()
	return m
}

// lendVM makes a VM for an object, and another user takes it before it is deployed.
func (b *bed) lendVM() (*maas.Machine, *infrav1.MaasMachine) {
	b.Helper()
	id := b.compose(maas.Hostname("lent", owner))
	b.become(id, maas.StatusReady)
	lent := b.object("lent", true)
	lent.Spec.SystemID, lent.Status.DNSAttached = id, false
	b.create(lent)
	return b.take(id), lent
}

// free returns bare metal that is not allocated.
func (b *bed) free() string {
	b.Helper()
	all := b.Machines()
	return all[slices.IndexFunc(all, isFree)].SystemID
}

func TestChangesOfAMachineThatAnotherUserTookAreFound(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(b *bed, metal, vm *maas.Machine) (systemID string){
		"released": func(b *bed, metal, _ *maas.Machine) string { b.release(metal); return metal.SystemID },
		"deleted":  func(b *bed, _, vm *maas.Machine) string { b.deleteVM(vm); return vm.SystemID },
		"deployed anew": func(b *bed, metal, _ *maas.Machine) string {
			b.release(metal)
			must(b.other.AllocateMachine(b.Context(), maas.Unrecorded("a test"), maas.AllocateParams{AgentName: "theirs", SystemID: metal.SystemID}))(b.T)
			must(b.other.DeployMachine(b.Context(), maas.Unrecorded("a test"), metal.SystemID, maas.DeployParams{DistroSeries: "ubuntu/jammy"}))(b.T)
			return metal.SystemID
		},
		"relabelled": func(b *bed, _, vm *maas.Machine) string {
			b.post(adminKey, "tags/", "", url.Values{"name": {"ours"}})
			b.post(adminKey, "tags/ours/", "update_nodes", url.Values{"add": {vm.SystemID}})
			return vm.SystemID
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			vm, _ := b.lendVM()
			metal := b.take(b.free())
			if found := b.steady(everyone); len(found) > 0 {
				t.Errorf("found before anything happened: %v", found)
			}
			id := do(b, metal, vm)
			b.waitFor("the auditor to hear of it", func() bool { return len(b.steady(mine)) > 0 })
			b.hasOnly(b.steady(mine), Wiped, id)
		})
	}
}

func TestAMachineThatAnotherUserTookIsNotRunByItsObject(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	taken, lent := b.lendVM()
	conditions.Set(lent, metav1.Condition{Type: infrav1.MachineDeployedCondition, Status: metav1.ConditionTrue, Reason: "Deployed"})
	b.update(lent)
	b.hasOnly(b.steady(mine), Stolen, "ns/lent", taken.SystemID)
}

func TestAnEndpointWithAMachineThatAnotherUserTookIsFound(t *testing.T) {
	t.Parallel()
	for _, alone := range []bool{false, true} {
		b := newBed(t)
		taken, _ := b.lendVM()
		must(b.maas.UpdateDNSResource(b.Context(), maas.Unrecorded("a test"), b.record.ID, append(taken.IPAddresses, b.vm.IPAddresses...)))(t)
		if alone { // Nobody else is left whom the record should lead to.
			b.deleteVM(b.vm)
			b.drop(b.cp)
		}
		b.hasOnly(b.steady(mine), Record, b.endpoint(), taken.IPAddresses[0])
	}
}

func TestWhatAnotherUserTookAndGaveBackIsNotLost(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	taken, _ := b.lendVM()
	if found := must(b.audit.GivesBack(taken.SystemID))(t); len(found) > 0 {
		t.Errorf("found when it is given back: %v", found)
	}
	b.deleteVM(taken)
	b.quiet()
	if found := b.steady(mine); len(found) > 0 {
		t.Errorf("found: %v", found)
	}
}

// A tenant's cluster claims what another cluster has.
func TestWhatAnotherClusterAdoptsIsFound(t *testing.T) {
	t.Parallel()
	for name, id := range map[string]string{"with the same owner id": owner, "with another owner id": "owner2"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			forged := b.cluster.DeepCopy()
			forged.ResourceVersion, forged.Namespace, forged.Annotations[infrav1.OwnerIDAnnotation] = "", "tenant", id
			b.create(forged)
			thief := b.object("worker", false)
			thief.Namespace = "tenant"
			b.create(thief)
			tenant := Who{Namespace: "tenant", Cluster: "c1"}
			for _, who := range []Who{mine, tenant, everyone} {
				if found := b.steady(who); len(found) > 0 {
					t.Errorf("found for %+v before it has anything: %v", who, found)
				}
			}
			thief.Spec.SystemID = b.metal.SystemID
			b.update(thief)
			for _, who := range []Who{mine, tenant, everyone} {
				b.hasOnly(b.steady(who), Stolen, "tenant/worker", b.metal.SystemID)
			}
			b.drop(thief, forged)
			if found := b.gone(tenant); len(found) > 0 {
				t.Errorf("found when the tenant's cluster is gone: %v", found)
			}
		})
	}
}

// In each case one object is left when the cluster is deleted.
func TestWhatIsLeftOfAClusterIsFound(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		do   func(*bed)
		kind Kind
		says func(*bed) string
	}{
		"bare metal": {func(b *bed) { b.acquire("worker") }, Leaked, func(*bed) string { return "capmaas/" + owner + "/worker" }},
		"a VM":       {func(b *bed) { b.become(b.compose(maas.Hostname("cp", owner)), maas.StatusReady) }, Leaked, func(*bed) string { return maas.Hostname("cp", owner) }},
		"a device":   {func(b *bed) { b.register("any", "capmaas/"+owner+"/cp") }, Leaked, func(*bed) string { return "capmaas/" + owner + "/cp" }},
		"a device that lost its mark": {func(b *bed) { b.register(maas.Hostname("cp", owner), "") }, Leaked,
			func(*bed) string { return maas.Hostname("cp", owner) }},
		"a VM on its host alone": {func(b *bed) { b.stowaway(maas.Hostname("cp", owner)) }, Leaked,
			func(*bed) string { return maas.Hostname("cp", owner) }},
		"its record": {func(b *bed) {
			must(b.maas.CreateDNSResource(b.Context(), maas.Unrecorded("a test"), b.endpoint(), b.stranger.IPAddresses, 10))(b.T)
		}, Record, func(b *bed) string { return b.endpoint() }},
		"an address": {func(b *bed) { b.link(b.metal, maas.LinkModeStatic, "10.77.0.71") }, Address, func(*bed) string { return "10.77.0.71" }},
		"an object":  {func(b *bed) { b.create(b.object("late", false)) }, Leaked, func(*bed) string { return "ns/late" }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			b.end()
			tc.do(b)
			b.hasOnly(b.gone(everyone), tc.kind, tc.says(b))
			if name != "an object" { // The owner of an object is unknown without its MaasCluster.
				b.hasOnly(b.gone(mine), tc.kind, tc.says(b))
			}
		})
	}
}

func TestAnythingElseThatIsDifferentAtTheEndIsFound(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.end()
	b.post(adminKey, "tags/", "", url.Values{"name": {"left"}})
	b.hasOnly(b.gone(everyone), Different, "left")
}

func TestAClusterThatWasNeverSeenCannotBeAuditedAsGone(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	if _, err := b.audit.Gone(t.Context(), Who{Namespace: "ns", Cluster: "never"}); !errors.Is(err, errNeverSeen) {
		t.Errorf("it could: %v", err)
	}
}

func TestAVMThatItsObjectRemembersIsNotLeakedWhileItsHostCannotBeAsked(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.stowaway(maas.Hostname("worker", owner))
	b.hasOnly(b.steady(mine), Leaked, maas.Hostname("worker", owner))
	b.worker.Annotations = map[string]string{infrav1.RecordAnnotation: `{"hosts":["7/other","1/lxd-a"]}`}
	b.update(b.worker)
	b.hasOnly(b.steady(mine), Leaked, maas.Hostname("worker", owner)) // The host can be asked.
	b.BreakVMHost("lxd-a", true, false)
	b.hasOnly(b.steady(mine), Unseen, "lxd-a")
	b.BreakVMHost("lxd-a", false, false)
	b.end()
	b.hasOnly(b.gone(mine), Leaked, maas.Hostname("worker", owner))
}

func TestAMachineThatWasGivenBackIsNotDoubledByTheNextWhoHasIt(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.worker.Finalizers = []string{infrav1.MachineFinalizer}
	b.update(b.worker)
	b.drop(b.worker)
	b.release(b.metal)
	next := b.object("next", false)
	next.Spec.SystemID = b.metal.SystemID
	must(b.maas.AllocateMachine(b.Context(), maas.Unrecorded("a test"), maas.AllocateParams{AgentName: "capmaas/" + owner + "/next", SystemID: b.metal.SystemID}))(b.T)
	b.deploy(b.metal.SystemID, "next")
	b.create(next)
	b.quiet()
	if found := b.steady(mine); len(found) > 0 {
		t.Errorf("found: %v", found)
	}
}

// A machine that is kept is that of its MaasCluster, and, while its MaasMachine is still there, that one's.
func TestAMachineThatIsKeptIsClaimed(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	kept, err := json.Marshal(record.ClusterData{Kept: []record.KeptMachine{{SystemID: b.metal.SystemID, Machine: "worker", Spec: b.worker.Spec}}})
	if err != nil {
		t.Fatal(err)
	}
	b.cluster.Annotations[infrav1.RecordAnnotation] = string(kept)
	b.update(b.cluster)
	if found := b.steady(everyone); len(found) > 0 {
		t.Errorf("while it goes, found: %v", found)
	}
	b.drop(b.worker)
	if found := b.steady(everyone); len(found) > 0 {
		t.Errorf("when it is gone, found: %v", found)
	}
	next := b.object("next", false)
	next.Spec.SystemID = b.metal.SystemID
	b.create(next)
	b.hasOnly(b.steady(mine), Doubled, "next", b.metal.Hostname)
	delete(b.cluster.Annotations, infrav1.RecordAnnotation)
	b.update(b.cluster)
	b.drop(next)
	b.hasOnly(b.steady(mine), Leaked, b.metal.Hostname)
}

// A MaasCluster has the machine in its record until it knows that it is back, and another user may have it by then.
func TestAKeptMachineThatWasGivenBackIsNotDoubledByTheNextWhoHasIt(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.drop(b.worker)
	b.release(b.metal)
	next := b.object("next", false)
	next.Spec.SystemID = b.metal.SystemID
	must(b.maas.AllocateMachine(b.Context(), maas.Unrecorded("a test"), maas.AllocateParams{
		AgentName: "capmaas/" + owner + "/next", SystemID: b.metal.SystemID,
	}))(b.T)
	b.deploy(b.metal.SystemID, "next")
	b.create(next)
	for _, givenBack := range []bool{false, true} {
		kept := record.KeptMachine{SystemID: b.metal.SystemID, Machine: "worker", Spec: b.worker.Spec, GivenBack: givenBack}
		text, err := json.Marshal(record.ClusterData{Kept: []record.KeptMachine{kept}})
		if err != nil {
			t.Fatal(err)
		}
		b.cluster.Annotations[infrav1.RecordAnnotation] = string(text)
		b.update(b.cluster)
		found := b.steady(mine)
		if doubled := len(found) > 0; doubled == givenBack {
			t.Errorf("given back %v, found: %v", givenBack, found)
		}
	}
}

// between is a region in which something happens after it was read.
type between struct {
	Region
	happens func()
}

func (b *between) VMHosts() []simulator.VMHost { // The last that is read.
	hosts := b.Region.VMHosts()
	b.happens()
	return hosts
}

func TestAMachineThatChangesHandsDuringTheAuditIsNotDoubled(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	gone := b.cluster.DeepCopy()
	gone.ResourceVersion, gone.Name = "", "c0"
	gone.Labels[clusterv1.ClusterNameLabel], gone.Annotations[infrav1.OwnerIDAnnotation] = "c0", "owner0"
	b.create(gone)
	if err := b.audit.Learn(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.drop(gone)
	b.worker.Finalizers = []string{infrav1.MachineFinalizer}
	b.update(b.worker)
	b.drop(b.worker) // Its machine is not given back yet.
	b.audit.region = &between{b.Simulator, sync.OnceFunc(func() {
		b.release(b.metal)
		must(b.maas.AllocateMachine(b.Context(), maas.Unrecorded("a test"), maas.AllocateParams{AgentName: "capmaas/" + owner + "/next", SystemID: b.metal.SystemID}))(b.T)
		next := b.object("next", false)
		next.Spec.SystemID = b.metal.SystemID
		b.create(next)
	})}
	if found := b.gone(Who{Namespace: "ns", Cluster: "c0"}); len(found) > 0 {
		t.Errorf("found: %v", found)
	}
}

func TestOthersClustersAreNotBlamed(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	other := b.cluster.DeepCopy()
	other.ResourceVersion, other.Name = "", "c2"
	other.Labels[clusterv1.ClusterNameLabel], other.Annotations[infrav1.OwnerIDAnnotation] = "c2", "owner2"
	b.create(other)
	must(b.maas.AllocateMachine(b.Context(), maas.Unrecorded("a test"), maas.AllocateParams{AgentName: "capmaas/owner2/a", NotOnVMHosts: []string{"lxd-a"}}))(b.T)
	if found := b.steady(mine); len(found) > 0 {
		t.Errorf("found in c1 what is c2's: %v", found)
	}
	b.drop(b.worker)
	b.release(b.metal)
	b.link(b.metal, maas.LinkModeStatic, "10.77.0.71") // c1's
	b.hasOnly(b.steady(Who{Namespace: "ns", Cluster: "c2"}), Leaked, "capmaas/owner2/a")
}

// Two MAASes, of which one is a copy of the other's database, have machines with the same ids.
func TestClustersInAnotherMAASAreNotAudited(t *testing.T) {
	b := newBed(t)
	there := b.object("there", false)
	there.Namespace, there.Spec.SystemID = "elsewhere", b.metal.SystemID
	b.create(there)
	b.hasOnly(b.steady(Who{}), Doubled, there.Namespace)
	here, err := Open(b.Simulator, b.kube, Options{
		In:      func(namespace string) bool { return namespace != there.Namespace },
		MayTake: func(m simulator.MachineSnapshot) bool { return ownerIn(m.AgentName) == owner },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	findings, err := here.Steady(t.Context(), Who{})
	if err != nil || len(findings) > 0 {
		t.Errorf("%v, %v", findings, err)
	}
}

var _ Region = (*simulator.Simulator)(nil)
