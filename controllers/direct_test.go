// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/canonical/lxd/shared/api"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdapi"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/turns"
	"github.com/capmaas/cluster-api-provider-maas/test/refused"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/directhost"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/lxdtest"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// vmImage is what the tests' VMs boot, in MAAS and in LXD.
const vmImage = "ubuntu/jammy"

// addLXDHost makes an LXDHost of a real LXD.
func (w *world) addLXDHost(server *directhost.Host, name, zone string, change ...func(*infrav1.LXDHost)) *infrav1.LXDHost {
	w.t.Helper()
	host, secret := server.Objects(client.ObjectKey{Namespace: w.namespace, Name: name}, zone)
	host.Spec.MAASCredentialsRef = &infrav1.LocalObjectReference{Name: "maas"}
	host.Spec.Subnet = "10.77.0.0/24"
	w.must(server.AddImage(w.t.Context(), vmImage))
	for _, c := range change {
		c(host)
	}
	w.create(secret)
	w.create(host)
	return host
}

// withLXDHosts is a MAAS that no longer has VM hosts, and that takes as long as real LXDs can follow.
func withLXDHosts(w *world) {
	w.version, w.timeScale = "4.0", 30
	w.region = strings.Split(region, "vm_hosts:")[0]
}

// MAAS's subnets have no name servers by default: nothing is made before somebody has named some.
func TestAVMWithoutNameServersIsNotMade(t *testing.T) {
	t.Parallel()
	server := directhost.Start(t)
	w := newWorld(t, withLXDHosts, func(w *world) { w.region = strings.Replace(w.region, "dns_servers: [10.77.0.1]", "dns_servers: []", 1) })
	host := w.addLXDHost(server, "host-a", "zone-a")
	w.provisionedCluster()
	m := w.newMachine("cp-0", true, vm)
	w.eventually(m, "refused", func() bool {
		c := conditions.Get(m, infrav1.LXDHostSelectedCondition)
		return c != nil && c.Reason == infrav1.NoHostAvailableReason && strings.Contains(c.Message, "without name servers for subnet 10.77.0.0/24 (host-a)")
	})
	if made := w.devices(); len(made)+len(server.VMs(t)) > 0 {
		t.Errorf("there are the devices %v and the VMs %v", made, server.VMs(t))
	}
	w.patch(host, func() { host.Spec.Nameservers = []string{"10.77.0.53"} })
	w.deployed(m)
	all, err := server.Instances()
	if err != nil {
		t.Fatal(err)
	}
	if config := all[m.Status.Hostname].Config["cloud-init.network-config"]; !strings.Contains(config, `"nameservers":{"addresses":["10.77.0.53"]`) {
		t.Errorf("the VM is told %s", config)
	}
	w.delete(m)
}

