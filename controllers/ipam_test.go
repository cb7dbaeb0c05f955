// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/ipam"
)

// servePools runs an IPAM provider for the test's namespace, until the test ends or stop is called.
func (w *world) servePools() (stop func()) {
	w.t.Helper()
	provider, err := ipam.Start(w.t.Context(), apiConfig, w.namespace)
	if err != nil {
		w.t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		if err := provider.Stop(); err != nil {
			w.t.Error(err)
		}
	})
	w.t.Cleanup(stop)
	return stop
}

// fromPool returns a spec with an address from a pool.
func fromPool(spec infrav1.MaasMachineSpec, pool string) infrav1.MaasMachineSpec {
	return withSpec(spec, func(s *infrav1.MaasMachineSpec) { ref := ipam.Ref(pool); s.StaticIPPoolRef = &ref })
}

func (w *world) claim(m *infrav1.MaasMachine) *ipamv1.IPAddressClaim {
	w.t.Helper()
	claim := &ipamv1.IPAddressClaim{}
	w.must(w.client.Get(w.t.Context(), client.ObjectKeyFromObject(m), claim))
	return claim
}

// addressesOf returns a machine's addresses in MAAS.
func (w *world) addressesOf(m *infrav1.MaasMachine) []string {
	w.t.Helper()
	seen, ok := w.maas.Machine(m.Spec.SystemID)
	if !ok {
		w.t.Fatalf("MAAS has no machine %s", m.Spec.SystemID)
	}
	var list []string
	for _, address := range seen.Addresses {
		list = append(list, address.String())
	}
	return list
}

func internalIPs(m *infrav1.MaasMachine) []string {
	var list []string
	for _, address := range m.Status.Addresses {
		if address.Type == clusterv1.MachineInternalIP {
			list = append(list, address.Address)
		}
	}
	return list
}

// Each machine gets an address of its own; one that finds the pool exhausted acquires no machine, and gets the next
// address that is returned.
func TestAddressesFromAPool(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.servePools()
	cluster := w.provisionedCluster()
	before := w.maas.State()
	w.create(ipam.NewPool(w.namespace, "pool", "10.77.0.60", "10.77.0.61"))

	virtual, metal := w.newMachine("m-vm", true, fromPool(vm, "pool")), w.newMachine("m-metal", false, fromPool(infrav1.MaasMachineSpec{}, "pool"))
	var given []string
	for _, m := range []*infrav1.MaasMachine{virtual, metal} {
		w.deployed(m)
		given = append(given, m.Status.StaticIP)
		for what, got := range map[string][]string{"MAAS": w.addressesOf(m), "its status": internalIPs(m)} {
			if diff := cmp.Diff([]string{m.Status.StaticIP}, got); diff != "" {
				t.Errorf("%s has in %s (-want +got):\n%s", m.Name, what, diff)
			}
		}
		claim := w.claim(m)
		if claim.Labels[clusterv1.ClusterNameLabel] != clusterName || claim.Spec.ClusterName != clusterName || !metav1.IsControlledBy(claim, m) {
			t.Errorf("the claim is %+v", claim)
		}
		if owner := metav1.GetControllerOf(claim); owner == nil || ptr.Deref(owner.BlockOwnerDeletion, false) {
			t.Errorf("the claim's owner is %+v: deleted in the foreground, it would go after the claim", owner)
		}
	}
	slices.Sort(given)
	if diff := cmp.Diff([]string{"10.77.0.60", "10.77.0.61"}, given); diff != "" {
		t.Errorf("given addresses (-want +got):\n%s", diff)
	}

	third := w.newMachine("m-third", false, fromPool(vm, "pool"))
	w.refused(third, infrav1.LXDHostSelectedCondition, infrav1.IPAddressRefusedReason)
	if message := conditions.GetMessage(third, infrav1.LXDHostSelectedCondition); !strings.Contains(message, ipamv1.IPAddressClaimReadyPoolExhaustedReason) {
		t.Errorf("the message is %q", message)
	}
	if n := w.acquiredMachines(); n != 2 || third.Spec.SystemID != "" {
		t.Errorf("%d machines were acquired:\n%s", n, w.machines())
	}

	returned := metal.Status.StaticIP
	w.delete(metal)
	w.deployed(third)
	if diff := cmp.Diff([]string{returned}, w.addressesOf(third)); diff != "" {
		t.Errorf("the third machine has (-want +got):\n%s", diff)
	}
	w.delete(third)
	w.delete(virtual)
	w.nothingClaimed()
	w.deleteCluster(cluster)
	w.unchanged(before)
}

func (w *world) nothingClaimed() {
	w.t.Helper()
	claims, addresses := &ipamv1.IPAddressClaimList{}, &ipamv1.IPAddressList{}
	for _, list := range []client.ObjectList{claims, addresses} {
		w.must(w.client.List(w.t.Context(), list, client.InNamespace(w.namespace)))
	}
	if len(claims.Items)+len(addresses.Items) > 0 {
		w.t.Errorf("left behind: %+v, %+v", claims.Items, addresses.Items)
	}
}

