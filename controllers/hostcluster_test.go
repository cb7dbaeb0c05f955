// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/charts"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdnode"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/quarantine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/vmhosts"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator/simtest"
)

// hostRegion has LXD on its machines, not registered in MAAS. MAAS makes the tag with its first VM host.
const hostRegion = `
users: [{name: admin, admin: true, keys: ["admin:token:secret", "nodes:token:secret"]}]
zones: [{name: zone-a}, {name: zone-b}]
tags: [{name: pod-console-logging}]
domains: [{name: maas.sim, default: true}]
subnets: [{cidr: 10.77.0.0/24, gateway: 10.77.0.1, dhcp: true}]
images: [{name: ubuntu/jammy}]
machines:
  - {names: [metal-a], zone: zone-a, cores: 8, memory: 16384, disks: [100]}
  - {names: [metal-b], zone: zone-b, cores: 8, memory: 16384, disks: [100]}
vm_hosts:
  - {name: lxd-a, address: "10.77.0.11:8443", unregistered: true, cores: 8, memory: 16384, storage_pools: [{name: default, type: zfs, size: 200}]}
  - {name: lxd-b, address: "10.77.0.12:8443", unregistered: true, cores: 8, memory: 16384, storage_pools: [{name: default, type: zfs, size: 200}]}
`

// realWorkload is held by the one test whose workload cluster has a real API server, the management cluster's own: Nodes
// have no namespace.
var realWorkload sync.Mutex

func withRealWorkload(w *world) {
	realWorkload.Lock()
	w.t.Cleanup(realWorkload.Unlock) // the last of all
	w.workload, w.region = w.client, hostRegion
}

// hostWorld is a world with a host cluster.
func hostWorld(t *testing.T, change ...func(*world)) (*world, *infrav1.MaasCluster) {
	t.Helper()
	w := newWorld(t, append([]func(*world){withRealWorkload}, change...)...)
	w.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "nodes", Namespace: w.namespace},
		StringData: map[string]string{"endpoint": w.maasURL, "apiKey": "nodes:token:secret", "caBundle": ""},
	})
	cluster := w.newCluster(func(c *infrav1.MaasCluster) {
		c.Spec.LXDControlPlaneCluster = true
		c.Spec.LXDConfig = &infrav1.LXDHostConfig{
			StorageBackend: infrav1.StorageBackendBtrfs, StorageSize: "20", CredentialsRef: &infrav1.LocalObjectReference{Name: "nodes"},
		}
	})
	w.provisioned(cluster)
	return w, cluster
}

// joined plays Cluster API and the kubelet: the machine has a Node.
func (w *world) joined(m *infrav1.MaasMachine) *corev1.Node {
	w.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.Status.Hostname}}
	w.create(node)
	w.t.Cleanup(func() { _ = w.client.Delete(context.Background(), node) })
	machine := &clusterv1.Machine{}
	w.must(w.client.Get(w.t.Context(), client.ObjectKeyFromObject(m), machine))
	w.patchStatus(machine, func() { machine.Status.NodeRef = clusterv1.MachineNodeReference{Name: node.Name} })
	return node
}

// saysOnNode sets the initializer's condition on a Node.
func (w *world) saysOnNode(node *corev1.Node, status corev1.ConditionStatus, reason, message string) {
	w.t.Helper()
	w.patchStatus(node, func() {
		node.Status.Conditions = []corev1.NodeCondition{{
			Type: infrav1.LXDHostReadyNodeCondition, Status: status, Reason: reason, Message: message,
		}}
	})
}

// registers registers a VM host, as the initializer does.
func (w *world) registers(node *corev1.Node, address string) maas.VMHost {
	w.t.Helper()
	service := vmhosts.NewService(w.maasClient())
	result, err := service.Ensure(w.t.Context(), maas.Unrecorded("a test"), vmhosts.Registration{Name: node.Name, PowerAddress: address, Project: "maas"},
		func(context.Context, string) (int, error) { return 0, nil })
	if err != nil {
		w.t.Fatal(err)
	}
	return result.Host
}

func (w *world) maasClient() *maas.Client {
	w.t.Helper()
	return simtest.Client(w.t, w.ofPeople(), "admin:token:secret")
}

func (w *world) hosts() []maas.VMHost {
	w.t.Helper()
	hosts, err := w.maasClient().ListVMHosts(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return hosts
}

// lxdReady waits until LXDReady has a reason, and its message contains some words.
func (w *world) lxdReady(cluster *infrav1.MaasCluster, status metav1.ConditionStatus, reason string, words ...string) {
	w.t.Helper()
	w.eventually(cluster, "LXDReady "+reason+" "+strings.Join(words, ", "), func() bool {
		c := conditions.Get(cluster, infrav1.LXDReadyCondition)
		if c == nil || c.Status != status || c.Reason != reason {
			w.nudge(cluster)
			return false
		}
		for _, word := range words {
			if !strings.Contains(c.Message, word) {
				w.nudge(cluster)
				return false
			}
		}
		return true
	})
}

// nudge triggers a reconcile of an object now, before its retry is due; it ignores an object that is gone. More
// frequent nudges would keep the manager from recording anything.
func (w *world) nudge(object client.Object) {
	w.nudged.Do(func() {
		patch := []byte(`{"metadata":{"annotations":{"nudged":"` + time.Now().String() + `"}}}`)
		_ = w.client.Patch(w.t.Context(), object.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, patch))
	})
}

// retiresInOrder waits until the node of a machine that is being deleted is asked to retire, lets it, and waits until the
// machine is gone. Its VM host goes in between.
func (w *world) retiresInOrder(m *infrav1.MaasMachine, node *corev1.Node) {
	w.t.Helper()
	w.await("the node is asked to retire", node, func(context.Context) bool {
		w.nudge(m)
		_, retiring := w.annotation(node, infrav1.LXDHostRetireAnnotation)
		return retiring
	})
	if hosts := w.hosts(); len(hosts) != 1 {
		w.t.Errorf("MAAS has %d hosts before the initializer has stopped", len(hosts))
	}
	w.saysOnNode(node, corev1.ConditionFalse, infrav1.LXDHostRetiredReason, "")
	w.goesNudged(m)
	if hosts := w.hosts(); len(hosts) != 0 {
		w.t.Errorf("left in MAAS: %+v", hosts)
	}
}