// devices are those that MAAS has.
func (w *world) devices() []*maas.Device {
	w.t.Helper()
	all, err := w.maasClient().ListDevices(w.t.Context(), maas.DeviceFilter{})
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

// deviceOf returns the device of a VM; nil if MAAS has none.
func (w *world) deviceOf(m *infrav1.MaasMachine) *maas.Device {
	w.t.Helper()
	all := w.devices()
	at := slices.IndexFunc(all, func(d *maas.Device) bool { return d.SystemID == m.Spec.SystemID })
	if at < 0 {
		return nil
	}
	return all[at]
}

// The calls to MAAS for a VM, and for its deletion.
var (
	callsForAVM       = []string{"POST devices/", "POST devices/{id}/ set_workload_annotations", "POST nodes/{id}/interfaces/{iface}/ link_subnet"}
	callsForItsEnding = []string{"DELETE devices/{id}/", "GET devices/{id}/"}
)

// callsOfVMs are the calls to MAAS for devices, without the inventory's lists, sorted.
func (w *world) callsOfVMs() (calls []string) {
	for _, call := range w.maas.Calls().Log {
		isOfDevice := strings.HasPrefix(call.Endpoint, "devices/") || call.Op == "link_subnet"
		if isOfDevice && (call.Method != http.MethodGet || call.Endpoint != "devices/") {
			calls = append(calls, strings.TrimSpace(call.Method+" "+call.Endpoint+" "+call.Op))
		}
	}
	slices.Sort(calls)
	return calls
}

// A device is made in MAAS, and a VM from an image in LXD, and both are deleted.
func TestLifeOfAVMOnAnLXDHost(t *testing.T) {
	t.Parallel()
	server := directhost.Start(t)
	w := newWorld(t, withLXDHosts)
	w.addLXDHost(server, "host-a", "zone-a")
	cluster := w.provisionedCluster()
	before := w.maas.State()
	w.maas.ResetCalls()

	m := w.newMachine("cp-0", true, withSpec(vm, func(s *infrav1.MaasMachineSpec) {
		s.StaticIP = "10.77.0.50"
		s.LXDConfig = &infrav1.LXDMachineConfig{
			SecureBoot: true, Disks: []infrav1.LXDDisk{{Size: "1"}},
			Devices: []infrav1.LXDDevice{{Name: "key0", Type: "usb", Properties: map[string]string{"vendorid": "ffff"}}},
		}
	}))
	w.deployed(m)
	seen := w.deviceOf(m)
	if m.Status.LXDHost != "host-a" || m.Status.FailureDomain != "zone-a" || seen == nil || seen.Zone.Name != "zone-a" {
		t.Fatalf("the status is %+v, MAAS has %+v", m.Status, seen)
	}
	if diff := cmp.Diff(callsForAVM, w.callsOfVMs()); diff != "" {
		t.Errorf("the calls to MAAS differ (-want +got):\n%s", diff)
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
	w.hasDevices(server, m.Status.Hostname, map[string]string{"root": "disk", "eth0": "nic", "disk1": "disk", "key0": "usb", "cloud-init": "disk"})
	if made, err := server.Instances(); err != nil || !lxdapi.BootsSecurely(made[m.Status.Hostname].Config) {
		t.Errorf("the VM boots without secure boot: %v", err)
	}
	w.maas.ResetCalls()
	w.delete(m)
	if got := server.VMs(t); len(got) > 0 {
		t.Errorf("after the deletion LXD has %v", got)
	}
	if diff := cmp.Diff(callsForItsEnding, w.callsOfVMs()); diff != "" {
		t.Errorf("the calls to MAAS differ (-want +got):\n%s", diff)
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

// The response to the first call of each kind is lost, before and after the call took effect: one VM is made in LXD, and
// one device in MAAS, and nothing is left behind.
func TestLostAnswersOnAnLXDHost(t *testing.T) {
	t.Parallel()
	server := directhost.Start(t)
	for _, phase := range []simulator.Phase{simulator.Before, simulator.After} {
		t.Run(fmt.Sprint(phase), func(t *testing.T) {
			w := newWorld(t, withLXDHosts)
			w.addLXDHost(server, "host-a", "zone-a")
			cluster := w.provisionedCluster()
			before := w.maas.State()
			lost := w.loseEachCallOnce(phase)
			m := w.deployedMachine("cp-0", true, withSpec(vm, func(s *infrav1.MaasMachineSpec) { s.StaticIP = "10.77.0.50" }))
			if got := server.VMs(t); len(got) != 1 || len(w.devices()) != 1 {
				t.Errorf("LXD has %v, MAAS has %+v", got, w.devices())
			}
			w.delete(m)
			if got := server.VMs(t); len(got) > 0 {
				t.Errorf("after the deletion LXD has %v", got)
			}
			w.deleteCluster(cluster)
			w.maas.SetHook(nil)
			w.unchanged(before)
			for _, call := range slices.Concat(callsForAVM, callsForItsEnding) {
				if !slices.ContainsFunc(lost(), func(one string) bool { return strings.TrimSpace(one) == call }) {
					t.Errorf("%q was not lost, only %q", call, lost())
				}
			}
		})
	}
}

// Another user adds a machine of our VM's name, and claims that MAAS switches our VM with it. It is not adopted: it would
// get the cluster's secrets. Nor is it deleted.
func TestAMachineThatClaimsToBeOurVMIsNotAdopted(t *testing.T) {
	t.Parallel()
	server := directhost.Start(t)
	w := newWorld(t, withLXDHosts)
	w.addLXDHost(server, "host-a", "zone-a")
	cluster := w.provisionedCluster()
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

// LXD does not respond when a VM is deleted: MAAS keeps the device, and the deletion goes on when LXD is back.
func TestAVMIsDeletedWhenItsLXDHostIsBack(t *testing.T) {
	t.Parallel()
	server := directhost.Start(t)
	w := newWorld(t, withLXDHosts)
	w.addLXDHost(server, "host-a", "zone-a")
	cluster := w.provisionedCluster()
	before := w.maas.State()
	m := w.deployedMachine("cp-0", true, withSpec(vm, func(s *infrav1.MaasMachineSpec) { s.StaticIP = "10.77.0.50" }))
	w.must(errors.Join(server.Daemon.Kill(), w.client.Delete(t.Context(), m)))
	w.refused(m, infrav1.MachineDeployedCondition, infrav1.VMHostUnreachableReason)
	if w.deviceOf(m) == nil {
		t.Error("MAAS gives the address of a VM that may run to others")
	}
	w.must(server.Daemon.Restart(t.Context()))
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
	cluster := w.provisionedCluster()
	m := w.deployedMachine("cp-0", true, vm)
	name := func(endpoint string) {
		t.Helper()
		patch := client.RawPatch(client.Merge.Type(), fmt.Appendf(nil, `{"stringData": {"endpoint": %q}}`, endpoint))
		w.must(w.client.Patch(t.Context(), secret, patch))
	}
	name("http://" + refused.Port(t) + "/MAAS")
	w.beginDeletion(m)
	w.eventually(m, "waiting", func() bool {
		return conditions.GetReason(m, infrav1.MachineDeployedCondition) == infrav1.CredentialsInvalidReason
	})
	if got := server.VMs(t); len(got) != 1 {
		t.Errorf("LXD has %v", got)
	}
	if w.deviceOf(m) == nil {
		t.Error("MAAS does not have the device any more")
	}
	name(w.maasURL)
	w.await(m.Name+" is gone", m, w.hostGone(m))
	if got := server.VMs(t); len(got) > 0 {
		t.Errorf("LXD has %v", got)
	}
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
	cluster := w.provisionedCluster()
	m := w.deployedMachine("cp-0", true, vm)
	before := server.VMs(t)
	for _, name := range []string{"host-b", "gone"} { // The other one is asked; or nobody can ever be asked.
		one, other := w.namespace+"/host-a", w.namespace+"/"+name
		both := strings.Replace(m.Annotations[infrav1.RecordAnnotation], `"lxdhost:`+one+`"`, `"lxdhost:`+one+`","lxdhost:`+other+`"`, 1)
		patch := client.RawPatch(client.Merge.Type(), fmt.Appendf(nil, `{"metadata": {"annotations": {%q: %q}}}`, infrav1.RecordAnnotation, both))
		w.must(w.client.Patch(t.Context(), m, patch))
		if !strings.Contains(m.Annotations[infrav1.RecordAnnotation], other) {
			t.Fatalf("the record is %s", m.Annotations[infrav1.RecordAnnotation])
		}
		w.eventually(m, "searched for", func() bool { return !strings.Contains(m.Annotations[infrav1.RecordAnnotation], other) })
	}
	if diff := cmp.Diff(before, server.VMs(t)); diff != "" {
		t.Errorf("LXD has (- before, + after):\n%s", diff)
	}
	w.deployed(m)
	w.delete(m)
	w.deleteCluster(cluster)
}

// LXD makes a VM, and does not respond any more. The machine gets a VM of the same address on another host. When the
// first host is back, its VM, which never ran, is deleted.
func TestASpareVMOnAnLXDHostIsDeleted(t *testing.T) {
	t.Parallel()
	t.Run("its response is lost", func(t *testing.T) { t.Parallel(); testSpareVM(t, nil, true) })
	t.Run("LXD needs longer for it", func(t *testing.T) {
		t.Parallel()
		testSpareVM(t, &api.Operation{ID: "busy", StatusCode: api.Running, Status: api.Running.String()}, true)
	})
	t.Run("the other host loses its VM", func(t *testing.T) { t.Parallel(); testSpareVM(t, nil, false) })
}

// testSpareVM lets the first host go away after it said so of the VM that it was asked for, or nothing. The VM of the
// second host runs on, or a person removes it.
func testSpareVM(t *testing.T, said *api.Operation, runs bool) {
	first, second := directhost.Start(t), directhost.Start(t)
	var away atomic.Bool
	behind := first.Behind(t, func(lxd http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if away.Load() {
				panic(http.ErrAbortHandler)
			}
			answer := httptest.NewRecorder()
			lxd.ServeHTTP(answer, r)
			if strings.HasSuffix(r.URL.Path, "/wait") && len(first.VMs(t)) == 1 {
				away.Store(true)
				if said == nil {
					panic(http.ErrAbortHandler)
				}
				_ = json.NewEncoder(w).Encode(api.ResponseRaw{Type: api.SyncResponse, Metadata: said})
				return
			}
			maps.Copy(w.Header(), answer.Header())
			w.WriteHeader(answer.Code)
			_, _ = w.Write(answer.Body.Bytes())
		})
	})
	w := newWorld(t, withLXDHosts)
	w.addLXDHost(behind, "host-a", "zone-a")
	cluster := w.provisionedCluster()
	before := w.maas.State()
	m := w.newMachine("cp-0", true, vm)
	w.eventually(m, "made in LXD", func() bool { return len(first.VMs(t)) == 1 })
	w.addLXDHost(second, "host-b", "zone-a")
	w.deployed(m)
	if !runs {
		w.must(second.Remove(m.Status.Hostname))
		w.refused(m, infrav1.MachineDeployedCondition, infrav1.MachineMissingReason)
	}
	away.Store(false)
	w.eventually(m, "deleted on the first host", func() bool { return len(first.VMs(t)) == 0 })
	if runs {
		w.deployed(m)
	}
	if got := second.VMs(t); (len(got) == 1) != runs {
		t.Errorf("the second host has %v", got)
	}
	w.delete(m)
	if got := second.VMs(t); len(got) != 0 {
		t.Errorf("after the deletion the second host has %v", got)
	}
	w.deleteCluster(cluster)
	w.unchanged(before)
}

// slow is an LXD that is at work on its VM for so many waits, and counts the VMs that it is asked for.
type slow struct{ waits, asked atomic.Int32 }

func (s *slow) before(name string) lxdtest.Middleware {
	busy := api.Operation{
		ID: "busy", StatusCode: api.Running, Status: api.Running.String(),
		Resources: map[string][]string{"instances": {"/1.0/instances/" + name}},
	}
	return func(lxd http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			said := any(busy)
			switch {
			case r.Method == http.MethodPost && r.URL.Path == "/1.0/instances":
				w, said = &accepted{w, &s.asked}, nil
			case s.waits.Load() <= 0:
				said = nil
			case strings.HasSuffix(r.URL.Path, "/wait"):
				s.waits.Add(-1)
			case r.URL.Path == "/1.0/operations":
				said = map[string]any{"running": []any{busy}}
			default:
				said = nil
			}
			if said == nil {
				lxd.ServeHTTP(w, r)
				return
			}
			_ = json.NewEncoder(w).Encode(map[string]any{"type": api.SyncResponse, "metadata": said})
		})
	}
}

// accepted counts the requests that LXD accepts: while the former VM goes, it refuses another one of the name.
type accepted struct {
	http.ResponseWriter
	n *atomic.Int32
}

func (a *accepted) WriteHeader(status int) {
	if status == http.StatusAccepted {
		a.n.Add(1)
	}
	a.ResponseWriter.WriteHeader(status)
}

// idOf returns the id that LXD gave the VM of a name; "" if there is none.
func idOf(t *testing.T, server *directhost.Host, name string) string {
	t.Helper()
	all, err := server.Instances()
	if err != nil {
		t.Fatal(err)
	}
	return all[name].Config["volatile.uuid"]
}

// LXD needs longer for a VM than is waited for, or than the manager runs. The VM is the machine's all the same; but not
// if it is not as it is wanted any more.
func TestAVMThatIsFinishedLateIsTaken(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		waits    int32 // after the last one LXD has finished; a try waits ten times
		restarts bool  // the manager, before LXD has finished
		changed  bool  // a person changes the VM meanwhile
	}{
		"after ten waits": {waits: 15},
		"after a restart": {waits: 1000, restarts: true},
		"changed":         {waits: 1000, restarts: true, changed: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := directhost.Start(t)
			w := newWorld(t, withLXDHosts)
			cluster := w.provisionedCluster()
			before := w.maas.State()
			hostname := maas.Hostname("cp-0", cluster.Annotations[infrav1.OwnerIDAnnotation])
			lxd := &slow{}
			lxd.waits.Store(tc.waits)
			w.addLXDHost(server.Behind(t, lxd.before(hostname)), "host-a", "zone-a")
			m := w.newMachine("cp-0", true, withSpec(vm, func(s *infrav1.MaasMachineSpec) {
				s.LXDConfig = &infrav1.LXDMachineConfig{Disks: []infrav1.LXDDisk{{Size: "1"}}}
			}))
			w.eventually(m, "begun in LXD", func() bool { return idOf(t, server, hostname) != "" })
			id, asked := idOf(t, server, hostname), int32(1)
			if tc.restarts {
				w.stopManager()
			}
			if tc.changed {
				w.eventually(m, "changed", func() bool { // LXD may be at work on it still.
					return server.Change(hostname, map[string]string{"cloud-init.user-data": "#cloud-config\n# another's\n"}) == nil
				})
				asked++
			}
			if tc.restarts {
				lxd.waits.Store(0)
				w.startManager()
			}
			w.deployed(m)
			if got := lxd.asked.Load(); got != asked || len(server.VMs(t)) != 1 || len(w.devices()) != 1 {
				t.Errorf("LXD was asked for %d VMs, want %d; it has %v, and MAAS %v", got, asked, server.VMs(t), w.devices())
			}
			if is := idOf(t, server, hostname); (is != id) != tc.changed {
				t.Errorf("the VM is %s, and was %s", is, id)
			}
			w.hasDevices(server, hostname, map[string]string{"root": "disk", "eth0": "nic", "disk1": "disk", "cloud-init": "disk"})
			w.delete(m)
			if got := server.VMs(t); len(got) > 0 {
				t.Errorf("after the deletion LXD has %v", got)
			}
			w.deleteCluster(cluster)
			w.unchanged(before)
		})
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
			w.provisionedCluster()
			m := w.deployedMachine(fmt.Sprintf("cp-%v", phase), true, vm)
			w.beginDeletion(m)
			w.eventually(m, "waiting for what its host may still do", func() bool {
				return conditions.GetReason(m, infrav1.MachineDeployedCondition) == infrav1.VerifyingVMReason
			})
			if n := lost.deleted.Load(); n != 1 || !recorded(t, m).IsPending(record.DeleteVM) {
				t.Errorf("LXD was asked %d times for the deletion; recorded is %+v", n, recorded(t, m))
			}
			if w.deviceOf(m) == nil {
				t.Error("MAAS gives the address of a VM that may run to others")
			}
			if phase == simulator.After { // LXD still works on it after it took the call.
				w.eventually(m, "without a VM", func() bool { return len(server.VMs(t)) == 0 })
			}
			lost.over.Store(true)
			w.changeRecord(m, func(d *record.MachineData) { // As if that had been so long ago.
				d.Pending = []record.Pending{{Op: record.DeleteVM, At: metav1.NewTime(time.Now().Add(-2 * time.Hour))}}
			})
			w.goes(m)
			if n := lost.deleted.Load(); n != deletions || len(server.VMs(t)) > 0 {
				t.Errorf("LXD was asked %d times for the deletion, and has %v", n, server.VMs(t))
			}
		})
	}
}

