// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdnode"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator/simtest"
)

// withoutVMHosts makes MAAS one that has no VM hosts.
func withoutVMHosts(w *world) { w.version = "4.0" }

// offers plays the initializer on a node of a host cluster where MAAS has no VM hosts.
func (w *world) offers(node *corev1.Node, address string) *corev1.Secret {
	w.t.Helper()
	keys, server := w.newKeys(), w.newKeys()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "capmaas-system", Name: infrav1.LXDKeysPrefix + node.Name},
		Type:       corev1.SecretTypeTLS,
		Data: map[string][]byte{
			corev1.TLSCertKey: keys.Certificate, corev1.TLSPrivateKeyKey: keys.Key,
			infrav1.LXDServerCertificateKey: server.Certificate, infrav1.LXDAddressKey: []byte(address),
		},
	}
	w.create(secret)
	w.t.Cleanup(func() { _ = w.client.Delete(context.Background(), secret) })
	w.saysOnNode(node, corev1.ConditionTrue, "Prepared", address)
	return secret
}

func (w *world) newKeys() lxdnode.Keys {
	w.t.Helper()
	keys, err := lxdnode.NewKeys("test")
	if err != nil {
		w.t.Fatal(err)
	}
	return keys
}

// hostObject waits until a machine has an LXDHost, which the test then keeps, with the finalizer of LXDHosts.
func (w *world) hostObject(m *infrav1.MaasMachine) *infrav1.LXDHost {
	w.t.Helper()
	host := &infrav1.LXDHost{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name}}
	w.eventually(host, "there", func() bool { return true })
	w.patch(host, func() {
		host.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
		controllerutil.AddFinalizer(host, infrav1.LXDHostFinalizer)
	})
	return host
}

func (w *world) patch(object client.Object, change func()) {
	w.t.Helper()
	before := object.DeepCopyObject().(client.Object)
	change()
	if err := w.client.Patch(w.t.Context(), object, client.MergeFrom(before)); err != nil {
		w.t.Fatalf("patching %T: %v", object, err)
	}
}

// saysOfHost sets the condition Ready of an LXDHost.
func (w *world) saysOfHost(host *infrav1.LXDHost, status metav1.ConditionStatus, reason, message string) {
	w.t.Helper()
	w.patchStatus(host, func() {
		conditions.Set(host, metav1.Condition{Type: infrav1.ReadyCondition, Status: status, Reason: reason, Message: message})
	})
}

// letsGo removes the finalizer of an LXDHost that is being deleted, as when no VM is left there, and waits until it is
// gone.
func (w *world) letsGo(host *infrav1.LXDHost) {
	w.t.Helper()
	w.patch(host, func() { controllerutil.RemoveFinalizer(host, infrav1.LXDHostFinalizer) })
	w.await("the LXDHost is gone", host, func(ctx context.Context) bool {
		return w.isGone(ctx, host.DeepCopy())
	})
}

// keysOf reads the Secret of a machine's LXDHost.
func (w *world) keysOf(m *infrav1.MaasMachine) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := w.client.Get(w.t.Context(), client.ObjectKey{Namespace: m.Namespace, Name: m.Name + "-lxd"}, secret)
	return secret, err
}