// An address goes back to its pool after the machine is gone, not before.
func TestTheAddressIsReturnedLast(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]infrav1.MaasMachineSpec{"VM": vm, "bare metal": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.servePools()
			w.provisionedCluster()
			w.create(ipam.NewPool(w.namespace, "pool", "10.77.0.60"))
			m := w.deployedMachine("m", false, fromPool(spec, "pool"))

			w.maasCall(http.MethodPost, "machines/"+m.Spec.SystemID+"/?op=lock", nil)
			w.beginDeletion(m)
			w.refused(m, infrav1.MachineDeployedCondition, infrav1.MachineLockedReason)
			if claim := w.claim(m); !claim.DeletionTimestamp.IsZero() {
				t.Error("the address was returned while the machine had it")
			}
			w.maasCall(http.MethodPost, "machines/"+m.Spec.SystemID+"/?op=unlock", nil)
			w.await("the claim is gone", m, func(ctx context.Context) bool {
				claim := &ipamv1.IPAddressClaim{}
				err := w.client.Get(ctx, client.ObjectKeyFromObject(m), claim)
				if (err != nil || !claim.DeletionTimestamp.IsZero()) && w.inUse("10.77.0.60") {
					t.Error("the address was returned while MAAS had it in use")
				}
				return apierrors.IsNotFound(err)
			})
		})
	}
}

// While a pool does not accept a returned address, MAAS is not asked again: the machine may be another user's by now.
func TestAMachineThatWaitsForItsPoolCostsNoCalls(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]infrav1.MaasMachineSpec{"VM": vm, "bare metal": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			stop := w.servePools()
			w.provisionedCluster()
			w.create(ipam.NewPool(w.namespace, "pool", "10.77.0.60"))
			m := w.deployedMachine("m", false, fromPool(spec, "pool"))
			stop()
			w.beginDeletion(m)
			w.refused(m, infrav1.MachineDeployedCondition, infrav1.ReturningIPAddressReason)
			if !spec.IsLXD() {
				w.allocateAs("somebody", m.Spec.SystemID)
			}
			w.maas.ResetCalls()

			w.poke(m)
			w.servePools()
			w.goes(m)
			if calls := append(w.callsFor(), slices.Repeat([]string{"refresh"}, w.count("refresh"))...); len(calls) > 0 {
				t.Errorf("MAAS was asked again:\n%s", strings.Join(calls, "\n"))
			}
			if list := w.machines(); !spec.IsLXD() && !strings.Contains(list, `agent="somebody"`) {
				t.Errorf("another user's machine was changed:\n%s", list)
			}
			w.nothingClaimed()
		})
	}
}

func (w *world) inUse(address string) bool {
	for _, m := range w.maas.Machines() {
		for _, ip := range m.Addresses {
			if ip.String() == address {
				return true
			}
		}
	}
	return false
}

// While there is no address, the condition reports why, and no machine is acquired.
func TestWaitingForAnAddress(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must(ipam.Install(t.Context(), apiConfig))
	w.provisionedCluster()
	w.create(ipam.NewPool(w.namespace, "pool", "10.77.0.60"))
	w.create(&ipamv1.IPAddressClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "theirs", Namespace: w.namespace}, Spec: ipamv1.IPAddressClaimSpec{ClusterName: clusterName, PoolRef: ipam.Ref("pool")},
	})
	before := w.maas.State()
	unknown := fromPool(infrav1.MaasMachineSpec{}, "pool")
	unknown.StaticIPPoolRef.Kind = "NoSuchPool"

	machines := map[string]*infrav1.MaasMachine{}
	for name, tc := range map[string]struct {
		spec            infrav1.MaasMachineSpec
		reason, message string
	}{
		"unserved": {fromPool(infrav1.MaasMachineSpec{}, "pool"), infrav1.WaitingForIPAddressReason, "TestIPPool pool"},
		"unknown":  {unknown, infrav1.IPPoolKindUnknownReason, "NoSuchPool"},
		"theirs":   {fromPool(infrav1.MaasMachineSpec{}, "pool"), infrav1.IPAddressClaimNotOursReason, "IPAddressClaim theirs"},
	} {
		m := w.newMachine(name, false, tc.spec)
		w.refused(m, infrav1.MachineDeployedCondition, tc.reason)
		if got := conditions.GetMessage(m, infrav1.MachineDeployedCondition); !strings.Contains(got, tc.message) || strings.Contains(got, "\n") {
			t.Errorf("%s: the message is %q, want one line that contains %q", name, got, tc.message)
		}
		machines[name] = m
	}
	// A provider of the older contract refuses.
	unserved := machines["unserved"]
	claim := w.claim(unserved)
	refusal := fmt.Sprintf(`{"status":{"deprecated":{"v1beta1":{"conditions":[
		{"type":"Ready","status":"False","reason":"Broken","message":"the\nbackend","lastTransitionTime":%q}]}}}}`, time.Now().UTC().Format(time.RFC3339))
	w.must(w.client.Status().Patch(t.Context(), claim, client.RawPatch(types.MergePatchType, []byte(refusal))))
	w.refused(unserved, infrav1.MachineDeployedCondition, infrav1.IPAddressRefusedReason)
	if got := conditions.GetMessage(unserved, infrav1.MachineDeployedCondition); !strings.HasSuffix(got, "Broken the backend") {
		t.Errorf("the message is %q", got)
	}
	w.unchanged(before)
	for _, m := range machines {
		w.delete(m)
	}
	left := &ipamv1.IPAddressClaimList{}
	if err := w.client.List(t.Context(), left, client.InNamespace(w.namespace)); err != nil || len(left.Items) != 1 || left.Items[0].Name != "theirs" {
		t.Errorf("%v; the claims that are left: %+v, want somebody else's", err, left.Items)
	}
}

