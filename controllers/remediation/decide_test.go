// SPDX-License-Identifier: Apache-2.0

package remediation

import (
	"cmp"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// sick is a Machine that could be switched off and on.
func sick(changes ...func(*facts)) facts {
	f := facts{joined: true, machine: &maas.Machine{SystemID: "abc", Status: maas.StatusDeployed, PowerState: maas.PowerOn}}
	for _, change := range changes {
		change(&f)
	}
	return f
}

func status(s maas.Status) func(*facts) { return func(f *facts) { f.machine.Status = s } }

func tries(n int32) func(*facts) { return func(f *facts) { f.spec.PowerCycle.Tries = ptr.To(n) } }

func cycled(n int32) func(*facts) { return func(f *facts) { f.progress.PowerCycles = n } }

func TestStart(t *testing.T) {
	for name, tc := range map[string]struct {
		facts  facts
		step   infrav1.RemediationStep
		reason string
	}{
		"a machine that runs":            {sick(), infrav1.RemediationPowerOff, infrav1.PoweringOffReason},
		"a machine that is off":          {sick(func(f *facts) { f.machine.PowerState = maas.PowerOff }), infrav1.RemediationPowerOff, infrav1.PoweringOffReason},
		"a control plane in the record":  {sick(func(f *facts) { f.published = true }), infrav1.RemediationLeaveEndpoint, infrav1.LeavingEndpointReason},
		"a control plane without quorum": {sick(func(f *facts) { f.quorum = "one is sick" }), "", infrav1.WaitingForQuorumReason},
		"one that is healthy":            {sick(func(f *facts) { f.healthy = true }), "", infrav1.MachineHealthyReason},
		"one that a person holds":        {sick(func(f *facts) { f.held = "a person" }), "", infrav1.RemediationHeldReason},
		"healthy, after all tries":       {sick(cycled(1), func(f *facts) { f.healthy = true }), "", infrav1.MachineHealthyReason},
		"held, after all tries":          {sick(cycled(1), func(f *facts) { f.held = "a person" }), "", infrav1.RemediationHeldReason},
		"without tries":                  {sick(tries(0)), infrav1.RemediationReplace, infrav1.PowerCycleOmittedReason},
		"after the default of tries":     {sick(cycled(1)), infrav1.RemediationReplace, ""},
		"after one of two tries":         {sick(cycled(1), tries(2)), infrav1.RemediationPowerOff, infrav1.PoweringOffReason},
		"after two of two tries":         {sick(cycled(2), tries(2)), infrav1.RemediationReplace, ""},
		"one that was never a Node":      {sick(func(f *facts) { f.joined = false }), infrav1.RemediationReplace, infrav1.PowerCycleOmittedReason},
		"one that is not ours":           {sick(func(f *facts) { f.machine = nil }), infrav1.RemediationReplace, infrav1.PowerCycleOmittedReason},
		"one that was released":          {sick(status(maas.StatusReady)), infrav1.RemediationReplace, infrav1.PowerCycleOmittedReason},
		"one that MAAS would deploy":     {sick(status(maas.StatusAllocated)), infrav1.RemediationReplace, infrav1.PowerCycleOmittedReason},
		"one that is broken":             {sick(status(maas.StatusBroken)), infrav1.RemediationReplace, infrav1.PowerCycleOmittedReason},
		"one that is tested":             {sick(status(maas.StatusTesting)), "", infrav1.RemediationHeldReason},
		"one in rescue mode":             {sick(status(maas.StatusRescueMode)), "", infrav1.RemediationHeldReason},
		"one that is locked":             {sick(func(f *facts) { f.machine.Locked = true }), "", infrav1.RemediationHeldReason},
		"one that is switched by hand":   {sick(func(f *facts) { f.machine.PowerState = maas.PowerUnknown }), infrav1.RemediationReplace, infrav1.PowerCycleOmittedReason},
		"one whose BMC failed last":      {sick(func(f *facts) { f.machine.PowerState = maas.PowerError }), infrav1.RemediationPowerOff, infrav1.PoweringOffReason},
		"not deployed, without quorum":   {sick(status(maas.StatusRescueMode), func(f *facts) { f.quorum = "one" }), "", infrav1.RemediationHeldReason},
		"a VM that its host switches": {sick(func(f *facts) {
			f.vm, f.machine.Device, f.machine.PowerState = true, true, maas.PowerUnknown
		}), infrav1.RemediationPowerOff, infrav1.PoweringOffReason},
		"a VM that runs":                     {sick(func(f *facts) { f.vm = true }), infrav1.RemediationPowerOff, infrav1.PoweringOffReason},
		"a control plane, tries used up":     {sick(cycled(1), func(f *facts) { f.quorum = "one" }), infrav1.RemediationReplace, ""},
		"one in a state that nobody expects": {sick(status(99)), "", infrav1.RemediationHeldReason},
	} {
		t.Run(name, func(t *testing.T) {
			if got := cmp.Or(withoutMAAS(tc.facts), start(tc.facts)); got.step != tc.step || got.reason != tc.reason {
				t.Errorf("step %q because of %q, want %q because of %q (%s)", got.step, got.reason, tc.step, tc.reason, got.message)
			}
		})
	}
}

func TestSwitching(t *testing.T) {
	ago := func(d time.Duration) *metav1.Time { return ptr.To(metav1.NewTime(now.Add(-d))) }
	off := infrav1.RemediationProgress{Step: infrav1.RemediationPowerOff}
	on := infrav1.RemediationProgress{Step: infrav1.RemediationPowerOn}
	asked := func(p infrav1.RemediationProgress, times int32, before time.Duration) infrav1.RemediationProgress {
		p.Requests, p.Requested = times, ago(before)
		return p
	}
	const soon, late, settling = time.Second, 2 * requestWait, time.Second
	for name, tc := range map[string]struct {
		progress infrav1.RemediationProgress
		power    string
		settling time.Duration
		step     infrav1.RemediationStep
		ask      bool
	}{
		"to off, not asked yet":                   {off, maas.PowerOn, 0, "", true},
		"to off, and it is off already":           {off, maas.PowerOff, 0, infrav1.RemediationPowerOn, false},
		"to off, asked just now":                  {asked(off, 1, soon), maas.PowerOn, 0, "", false},
		"to off, and it followed":                 {asked(off, 1, soon), maas.PowerOff, 0, infrav1.RemediationPowerOn, false},
		"to off, the answer was lost, it follows": {asked(off, 1, soon), maas.PowerOff, settling, infrav1.RemediationPowerOn, false},
		"to off, two answers were lost":           {asked(off, 2, soon), maas.PowerOff, settling, "", false},
		"to off, it does not follow":              {asked(off, 1, late), maas.PowerOn, 0, "", true},
		"to off, no BMC":                          {asked(off, 1, late), maas.PowerError, 0, "", true},
		"to off, the answer was lost":             {asked(off, 1, late), maas.PowerOn, settling, "", false},
		"to off, it never follows":                {asked(off, maxRequests, late), maas.PowerOn, 0, infrav1.RemediationReplace, false},
		"to off, the last try is young":           {asked(off, maxRequests, soon), maas.PowerError, 0, "", false},
		"to on, not asked yet":                    {on, maas.PowerOff, 0, "", true},
		"to on, an answer to off was lost":        {on, maas.PowerOff, settling, "", true},
		"to on, and it is on already":             {on, maas.PowerOn, 0, infrav1.RemediationRecover, false},
		"to on, asked just now":                   {asked(on, 1, soon), maas.PowerOff, 0, "", false},
		"to on, and it followed":                  {asked(on, 1, soon), maas.PowerOn, settling, infrav1.RemediationRecover, false},
		"to on, the answer was lost":              {asked(on, 1, late), maas.PowerOff, settling, "", false},
		"to on, it does not follow":               {asked(on, 1, late), maas.PowerOff, 0, "", true},
		"to on, it never follows":                 {asked(on, maxRequests, late), maas.PowerError, 0, infrav1.RemediationReplace, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, ask := switching(tc.progress, "abc", tc.power, tc.settling, now)
			if got.step != tc.step || ask != tc.ask {
				t.Errorf("step %q, ask %v; want %q, %v (%s)", got.step, ask, tc.step, tc.ask, got.message)
			}
			if failed := got.reason == infrav1.PowerCycleFailedReason; failed != (tc.step == infrav1.RemediationReplace) {
				t.Errorf("the reason is %s", got.reason)
			}
		})
	}
}