func TestHostClusterWhereMAASHasNoVMHosts(t *testing.T) {
	t.Parallel()
	w, cluster := hostWorld(t, withoutVMHosts)
	before := w.maas.State()
	a := w.deployedMachine("host-a", true, infrav1.MaasMachineSpec{FailureDomain: "zone-a", StaticIP: "10.77.0.11"})
	w.lxdReady(cluster, metav1.ConditionFalse, infrav1.HostsNotReadyReason, "0 of 1", "host-a: no node yet")
	node := w.joined(a)
	w.saysOnNode(node, corev1.ConditionFalse, "LXDNotReady", "there is no bridge br0")
	w.lxdReady(cluster, metav1.ConditionFalse, infrav1.HostsNotReadyReason, "host-a: there is no bridge br0")
	offered := w.offers(node, "10.77.0.11:8443")

	host := w.hostObject(a)
	t.Run("the LXDHost is as the node and the cluster say", func(t *testing.T) { checkLXDHost(t, w, a, host, offered) })
	w.lxdReady(cluster, metav1.ConditionFalse, infrav1.HostsNotReadyReason, "host-a")
	w.saysOfHost(host, metav1.ConditionFalse, "BridgeNotFound", "LXD shows no bridge br0")
	w.lxdReady(cluster, metav1.ConditionFalse, infrav1.HostsNotReadyReason, "0 of 1", "host-a", "LXD shows no bridge br0")
	w.saysOfHost(host, metav1.ConditionTrue, infrav1.ReadyReason, "")
	w.lxdReady(cluster, metav1.ConditionTrue, infrav1.ReadyReason)

	t.Run("it follows the node, and keeps what people set", func(t *testing.T) {
		w.patch(host, func() {
			host.Spec.Unschedulable, host.Spec.OverCommit.CPUPercent, host.Spec.Nameservers = true, 200, []string{"10.77.0.53"}
		})
		keys := w.newKeys()
		w.patch(offered, func() {
			offered.Data[infrav1.LXDAddressKey] = []byte("10.77.0.11:9443")
			offered.Data[corev1.TLSCertKey], offered.Data[corev1.TLSPrivateKeyKey] = keys.Certificate, keys.Key
		})
		w.saysOnNode(node, corev1.ConditionTrue, "Prepared", "10.77.0.11:9443")
		w.eventually(host, "at the new port", func() bool { return host.Spec.Address == "10.77.0.11:9443" })
		if !host.Spec.Unschedulable || host.Spec.OverCommit.CPUPercent != 200 || len(host.Spec.Nameservers) != 1 {
			t.Errorf("what people set is lost: %+v", host.Spec)
		}
		secret, err := w.keysOf(a)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string][]byte{corev1.TLSCertKey: keys.Certificate, corev1.TLSPrivateKeyKey: keys.Key}, secret.Data); diff != "" {
			t.Error("the key pair is not the node's new one")
		}
	})

	t.Run("the node is told which key pair alone is in use", func(t *testing.T) { checkToldKeys(t, w, node, host, offered) })

	w.beginDeletion(a)
	t.Run("deletion waits for the VMs on the host", func(t *testing.T) {
		w.eventually(host, "being deleted", func() bool { return !host.DeletionTimestamp.IsZero() })
		w.saysOfHost(host, metav1.ConditionFalse, infrav1.DeletingReason, "waiting for 1 VM(s) on this host to be deleted: theirs")
		w.eventually(a, "waiting for its VMs", func() bool {
			c := conditions.Get(a, infrav1.MachineDeployedCondition)
			return c.Reason == infrav1.VMsOnHostReason && strings.Contains(c.Message, "theirs")
		})
		if _, retiring := w.annotation(node, infrav1.LXDHostRetireAnnotation); retiring {
			t.Error("the node is asked to retire while VMs live on it")
		}
		// As with a namespace that is deleted.
		w.beginDeletion(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "host-a-lxd"}})
		if _, err := w.keysOf(a); err != nil {
			t.Errorf("the key pair that leads to the VMs: %v", err)
		}
	})
	w.letsGo(host)
	t.Run("then the initializer stops, and the machine is released", func(t *testing.T) {
		w.await("the node is asked to retire", node, func(context.Context) bool {
			_, retiring := w.annotation(node, infrav1.LXDHostRetireAnnotation)
			return retiring
		})
		w.retires(a)
		if _, err := w.keysOf(a); !apierrors.IsNotFound(err) {
			t.Errorf("the key pair is still there: %v", err)
		}
	})
	w.deleteCluster(cluster)
	w.unchanged(before)
}