// twoNetworks is a MAAS whose VM hosts are on two VLANs.
const twoNetworks = `
users: [{name: admin, admin: true, keys: ["admin:token:secret"]}]
domains: [{name: maas.sim, default: true}]
subnets:
  - {cidr: 10.77.0.0/24, gateway: 10.77.0.1, dhcp: true, dynamic_ranges: [{start: 10.77.0.200, end: 10.77.0.254}]}
  - {cidr: 10.78.0.0/24, fabric: storage}
  - {cidr: "fd00:78::/64", fabric: storage}
  - {cidr: 203.0.113.0/24, fabric: public}
images: [{name: ubuntu/jammy}]
vm_hosts:
  - name: lxd
    cores: 8
    memory: 16384
    nics: [{name: br0}, {name: br1, subnet: 10.78.0.0/24}, {name: br2, subnet: 203.0.113.0/24}]
    storage_pools: [{name: default, type: zfs, size: 200}]
`

// Each interface is connected as specified, and each address has its type.
func TestSeveralInterfaces(t *testing.T) {
	t.Parallel()
	device := func(name, bridge, subnet string, mode infrav1.LinkMode) infrav1.LXDNetworkDevice {
		return infrav1.LXDNetworkDevice{Name: name, Bridge: bridge, Subnet: subnet, LinkMode: mode}
	}
	internal, external := clusterv1.MachineInternalIP, clusterv1.MachineExternalIP
	for name, tc := range map[string]struct {
		devices   []infrav1.LXDNetworkDevice
		staticIP  string
		preferred []string
		want      []clusterv1.MachineAddress
		most      int
	}{
		"each as MAAS chooses": {
			devices: []infrav1.LXDNetworkDevice{device("eth0", "br0", "", ""), device("eth1", "br2", "", "")},
			want:    []clusterv1.MachineAddress{{Type: internal, Address: "10.77.0.3"}, {Type: external, Address: "203.0.113.2"}}, most: 5,
		},
		"the second carries the address": {
			devices:  []infrav1.LXDNetworkDevice{device("eth0", "br0", "", infrav1.LinkModeLinkUp), device("eth1", "", "10.78.0.0/24", infrav1.LinkModeStatic)},
			staticIP: "10.78.0.9", want: []clusterv1.MachineAddress{{Type: internal, Address: "10.78.0.9"}}, most: 7,
		},
		"IPv6 beside IPv4, and preferred": {
			devices:  []infrav1.LXDNetworkDevice{device("eth0", "br0", "", ""), device("eth1", "br1", "", infrav1.LinkModeStatic)},
			staticIP: "fd00:78::9", preferred: []string{"fd00:78::/64", "10.78.0.0/24"}, most: 6,
			want: []clusterv1.MachineAddress{{Type: internal, Address: "fd00:78::9"}, {Type: internal, Address: "10.78.0.2"}, {Type: internal, Address: "10.77.0.3"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(w *world) { w.region = twoNetworks })
			cluster := w.provisionedCluster(func(c *infrav1.MaasCluster) { c.Spec.PreferredSubnets = tc.preferred })
			before := w.maas.State()
			w.maas.ResetCalls()
			m := w.newMachine("m", true, withSpec(vm, func(s *infrav1.MaasMachineSpec) {
				s.StaticIP, s.LXDConfig = tc.staticIP, &infrav1.LXDMachineConfig{Network: infrav1.LXDNetwork{Devices: tc.devices}}
			}))
			w.deployed(m)
			w.eventually(m, "in DNS", func() bool { return m.Status.DNSAttached })
			if calls := w.callsFor(); len(calls) > tc.most {
				t.Errorf("%d calls to make a VM:\n%s", len(calls), strings.Join(calls, "\n"))
			}
			got := slices.DeleteFunc(slices.Clone(m.Status.Addresses), func(a clusterv1.MachineAddress) bool { return a.Type != internal && a.Type != external })
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("the addresses differ (-want +got):\n%s", diff)
			}
			if got := w.endpoint(cluster); !slices.Equal(got, []string{tc.want[0].Address}) {
				t.Errorf("the endpoint leads to %v, want %s", got, tc.want[0].Address)
			}
			w.delete(m)
			w.deleteCluster(cluster)
			w.unchanged(before)
		})
	}
}
