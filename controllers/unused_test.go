// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/ownership"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/quarantine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// A machine that is acquired and not used is given back, also if MAAS can't switch it off at first: it takes our name off
// it all the same.
func TestAMachineThatIsNotUsedIsGivenBackThoughItCannotBeSwitchedOff(t *testing.T) {
	t.Parallel()
	for name, deleted := range map[string]bool{"the object stays": false, "the object is deleted": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, cluster := clusterWorld(t)
			before := w.maas.State()
			w.acquiredBefore(cluster, "m", "metal-b")
			id := w.acquiredBefore(cluster, "m", "metal-a")
			w.switchOn(id)
			service, _ := w.machineService(cluster)
			service.Quarantine.Remember(&maas.Machine{SystemID: id, Hostname: "metal-a"}, quarantine.Cause{By: "another user"})
			w.failNext("power")
			m := w.newMachine("m", false, infrav1.MaasMachineSpec{})
			w.await("its release fails", m, func(context.Context) bool { return w.metal(id).AgentName == "" })
			if !deleted {
				w.deployed(m)
			}
			w.delete(m)
			w.unchanged(before)
		})
	}
}

// Nor is it held if another user takes it when its release has begun: it is theirs.
func TestAMachineThatIsNotUsedAndTakenMeanwhileIsTheirs(t *testing.T) {
	t.Parallel()
	w, cluster := clusterWorld(t, withOtherUser(true))
	w.acquiredBefore(cluster, "m", "metal-b")
	id := w.acquiredBefore(cluster, "m", "metal-a")
	w.switchOn(id)
	service, _ := w.machineService(cluster)
	service.Quarantine.Remember(&maas.Machine{SystemID: id, Hostname: "metal-a"}, quarantine.Cause{By: "another user"})
	w.failNext("power")
	m := w.newMachine("m", false, infrav1.MaasMachineSpec{})
	w.await("its release fails", m, func(context.Context) bool { return w.metal(id).AgentName == "" })
	w.steal(id)
	w.deployed(m)
	w.delete(m)
	w.isTheirs(id)
}

// Nor is one that was acquired before a person named another one.
func TestAMachineThatIsNotNamedIsGivenBackThoughItCannotBeSwitchedOff(t *testing.T) {
	t.Parallel()
	w, cluster := clusterWorld(t)
	before := w.maas.State()
	id := w.acquiredBefore(cluster, "m", "metal-a")
	w.switchOn(id)
	w.failNext("power")
	m := w.newMachine("m", false, infrav1.MaasMachineSpec{SystemID: w.named("metal-b")}, func(meta *metav1.ObjectMeta) {
		meta.Annotations = map[string]string{infrav1.RecordAnnotation: recordText(t, record.Calls{
			Pending: []record.Pending{{Op: record.Allocate, At: metav1.Now()}},
		})}
	})
	w.await("its release fails", m, func(context.Context) bool { return w.metal(id).AgentName == "" })
	w.deployed(m)
	w.delete(m)
	w.unchanged(before)
}

// Two machines were acquired, and the object goes: MAAS is asked for the second one after the first was given back, and
// does not respond.
func TestOfTwoMachinesNoneIsLeftWhenTheObjectGoes(t *testing.T) {
	t.Parallel()
	w, cluster := clusterWorld(t)
	before := w.maas.State()
	w.acquiredBefore(cluster, "m", "metal-a")
	w.acquiredBefore(cluster, "m", "metal-b")
	var released, failed atomic.Int32
	looking, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	w.maas.SetHook(func(call simulator.Call, at simulator.Phase) error {
		isSearch := at == simulator.Before && call.Endpoint == "machines/" && strings.HasPrefix(call.Query, "agent_name=")
		switch {
		case isSearch && released.Load() == 0:
			once.Do(func() { close(looking) })
			<-goOn
		case call.Op == "release" && at == simulator.After:
			released.Add(1)
		case isSearch && released.Load() == 1 && failed.Add(1) <= 3:
			return errLost
		}
		return nil
	})
	m := w.newMachine("m", false, infrav1.MaasMachineSpec{}, func(meta *metav1.ObjectMeta) {
		meta.Annotations = map[string]string{infrav1.RecordAnnotation: recordText(t, record.Calls{
			Pending: []record.Pending{{Op: record.Allocate, At: metav1.Now()}},
		})}
	})
	<-looking
	w.beginDeletion(m)
	close(goOn)
	w.goes(m)
	w.unchanged(before)
}

// acquiredBefore acquires a machine as a MaasMachine that is not there yet does.
func (w *world) acquiredBefore(cluster *infrav1.MaasCluster, object, hostname string) (systemID string) {
	w.t.Helper()
	systemID = w.named(hostname)
	w.allocateAs(ownership.AgentName(cluster.Annotations[infrav1.OwnerIDAnnotation], object), systemID)
	return systemID
}

// switchOn switches a machine on, as a person does.
func (w *world) switchOn(systemID string) {
	w.t.Helper()
	w.maasCall(http.MethodPost, "machines/"+systemID+"/?op=power_on", nil)
	w.await("it is on", nil, func(context.Context) bool { return w.metal(systemID).Power == "on" })
}
