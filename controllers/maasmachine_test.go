// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

var vm = infrav1.MaasMachineSpec{ProvisioningMode: infrav1.ProvisioningModeLXD}

func withSpec(spec infrav1.MaasMachineSpec, change func(*infrav1.MaasMachineSpec)) infrav1.MaasMachineSpec {
	change(&spec)
	return spec
}

// deployed waits until a machine is ready for Cluster API.
func (w *world) deployed(m *infrav1.MaasMachine) {
	w.t.Helper()
	w.eventually(m, "deployed", func() bool { return runs(m) })
}

// runs reports whether a machine is deployed, and its status says so with its addresses: the conditions are stored in a
// patch of their own, before the rest.
func runs(m *infrav1.MaasMachine) bool {
	return ptr.Deref(m.Status.Initialization.Provisioned, false) && conditions.IsTrue(m, infrav1.MachineDeployedCondition)
}

// refused waits until a condition is false with a reason.
func (w *world) refused(m *infrav1.MaasMachine, condition, reason string) {
	w.t.Helper()
	w.eventually(m, condition+" "+reason, func() bool {
		c := conditions.Get(m, condition)
		return c != nil && c.Status == metav1.ConditionFalse && c.Reason == reason
	})
}

// callsFor returns the calls to MAAS for machines, without the inventory's shared polls (lists by id), the calls for the
// whole region, and those for a cluster's DNS record, which come at any time. A read that is repeated is there once: on a
// slow computer a reconcile that met a conflict reads again what it has to prove.
func (w *world) callsFor() []string {
	var calls []string
	read := map[string]bool{}
	for _, call := range w.maas.Calls().Log {
		what := call.Path + "?" + call.Query
		if call.User != "admin" || (call.Method == http.MethodGet && read[what]) {
			continue
		}
		read[what] = read[what] || call.Method == http.MethodGet
		ofAll := call.Endpoint == "machines/" || call.Endpoint == "devices/"
		shared := ofAll && call.Method == http.MethodGet && strings.HasPrefix(call.Query, "id=")
		if call.SystemID != "" || (strings.HasPrefix(call.Endpoint, "devices/") || ofAll) && !shared {
			calls = append(calls, fmt.Sprintf("%s %s %s", call.Method, call.Endpoint, call.Op))
		}
	}
	return calls
}

func TestLifeOfAVM(t *testing.T) {
	t.Parallel()
	w, cluster := clusterWorld(t)
	before := w.maas.State()

	m := w.deployedMachine("cp-0", true, withSpec(vm, func(s *infrav1.MaasMachineSpec) { s.StaticIP = "10.77.0.50" }))

	t.Run("status for Cluster API and people", func(t *testing.T) {
		w.eventually(m, "in DNS", func() bool { return m.Status.DNSAttached && m.Status.Ready })
		if want := fmt.Sprintf("maas-lxd://%s/%s", m.Status.FailureDomain, m.Spec.SystemID); m.Spec.ProviderID != want {
			t.Errorf("the provider ID is %s, want %s", m.Spec.ProviderID, want)
		}
		want := []clusterv1.MachineAddress{
			{Type: clusterv1.MachineInternalIP, Address: "10.77.0.50"},
			{Type: clusterv1.MachineHostName, Address: m.Status.Hostname},
			{Type: clusterv1.MachineInternalDNS, Address: m.Status.Hostname + ".maas.sim"},
		}
		if diff := cmp.Diff(want, m.Status.Addresses); diff != "" {
			t.Errorf("the addresses differ (-want +got):\n%s", diff)
		}
		for _, condition := range []string{infrav1.LXDHostSelectedCondition, infrav1.LXDResourcesAllocatedCondition, infrav1.LXDVMCreatedCondition, infrav1.LXDVMDeployedCondition} {
			if !conditions.IsTrue(m, condition) {
				t.Errorf("%s is %+v", condition, conditions.Get(m, condition))
			}
		}
		if got := w.endpoint(cluster); !slices.Equal(got, []string{"10.77.0.50"}) {
			t.Errorf("the endpoint leads to %v", got)
		}
	})
	t.Run("the user data arrive", func(t *testing.T) {
		seen, ok := w.maas.Machine(m.Spec.SystemID)
		if !ok || string(seen.UserData) != "#cloud-config\n# cp-0" {
			t.Errorf("MAAS got the user data %q", seen.UserData)
		}
	})
	t.Run("a Node with another provider ID is not its own", func(t *testing.T) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.Status.Hostname}, Spec: corev1.NodeSpec{ProviderID: "rke2://" + m.Status.Hostname}}
		w.must(w.workload.Create(t.Context(), node))
		w.poke(m)
		w.eventsOf(m, infrav1.ProviderIDDiffersReason, node.Spec.ProviderID, m.Spec.ProviderID)
		w.stored(m)
		if m.Status.NodeName != "" {
			t.Errorf("it is known by the Node %s", m.Status.NodeName)
		}
		w.must(w.workload.Delete(t.Context(), node))
	})
	t.Run("no two Nodes get one provider ID", func(t *testing.T) {
		other := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: corev1.NodeSpec{ProviderID: m.Spec.ProviderID}}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.Status.Hostname}}
		w.must(w.workload.Create(t.Context(), other))
		w.must(w.workload.Create(t.Context(), node))
		w.poke(m)
		w.eventsOf(m, infrav1.ProviderIDTakenReason, "Node other ", m.Spec.ProviderID)
		w.must(w.workload.Get(t.Context(), client.ObjectKeyFromObject(node), node))
		if node.Spec.ProviderID != "" {
			t.Errorf("the Node has the provider ID %s, which another Node has", node.Spec.ProviderID)
		}
		w.must(w.workload.Delete(t.Context(), other))
		w.must(w.workload.Delete(t.Context(), node))
	})
	t.Run("the Node gets its provider ID", func(t *testing.T) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.Status.Hostname}}
		w.must(w.workload.Create(t.Context(), node))
		w.poke(m)
		w.eventuallyWorkload(node, func() bool { return node.Spec.ProviderID == m.Spec.ProviderID })
		if node.Labels[corev1.LabelTopologyZone] != m.Status.FailureDomain || node.Labels[infrav1.HostLabel] != m.Status.LXDHost {
			t.Errorf("the Node of a machine in %s on %s is labelled %v", m.Status.FailureDomain, m.Status.LXDHost, node.Labels)
		}
		w.eventually(m, "known by its Node", func() bool { return m.Status.NodeName == node.Name })
	})
	t.Run("deletion leaves nothing", func(t *testing.T) {
		w.delete(m)
		w.deleteCluster(cluster)
		w.unchanged(before)
	})
}

