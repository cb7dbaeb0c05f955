// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/test/refused"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/directhost"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// addLXDHost makes an LXDHost of a real LXD.
func (w *world) addLXDHost(server *directhost.Host, name, zone string, change ...func(*infrav1.LXDHost)) *infrav1.LXDHost {
	w.t.Helper()
	host, secret := server.Objects(client.ObjectKey{Namespace: w.namespace, Name: name}, zone)
	host.Spec.MAASCredentialsRef = &infrav1.LocalObjectReference{Name: "maas"}
	for _, c := range change {
		c(host)
	}
	w.create(secret)
	w.create(host)
	return host
}

// withLXDHosts is a MAAS that no longer has VM hosts, and that takes as long as real LXDs can follow: commissioning ends
// long after the first boot was seen.
func withLXDHosts(w *world) {
	w.version, w.timeScale = "4.0", 30
	w.region = strings.Split(region, "vm_hosts:")[0] + "timings: {commission: 25m}\n"
}

// A VM is made in LXD, enlisted in MAAS, prepared without the end of commissioning, deployed, and deleted in both.
func TestLifeOfAVMOnAnLXDHost(t *testing.T) {
	t.Parallel()
	server := directhost.Start(t)
	w := newWorld(t, withLXDHosts)
	w.addLXDHost(server, "host-a", "zone-a")
	cluster := w.newCluster()
	w.provisioned(cluster)
	before := w.maas.State()
	w.maas.ResetCalls()

	m := w.newMachine("cp-0", true, withSpec(vm, func(s *infrav1.MaasMachineSpec) {
		s.StaticIP = "10.77.0.50"
		s.LXDConfig = &infrav1.LXDMachineConfig{
			Disks:   []infrav1.LXDDisk{{Size: "1"}},
			Devices: []infrav1.LXDDevice{{Name: "key0", Type: "usb", Properties: map[string]string{"vendorid": "ffff"}}},
		}
	}))
	w.deployed(m)
	seen, _ := w.maas.Machine(m.Spec.SystemID)
	if m.Status.LXDHost != "host-a" || m.Status.FailureDomain != "zone-a" || seen.Zone != "zone-a" {
		t.Errorf("the status is %+v, MAAS has %+v", m.Status, seen)
	}
	if want := fmt.Sprintf("maas-lxd://zone-a/%s", m.Spec.SystemID); m.Spec.ProviderID != want {
		t.Errorf("the provider ID is %s, want %s", m.Spec.ProviderID, want)
	}
	if got := m.Status.Addresses; len(got) == 0 || got[0].Address != "10.77.0.50" {
		t.Errorf("the addresses are %v", got)
	}
	if got := server.VMs(t); len(got) != 1 || got[m.Status.Hostname] != "Running" {
		t.Errorf("LXD has %v", got)
	}
	w.hasDevices(server, m.Status.Hostname, map[string]string{"root": "disk", "eth0": "nic", "disk1": "disk", "key0": "usb"})
	w.maas.ResetCalls()
	w.delete(m)
	if got := server.VMs(t); len(got) > 0 {
		t.Errorf("after the deletion LXD has %v", got)
	}
	w.deleteCluster(cluster)
	w.unchanged(before)
}

// hasDevices checks the types of a VM's devices in LXD.
func (w *world) hasDevices(server *directhost.Host, name string, want map[string]string) {
	w.t.Helper()
	all, err := server.Instances()
	if err != nil {
		w.t.Fatal(err)
	}
	got := map[string]string{}
	for device, properties := range all[name].Devices {
		got[device] = properties["type"]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Errorf("the devices of VM %s differ (-want +got):\n%s", name, diff)
	}
}