// goesNudged waits until a machine that is being deleted is gone.
func (w *world) goesNudged(m *infrav1.MaasMachine) {
	w.t.Helper()
	w.await(m.Name+" is gone", m, func(ctx context.Context) bool {
		w.nudge(m)
		return w.isGone(ctx, m.DeepCopy())
	})
}

func TestHostCluster(t *testing.T) {
	t.Parallel()
	w, cluster := hostWorld(t)
	before := w.maas.State()
	w.lxdReady(cluster, metav1.ConditionFalse, infrav1.HostsNotReadyReason, "0 of 0")

	t.Run("the initializer is put into the cluster and kept as specified", func(t *testing.T) { checkInitializer(t, w, cluster) })

	a := w.deployedMachine("host-a", true, infrav1.MaasMachineSpec{FailureDomain: "zone-a", StaticIP: "10.77.0.11"})
	w.lxdReady(cluster, metav1.ConditionFalse, infrav1.HostsNotReadyReason, "0 of 1", "host-a: no node yet")
	node := w.joined(a)
	w.saysOnNode(node, corev1.ConditionFalse, "BridgeMissing", "there is no bridge br0")
	w.lxdReady(cluster, metav1.ConditionFalse, infrav1.HostsNotReadyReason, "host-a: there is no bridge br0")
	host := w.registers(node, "10.77.0.11:8443")
	if host.Host.SystemID != a.Spec.SystemID {
		t.Fatalf("the VM host runs on %s, not on %s", host.Host.SystemID, a.Spec.SystemID)
	}
	w.saysOnNode(node, corev1.ConditionTrue, "Registered", "")
	w.lxdReady(cluster, metav1.ConditionTrue, infrav1.ReadyReason)
	w.newMachine("host-b", false, infrav1.MaasMachineSpec{FailureDomain: "zone-b"})
	w.lxdReady(cluster, metav1.ConditionFalse, infrav1.HostsNotReadyReason, "1 of 2", "host-b")

	vm, err := w.maasClient().Compose(t.Context(), maas.Unrecorded("a test"), host.ID, maas.ComposeParams{Hostname: "theirs", Cores: 1, Memory: 2048, ZoneID: 1, SkipCommissioning: true})
	if err != nil {
		t.Fatal(err)
	}
	w.beginDeletion(a)
	t.Run("deletion waits for the VMs on the host and keeps new ones off", func(t *testing.T) {
		w.eventually(a, "waiting for its VMs", func() bool {
			c := conditions.Get(a, infrav1.MachineDeployedCondition)
			return c.Reason == infrav1.VMsOnHostReason && strings.Contains(c.Message, "theirs")
		})
		hosts := w.hosts()
		if len(hosts) != 1 || !slices.Contains(hosts[0].Tags, lxd.RetiringTag) {
			t.Errorf("MAAS has %+v", hosts)
		}
		if _, retiring := w.annotation(node, infrav1.LXDHostRetireAnnotation); retiring {
			t.Error("the node is asked to retire while VMs live on it")
		}
	})
	w.must(w.maasClient().DeleteMachine(t.Context(), maas.Unrecorded("a test"), vm))
	t.Run("then the initializer stops, the host leaves MAAS, and the machine is released", func(t *testing.T) {
		w.retiresInOrder(a, node)
	})
	b := &infrav1.MaasMachine{ObjectMeta: metav1.ObjectMeta{Name: "host-b", Namespace: w.namespace}}
	w.delete(b)
	w.deleteCluster(cluster)
	w.unchanged(before)
}

// annotation reads one of a Node's annotations.
func (w *world) annotation(node *corev1.Node, name string) (string, bool) {
	w.t.Helper()
	w.must(w.client.Get(w.t.Context(), client.ObjectKeyFromObject(node), node))
	value, ok := node.Annotations[name]
	return value, ok
}

func checkInitializer(t *testing.T, w *world, cluster *infrav1.MaasCluster) {
	daemonSet := &appsv1.DaemonSet{}
	key := client.ObjectKey{Namespace: "capmaas-system", Name: charts.InitializerName}
	w.must(w.client.Get(t.Context(), key, daemonSet))
	env := map[string]string{}
	for _, v := range daemonSet.Spec.Template.Spec.Containers[0].Env {
		env[v.Name] = v.Value
	}
	want := map[string]string{
		"STORAGE_BACKEND": "btrfs", "STORAGE_SIZE": "20", "NETWORK_BRIDGE": "br0", "ZONE": "", "RESOURCE_POOL": "default",
	}
	for name, value := range want {
		if got, ok := env[name]; !ok || got != value {
			t.Errorf("%s is %q (%t), want %q", name, got, ok, value)
		}
	}
	if image := daemonSet.Spec.Template.Spec.Containers[0].Image; image != "example.com/lxd-initializer:v1" {
		t.Errorf("the image is %s", image)
	}
	secret, config := &corev1.Secret{}, &corev1.ConfigMap{}
	for name, object := range map[string]client.Object{"maas-credentials": secret, "capmaas-config": config} {
		w.must(w.client.Get(t.Context(), client.ObjectKey{Namespace: "capmaas-system", Name: name}, object))
	}
	if diff := cmp.Diff(map[string][]byte{"apiKey": []byte("nodes:token:secret")}, secret.Data); diff != "" {
		t.Errorf("the credentials (-want +got):\n%s", diff)
	}
	if config.Data["maasEndpoint"] != w.maasURL {
		t.Errorf("the endpoint: %v", config.Data)
	}
	before := daemonSet.DeepCopy()
	daemonSet.Spec.Template.Spec.Containers[0].Image = "somebody's"
	w.must(w.client.Patch(t.Context(), daemonSet, client.MergeFrom(before))) // The manager writes its status meanwhile.
	w.await("the DaemonSet is as specified again", daemonSet, func(ctx context.Context) bool {
		w.nudge(cluster)
		return w.client.Get(ctx, key, daemonSet) == nil && daemonSet.Spec.Template.Spec.Containers[0].Image == "example.com/lxd-initializer:v1"
	})
}