// TestLostResponsesInTheLifeOfAMachine cuts the connection at the first call of each kind in a machine's life, before and
// after the call took effect. In each case one machine is acquired, and none is left behind.
func TestLostResponsesInTheLifeOfAMachine(t *testing.T) {
	t.Parallel()
	kinds := map[string]infrav1.MaasMachineSpec{
		"VM":         withSpec(vm, func(s *infrav1.MaasMachineSpec) { s.StaticIP = "10.77.0.50" }),
		"bare metal": {StaticIP: "10.77.0.51"},
		"bare metal with a bond": {StaticIP: "10.77.0.51", Interfaces: []infrav1.MachineInterface{
			{Name: "bond0", Type: infrav1.InterfaceTypeBond, Parents: []string{"enp1s0"}, MTU: 9000},
			{Name: "br0", Type: infrav1.InterfaceTypeBridge, Parents: []string{"bond0"}, LinkMode: infrav1.LinkModeStatic},
		}},
		"bare metal with storage": withSpec(shaped("lvm", nil, nil), func(s *infrav1.MaasMachineSpec) { s.StaticIP = "10.77.0.52" }),
	}
	for kind, spec := range kinds {
		for _, phase := range []simulator.Phase{simulator.Before, simulator.After} {
			t.Run(fmt.Sprintf("%s %v", kind, phase), func(t *testing.T) {
				t.Parallel()
				w, cluster := clusterWorld(t)
				before := w.maas.State()
				lost := w.loseEachCallOnce(phase)
				m := w.deployedMachine("m", true, spec)
				w.eventually(m, "in DNS", func() bool { return m.Status.DNSAttached })
				if n := w.acquiredMachines(); n != 1 {
					t.Errorf("%d machines were acquired:\n%s", n, w.machines())
				}
				w.delete(m)
				w.deleteCluster(cluster)
				w.maas.SetHook(nil)
				w.unchanged(before)
				if calls := lost(); !slices.Contains(calls, "POST dnsresources/ ") {
					t.Errorf("the DNS write was not lost: %v", calls)
				}
			})
		}
	}
}

// loseEachCallOnce drops the connection of the first call of each kind.
func (w *world) loseEachCallOnce(phase simulator.Phase) (lost func() []string) {
	var mu sync.Mutex
	var calls []string
	w.maas.SetHook(func(call simulator.Call, at simulator.Phase) error {
		name := fmt.Sprintf("%s %s %s", call.Method, call.Endpoint, call.Op)
		mu.Lock()
		defer mu.Unlock()
		if at != phase || slices.Contains(calls, name) {
			return nil
		}
		calls = append(calls, name)
		return errors.New("lost")
	})
	return func() []string { mu.Lock(); defer mu.Unlock(); return slices.Clone(calls) }
}

