// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	lxdclient "github.com/canonical/lxd/client"
	"github.com/canonical/lxd/shared/api"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	mirror "github.com/capmaas/cluster-api-provider-maas/controllers/lxdhost"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdnode"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	lxdbed "github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/emptyimage"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/lxdtest"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

const (
	readOften  = 300 * time.Millisecond
	lxdProject = "maas"
	lxdSecret  = "lxd"
)

// hostName is the name of the object of a VM host of this world's MAAS, which is not the manager's own.
func (w *world) hostName(vmHost string) string {
	sum := sha256.Sum256([]byte(maas.Config{Endpoint: w.maasURL}.Where()))
	return vmHost + "-" + hex.EncodeToString(sum[:3])
}

func (w *world) lxdHost(name string) *infrav1.LXDHost {
	return &infrav1.LXDHost{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
}

// hostSays waits until a condition of an LXDHost has a reason.
func (w *world) hostSays(host *infrav1.LXDHost, condition string, status metav1.ConditionStatus, reason string) {
	w.t.Helper()
	w.eventually(host, condition+" "+reason, func() bool {
		c := conditions.Get(host, condition)
		return c != nil && c.Status == status && c.Reason == reason
	})
}

// change patches the spec of an LXDHost.
func (w *world) change(host *infrav1.LXDHost, change func(*infrav1.LXDHostSpec)) {
	w.t.Helper()
	w.must(w.client.Get(w.t.Context(), client.ObjectKeyFromObject(host), host))
	w.patch(host, func() { change(&host.Spec) })
}

func (w *world) hostGone(object client.Object) func(context.Context) bool {
	return func(ctx context.Context) bool { return w.isGone(ctx, object) }
}

func (w *world) vmHost(name string) maas.VMHost {
	w.t.Helper()
	hosts := w.hosts()
	at := slices.IndexFunc(hosts, func(h maas.VMHost) bool { return h.Name == name })
	if at < 0 {
		w.t.Fatalf("MAAS has no VM host %s", name)
	}
	return hosts[at]
}

func TestVMHostsHaveLXDHosts(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t, func(w *world) { w.hostInterval = readOften })
	a, b, c := w.lxdHost(w.hostName("lxd-a")), w.lxdHost(w.hostName("lxd-b")), w.lxdHost(w.hostName("lxd-c"))
	for host, zone := range map[*infrav1.LXDHost]string{a: "zone-a", b: "zone-b", c: "zone-c"} {
		w.hostSays(host, infrav1.ReadyCondition, metav1.ConditionTrue, infrav1.ReadyReason)
		want := infrav1.LXDResources{Cores: 8, Memory: 16384, Disk: 200}
		if diff := cmp.Diff(&want, host.Status.Free); diff != "" || host.Spec.Zone != zone || host.Spec.ResourcePool != "default" {
			t.Errorf("%s is in zone %s and pool %s; free (-want +got):\n%s", host.Name, host.Spec.Zone, host.Spec.ResourcePool, diff)
		}
		if !host.Spec.Allows("elsewhere", w.namespace) || len(host.Finalizers) > 0 {
			t.Errorf("%s: allowed namespaces %v, finalizers %v", host.Name, host.Spec.AllowedNamespaces, host.Finalizers)
		}
	}

	t.Run("its VMs are counted", func(t *testing.T) {
		w.deployedMachine("vm-1", false, infrav1.MaasMachineSpec{ProvisioningMode: infrav1.ProvisioningModeLXD, FailureDomain: "zone-a"})
		want := []infrav1.LXDClusterVMs{{Cluster: w.namespace + "/" + clusterName, Count: 1}}
		w.eventually(a, "with a VM", func() bool { return cmp.Equal(want, a.Status.Clusters) && ptr.Deref(a.Status.VMs, 0) == 1 })
		w.eventually(a, "with fewer cores", func() bool { return a.Status.Free.Cores < 8 && a.Status.Allocated.Cores > 0 })
	})
	t.Run("a person keeps VMs off", func(t *testing.T) {
		w.change(b, func(s *infrav1.LXDHostSpec) { s.Unschedulable = true })
		w.hostSays(b, infrav1.SchedulableCondition, metav1.ConditionFalse, infrav1.UnschedulableReason)
		w.hostSays(b, infrav1.ReadyCondition, metav1.ConditionTrue, infrav1.ReadyReason)
	})
	t.Run("it follows MAAS, and leaves the person's choice alone", func(t *testing.T) {
		host := w.vmHost("lxd-b")
		if _, err := w.maasClient().UpdateVMHost(t.Context(), maas.Unrecorded("a test"), host.ID, maas.VMHostParams{Zone: "zone-c"}); err != nil {
			t.Fatal(err)
		}
		w.eventually(b, "in zone-c", func() bool { return b.Spec.Zone == "zone-c" })
		w.change(b, func(s *infrav1.LXDHostSpec) { s.Zone, s.AllowedNamespaces = "zone-a", nil })
		w.eventually(b, "in zone-c again", func() bool { return b.Spec.Zone == "zone-c" && b.Spec.Allows("here", "there") })
		if !b.Spec.Unschedulable {
			t.Error("it is schedulable again")
		}
		w.change(b, func(s *infrav1.LXDHostSpec) { s.Unschedulable = false })
		w.hostSays(b, infrav1.SchedulableCondition, metav1.ConditionTrue, infrav1.ReadyReason)
	})
	t.Run("a retiring one takes no VMs", func(t *testing.T) {
		if _, err := w.maasClient().AddVMHostTag(t.Context(), maas.Unrecorded("a test"), w.vmHost("lxd-b").ID, lxd.RetiringTag); err != nil {
			t.Fatal(err)
		}
		w.hostSays(b, infrav1.SchedulableCondition, metav1.ConditionFalse, infrav1.RetiringReason)
	})
	t.Run("one that is deleted by hand comes back", func(t *testing.T) {
		uid := b.UID
		w.beginDeletion(b)
		w.await("it is back", b, func(ctx context.Context) bool {
			b = w.lxdHost(w.hostName("lxd-b"))
			return w.client.Get(ctx, client.ObjectKeyFromObject(b), b) == nil && b.UID != uid
		})
		w.hostSays(b, infrav1.SchedulableCondition, metav1.ConditionFalse, infrav1.RetiringReason)
	})
	t.Run("it goes with the VM host", func(t *testing.T) {
		w.must(w.maasClient().DeleteVMHost(t.Context(), maas.Unrecorded("a test"), w.vmHost("lxd-c").ID))
		w.await("it is gone", c, w.hostGone(c))
	})
	t.Run("it stays in a MAAS that has VM hosts no longer", func(t *testing.T) {
		w.must(w.maas.Upgrade("4.0"))
		for _, host := range []*infrav1.LXDHost{a, b} {
			w.hostSays(host, infrav1.ReadyCondition, metav1.ConditionFalse, infrav1.VMHostsNotSupportedReason)
			if host.Status.Capacity == nil {
				t.Errorf("%s has no figures any more", host.Name)
			}
		}
	})
}

