// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/rights"
	"github.com/capmaas/cluster-api-provider-maas/test/ledger"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/directhost"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// withLeastKey is a MAAS that has entitlements, all machines in the pool capi, and a user with just those that uses need
// there.
func withLeastKey(version string, uses ...rights.Use) func(*world) {
	return func(w *world) {
		w.version = version
		var given []string
		for _, use := range uses {
			for _, n := range use.Needs {
				pool := ""
				if n.InPool {
					pool = ", pool: capi"
				}
				given = append(given, fmt.Sprintf("{name: %s%s}", n.Entitlement, pool))
			}
		}
		w.region = strings.NewReplacer(
			"users: [", `users: [{name: joe, keys: ["`+plainUser+`"], entitlements: [`+strings.Join(given, ", ")+`]}, `,
			"domains:", "pools: [{name: capi}, {name: others}]\ndomains:",
			", cores:", ", pool: capi, cores:",
		).Replace(w.region)
	}
}

// nothingForbidden checks that MAAS has refused nothing because the key's user may not do it.
func (w *world) nothingForbidden() {
	w.t.Helper()
	for _, call := range ledger.Forbidden(w.maas.Calls().Log, "joe") {
		w.t.Errorf("%s %s %s is forbidden", call.Method, call.Path, call.Op)
	}
}

// A machine's whole life goes with a key that has just the entitlements that rights.Uses has for what it needs, in one
// resource pool.
func TestLivesWithTheLeastKey(t *testing.T) {
	t.Parallel()
	outside := []func(*infrav1.MaasCluster){withoutDomain, external("api.example.com")}
	withHosts, both := []string{"3.8"}, []string{"3.8", "4.0"}
	for name, tt := range map[string]struct {
		versions []string
		uses     []rights.Use
		cluster  []func(*infrav1.MaasCluster)
		spec     infrav1.MaasMachineSpec
	}{
		"bare metal":       {both, []rights.Use{rights.BareMetal}, outside, infrav1.MaasMachineSpec{ResourcePool: "capi"}},
		"of any pool":      {both, []rights.Use{rights.BareMetal}, outside, infrav1.MaasMachineSpec{}},
		"a virtual IP":     {both, []rights.Use{rights.BareMetal, rights.VirtualIP}, []func(*infrav1.MaasCluster){at(virtualIP)}, infrav1.MaasMachineSpec{ResourcePool: "capi"}},
		"a name":           {both, []rights.Use{rights.BareMetal, rights.DNSEndpoint}, nil, infrav1.MaasMachineSpec{ResourcePool: "capi"}},
		"a static address": {both, []rights.Use{rights.BareMetal, rights.StaticAddresses}, outside, infrav1.MaasMachineSpec{StaticIP: "10.77.0.61"}},
		"a bond":           {both, []rights.Use{rights.BareMetal, rights.Interfaces}, outside, infrav1.MaasMachineSpec{Interfaces: bonded}},
		"a bond, noted":    {both, []rights.Use{rights.BareMetal, rights.Interfaces, rights.Tags}, outside, infrav1.MaasMachineSpec{Interfaces: bonded}},
		"a storage layout": {both, []rights.Use{rights.BareMetal, rights.Storage}, outside, infrav1.MaasMachineSpec{
			Storage: &infrav1.MachineStorage{Layout: "lvm"},
		}},
		"a VM":                       {withHosts, []rights.Use{rights.VMs}, outside, vm},
		"a VM with a static address": {withHosts, []rights.Use{rights.VMs, rights.StaticAddresses}, outside, withSpec(vm, func(s *infrav1.MaasMachineSpec) { s.StaticIP = "10.77.0.61" })},
	} {
		for _, version := range tt.versions {
			t.Run(version+": "+name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, withLeastKey(version, tt.uses...))
				w.setKey(plainUser)
				before := w.maas.State()
				cluster := w.provisionedCluster(tt.cluster...)
				m := w.deployedMachine("cp-0", true, tt.spec)
				w.delete(m)
				w.deleteCluster(cluster)
				w.unchanged(before)
				w.nothingForbidden()
			})
		}
	}
}

// A VM on an LXDHost needs no entitlement: MAAS has a device for it, of the user.
func TestAVMOnAnLXDHostWithTheLeastKey(t *testing.T) {
	t.Parallel()
	server := directhost.Start(t)
	w := newWorld(t, withLXDHosts, withLeastKey("4.0"))
	w.setKey(plainUser)
	w.addLXDHost(server, "host-a", "zone-a")
	w.provisionedCluster(withoutDomain, external("api.example.com"))
	before := w.maas.State()
	m := w.deployedMachine("cp-0", true, withSpec(vm, func(s *infrav1.MaasMachineSpec) { s.StaticIP = "10.77.0.50" }))
	w.delete(m)
	w.unchanged(before)
	w.nothingForbidden()
}

