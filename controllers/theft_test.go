// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/turns"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// Of many removals most wait for their turn. A proof from before the wait may not hold after it.
func TestAMachineThatIsTakenWhileItsRemovalWaitsIsTheirs(t *testing.T) {
	t.Parallel()
	w, cluster := clusterWorld(t, withOtherUser(true))
	m := w.deployedMachine("taken", false, infrav1.MaasMachineSpec{})
	w.stealAfterWait(cluster, turns.Removal, m.Spec.SystemID, func() { w.beginDeletion(m) })
	w.goes(m)
	w.isTheirs(m.Spec.SystemID)
}

// A Machine may wait long for its turn to take a server over.
func TestAServerThatIsTakenWhileItsHeirWaitsIsTheirs(t *testing.T) {
	t.Parallel()
	w, cluster := clusterWorld(t, func(w *world) { w.region = oneServer }, withOtherUser(true))
	md, id := w.keepsServer(infrav1.MaasMachineSpec{})
	var heir *infrav1.MaasMachine
	w.stealAfterWait(cluster, turns.Machines, id, func() {
		heir = w.newMachine("second", false, withKeep(infrav1.MaasMachineSpec{}), of(md))
	})
	w.eventually(cluster, "without machines that are kept", func() bool { return w.keptIn(cluster) == 0 })
	w.isTheirs(id)
	w.refused(heir, infrav1.MachineDeployedCondition, infrav1.KeptMachineLostReason)
}

// The host cluster may take long to respond, and MAAS whose VM hosts are asked for: the machine may be another user's
// when it is to be switched off.
func TestAHostThatIsTakenWhileItsClusterIsAskedIsTheirs(t *testing.T) {
	t.Parallel()
	w, cluster := hostWorld(t, withOtherUser(true))
	m := w.deployedMachine("taken", true, infrav1.MaasMachineSpec{FailureDomain: "zone-a"})
	node := w.joined(m)
	w.saysOnNode(node, corev1.ConditionFalse, "LXDNotReady", "there is no bridge br0")
	w.patch(node, func() {
		asked := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
		node.Annotations = map[string]string{infrav1.LXDHostRetireAnnotation: asked}
	})
	direct, err := client.NewWithWatch(apiConfig, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		t.Fatal(err)
	}
	asks, goOn := make(chan struct{}), make(chan struct{})
	var first sync.Once
	w.stopManager()
	w.workload = interceptor.NewClient(direct, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if _, nodes := list.(*corev1.NodeList); nodes {
				first.Do(func() { close(asks); <-goOn })
			}
			return c.List(ctx, list, options...)
		},
	})
	w.startManager()
	w.maas.ResetCalls()
	w.beginDeletion(m)
	<-asks
	w.steal(m.Spec.SystemID)
	close(goOn)
	w.goes(m)
	w.isTheirs(m.Spec.SystemID)
	for _, call := range w.maas.Calls().Log {
		if call.Op == "power_off" && call.User == "admin" {
			t.Error("the other user's machine was switched off")
		}
	}
	w.deleteCluster(cluster)
}

// stealAfterWait begins what waits for a turn of a line, and makes another user acquire the machine when it has the
// turn: before MAAS is asked whose the machine is, or to change it.
func (w *world) stealAfterWait(cluster *infrav1.MaasCluster, line turns.Line, systemID string, begin func()) {
	w.t.Helper()
	pass, letGo := w.takeAllTurns(cluster, line)
	defer letGo()
	var passed bool
	var passing sync.Mutex
	var asks atomic.Bool
	goOn := make(chan struct{})
	defer close(goOn)
	w.maas.SetHook(func(call simulator.Call, at simulator.Phase) error {
		proves := strings.Contains(call.Query, "agent_name=") && strings.Contains(call.Query, systemID)
		changes := call.Method == http.MethodPost && strings.HasSuffix(call.Path, "/"+systemID+"/")
		if at != simulator.Before || call.User != "admin" || !proves && !changes {
			return nil
		}
		passing.Lock()
		defer passing.Unlock()
		if passed {
			asks.Store(true)
			<-goOn
		}
		return nil
	})
	begin()
	w.await("it gets a turn", nil, func(context.Context) bool {
		passing.Lock()
		defer passing.Unlock()
		passed = pass()
		return passed
	})
	w.await("it asks MAAS", nil, func(context.Context) bool { return asks.Load() })
	w.steal(systemID)
}

// takeAllTurns takes all turns of a line, so that no other caller gets one until letGo. pass offers one to others, and
// reports whether one of them has got it.
func (w *world) takeAllTurns(cluster *infrav1.MaasCluster, line turns.Line) (pass func() bool, letGo func()) {
	w.t.Helper()
	s, err := w.scopes.Cluster(w.t.Context(), w.cluster, cluster)
	if err != nil {
		w.t.Fatal(err)
	}
	atOnce, cancel := context.WithCancel(w.t.Context())
	cancel()
	var taken []func()
	take := func() bool {
		done, err := s.Turn(atOnce, line, turns.Again)
		if err == nil {
			taken = append(taken, done)
		}
		return err == nil
	}
	for all := false; !all; {
		all = !take()
	}
	pass = func() bool {
		done := taken[0]
		taken = taken[1:]
		done()
		return !take()
	}
	return pass, func() {
		for _, done := range taken {
			done()
		}
	}
}

// steal makes another user acquire a machine of ours.
func (w *world) steal(systemID string) {
	w.t.Helper()
	other := w.as(otherKey)
	if _, err := other.ReleaseMachine(w.t.Context(), maas.UnrecordedRelease("a test"), systemID, maas.ReleaseParams{}); err != nil {
		w.t.Fatal(err)
	}
	w.await(systemID+" is released", w.cluster, func(context.Context) bool {
		_, err := other.AllocateMachine(w.t.Context(), maas.Unrecorded("a test"), maas.AllocateParams{SystemID: systemID, AgentName: "theirs"})
		return err == nil
	})
}

// isTheirs checks that a machine is the other user's, as steal has acquired it.
func (w *world) isTheirs(systemID string) {
	w.t.Helper()
	theirs, there := w.maas.Machine(systemID)
	if !there || theirs.AgentName != "theirs" || theirs.Status != "Allocated" {
		w.t.Fatalf("the other user's machine is %s, with the agent name %q", theirs.Status, theirs.AgentName)
	}
}