// A host cluster that does not respond can't be asked to stop: its machine must not register itself again while it is
// released.
func TestAHostThatCannotBeAskedIsPoweredOffBeforeItLeavesMAAS(t *testing.T) {
	t.Parallel()
	w, cluster := hostWorld(t)
	a := w.deployedMachine("host-a", true, infrav1.MaasMachineSpec{FailureDomain: "zone-a", StaticIP: "10.77.0.11"})
	node := w.joined(a)
	w.saysOnNode(node, corev1.ConditionTrue, "Registered", "")
	w.registers(node, "10.77.0.11:8443")
	w.patch(node, func() {
		node.Annotations = map[string]string{infrav1.LXDHostRetireAnnotation: time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)}
	})
	w.maas.ResetCalls()
	// Another client changes the object at the moment when its host leaves MAAS: what the manager did not record by then is lost.
	w.maas.SetHook(func(call simulator.Call, at simulator.Phase) error {
		if call.Method == http.MethodDelete && strings.HasPrefix(call.Endpoint, "vm-hosts/") && at == simulator.After {
			patch := []byte(`{"metadata":{"annotations":{"changed":"meanwhile"}}}`)
			if err := w.client.Patch(t.Context(), a.DeepCopy(), client.RawPatch(types.MergePatchType, patch)); err != nil {
				t.Error(err)
			}
		}
		return nil
	})
	w.beginDeletion(a)
	w.goesNudged(a)
	var order []string
	for _, call := range w.maas.Calls().Log {
		switch {
		case call.Op == "power_off" || call.Op == "release":
			order = append(order, call.Op)
		case call.Method == "DELETE" && strings.HasPrefix(call.Endpoint, "vm-hosts/"):
			order = append(order, "remove host")
		}
	}
	order = slices.Compact(order) // A machine that still has power is switched off again.
	if diff := cmp.Diff([]string{"power_off", "remove host", "release"}, order); diff != "" {
		t.Errorf("what was asked of MAAS (-want +got):\n%s", diff)
	}
	w.deleteCluster(cluster)
}

// An initializer that looked before it was asked to retire may register the machine while MAAS releases it.
func TestAVMHostThatIsRegisteredDuringTheReleaseLeavesMAAS(t *testing.T) {
	t.Parallel()
	w, cluster := hostWorld(t, func(w *world) { w.region += "timings: {power_off: 300h}\n" })
	before := w.maas.State()
	a := w.deployedMachine("host-a", true, infrav1.MaasMachineSpec{FailureDomain: "zone-a", StaticIP: "10.77.0.11"})
	node := w.joined(a)
	w.saysOnNode(node, corev1.ConditionFalse, infrav1.LXDHostRetiredReason, "")
	w.beginDeletion(a)
	w.inState(a.Spec.SystemID, "Releasing")
	w.registers(node, "10.77.0.11:8443")
	w.await("the VM host left MAAS", a, func(context.Context) bool {
		w.nudge(a)
		return len(w.hosts()) == 0
	})
	w.must(w.maas.SetTimeScale(100 * timeScale))
	w.goes(a)
	w.deleteCluster(cluster)
	w.unchanged(before)
}

// Cluster API sets a Machine's nodeRef a while after its Node has joined. Its name may be the kubelet's by then.
func TestANodeThatHasJustJoinedIsToldToRetire(t *testing.T) {
	t.Parallel()
	w, cluster := hostWorld(t)
	a := w.deployedMachine("host-a", true, infrav1.MaasMachineSpec{FailureDomain: "zone-a"})
	node := w.newNode(a.Status.Hostname, "")
	w.saysOnNode(node, corev1.ConditionFalse, "Preparing", "it is being set up")
	w.beginDeletion(a)
	w.await("the node is asked to retire", a, func(ctx context.Context) bool {
		w.nudge(a)
		_, retiring := w.annotation(node, infrav1.LXDHostRetireAnnotation)
		return retiring || w.isGone(ctx, a.DeepCopy())
	})
	w.retires(a)
	if _, retiring := w.annotation(node, infrav1.LXDHostRetireAnnotation); !retiring {
		t.Error("the machine was released and its node not asked to retire")
	}
	w.deleteCluster(cluster)
}

// A Machine's nodeRef keeps the name that its Node had first, which another machine's Node may have by now.
func TestAHostWhoseNodeWasRenamedIsToldToRetire(t *testing.T) {
	t.Parallel()
	w, cluster := hostWorld(t)
	a := w.deployedMachine("host-a", true, infrav1.MaasMachineSpec{FailureDomain: "zone-a", StaticIP: "10.77.0.11"})
	former := w.joined(a)
	w.beginDeletion(former)
	other := w.newNode(former.Name, "maas://zone-b/other")
	node := w.newNode("renamed", a.Spec.ProviderID)
	w.registers(node, "10.77.0.11:8443")
	for _, n := range []*corev1.Node{other, node} {
		w.saysOnNode(n, corev1.ConditionTrue, "Registered", "")
	}
	w.beginDeletion(a)
	w.retiresInOrder(a, node)
	if _, retiring := w.annotation(other, infrav1.LXDHostRetireAnnotation); retiring {
		t.Error("another machine's node is asked to retire")
	}
	w.deleteCluster(cluster)
}