// A tenant makes the LXDHost of a machine before the manager does, and names the MaasMachine as its controller: no policy guards
// ownerReferences. By the manager's key it is not opened to other namespaces with what the tenant wrote.
func TestAnLXDHostThatATenantMadeIsNotOpened(t *testing.T) {
	t.Parallel()
	w, cluster := hostWorld(t, withoutVMHosts)
	w.patch(cluster, func() { cluster.Spec.LXDConfig.Zone = "zone-a" })
	a := w.deployedMachine("host-a", true, infrav1.MaasMachineSpec{FailureDomain: "zone-a", StaticIP: "10.77.0.11"})
	theirs := &infrav1.LXDHost{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.namespace, Name: "host-a", Annotations: map[string]string{clusterv1.PausedAnnotation: ""},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: infrav1.GroupVersion.String(), Kind: "MaasMachine", Name: a.Name, UID: a.UID, Controller: ptr.To(true),
			}},
		},
		Spec: infrav1.LXDHostSpec{
			Address: "10.77.0.99", ServerCertificate: "-----BEGIN CERTIFICATE-----",
			CredentialsRef: &infrav1.LocalObjectReference{Name: "theirs"}, Tags: []string{"gpu", "fast"},
			OverCommit:  infrav1.LXDOverCommit{CPUPercent: 1000, MemoryPercent: 1000},
			Nameservers: []string{"203.0.113.53"},
		},
	}
	w.create(theirs)
	w.offers(w.joined(a), "10.77.0.11:8443")
	w.eventually(cluster, "names the LXDHost that is not the manager's", func() bool {
		c := conditions.Get(cluster, infrav1.LXDReadyCondition)
		return c != nil && c.Status != metav1.ConditionTrue && strings.Contains(c.Message, "LXDHost host-a was made by another user")
	})
	w.must(w.client.Get(t.Context(), client.ObjectKeyFromObject(theirs), theirs))
	if len(theirs.Spec.AllowedNamespaces) > 0 {
		t.Errorf("the manager has opened it to %v, with what the tenant wrote", theirs.Spec.AllowedNamespaces)
	}
}

// checkToldKeys plays the LXDHost's own controller.
func checkToldKeys(t *testing.T, w *world, node *corev1.Node, host *infrav1.LXDHost, offered *corev1.Secret) {
	current, err := lxdnode.Fingerprint(offered.Data[corev1.TLSCertKey])
	if err != nil {
		t.Fatal(err)
	}
	accepts := func(fingerprint string) {
		w.patchStatus(host, func() {
			host.Status.ClientCertificate = &infrav1.LXDClientCertificate{Fingerprint: fingerprint, Expires: metav1.Now()}
		})
	}
	accepts("another")
	if told, is := w.annotation(node, infrav1.LXDKeysAnnotation); is {
		t.Errorf("the node is told %s", told)
	}
	accepts(current)
	w.await("the node is told", node, func(context.Context) bool {
		told, _ := w.annotation(node, infrav1.LXDKeysAnnotation)
		return told == current
	})
}

func checkLXDHost(t *testing.T, w *world, m *infrav1.MaasMachine, host *infrav1.LXDHost, offered *corev1.Secret) {
	want := infrav1.LXDHostSpec{
		Address: "10.77.0.11:8443", ServerCertificate: string(offered.Data[infrav1.LXDServerCertificateKey]), Project: "maas",
		CredentialsRef: &infrav1.LocalObjectReference{Name: "host-a-lxd"}, MAASCredentialsRef: &infrav1.LocalObjectReference{Name: "maas"},
		Zone: "zone-a", ResourcePool: "default", StoragePool: "default", NetworkBridge: "br0", Subnet: "10.77.0.0/24",
		OverCommit: infrav1.LXDOverCommit{CPUPercent: 100, MemoryPercent: 100}, AllowedNamespaces: []string{infrav1.AllNamespaces},
	}
	if diff := cmp.Diff(want, host.Spec); diff != "" {
		t.Errorf("the LXDHost (-want +got):\n%s", diff)
	}
	secret, err := w.keysOf(m)
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string][]byte{corev1.TLSCertKey: offered.Data[corev1.TLSCertKey], corev1.TLSPrivateKeyKey: offered.Data[corev1.TLSPrivateKeyKey]}
	if !cmp.Equal(keys, secret.Data) || secret.Type != corev1.SecretTypeTLS {
		t.Errorf("the Secret of type %s does not have just the node's key pair", secret.Type)
	}
	owner := []metav1.OwnerReference{{
		APIVersion: infrav1.GroupVersion.String(), Kind: "MaasMachine", Name: m.Name, UID: m.UID, Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(false),
	}}
	for _, object := range []client.Object{host, secret} {
		if diff := cmp.Diff(owner, object.GetOwnerReferences()); diff != "" {
			t.Errorf("%T: its owners (-want +got):\n%s", object, diff)
		}
		if name := object.GetLabels()[clusterv1.ClusterNameLabel]; name != clusterName {
			t.Errorf("%T: its cluster is %q", object, name)
		}
	}
}

