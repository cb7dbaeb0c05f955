// SPDX-License-Identifier: Apache-2.0

package clusterctl_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/capmaas/cluster-api-provider-maas/controllers/orphanaudit"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

// orphanInterval is how often the test searches for orphans, far more often than a manager does.
const orphanInterval = time.Second

// watch searches from both management clusters all the time for machines that would be called orphans, and be removed
// without an operator vouching for them.
type watch struct {
	end  func()
	done sync.WaitGroup

	mutex  sync.Mutex
	looks  int
	called []string
	last   map[string][]string // by side, system ids
}

func watchOrphans(t *testing.T) *watch {
	t.Helper()
	region, err := maas.NewClient(maas.Config{Endpoint: west.MAASURL, APIKey: west.MAASAPIKey})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	w := &watch{end: cancel, last: map[string][]string{}}
	for name, box := range map[string]*sandbox.Sandbox{"west": west, "east": east} {
		management, err := orphanaudit.ManagementID(t.Context(), box.Client)
		if err != nil {
			t.Fatal(err)
		}
		w.done.Go(func() {
			wait.UntilWithContext(ctx, func(ctx context.Context) { w.audit(ctx, name, region, box, management) }, orphanInterval)
		})
	}
	t.Cleanup(func() {
		cancel()
		w.done.Wait()
		region.Close()
	})
	return w
}

// audit is one audit. MAAS is read first, as the manager does.
func (w *watch) audit(ctx context.Context, side string, region *maas.Client, box *sandbox.Sandbox, management string) {
	machines, err := region.ListMachines(ctx, maas.MachineFilter{})
	if err != nil {
		return
	}
	claims, _, err := orphanaudit.ReadClaims(ctx, box.Client, management, "")
	if err != nil {
		return // The kinds are not installed yet.
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.looks++
	var now []string
	for _, f := range claims.Audit(machines) {
		id := f.Machine.SystemID
		now = append(now, id)
		// A machine may be deleted, and its object after it, between the two reads of one audit.
		if f.Doubt == "" && slices.Contains(w.last[side], id) {
			w.called = append(w.called, fmt.Sprintf("%s (%s, %s), by the %s", f.Machine.Hostname, id, f.Machine.StatusName, side))
		}
	}
	w.last[side] = now
}

// check ends the watch, and fails the test if a machine was ever called an orphan without a doubt.
func (w *watch) check(t *testing.T) {
	t.Helper()
	w.end()
	w.done.Wait()
	if w.looks == 0 {
		t.Error("nobody looked for orphans")
	}
	slices.Sort(w.called)
	for _, what := range slices.Compact(w.called) {
		t.Errorf("called an orphan: %s", what)
	}
}
