// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// pause pauses the Cluster, as `clusterctl move` does, or unpauses it.
func (w *world) pause(paused bool) {
	w.t.Helper()
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"paused": paused}})
	if err != nil {
		w.t.Fatal(err)
	}
	w.must(w.client.Patch(w.t.Context(), w.cluster, client.RawPatch(client.Merge.Type(), patch)))
}

// setPaused pauses the Cluster, or unpauses it, and waits until its infrastructure reports that.
func (w *world) setPaused(cluster *infrav1.MaasCluster, paused bool, machines ...*infrav1.MaasMachine) {
	w.t.Helper()
	w.pause(paused)
	is := func(object conditions.Getter) bool {
		return conditions.Has(object, clusterv1.PausedCondition) && conditions.IsTrue(object, clusterv1.PausedCondition) == paused
	}
	w.eventually(cluster, "aware of the pause", func() bool { return is(cluster) })
	for _, m := range machines {
		w.eventually(m, "aware of the pause", func() bool { return is(m) })
	}
}

// hold makes MAAS delay calls of this op until release; reached is closed at the first one.
func (w *world) hold(op string) (reached <-chan struct{}, release func()) {
	asked, held := make(chan struct{}), make(chan struct{})
	ask := sync.OnceFunc(func() { close(asked) })
	w.maas.SetHook(func(call simulator.Call, phase simulator.Phase) error {
		if call.Op == op && phase == simulator.Before {
			ask()
			<-held
		}
		return nil
	})
	release = sync.OnceFunc(func() { close(held) })
	w.t.Cleanup(release)
	return asked, release
}

// staysBlocked checks for a moment that the move of a paused cluster stays blocked.
func (w *world) staysBlocked(cluster *infrav1.MaasCluster, while string) {
	w.t.Helper()
	err := wait.PollUntilContextTimeout(w.t.Context(), 20*time.Millisecond, 2*time.Second, true, func(context.Context) (bool, error) {
		// With a context of its own: the client refuses calls that could not complete before the deadline.
		err := w.client.Get(w.t.Context(), client.ObjectKeyFromObject(cluster), cluster)
		return err == nil && !blocksMove(cluster), err
	})
	if !wait.Interrupted(err) {
		w.t.Errorf("the cluster may be moved while %s: %v", while, err)
	}
}

// eventNames waits for the event that names the machine which blocks a move.
func (w *world) eventNames(machine string) {
	w.t.Helper()
	w.await("an event names "+machine, w.cluster, func(ctx context.Context) bool {
		list := &corev1.EventList{}
		return w.client.List(ctx, list, client.InNamespace(w.namespace)) == nil && slices.ContainsFunc(list.Items, func(e corev1.Event) bool {
			return e.Reason == "MoveBlocked" && strings.Contains(e.Message, machine)
		})
	})
}

// A cluster can be moved only while it is paused and all calls under way have ended.
func TestMoveWaitsUntilNothingIsDone(t *testing.T) {
	t.Parallel()
	w, cluster := clusterWorld(t)
	m := w.deployedMachine("m", false, infrav1.MaasMachineSpec{})
	w.eventually(cluster, "kept from being moved", func() bool { return blocksMove(cluster) })
	w.setPaused(cluster, true, m)
	w.eventually(cluster, "free to be moved", func() bool { return !blocksMove(cluster) })
	w.maasCall(http.MethodPost, "machines/"+m.Spec.SystemID+"/?op=set_workload_annotations", url.Values{"capmaas-owner": {""}})
	reached, release := w.hold("set_workload_annotations")
	w.setPaused(cluster, false)
	w.eventually(cluster, "kept from being moved again", func() bool { return blocksMove(cluster) })
	w.await("a call is under way", m, func(context.Context) bool { return isClosed(reached) })
	w.setPaused(cluster, true)
	w.staysBlocked(cluster, "a call is under way")
	release()
	w.eventually(cluster, "free to be moved once more", func() bool { return !blocksMove(cluster) })
}

func isClosed(channel <-chan struct{}) bool {
	select {
	case <-channel:
		return true
	default:
		return false
	}
}

// Machines that clusterctl would lose, or bring back, block the move: one that is being created, and one that is being
// deleted.
func TestMachinesOnTheirWayHoldUpTheMove(t *testing.T) {
	t.Parallel()
	w, cluster := clusterWorld(t)
	before := w.maas.State()
	runs := w.deployedMachine("runs", false, vm)
	reached, release := w.hold("deploy")
	m := w.newMachine("comes", false, infrav1.MaasMachineSpec{})
	w.await("a machine is being made", m, func(context.Context) bool { return isClosed(reached) })
	w.setPaused(cluster, true, runs)
	w.eventNames("comes")
	release()
	w.eventually(m, "aware of the pause", func() bool { return conditions.IsTrue(m, clusterv1.PausedCondition) })
	w.staysBlocked(cluster, "a machine comes")
	w.setPaused(cluster, false)
	w.deployed(m)

	w.annotate(m, clusterv1.PausedAnnotation, ptr.To("")) // So that it stays on its way out.
	w.eventually(m, "paused", func() bool { return conditions.IsTrue(m, clusterv1.PausedCondition) })
	w.beginDeletion(m)
	w.setPaused(cluster, true, runs)
	w.staysBlocked(cluster, "a machine goes")
	w.setPaused(cluster, false)
	w.annotate(m, clusterv1.PausedAnnotation, nil)
	w.goes(m)
	w.setPaused(cluster, true, runs)
	w.eventually(cluster, "free to be moved", func() bool { return !blocksMove(cluster) })
	w.setPaused(cluster, false, runs)
	w.delete(runs)
	w.unchanged(before)
}