// Without a static address, MAAS gives the VM one of the subnet on its VLAN. A host that is cordoned gets no VM.
func TestVMsGoToLXDHostsThatAreSchedulable(t *testing.T) {
	t.Parallel()
	server := directhost.Start(t)
	w := newWorld(t, withLXDHosts)
	host := w.addLXDHost(server, "host-a", "zone-a", func(h *infrav1.LXDHost) { h.Spec.Unschedulable = true })
	cluster := w.newCluster()
	w.provisioned(cluster)
	m := w.newMachine("cp-0", true, vm)
	w.refused(m, infrav1.MachineDeployedCondition, infrav1.NoHostAvailableReason)
	if got := server.VMs(t); len(got) > 0 {
		t.Errorf("LXD has %v", got)
	}
	before := host.DeepCopy()
	host.Spec.Unschedulable = false
	if err := w.client.Patch(t.Context(), host, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	w.deployed(m)
	if got := m.Status.Addresses; !slices.ContainsFunc(got, func(a clusterv1.MachineAddress) bool { return strings.HasPrefix(a.Address, "10.77.0.") }) {
		t.Errorf("the addresses are %v", got)
	}
}

// The response to the first call of each kind is lost, before and after the call took effect: one VM is made in LXD, and
// one machine in MAAS, and nothing is left behind.
func TestLostAnswersOnAnLXDHost(t *testing.T) {
	t.Parallel()
	server := directhost.Start(t)
	for _, phase := range []simulator.Phase{simulator.Before, simulator.After} {
		t.Run(fmt.Sprint(phase), func(t *testing.T) {
			w := newWorld(t, withLXDHosts)
			w.addLXDHost(server, "host-a", "zone-a")
			cluster := w.newCluster()
			w.provisioned(cluster)
			before := w.maas.State()
			lost := w.loseEachCallOnce(phase)
			m := w.newMachine("cp-0", true, withSpec(vm, func(s *infrav1.MaasMachineSpec) { s.StaticIP = "10.77.0.50" }))
			w.deployed(m)
			if got := server.VMs(t); len(got) != 1 || w.acquiredMachines() != 1 {
				t.Errorf("LXD has %v, MAAS has\n%s", got, w.machines())
			}
			w.delete(m)
			if got := server.VMs(t); len(got) > 0 {
				t.Errorf("after the deletion LXD has %v", got)
			}
			w.deleteCluster(cluster)
			w.maas.SetHook(nil)
			w.unchanged(before)
			for _, call := range []string{
				"POST machines/ ", "POST nodes/{id}/blockdevices/ ", "POST machines/{id}/ mark_broken", "POST machines/{id}/ mark_fixed",
				"POST machines/{id}/ set_storage_layout", "POST machines/ allocate", "POST machines/{id}/ deploy", "DELETE machines/{id}/ ",
			} {
				if !slices.Contains(lost(), call) {
					t.Errorf("%q was not lost, only %q", call, lost())
				}
			}
		})
	}
}

// MAAS gives up on a VM that was stopped, because its commissioning is not ended in time.
func TestAVMWhoseCommissioningEndsTooLateIsDeployed(t *testing.T) {
	t.Parallel()
	server := directhost.Start(t)
	w := newWorld(t, withLXDHosts)
	w.addLXDHost(server, "host-a", "zone-a")
	w.provisioned(w.newCluster())
	w.control("fail-next", `{"operation": "commission"}`)
	var late atomic.Bool
	w.maas.SetHook(func(call simulator.Call, phase simulator.Phase) error {
		if call.Op != "mark_broken" || phase != simulator.Before {
			return nil
		}
		seen, _ := w.maas.Machine(call.SystemID)
		if seen.Status == "Commissioning" {
			return errors.New("lost")
		}
		late.Store(seen.Status == "Failed commissioning")
		return nil
	})
	m := w.newMachine("cp-0", true, vm)
	w.deployed(m)
	if !late.Load() {
		t.Error("its commissioning was ended in time")
	}
}

// Another user adds a machine of our VM's name, and claims that MAAS switches our VM with it. It is not adopted: it would
// get the cluster's secrets. Nor is it deleted.
func TestAMachineThatClaimsToBeOurVMIsNotAdopted(t *testing.T) {
	t.Parallel()
	server := directhost.Start(t)
	w := newWorld(t, withLXDHosts)
	w.addLXDHost(server, "host-a", "zone-a")
	cluster := w.newCluster()
	w.provisioned(cluster)
	owner := cluster.Annotations[infrav1.OwnerIDAnnotation]
	name := maas.Hostname("cp-0", owner)
	w.maasCall(http.MethodPost, "machines/", url.Values{
		"hostname": {name}, "architecture": {"amd64/generic"}, "mac_addresses": {lxdhost.DeriveMAC(owner, name).String()}, "power_type": {"lxd"},
		"power_parameters_power_address": {"https://" + server.Address}, "power_parameters_project": {lxdProject}, "power_parameters_instance_name": {name},
		"power_parameters_certificate": {string(server.Keys.Certificate)}, "power_parameters_key": {"guessed"}, "commission": {"false"},
	})
	before := w.maas.State()
	m := w.newMachine("cp-0", true, vm)
	w.refused(m, infrav1.MachineDeployedCondition, infrav1.MachineNotOursReason)
	w.delete(m)
	w.unchanged(before)
	if got := server.VMs(t); len(got) > 0 {
		t.Errorf("LXD has %v", got)
	}
}

// Another user takes our VM when it is Ready. It is theirs, deployed or not, and stays, in MAAS and in LXD. No endpoint leads to
// it.
func TestAVMThatAnotherUserTookStays(t *testing.T) {
	t.Parallel()
	for name, deploys := range map[string]bool{"acquired": false, "deployed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := directhost.Start(t)
			w := newWorld(t, withLXDHosts, withOtherUser(true))
			w.addLXDHost(server, "host-a", "zone-a")
			cluster := w.newCluster()
			w.provisioned(cluster)
			taken := w.othersTakeVM(w.as(otherKey), deploys)
			m := w.newMachine("cp-0", true, vm)
			id := <-taken
			w.refused(m, infrav1.MachineDeployedCondition, infrav1.MachineNotOursReason)
			if len(m.Status.Addresses) > 0 || m.Spec.ProviderID != "" {
				t.Errorf("%s has the addresses %v and the provider ID %q", m.Name, m.Status.Addresses, m.Spec.ProviderID)
			}
			if leads := w.maas.Lookup(cluster.Spec.ControlPlaneEndpoint.Host); len(leads) > 0 {
				t.Errorf("the endpoint leads to %v", leads)
			}
			w.delete(m)
			if got := server.VMs(t); len(got) != 1 {
				t.Errorf("LXD has %v", got)
			}
			if theirs, there := w.maas.Machine(id); !there || theirs.Owner != "other" {
				t.Errorf("MAAS has %+v", theirs)
			}
		})
	}
}

