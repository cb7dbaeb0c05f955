// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/keep"
	"github.com/capmaas/cluster-api-provider-maas/controllers/orphanaudit"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/orphans"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/quarantine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator/simtest"
)

// contested is a region with one server, and another user who wants it.
var contested = strings.Replace(oneServer, "users: [", `users: [{name: thief, keys: ["thief:token:secret"]}, `, 1)

func withKeep(spec infrav1.MaasMachineSpec) infrav1.MaasMachineSpec {
	spec.Release.Keep = &infrav1.MachineKeep{}
	return spec
}

// deployment makes a MachineDeployment, which nobody reconciles.
func (w *world) deployment(name string, replicas int32) *clusterv1.MachineDeployment {
	w.t.Helper()
	labels := map[string]string{clusterv1.MachineDeploymentNameLabel: name}
	md := &clusterv1.MachineDeployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace},
		Spec: clusterv1.MachineDeploymentSpec{
			ClusterName: clusterName, Replicas: ptr.To(replicas), Selector: metav1.LabelSelector{MatchLabels: labels},
			Template: clusterv1.MachineTemplateSpec{ObjectMeta: clusterv1.ObjectMeta{Labels: labels}, Spec: clusterv1.MachineSpec{
				ClusterName: clusterName, Bootstrap: clusterv1.Bootstrap{DataSecretName: ptr.To("any")},
				InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "MaasMachineTemplate", Name: "any"},
			}},
		},
	}
	w.create(md)
	return md
}

func (w *world) scale(md *clusterv1.MachineDeployment, replicas int32) {
	w.t.Helper()
	w.patch(md, func() { md.Spec.Replicas = ptr.To(replicas) })
}

// of makes a Machine one of a MachineDeployment.
func of(md *clusterv1.MachineDeployment) func(*metav1.ObjectMeta) {
	return func(meta *metav1.ObjectMeta) { meta.Labels[clusterv1.MachineDeploymentNameLabel] = md.Name }
}

// steals allocates any machine for the thief, and reports whether there was one.
func (w *world) steals() bool {
	w.t.Helper()
	thief := simtest.Client(w.t, w.ofPeople(), "thief:token:secret")
	_, err := thief.AllocateMachine(context.Background(), maas.Unrecorded("a test"), maas.AllocateParams{})
	if err != nil && !errors.Is(err, maas.Conflict) {
		w.t.Errorf("the thief failed: %v", err)
	}
	return err == nil
}

// keptIn returns how many machines are kept for a cluster.
func (w *world) keptIn(cluster *infrav1.MaasCluster) int {
	w.t.Helper()
	w.must(w.client.Get(w.t.Context(), client.ObjectKeyFromObject(cluster), cluster))
	data, err := record.OfCluster(cluster)
	if err != nil {
		w.t.Fatal(err)
	}
	return len(data.Kept)
}

// orphans returns what the audit finds now.
func (w *world) orphans() []orphans.Finding {
	w.t.Helper()
	all, err := w.maasClient().ListMachines(w.t.Context(), maas.MachineFilter{})
	if err != nil {
		w.t.Fatal(err)
	}
	claims, _, err := orphanaudit.ReadClaims(w.t.Context(), w.client, thisManagementCluster, w.namespace)
	if err != nil {
		w.t.Fatal(err)
	}
	return claims.Audit(all)
}

// keepsServer deploys a Machine and deletes it, so that its server waits for the next one of the MachineDeployment.
func (w *world) keepsServer(spec infrav1.MaasMachineSpec) (md *clusterv1.MachineDeployment, systemID string) {
	w.t.Helper()
	md = w.deployment("md", 1)
	first := w.deployedMachine("first", false, withKeep(spec), of(md))
	systemID = first.Spec.SystemID
	w.delete(first)
	return md, systemID
}

// waits checks that a machine waits for the next Machine.
func (w *world) waits(cluster *infrav1.MaasCluster, systemID string) {
	w.t.Helper()
	if m, _ := w.maas.Machine(systemID); w.keptIn(cluster) != 1 || m.Status != "Deployed" || m.Running {
		w.t.Fatalf("the machine is %s, running: %v; %d are kept", m.Status, m.Running, w.keptIn(cluster))
	}
}

