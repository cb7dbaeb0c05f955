// SPDX-License-Identifier: Apache-2.0

package life

import (
	"sync"
	"testing"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// quorumInterval is the time between two looks at all clusters.
const quorumInterval = 200 * time.Millisecond

// Replicas is a cluster and the number of its control planes.
type Replicas struct {
	*Life
	ControlPlanes int
}

// WatchQuorum fails the test when a cluster has two control planes less than it should have, or none, until end is called.
func WatchQuorum(t *testing.T, clusters ...Replicas) (end func()) {
	t.Helper()
	stop, done := make(chan struct{}), &sync.WaitGroup{}
	done.Go(func() {
		worst, looks := map[string]int{}, 0
		tick := time.NewTicker(quorumInterval)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				if t.Logf("the fewest control planes that ran, in %d looks: %v", looks, worst); looks == 0 {
					t.Error("nobody looked at the control planes")
				}
				return
			case <-t.Context().Done(): // The test has failed.
				return
			case <-tick.C:
			}
			for _, c := range clusters {
				running, err := c.running()
				if err != nil {
					continue // The computer is busy; nothing is known.
				}
				looks++
				least, seen := worst[c.Key.Name]
				if seen && running >= least {
					continue
				}
				worst[c.Key.Name] = running
				if want := max(c.ControlPlanes-1, 1); running < want {
					t.Errorf("cluster %s has %d control planes that run and stay, want at least %d", c.Key.Name, running, want)
				}
			}
		}
	})
	return func() {
		close(stop)
		done.Wait()
	}
}

// running counts the control planes whose Machines stay and have a Node, and whose VMs run, as MAAS or LXD knows.
func (l *Life) running() (running int, err error) {
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
		if vm, found := l.Box.Machine(systemIDs[m.Spec.InfrastructureRef.Name]); found && vm.Running {
			running++
		}
	}
	return running, nil
}