// Each cluster may have a Node of the same name. The VM host of such a one stays as it is, and holds nothing up.
func TestAVMHostOfTheNodesNameOnAnotherMachineStays(t *testing.T) {
	t.Parallel()
	w, cluster := hostWorld(t)
	var machines []*infrav1.MaasMachine
	for i, name := range []string{"a", "b"} {
		address := fmt.Sprintf("10.77.0.1%d", i+1)
		m := w.deployedMachine("host-"+name, true, infrav1.MaasMachineSpec{FailureDomain: "zone-" + name, StaticIP: address})
		machines = append(machines, m)
	}
	// What another cluster's initializer registered, whose machine b plays.
	node := w.joined(machines[0])
	w.patchStatus(node, func() {
		node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.77.0.11"}}
	})
	theirs := w.registers(node, "10.77.0.12:8443")
	if theirs.Host.SystemID != machines[1].Spec.SystemID {
		t.Fatalf("MAAS shows their VM host on machine %s: nothing is tested", theirs.Host.SystemID)
	}
	w.saysOnNode(node, corev1.ConditionFalse, "VMHostNameTaken", "there is another one")
	w.lxdReady(cluster, metav1.ConditionFalse, infrav1.HostsNotReadyReason, "host-a: there is another one")
	w.beginDeletion(machines[0])
	w.retires(machines[0])
	if hosts := w.hosts(); len(hosts) != 1 || hosts[0].ID != theirs.ID || slices.Contains(hosts[0].Tags, lxd.RetiringTag) {
		t.Errorf("MAAS has %+v, want their VM host as it was", hosts)
	}
}

// MAAS shows it on another machine, and the key pair of the Node decides whose it is.
func TestAVMHostWithTheCertificateOfTheNodeIsTheNodes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ isOurs, otherKeys, otherNode bool }{
		"ours":                      {isOurs: true},
		"another's":                 {otherKeys: true},
		"of an earlier Node's host": {otherNode: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, _ := hostWorld(t)
			m := w.deployedMachine("host-a", true, infrav1.MaasMachineSpec{FailureDomain: "zone-a", StaticIP: "10.77.0.11"})
			node := w.joined(m)
			host := w.registers(node, "10.77.0.12:8443") // of no machine that MAAS has: it makes one
			power, err := w.maasClient().VMHostPower(t.Context(), host.ID)
			if err != nil || host.Host.SystemID == m.Spec.SystemID {
				t.Fatalf("MAAS shows it on machine %s: %v", host.Host.SystemID, err)
			}
			keys := &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: "capmaas-system", Name: infrav1.LXDKeysPrefix + node.Name}, Type: corev1.SecretTypeTLS,
				Data: map[string][]byte{corev1.TLSCertKey: []byte(power.Certificate), corev1.TLSPrivateKeyKey: []byte(power.Key)},
			}
			keys.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
			if test.otherNode {
				keys.OwnerReferences[0].UID = "another"
			}
			if test.otherKeys {
				other := w.newKeys()
				keys.Data = map[string][]byte{corev1.TLSCertKey: other.Certificate, corev1.TLSPrivateKeyKey: other.Key}
			}
			w.create(keys)
			t.Cleanup(func() { _ = w.client.Delete(context.Background(), keys) })
			w.saysOnNode(node, corev1.ConditionFalse, "WrongMachine", "MAAS has it on another machine")
			w.beginDeletion(m)
			w.retires(m)
			if left := len(w.hosts()); (left == 0) != test.isOurs {
				t.Errorf("%d VM hosts are left in MAAS", left)
			}
		})
	}
}

// newNode registers a Node under a name that the kubelet chose.
func (w *world) newNode(name, providerID string) *corev1.Node {
	w.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: providerID}}
	w.create(node)
	w.t.Cleanup(func() { _ = w.client.Delete(context.Background(), node) })
	return node
}

// Calico gives an interface of each pod of each node the same MAC address, so MAAS takes two VM hosts for hosts on one
// machine.
func TestHostsThatMAASMixesUpAreNotReleasedUnderVMs(t *testing.T) {
	t.Parallel()
	w, cluster := hostWorld(t)
	var machines []*infrav1.MaasMachine
	var hosts []maas.VMHost
	for i, name := range []string{"a", "b"} {
		address := fmt.Sprintf("10.77.0.1%d", i+1)
		m := w.deployedMachine("host-"+name, true, infrav1.MaasMachineSpec{FailureDomain: "zone-" + name, StaticIP: address})
		w.maas.SetHostNetworks("lxd-"+name, []simulator.HostNetwork{
			{Name: "eth0", Kind: simulator.NetworkPhysical, MAC: w.metal(m.Spec.SystemID).Interfaces[0].MAC, Addresses: []netip.Prefix{netip.MustParsePrefix(address + "/24")}},
			{Name: "cali" + name, Kind: simulator.NetworkUnknown, MAC: "ee:ee:ee:ee:ee:ee"},
		})
		node := w.joined(m)
		w.patchStatus(node, func() {
			node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
		})
		hosts = append(hosts, w.registers(node, address+":8443"))
		w.saysOnNode(node, corev1.ConditionTrue, "Registered", "")
		machines = append(machines, m)
	}
	w.await("MAAS has mixed them up", cluster, func(context.Context) bool {
		hosts := w.hosts()
		return len(hosts) == 2 && hosts[0].Host.SystemID == hosts[1].Host.SystemID
	})
	w.lxdReady(cluster, metav1.ConditionFalse, infrav1.HostsNotReadyReason, "1 of 2", "MAC address")
	var vms []string
	for i, host := range hosts {
		vm, err := w.maasClient().Compose(t.Context(), maas.Unrecorded("a test"), host.ID, maas.ComposeParams{Hostname: fmt.Sprint("theirs-", i), Cores: 1, Memory: 2048, ZoneID: 1, SkipCommissioning: true})
		if err != nil {
			t.Fatal(err)
		}
		vms = append(vms, vm)
		w.beginDeletion(machines[i])
	}
	for i, m := range machines {
		w.eventually(m, "waiting for its own VM alone", func() bool {
			c := conditions.Get(m, infrav1.MachineDeployedCondition)
			return c.Reason == infrav1.VMsOnHostReason && strings.Contains(c.Message, fmt.Sprint("theirs-", i)) && strings.Contains(c.Message, "1 VM")
		})
	}
	w.must(w.maasClient().DeleteMachine(t.Context(), maas.Unrecorded("a test"), vms[1]))
	w.retires(machines[1])
	if left := w.hosts(); len(left) != 1 || left[0].ID != hosts[0].ID {
		t.Errorf("MAAS has %+v, want the VM host of the other machine", left)
	}
}