func TestRecovering(t *testing.T) {
	since := func(d time.Duration) func(*facts) {
		return func(f *facts) { f.progress.Since = ptr.To(metav1.NewTime(now.Add(-d))) }
	}
	healthy := func(f *facts) { f.healthy = true }
	five := func(f *facts) { f.spec.PowerCycle.TimeoutSeconds = 300 }
	for name, tc := range map[string]struct {
		facts  facts
		reason string // "": it has had enough time
	}{
		"just switched on":                      {sick(since(time.Second)), infrav1.WaitingForNodeReason},
		"long ago":                              {sick(since(15 * time.Minute)), ""},
		"longer ago than the spec wants":        {sick(five, since(5*time.Minute)), ""},
		"not as long ago as the spec wants":     {sick(five, since(5*time.Minute-time.Second)), infrav1.WaitingForNodeReason},
		"healthy":                               {sick(since(time.Second), healthy), infrav1.MachineHealthyReason},
		"healthy after more than enough time":   {sick(since(time.Hour), healthy), infrav1.MachineHealthyReason},
		"with a clock that went back meanwhile": {sick(since(-time.Hour)), infrav1.WaitingForNodeReason},
	} {
		t.Run(name, func(t *testing.T) {
			got := recovering(tc.facts, now)
			if (got == nil) != (tc.reason == "") || (got != nil && (got.reason != tc.reason || got.step != "")) {
				t.Errorf("got %+v, want %q", got, tc.reason)
			}
		})
	}
}

