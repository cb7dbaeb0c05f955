// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/life"
	"github.com/capmaas/cluster-api-provider-maas/controllers/quarantine"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/internal/states"
	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/turns"
)

// Whether a machine has passed what spec.checks names is MAAS's to say: its results are read in each reconcile that
// would go on with the machine. The record knows which of them are of a test for this object, and that the machine
// failed one: such a machine is never deployed for it, whatever is done in MAAS.

// switchedOffWithin is how long after its tests a machine may take to switch itself off, and MAAS to see that. One that
// was deployed before could be switched off during that.
const switchedOffWithin = 10 * time.Minute

// testedStates are those of a machine of ours that is tested, or failed.
var testedStates = sets.New(maas.StatusReady, maas.StatusAllocated, maas.StatusTesting, maas.StatusFailedTesting)

// UnderTest waits for the end of tests that were begun for this object, and stops at a machine that failed them.
func (s *Steps) UnderTest(ctx context.Context, l *life.Life) (life.Outcome, error) {
	tests := l.Record.TestsOf(l.MAAS.SystemID)
	if tests == nil || life.WasProvisioned(l.MaasMachine) {
		return life.Proceed, nil
	}
	s.Report(l)
	began := l.MAAS.Tests.Set > tests.After
	if began {
		l.Record.Done(record.Test)
	}
	switch {
	case tests.HasFailed() && testedStates.Has(l.MAAS.Status):
		return s.failed(ctx, l, tests)
	case !began || !tests.UnderWay():
		return life.Proceed, nil
	case l.MAAS.Status == maas.StatusTesting:
		return s.awaitTests(ctx, l, tests)
	case l.MAAS.Status == maas.StatusFailedTesting:
		verdict, err := s.verdict(ctx, l, tests)
		if err != nil {
			return life.Proceed, err
		}
		return s.fail(ctx, l, tests, verdict.Bad)
	}
	return life.Proceed, nil
}

// Checks has a machine tested before it is deployed, unless MAAS has results that are good and young enough.
func (s *Steps) Checks(ctx context.Context, l *life.Life) (life.Outcome, error) {
	if l.MaasMachine.Spec.Checks == nil || !life.Deployable(l.MAAS) || life.WasProvisioned(l.MaasMachine) {
		return life.Proceed, nil
	}
	tests := l.Record.TestsOf(l.MAAS.SystemID)
	verdict, err := s.verdict(ctx, l, tests)
	switch {
	case err != nil:
		return life.Proceed, err
	case verdict.Passed():
		return s.passed(l, tests, verdict), nil
	case verdict.UnderWay && s.timeLeft(l, tests) > 0: // What is known of the machine is older than its tests.
		return s.running(l, report.UnknownRetry, "machine %s is being tested", l.MAAS), nil
	case verdict.UnderWay, verdict.Bad != nil:
		return s.fail(ctx, l, tests, verdict.Bad)
	}
	return s.startTests(ctx, l)
}

// verdict reads from MAAS what the machine has passed.
func (s *Steps) verdict(ctx context.Context, l *life.Life, tests *record.Tests) (machine.Verdict, error) {
	checks, err := l.Machines.Checks(ctx, l.MaasMachine.Spec.Checks.Scripts)
	if err != nil {
		return machine.Verdict{}, err
	}
	results, err := l.Inventory.Client().TestResults(ctx, l.MAAS.SystemID)
	if err != nil {
		return machine.Verdict{}, fmt.Errorf("reading the test results of machine %s: %w", l.MAAS, err)
	}
	after, validFor := math.MaxInt, time.Duration(l.MaasMachine.Spec.Checks.ValidForSeconds)*time.Second
	if tests != nil {
		after = tests.After
	}
	return machine.Judge(results, checks, after, validFor, s.Clock.Now()), nil
}

// passed goes on with a machine that has passed, once it is off after its tests.
func (s *Steps) passed(l *life.Life, tests *record.Tests, verdict machine.Verdict) life.Outcome {
	if tests != nil {
		tests.Over = true
	}
	message := fmt.Sprintf("machine %s has passed %s", l.MAAS, scripts(l))
	if !verdict.Since.IsZero() {
		message += " since " + life.Timestamp(verdict.Since)
	}
	conditions.Set(l.MaasMachine, metav1.Condition{Type: infrav1.HardwareProvenCondition, Status: metav1.ConditionTrue,
		Reason: infrav1.ChecksPassedReason, Message: message + "; see " + l.Machines.TestsPage(l.MAAS.SystemID)})
	left := switchedOffWithin - s.Clock.Since(verdict.Until)
	if tests == nil || l.MAAS.PowerState != maas.PowerOn || l.MAAS.IsSwitchedByHand() || left <= 0 {
		return life.Proceed
	}
	return report.Wait(min(left, report.CapacityRetry), infrav1.ChecksRunningReason,
		"%s, and switches itself off; then it is deployed", message)
}