// The next Machine gets the server, whatever was done to it, over a restart of the manager, and nobody else gets it while it
// waits. At the end it is as before.
func TestTheNextMachineGetsTheServerThatIsKept(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]infrav1.MaasMachineSpec{
		"plain":      {},
		"interfaces": {Interfaces: bonded},
		"address":    {StaticIP: "10.77.0.50"},
		"storage":    shapes["lvm"],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, cluster := clusterWorld(t, func(w *world) { w.region = contested })
			before := w.maas.State()
			md, id := w.keepsServer(spec)
			w.waits(cluster, id)
			if w.steals() {
				t.Fatal("another user got the server")
			}
			if found := w.orphans(); len(found) != 0 {
				t.Errorf("the server is taken for an orphan: %+v", found)
			}
			w.restart()
			elsewhere := spec
			if spec.StaticIP != "" {
				elsewhere.StaticIP = "10.77.0.51" // The server that is kept has its address still.
			}
			other := w.newMachine("other", false, withKeep(elsewhere), of(w.deployment("others", 1)))
			w.refused(other, infrav1.MachineDeployedCondition, infrav1.NoMachineAvailableReason)
			w.delete(other)
			second := w.deployedMachine("second", false, withKeep(spec), of(md))
			if second.Spec.SystemID != id {
				t.Errorf("the next Machine has %s, want %s", second.Spec.SystemID, id)
			}
			w.eventually(cluster, "without machines that are kept", func() bool { return w.keptIn(cluster) == 0 })
			w.scale(md, 0)
			w.delete(second)
			w.unchanged(before)
		})
	}
}

// Between the release and the next call anybody may take the server. Who is late says so.
func TestTheServerThatWasKeptIsLost(t *testing.T) {
	t.Parallel()
	w, cluster := clusterWorld(t, func(w *world) { w.region = contested })
	md, id := w.keepsServer(infrav1.MaasMachineSpec{})
	var stolen atomic.Bool
	w.maas.SetHook(func(call simulator.Call, at simulator.Phase) error {
		if call.Op == "release" && at == simulator.After && call.User == "admin" && !stolen.Load() {
			stolen.Store(w.steals())
		}
		return nil
	})
	second := w.newMachine("second", false, withKeep(infrav1.MaasMachineSpec{}), of(md))
	w.refused(second, infrav1.MachineDeployedCondition, infrav1.KeptMachineLostReason)
	if message := conditions.GetMessage(second, infrav1.MachineDeployedCondition); !strings.Contains(message, id) || !strings.Contains(message, "thief") {
		t.Errorf("%q does not name the server and the thief", message)
	}
	if theirs, _ := w.maas.Machine(id); theirs.Owner != "thief" || theirs.Status != "Allocated" {
		t.Errorf("the thief's machine is now %+v", theirs)
	}
	w.eventually(cluster, "without machines that are kept", func() bool { return w.keptIn(cluster) == 0 })
	w.delete(second)
}

// What a proxy before MAAS does not find is not lost.
func TestTheServerThatWasKeptIsNotLostToAProxy(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{"a page": "<html>404</html>", "a text": "404 page not found"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, _ := clusterWorld(t)
			md, id := w.keepsServer(infrav1.MaasMachineSpec{})
			fault, err := w.maas.AddFault(simulator.Fault{Method: http.MethodGet, Endpoint: "machines/{id}/", SystemID: id,
				Status: http.StatusNotFound, Body: body})
			if err != nil {
				t.Fatal(err)
			}
			second := w.newMachine("second", false, withKeep(infrav1.MaasMachineSpec{}), of(md))
			w.await("the server is asked for", second, func(context.Context) bool { return w.maas.Faults()[0].Done > 1 })
			w.maas.RemoveFault(fault)
			w.deployed(second)
			if second.Spec.SystemID != id {
				t.Errorf("the next Machine has %s, want %s", second.Spec.SystemID, id)
			}
			w.delete(second)
		})
	}
}

var errLost = errors.New("the response is lost")