func (w *world) metal(systemID string) simulator.MachineSnapshot {
	machines := w.maas.Machines()
	return machines[slices.IndexFunc(machines, func(m simulator.MachineSnapshot) bool { return m.SystemID == systemID })]
}

// retires acts as the initializer until a machine of a host cluster is gone.
func (w *world) retires(m *infrav1.MaasMachine) {
	w.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.Status.Hostname}}
	w.await(m.Name+" is gone", m, func(ctx context.Context) bool {
		w.nudge(m)
		if _, retiring := w.annotation(node, infrav1.LXDHostRetireAnnotation); retiring && clusters.HostCondition(node).Reason != infrav1.LXDHostRetiredReason {
			w.saysOnNode(node, corev1.ConditionFalse, infrav1.LXDHostRetiredReason, "")
		}
		return w.isGone(ctx, m.DeepCopy())
	})
}

// MAAS takes a virtual IP for an address of the VM host that holds it, and drops the reservation when the address
// moves. No other machine gets it meanwhile.
func TestAVirtualIPThatOneOfItsMachinesHoldsIsNotInUse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) { w.region = hostRegion })
	cluster := w.provisionedCluster(at("10.77.0.60"))
	m := w.deployedMachine("cp-0", true, infrav1.MaasMachineSpec{FailureDomain: "zone-a"})
	nic, own := w.metal(m.Spec.SystemID).Interfaces[0], m.Status.Addresses[0].Address
	has := func(addresses ...string) {
		reported := simulator.HostNetwork{Name: nic.Name, Kind: simulator.NetworkPhysical, MAC: nic.MAC}
		for _, address := range addresses {
			reported.Addresses = append(reported.Addresses, netip.MustParsePrefix(address))
		}
		w.maas.SetHostNetworks("lxd-a", []simulator.HostNetwork{reported})
	}
	has(own+"/24", "10.77.0.60/32")
	host := w.registers(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "cp-0"}}, "10.77.0.11:8443")
	for _, addresses := range [][]string{{own + "/24"}, {own + "/24", "10.77.0.60/32"}} { // It moves away, and comes back.
		has(addresses...)
		if _, err := w.maasClient().RefreshVMHost(t.Context(), host.ID); err != nil {
			t.Fatal(err)
		}
		w.await("MAAS has the machine's addresses", m, func(context.Context) bool {
			return len(w.metal(m.Spec.SystemID).Addresses) == len(addresses)
		})
	}
	s, err := w.scopes.Cluster(t.Context(), w.cluster, cluster)
	if err != nil {
		t.Fatal(err)
	}
	w.await("the manager knows of the address", m, func(context.Context) bool {
		seen := s.Inventory.Observe(m.Spec.SystemID, inventory.Settled).Machine
		return seen != nil && slices.Contains(seen.IPAddresses, "10.77.0.60")
	})
	searched := func(times int) {
		w.maas.ResetCalls()
		w.await("the reservation is looked for", cluster, func(context.Context) bool {
			_ = s.Inventory.ChangeDNSRecord(s.EndpointName(), func(*maas.Client) (*maas.DNSResource, error) { return nil, nil })
			w.nudge(cluster)
			return w.asked("dnsresources/", "") >= times
		})
	}
	searched(1) // A reconcile that began before the manager knew of the address is over.
	searched(2)
	if asked := w.asked("ipaddresses/", "reserve"); asked > 0 {
		t.Errorf("MAAS was asked %d times to reserve what a machine of the cluster has", asked)
	}
}

// asked counts the calls since the last reset.
func (w *world) asked(endpoint, op string) int {
	n := 0
	for _, call := range w.maas.Calls().Log {
		if call.Endpoint == endpoint && call.Op == op {
			n++
		}
	}
	return n
}

// A node where the initializer's pod does not start, which can't report it, and one without LXD.
func TestANodeThatDoesNotBecomeAHostIsNamed(t *testing.T) {
	t.Parallel()
	w, cluster := hostWorld(t)
	m := w.deployedMachine("host-a", true, infrav1.MaasMachineSpec{FailureDomain: "zone-a"})
	node := w.joined(m)
	w.lxdReady(cluster, metav1.ConditionFalse, infrav1.HostsNotReadyReason, "not registered in MAAS yet")
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "lxd-initializer-x", Namespace: "capmaas-system", Labels: map[string]string{"app": charts.InitializerName}},
		Spec:       corev1.PodSpec{NodeName: node.Name, ServiceAccountName: charts.InitializerName, Containers: []corev1.Container{{Name: "c", Image: "example.com/lxd-initializer:v1"}}},
	}
	w.create(pod)
	w.patchStatus(pod, func() {
		pod.Status.Phase = corev1.PodPending
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Hour)),
		}}
	})
	w.lxdReady(cluster, metav1.ConditionFalse, infrav1.HostsNotReadyReason, "host-a: ", "does not start", "example.com/lxd-initializer:v1")
	w.must(w.client.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	_, err := lxdnode.Connect(t.Context(), lxdnode.Sockets(t.TempDir()+"/none,"+t.TempDir()+"/none")...)
	w.saysOnNode(node, corev1.ConditionFalse, "LXDNotInstalled", err.Error())
	w.lxdReady(cluster, metav1.ConditionFalse, infrav1.HostsNotReadyReason, "host-a: "+err.Error())
	w.saysOnNode(node, corev1.ConditionFalse, infrav1.LXDHostRetiredReason, "")
	w.delete(m)
	w.deleteCluster(cluster)
}