// An object that clusterctl deletes because it has moved it lives on elsewhere. MAAS is not asked for anything, even if
// the manager missed the pause.
func TestMovedMachinesAreNotReleased(t *testing.T) {
	t.Parallel()
	w, cluster := clusterWorld(t)
	virtual, metal := w.newMachine("virtual", true, vm), w.newMachine("metal", false, infrav1.MaasMachineSpec{})
	w.deployed(virtual)
	w.deployed(metal)
	w.eventually(cluster, "ready", func() bool { return conditions.IsTrue(cluster, infrav1.DNSReadyCondition) })
	before := w.maas.State()
	moved := []client.Object{virtual, metal, cluster}
	for _, object := range moved {
		// As clusterctl does, which leaves no other annotation.
		patch := []byte(`[{"op": "add", "path": "/metadata/annotations", "value": {"` + clusterctlv1.DeleteForMoveAnnotation + `": ""}}]`)
		w.must(w.client.Patch(t.Context(), object, client.RawPatch("application/json-patch+json", patch)))
		w.beginDeletion(object)
	}
	other := w.newMachine("other", false, infrav1.MaasMachineSpec{}) // By then all others have been reconciled.
	w.eventually(other, "looked at", func() bool { return len(other.Status.Conditions) > 0 })
	w.unchanged(before)
	for _, object := range moved {
		if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(object), object); apierrors.IsNotFound(err) {
			t.Errorf("%s was let go, which is clusterctl's to do", object.GetName())
		}
	}
	for _, call := range w.maas.Calls().Log {
		if call.Op == "release" || call.Method == http.MethodDelete {
			t.Errorf("MAAS was asked to %s %s", call.Method, call.Endpoint)
		}
	}
}

// MAAS lets only the user who acquired a machine annotate it. If the key is another user's now, the machine is
// reconciled and released all the same, and the call is not repeated all the time.
func TestAMachineThatAnotherMAASUserAcquired(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) {
		w.region = strings.Replace(region, "users: [", `users: [{name: other, admin: true, keys: ["other:token:secret"]}, `, 1)
	})
	w.provisionedCluster()
	before := w.maas.State()
	virtual, metal := w.newMachine("virtual", false, vm), w.newMachine("metal", false, infrav1.MaasMachineSpec{})
	machines := []*infrav1.MaasMachine{virtual, metal}
	for _, m := range machines {
		w.deployed(m)
		w.annotate(m, clusterv1.PausedAnnotation, ptr.To(""))
		w.eventually(m, "paused", func() bool { return conditions.IsTrue(m, clusterv1.PausedCondition) })
		// The annotations that the manager of another management cluster leaves.
		w.maasCall(http.MethodPost, "machines/"+m.Spec.SystemID+"/?op=set_workload_annotations", url.Values{"capmaas-cluster": {"elsewhere"}})
	}
	secret := &corev1.Secret{}
	secret.Namespace, secret.Name = w.namespace, "maas"
	w.must(w.client.Patch(t.Context(), secret, client.RawPatch(client.Merge.Type(), []byte(`{"stringData": {"apiKey": "other:token:secret"}}`))))
	refused := func() (n int) {
		for _, call := range w.maas.Calls().Log {
			if call.Op == "set_workload_annotations" && call.Status == http.StatusConflict {
				n++
			}
		}
		return n
	}
	for i, m := range machines {
		w.annotate(m, clusterv1.PausedAnnotation, nil)
		w.await("MAAS refuses to annotate it", m, func(context.Context) bool { return refused() == i+1 })
		w.deployed(m)
		w.poke(m)
	}
	for _, m := range machines {
		w.deployed(m)
		w.delete(m)
	}
	if n := refused(); n != len(machines) {
		t.Errorf("MAAS refused to annotate %d times, want once for each machine", n)
	}
	w.unchanged(before)
}

// A conflict for another reason does not count: without the annotations, a machine whose release fails could not be
// proven to be ours.
func TestAMachineThatCouldNotBeAnnotatedOnceIsAnnotatedAgain(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t)
	w.fault(simulator.Fault{Op: "set_workload_annotations", Status: http.StatusConflict, First: 1})
	m := w.deployedMachine("md-0", false, infrav1.MaasMachineSpec{})
	if taken, _ := w.maas.Machine(m.Spec.SystemID); taken.Annotations["capmaas-machine"] == "" {
		t.Errorf("the machine is %+v, want it annotated", taken)
	}
	w.delete(m)
}

func blocksMove(c *infrav1.MaasCluster) bool {
	_, blocks := c.Annotations[clusterctlv1.BlockMoveAnnotation]
	return blocks
}
