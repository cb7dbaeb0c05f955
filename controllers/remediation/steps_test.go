// SPDX-License-Identifier: Apache-2.0

package remediation

import (
	"cmp"
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
	"github.com/capmaas/cluster-api-provider-maas/test/allkinds"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

type change = func(*subject)

// sick is a Machine that could be switched off and on.
func sick(changes ...change) *subject {
	member := &clusters.Member{Cluster: &clusterv1.Cluster{}, Machine: &clusterv1.Machine{}, MaasMachine: &infrav1.MaasMachine{}}
	member.Machine.Status.NodeRef.Name = "node"
	s := &subject{
		remediation: &infrav1.MaasRemediation{}, record: &record.Remediation{}, Member: member, interval: Interval,
		clock:  testingclock.NewFakePassiveClock(now),
		found:  &maas.Machine{SystemID: "abc", Status: maas.StatusDeployed, PowerState: maas.PowerOn},
		inMAAS: &scope.Machine{Cluster: &scope.Cluster{Cluster: member.Cluster, MaasCluster: &infrav1.MaasCluster{}}},
	}
	for _, change := range changes {
		change(s)
	}
	return s
}

func status(status maas.Status) change { return func(s *subject) { s.found.Status = status } }

func tries(n int32) change {
	return func(s *subject) { s.remediation.Spec.PowerCycle.Tries = ptr.To(n) }
}

// at is how far the remediation is.
func at(progress infrav1.RemediationProgress) change {
	return func(s *subject) { s.record.Remediation = &progress }
}

var replaced = at(infrav1.RemediationProgress{Step: infrav1.RemediationReplace})

func cycled(n int32) change { return at(infrav1.RemediationProgress{PowerCycles: n}) }

func healthy(s *subject) {
	conditions.Set(s.Machine, metav1.Condition{Type: clusterv1.MachineNodeHealthyCondition, Status: metav1.ConditionTrue, Reason: "Test"})
}

func skipped(s *subject) {
	s.Machine.Annotations = map[string]string{clusterv1.MachineSkipRemediationAnnotation: ""}
}

func pausedByHand(s *subject) {
	s.MaasMachine.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
}

func pausedMachine(s *subject) {
	s.Machine.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
}

// controlPlane has its address in a DNS record if there is a domain.
func controlPlane(domain string) change {
	return func(s *subject) {
		s.Machine.Labels = map[string]string{clusterv1.MachineControlPlaneLabel: ""}
		s.inMAAS.MaasCluster.Spec.DNSDomain = domain
	}
}

func vm(s *subject) { s.MaasMachine.Spec.ProvisioningMode = infrav1.ProvisioningModeLXD }

// decides runs steps that only decide.
func (s *subject) decides(t *testing.T, steps ...step) outcome {
	t.Helper()
	out, err := reconciler.Through(t.Context(), s, steps)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestWhetherAPowerCycleBegins(t *testing.T) {
	for name, tc := range map[string]struct {
		subject *subject
		begins  infrav1.RemediationStep
		reason  string
	}{
		"a machine that runs":           {sick(), infrav1.RemediationPowerOff, infrav1.PoweringOffReason},
		"a machine that is off":         {sick(func(s *subject) { s.found.PowerState = maas.PowerOff }), infrav1.RemediationPowerOff, infrav1.PoweringOffReason},
		"a control plane in the record": {sick(controlPlane("example.com")), infrav1.RemediationLeaveEndpoint, infrav1.LeavingEndpointReason},
		"a control plane in no record":  {sick(controlPlane("")), infrav1.RemediationPowerOff, infrav1.PoweringOffReason},
		"one that is healthy":           {sick(healthy), "", infrav1.MachineHealthyReason},
		"one that a person skips":       {sick(skipped), "", infrav1.RemediationHeldReason},
		"one that is paused":            {sick(pausedByHand), "", infrav1.RemediationHeldReason},
		"one whose Machine is paused":   {sick(pausedMachine), "", infrav1.RemediationHeldReason},
		"healthy, and skipped":          {sick(healthy, skipped), "", infrav1.MachineHealthyReason},
		"healthy, after all tries":      {sick(cycled(1), healthy), "", infrav1.MachineHealthyReason},
		"skipped, after all tries":      {sick(cycled(1), skipped), "", infrav1.RemediationHeldReason},
		"without tries":                 {sick(tries(0)), infrav1.RemediationReplace, infrav1.PowerCycleOmittedReason},
		"after the default of tries":    {sick(cycled(1)), infrav1.RemediationReplace, ""},
		"after one of two tries":        {sick(cycled(1), tries(2)), infrav1.RemediationPowerOff, infrav1.PoweringOffReason},
		"after two of two tries":        {sick(cycled(2), tries(2)), infrav1.RemediationReplace, ""},
		"one that was never a Node":     {sick(func(s *subject) { s.Machine.Status.NodeRef.Name = "" }), infrav1.RemediationReplace, infrav1.PowerCycleOmittedReason},
		"one that is not ours":          {sick(func(s *subject) { s.found = nil }), infrav1.RemediationReplace, infrav1.PowerCycleOmittedReason},
		"one that was released":         {sick(status(maas.StatusReady)), infrav1.RemediationReplace, infrav1.PowerCycleOmittedReason},
		"one that MAAS would deploy":    {sick(status(maas.StatusAllocated)), infrav1.RemediationReplace, infrav1.PowerCycleOmittedReason},
		"one that is broken":            {sick(status(maas.StatusBroken)), infrav1.RemediationReplace, infrav1.PowerCycleOmittedReason},
		"one that is tested":            {sick(status(maas.StatusTesting)), "", infrav1.RemediationHeldReason},
		"one in rescue mode":            {sick(status(maas.StatusRescueMode)), "", infrav1.RemediationHeldReason},
		"one that is locked":            {sick(func(s *subject) { s.found.Locked = true }), "", infrav1.RemediationHeldReason},
		"one that runs in memory":       {sick(func(s *subject) { s.found.InMemory = true }), infrav1.RemediationReplace, infrav1.PowerCycleOmittedReason},
		"one that is switched by hand":  {sick(func(s *subject) { s.found.PowerState = maas.PowerUnknown }), infrav1.RemediationReplace, infrav1.PowerCycleOmittedReason},
		"one whose BMC failed last":     {sick(func(s *subject) { s.found.PowerState = maas.PowerError }), infrav1.RemediationPowerOff, infrav1.PoweringOffReason},
		"a VM that its host switches": {sick(vm, func(s *subject) {
			s.found.Device, s.found.PowerState = true, maas.PowerUnknown
		}), infrav1.RemediationPowerOff, infrav1.PoweringOffReason},
		"a VM that runs":                     {sick(vm), infrav1.RemediationPowerOff, infrav1.PoweringOffReason},
		"healthy, and to be replaced":        {sick(replaced, healthy), "", infrav1.MachineHealthyReason},
		"skipped, and to be replaced":        {sick(replaced, skipped), "", infrav1.RemediationHeldReason},
		"one in a state that nobody expects": {sick(status(99)), "", infrav1.RemediationHeldReason},
	} {
		t.Run(name, func(t *testing.T) {
			said, wait := tc.subject.condition(), Interval
			switch tc.reason {
			case "":
				said = ""
			case infrav1.RemediationHeldReason: // A person must do something.
				wait = report.MendRetry
			}
			got := tc.subject.decides(t, needed, useful, fit, start)
			if p := got.Problem(); got.begins != tc.begins || p.Reason != cmp.Or(tc.reason, p.Reason) || p.RetryAfter != wait {
				t.Errorf("%q begins because of %+v, want %q because of %q", got.begins, p, tc.begins, tc.reason)
			}
			if got.condition != said || got.IsBrief() != (said == "") {
				t.Errorf("it is said in %q, brief %v; want %q", got.condition, got.IsBrief(), said)
			}
		})
	}
}

// inKubernetes is the Machine in an API server, which is asked for Machines as often as the test says.
func inKubernetes(t *testing.T, s *subject, asked error, often int, change ...change) *Reconciler {
	t.Helper()
	there := &subject{Member: &clusters.Member{Machine: s.Machine.DeepCopy(), MaasMachine: s.MaasMachine.DeepCopy()}}
	for _, object := range []client.Object{there.Machine, there.MaasMachine, s.remediation} {
		object.SetNamespace("ns")
		object.SetName("m")
	}
	there.Machine.UID = "uid"
	there.Machine.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: infrav1.GroupVersion.Group, Kind: "MaasMachine", Name: "m",
	}
	there.Machine.Labels = map[string]string{clusterv1.ClusterNameLabel: "c"}
	s.Cluster.Name = "c"
	s.remediation.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: "m", UID: "uid"},
	}
	for _, change := range change {
		change(there)
	}
	has := fake.NewClientBuilder().WithScheme(allkinds.Scheme())
	if there.Machine != nil {
		has = has.WithObjects(there.Machine, there.MaasMachine)
	}
	reader := interceptor.NewClient(has.Build(), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, into client.ObjectList, options ...client.ListOption) error {
			if often--; often < 0 {
				return asked
			}
			return c.List(ctx, into, options...)
		},
	})
	return &Reconciler{Base: reconciler.Base{Client: reader, APIReader: reader, Clock: testingclock.NewFakePassiveClock(now)}}
}