// Nor does another object of ours get it then, of this manager or of another one, which would not know what is to be undone on it.
func TestTheServerThatWasKeptIsNotLostToOneOfOurs(t *testing.T) {
	t.Parallel()
	for name, another := range map[string]bool{"of this manager": false, "of another manager": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, cluster := clusterWorld(t, func(w *world) { w.region = contested })
			before := w.maas.State()
			spec := infrav1.MaasMachineSpec{StaticIP: "10.77.0.50"}
			md, id := w.keepsServer(spec)
			other := w
			if another {
				other = newWorld(t, func(other *world) { other.maas, other.maasURL = w.maas, w.maasURL })
				other.provisioned(other.newCluster())
			}
			waits := other.newMachine("waits", false, infrav1.MaasMachineSpec{})
			other.refused(waits, infrav1.MachineDeployedCondition, infrav1.NoMachineAvailableReason)
			w.loseRelease(func() {
				if another { // In one manager, no object allocates while another one does both calls.
					other.asksAgain(waits)
				}
			})
			second := w.deployedMachine("second", false, withKeep(spec), of(md))
			if second.Spec.SystemID != id {
				t.Errorf("the next Machine has %s, want %s", second.Spec.SystemID, id)
			}
			w.eventually(cluster, "without machines that are kept", func() bool { return w.keptIn(cluster) == 0 })
			if now, _ := w.maas.Machine(id); slices.Contains(now.Tags, quarantine.ExcludeTag) {
				t.Error("it is excluded still")
			}
			w.maas.SetHook(nil)
			other.delete(waits)
			if another {
				other.deleteCluster(&infrav1.MaasCluster{ObjectMeta: metav1.ObjectMeta{Namespace: other.namespace, Name: clusterName}})
			}
			w.scale(md, 0)
			w.delete(second)
			w.unchanged(before)
		})
	}
}

// loseRelease loses the response to the first release. Before that, something else happens.
func (w *world) loseRelease(meanwhile func()) {
	var once sync.Once
	w.maas.SetHook(func(call simulator.Call, at simulator.Phase) (err error) {
		if at == simulator.After && call.Op == "release" {
			once.Do(func() {
				meanwhile()
				err = errLost
			})
		}
		return err
	})
}

// asksAgain has a machine that waits for one in MAAS ask again, and returns when it has the response.
func (w *world) asksAgain(waits *infrav1.MaasMachine) {
	asked := func() (n int) {
		for _, call := range w.maas.Calls().Log {
			if call.Op == "allocate" {
				n++
			}
		}
		return n
	}
	before := asked()
	w.await("it asks again", waits, func(context.Context) bool {
		w.nudge(waits)
		return asked() > before
	})
}

// The Machine for which the server was kept goes before it has it. Until the next one takes it, no manager may.
func TestTheServerThatWasKeptStaysExcludedWhenItsTakerGoes(t *testing.T) {
	t.Parallel()
	w, cluster := clusterWorld(t, func(w *world) { w.region = contested })
	before := w.maas.State()
	spec := infrav1.MaasMachineSpec{StaticIP: "10.77.0.50"}
	md, id := w.keepsServer(spec)
	w.maas.SetHook(func(call simulator.Call, at simulator.Phase) error {
		if call.Op == "allocate" && at == simulator.Before {
			return errLost
		}
		return nil
	})
	excluded := func() bool {
		now, _ := w.maas.Machine(id)
		return slices.Contains(now.Tags, quarantine.ExcludeTag)
	}
	second := w.newMachine("second", false, withKeep(spec), of(md))
	w.await("it released the server", second, func(context.Context) bool {
		now, _ := w.maas.Machine(id)
		return now.Status == "Ready" && excluded()
	})
	w.delete(second)
	if !excluded() {
		t.Error("other managers may allocate it, although an address of ours is left on it")
	}
	w.maas.SetHook(nil)
	third := w.deployedMachine("third", false, withKeep(spec), of(md))
	w.scale(md, 0)
	w.delete(third)
	w.deleteCluster(cluster)
	w.unchanged(before)
}