func (w *world) acquiredMachines() int {
	n := 0
	for _, m := range w.maas.Machines() {
		if strings.HasPrefix(m.AgentName, "capmaas/") {
			n++
		}
	}
	return n
}

func TestMaasMachinesThatCannotBePlacedAreRefused(t *testing.T) {
	t.Parallel()
	bond := []infrav1.MachineInterface{{Name: "bond0", Type: infrav1.InterfaceTypeBond, Parents: []string{"enp1s0"}, Subnet: "10.99.0.0/24", LinkMode: infrav1.LinkModeAuto}}
	w := newWorld(t)
	w.maasCall(http.MethodPost, "ipaddresses/?op=reserve", url.Values{"ip": {"10.77.0.121"}, "subnet": {"10.77.0.0/24"}})
	w.provisionedCluster()
	before, machines := w.maas.State(), map[string]*infrav1.MaasMachine{}
	var refusals []func()
	for name, tc := range map[string]struct {
		spec              infrav1.MaasMachineSpec
		condition, reason string
		words             []string
	}{
		"no machine fits":          {infrav1.MaasMachineSpec{MinCPU: 64}, infrav1.MachineDeployedCondition, infrav1.NoMachineAvailableReason, []string{"2 with less than 64 cores of CPU (spec.minCPU)"}},
		"no host fits":             {withSpec(vm, func(s *infrav1.MaasMachineSpec) { s.MinCPU = 64 }), infrav1.LXDHostSelectedCondition, infrav1.NoHostAvailableReason, []string{"3 host(s): 3 too small for the VM"}},
		"no host in the zone":      {withSpec(vm, func(s *infrav1.MaasMachineSpec) { s.FailureDomain = "default" }), infrav1.LXDHostSelectedCondition, infrav1.NoHostAvailableReason, []string{"not in zone default"}},
		"a profile":                {withSpec(vm, func(s *infrav1.MaasMachineSpec) { s.LXDConfig = &infrav1.LXDMachineConfig{Profile: "fast"} }), infrav1.LXDHostSelectedCondition, infrav1.ProfileNotFoundReason, []string{"maas"}},
		"a project":                {withSpec(vm, func(s *infrav1.MaasMachineSpec) { s.LXDConfig = &infrav1.LXDMachineConfig{Project: "other"} }), infrav1.LXDHostSelectedCondition, infrav1.NoHostAvailableReason, []string{"other"}},
		"an address in no subnet":  {withSpec(vm, func(s *infrav1.MaasMachineSpec) { s.StaticIP = "192.168.9.9" }), infrav1.LXDHostSelectedCondition, infrav1.StaticIPOutsideSubnetsReason, []string{"192.168.9.9"}},
		"an address given by DHCP": {withSpec(vm, func(s *infrav1.MaasMachineSpec) { s.StaticIP = "10.77.0.220" }), infrav1.LXDHostSelectedCondition, infrav1.StaticIPInDynamicRangeReason, []string{"10.77.0.200"}},
		"an address that is taken": {withSpec(vm, func(s *infrav1.MaasMachineSpec) { s.StaticIP = "10.77.0.2" }), infrav1.LXDHostSelectedCondition, infrav1.StaticIPInUseReason, []string{"10.77.0.2"}},
		"an image that MAAS lacks": {infrav1.MaasMachineSpec{Image: "ubuntu/bionic"}, infrav1.MachineDeployedCondition, infrav1.ImageNotFoundReason, []string{"ubuntu/bionic"}},
		"an image for VMs":         {withSpec(vm, func(s *infrav1.MaasMachineSpec) { s.Image = "ubuntu/bionic" }), infrav1.MachineDeployedCondition, infrav1.ImageNotFoundReason, []string{"ubuntu/bionic"}},
		"another architecture":     {infrav1.MaasMachineSpec{Architecture: "arm64"}, infrav1.MachineDeployedCondition, infrav1.ImageNotFoundReason, []string{"for amd64, not for arm64"}},
		// What MAAS would refuse only when a machine is taken:
		"an address for metal in no subnet":   {infrav1.MaasMachineSpec{StaticIP: "192.168.9.9"}, infrav1.MachineDeployedCondition, infrav1.StaticIPOutsideSubnetsReason, []string{"spec.staticIP", "192.168.9.9"}},
		"an address for metal by DHCP":        {infrav1.MaasMachineSpec{StaticIP: "10.77.0.220"}, infrav1.MachineDeployedCondition, infrav1.StaticIPInDynamicRangeReason, []string{"spec.staticIP", "10.77.0.200", "10.77.0.0/24"}},
		"an address of a machine":             {infrav1.MaasMachineSpec{StaticIP: "10.77.0.2"}, infrav1.MachineDeployedCondition, infrav1.StaticIPInUseReason, []string{"spec.staticIP", "machine"}},
		"an address that is reserved":         {infrav1.MaasMachineSpec{StaticIP: "10.77.0.121"}, infrav1.MachineDeployedCondition, infrav1.StaticIPInUseReason, []string{"spec.staticIP", "admin"}},
		"an address for VMs that is reserved": {withSpec(vm, func(s *infrav1.MaasMachineSpec) { s.StaticIP = "10.77.0.121" }), infrav1.MachineDeployedCondition, infrav1.StaticIPInUseReason, []string{"spec.staticIP"}},
		"a subnet of an interface":            {infrav1.MaasMachineSpec{Interfaces: bond}, infrav1.MachineDeployedCondition, infrav1.NetworkDeviceInvalidReason, []string{"bond0", "10.99.0.0/24"}},
		"a pool":                              {infrav1.MaasMachineSpec{ResourcePool: "cappi"}, infrav1.MachineDeployedCondition, infrav1.ResourcePoolNotFoundReason, []string{"spec.resourcePool", "cappi", "default"}},
		"a zone":                              {infrav1.MaasMachineSpec{FailureDomain: "zone-x"}, infrav1.MachineDeployedCondition, infrav1.ZonesNotFoundReason, []string{"zone-x", "zone-a"}},
		"a tag":                               {infrav1.MaasMachineSpec{Tags: []string{"fast"}}, infrav1.MachineDeployedCondition, infrav1.TagNotFoundReason, []string{"spec.tags", "fast"}},
	} {
		machines[name] = w.newMachine(strings.ToLower(strings.ReplaceAll(name, " ", "-")), false, tc.spec)
		refusals = append(refusals, func() {
			m := machines[name]
			w.refused(m, tc.condition, tc.reason)
			for _, word := range tc.words {
				if got := conditions.GetMessage(m, tc.condition); !strings.Contains(got, word) || strings.Contains(got, "\n") {
					t.Errorf("%s: the message is %q, want one line that contains %q", name, got, word)
				}
			}
			w.refused(m, infrav1.ReadyCondition, tc.reason)
		})
	}
	for _, check := range refusals {
		check()
	}
	for _, call := range w.maas.Calls().Log {
		if call.Op == "compose" || call.Op == "allocate" && call.Status == http.StatusOK { // MAAS says that none has so many cores.
			t.Errorf("a machine was taken: %+v", call)
		}
	}
	for _, m := range machines {
		w.beginDeletion(m)
	}
	for _, m := range machines {
		w.goes(m)
	}
	w.unchanged(before)
}