// An LXDHost that a person made is never changed by the mirror.
func TestAnLXDHostThatAPersonMadeIsNotChangedByTheMirror(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) { w.hostInterval = readOften })
	theirs := w.lxdHost(w.hostName("lxd-a"))
	theirs.Spec = infrav1.LXDHostSpec{
		Address: "127.0.0.1:1", ServerCertificate: "-----BEGIN CERTIFICATE-----", CredentialsRef: &infrav1.LocalObjectReference{Name: "none"}, Zone: "theirs",
	}
	w.create(theirs)
	w.provisionedCluster()
	w.hostSays(theirs, infrav1.TrustedCondition, metav1.ConditionFalse, infrav1.CredentialsInvalidReason)
	w.hostSays(w.lxdHost(w.hostName("lxd-b")), infrav1.ReadyCondition, metav1.ConditionTrue, infrav1.ReadyReason)
	w.eventUp(theirs, "NameTaken")
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(theirs), theirs); err != nil || theirs.Spec.VMHost != nil || theirs.Spec.Zone != "theirs" {
		t.Errorf("it is %+v, %v", theirs.Spec, err)
	}
}

// The LXDHost of a host cluster's machine is that machine's.
func TestTheLXDHostOfAMaasMachine(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withRealWorkload, func(w *world) { w.hostInterval = readOften })
	w.provisionedCluster(func(c *infrav1.MaasCluster) { c.Spec.LXDControlPlaneCluster = true })
	machine := w.deployedMachine("host-a", true, infrav1.MaasMachineSpec{FailureDomain: "zone-a", StaticIP: "10.77.0.11"})
	node := w.joined(machine)
	// What a proxy before MAAS does not find is not another's.
	fault, err := w.maas.AddFault(simulator.Fault{Method: http.MethodGet, Endpoint: "machines/{id}/", SystemID: machine.Spec.SystemID,
		Status: http.StatusNotFound, Body: "404 page not found"})
	if err != nil {
		t.Fatal(err)
	}
	w.registers(node, "10.77.0.11:8443")
	host := w.lxdHost(w.hostName(node.Name))
	w.await("the machine is asked for", host, func(context.Context) bool { return w.maas.Faults()[0].Done > 2 })
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(host), host); !apierrors.IsNotFound(err) {
		t.Errorf("there is an LXDHost of %v before MAAS has said whose it is: %v", host.OwnerReferences, err)
	}
	w.maas.RemoveFault(fault)
	w.hostSays(host, infrav1.ReadyCondition, metav1.ConditionTrue, infrav1.ReadyReason)
	w.eventually(host, "of the machine's Node", func() bool { return host.Status.NodeName == node.Name })
	want := []metav1.OwnerReference{{APIVersion: infrav1.GroupVersion.String(), Kind: "MaasMachine", Name: machine.Name, UID: machine.UID}}
	if diff := cmp.Diff(want, host.OwnerReferences); diff != "" || host.Status.SystemID != machine.Spec.SystemID {
		t.Errorf("it is on machine %s, and its owners are (-want +got):\n%s", host.Status.SystemID, diff)
	}
}