// othersTakeVM has another user acquire the first VM whose disk is partitioned, and deploy it, too.
func (w *world) othersTakeVM(other *maas.Client, deploys bool) (taken <-chan string) {
	var once sync.Once
	systemIDs := make(chan string, 1)
	w.maas.SetHook(func(call simulator.Call, phase simulator.Phase) error {
		if call.Op != "set_storage_layout" || phase != simulator.After {
			return nil
		}
		once.Do(func() {
			ctx, permit := context.Background(), maas.Unrecorded("a test")
			m, err := other.AllocateMachine(ctx, permit, maas.AllocateParams{SystemID: call.SystemID})
			if err == nil && deploys {
				err = deployTheirs(ctx, other, m)
			}
			if err != nil {
				w.t.Error(err)
			}
			systemIDs <- call.SystemID
		})
		return nil
	})
	return systemIDs
}

// deployTheirs deploys a machine that another user has acquired.
func deployTheirs(ctx context.Context, other *maas.Client, m *maas.Machine) error {
	permit := maas.Unrecorded("a test")
	subnets, err := other.ListSubnets(ctx)
	if err != nil {
		return err
	}
	if _, err := other.LinkSubnet(ctx, permit, m.SystemID, m.BootInterface.ID, maas.LinkParams{Mode: maas.LinkModeAuto, SubnetID: subnets[0].ID, Replace: true}); err != nil {
		return err
	}
	_, err = other.DeployMachine(ctx, permit, m.SystemID, maas.DeployParams{DistroSeries: "ubuntu/jammy"})
	return err
}

