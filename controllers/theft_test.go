// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/turns"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// Of many removals most wait for their turn. A proof from before the wait may not hold after it.
func TestAMachineThatIsTakenWhileItsRemovalWaitsIsTheirs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withOtherUser(true))
	cluster := w.newCluster()
	w.provisioned(cluster)
	m := w.newMachine("taken", false, infrav1.MaasMachineSpec{})
	w.deployed(m)
	w.stealAfterWait(cluster, turns.Removal, m.Spec.SystemID, func() { w.beginDeletion(m) })
	w.goes(m)
	w.isTheirs(m.Spec.SystemID)
}

// A Machine may wait long for its turn to take a server over.
func TestAServerThatIsTakenWhileItsHeirWaitsIsTheirs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) { w.region = oneServer }, withOtherUser(true))
	cluster := w.newCluster()
	w.provisioned(cluster)
	md, id := w.keepsServer(infrav1.MaasMachineSpec{})
	var heir *infrav1.MaasMachine
	w.stealAfterWait(cluster, turns.Machines, id, func() {
		heir = w.newMachine("second", false, withKeep(infrav1.MaasMachineSpec{}), of(md))
	})
	w.eventually(cluster, "without machines that are kept", func() bool { return w.keptIn(cluster) == 0 })
	w.isTheirs(id)
	w.refused(heir, infrav1.MachineDeployedCondition, infrav1.KeptMachineLostReason)
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