// eventUp waits for an event about an object.
func (w *world) eventUp(about client.Object, reason string) {
	w.t.Helper()
	w.await(about.GetName()+" has the event "+reason, about, func(ctx context.Context) bool {
		list := &corev1.EventList{}
		if err := w.client.List(ctx, list, client.InNamespace(w.namespace)); err != nil {
			return false
		}
		return slices.ContainsFunc(list.Items, func(e corev1.Event) bool { return e.Reason == reason && e.InvolvedObject.Name == about.GetName() })
	})
}

// lab is a real LXD with a project, and how the manager reaches it.
type lab struct {
	w       *world
	all     lxdclient.InstanceServer
	node    *lxdnode.Node
	keys    lxdnode.Keys
	options lxdhost.Options // leads to LXD directly
	address string          // leads there through a forwarder
}

func newLab(w *world) *lab {
	w.t.Helper()
	daemon := lxdtest.Start(w.t, lxdbed.Options{})
	l := &lab{w: w, all: lxdtest.Connect(w.t, daemon.Socket())}
	l.must(l.all.CreateStoragePool(api.StoragePoolsPost{Name: "default", Driver: "dir"}))
	l.must(l.all.CreateProject(api.ProjectsPost{Name: lxdProject}))
	settings, etag, err := l.all.GetServer()
	l.must(err)
	put := settings.Writable()
	put.Config["core.https_address"] = "127.0.0.1:8443" // in the node's own network
	l.must(l.all.UpdateServer(put, etag))
	l.keys, err = lxdnode.NewKeys("test")
	l.must(err)
	l.node, err = lxdnode.Connect(w.t.Context(), daemon.Socket())
	l.must(err)
	l.trust()
	l.options = lxdhost.Options{
		Address: "127.0.0.1:8443", ServerCertificate: []byte(settings.Environment.Certificate), Project: lxdProject,
		ClientCertificate: l.keys.Certificate, ClientKey: l.keys.Key, Dial: daemon.Dial,
	}
	l.address = lxdtest.Forward(w.t, daemon, l.options.Address)
	return l
}

func (l *lab) must(err error) {
	l.w.t.Helper()
	if err != nil {
		l.w.t.Fatal(err)
	}
}

