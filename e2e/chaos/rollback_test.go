// SPDX-License-Identifier: Apache-2.0

package chaos_test

import (
	"context"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/test/life"
)

const (
	// rolledBackFor is how long at least is watched what a later version of the manager has recorded, before the next one
	// comes.
	rolledBackFor = time.Minute
	rolledBackSee = time.Second
	// settlesBetween is how many times a manager may wait for the effect of an earlier call before it dies: one that always
	// dies before the time is over, waits until the record itself is too old. A call that switches power takes four, and
	// a leader needs a while to lead.
	settlesBetween = 6
)

// rollBack plays an upgrade of the manager that is taken back: the manager dies, a later version records what this
// one does not know on all objects, and this one runs again. It never loses that, and gives everything back all the
// same.
func (a *assault) rollBack(ctx context.Context, _ int) error {
	if err := box.Manager.Kill(); err != nil {
		return err
	}
	// Nobody leads until the lease of the one that died is over.
	rolledBack, err := life.RollBack(ctx, box.Client)
	if err != nil {
		return err
	}
	a.figures.add("managers rolled back", 1)
	a.figures.add("records of a later version", rolledBack.Objects())
	if rolledBack.Objects() == 0 {
		a.t.Error("a later version of the manager recorded nothing")
	}
	lasts := max(rolledBackFor, settlesBetween*attack.settle)
	for end := time.Now().Add(lasts); time.Now().Before(end); {
		lost, err := rolledBack.Lost(ctx)
		if err != nil {
			return err
		}
		for _, what := range lost {
			a.t.Errorf("what a later version of the manager recorded is lost from %s", what)
		}
		if err := pause(ctx, rolledBackSee); err != nil {
			return err
		}
	}
	return nil
}