// Whoever administers a host cluster writes all that its nodes offer. An LXDHost that is for all namespaces is at an address
// that MAAS shows on a machine of the cluster, or nowhere.
func TestAHostClusterOffersNoLXDBesideItsMachines(t *testing.T) {
	t.Parallel()
	w, cluster := hostWorld(t, withoutVMHosts)
	w.patch(cluster, func() { cluster.Spec.LXDConfig.Zone = "zone-a" })
	a := w.deployedMachine("host-a", true, infrav1.MaasMachineSpec{FailureDomain: "zone-a", StaticIP: "10.77.0.11"})
	node := w.joined(a)
	offered := w.offers(node, "203.0.113.9:8443")
	for _, address := range []string{"203.0.113.9:8443", "10.77.0.111:8443", "lxd.example.com:8443", "10.77.0.11"} {
		w.patch(offered, func() { offered.Data[infrav1.LXDAddressKey] = []byte(address) })
		w.lxdReady(cluster, metav1.ConditionFalse, infrav1.HostsNotReadyReason, "host-a", strconv.Quote(address), a.Spec.SystemID, "10.77.0.11")
	}
	w.hasNoLXDHosts()
	w.patch(offered, func() { offered.Data[infrav1.LXDAddressKey] = []byte("10.77.0.11:8443") })
	host := w.hostObject(a)
	w.patch(offered, func() { offered.Data[infrav1.LXDAddressKey] = []byte("203.0.113.9:8443") })
	w.lxdReady(cluster, metav1.ConditionFalse, infrav1.HostsNotReadyReason, "host-a", "203.0.113.9:8443")
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(host), host); err != nil || host.Spec.Address != "10.77.0.11:8443" {
		t.Errorf("the LXDHost is at %s (%v)", host.Spec.Address, err)
	}
}

// MAAS forgets an address of DHCP. Where an LXDHost is there already, its key pair is changed none the less.
func TestAHostThatIsThereGetsItsNewKeysWhateverMAASShows(t *testing.T) {
	t.Parallel()
	const address = "203.0.113.9:8443"
	for name, open := range map[string]bool{"made by the manager": true, "that a tenant may have made": false} {
		t.Run(name, func(t *testing.T) {
			w, cluster := hostWorld(t, withoutVMHosts)
			w.patch(cluster, func() { cluster.Spec.LXDConfig.Zone = "zone-a" })
			m := w.deployedMachine("host-a", true, infrav1.MaasMachineSpec{FailureDomain: "zone-a", StaticIP: "10.77.0.11"})
			host := &infrav1.LXDHost{
				ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: m.Name, Annotations: map[string]string{clusterv1.PausedAnnotation: ""}},
				Spec: infrav1.LXDHostSpec{
					Address: address, ServerCertificate: string(w.newKeys().Certificate), CredentialsRef: &infrav1.LocalObjectReference{Name: "host-a-lxd"},
					MAASCredentialsRef: cluster.Spec.CredentialsRef,
				},
			}
			if open {
				host.Spec.AllowedNamespaces = []string{infrav1.AllNamespaces}
			}
			w.must(controllerutil.SetControllerReference(m, host, w.client.Scheme()))
			w.create(host)
			offered := w.offers(w.joined(m), address)
			if !open {
				w.lxdReady(cluster, metav1.ConditionFalse, infrav1.HostsNotReadyReason, strconv.Quote(address), m.Spec.SystemID)
				if _, err := w.keysOf(m); !apierrors.IsNotFound(err) {
					t.Errorf("the key pair of a host that is not proven: %v", err)
				}
				return
			}
			w.lxdReady(cluster, metav1.ConditionFalse, infrav1.HostsNotReadyReason, "its LXDHost was not checked yet")
			if secret, err := w.keysOf(m); err != nil || !cmp.Equal(secret.Data[corev1.TLSCertKey], offered.Data[corev1.TLSCertKey]) {
				t.Errorf("the key pair is not the node's (%v)", err)
			}
		})
	}
}