// What needs no power cycle, or can't have one, does not wait for the rest of the control plane.
func TestWhatIsNotSwitchedNeedsNoQuorum(t *testing.T) {
	asked := errors.New("the other control planes are asked")
	for name, tc := range map[string]struct {
		subject *subject
		reason  string
	}{
		"one whose tries are used up": {sick(controlPlane(""), cycled(1)), infrav1.PowerCycledReason},
		"one that was given back":     {sick(controlPlane("")), infrav1.PowerCycleOmittedReason},
	} {
		t.Run(name, func(t *testing.T) {
			r := inKubernetes(t, tc.subject, asked, 1)
			defer func() { tc.subject.leave.End() }()
			got := tc.subject.decides(t, r.steps(tc.subject)...)
			if got.begins != infrav1.RemediationReplace || got.Problem().Reason != tc.reason {
				t.Errorf("%q begins because of %s, want that it is replaced because of %s", got.begins, got.Problem().Reason, tc.reason)
			}
		})
	}
	s := sick(controlPlane(""))
	if _, err := reconciler.Through(t.Context(), s, []step{inKubernetes(t, s, asked, 0).quorum}); !errors.Is(err, asked) {
		t.Errorf("%v: nothing is tested", err)
	}
}

// A host with unknown VMs is not switched off; its Machine may be replaced, as the VMs leave it first.
func TestAHostWhoseVMsAreNotKnownIsNotSwitchedOff(t *testing.T) {
	for name, tc := range map[string]struct {
		subject *subject
		waits   bool
	}{
		"a power cycle": {sick(controlPlane("")), true},
		"a replacement": {sick(controlPlane(""), replaced), false},
	} {
		t.Run(name, func(t *testing.T) {
			s, labels := tc.subject, map[string]string{clusterv1.ClusterNameLabel: "c"}
			s.MaasMachine.Namespace, s.MaasMachine.Labels = "ns", labels
			host := &infrav1.MaasCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", Labels: labels}}
			host.Spec.LXDControlPlaneCluster = true
			c := fake.NewClientBuilder().WithScheme(allkinds.Scheme()).WithObjects(host).Build()
			r := &Reconciler{Base: reconciler.Base{Client: c, APIReader: c, Clock: testingclock.NewFakePassiveClock(now)}}
			defer func() { s.leave.End() }()
			if out := s.decides(t, r.quorum); out.Waits() != tc.waits || (out.Problem().Reason == infrav1.WaitingForQuorumReason) != tc.waits {
				t.Errorf("it waits: %v, want %v: %s", out.Waits(), tc.waits, out.Problem().Message)
			}
		})
	}
}