// LXD does not respond when a VM is deleted: the machine leaves MAAS, and the deletion goes on when LXD is back. If the
// VM booted meanwhile, MAAS has it as a new machine of nobody's.
func TestAVMIsDeletedWhenItsLXDHostIsBack(t *testing.T) {
	t.Parallel()
	server := directhost.Start(t)
	w := newWorld(t, withLXDHosts)
	w.addLXDHost(server, "host-a", "zone-a")
	cluster := w.newCluster()
	w.provisioned(cluster)
	before := w.maas.State()
	m := w.newMachine("cp-0", true, withSpec(vm, func(s *infrav1.MaasMachineSpec) { s.StaticIP = "10.77.0.50" }))
	w.deployed(m)
	if err := errors.Join(server.Daemon.Kill(), w.client.Delete(t.Context(), m)); err != nil {
		t.Fatal(err)
	}
	w.refused(m, infrav1.MachineDeployedCondition, infrav1.VMHostUnreachableReason)
	if _, there := w.maas.Machine(m.Spec.SystemID); there {
		t.Error("MAAS still has the machine")
	}
	w.maasCall(http.MethodPost, "machines/", url.Values{
		"hostname": {"stranger"}, "architecture": {"amd64/generic"}, "power_type": {"manual"}, "commission": {"false"},
		"mac_addresses": {lxdhost.DeriveMAC(cluster.Annotations[infrav1.OwnerIDAnnotation], m.Status.Hostname).String()},
	})
	if err := server.Daemon.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.await(m.Name+" is gone", m, w.hostGone(m))
	if got := server.VMs(t); len(got) > 0 {
		t.Errorf("LXD has %v", got)
	}
	w.deleteCluster(cluster)
	w.unchanged(before)
}

// The Secret that says which MAAS an LXDHost is for names another one while a VM is deleted: the LXDHost is there, and so
// the VM is not given up.
func TestAVMWaitsForTheMAASOfItsLXDHost(t *testing.T) {
	t.Parallel()
	server := directhost.Start(t)
	w := newWorld(t, withLXDHosts)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "of-the-host", Namespace: w.namespace},
		StringData: map[string]string{"endpoint": w.maasURL, "apiKey": "admin:token:secret"},
	}
	w.create(secret)
	w.addLXDHost(server, "host-a", "zone-a", func(h *infrav1.LXDHost) { h.Spec.MAASCredentialsRef.Name = secret.Name })
	cluster := w.newCluster()
	w.provisioned(cluster)
	m := w.newMachine("cp-0", true, vm)
	w.deployed(m)
	name := func(endpoint string) {
		t.Helper()
		patch := client.RawPatch(client.Merge.Type(), fmt.Appendf(nil, `{"stringData": {"endpoint": %q}}`, endpoint))
		if err := w.client.Patch(t.Context(), secret, patch); err != nil {
			t.Fatal(err)
		}
	}
	name("http://" + refused.Port(t) + "/MAAS")
	if err := w.client.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	w.eventually(m, "waiting", func() bool {
		return conditions.GetReason(m, infrav1.MachineDeployedCondition) == infrav1.CredentialsInvalidReason
	})
	if got := server.VMs(t); len(got) != 1 {
		t.Errorf("LXD has %v", got)
	}
	if _, there := w.maas.Machine(m.Spec.SystemID); !there {
		t.Error("MAAS does not have the machine any more")
	}
	name(w.maasURL)
	w.await(m.Name+" is gone", m, w.hostGone(m))
	if got := server.VMs(t); len(got) > 0 {
		t.Errorf("LXD has %v", got)
	}
	w.deleteCluster(cluster)
}