func TestAMachineThatAnotherUserTakesIsLeftAlone(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t)

	t.Run("another user's machine is not changed, though pinned", func(t *testing.T) {
		theirs := w.maas.Machines()[0]
		for _, m := range w.maas.Machines() {
			if m.Hostname == "metal-a" {
				theirs = m
			}
		}
		w.allocateAs("somebody", theirs.SystemID)
		m := w.newMachine("pinned", false, infrav1.MaasMachineSpec{SystemID: theirs.SystemID})
		w.refused(m, infrav1.MachineDeployedCondition, infrav1.MachineNotOursReason)
		w.delete(m)
		if now, _ := w.maas.Machine(theirs.SystemID); now.Status != "Allocated" || now.AgentName != "somebody" {
			t.Errorf("another user's machine is now %+v", now)
		}
	})
	t.Run("a VM that vanished is a failure, and its deletion ends", func(t *testing.T) {
		m := w.deployedMachine("vanished", false, vm)
		w.maas.BreakVMHost(m.Status.LXDHost, false, true) // The host keeps it.
		w.maasCall(http.MethodDelete, "machines/"+m.Spec.SystemID+"/", nil)
		w.refused(m, infrav1.MachineDeployedCondition, infrav1.MachineMissingReason)
		w.eventually(m, "failed", func() bool { return m.Status.FailureReason == infrav1.MachineMissingReason })
		w.maas.BreakVMHost(m.Status.LXDHost, false, false)
		w.delete(m)
		w.noVMs()
	})
	t.Run("a VM that its host lost is a failure, and its deletion ends, whether MAAS noticed or not", func(t *testing.T) {
		for _, noticed := range []bool{true, false} {
			m := w.deployedMachine(fmt.Sprintf("lost-%t", noticed), false, vm)
			if !w.maas.DeleteVM(m.Status.LXDHost, m.Status.Hostname) {
				t.Fatalf("there is no VM %s on %s", m.Status.Hostname, m.Status.LXDHost)
			}
			if noticed {
				w.lookAtHosts()
				w.refused(m, infrav1.MachineDeployedCondition, infrav1.MachineMissingReason)
			}
			w.delete(m)
		}
	})
	t.Run("a machine that is renamed and moved stays what it is", func(t *testing.T) {
		for kind, spec := range map[string]infrav1.MaasMachineSpec{"vm": vm, "metal": {}} {
			m := w.deployedMachine("moved-"+kind, false, spec)
			is := m.Spec.ProviderID
			w.maasCall(http.MethodPut, "machines/"+m.Spec.SystemID+"/", url.Values{"hostname": {"renamed-" + kind}, "zone": {"default"}})
			w.eventually(m, "known as MAAS has it now", func() bool {
				return m.Status.Hostname == "renamed-"+kind && m.Status.FailureDomain == "default" && m.Status.Ready
			})
			if m.Spec.ProviderID != is {
				t.Errorf("the provider ID was %s, and is %s", is, m.Spec.ProviderID)
			}
			w.delete(m)
		}
	})
	t.Run("a machine that lost its power is told, and told to be well again", func(t *testing.T) {
		m := w.deployedMachine("off", false, vm)
		w.maasCall(http.MethodPost, "machines/"+m.Spec.SystemID+"/?op=power_off", nil)
		w.refused(m, infrav1.MachineDeployedCondition, infrav1.PoweredOffReason)
		w.maasCall(http.MethodPost, "machines/"+m.Spec.SystemID+"/?op=power_on", nil)
		w.eventually(m, "well", func() bool { return m.Status.Ready })
		w.delete(m)
	})
}