// A MaasMachine may name any machine, and who may write status can claim that it has a node.
func TestAHostClusterOffersNoMachineOfAnotherUser(t *testing.T) {
	t.Parallel()
	w, cluster := hostWorld(t, withoutVMHosts)
	w.patch(cluster, func() { cluster.Spec.LXDConfig.Zone = "zone-a" })
	theirs := w.named("metal-a")
	w.allocateAs("theirs", theirs)
	w.maasCall(http.MethodPost, "machines/"+theirs+"/?op=deploy", url.Values{"distro_series": {"ubuntu/jammy"}})
	w.await("it is deployed", cluster, func(context.Context) bool { return w.metal(theirs).Status == "Deployed" })
	claim := w.newMachine("claim", true, infrav1.MaasMachineSpec{SystemID: theirs})
	w.refused(claim, infrav1.MachineDeployedCondition, infrav1.MachineNotOursReason)
	claim.Status.Hostname = "metal-a"
	w.offers(w.joined(claim), w.metal(theirs).Addresses[0].String()+":8443")
	w.lxdReady(cluster, metav1.ConditionFalse, infrav1.HostsNotReadyReason, "claim", theirs, "not ours")
	w.hasNoLXDHosts()
}

func (w *world) hasNoLXDHosts() {
	w.t.Helper()
	hosts := &infrav1.LXDHostList{}
	if err := w.client.List(w.t.Context(), hosts, client.InNamespace(w.namespace)); err != nil || len(hosts.Items) > 0 {
		w.t.Errorf("there are %d LXDHosts (%v)", len(hosts.Items), err)
	}
}

// Those that MAAS composed when it had VM hosts have no marks in LXD; where they are, MAAS says.
func TestAHostIsNotReleasedUnderVMsThatMAASSwitchesThere(t *testing.T) {
	t.Parallel()
	w, cluster := hostWorld(t, withoutVMHosts)
	m := w.deployedMachine("host-a", true, infrav1.MaasMachineSpec{FailureDomain: "zone-a", StaticIP: "10.77.0.11"})
	w.saysOnNode(w.joined(m), corev1.ConditionFalse, "LXDNotReady", "there is no bridge br0")
	enlist := func(name, address, mac string) string {
		t.Helper()
		return simtest.Enlist(t, w.maas, "admin:token:secret", name, mac,
			url.Values{"power_address": {address}, "project": {"maas"}, "instance_name": {name}})
	}
	here := enlist("theirs", "10.77.0.11:8443", "00:16:3e:00:00:01")
	enlist("elsewhere", "https://10.77.0.12:8443", "00:16:3e:00:00:02")
	w.beginDeletion(m)
	w.eventually(m, "waiting for the VM there alone", func() bool {
		c := conditions.Get(m, infrav1.MachineDeployedCondition)
		return c.Reason == infrav1.VMsOnHostReason && strings.Contains(c.Message, "1 VM") && strings.Contains(c.Message, "theirs")
	})
	w.must(w.maasClient().DeleteMachine(t.Context(), maas.Unrecorded("a test"), here))
	w.retires(m)
	w.deleteCluster(cluster)
}