func scripts(l *life.Life) string {
	return text.List(l.MaasMachine.Spec.Checks.Scripts, life.MaxSkipped)
}

// running waits because tests are under way, or others come first.
func (s *Steps) running(l *life.Life, after time.Duration, format string, args ...any) life.Outcome {
	message := fmt.Sprintf(format, args...)
	report.SetUnknown(l.MaasMachine, infrav1.HardwareProvenCondition, infrav1.ChecksRunningReason, message)
	return report.Wait(after, infrav1.ChecksRunningReason, "%s", message)
}

func timeout(l *life.Life) time.Duration {
	return time.Duration(l.MaasMachine.Spec.Checks.TimeoutSeconds) * time.Second
}

// timeLeft returns how long tests may still take.
func (s *Steps) timeLeft(l *life.Life, tests *record.Tests) time.Duration {
	return timeout(l) - s.Clock.Since(tests.Since.Time)
}

// awaitTests waits while MAAS tests the machine, and ends that when it takes too long.
func (s *Steps) awaitTests(ctx context.Context, l *life.Life, tests *record.Tests) (life.Outcome, error) {
	if left := s.timeLeft(l, tests); left > 0 {
		return s.running(l, min(left, report.SafetyRetry), "MAAS runs %s on machine %s since %s, for %s at most; see %s",
			scripts(l), l.MAAS, life.Timestamp(tests.Since.Time), timeout(l), l.Machines.TestsPage(l.MAAS.SystemID)), nil
	}
	tests.Failed = fmt.Sprintf("did not end its checks (%s) within %s", scripts(l), timeout(l))
	return s.failed(ctx, l, tests)
}

// fail records that the machine failed, with the result that says so; nil: MAAS gave its tests up.
func (s *Steps) fail(
	ctx context.Context, l *life.Life, tests *record.Tests, bad *maas.TestResult,
) (life.Outcome, error) {
	tests.Failed = fmt.Sprintf("was not tested to the end (%s)", scripts(l))
	if bad == nil {
		return s.failed(ctx, l, tests)
	}
	tests.Failed = fmt.Sprintf("did not pass its check %s: %s", bad.Name, bad.Status)
	if bad.Device != "" {
		tests.Failed += " on " + text.OneLine(bad.Device, maxWhy)
	}
	if bad.ExitStatus != nil {
		tests.Failed += fmt.Sprintf(", exit status %d", *bad.ExitStatus)
	}
	return s.failed(ctx, l, tests)
}

// notProven reports that the machine failed, with the last lines of what says so. The record is stored before the
// status, which may not be: so they are read here.
func (s *Steps) notProven(ctx context.Context, l *life.Life, tests *record.Tests) {
	lines := ""
	if verdict, err := s.verdict(ctx, l, tests); err == nil && verdict.Bad != nil {
		lines = l.Machines.LastLines(ctx, l.MAAS.SystemID, *verdict.Bad)
	}
	if lines != "" {
		lines = "; its last lines: " + lines
	}
	report.SetFalse(l.MaasMachine, infrav1.HardwareProvenCondition, infrav1.ChecksFailedReason, "machine %s %s; see %s%s",
		l.MAAS, tests.Failed, l.Machines.TestsPage(l.MAAS.SystemID), lines)
}

// failed stops at a machine that failed: it is put into quarantine, and its Machine is to be replaced. What MAAS still
// does is aborted after that.
func (s *Steps) failed(ctx context.Context, l *life.Life, tests *record.Tests) (life.Outcome, error) {
	if !conditions.IsFalse(l.MaasMachine, infrav1.HardwareProvenCondition) {
		s.notProven(ctx, l, tests)
	}
	out, err := s.ReportFailure(ctx, l, states.ChecksFailed(l.MAAS, tests.Failed))
	if err != nil || l.MAAS.Status != maas.StatusTesting || l.Record.Quarantine == "" {
		return out, err
	}
	if notOurs, err := s.Prove(ctx, l); err != nil || notOurs.Waits() {
		return notOurs, err
	}
	if err := s.TellMachine(ctx, l, record.Abort, l.Machines.Abort); err != nil && !errors.Is(err, maas.Conflict) {
		return out, err
	}
	return out.Within(report.MendRetry), nil
}