// A server is kept only if a Machine is missing, and the one that goes was well.
func TestAServerIsNotKeptForNobody(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*world, *infrav1.MaasMachine, *clusterv1.MachineDeployment){
		"scaled down":       func(w *world, _ *infrav1.MaasMachine, md *clusterv1.MachineDeployment) { w.scale(md, 0) },
		"its owner is gone": func(w *world, _ *infrav1.MaasMachine, md *clusterv1.MachineDeployment) { w.delete(md) },
		"it was not healthy": func(w *world, m *infrav1.MaasMachine, _ *clusterv1.MachineDeployment) {
			w.checked(m.Name, metav1.ConditionFalse)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, cluster := clusterWorld(t, func(w *world) { w.region = contested })
			before := w.maas.State()
			md := w.deployment("md", 1)
			m := w.deployedMachine("m", false, withKeep(infrav1.MaasMachineSpec{StaticIP: "10.77.0.50"}), of(md))
			prepare(w, m, md)
			w.delete(m)
			if n := w.keptIn(cluster); n != 0 {
				t.Errorf("%d machines are kept", n)
			}
			w.unchanged(before)
		})
	}
}

// A server that waits is given back, as it was, when no Machine will take it.
func TestAServerThatIsKeptIsGivenBack(t *testing.T) {
	t.Parallel()
	for name, give := range map[string]func(*world, *infrav1.MaasCluster, *clusterv1.MachineDeployment){
		"scaled down":            func(w *world, _ *infrav1.MaasCluster, md *clusterv1.MachineDeployment) { w.scale(md, 0) },
		"its owner is gone":      func(w *world, _ *infrav1.MaasCluster, md *clusterv1.MachineDeployment) { w.delete(md) },
		"the time is over":       func(w *world, _ *infrav1.MaasCluster, _ *clusterv1.MachineDeployment) { w.passes(2 * time.Hour) },
		"the cluster is deleted": func(w *world, c *infrav1.MaasCluster, _ *clusterv1.MachineDeployment) { w.deleteCluster(c) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, withClock, func(w *world) { w.region = contested })
			empty := w.maas.State()
			cluster := w.provisionedCluster()
			md := w.deployment("md", 1)
			m := w.deployedMachine("m", false, withKeep(withSpec(shapes["lvm"], func(s *infrav1.MaasMachineSpec) { s.Interfaces = bonded })), of(md))
			id := m.Spec.SystemID
			w.delete(m)
			w.waits(cluster, id)
			w.restart()
			give(w, cluster, md)
			w.await("the server is given back", cluster, func(ctx context.Context) bool {
				now, _ := w.maas.Machine(id)
				list := &infrav1.MaasMachineList{}
				return now.Status == "Ready" && w.client.List(ctx, list, client.InNamespace(w.namespace)) == nil && len(list.Items) == 0
			})
			if name != "the cluster is deleted" {
				w.deleteCluster(cluster)
			}
			w.unchanged(empty)
		})
	}
}

// That nobody may read the MachineDeployment for a moment, or that it is not restored yet, does not prove that it is gone: what
// the server holds would be lost. Its time ends it all the same.
func TestAServerThatIsKeptOutlivesAnOwnerThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for name, code := range map[string]int{"may not be read": http.StatusForbidden, "not served": http.StatusNotFound} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var hidden atomic.Bool
			var asked atomic.Int32
			w, cluster := clusterWorld(t, withClock, func(w *world) {
				w.region = contested
				w.between = func(next http.RoundTripper) http.RoundTripper {
					return roundTripper(func(request *http.Request) (*http.Response, error) {
						if !hidden.Load() || !strings.Contains(request.URL.Path, "/machinedeployments/") {
							return next.RoundTrip(request)
						}
						asked.Add(1)
						status := apierrors.NewGenericServerResponse(code, "GET", schema.GroupResource{}, "", "", 0, false).Status()
						body, err := json.Marshal(status)
						return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}},
							Body: io.NopCloser(bytes.NewReader(body)), Request: request}, err
					})
				}
			})
			_, id := w.keepsServer(infrav1.MaasMachineSpec{})
			w.waits(cluster, id)
			hidden.Store(true)
			w.await("its owner is asked for again and again", cluster, func(context.Context) bool { return asked.Load() > 20 })
			w.waits(cluster, id)
			w.passes(2 * time.Hour)
			w.released(id)
		})
	}
}