// A cache may lag: what it has is no reason to replace a Machine.
func TestAMachineIsNotReplacedByWhatACacheHas(t *testing.T) {
	given := func(s *subject) { s.MaasMachine.Spec.SystemID = "abc" }
	node := func(s *subject) { s.Machine.Status.NodeRef.Name = "node" }
	look := func(_ context.Context, s *subject) (outcome, error) {
		s.found = nil
		if !s.isGivenBack() {
			s.found = sick().found
		}
		return proceed, nil
	}
	for name, tc := range map[string]struct {
		subject *subject
		decides step
		now     change
	}{
		"it has no machine there":   {sick(), look, given},
		"it was never a Node there": {sick(given, func(s *subject) { s.Machine.Status.NodeRef.Name = "" }), useful, node},
	} {
		r := inKubernetes(t, tc.subject, nil, 1, tc.now)
		if got := tc.subject.decides(t, r.surely(tc.decides, fit)); got.Waits() {
			t.Errorf("%s: %q begins: %s", name, got.begins, got.Problem().Message)
		}
	}
	going := func(s *subject) {
		s.Machine.DeletionTimestamp, s.Machine.Finalizers = &metav1.Time{Time: now}, []string{"f"}
	}
	for name, now := range map[string]change{"as it is there": func(*subject) {}, "unless it goes": going} {
		s := sick()
		r := inKubernetes(t, s, nil, 1, now)
		got := s.decides(t, r.surely(look, fit))
		if replaced := got.begins == infrav1.RemediationReplace; replaced != (name == "as it is there") {
			t.Errorf("it is replaced %s: %v", name, replaced)
		}
	}
}

