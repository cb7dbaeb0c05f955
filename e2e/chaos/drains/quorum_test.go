// SPDX-License-Identifier: Apache-2.0

package drains_test

import (
	"sync"
	"testing"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/life"
)

// watchInterval is the time between two looks at all clusters.
const watchInterval = 200 * time.Millisecond

// watcher counts control planes all the time.
type watcher struct {
	stop chan struct{}
	done sync.WaitGroup
}

// watch fails the test when a cluster has too few control planes, until end is called.
func watch(t *testing.T, lives []*life.Life) *watcher {
	t.Helper()
	w := &watcher{stop: make(chan struct{})}
	w.done.Go(func() {
		worst, looks := map[string]int{}, 0
		for tick := time.NewTicker(watchInterval); ; {
			select {
			case <-w.stop:
				tick.Stop()
				if t.Logf("the fewest control planes that ran, in %d looks: %v", looks, worst); looks == 0 {
					t.Error("nobody looked at the control planes")
				}
				return
			case <-t.Context().Done(): // The test has failed.
				tick.Stop()
				return
			case <-tick.C:
			}
			for i, l := range lives {
				running, err := controlPlanes(l)
				if err != nil {
					continue // The computer is busy; nothing is known.
				}
				looks++
				least, seen := worst[l.Key.Name]
				if seen && running >= least {
					continue
				}
				worst[l.Key.Name] = running
				if want := max(attack.clusters[i].controlPlanes-1, 1); running < want {
					t.Errorf("cluster %s has %d control planes that run and stay, want at least %d", l.Key.Name, running, want)
				}
			}
		}
	})
	return w
}

func (w *watcher) end() {
	close(w.stop)
	w.done.Wait()
}

// controlPlanes counts those whose Machines stay and have a Node, and whose VMs run, as MAAS knows.
func controlPlanes(l *life.Life) (running int, err error) {
	machines, hardware := &clusterv1.MachineList{}, &infrav1.MaasMachineList{}
	for _, list := range []client.ObjectList{machines, hardware} {
		of := client.MatchingLabels{clusterv1.ClusterNameLabel: l.Key.Name}
		if err := l.Box.Client.List(l.Context(), list, client.InNamespace(l.Key.Namespace), of); err != nil {
			return 0, err
		}
	}
	systemIDs := map[string]string{}
	for i := range hardware.Items {
		systemIDs[hardware.Items[i].Name] = hardware.Items[i].Spec.SystemID
	}
	for i := range machines.Items {
		m := &machines.Items[i]
		if !util.IsControlPlaneMachine(m) || !m.DeletionTimestamp.IsZero() || !m.Status.NodeRef.IsDefined() {
			continue
		}
		if vm, found := l.Box.MAAS.Machine(systemIDs[m.Spec.InfrastructureRef.Name]); found && vm.Running {
			running++
		}
	}
	return running, nil
}