// unstarted loses what starts a VM, before it takes effect, until it is over.
func unstarted(over *atomic.Bool) func(http.Handler) http.Handler {
	return func(lxd http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/state") && !over.Load() {
				panic(http.ErrAbortHandler)
			}
			lxd.ServeHTTP(w, r)
		})
	}
}

// A start that was lost may come late, and would start the VM of the next MaasMachine of the name, before its host is
// recorded: the MaasMachine stays until the settle time is over.
func TestALostStartOfAVMHoldsItsName(t *testing.T) {
	t.Parallel()
	server := directhost.Start(t)
	var over atomic.Bool
	w := newWorld(t, withLXDHosts, func(w *world) { w.settleTime = time.Hour })
	w.addLXDHost(server.Behind(t, unstarted(&over)), "host-a", "zone-a")
	w.provisionedCluster()
	m := w.newMachine("cp-0", true, vm)
	w.eventually(m, "whose start is lost", func() bool { return recorded(t, m).IsPending(record.StartVM) })
	if rec := recorded(t, m); rec.Runs == "" || m.Spec.SystemID == "" {
		t.Errorf("it is started before it is recorded where it runs: %+v", rec)
	}
	w.beginDeletion(m)
	w.eventually(m, "waiting for what its host may still do", func() bool {
		return conditions.GetReason(m, infrav1.MachineDeployedCondition) == infrav1.VerifyingVMReason
	})
	if w.deviceOf(m) == nil || len(server.VMs(t)) != 1 {
		t.Errorf("MAAS has %v, LXD %v", w.devices(), server.VMs(t))
	}
	over.Store(true)
	w.changeRecord(m, func(d *record.MachineData) { // As if that had been so long ago.
		d.Pending = []record.Pending{{Op: record.StartVM, At: metav1.NewTime(time.Now().Add(-2 * time.Hour))}}
	})
	w.goes(m)
	if len(w.devices())+len(server.VMs(t)) > 0 {
		t.Errorf("MAAS has %v, LXD %v", w.devices(), server.VMs(t))
	}
}

