// SPDX-License-Identifier: Apache-2.0

package chaos_test

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/life"
)

// namespace has all clusters.
const namespace = life.Namespace

// viewInterval is how often the objects are read.
const viewInterval = 300 * time.Millisecond

// view is the state of the objects, read once for all tests that wait for them.
type view struct {
	mutex    sync.Mutex
	machines map[string]*infrav1.MaasMachine
}

// watchObjects reads them until the context ends.
func watchObjects(ctx context.Context, reader client.Reader, done *sync.WaitGroup) *view {
	v := &view{}
	done.Go(func() {
		tick := time.NewTicker(viewInterval)
		defer tick.Stop()
		for {
			list := &infrav1.MaasMachineList{}
			if err := reader.List(ctx, list, client.InNamespace(namespace)); err == nil {
				v.set(list)
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	return v
}

func (v *view) set(list *infrav1.MaasMachineList) {
	machines := map[string]*infrav1.MaasMachine{}
	for i := range list.Items {
		machines[list.Items[i].Name] = &list.Items[i]
	}
	v.mutex.Lock()
	defer v.mutex.Unlock()
	v.machines = machines
}

// all returns all of them.
func (v *view) all() []*infrav1.MaasMachine {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	return slices.Collect(maps.Values(v.machines))
}

// maasMachine returns one as it was last seen, or nil.
func (v *view) maasMachine(name string) *infrav1.MaasMachine {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	return v.machines[name]
}