// MAAS takes all addresses on a VM host for its machine's, as static ones.
func TestAHostKeepsItsOwnAddressAlone(t *testing.T) {
	t.Parallel()
	w, cluster := hostWorld(t)
	m := w.deployedMachine("host-a", true, infrav1.MaasMachineSpec{FailureDomain: "zone-a"})
	own := m.Status.Addresses[0].Address
	card, mac := w.metal(m.Spec.SystemID).Interfaces[0].Name, w.metal(m.Spec.SystemID).Interfaces[0].MAC
	w.maas.SetHostNetworks("lxd-a", []simulator.HostNetwork{
		{Name: card, Kind: simulator.NetworkPhysical, MAC: mac},
		{Name: "br0", Kind: simulator.NetworkBridge, MAC: mac, Ports: []string{card}, Addresses: []netip.Prefix{netip.MustParsePrefix(own + "/24")}},
		{Name: "cni0", Kind: simulator.NetworkBridge, MAC: "aa:00:00:00:00:01", Addresses: []netip.Prefix{netip.MustParsePrefix("10.244.1.1/24")}},
	})
	node := w.joined(m)
	w.registers(node, "10.77.0.11:8443")
	w.saysOnNode(node, corev1.ConditionTrue, "Registered", "")
	w.await("MAAS takes the pods' network for the machine's", m, func(context.Context) bool {
		return len(w.metal(m.Spec.SystemID).Addresses) == 2
	})
	if mode := w.linkMode(m, "br0"); mode != maas.LinkModeStatic {
		t.Fatalf("MAAS has left the address %s: nothing is tested", mode)
	}
	w.maasCall(http.MethodPut, "machines/"+m.Spec.SystemID+"/", url.Values{"zone": {"zone-b"}})
	w.eventually(m, "seen as MAAS has it now", func() bool {
		w.nudge(m)
		return m.Status.FailureDomain == "zone-b"
	})
	if diff := cmp.Diff([]string{own}, w.internal(m)); diff != "" {
		t.Errorf("the machine's addresses (-want +got):\n%s", diff)
	}
	w.beginDeletion(m)
	w.retires(m)
	if mode := w.linkMode(m, card); mode != maas.LinkModeAuto {
		t.Errorf("%s is left with a %s address", card, mode)
	}
	if left := len(w.metal(m.Spec.SystemID).Interfaces); left != 1 {
		t.Errorf("the machine is left with %d interfaces, want its card alone", left)
	}
	w.deleteCluster(cluster)
}

// A virtual IP that MAAS saw on a VM host, at its last look, does not come with the machine to the next one that gets it.
func TestAHostThatHeldAVirtualIPIsGivenBackWithoutIt(t *testing.T) {
	t.Parallel()
	w, cluster := hostWorld(t)
	m := w.deployedMachine("host-a", true, infrav1.MaasMachineSpec{FailureDomain: "zone-a"})
	own := m.Status.Addresses[0].Address
	card, mac := w.metal(m.Spec.SystemID).Interfaces[0].Name, w.metal(m.Spec.SystemID).Interfaces[0].MAC
	w.maas.SetHostNetworks("lxd-a", []simulator.HostNetwork{
		{Name: card, Kind: simulator.NetworkPhysical, MAC: mac},
		{Name: "br0", Kind: simulator.NetworkBridge, MAC: mac, Ports: []string{card}, Addresses: []netip.Prefix{
			netip.MustParsePrefix(own + "/24"), netip.MustParsePrefix(virtualIP + "/32"),
		}},
	})
	node := w.joined(m)
	w.registers(node, "10.77.0.11:8443")
	w.saysOnNode(node, corev1.ConditionTrue, "Registered", "")
	w.await("MAAS takes the virtual IP for the machine's", m, func(context.Context) bool { return w.inUse(virtualIP) })
	var tagged atomic.Bool
	w.maas.SetHook(func(call simulator.Call, phase simulator.Phase) error {
		if call.Op == "release" && call.SystemID == m.Spec.SystemID && phase == simulator.Before {
			tagged.CompareAndSwap(false, slices.Contains(w.metal(m.Spec.SystemID).Tags, quarantine.ExcludeTag))
		}
		return nil
	})
	w.beginDeletion(m)
	w.retires(m)
	w.maas.SetHook(nil)
	if !tagged.Load() {
		t.Error("the machine was released without the tag that keeps others from allocating it as it is")
	}
	if mode := w.linkMode(m, card); mode != maas.LinkModeAuto || w.inUse(virtualIP) {
		t.Errorf("%s is left with a %s address; the virtual IP is in use: %v", card, mode, w.inUse(virtualIP))
	}
	w.deleteCluster(cluster)
}