// startTests starts the tests, if fewer machines of the template are tested than may be. The turn is of this process,
// and the records are read as they are now: they are written before the call.
func (s *Steps) startTests(ctx context.Context, l *life.Life) (life.Outcome, error) {
	if err := s.tooManyFailed(ctx, l); err != nil {
		report.SetUnknown(l.MaasMachine, infrav1.HardwareProvenCondition, infrav1.TooManyFailedReason, err.Error())
		return life.Proceed, err
	}
	done, err := l.Turn(ctx, turns.Tests, turns.Acquire)
	if err != nil {
		return life.Proceed, err
	}
	defer done()
	if out, err := s.Prove(ctx, l); err != nil || out.Waits() {
		return out, err
	}
	others, err := s.underTest(ctx, l)
	if err != nil {
		return life.Proceed, err
	}
	spec := l.MaasMachine.Spec.Checks
	if most := spec.MaxTesting; others >= most {
		return s.running(l, report.CapacityRetry, "machine %s is tested as soon as fewer than %d machines of its template "+
			"are (spec.checks.maxTesting)", l.MAAS, most), nil
	}
	parameters := map[string]string{}
	for name, value := range spec.Parameters {
		parameters[name] = string(value)
	}
	before, asked := l.Record.Tests, false
	l.Record.Tests = &record.Tests{SystemID: l.MAAS.SystemID, Since: metav1.NewTime(s.Clock.Now()).Rfc3339Copy(),
		After: l.MAAS.Tests.Set}
	l.Record.Quarantine = "" // An earlier one was for another failure, and may end.
	err = s.Change(ctx, l, record.Test, func(ctx context.Context, permit maas.Permit) error {
		asked = true
		return l.Machines.Test(ctx, permit, l.MAAS, maas.TestParams{Scripts: spec.Scripts, Parameters: parameters})
	})
	if !asked || (err != nil && maas.HadNoEffect(err)) {
		l.Record.Tests = before
	}
	if err != nil {
		return life.Proceed, err
	}
	s.Tell(l.MaasMachine, "Testing", "Test", "%s on machine %s", scripts(l), l.MAAS)
	return s.running(l, report.UnknownRetry, "MAAS boots machine %s to run %s", l.MAAS, scripts(l)), nil
}

// underTest returns how many other machines of the template are tested, or about to be.
func (s *Steps) underTest(ctx context.Context, l *life.Life) (others int32, err error) {
	all := &infrav1.MaasMachineList{}
	if err := s.APIReader.List(ctx, all, client.InNamespace(l.MaasMachine.Namespace)); err != nil {
		return 0, fmt.Errorf("listing the machines that are tested: %w", err)
	}
	template := quarantine.TemplateOf(l.MaasMachine)
	for i := range all.Items {
		m := &all.Items[i]
		if m.UID == l.MaasMachine.UID || quarantine.TemplateOf(m) != template {
			continue
		}
		if data, err := record.OfMachine(m); err != nil || data.Tests.UnderWay() {
			others++
		}
	}
	return others, nil
}

// checkable checks, before a machine is taken, that it could be tested, and that not too many others have failed.
func (s *Steps) checkable(ctx context.Context, l *life.Life) error {
	if l.MaasMachine.Spec.Checks == nil {
		return nil
	}
	if _, err := l.Machines.Checks(ctx, l.MaasMachine.Spec.Checks.Scripts); err != nil {
		return err
	}
	return s.tooManyFailed(ctx, l)
}

// tooManyFailed returns an error if as many machines as may be are in quarantine because they failed the checks of the
// template.
func (s *Steps) tooManyFailed(ctx context.Context, l *life.Life) error {
	failed, err := l.Machines.Quarantine.List(ctx, report.CapacityRetry)
	if err != nil {
		return fmt.Errorf("counting the machines that failed their checks: %w", err)
	}
	template, names := quarantine.TemplateOf(l.MaasMachine), sets.New[string]()
	for _, q := range append(failed, l.Machines.Quarantine.Remembered()...) {
		if q.Checks == template && strings.HasPrefix(q.By, markOf(l, "")) {
			names.Insert(q.Hostname)
		}
	}
	if names.Len() < int(l.MaasMachine.Spec.Checks.MaxFailed) {
		return nil
	}
	all := sets.List(names)
	return report.Later(report.MendRetry, infrav1.TooManyFailedReason, "%d machine(s) in quarantine failed the checks of "+
		"template %s (spec.checks.maxFailed): %s: read why (capmaasctl machines list), and lift one (capmaasctl machines "+
		"lift %s), or change the template", len(all), template, text.List(all, life.MaxSkipped), list.First(all,
		func(string) bool { return true }))
}

// failedChecks reports whether a machine failed the tests of this object, and is in quarantine in MAAS: other users of
// MAAS may have it then, as any machine that failed.
func failedChecks(l *life.Life) bool {
	return l.Record.TestsOf(l.MAAS.SystemID).HasFailed() && l.Record.Quarantine == record.Quarantined
}