func (l *lab) trust() {
	l.w.t.Helper()
	_, err := l.node.Trust(l.w.t.Context(), "capmaas", lxdProject, l.keys.Certificate)
	l.must(err)
}

func (l *lab) distrust() {
	l.w.t.Helper()
	certificates, err := l.all.GetCertificates()
	l.must(err)
	for _, certificate := range certificates {
		l.must(l.all.DeleteCertificate(certificate.Fingerprint))
	}
}

func (l *lab) secret() *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: l.w.namespace, Name: lxdSecret}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{corev1.TLSCertKey: l.keys.Certificate, corev1.TLSPrivateKeyKey: l.keys.Key},
	}
}

// host is an LXDHost of the lab's LXD.
func (l *lab) host() *infrav1.LXDHost {
	host := l.w.lxdHost("direct")
	host.Spec = infrav1.LXDHostSpec{
		Address: l.address, ServerCertificate: string(l.options.ServerCertificate), Zone: "zone-a",
		CredentialsRef: &infrav1.LocalObjectReference{Name: lxdSecret}, MAASCredentialsRef: &infrav1.LocalObjectReference{Name: "maas"},
		OverCommit: infrav1.LXDOverCommit{CPUPercent: 200, MemoryPercent: 100},
	}
	return host
}

func TestADirectLXDHost(t *testing.T) {
	t.Parallel()
	lxdtest.Require(t)
	w := newWorld(t, func(w *world) { w.hostInterval = readOften })
	l := newLab(w)
	host := l.host()
	w.create(host)
	ready := func() {
		t.Helper()
		w.hostSays(host, infrav1.ReadyCondition, metav1.ConditionTrue, infrav1.ReadyReason)
	}
	notReady := func(condition, reason string) {
		t.Helper()
		w.hostSays(host, infrav1.ReadyCondition, metav1.ConditionFalse, reason)
		if c := conditions.Get(host, condition); c.Status != metav1.ConditionFalse || c.Reason != reason {
			t.Errorf("%s is %s, %s", condition, c.Status, c.Reason)
		}
	}
	notReady(infrav1.TrustedCondition, infrav1.CredentialsInvalidReason)
	w.create(l.secret())
	ready()
	l.checkFigures(host)

	for name, test := range map[string]struct {
		condition, reason string
		breakIt, mendIt   func(*infrav1.LXDHostSpec)
	}{
		"bridge missing": {
			infrav1.SchedulableCondition, infrav1.BridgeNotFoundReason,
			func(s *infrav1.LXDHostSpec) { s.NetworkBridge = "br9" }, func(s *infrav1.LXDHostSpec) { s.NetworkBridge = "br0" },
		},
		"storage pool missing": {
			infrav1.SchedulableCondition, infrav1.StoragePoolNotFoundReason,
			func(s *infrav1.LXDHostSpec) { s.StoragePool = "fast" }, func(s *infrav1.LXDHostSpec) { s.StoragePool = "default" },
		},
		"zone missing": {
			infrav1.RegisteredCondition, infrav1.ZonesNotFoundReason,
			func(s *infrav1.LXDHostSpec) { s.Zone = "nowhere" }, func(s *infrav1.LXDHostSpec) { s.Zone = "zone-a" },
		},
		"resource pool missing": {
			infrav1.RegisteredCondition, infrav1.ResourcePoolNotFoundReason,
			func(s *infrav1.LXDHostSpec) { s.ResourcePool = "none" }, func(s *infrav1.LXDHostSpec) { s.ResourcePool = "default" },
		},
		"another certificate": {
			infrav1.TrustedCondition, infrav1.CertificateMismatchReason,
			func(s *infrav1.LXDHostSpec) { s.ServerCertificate = string(l.keys.Certificate) },
			func(s *infrav1.LXDHostSpec) { s.ServerCertificate = string(l.options.ServerCertificate) },
		},
	} {
		t.Run(name, func(*testing.T) {
			w.change(host, test.breakIt)
			notReady(test.condition, test.reason)
			// Of the same LXD, what it said last stays.
			s, another := host.Status, test.reason == infrav1.CertificateMismatchReason
			if told := s.Version != "" || s.Capacity != nil || s.Free != nil || len(s.Bridges)+len(s.StoragePools) > 0 || s.ClientCertificate != nil; told == another {
				t.Errorf("it tells of its LXD: %v, and leads to another one: %v", told, another)
			}
			w.change(host, test.mendIt)
			ready()
		})
	}
	t.Run("cordoned", func(*testing.T) {
		w.change(host, func(s *infrav1.LXDHostSpec) { s.Unschedulable = true })
		w.hostSays(host, infrav1.SchedulableCondition, metav1.ConditionFalse, infrav1.UnschedulableReason)
		ready()
		w.change(host, func(s *infrav1.LXDHostSpec) { s.Unschedulable = false })
		w.hostSays(host, infrav1.SchedulableCondition, metav1.ConditionTrue, infrav1.ReadyReason)
	})
	t.Run("not trusted", func(t *testing.T) {
		l.distrust()
		notReady(infrav1.TrustedCondition, infrav1.NotTrustedReason)
		w.eventUp(host, infrav1.NotTrustedReason)
		l.trust()
		ready()
	})
	t.Run("not reachable", func(t *testing.T) {
		w.change(host, func(s *infrav1.LXDHostSpec) { s.Address = "127.0.0.1:1" })
		notReady(infrav1.ReachableCondition, infrav1.LXDUnreachableReason)
		w.change(host, func(s *infrav1.LXDHostSpec) { s.Address = l.address })
		ready()
	})
	t.Run("deletion waits for VMs", func(t *testing.T) { l.checkDeletion(host) })
}