// A machine that becomes a VM host gets its bridge before it is deployed, unless it already has one.
func TestAHostGetsItsBridge(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		there   string // a bridge that was made in MAAS
		lost    bool   // each call once, after it took effect
		refused bool
	}{
		"none":           {},
		"its own":        {there: "br0"},
		"lost responses": {lost: true},
		"another name":   {there: "br1", refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, cluster := hostWorld(t)
			for _, metal := range w.maas.Machines() {
				if test.there != "" {
					w.makeBridge(metal, test.there)
				}
			}
			if test.lost {
				w.loseEachCallOnce(simulator.After)
			}
			m := w.newMachine("host-a", true, infrav1.MaasMachineSpec{FailureDomain: "zone-a"})
			if test.refused {
				w.refused(m, infrav1.MachineDeployedCondition, infrav1.NetworkDeviceInvalidReason)
			} else {
				w.deployed(m)
				metal := w.metal(m.Spec.SystemID)
				if at := slices.IndexFunc(metal.Interfaces, func(i simulator.InterfaceSnapshot) bool { return i.Name == "br0" }); at < 0 ||
					!slices.Equal(metal.Interfaces[at].Ports, []string{metal.Interfaces[0].Name}) || len(metal.Interfaces[at].Addresses) != 1 {
					t.Errorf("the machine has %+v, want br0 with the card and the address", metal.Interfaces)
				}
			}
			want := 1
			if test.there != "" {
				want = len(w.maas.Machines()) // the operator's
			}
			if made := w.asked("nodes/{id}/interfaces/", "create_bridge"); made != want {
				t.Errorf("MAAS was asked for %d bridges, want %d", made, want)
			}
			w.delete(m)
			w.deleteCluster(cluster)
		})
	}
}

// makeBridge makes a bridge on a machine, with its links, as an operator does.
func (w *world) makeBridge(metal simulator.MachineSnapshot, name string) {
	w.t.Helper()
	interfaces := "nodes/" + metal.SystemID + "/interfaces/"
	w.maasCall(http.MethodPost, interfaces+"?op=create_bridge", url.Values{"name": {name}, "parent": {w.interfaceID(metal.SystemID, metal.Interfaces[0].Name)}})
	w.maasCall(http.MethodPost, interfaces+name+"/?op=link_subnet", url.Values{"mode": {"AUTO"}, "subnet": {"10.77.0.0/24"}})
}

func (w *world) interfaceID(systemID, name string) string {
	w.t.Helper()
	m, err := w.maasClient().GetMachine(w.t.Context(), systemID)
	if err != nil {
		w.t.Fatal(err)
	}
	at := slices.IndexFunc(m.Interfaces, func(i *maas.Interface) bool { return i.Name == name })
	if at < 0 {
		w.t.Fatalf("machine %s has no %s", systemID, name)
	}
	return strconv.Itoa(m.Interfaces[at].ID)
}

func (w *world) linkMode(m *infrav1.MaasMachine, nic string) string {
	w.t.Helper()
	machines, err := w.maasClient().ListMachines(w.t.Context(), maas.MachineFilter{SystemIDs: []string{m.Spec.SystemID}})
	if err != nil || len(machines) != 1 {
		w.t.Fatalf("MAAS has %d machines %s: %v", len(machines), m.Spec.SystemID, err)
	}
	at := slices.IndexFunc(machines[0].Interfaces, func(i *maas.Interface) bool { return i.Name == nic && len(i.Links) == 1 })
	if at < 0 {
		w.t.Fatalf("machine %s has no %s with one link", m.Spec.SystemID, nic)
	}
	return machines[0].Interfaces[at].Links[0].Mode
}

func (w *world) internal(m *infrav1.MaasMachine) []string {
	var ips []string
	for _, address := range m.Status.Addresses {
		if address.Type == clusterv1.MachineInternalIP || address.Type == clusterv1.MachineExternalIP {
			ips = append(ips, address.Address)
		}
	}
	return ips
}

// The initializer registers it again; until then it is not known which VMs run there.
func TestAHostThatMAASDoesNotKnowIsNotReleased(t *testing.T) {
	t.Parallel()
	w, cluster := hostWorld(t)
	m := w.deployedMachine("host-a", true, infrav1.MaasMachineSpec{FailureDomain: "zone-a", StaticIP: "10.77.0.11"})
	node := w.joined(m)
	w.saysOnNode(node, corev1.ConditionTrue, "Registered", "")
	w.beginDeletion(m)
	w.heldAsUnclear(m)
	t.Run("though the initializer can't register it", func(t *testing.T) {
		w.patch(node, func() { node.Labels = map[string]string{infrav1.LXDHostLabel: "true"} })
		w.saysOnNode(node, corev1.ConditionFalse, "LXDNotReady", "there is no bridge br0")
		w.looksAgainAt(m)
		w.heldAsUnclear(m)
	})
	t.Run("though the host cluster does not respond to a manager that has just started", func(t *testing.T) {
		w.stopManager()
		w.workload = nil
		w.startManager()
		w.looksAgainAt(m)
		w.heldAsUnclear(m)
		w.stopManager()
		w.workload = w.client
		w.startManager()
	})
	if off, released := w.asked("machines/{id}/", "power_off"), w.asked("machines/{id}/", "release"); off+released > 0 {
		t.Fatalf("the machine was switched off %d times, and released %d times", off, released)
	}
	w.registers(node, "10.77.0.11:8443")
	w.retires(m)
	w.deleteCluster(cluster)
}

// heldAsUnclear waits until the deletion of a host's machine waits, because it is not known which VMs run there.
func (w *world) heldAsUnclear(m *infrav1.MaasMachine) {
	w.t.Helper()
	w.eventually(m, "held", func() bool {
		return conditions.GetReason(m, infrav1.MachineDeployedCondition) == infrav1.VMHostUnclearReason ||
			w.asked("machines/{id}/", "power_off") > 0
	})
	if reason := conditions.GetReason(m, infrav1.MachineDeployedCondition); reason != infrav1.VMHostUnclearReason {
		w.t.Errorf("the machine is not held: %s", reason)
	}
}

// looksAgainAt waits until a whole reconcile of the deletion of a host's machine has seen all as it is now.
func (w *world) looksAgainAt(m *infrav1.MaasMachine) {
	w.t.Helper()
	before := w.proofs(m)
	w.await(m.Name+" is looked at again", m, func(context.Context) bool {
		w.nudge(m)
		return w.proofs(m) >= before+2
	})
}

// proofs counts how often MAAS was asked whose a machine is.
func (w *world) proofs(m *infrav1.MaasMachine) int {
	return len(list.Where(w.maas.Calls().Log, func(call simulator.Call) bool {
		return strings.Contains(call.Query, "agent_name=") && strings.Contains(call.Query, m.Spec.SystemID)
	}))
}