func TestPausedAndUnownedMaasMachinesAreLeftAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cluster := w.newCluster(func(c *infrav1.MaasCluster) { c.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} })
	w.eventually(cluster, "paused", func() bool { return conditions.IsTrue(cluster, clusterv1.PausedCondition) })
	if calls := w.maas.Calls().Total; calls != 0 || len(cluster.Finalizers) != 0 {
		t.Errorf("a paused cluster cost %d calls and has the finalizers %v", calls, cluster.Finalizers)
	}
	w.patch(cluster, func() { cluster.Annotations = nil })
	w.provisioned(cluster)
}

// A machine with our VM's name that is no VM was made by another client: it is neither used nor deleted. The VM is made when
// the name is free.
func TestAMachineWithTheNameOfAVMIsNotAdopted(t *testing.T) {
	t.Parallel()
	w, cluster := clusterWorld(t)
	name := maas.Hostname("m", cluster.Annotations[infrav1.OwnerIDAnnotation])
	w.maasCall(http.MethodPost, "machines/", url.Values{
		"hostname": {name}, "architecture": {"amd64/generic"}, "mac_addresses": {"52:54:00:00:00:01"}, "power_type": {"manual"}, "commission": {"false"},
	})
	before, theirs := w.maas.State(), "machines/"+w.named(name)+"/"
	m := w.newMachine("m", false, vm)
	w.refused(m, infrav1.MachineDeployedCondition, infrav1.MachineNotOursReason)
	w.maasCall(http.MethodPut, theirs, url.Values{"hostname": {"theirs"}})
	w.deployed(m)
	w.delete(m)
	w.maasCall(http.MethodPut, theirs, url.Values{"hostname": {name}})
	w.unchanged(before)
}

// Without its MaasCluster nothing is known of a machine; it may well run, and is neither changed nor reported as lost.
func TestAMachineWhoseMaasClusterIsGone(t *testing.T) {
	t.Parallel()
	w, cluster := clusterWorld(t)
	m := w.deployedMachine("m", false, vm)
	w.beginDeletion(cluster)
	forced := &infrav1.MaasCluster{ObjectMeta: metav1.ObjectMeta{Name: cluster.Name, Namespace: cluster.Namespace}}
	w.must(w.client.Patch(t.Context(), forced, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
	w.poke(m)
	w.eventually(m, "unknown", func() bool {
		return conditions.IsUnknown(m, infrav1.MachineDeployedCondition) && conditions.IsUnknown(m, infrav1.ReadyCondition)
	})
	if seen, ok := w.maas.Machine(m.Spec.SystemID); !ok || seen.Status != "Deployed" {
		t.Errorf("MAAS has %+v", seen)
	}
}