// A VM that MAAS did not add is deleted before another one is made elsewhere, and its host does not respond to that: it is
// not forgotten.
func TestAVMThatCouldNotBeDeletedIsNotForgotten(t *testing.T) {
	t.Parallel()
	first := directhost.Start(t)
	second := first.In("second")
	var cut sync.Once
	behind := first.Behind(t, func(lxd http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodDelete {
				cut.Do(func() { panic(http.ErrAbortHandler) })
			}
			lxd.ServeHTTP(w, r)
		})
	})
	w := newWorld(t, withLXDHosts)
	w.addLXDHost(behind, "host-a", "zone-a")
	cluster := w.newCluster()
	w.provisioned(cluster)
	before := w.maas.State()
	if _, err := w.maas.AddFault(simulator.Fault{Method: http.MethodPost, Endpoint: "machines/", NoOp: true, Status: http.StatusServiceUnavailable, First: 1}); err != nil {
		t.Fatal(err)
	}
	m := w.newMachine("cp-0", true, vm)
	w.eventually(m, "made in LXD", func() bool { return len(first.VMs(t)) == 1 })
	w.addLXDHost(second, "host-b", "zone-a")
	w.deployed(m)
	if left, got := first.VMs(t), second.VMs(t); len(left) != 0 || len(got) != 1 {
		t.Errorf("the first LXDHost has %v, and the second %v", left, got)
	}
	w.delete(m)
	w.unchanged(before)
	w.deleteCluster(cluster)
}

// Two LXDHosts lead to the same LXD, and the first try of a VM failed on one of them: the VM that its machine runs in is no
// spare one.
func TestAVMThatIsFoundThroughAnotherLXDHostStays(t *testing.T) {
	t.Parallel()
	server := directhost.Start(t)
	w := newWorld(t, withLXDHosts)
	w.addLXDHost(server, "host-a", "zone-a")
	w.addLXDHost(server, "host-b", "zone-a", func(h *infrav1.LXDHost) { h.Spec.Unschedulable = true })
	cluster := w.newCluster()
	w.provisioned(cluster)
	m := w.newMachine("cp-0", true, vm)
	w.deployed(m)
	before := server.VMs(t)
	one, other := w.namespace+"/host-a", w.namespace+"/host-b"
	both := strings.Replace(m.Annotations[infrav1.RecordAnnotation], `"lxdhost:`+one+`"`, `"lxdhost:`+one+`","lxdhost:`+other+`"`, 1)
	patch := client.RawPatch(client.Merge.Type(), fmt.Appendf(nil, `{"metadata": {"annotations": {%q: %q}}}`, infrav1.RecordAnnotation, both))
	if err := w.client.Patch(t.Context(), m, patch); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(m.Annotations[infrav1.RecordAnnotation], other) {
		t.Fatalf("the record is %s", m.Annotations[infrav1.RecordAnnotation])
	}
	w.eventually(m, "searched for", func() bool { return !strings.Contains(m.Annotations[infrav1.RecordAnnotation], other) })
	if diff := cmp.Diff(before, server.VMs(t)); diff != "" {
		t.Errorf("LXD has (- before, + after):\n%s", diff)
	}
	w.deployed(m)
	w.delete(m)
	w.deleteCluster(cluster)
}

