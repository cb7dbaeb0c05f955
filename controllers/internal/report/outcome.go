// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"time"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
)

// Outcome is how a step of a reconcile ends. The zero value goes on with the next step. Wait, Hold and Retry end the
// reconcile, and nothing else does: so each wait says why it waits, and how long.
type Outcome struct {
	wait *Problem
	kind kind
}

type kind int

const (
	known kind = iota
	unknown
	brief
)

// Wait ends the reconcile, because what is wanted is not the case yet. The next reconcile begins after that time, at
// most.
func Wait(after time.Duration, reason, format string, args ...any) Outcome {
	return Outcome{wait: &Problem{Reason: reason, Message: fmt.Sprintf(format, args...), RetryAfter: after}}
}

// Hold is Wait where it is not known whether what is wanted is the case.
func Hold(after time.Duration, reason, format string, args ...any) Outcome {
	out := Wait(after, reason, format, args...)
	out.kind = unknown
	return out
}

// Retry is Wait for a moment: a condition that says something stays as it is.
func Retry(after time.Duration, reason, format string, args ...any) Outcome {
	out := Wait(after, reason, format, args...)
	out.kind = brief
	return out
}

// Settle waits while a request for a machine whose outcome is not known may still take effect, for as long as left.
func Settle(left time.Duration) Outcome {
	if left <= 0 {
		return Outcome{}
	}
	return Wait(min(left, CapacityRetry), infrav1.MAASUnavailableReason, record.LostRequest)
}

// Waits reports whether the outcome ends the reconcile.
func (o Outcome) Waits() bool { return o.wait != nil }

// IsHeld reports whether Hold made it.
func (o Outcome) IsHeld() bool { return o.kind == unknown }

// IsBrief reports whether Retry made it.
func (o Outcome) IsBrief() bool { return o.kind == brief }

// Problem returns what is waited for, and how long; the zero value if nothing is.
func (o Outcome) Problem() Problem {
	if o.wait == nil {
		return Problem{}
	}
	return *o.wait
}

// Within returns the same wait with another time.
func (o Outcome) Within(after time.Duration) Outcome {
	p := o.Problem()
	p.RetryAfter = after
	return Outcome{wait: &p, kind: o.kind}
}

// Sooner returns the outcome that ends first; one that does not wait never ends.
func (o Outcome) Sooner(other Outcome) Outcome {
	if !o.Waits() || (other.Waits() && other.wait.RetryAfter < o.wait.RetryAfter) {
		return other
	}
	return o
}