// A cache may lag: what it has is no reason to leave a machine switched off.
func TestARemediationEndsByWhatTheAPIServerHas(t *testing.T) {
	on := at(infrav1.RemediationProgress{Step: infrav1.RemediationPowerOn})
	given := func(s *subject) { s.MaasMachine.Spec.SystemID = "abc" }
	same := func(*subject) {}
	gone := func(s *subject) { s.Machine = nil }
	without := func(s *subject) { s.Member = nil }
	for name, tc := range map[string]struct {
		cached, now change
		ends        bool
	}{
		"it was given back":                     {same, same, true},
		"it has a machine, which a cache lacks": {same, given, false},
		"the Machine is gone":                   {without, gone, true},
		"a cache lacks the Machine":             {without, given, false},
	} {
		s := sick(on)
		r := inKubernetes(t, s, nil, 1, tc.now)
		tc.cached(s)
		if got := s.decides(t, r.ends); got.Waits() == tc.ends {
			t.Errorf("%s: it ends: %v", name, !got.Waits())
		}
	}
}

// What the API server said too long ago is no reason to switch a control plane off; it is asked again.
func TestNothingIsSwitchedOffByWhatWasSaidTooLongAgo(t *testing.T) {
	for name, tc := range map[string]struct {
		takes time.Duration
		waits bool
	}{
		"in time":  {takes: reconciler.LookLasts},
		"too late": {takes: reconciler.LookLasts + time.Second, waits: true},
	} {
		t.Run(name, func(t *testing.T) {
			clock := testingclock.NewFakePassiveClock(now)
			there := fake.NewClientBuilder().WithScheme(allkinds.Scheme()).Build()
			slow := interceptor.NewClient(there, interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, into client.ObjectList, options ...client.ListOption) error {
					if _, machines := into.(*clusterv1.MachineList); machines {
						clock.SetTime(clock.Now().Add(tc.takes))
					}
					return c.List(ctx, into, options...)
				},
			})
			r, s := &Reconciler{Base: reconciler.Base{Client: there, APIReader: slow, Clock: clock}}, sick(controlPlane(""))
			defer func() { s.leave.End() }()
			if out := s.decides(t, r.quorum); out.Waits() != tc.waits || out.begins != "" {
				t.Errorf("it waits: %v, want %v; %q begins", out.Waits(), tc.waits, out.begins)
			}
		})
	}
}

// Between the leave and the request the progress is stored, which may take long.
func TestARequestIsNotSentWhenItsLeaveIsTooOld(t *testing.T) {
	remediation := &infrav1.MaasRemediation{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m", UID: "m"}}
	c := fake.NewClientBuilder().WithScheme(allkinds.Scheme()).WithObjects(remediation).Build()
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(remediation), remediation); err != nil {
		t.Fatal(err)
	}
	r := &Reconciler{Base: reconciler.Base{Records: &record.Records{Client: c}, Clock: testingclock.NewFakePassiveClock(now)}}
	opened, err := r.Records.OpenRemediation(remediation)
	if err != nil {
		t.Fatal(err)
	}
	s := sick() // Without a MAAS: a request would end the test.
	s.record = opened
	s.record.Remediation = &infrav1.RemediationProgress{Step: infrav1.RemediationPowerOff}
	if out := s.decides(t, r.firstRequest); !out.Waits() || s.progress().Requests != 0 {
		t.Errorf("it waits: %v; after %d requests", out.Waits(), s.progress().Requests)
	}
}

func TestSwitching(t *testing.T) {
	off := infrav1.RemediationProgress{Step: infrav1.RemediationPowerOff}
	on := infrav1.RemediationProgress{Step: infrav1.RemediationPowerOn}
	asked := func(p infrav1.RemediationProgress, times int32, before time.Duration) infrav1.RemediationProgress {
		p.Requests, p.Requested = times, ptr.To(metav1.NewTime(now.Add(-before)))
		return p
	}
	const soon, late, settling = time.Second, 2 * requestWait, time.Second
	for name, tc := range map[string]struct {
		progress infrav1.RemediationProgress
		power    string
		settling time.Duration
		begins   infrav1.RemediationStep
		ask      bool
	}{
		"to off, not asked yet":                   {off, maas.PowerOn, 0, "", true},
		"to off, and it is off already":           {off, maas.PowerOff, 0, infrav1.RemediationPowerOn, false},
		"to off, asked just now":                  {asked(off, 1, soon), maas.PowerOn, 0, "", false},
		"to off, and it followed":                 {asked(off, 1, soon), maas.PowerOff, 0, infrav1.RemediationPowerOn, false},
		"to off, the answer was lost, it follows": {asked(off, 1, soon), maas.PowerOff, settling, "", false},
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
			s := sick(at(tc.progress))
			s.power, s.settling = tc.power, tc.settling
			got := s.decides(t, switching)
			if got.begins != tc.begins || got.Waits() == tc.ask {
				t.Errorf("%q begins, ask %v; want %q, %v (%s)", got.begins, !got.Waits(), tc.begins, tc.ask, got.Problem().Message)
			}
			if failed := got.Problem().Reason == infrav1.PowerCycleFailedReason; failed != (tc.begins == infrav1.RemediationReplace) {
				t.Errorf("the reason is %s", got.Problem().Reason)
			}
		})
	}
}