// A Machine goes while its MachineDeployment can't be read: the next one may need its server.
func TestAServerIsKeptForAnOwnerThatCannotBeRead(t *testing.T) {
	t.Parallel()
	w, cluster := clusterWorld(t, func(w *world) {
		w.region = contested
		w.between = func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(request *http.Request) (*http.Response, error) {
				if strings.Contains(request.URL.Path, "/machinedeployments/") {
					request = request.Clone(request.Context())
					request.URL.Path = strings.Replace(request.URL.Path, "/machinedeployments/", "/notserved/", 1)
				}
				return next.RoundTrip(request)
			})
		}
	})
	_, id := w.keepsServer(infrav1.MaasMachineSpec{})
	w.waits(cluster, id)
}

// Disks that MAAS does not list hold what they held; a machine with others says so in time.
func TestWhatTheDisksOfAServerThatIsKeptHold(t *testing.T) {
	t.Parallel()
	w, cluster := clusterWorld(t, func(w *world) { w.region = strings.Replace(contested, "disks: [100]", "disks: [100, 400, 400]", 1) })
	md := w.deployment("md", 1)
	id := w.maas.Machines()[0].SystemID
	disks, err := w.maasClient().ListMachines(t.Context(), maas.MachineFilter{SystemIDs: []string{id}})
	if err != nil {
		t.Fatal(err)
	}
	w.maasCall(http.MethodDelete, fmt.Sprintf("nodes/%s/blockdevices/%d/", id, disks[0].Disks[2].ID), nil)
	first := w.deployedMachine("first", false, withKeep(infrav1.MaasMachineSpec{}), of(md))
	w.await("an event names the disks that MAAS lists", first, func(ctx context.Context) bool {
		list := &eventsv1.EventList{}
		return w.client.List(ctx, list, client.InNamespace(w.namespace)) == nil && slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool {
			return e.Reason == "DataDisksNotKept" && strings.Contains(e.Note, "sdb") && !strings.Contains(e.Note, "sdc")
		})
	})
	for _, name := range []string{"sda", "sdb", "sdc"} {
		w.must(w.maas.WriteDisk(id, name, "data of "+name))
	}
	w.delete(first)
	w.waits(cluster, id)
	w.deployedMachine("second", false, withKeep(infrav1.MaasMachineSpec{}), of(md))
	now, _ := w.maas.Machine(id)
	if want := map[string]string{"sdc": "data of sdc"}; !maps.Equal(now.Data, want) {
		t.Errorf("the disks hold %v, want %v", now.Data, want)
	}
}

// A claim whose response was lost may take effect when the machine is in the pool again, also if another claim was
// faster: then nobody knows whose it is. So the machine stays ours until that is over, also for a new manager.
func TestAServerThatWasKeptIsNotReleasedBeforeALateClaim(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t, func(w *world) { w.region, w.settleTime = contested, time.Hour })
	md, id := w.keepsServer(infrav1.MaasMachineSpec{})
	var claims atomic.Int32
	lost := simulator.Fault{Op: "allocate", DropBefore: true}
	w.maas.ChooseFaults(func(call simulator.Call) *simulator.Fault {
		if call.Op != lost.Op || claims.Add(1) > 1 {
			return nil
		}
		return &lost
	})
	second := w.newMachine("second", false, withKeep(infrav1.MaasMachineSpec{}), of(md))
	w.await("the claim is lost", second, func(context.Context) bool { return claims.Load() > 0 })
	w.restart()
	w.eventually(second, "claimed anew", func() bool { return second.Spec.SystemID == id })
	w.scale(md, 0)
	w.beginDeletion(second)
	w.await("it waits for the first claim, or is gone", second, func(ctx context.Context) bool {
		reason := conditions.GetReason(second, infrav1.MachineDeployedCondition)
		return w.isGone(ctx, second) || reason == infrav1.MAASUnavailableReason
	})
	if m := w.metal(id); m.Owner != "admin" {
		t.Errorf("the machine is %s, of %q: the late claim would acquire it for nobody", m.Status, m.Owner)
	}
}