// Objects of a machine's name that another user made are neither changed nor deleted.
func TestLXDHostsOfOthersAreLeftAloneByAHostCluster(t *testing.T) {
	t.Parallel()
	for name, object := range map[string]client.Object{
		"LXDHost": &infrav1.LXDHost{ObjectMeta: metav1.ObjectMeta{Name: "host-a"}, Spec: infrav1.LXDHostSpec{
			Address: "10.77.0.99", ServerCertificate: "-----BEGIN CERTIFICATE-----", CredentialsRef: &infrav1.LocalObjectReference{Name: "theirs"},
		}},
		"Secret": &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "host-a-lxd"}, Data: map[string][]byte{"theirs": nil}},
	} {
		t.Run(name, func(t *testing.T) {
			w, cluster := hostWorld(t, withoutVMHosts)
			object.SetNamespace(w.namespace)
			w.create(object)
			w.patch(object, func() { object.SetAnnotations(map[string]string{clusterv1.PausedAnnotation: ""}) })
			m := w.deployedMachine("host-a", true, infrav1.MaasMachineSpec{FailureDomain: "zone-a", StaticIP: "10.77.0.11"})
			w.offers(w.joined(m), "10.77.0.11:8443")
			w.lxdReady(cluster, metav1.ConditionFalse, infrav1.HostsNotReadyReason, name+" "+object.GetName())
			w.beginDeletion(m)
			w.retires(m)
			after := object.DeepCopyObject().(client.Object)
			w.must(w.client.Get(t.Context(), client.ObjectKeyFromObject(object), after))
			if !after.GetDeletionTimestamp().IsZero() || len(after.GetOwnerReferences()) > 0 || after.GetLabels() != nil {
				t.Errorf("it was changed: %s", cmp.Diff(object, after))
			}
			w.deleteCluster(cluster)
		})
	}
}

// The initializers need the cluster's API, which is gone after its machines.
func TestMachinesOfADeletedHostClusterWaitForEachOthersLXDHosts(t *testing.T) {
	t.Parallel()
	w, cluster := hostWorld(t, withoutVMHosts)
	machines, hosts := map[string]*infrav1.MaasMachine{}, map[string]*infrav1.LXDHost{}
	for name, zone := range map[string]string{"host-a": "zone-a", "host-b": "zone-b"} {
		m := w.deployedMachine(name, true, infrav1.MaasMachineSpec{FailureDomain: zone})
		w.offers(w.joined(m), m.Status.Addresses[0].Address+":8443")
		machines[name], hosts[name] = m, w.hostObject(m)
		w.saysOfHost(hosts[name], metav1.ConditionTrue, infrav1.ReadyReason, "")
	}
	w.lxdReady(cluster, metav1.ConditionTrue, infrav1.ReadyReason)
	w.patch(w.cluster, func() { w.cluster.Finalizers = []string{"test/hold"} })
	for _, object := range []client.Object{w.cluster, machines["host-a"], machines["host-b"]} {
		w.beginDeletion(object)
	}
	for _, host := range hosts {
		w.eventually(host, "being deleted", func() bool { return !host.DeletionTimestamp.IsZero() })
	}
	w.letsGo(hosts["host-a"])
	w.saysOnNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: machines["host-a"].Status.Hostname}}, corev1.ConditionFalse, infrav1.LXDHostRetiredReason, "")
	w.eventually(machines["host-a"], "waiting for the other", func() bool {
		w.nudge(machines["host-a"])
		c := conditions.Get(machines["host-a"], infrav1.MachineDeployedCondition)
		return c.Reason == infrav1.LXDHostRetiredReason && strings.Contains(c.Message, "host-b")
	})
	w.letsGo(hosts["host-b"])
	for _, name := range []string{"host-b", "host-a"} { // host-a waits for the node of host-b.
		w.retires(machines[name])
	}
	w.delete(cluster)
	w.patch(w.cluster, func() { w.cluster.Finalizers = nil })
}