// LXD makes a VM, and does not respond any more when MAAS refuses it. The machine gets a VM of the same addresses on
// another host. When the first host is back, its VM is deleted.
func TestASpareVMOnAnLXDHostIsDeleted(t *testing.T) {
	t.Parallel()
	first, second := directhost.Start(t), directhost.Start(t)
	var away atomic.Bool
	behind := first.Behind(t, func(lxd http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if away.Load() {
				panic(http.ErrAbortHandler)
			}
			lxd.ServeHTTP(w, r)
		})
	})
	w := newWorld(t, withLXDHosts)
	w.addLXDHost(behind, "host-a", "zone-a")
	cluster := w.newCluster()
	w.provisioned(cluster)
	before := w.maas.State()
	var once sync.Once
	w.maas.SetHook(func(call simulator.Call, phase simulator.Phase) (err error) {
		if call.Method == http.MethodPost && call.Endpoint == "machines/" && call.Op == "" && phase == simulator.Before {
			once.Do(func() { away.Store(true); err = errors.New("lost") })
		}
		return err
	})
	m := w.newMachine("cp-0", true, vm)
	w.eventually(m, "made in LXD", func() bool { return len(first.VMs(t)) == 1 })
	w.addLXDHost(second, "host-b", "zone-a")
	w.deployed(m)
	away.Store(false)
	w.eventually(m, "deleted on the first host", func() bool { return len(first.VMs(t)) == 0 })
	w.deployed(m)
	if got := second.VMs(t); len(got) != 1 {
		t.Errorf("the second host has %v", got)
	}
	w.delete(m)
	if got := second.VMs(t); len(got) != 0 {
		t.Errorf("after the deletion the second host has %v", got)
	}
	w.deleteCluster(cluster)
	w.unchanged(before)
}

// LXD does not respond when a VM is deleted, the VM boots, and another user takes the machine that MAAS adds. The VM is
// theirs, and stays.
func TestAVMThatAnotherUserTookFromItsLXDHostStays(t *testing.T) {
	t.Parallel()
	server := directhost.Start(t)
	w := newWorld(t, withLXDHosts, withOtherUser(true))
	w.addLXDHost(server, "host-a", "zone-a")
	cluster := w.newCluster()
	w.provisioned(cluster)
	m := w.newMachine("cp-0", true, vm)
	w.deployed(m)
	if err := errors.Join(server.Daemon.Kill(), w.client.Delete(t.Context(), m)); err != nil {
		t.Fatal(err)
	}
	w.refused(m, infrav1.MachineDeployedCondition, infrav1.VMHostUnreachableReason)
	w.maasCall(http.MethodPost, "machines/", url.Values{
		"hostname": {"taken"}, "architecture": {"amd64/generic"}, "power_type": {"manual"}, "commission": {"true"},
		"mac_addresses": {lxdhost.DeriveMAC(cluster.Annotations[infrav1.OwnerIDAnnotation], m.Status.Hostname).String()},
	})
	added := w.named("taken")
	w.inState(added, "Ready")
	if _, err := w.as(otherKey).AllocateMachine(t.Context(), maas.Unrecorded("a test"), maas.AllocateParams{SystemID: added}); err != nil {
		t.Fatal(err)
	}
	if err := server.Daemon.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.await(m.Name+" is gone", m, w.hostGone(m))
	if got := server.VMs(t); len(got) != 1 {
		t.Errorf("LXD has %v", got)
	}
}

// losing loses a host's deletions of VMs until it is over, before or after they take effect, and counts all deletions.
type losing struct {
	phase        simulator.Phase
	marked, over atomic.Bool
	deleted      atomic.Int32
}

func (l *losing) between(lxd http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPatch {
			l.marked.Store(true) // LXD deletes it when it is stopped.
		}
		ofVM := strings.HasPrefix(r.URL.Path, "/1.0/instances/")
		deletes := l.marked.Load() && r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/state")
		if ofVM && !deletes && l.phase == simulator.After && l.deleted.Load() > 0 && !l.over.Load() {
			panic(http.ErrAbortHandler) // Whether the VM is gone by then is not known.
		}
		if !deletes {
			lxd.ServeHTTP(w, r)
			return
		}
		l.deleted.Add(1)
		if l.over.Load() {
			lxd.ServeHTTP(w, r)
			return
		}
		if l.phase == simulator.After {
			lxd.ServeHTTP(httptest.NewRecorder(), r)
		}
		panic(http.ErrAbortHandler)
	})
}