func (l *lab) checkFigures(host *infrav1.LXDHost) {
	t := l.w.t
	t.Helper()
	resources, err := l.all.GetServerResources()
	l.must(err)
	status := host.Status
	if want := 2 * int64(resources.CPU.Total); status.Capacity.Cores != want || status.Free.Cores != want {
		t.Errorf("of twice %d cores it has %d and has %d free", resources.CPU.Total, status.Capacity.Cores, status.Free.Cores)
	}
	if want := int64(resources.Memory.Total >> 20); status.Capacity.Memory != want {
		t.Errorf("it has %d MiB, want %d", status.Capacity.Memory, want)
	}
	if len(status.StoragePools) != 1 || status.StoragePools[0].Name != "default" || status.StoragePools[0].Driver != "dir" || status.Capacity.Disk <= 0 {
		t.Errorf("its storage pools are %+v, its disks %+v", status.StoragePools, status.Capacity)
	}
	if !slices.Contains(status.Bridges, "br0") || status.Version == "" || ptr.Deref(status.VMs, -1) != 0 {
		t.Errorf("its bridges are %v, its version is %q, it has %v VMs", status.Bridges, status.Version, status.VMs)
	}
}

// checkDeletion deletes the object while a VM is on the host.
func (l *lab) checkDeletion(host *infrav1.LXDHost) {
	w, t := l.w, l.w.t
	t.Helper()
	there, err := new(lxdhost.Connections).Host(t.Context(), l.options)
	l.must(err)
	t.Cleanup(there.Close)
	marks := lxdhost.Marks{Owner: "owner1", Machine: "machine1"}
	image, err := emptyimage.New(t.Context(), "vm-1")
	l.must(err)
	l.must(there.Upload(t.Context(), "custom/vm-1", image, func(int64) {}))
	seen, err := new(lxdhost.Connections).Read(t.Context(), l.options, 0)
	l.must(err)
	l.must(there.Clone(t.Context(), lxdhost.Spec{
		Name: "vm-1", Marks: marks, MAC: lxdhost.DeriveMAC(marks.Owner, "vm-1"), Cores: 1, MemoryMiB: 256, Bridge: "br0",
		Root: lxdhost.Disk{Pool: "default", Bytes: 64 << 20}, Overcommit: lxdhost.Overcommit{Cores: 100, Memory: 100},
		Image: image.Fingerprint,
	}, seen))
	l.must(w.client.Delete(t.Context(), host))
	w.hostSays(host, infrav1.SchedulableCondition, metav1.ConditionFalse, infrav1.VMsOnHostReason)
	if c := conditions.Get(host, infrav1.ReadyCondition); c.Reason != infrav1.DeletingReason || !strings.Contains(c.Message, "vm-1") {
		t.Errorf("Ready says %s: %s", c.Reason, c.Message)
	}
	l.distrust()
	w.hostSays(host, infrav1.TrustedCondition, metav1.ConditionFalse, infrav1.NotTrustedReason)
	if c := conditions.Get(host, infrav1.ReadyCondition); !strings.Contains(c.Message, infrav1.LXDHostFinalizer) {
		t.Errorf("Ready does not say how to let go: %s", c.Message)
	}
	l.trust()
	w.hostSays(host, infrav1.SchedulableCondition, metav1.ConditionFalse, infrav1.VMsOnHostReason)
	maker := &infrav1.MaasMachine{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "maker"}, Spec: infrav1.MaasMachineSpec{Image: "i", ProvisioningMode: infrav1.ProvisioningModeLXD}}
	maker.Annotations = map[string]string{infrav1.RecordAnnotation: recordText(t, record.MachineData{Hosts: []string{"lxdhost:" + w.namespace + "/" + host.Name}})}
	w.create(maker)
	w.eventUp(maker, "NoMachine") // The manager knows it.
	l.must(there.Delete(t.Context(), "vm-1", marks, time.Time{}))
	w.eventually(host, "waiting for a MaasMachine that may make a VM", func() bool {
		return strings.Contains(conditions.Get(host, infrav1.ReadyCondition).Message, maker.Name)
	})
	l.must(w.client.Delete(t.Context(), maker))
	w.await("it is gone", host, w.hostGone(host))
}

