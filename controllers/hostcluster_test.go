// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"slices"
	"strings"
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
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/vmhosts"
)

// hostRegion has LXD on its machines, of which MAAS has not been told. The tag is one that MAAS makes with its first VM host.
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

// hostWorld is a world whose workload cluster has a real API server: the management cluster's own.
func hostWorld(t *testing.T) (*world, *infrav1.MaasCluster) {
	t.Helper()
	w := newWorld(t, func(w *world) { w.workload, w.region = w.client, hostRegion })
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
	if err := w.client.Get(w.t.Context(), client.ObjectKeyFromObject(m), machine); err != nil {
		w.t.Fatal(err)
	}
	w.patchStatus(machine, func() { machine.Status.NodeRef = clusterv1.MachineNodeReference{Name: node.Name} })
	return node
}

// saysOnNode plays the initializer.
func (w *world) saysOnNode(node *corev1.Node, status corev1.ConditionStatus, reason, message string) {
	w.t.Helper()
	w.patchStatus(node, func() {
		node.Status.Conditions = []corev1.NodeCondition{{
			Type: infrav1.LXDHostReadyNodeCondition, Status: status, Reason: reason, Message: message,
		}}
	})
}

// registers plays the initializer, too.
func (w *world) registers(node *corev1.Node, address string) maas.VMHost {
	w.t.Helper()
	service := vmhosts.NewService(w.maasClient())
	result, err := service.Ensure(w.t.Context(), vmhosts.Registration{Name: node.Name, PowerAddress: address, Project: "maas"})
	if err != nil {
		w.t.Fatal(err)
	}
	return result.Host
}