// A deletion that was lost may come late, and would hit the VM of the next MaasMachine of the name: nothing is repeated,
// and the MaasMachine stays, whether the host still has the VM or not. After the settle time the host is asked.
func TestALostDeletionOfAVMHoldsItsName(t *testing.T) {
	t.Parallel()
	for phase, deletions := range map[simulator.Phase]int32{simulator.Before: 2, simulator.After: 1} {
		t.Run(fmt.Sprint(phase), func(t *testing.T) {
			server := directhost.Start(t)
			lost := &losing{phase: phase}
			w := newWorld(t, withLXDHosts, func(w *world) { w.settleTime = time.Hour })
			w.addLXDHost(server.Behind(t, lost.between), "host-a", "zone-a")
			w.provisioned(w.newCluster())
			m := w.newMachine(fmt.Sprintf("cp-%v", phase), true, vm)
			w.deployed(m)
			w.beginDeletion(m)
			w.eventually(m, "waiting for what its host may still do", func() bool {
				return conditions.GetReason(m, infrav1.MachineDeployedCondition) == infrav1.VerifyingVMReason
			})
			if n := lost.deleted.Load(); n != 1 || !recorded(t, m).IsPending(record.DeleteVM) {
				t.Errorf("LXD was asked %d times for the deletion; recorded is %+v", n, recorded(t, m))
			}
			if _, there := w.maas.Machine(m.Spec.SystemID); there {
				t.Error("MAAS still has the machine, which no other gets")
			}
			lost.over.Store(true)
			w.changeRecord(m, func(d *record.Data) { // As if that had been so long ago.
				d.Pending = []record.Pending{{Op: record.DeleteVM, At: metav1.NewTime(time.Now().Add(-2 * time.Hour))}}
			})
			w.goes(m)
			if n := lost.deleted.Load(); n != deletions || len(server.VMs(t)) > 0 {
				t.Errorf("LXD was asked %d times for the deletion, and has %v", n, server.VMs(t))
			}
		})
	}
}

// While a VM that was left may still be deleted on its host, no other one of its name is made there.
func TestNoVMIsMadeWhileOneOfItsNameMayBeDeleted(t *testing.T) {
	t.Parallel()
	server := directhost.Start(t)
	w := newWorld(t, withLXDHosts, func(w *world) { w.settleTime = time.Hour })
	host := w.addLXDHost(server, "host-a", "zone-a")
	cluster := w.newCluster()
	w.provisioned(cluster)
	id := cluster.Annotations[infrav1.OwnerIDAnnotation]
	text := recordText(t, record.Data{
		Pending: []record.Pending{{Op: record.DeleteVM, At: metav1.Now()}},
		Left: []record.LeftVM{{
			Hostname: maas.Hostname("cp-0", id), OwnerID: id, Namespace: w.namespace, Machine: "cp-0",
			Host: lxd.DirectRef(w.namespace, host.Name), Since: metav1.Now(),
		}},
	})
	w.annotate(host, infrav1.RecordAnnotation, &text)
	m := w.newMachine("cp-0", true, vm)
	w.eventually(m, "waiting", func() bool {
		return conditions.GetReason(m, infrav1.MachineDeployedCondition) == infrav1.MAASUnavailableReason
	})
	other := w.newMachine("md-0", false, vm)
	w.deployed(other)
	if got := server.VMs(t); len(got) != 1 {
		t.Errorf("LXD has %v", got)
	}
	w.delete(other) // The computer may have room for one.
	w.annotate(host, infrav1.RecordAnnotation, nil)
	w.annotate(m, "test/wake", new("now"))
	w.deployed(m)
}
