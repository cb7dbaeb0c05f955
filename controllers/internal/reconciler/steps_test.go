// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
)

// taken is how many steps were taken.
type taken int

func (n *taken) goesOn(context.Context, *taken) (report.Outcome, error) {
	*n++
	return report.Outcome{}, nil
}

// The first step that waits or fails ends the reconcile, and has a name for the log.
func TestThrough(t *testing.T) {
	type step = func(context.Context, *taken) (report.Outcome, error)
	failure, waiting := errors.New("a step failed"), report.Wait(time.Minute, "Waiting", "for a test")
	waits := func(context.Context, *taken) (report.Outcome, error) { return waiting, nil }
	fails := func(context.Context, *taken) (report.Outcome, error) { return report.Outcome{}, failure }
	n := new(taken)
	for name, tc := range map[string]struct {
		steps []step
		taken taken
		out   report.Outcome
		err   error
	}{
		"none":      {nil, 0, report.Outcome{}, nil},
		"all go on": {[]step{n.goesOn, n.goesOn}, 2, report.Outcome{}, nil},
		"one waits": {[]step{n.goesOn, waits, n.goesOn}, 1, waiting, nil},
		"one fails": {[]step{n.goesOn, fails, n.goesOn}, 1, report.Outcome{}, failure},
	} {
		*n = 0
		if out, err := Through(t.Context(), n, tc.steps); out != tc.out || !errors.Is(err, tc.err) || *n != tc.taken {
			t.Errorf("%s: %d steps were taken, the outcome is %v, %v", name, *n, out.Problem(), err)
		}
	}
	if method, function := nameOf(n.goesOn), nameOf(waits); method != "goesOn" || function == "" {
		t.Errorf("the steps are named %q and %q", method, function)
	}
}