func (w *world) maasClient() *maas.Client {
	w.t.Helper()
	c, err := maas.NewClient(maas.Config{Endpoint: w.maasURL, APIKey: "admin:token:secret"})
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

func (w *world) hosts() []maas.VMHost {
	w.t.Helper()
	hosts, err := w.maasClient().ListVMHosts(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return hosts
}

// lxdReady waits until LXDReady has a reason and its message holds some words.
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

// nudge has an object looked at now, and not after the time that it would be looked at again anyway; one that is gone is fine.
func (w *world) nudge(object client.Object) {
	patch := []byte(`{"metadata":{"annotations":{"nudged":"` + time.Now().String() + `"}}}`)
	_ = w.client.Patch(w.t.Context(), object.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, patch))
}

func TestHostCluster(t *testing.T) {
	w, cluster := hostWorld(t)
	before := w.maas.State()
	w.lxdReady(cluster, metav1.ConditionFalse, infrav1.HostsNotReadyReason, "0 of 0")

	t.Run("the initializer is put into the cluster and kept as specified", func(t *testing.T) { checkInitializer(t, w, cluster) })

	a := w.newMachine("host-a", true, infrav1.MaasMachineSpec{FailureDomain: "zone-a", StaticIP: "10.77.0.11"})
	w.deployed(a)
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

	vm, err := w.maasClient().Compose(t.Context(), host.ID, maas.ComposeParams{Hostname: "theirs", Cores: 1, Memory: 2048, ZoneID: 1, SkipCommissioning: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.client.Delete(t.Context(), a); err != nil {
		t.Fatal(err)
	}
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
			t.Error("the node is told to retire while VMs live on it")
		}
	})
	if err := w.maasClient().DeleteMachine(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	t.Run("then the initializer stops, the host leaves MAAS, and the machine is released", func(t *testing.T) {
		w.await("the node is told to retire", node, func(context.Context) bool {
			w.nudge(a)
			_, retiring := w.annotation(node, infrav1.LXDHostRetireAnnotation)
			return retiring
		})
		if hosts := w.hosts(); len(hosts) != 1 {
			t.Errorf("MAAS has %d hosts before the initializer has stopped", len(hosts))
		}
		w.saysOnNode(node, corev1.ConditionFalse, infrav1.LXDHostRetiredReason, "")
		w.await("host-a is gone", a, func(ctx context.Context) bool {
			w.nudge(a)
			return w.client.Get(ctx, client.ObjectKeyFromObject(a), &infrav1.MaasMachine{}) != nil
		})
		if hosts := w.hosts(); len(hosts) != 0 {
			t.Errorf("left in MAAS: %+v", hosts)
		}
	})
	b := &infrav1.MaasMachine{ObjectMeta: metav1.ObjectMeta{Name: "host-b", Namespace: w.namespace}}
	w.delete(b)
	w.deleteCluster(cluster)
	w.unchanged(before)
}

// annotation reads one of a Node's annotations.
func (w *world) annotation(node *corev1.Node, name string) (string, bool) {
	w.t.Helper()
	if err := w.client.Get(w.t.Context(), client.ObjectKeyFromObject(node), node); err != nil {
		w.t.Fatal(err)
	}
	value, ok := node.Annotations[name]
	return value, ok
}

func checkInitializer(t *testing.T, w *world, cluster *infrav1.MaasCluster) {
	daemonSet := &appsv1.DaemonSet{}
	key := client.ObjectKey{Namespace: initializerNamespace, Name: charts.InitializerName}
	if err := w.client.Get(t.Context(), key, daemonSet); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{}
	for _, v := range daemonSet.Spec.Template.Spec.Containers[0].Env {
		env[v.Name] = v.Value
	}
	want := map[string]string{
		"STORAGE_BACKEND": "btrfs", "STORAGE_SIZE": "20", "NETWORK_BRIDGE": "br0", "ZONE": "", "RESOURCE_POOL": "", "LXD_SOCKET": "/run/lxd/unix.socket",
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
	for name, object := range map[string]client.Object{credentialsName: secret, endpointName: config} {
		if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: initializerNamespace, Name: name}, object); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(map[string][]byte{"apiKey": []byte("nodes:token:secret")}, secret.Data); diff != "" {
		t.Errorf("the credentials (-want +got):\n%s", diff)
	}
	if config.Data["maasEndpoint"] != w.maasURL {
		t.Errorf("the endpoint: %v", config.Data)
	}
	before := daemonSet.DeepCopy()
	daemonSet.Spec.Template.Spec.Containers[0].Image = "somebody's"
	if err := w.client.Patch(t.Context(), daemonSet, client.MergeFrom(before)); err != nil { // Its status is written meanwhile.
		t.Fatal(err)
	}
	w.await("the DaemonSet is as specified again", daemonSet, func(ctx context.Context) bool {
		w.nudge(cluster)
		return w.client.Get(ctx, key, daemonSet) == nil && daemonSet.Spec.Template.Spec.Containers[0].Image == "example.com/lxd-initializer:v1"
	})
}

// A host cluster that does not answer can't be told to stop: its machine must not register itself again while it is released.
func TestAHostThatCannotBeToldIsSwitchedOffBeforeItLeavesMAAS(t *testing.T) {
	w, cluster := hostWorld(t)
	a := w.newMachine("host-a", true, infrav1.MaasMachineSpec{FailureDomain: "zone-a", StaticIP: "10.77.0.11"})
	w.deployed(a)
	node := w.joined(a)
	w.saysOnNode(node, corev1.ConditionTrue, "Registered", "")
	w.registers(node, "10.77.0.11:8443")
	before := node.DeepCopy()
	node.Annotations = map[string]string{infrav1.LXDHostRetireAnnotation: time.Now().Add(-2 * retireTimeout).UTC().Format(time.RFC3339)}
	if err := w.client.Patch(t.Context(), node, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	w.maas.ResetCalls()
	if err := w.client.Delete(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	w.await("host-a is gone", a, func(ctx context.Context) bool {
		w.nudge(a)
		return w.client.Get(ctx, client.ObjectKeyFromObject(a), &infrav1.MaasMachine{}) != nil
	})
	var order []string
	for _, call := range w.maas.Calls().Log {
		switch {
		case call.Op == "power_off" || call.Op == "release":
			order = append(order, call.Op)
		case call.Method == "DELETE" && strings.HasPrefix(call.Endpoint, "vm-hosts/"):
			order = append(order, "remove host")
		}
	}
	if diff := cmp.Diff([]string{"power_off", "remove host", "release"}, order); diff != "" {
		t.Errorf("what was asked of MAAS (-want +got):\n%s", diff)
	}
	w.deleteCluster(cluster)
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
		"the host cluster does not answer": {
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

// The initializers need the cluster's API, which goes with its machines.
func TestMachinesOfADeletedHostClusterGoTogether(t *testing.T) {
	w, cluster := hostWorld(t)
	type host struct {
		machine *infrav1.MaasMachine
		node    *corev1.Node
		vmHost  maas.VMHost
	}
	var hosts []host
	for _, h := range []struct{ name, zone, address string }{{"host-a", "zone-a", "10.77.0.11"}, {"host-b", "zone-b", "10.77.0.12"}} {
		m := w.newMachine(h.name, true, infrav1.MaasMachineSpec{FailureDomain: h.zone, StaticIP: h.address})
		w.deployed(m)
		node := w.joined(m)
		w.saysOnNode(node, corev1.ConditionTrue, "Registered", "")
		hosts = append(hosts, host{m, node, w.registers(node, h.address+":8443")})
	}
	w.lxdReady(cluster, metav1.ConditionTrue, infrav1.ReadyReason)
	vm, err := w.maasClient().Compose(t.Context(), hosts[1].vmHost.ID, maas.ComposeParams{Hostname: "theirs", Cores: 1, Memory: 2048, ZoneID: 1, SkipCommissioning: true})
	if err != nil {
		t.Fatal(err)
	}
	before := w.cluster.DeepCopy()
	w.cluster.Finalizers = []string{"test/hold"}
	if err := w.client.Patch(t.Context(), w.cluster, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	for _, object := range []client.Object{w.cluster, hosts[0].machine, hosts[1].machine} {
		if err := w.client.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
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
	if err := w.maasClient().DeleteMachine(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	w.saysOnNode(hosts[1].node, corev1.ConditionFalse, infrav1.LXDHostRetiredReason, "")
	for _, h := range hosts {
		w.await(h.machine.Name+" is gone", h.machine, func(ctx context.Context) bool {
			w.nudge(h.machine)
			return w.client.Get(ctx, client.ObjectKeyFromObject(h.machine), &infrav1.MaasMachine{}) != nil
		})
	}
	w.delete(cluster)
	released := w.cluster.DeepCopy()
	w.cluster.Finalizers = nil
	if err := w.client.Patch(t.Context(), w.cluster, client.MergeFrom(released)); err != nil {
		t.Fatal(err)
	}
}