// mirror is a mirror whose rounds the test begins; that of the manager rests.
func (w *world) mirror(now clock.PassiveClock, interval time.Duration) *mirror.Mirror {
	return &mirror.Mirror{
		Base:      reconciler.Base{Client: w.client, Scopes: w.scopes, Recorder: events.NewFakeRecorder(100), Clock: now},
		Interval:  interval,
		Namespace: w.namespace,
	}
}

func (w *world) hostLists(do func()) (vmHosts, machines int) {
	w.maas.ResetCalls()
	do()
	for _, call := range w.maas.Calls().Log {
		switch {
		case call.Method == http.MethodGet && call.Endpoint == "vm-hosts/":
			vmHosts++
		case call.Method == http.MethodGet && call.Endpoint == "machines/" && call.Op == "":
			machines++
		}
	}
	return vmHosts, machines
}

// However many identities are used, MAAS gets one list more, and none before it is used.
func TestTheMirrorAsksSparingly(t *testing.T) {
	w := newWorld(t, func(w *world) {
		w.region = strings.ReplaceAll(region, `keys: ["admin:token:secret"]`, `keys: ["admin:token:secret", "second:token:secret"]`)
	})
	now := testingclock.NewFakePassiveClock(time.Now())
	m := w.mirror(now, time.Nanosecond) // Nothing is recent enough.
	if vmHosts, machines := w.hostLists(func() { m.Sync(t.Context()) }); vmHosts+machines > 0 {
		t.Errorf("%d and %d lists without a cluster", vmHosts, machines)
	}
	w.provisionedCluster()
	other := w.lxdHost("direct") // uses another key of the same MAAS
	w.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "second", Namespace: w.namespace}, StringData: map[string]string{"endpoint": w.maasURL, "apiKey": "second:token:secret"},
	})
	other.Spec = infrav1.LXDHostSpec{
		Address: "127.0.0.1:1", ServerCertificate: "-----BEGIN CERTIFICATE-----", CredentialsRef: &infrav1.LocalObjectReference{Name: "none"},
		MAASCredentialsRef: &infrav1.LocalObjectReference{Name: "second"},
	}
	w.create(other)
	w.hostSays(other, infrav1.RegisteredCondition, metav1.ConditionTrue, infrav1.ReadyReason)
	if regions := w.scopes.Regions(); len(regions) != 2 {
		t.Fatalf("%d identities are used", len(regions))
	}
	m.Sync(t.Context()) // Also asks for the machines of the VM hosts.
	for range 4 {
		now.SetTime(now.Now().Add(time.Minute))
		if vmHosts, _ := w.hostLists(func() { m.Sync(t.Context()) }); vmHosts != 1 {
			t.Errorf("%d lists of VM hosts in a round", vmHosts)
		}
	}
	if got := len(w.mirrored()); got != 3 {
		t.Errorf("%d LXDHosts, want 3", got)
	}
}