// While a VM that was left may still be deleted on its host, no other one of its name is made there.
func TestNoVMIsMadeWhileOneOfItsNameMayBeDeleted(t *testing.T) {
	t.Parallel()
	server := directhost.Start(t)
	w := newWorld(t, withLXDHosts, func(w *world) { w.settleTime = time.Hour })
	host := w.addLXDHost(server, "host-a", "zone-a")
	cluster := w.provisionedCluster()
	id := cluster.Annotations[infrav1.OwnerIDAnnotation]
	text := recordText(t, record.HostData{
		Calls: record.Calls{Pending: []record.Pending{{Op: record.DeleteVM, At: metav1.Now()}}},
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
	other := w.deployedMachine("md-0", false, vm)
	if got := server.VMs(t); len(got) != 1 {
		t.Errorf("LXD has %v", got)
	}
	w.delete(other) // The computer may have room for one.
	w.annotate(host, infrav1.RecordAnnotation, nil)
	w.annotate(m, "test/wake", new("now"))
	w.deployed(m)
}

// LXD refuses a VM whose device has its static address: another manager goes on with both.
func TestAVMThatLXDRefusedKeepsItsAddress(t *testing.T) {
	t.Parallel()
	server := directhost.Start(t)
	var accepts atomic.Bool
	w := newWorld(t, withLXDHosts)
	w.addLXDHost(server.Behind(t, refusing(&accepts)), "host-a", "zone-a")
	w.provisionedCluster()
	before := w.maas.State()
	m := w.newMachine("cp-0", true, withSpec(vm, func(s *infrav1.MaasMachineSpec) { s.StaticIP = "10.77.0.50" }))
	w.refused(m, infrav1.MachineDeployedCondition, infrav1.NoHostAvailableReason)
	device := w.devices()[0]
	w.stopManager() // The next one knows nothing of the addresses that were free.
	accepts.Store(true)
	w.startManager()
	w.deployed(m)
	if m.Spec.SystemID != device.SystemID || len(w.devices()) != 1 || m.Status.Addresses[0].Address != "10.77.0.50" {
		t.Errorf("it has %s with %v; MAAS has %+v", m.Spec.SystemID, m.Status.Addresses, w.devices())
	}
	w.delete(m)
	w.unchanged(before)
}

// A host that responds, and that can't delete a VM, is no host that can't be asked: the object stays for as long as the
// VM does, also if the host does not respond for a moment in between.
func TestAVMThatLXDCantDeleteIsNotLeft(t *testing.T) {
	t.Parallel()
	server := directhost.Start(t)
	var deletes atomic.Bool
	deletes.Store(true)
	behind := server.Behind(t, refusingThose(&deletes, func(r *http.Request) bool {
		return r.Method != http.MethodGet && strings.HasPrefix(r.URL.Path, "/1.0/instances/")
	}))
	w := newWorld(t, withLXDHosts)
	w.addLXDHost(behind, "host-a", "zone-a")
	w.provisionedCluster()
	m := w.deployedMachine("cp-0", true, vm)
	deletes.Store(false)
	w.beginDeletion(m)
	w.eventually(m, "told that LXD can't delete it", func() bool {
		return strings.Contains(conditions.GetMessage(m, infrav1.ReadyCondition), "LXD returned 500")
	})
	long := metav1.NewTime(time.Now().Add(-24 * time.Hour))
	w.changeRecord(m, func(d *record.MachineData) { // As if it had not responded once.
		d.Cleanup = &record.Cleanup{UnreachableSince: &long, Tries: 9}
	})
	w.eventually(m, "asked again", func() bool { return recorded(t, m).CleanupSoFar().UnreachableSince == nil })
	deletes.Store(true)
	w.goes(m)
}

// Whoever adds an LXD decides how it responds. While it deletes a VM, nobody else waits for that: all turns to give
// machines back in MAAS are for those that MAAS gives back.
func TestAnLXDThatDeletesSlowlyHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	server := directhost.Start(t)
	w := newWorld(t, withLXDHosts)
	var asked atomic.Int32
	w.addLXDHost(server.Behind(t, w.inNoTurn(&asked)), "host-a", "zone-a")
	w.provisionedCluster()
	m := w.deployedMachine("md-0", false, vm)
	asked.Store(0) // It was asked to start it.
	w.delete(m)
	if asked.Load() == 0 {
		t.Error("LXD was not asked to delete the VM")
	}
}

// inNoTurn checks that LXD is asked to stop or delete a VM while nobody has a turn to give a machine back, and counts how
// often.
func (w *world) inNoTurn(asked *atomic.Int32) lxdtest.Middleware {
	changes := []string{http.MethodPut + directhost.CallPrefix + "instances/{id}/state", http.MethodDelete + directhost.CallPrefix + "instances/{id}"}
	return func(lxd http.Handler) http.Handler {
		return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if call, ours := directhost.CallOf(r); ours && slices.Contains(changes, call.Method+call.Endpoint) {
				asked.Add(1)
				w.hasAllTurns(turns.Removal, 8)
			}
			lxd.ServeHTTP(rw, r)
		})
	}
}

// hasAllTurns checks that nobody has a turn in a line of so many.
func (w *world) hasAllTurns(line turns.Line, many int) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
	defer cancel()
	for range many {
		done, err := w.scopes.Regions()[0].Turn(ctx, line, turns.Acquire)
		if err != nil {
			w.t.Errorf("a turn is held: %v", err)
			continue
		}
		defer done()
	}
}