// Of what is not known of the machine, only a request to switch it off can do that.
func TestAMachineThatIsOffIsSwitchedOnThoughAnotherAnswerWasLost(t *testing.T) {
	for earlier, want := range map[bool]infrav1.RemediationStep{false: infrav1.RemediationPowerOn, true: ""} {
		s := sick(at(infrav1.RemediationProgress{Step: infrav1.RemediationPowerOff}))
		s.power, s.settling, s.wasOff = maas.PowerOff, time.Second, earlier
		if got := s.decides(t, switching); got.begins != want {
			t.Errorf("an earlier request to switch it off is pending: %v; %q begins, want %q", earlier, got.begins, want)
		}
	}
}

// LXD tries once what it is asked for: a VM that its host has switched off stays off.
func TestAVMThatIsOffIsSwitchedOnThoughTheAnswerWasLost(t *testing.T) {
	for requests, want := range map[int32]infrav1.RemediationStep{1: infrav1.RemediationPowerOn, 2: ""} {
		s := sick(vm, at(infrav1.RemediationProgress{Step: infrav1.RemediationPowerOff, Requests: requests, Requested: ptr.To(metav1.NewTime(now))}))
		s.found.Device, s.power, s.settling = true, maas.PowerOff, time.Second
		if got := s.decides(t, switching); got.begins != want {
			t.Errorf("after %d requests, %q begins, want %q", requests, got.begins, want)
		}
	}
}

func TestRecovery(t *testing.T) {
	since := func(d time.Duration) change {
		return at(infrav1.RemediationProgress{Step: infrav1.RemediationRecover, Since: ptr.To(metav1.NewTime(now.Add(-d)))})
	}
	five := func(s *subject) { s.remediation.Spec.PowerCycle.TimeoutSeconds = 300 }
	for name, tc := range map[string]struct {
		subject *subject
		reason  string // "": it has had enough time
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
			got := tc.subject.decides(t, recovery)
			if got.Problem().Reason != tc.reason || got.begins != "" || (tc.reason != "" && got.condition != infrav1.HandedOverCondition) {
				t.Errorf("got %+v, want %q", got, tc.reason)
			}
			if over := tc.subject.record.Remediation == nil; over != (tc.reason == infrav1.MachineHealthyReason) {
				t.Errorf("the next remediation begins from the start: %v", over)
			}
		})
	}
}

// A machine that was switched off, and is ours still, is not left off.
func TestWhetherARemediationMayEnd(t *testing.T) {
	off := infrav1.RemediationProgress{Step: infrav1.RemediationPowerOff}
	asked := infrav1.RemediationProgress{Step: infrav1.RemediationPowerOff, Requests: 1}
	on := infrav1.RemediationProgress{Step: infrav1.RemediationPowerOn}
	taken := func(s *subject) { s.MaasMachine.Spec.SystemID = "abc" }
	for name, tc := range map[string]struct {
		subject *subject
		want    bool
	}{
		"nothing has begun":              {sick(taken), true},
		"to off, not asked yet":          {sick(taken, at(off)), true},
		"to off, asked":                  {sick(taken, at(asked)), false},
		"to on":                          {sick(taken, at(on)), false},
		"on again":                       {sick(taken, at(infrav1.RemediationProgress{Step: infrav1.RemediationRecover})), true},
		"to on, and was given back":      {sick(at(on)), true},
		"to on, and there is no machine": {sick(at(on), func(s *subject) { s.MaasMachine = nil }), true},
		"to on, and the Machine goes":    {sick(taken, at(on), func(s *subject) { s.Machine.DeletionTimestamp = &metav1.Time{Time: now} }), true},
		"to on, and the Machine is gone": {sick(at(on), func(s *subject) { s.Member = nil }), true},
	} {
		if got := tc.subject.mayEnd(); got != tc.want {
			t.Errorf("%s: it may end: %v", name, got)
		}
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
