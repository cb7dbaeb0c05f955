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
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
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
	ended := l.MAAS.Status == maas.StatusFailedTesting
	switch {
	case tests.WhyNot() != "" && testedStates.Has(l.MAAS.Status):
		return s.failed(ctx, l, tests)
	case !testsBegan(l) || !tests.UnderWay() || (!ended && l.MAAS.Status != maas.StatusTesting):
		return life.Proceed, nil
	}
	if out, err := s.Prove(ctx, l); err != nil || out.Waits() { // What is said of another user's is not for this one.
		return out, err
	}
	if !ended {
		return s.awaitTests(ctx, l, tests)
	}
	if err := s.noteFailure(ctx, l, tests); err != nil {
		return life.Proceed, err
	}
	return s.failed(ctx, l, tests)
}

// testsBegan reports whether MAAS shows tests of the machine that are later than the object asked for some.
func testsBegan(l *life.Life) bool {
	tests := l.Record.TestsOf(l.MAAS.SystemID)
	return tests != nil && l.MAAS.Tests.Set > tests.After
}

// Checks has a machine tested before it is deployed, unless MAAS has results that are good and young enough.
func (s *Steps) Checks(ctx context.Context, l *life.Life) (life.Outcome, error) {
	if l.MaasMachine.Spec.Checks == nil || !life.Deployable(l.MAAS) || life.WasProvisioned(l.MaasMachine) {
		return life.Proceed, nil
	}
	if out, err := s.Prove(ctx, l); err != nil || out.Waits() {
		return out, err
	}
	tests := l.Record.TestsOf(l.MAAS.SystemID)
	verdict, err := s.verdict(ctx, l, tests)
	switch {
	case err != nil:
		return life.Proceed, err
	case verdict.Passed():
		if err := l.Record.Awaits(record.Deploy); err != nil {
			return life.Proceed, err
		}
		return s.passed(l, tests, verdict), nil
	case verdict.UnderWay && s.timeLeft(l, tests) > 0: // What is known of the machine is older than its tests.
		return s.running(l, report.UnknownRetry, "machine %s is being tested", l.MAAS), nil
	case verdict.UnderWay, verdict.Bad != nil:
		s.noteBad(l, tests, verdict.Bad)
		return s.failed(ctx, l, tests)
	case verdict.NotBegun, verdict.Tested:
		return s.testAgain(ctx, l, tests, verdict)
	case tests != nil:
		return s.startTests(ctx, l, tests.Vain)
	}
	return s.startTests(ctx, l, 0)
}

const (
	// begins is how often MAAS may be asked for tests that it does not begin, because it can't switch the machine on.
	begins = 3
	// testPause is the time between two of these.
	testPause = 5 * time.Minute
)

// testAgain starts tests again that came to no result: a few times if MAAS could not begin them, and once if they lack
// some.
func (s *Steps) testAgain(
	ctx context.Context, l *life.Life, tests *record.Tests, verdict machine.Verdict,
) (life.Outcome, error) {
	switch {
	case verdict.NotBegun && tests.Vain+1 >= begins:
		tests.Untested = fmt.Sprintf("could not be switched on for its checks, %d times", begins)
		return s.failed(ctx, l, tests)
	case !verdict.NotBegun && tests.Vain > 0:
		tests.Failed = "was tested again, and has no result of " + text.List(verdict.Lacking, life.MaxSkipped)
		return s.failed(ctx, l, tests)
	}
	if left := testPause - s.Clock.Since(tests.Since.Time); left > 0 {
		return s.running(l, left, "machine %s was not tested to the end, and is tested again at %s; see %s", l.MAAS,
			life.Timestamp(s.Clock.Now().Add(left)), l.Machines.TestsPage(l.MAAS.SystemID)), nil
	}
	return s.startTests(ctx, l, tests.Vain+1)
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

// noteFailure records that the machine, which is proven to be ours, failed, as MAAS says.
func (s *Steps) noteFailure(ctx context.Context, l *life.Life, tests *record.Tests) error {
	verdict, err := s.verdict(ctx, l, tests)
	if err != nil && !guard.Is[*machine.MissingError](err) { // MAAS has no results of a script that was deleted.
		return err
	}
	s.noteBad(l, tests, verdict.Bad)
	return nil
}

// noteBad records that the machine failed, with the result that says so; nil: MAAS gave its tests up.
func (s *Steps) noteBad(l *life.Life, tests *record.Tests, bad *maas.TestResult) {
	tests.Failed = fmt.Sprintf("was not tested to the end (%s)", scripts(l))
	if bad == nil {
		return
	}
	tests.Failed = fmt.Sprintf("did not pass its check %s: %s", bad.Name, bad.Status)
	if bad.Device != "" {
		tests.Failed += " on " + text.OneLine(bad.Device, maxWhy)
	}
	if bad.ExitStatus != nil {
		tests.Failed += fmt.Sprintf(", exit status %d", *bad.ExitStatus)
	}
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
		l.MAAS, tests.WhyNot(), l.Machines.TestsPage(l.MAAS.SystemID), lines)
}