// A manager dies when a server is kept, before its MaasMachine goes. The next one takes it by then, so that no Machine is
// missing any more. It is not released twice: the second release would hit whoever has it then.
func TestAServerThatWasKeptIsNotReleasedByWhoHadIt(t *testing.T) {
	t.Parallel()
	w, cluster := clusterWorld(t, func(w *world) { w.region = oneServer })
	md := w.deployment("md", 1)
	first := w.deployedMachine("first", false, withKeep(infrav1.MaasMachineSpec{}), of(md))
	next := w.newMachine("next", false, infrav1.MaasMachineSpec{}, of(md))
	kept := record.KeptMachine{SystemID: first.Spec.SystemID, Hostname: "first", For: keep.OwnerOf(first), Machine: first.Name,
		Spec: first.Spec, TakenBy: next.UID}
	w.must(w.client.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster))
	rec, err := (&record.Records{Client: w.client}).OpenCluster(cluster)
	w.must(err)
	_, err = rec.Add(t.Context(), func(all *record.KeptMachines) bool { return all.Keep(kept, time.Now(), time.Hour) })
	w.must(err)
	w.delete(first)
	if m := w.metal(first.Spec.SystemID); m.Status != "Deployed" || w.keptIn(cluster) != 1 {
		t.Errorf("the machine is %s, and %d are kept: it was released by the MaasMachine that kept it", m.Status, w.keptIn(cluster))
	}
}

// A person releases a server while it waits. What is left on it is undone all the same, also by a new manager.
func TestAServerThatAPersonReleasesWhileItWaitsIsAsBefore(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]infrav1.MaasMachineSpec{
		"interfaces": {Interfaces: bonded},
		"address":    {StaticIP: "10.77.0.50"},
		"storage":    shapes["lvm"],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, cluster := clusterWorld(t, func(w *world) { w.region = oneServer })
			before := w.maas.State()
			md, id := w.keepsServer(spec)
			w.waits(cluster, id)
			w.restart()
			w.maasCall(http.MethodPost, "machines/"+id+"/?op=release", nil)
			w.released(id)
			w.scale(md, 0)
			w.eventually(cluster, "without machines that are kept", func() bool { return w.keptIn(cluster) == 0 })
			w.unchanged(before)
		})
	}
}

// A server that waits is not always as the next Machine can take it. It is ours all the same, and not left behind.
func TestAServerThatIsKeptIsNotLeftBehind(t *testing.T) {
	t.Parallel()
	for name, meddle := range map[string]func(*world, string){
		"it is tested": func(w *world, id string) { w.maasCall(http.MethodPost, "machines/"+id+"/?op=test", nil) },
		"it can't be switched off": func(w *world, id string) {
			w.switchOn(id)
			w.failNext("power")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, cluster := clusterWorld(t, func(w *world) { w.region = oneServer + "timings: {test: 3000h}\n" })
			md, id := w.keepsServer(infrav1.MaasMachineSpec{})
			meddle(w, id)
			second := w.newMachine("second", false, withKeep(infrav1.MaasMachineSpec{}), of(md))
			w.deployed(second) // There is no other server.
			w.eventually(cluster, "without machines that are kept", func() bool { return w.keptIn(cluster) == 0 })
		})
	}
}

// Nor if the Machine that was to get it goes, after a release that failed has removed our name.
func TestAServerWhoseReleaseFailedIsGivenBackWithoutItsHeir(t *testing.T) {
	t.Parallel()
	w, cluster := clusterWorld(t, func(w *world) { w.region, w.settleTime = oneServer, 6*time.Second })
	before := w.maas.State()
	md, id := w.keepsServer(infrav1.MaasMachineSpec{})
	w.switchOn(id)
	w.failNext("power")
	second := w.newMachine("second", false, withKeep(infrav1.MaasMachineSpec{}), of(md))
	w.await("its release fails", second, func(context.Context) bool { return w.metal(id).AgentName == "" })
	w.scale(md, 0)
	w.delete(second)
	w.eventually(cluster, "without machines that are kept", func() bool { return w.keptIn(cluster) == 0 })
	w.unchanged(before)
}
