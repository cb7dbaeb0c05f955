// SPDX-License-Identifier: Apache-2.0

package crash_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// figures are the results of a walk.
type figures struct {
	cancel func() // ends the counting of machines

	mutex                             sync.Mutex
	lives, failed, kills, missed      int
	made, deleted, acquired, released int
}

// newFigures counts what happens to machines from now on.
func newFigures(maas *simulator.Simulator) *figures {
	f := &figures{}
	f.cancel = maas.Subscribe(f.machine)
	return f
}

func (f *figures) machine(m simulator.MachineSnapshot, change simulator.Change) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	const inPool = "Ready"
	isVM := m.VMHost != ""
	switch {
	case isVM && change.Kind == simulator.ChangeCreated:
		f.made++
	case isVM && change.Kind == simulator.ChangeDeleted:
		f.deleted++
	case !isVM && change.Kind == simulator.ChangeStatus && change.From == inPool:
		f.acquired++
	case !isVM && change.Kind == simulator.ChangeStatus && change.To == inPool:
		f.released++
	}
}

// life counts a life that has ended.
func (f *figures) life(t *testing.T, k *killer) {
	_, died, _ := k.seen()
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.lives++
	if t.Failed() {
		f.failed++
		return
	}
	f.kills += len(died)
	f.missed += len(k.deaths) - len(died)
}

func (f *figures) String() string {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return fmt.Sprintf("%d lives, in which managers were killed %d times, and %d of which failed; %d calls did not come again; "+
		"on VM hosts %d VMs were made and %d deleted, bare metal was acquired %d times and released %d times",
		f.lives, f.kills, f.failed, f.missed, f.made, f.deleted, f.acquired, f.released)
}