func TestReplacing(t *testing.T) {
	for name, tc := range map[string]struct {
		facts  facts
		reason string // "": it is handed over
	}{
		"sick":           {sick(), ""},
		"healthy":        {sick(func(f *facts) { f.healthy = true }), infrav1.MachineHealthyReason},
		"held":           {sick(func(f *facts) { f.held = "a person" }), infrav1.RemediationHeldReason},
		"without quorum": {sick(func(f *facts) { f.quorum = "one is sick" }), infrav1.WaitingForQuorumReason},
	} {
		t.Run(name, func(t *testing.T) {
			got := replacing(tc.facts)
			if (got == nil) != (tc.reason == "") || (got != nil && got.reason != tc.reason) {
				t.Errorf("got %+v, want %q", got, tc.reason)
			}
		})
	}
}

// A power cycle is counted once, whether it begins at the endpoint or not, and each step counts its own requests.
func TestProgress(t *testing.T) {
	p := infrav1.RemediationProgress{}
	for i, tc := range []struct {
		step   infrav1.RemediationStep
		cycles int32
	}{
		{infrav1.RemediationLeaveEndpoint, 1}, {infrav1.RemediationPowerOff, 1}, {infrav1.RemediationPowerOn, 1}, {infrav1.RemediationRecover, 1},
		{infrav1.RemediationPowerOff, 2}, {infrav1.RemediationPowerOn, 2}, {infrav1.RemediationRecover, 2}, {infrav1.RemediationReplace, 2},
	} {
		at := now.Add(time.Duration(i) * time.Minute)
		p.Requests = 7
		p = after(p, tc.step, at)
		if p.Step != tc.step || p.PowerCycles != tc.cycles || p.Requests != 0 || p.Requested != nil || !p.Since.Time.Equal(at) {
			t.Errorf("%d: %+v, want step %s in power cycle %d since %s", i, p, tc.step, tc.cycles, at)
		}
	}
}

// A MachineHealthCheck knows better than the Node's conditions: they may be True again for a moment.
func TestIsHealthy(t *testing.T) {
	const yes, no, maybe = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	for name, tc := range map[string]struct {
		check, node metav1.ConditionStatus // "": it does not say
		want        bool
	}{
		"both say so":              {yes, yes, true},
		"the check denies it":      {no, yes, false},
		"the check does not know":  {maybe, yes, false},
		"the Node denies it":       {yes, no, true},
		"no check, a healthy Node": {"", yes, true},
		"no check, a sick Node":    {"", no, false},
		"no check, no response":    {"", maybe, false},
		"nobody says anything":     {"", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			m := &clusterv1.Machine{}
			for condition, status := range map[string]metav1.ConditionStatus{
				clusterv1.MachineHealthCheckSucceededCondition: tc.check, clusterv1.MachineNodeHealthyCondition: tc.node,
			} {
				if status != "" {
					conditions.Set(m, metav1.Condition{Type: condition, Status: status, Reason: "Test"})
				}
			}
			if got := isHealthy(m); got != tc.want {
				t.Errorf("healthy: %v, want %v", got, tc.want)
			}
		})
	}
}
