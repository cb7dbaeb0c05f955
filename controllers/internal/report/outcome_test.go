// SPDX-License-Identifier: Apache-2.0

package report

import (
	"testing"
	"time"
)

func TestOnlyAWaitEndsAReconcile(t *testing.T) {
	if (Outcome{}).Waits() || (Outcome{}).Problem() != (Problem{}) {
		t.Error("the zero value waits")
	}
	for name, out := range map[string]Outcome{
		"Wait": Wait(time.Minute, "Reason", "of %s", "it"), "Hold": Hold(time.Minute, "Reason", "of %s", "it"), "Retry": Retry(time.Minute, "Reason", "of %s", "it"),
	} {
		if p := out.Problem(); !out.Waits() || p != (Problem{"Reason", "of it", time.Minute}) {
			t.Errorf("%s: %+v", name, p)
		}
		if later := out.Within(time.Hour); later.Problem().RetryAfter != time.Hour || later.IsBrief() != out.IsBrief() || later.IsHeld() != out.IsHeld() {
			t.Errorf("%s for an hour: %+v", name, later)
		}
	}
}

func TestSooner(t *testing.T) {
	minute, hour := Wait(time.Minute, "A", "a"), Wait(time.Hour, "B", "b")
	for name, tc := range map[string]struct{ a, b, want Outcome }{
		"neither waits":   {Outcome{}, Outcome{}, Outcome{}},
		"the first waits": {minute, Outcome{}, minute},
		"the other waits": {Outcome{}, minute, minute},
		"the first ends":  {minute, hour, minute},
		"the other ends":  {hour, minute, minute},
	} {
		if got := tc.a.Sooner(tc.b); got != tc.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