// A node of a host cluster gets its bridge with a key that has just the entitlements for that. Without, a machine that has
// the bridge will do, and what is missing of any other is named.
func TestTheBridgeOfAHostWithTheLeastKey(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		uses         []rights.Use
		has, refused bool
	}{
		"may make it": {uses: []rights.Use{rights.BareMetal, rights.HostBridge}},
		"may not":     {uses: []rights.Use{rights.BareMetal}, refused: true},
		"has it":      {uses: []rights.Use{rights.BareMetal}, has: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, withLeastKey("3.8", tt.uses...))
			metal := slices.DeleteFunc(w.maas.Machines(), func(m simulator.MachineSnapshot) bool { return m.Status != "Ready" })
			for _, m := range metal {
				if tt.has {
					w.makeBridge(m, "br0")
				}
			}
			w.setKey(plainUser)
			hosts := func(c *infrav1.MaasCluster) { c.Spec.LXDControlPlaneCluster = true }
			w.provisionedCluster(withoutDomain, external("api.example.com"), hosts)
			m := w.newMachine("host-0", false, infrav1.MaasMachineSpec{ResourcePool: "capi"})
			if tt.refused {
				w.refusedWith(m, infrav1.EntitlementMissingReason, "br0", "can_edit_machines", "capi")
				return
			}
			w.deployed(m)
			w.nothingForbidden()
		})
	}
}

// What MAAS forbids the key's user is named, with the entitlement. What only reads show is before a machine is taken.
func TestAMissingEntitlementIsNamed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		spec   infrav1.MaasMachineSpec
		reason string // "": EntitlementMissing
		words  []string
		taken  bool
	}{
		"a VM":             {spec: vm, words: []string{"(vms)", "can_edit_machines", "capi"}},
		"an address":       {spec: infrav1.MaasMachineSpec{StaticIP: "10.77.0.61"}, words: []string{"static-addresses", "can_view_global_entities"}},
		"a bond":           {spec: infrav1.MaasMachineSpec{ResourcePool: "capi", Interfaces: bonded}, words: []string{"can_edit_machines", "capi"}, taken: true},
		"a storage layout": {spec: infrav1.MaasMachineSpec{Storage: &infrav1.MachineStorage{Layout: "lvm"}}, words: []string{"(storage)", "can_edit_machines", "unlock"}, taken: true},
		"another pool":     {spec: infrav1.MaasMachineSpec{ResourcePool: "others"}, reason: infrav1.NoMachineAvailableReason},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			uses := []rights.Use{rights.BareMetal}
			if tt.taken {
				uses = append(uses, rights.VirtualIP) // It sees the network.
			}
			w := newWorld(t, withLeastKey("3.8", uses...))
			w.setKey(plainUser)
			w.provisionedCluster(withoutDomain, external("api.example.com"))
			m := w.newMachine("m-0", false, tt.spec)
			w.refusedWith(m, cmp.Or(tt.reason, infrav1.EntitlementMissingReason), tt.words...)
			if n := w.acquiredMachines(); n != 0 && !tt.taken {
				t.Errorf("%d machines are taken", n)
			}
			w.delete(m)
			if n := w.acquiredMachines(); n != 0 {
				t.Errorf("%d machines are not given back", n)
			}
		})
	}
}

// What a cluster's endpoint lacks is named. A virtual IP is reserved before any machine is made; a name is written once the
// first control plane has an address.
func TestAClusterNeedsTheEntitlementForItsEndpoint(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change       func(*infrav1.MaasCluster)
		controlPlane bool
		word         string
	}{
		"a name":       {func(*infrav1.MaasCluster) {}, true, "can_edit_global_entities"},
		"a virtual IP": {at(virtualIP), false, "can_view_global_entities"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			uses := []rights.Use{rights.BareMetal}
			if tt.controlPlane {
				uses = append(uses, rights.VirtualIP) // It sees the domains.
			}
			w := newWorld(t, withLeastKey("3.8", uses...))
			w.setKey(plainUser)
			before := w.maas.State()
			cluster := w.newCluster(tt.change)
			if !tt.controlPlane {
				w.refusedEndpoint(cluster, infrav1.EntitlementMissingReason, tt.word)
				w.unchanged(before)
				return
			}
			w.provisioned(cluster)
			w.newMachine("cp-0", true, infrav1.MaasMachineSpec{})
			w.eventually(cluster, "refused", func() bool {
				c := conditions.Get(cluster, infrav1.DNSReadyCondition)
				return c != nil && c.Reason == infrav1.EntitlementMissingReason && strings.Contains(c.Message, tt.word)
			})
		})
	}
}

// MAAS tells how it switches its machines to who may edit all of them. The cluster's key may be one of less, the nodes' is none.
func TestAHostIsReleasedWithTheLeastKey(t *testing.T) {
	t.Parallel()
	least := withLeastKey("4.0", rights.BareMetal, rights.HostBridge, rights.DNSEndpoint)
	w, cluster := hostWorld(t, withoutVMHosts, least)
	w.setKey(plainUser)
	m := w.newMachine("host-a", true, infrav1.MaasMachineSpec{FailureDomain: "zone-a"})
	w.deployed(m)
	w.saysOnNode(w.joined(m), corev1.ConditionFalse, "LXDNotReady", "there is no bridge br0")
	nodes := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "nodes", Namespace: w.namespace}}
	key := func(key string) {
		w.patch(nodes, func() { nodes.Data["apiKey"] = []byte(key) })
	}
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(nodes), nodes); err != nil {
		t.Fatal(err)
	}
	key(plainUser)
	if err := w.client.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	w.refusedWith(m, infrav1.EntitlementMissingReason, "can_edit_machines", "registration")
	key("nodes:token:secret")
	w.retires(m)
	w.deleteCluster(cluster)
}