func TestHostClusterRefusals(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*infrav1.MaasCluster)
		reason string
	}{
		"the nodes' credentials are not there": {
			func(c *infrav1.MaasCluster) {
				c.Spec.LXDConfig.CredentialsRef = &infrav1.LocalObjectReference{Name: "nowhere"}
			},
			infrav1.CredentialsInvalidReason,
		},
		"the nodes' credentials are none": {
			func(c *infrav1.MaasCluster) {
				c.Spec.LXDConfig.CredentialsRef = &infrav1.LocalObjectReference{Name: "empty"}
			},
			infrav1.CredentialsInvalidReason,
		},
		"the host cluster does not respond": {
			func(*infrav1.MaasCluster) {}, infrav1.WaitingForWorkloadClusterReason,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(w *world) {
				if test.reason == infrav1.WaitingForWorkloadClusterReason {
					w.workload = nil
				}
			})
			w.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "empty", Namespace: w.namespace}})
			cluster := w.newCluster(func(c *infrav1.MaasCluster) {
				c.Spec.LXDControlPlaneCluster, c.Spec.LXDConfig = true, &infrav1.LXDHostConfig{}
				test.change(c)
			})
			w.lxdReady(cluster, metav1.ConditionFalse, test.reason)
			w.provisioned(cluster) // machines can be created all the same
		})
	}
}

// The initializers need the cluster's API, which is gone after its machines.
func TestMachinesOfADeletedHostClusterGoTogether(t *testing.T) {
	t.Parallel()
	w, cluster := hostWorld(t)
	type host struct {
		machine *infrav1.MaasMachine
		node    *corev1.Node
		vmHost  maas.VMHost
	}
	var hosts []host
	for _, h := range []struct{ name, zone, address string }{{"host-a", "zone-a", "10.77.0.11"}, {"host-b", "zone-b", "10.77.0.12"}} {
		m := w.deployedMachine(h.name, true, infrav1.MaasMachineSpec{FailureDomain: h.zone, StaticIP: h.address})
		node := w.joined(m)
		w.saysOnNode(node, corev1.ConditionTrue, "Registered", "")
		hosts = append(hosts, host{m, node, w.registers(node, h.address+":8443")})
	}
	w.lxdReady(cluster, metav1.ConditionTrue, infrav1.ReadyReason)
	vm, err := w.maasClient().Compose(t.Context(), maas.Unrecorded("a test"), hosts[1].vmHost.ID, maas.ComposeParams{Hostname: "theirs", Cores: 1, Memory: 2048, ZoneID: 1, SkipCommissioning: true})
	if err != nil {
		t.Fatal(err)
	}
	before := w.cluster.DeepCopy()
	w.cluster.Finalizers = []string{"test/hold"}
	w.must(w.client.Patch(t.Context(), w.cluster, client.MergeFrom(before)))
	for _, object := range []client.Object{w.cluster, hosts[0].machine, hosts[1].machine} {
		w.beginDeletion(object)
	}
	w.saysOnNode(hosts[0].node, corev1.ConditionFalse, infrav1.LXDHostRetiredReason, "")
	w.eventually(hosts[0].machine, "waiting for the other", func() bool {
		w.nudge(hosts[0].machine)
		c := conditions.Get(hosts[0].machine, infrav1.MachineDeployedCondition)
		return c.Reason == infrav1.LXDHostRetiredReason && strings.Contains(c.Message, "host-b")
	})
	if left := w.hosts(); len(left) != 1 || left[0].ID != hosts[1].vmHost.ID {
		t.Errorf("MAAS has %+v", left)
	}
	w.must(w.maasClient().DeleteMachine(t.Context(), maas.Unrecorded("a test"), vm))
	w.saysOnNode(hosts[1].node, corev1.ConditionFalse, infrav1.LXDHostRetiredReason, "")
	for _, h := range hosts {
		w.await(h.machine.Name+" is gone", h.machine, func(ctx context.Context) bool {
			w.nudge(h.machine)
			return w.isGone(ctx, h.machine.DeepCopy())
		})
	}
	w.delete(cluster)
	released := w.cluster.DeepCopy()
	w.cluster.Finalizers = nil
	w.must(w.client.Patch(t.Context(), w.cluster, client.MergeFrom(released)))
}

// Cluster API deletes the control planes of a deleted cluster when its workers are gone: a worker that waited for them
// would wait for ever.
func TestAWorkerOfADeletedHostClusterGoesBeforeItsControlPlanes(t *testing.T) {
	t.Parallel()
	w, cluster := hostWorld(t)
	machines := map[string]*infrav1.MaasMachine{}
	for i, name := range []string{"host-a", "host-b"} {
		address := fmt.Sprintf("10.77.0.1%d", i+1)
		spec := infrav1.MaasMachineSpec{FailureDomain: []string{"zone-a", "zone-b"}[i], StaticIP: address}
		m := w.deployedMachine(name, i == 0, spec)
		node := w.joined(m)
		w.saysOnNode(node, corev1.ConditionTrue, "Registered", "")
		w.registers(node, address+":8443")
		machines[name] = m
	}
	w.lxdReady(cluster, metav1.ConditionTrue, infrav1.ReadyReason)
	w.patch(w.cluster, func() { w.cluster.Finalizers = []string{"test/hold"} })
	for _, object := range []client.Object{w.cluster, machines["host-b"]} {
		w.beginDeletion(object)
	}
	w.retires(machines["host-b"])
	if left := w.hosts(); len(left) != 1 || left[0].Host.SystemID != machines["host-a"].Spec.SystemID {
		t.Errorf("MAAS has %+v", left)
	}
	w.beginDeletion(machines["host-a"])
	w.retires(machines["host-a"])
	w.delete(cluster)
	w.patch(w.cluster, func() { w.cluster.Finalizers = nil })
}