// failed stops at a machine that failed: it is put into quarantine, and its Machine is to be replaced. What MAAS still
// does is aborted after that.
func (s *Steps) failed(ctx context.Context, l *life.Life, tests *record.Tests) (life.Outcome, error) {
	if !conditions.IsFalse(l.MaasMachine, infrav1.HardwareProvenCondition) {
		s.notProven(ctx, l, tests)
	}
	out, err := s.ReportFailure(ctx, l, states.ChecksFailed(l.MAAS, tests.WhyNot()))
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
// vain is how often that was done before, to no result.
func (s *Steps) startTests(ctx context.Context, l *life.Life, vain int) (life.Outcome, error) {
	if err := l.Record.Awaits(record.Test); err != nil {
		return life.Proceed, err
	}
	if err := s.tooManyFailed(ctx, l); err != nil {
		report.SetUnknown(l.MaasMachine, infrav1.HardwareProvenCondition, infrav1.TooManyFailedReason, err.Error())
		return life.Proceed, err
	}
	done, err := l.Turn(ctx, turns.Tests, turns.Acquire)
	if err != nil {
		return life.Proceed, err
	}
	defer done()
	if out, err := s.proveAnew(ctx, l); err != nil || out.Waits() { // The wait may have been long.
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
	before, quarantined, asked := l.Record.Tests, l.Record.Quarantine, false
	l.Record.Tests = &record.Tests{SystemID: l.MAAS.SystemID, Since: *life.PtrTime(s.Clock.Now()),
		After: l.MAAS.Tests.Set, Vain: vain}
	l.Record.Quarantine = "" // That of an earlier failure says nothing of these.
	err = s.Change(ctx, l, record.Test, func(ctx context.Context, permit maas.Permit) error {
		asked = true
		return l.Machines.Test(ctx, permit, l.MAAS, maas.TestParams{Scripts: spec.Scripts, Parameters: parameters})
	})
	if !asked || (err != nil && maas.HadNoEffect(err)) {
		l.Record.Tests, l.Record.Quarantine = before, quarantined
	}
	if err != nil {
		return life.Proceed, err
	}
	s.Tell(l.MaasMachine, "Testing", "Test", "%s on machine %s", scripts(l), l.MAAS)
	return s.running(l, report.UnknownRetry, "MAAS boots machine %s to run %s", l.MAAS, scripts(l)), nil
}

// proveAnew reads the machine as MAAS has it now, and proves that it is ours. It waits if it is not as it was.
func (s *Steps) proveAnew(ctx context.Context, l *life.Life) (life.Outcome, error) {
	now, err := l.Inventory.Read(ctx, l.MAAS.SystemID)
	if err != nil {
		return life.Proceed, fmt.Errorf("reading machine %s before it is tested: %w", l.MAAS, err)
	}
	if now.Status != l.MAAS.Status || now.Tests.Set != l.MAAS.Tests.Set {
		return report.Retry(report.UnknownRetry, infrav1.ChecksRunningReason, "machine %s is %s now", now,
			now.StatusName), nil
	}
	l.MAAS, l.Proven = now, false
	return s.Prove(ctx, l)
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
