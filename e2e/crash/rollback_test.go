// SPDX-License-Identifier: Apache-2.0

package crash_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// rollback is a later version of the manager, which ran for a moment between the manager that died and its successor,
// and recorded what that one does not know. It is so for every manager that dies after a call, but for none that dies
// before it.
type rollback struct {
	mutex sync.Mutex
	done  []*life.RolledBack
}

// joins makes the later version come when the killer has killed the manager.
func (r *rollback) joins(ctx context.Context, k *killer, namespace string) {
	k.succeeded = func(d death) error {
		if d.phase != simulator.After {
			return nil
		}
		done, err := life.RollBack(ctx, box.Client, client.InNamespace(namespace))
		if err != nil {
			return err
		}
		if done.Objects() == 0 {
			return errNothingToRecordOn
		}
		r.mutex.Lock()
		defer r.mutex.Unlock()
		r.done = append(r.done, done)
		return nil
	}
}

var errNothingToRecordOn = errors.New("there is no object for a later version of the manager to record on")

// check checks that nothing that the later version recorded is lost.
func (r *rollback) check(t *testing.T) {
	t.Helper()
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for _, done := range r.done {
		lost, err := done.Lost(t.Context())
		if err != nil {
			t.Error(err)
		}
		for _, what := range lost {
			t.Errorf("what a later version of the manager recorded is lost from %s", what)
		}
	}
}