func (w *world) mirrored() (found []infrav1.LXDHost) {
	w.t.Helper()
	list := &infrav1.LXDHostList{}
	w.must(w.client.List(w.t.Context(), list, client.InNamespace(w.namespace)))
	return slices.DeleteFunc(list.Items, func(h infrav1.LXDHost) bool { return h.Spec.VMHost == nil })
}

// An outage removes nothing, and a short one changes nothing.
func TestTheMirrorInAnOutage(t *testing.T) {
	w, _ := clusterWorld(t)
	now := testingclock.NewFakePassiveClock(time.Now())
	m := w.mirror(now, time.Nanosecond)
	var before []infrav1.LXDHost
	w.await("three LXDHosts are Ready", &infrav1.LXDHost{}, func(ctx context.Context) bool {
		m.Sync(ctx) // Where the other reconciler wrote at the same moment, the next round writes.
		before = w.mirrored()
		// The other reconciler adds Paused.
		isReady := func(h infrav1.LXDHost) bool {
			return conditions.IsTrue(&h, infrav1.ReadyCondition) && conditions.Has(&h, clusterv1.PausedCondition)
		}
		return len(before) == 3 && !slices.ContainsFunc(before, func(h infrav1.LXDHost) bool { return !isReady(h) })
	})
	m.Sync(t.Context())
	if diff := cmp.Diff(before, w.mirrored()); diff != "" {
		t.Errorf("a round in which nothing changed (-before +after):\n%s", diff)
	}
	fault, err := w.maas.AddFault(simulator.Fault{Method: http.MethodGet, Endpoint: "vm-hosts/", Status: http.StatusForbidden})
	if err != nil {
		t.Fatal(err)
	}
	now.SetTime(now.Now().Add(time.Minute))
	m.Sync(t.Context())
	if diff := cmp.Diff(before, w.mirrored()); diff != "" {
		t.Errorf("a short outage (-before +after):\n%s", diff)
	}
	now.SetTime(now.Now().Add(time.Hour))
	m.Sync(t.Context())
	after := w.mirrored()
	if len(after) != 3 {
		t.Fatalf("%d LXDHosts after an outage", len(after))
	}
	for i := range after {
		if c := conditions.Get(&after[i], infrav1.ReadyCondition); c.Status != metav1.ConditionUnknown || c.Reason != infrav1.MAASUnavailableReason {
			t.Errorf("%s: Ready is %s, %s", after[i].Name, c.Status, c.Reason)
		}
	}
	w.maas.RemoveFault(fault)
	m.Sync(t.Context())
	for _, host := range w.mirrored() {
		if !conditions.IsTrue(&host, infrav1.ReadyCondition) {
			t.Errorf("%s is not ready after the outage", host.Name)
		}
	}
}

// A VM host that a list lacks, as that of a proxy or of a MAAS that is being restored, is not gone: its LXDHost is cordoned,
// and knows which VMs were left there.
func TestAVMHostThatAListLacksIsNotGone(t *testing.T) {
	w, _ := clusterWorld(t)
	m := w.mirror(testingclock.NewFakePassiveClock(time.Now()), time.Nanosecond)
	w.await("three LXDHosts", &infrav1.LXDHost{}, func(ctx context.Context) bool { m.Sync(ctx); return len(w.mirrored()) == 3 })
	w.fault(simulator.Fault{
		Method: http.MethodGet, Endpoint: "vm-hosts/", Status: http.StatusOK, Body: "[]", Headers: map[string]string{"Content-Type": "application/json"},
	})
	for range 3 {
		m.Sync(t.Context())
	}
	if n := len(w.mirrored()); n != 3 {
		t.Errorf("%d LXDHosts", n)
	}
}
