// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"context"
	"reflect"
	"runtime"
	"strings"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
)

// outcome is report.Outcome, or a type that embeds it.
type outcome interface {
	Waits() bool
	Problem() report.Problem
}

// Through runs steps in order until one waits or fails. A step establishes one condition that the next step needs. It
// can be repeated at any time, and does nothing if the condition holds.
func Through[O outcome, S any, F ~func(context.Context, S) (O, error)](
	ctx context.Context, about S, steps []F,
) (out O, err error) {
	for _, do := range steps {
		if out, err = do(ctx, about); err == nil && !out.Waits() {
			continue
		}
		if log := ctrl.LoggerFrom(ctx).V(1); log.Enabled() {
			p := out.Problem()
			log.Info("A step ends the reconcile", "step", nameOf(do), "reason", p.Reason, "message", p.Message, "after",
				p.RetryAfter, "failed", err != nil)
		}
		break
	}
	return out, err
}

// nameOf returns the name of a step.
func nameOf(do any) string {
	name := runtime.FuncForPC(reflect.ValueOf(do).Pointer()).Name()
	return strings.TrimSuffix(name[strings.LastIndexByte(name, '.')+1:], "-fm")
}
