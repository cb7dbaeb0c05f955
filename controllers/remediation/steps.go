// SPDX-License-Identifier: Apache-2.0

package remediation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/disruption"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/objects"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/controllers/quarantine"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/internal/states"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

const (
	// requestWait is how long a machine may take to follow a request to switch it.
	requestWait = time.Minute
	// maxRequests is how often MAAS is asked to switch a machine before that counts as failed.
	maxRequests = 3
	// comment is what MAAS shows as the reason for switching a machine.
	comment = "remediation by Cluster API"
)

// steps returns the list for what the remediation is at. Its last step begins what comes next, or ends the remediation.
func (r *Reconciler) steps(s *subject) []step {
	powerCycle := []step{needed, r.surely(useful, r.look, fit), r.quorum, start}
	switch deleted := !s.remediation.DeletionTimestamp.IsZero(); {
	case deleted && s.mayEnd():
		return []step{r.ends, letGo}
	case s.Member == nil:
		return []step{withoutMachine}
	case !s.Machine.DeletionTimestamp.IsZero():
		return nil // The machine is given back, in whatever state it is.
	}
	// Until MAAS is asked, what was decided is decided anew, as in the first reconcile.
	decision := []step{r.reread, orWithdraw(needed), orWithdraw(r.surely(r.look, fit)), orWithdraw(r.quorum)}
	switch p := s.progress(); {
	case p.Step == infrav1.RemediationLeaveEndpoint:
		return append(decision, r.leaveEndpoint)
	case p.Step == infrav1.RemediationPowerOff && p.Requests == 0:
		return slices.Concat([]step{orWithdraw(needed), orWithdraw(r.surely(r.look, fit)), r.power, switching}, decision,
			[]step{r.firstRequest})
	case p.Step == infrav1.RemediationPowerOff, p.Step == infrav1.RemediationPowerOn:
		return []step{r.surely(r.look, fit), r.power, switching, r.surely(r.look, fit), r.repeatRequest}
	}
	switch s.progress().Step {
	case infrav1.RemediationRecover:
		return append([]step{recovery}, powerCycle...)
	case infrav1.RemediationReplace:
		return []step{needed, r.quorum, r.blame, r.handOver}
	}
	return powerCycle
}

// step is a step of reconciler.Through. Those that only decide are functions of the subject and its clock.
type step func(ctx context.Context, s *subject) (outcome, error)

// outcome is how a step ends; the zero value goes on with the next step.
type outcome struct {
	report.Outcome
	// condition says why the reconcile ends, unless the outcome is brief.
	condition string
	// begins is the step of the remediation that begins; "": none.
	begins infrav1.RemediationStep
	// withdraws means that the power cycle that has begun is taken back: MAAS was not asked yet.
	withdraws bool
}

var proceed = outcome{}

// subject is what a remediation is about, for one reconcile.
type subject struct {
	remediation      *infrav1.MaasRemediation
	record           *record.Remediation // of the remediation
	*clusters.Member                     // nil: its Machine or its Cluster is gone
	clock            clock.PassiveClock
	interval         time.Duration // between two looks

	// What the steps find.
	inMAAS   *scope.Machine  // nil until MAAS was asked
	found    *maas.Machine   // nil: MAAS has none that is proven to be ours
	switched *record.Machine // the record of the machine that is switched
	power    string          // what the BMC, or the host, says
	settling time.Duration   // how much longer an earlier request may take effect
	wasOff   bool            // the outcome of a request to switch it off, perhaps an earlier remediation's, is not known
	leave    *disruption.Leave
}

func (s *subject) progress() infrav1.RemediationProgress {
	return ptr.Deref(s.record.Remediation, infrav1.RemediationProgress{})
}

// named names the machine in MAAS.
func (s *subject) named() string {
	return maas.Named(s.MaasMachine.Status.Hostname, s.MaasMachine.Spec.SystemID)
}

// condition is the one that says what the remediation waits for.
func (s *subject) condition() string {
	if s.progress().Step == infrav1.RemediationReplace {
		return infrav1.HandedOverCondition
	}
	return infrav1.PowerCycledCondition
}

// isGivenBack reports whether the machine is given back to MAAS, or was never taken.
func (s *subject) isGivenBack() bool {
	return s.MaasMachine == nil || !s.MaasMachine.DeletionTimestamp.IsZero() || s.MaasMachine.Spec.SystemID == ""
}

// mayEnd reports whether the remediation may go: it leaves no machine switched off that is not given back.
func (s *subject) mayEnd() bool {
	return s.Member == nil || !s.mayBeOff() || s.isGivenBack() || !s.Machine.DeletionTimestamp.IsZero()
}

// mayBeOff reports whether the machine was asked to switch off, and not seen on again.
func (s *subject) mayBeOff() bool {
	p := s.progress()
	return p.Step == infrav1.RemediationPowerOff && p.Requests > 0 || p.Step == infrav1.RemediationPowerOn
}

// waiting ends the reconcile until the next look.
func (s *subject) waiting(condition, reason, format string, args ...any) (outcome, error) {
	return outcome{Outcome: report.Wait(s.interval, reason, format, args...), condition: condition}, nil
}

// held ends the reconcile until a person has done something.
func (s *subject) held(format string, args ...any) (outcome, error) {
	out, err := s.waiting(s.condition(), infrav1.RemediationHeldReason, format, args...)
	out.Outcome = out.Within(report.MendRetry)
	return out, err
}

// begin ends the reconcile with the begin of a step of the remediation.
func (s *subject) begin(step infrav1.RemediationStep, reason, format string, args ...any) (outcome, error) {
	out, err := s.waiting(infrav1.PowerCycledCondition, reason, format, args...)
	out.begins = step
	return out, err
}

// again ends the reconcile until the next look, and lets the conditions stay. step begins, if any.
func (s *subject) again(step infrav1.RemediationStep, reason, why string) (outcome, error) {
	return outcome{Outcome: report.Retry(s.interval, reason, "%s", why), begins: step}, nil
}

// omit replaces the Machine without a power cycle.
func (s *subject) omit(format string, args ...any) (outcome, error) {
	return s.begin(infrav1.RemediationReplace, infrav1.PowerCycleOmittedReason, format, args...)
}

// write records the progress. The error is a conflict if the remediation was changed since it was read: a cache may
// lag, and nothing may be begun twice.
func (s *subject) write(ctx context.Context, progress infrav1.RemediationProgress) error {
	before := s.record.Remediation
	s.record.Remediation = &progress
	err := s.record.Write(ctx)
	if err != nil {
		s.record.Remediation = before
	}
	return err
}

// letGo removes the finalizer.
func letGo(ctx context.Context, s *subject) (outcome, error) {
	return proceed, client.IgnoreNotFound(s.record.Finish(ctx, infrav1.RemediationFinalizer))
}

// withoutMachine says that there is nothing to remedy.
func withoutMachine(_ context.Context, s *subject) (outcome, error) {
	return s.held("it has no Machine: a MachineHealthCheck makes one for each unhealthy Machine; delete this one")
}

// needed decides whether anything is to be done.
func needed(_ context.Context, s *subject) (outcome, error) {
	switch {
	case isHealthy(s.Machine):
		return s.waiting(s.condition(), infrav1.MachineHealthyReason, "the Machine is healthy: nothing is done")
	case annotations.HasSkipRemediation(s.Machine):
		return s.held("the Machine has the annotation %s: remove it, or delete the Machine",
			clusterv1.MachineSkipRemediationAnnotation)
	case annotations.HasPaused(s.Machine), s.MaasMachine != nil && annotations.HasPaused(s.MaasMachine):
		return s.held("the Machine is paused: remove the annotation %s", clusterv1.PausedAnnotation)
	}
	return proceed, nil
}

// isHealthy reports whether a Machine is healthy: a MachineHealthCheck says so or, if there is none, its Node.
func isHealthy(m *clusterv1.Machine) bool {
	if checked := conditions.Get(m, clusterv1.MachineHealthCheckSucceededCondition); checked != nil {
		return checked.Status == metav1.ConditionTrue
	}
	return conditions.IsTrue(m, clusterv1.MachineNodeHealthyCondition)
}

// useful decides whether a power cycle may help, whatever MAAS says of the machine.
func useful(_ context.Context, s *subject) (outcome, error) {
	tries := ptr.Deref(s.remediation.Spec.PowerCycle.Tries, infrav1.DefaultPowerCycleTries)
	switch {
	case tries == 0:
		return s.omit("spec.powerCycle.tries is 0")
	case s.progress().PowerCycles >= tries:
		return s.again(infrav1.RemediationReplace, infrav1.PowerCycledReason, "no power cycle has helped")
	case !s.Machine.Status.NodeRef.IsDefined():
		return s.omit("the machine was never a Node: its bootstrap does not run again after a restart")
	}
	return proceed, nil
}

// look reads the machine, and proves that it is ours.
func (r *Reconciler) look(ctx context.Context, s *subject) (outcome, error) {
	s.found = nil
	if s.isGivenBack() {
		return proceed, nil
	}
	if err := r.reach(ctx, s); err != nil {
		return proceed, err
	}
	id := s.MaasMachine.Spec.SystemID
	machine, err := s.inMAAS.Inventory.Read(ctx, id)
	switch {
	case errors.Is(err, maas.NotFound):
		if conditions.GetReason(s.MaasMachine, infrav1.MachineDeployedCondition) == infrav1.MachineMissingReason {
			return proceed, nil
		}
		return proceed, report.Later(report.CapacityRetry, infrav1.MAASUnavailableReason,
			"MAAS does not have machine %s now; waiting until that is certain", id)
	case err != nil:
		return proceed, fmt.Errorf("reading machine %s: %w", id, err)
	}
	ours, err := s.inMAAS.Machines.IsOurs(ctx, s.inMAAS.Identity(), machine)
	if ours {
		s.found = machine
	}
	return proceed, err
}

// reach finds the MAAS of the machine.
func (r *Reconciler) reach(ctx context.Context, s *subject) error {
	maasCluster, err := clusters.Provable(ctx, r.Client, s.Cluster, s.MaasMachine)
	if err != nil {
		return err
	}
	cluster, err := r.Scopes.Cluster(ctx, s.Cluster, maasCluster)
	s.inMAAS = &scope.Machine{Cluster: cluster, Machine: s.Machine, MaasMachine: s.MaasMachine}
	return err
}

// fit decides whether the machine may be switched, later or at all.
func fit(_ context.Context, s *subject) (outcome, error) {
	if s.found == nil {
		return s.omit("MAAS has no machine that is proven to be this Machine's")
	}
	switch state := states.Assess(s.found, true, s.MaasMachine.Spec.IsLXD()); {
	case state.Then == states.Replace:
		return s.omit("machine %s %s", s.found, state.Message)
	case s.found.Status != maas.StatusDeployed:
		return s.held("machine %s %s", s.found, state.Message)
	case s.found.Locked:
		return s.held("machine %s is locked: unlock it in MAAS, or delete the Machine", s.found)
	case s.found.InMemory:
		return s.omit("machine %s runs in memory: to be switched on deploys it anew, without its bootstrap", s.found)
	case s.found.PowerState == maas.PowerUnknown && !s.found.Device: // That one is switched by its host.
		return s.omit("MAAS does not control the power of machine %s", s.found.SystemID)
	}
	return proceed, nil
}

// orWithdraw takes the power cycle back that has begun if a step says that it is not to be, now: what waits for a
// person, or for other control planes, waits in the endpoint. A remediation whose Machine is healthy again is deleted.
func orWithdraw(decide step) step {
	return func(ctx context.Context, s *subject) (outcome, error) {
		out, err := decide(ctx, s)
		out.withdraws = err == nil && out.Waits() && !out.IsBrief() && out.begins == "" &&
			out.Problem().Reason != infrav1.MachineHealthyReason
		return out, err
	}
}

// surely decides again by what the API server has, before a Machine is replaced: that is not taken back, and a cache
// may lag.
func (r *Reconciler) surely(decide ...step) step {
	return func(ctx context.Context, s *subject) (outcome, error) {
		out, err := reconciler.Through(ctx, s, decide)
		if err != nil || out.begins != infrav1.RemediationReplace {
			return out, err
		}
		return reconciler.Through(ctx, s, append([]step{r.reread}, decide...))
	}
}

// reread reads the Machine and its MaasMachine from the API server: what was decided of them may be long ago.
func (r *Reconciler) reread(ctx context.Context, s *subject) (outcome, error) {
	there, err := r.refresh(ctx, s)
	if err != nil || there && s.Machine.DeletionTimestamp.IsZero() {
		return proceed, err
	}
	return s.again("", infrav1.WaitingForQuorumReason, "the Machine is going")
}

// ends decides by what the API server has that a remediation leaves no machine off that is not given back.
func (r *Reconciler) ends(ctx context.Context, s *subject) (outcome, error) {
	if !s.mayBeOff() {
		return proceed, nil
	}
	there, err := r.refresh(ctx, s)
	if err == nil && there && (s.Member == nil || !s.mayEnd()) {
		return s.again("", infrav1.RemediationHeldReason, "the machine is not given back")
	}
	return proceed, err
}

// refresh reads the Machine and its MaasMachine from the API server, and reports whether the Machine is there.
func (r *Reconciler) refresh(ctx context.Context, s *subject) (there bool, err error) {
	of := client.MatchingLabels{}
	if s.Member != nil {
		of[clusterv1.ClusterNameLabel] = s.Cluster.Name
	}
	machines := &clusterv1.MachineList{} // The manager has no right to get one.
	if err := r.APIReader.List(ctx, machines, client.InNamespace(s.remediation.Namespace), of); err != nil {
		return false, fmt.Errorf("reading the Machine of MaasRemediation %s again: %w", s.remediation.Name, err)
	}
	now := list.Find(machines.Items, func(m clusterv1.Machine) bool {
		return clusters.IsOwnedBy(s.remediation, clusters.MachineKind, &m)
	})
	if now == nil || s.Member == nil {
		return now != nil, nil
	}
	member := clusters.Member{Cluster: s.Cluster, Machine: now}
	if key, is := clusters.MaasMachineKey(now); is {
		maasMachine := &infrav1.MaasMachine{}
		switch err := r.APIReader.Get(ctx, key, maasMachine); {
		case err == nil:
			member.MaasMachine = maasMachine
		case !apierrors.IsNotFound(err):
			return false, fmt.Errorf("reading MaasMachine %s again: %w", key.Name, err)
		}
	}
	s.Member = &member
	return true, nil
}

// quorum waits until the rest of a control plane can do without the machine, and so those of the VMs on it. The leave
// lasts until what it is for is stored.
func (r *Reconciler) quorum(ctx context.Context, s *subject) (outcome, error) {
	about, what := *s.Member, "the machine is switched off"
	if s.progress().Step == infrav1.RemediationReplace {
		if !util.IsControlPlaneMachine(s.Machine) || isHandedOver(s.Machine) {
			return proceed, nil
		}
		about.MaasMachine, what = nil, "the Machine is replaced" // VMs leave a host before it is given back.
	}
	leave, why, err := cmp.Or(r.Locks, &r.own).Ask(ctx, &r.Base, &about)
	switch {
	case err != nil:
		return proceed, err
	case why != "":
		return s.waiting(s.condition(), infrav1.WaitingForQuorumReason, "%s: %s when they are healthy", why, what)
	}
	s.leave = leave
	if leave.IsLate() {
		return s.again("", infrav1.WaitingForQuorumReason, tooSlow)
	}
	return proceed, nil
}

const tooSlow = "the API server takes too long"

// start begins a power cycle. A control plane leaves the endpoint's DNS record first.
func start(_ context.Context, s *subject) (outcome, error) {
	if util.IsControlPlaneMachine(s.Machine) && s.inMAAS.Endpoint() == scope.EndpointDNS {
		return s.begin(infrav1.RemediationLeaveEndpoint, infrav1.LeavingEndpointReason,
			"the control plane leaves the API endpoint before it is switched off")
	}
	return s.begin(infrav1.RemediationPowerOff, infrav1.PoweringOffReason, "machine %s is being switched off", s.found)
}

// leaveEndpoint takes a control plane out of the endpoint's DNS record. It is the first reconcile that has the step
// from the cache, where the endpoint's record is made from.
func (r *Reconciler) leaveEndpoint(ctx context.Context, s *subject) (outcome, error) {
	if _, err := clusters.PublishFor(ctx, &r.Base, s.inMAAS.Cluster); err != nil {
		return proceed, fmt.Errorf("removing the machine from the API endpoint: %w", err)
	}
	return s.begin(infrav1.RemediationPowerOff, infrav1.PoweringOffReason, "machine %s is being switched off", s.named())
}

// power asks for the power of the machine. A BMC that does not respond is an error of its own, not of MAAS, which was
// read just before.
func (r *Reconciler) power(ctx context.Context, s *subject) (_ outcome, err error) {
	if s.switched, err = r.Records.OpenMachine(s.MaasMachine); err != nil {
		return proceed, err
	}
	defer func() { s.settling, s.wasOff = s.switched.Unsettled(), s.switched.IsPending(record.PowerOff) }()
	if s.found.Device {
		s.power, err = s.inMAAS.Machines.LXD().PowerOf(ctx, s.vm())
		return proceed, err
	}
	s.power, err = s.inMAAS.Inventory.Client().QueryPower(ctx, s.found.SystemID)
	if errors.Is(err, maas.Unavailable) && !maas.NotSent(err) {
		ctrl.LoggerFrom(ctx).Info("MAAS can't read the machine's power", "error", maas.Message(err))
		s.power, err = maas.PowerError, nil
	}
	return proceed, err
}

// vm is the machine as a VM that its host switches.
func (s *subject) vm() lxd.VM {
	vm := s.inMAAS.VM(s.MaasMachine.Spec.SystemID)
	vm.HostRef, vm.HostFirst = s.switched.Runs, true
	return vm
}

// goal returns the power that the machine is to have, and the reason of the condition until it has it.
func (s *subject) goal() (power, reason string) {
	if s.progress().Step == infrav1.RemediationPowerOff {
		return maas.PowerOff, infrav1.PoweringOffReason
	}
	return maas.PowerOn, infrav1.PoweringOnReason
}

// mayGoOff reports whether a request whose outcome is not known may switch the machine off again. LXD tries one once.
func (s *subject) mayGoOff() bool {
	requests := s.progress().Requests
	return requests > 1 || !s.found.Device && (requests == 1 || s.wasOff)
}

// switching decides how a power cycle goes on. It goes on with the next step if MAAS is to be asked to switch the
// machine.
func switching(_ context.Context, s *subject) (outcome, error) {
	p, id, settling := s.progress(), s.found.SystemID, s.settling > 0
	goal, reason := s.goal()
	switch off := goal == maas.PowerOff; {
	case off && s.power == goal && settling && s.mayGoOff():
		return s.waiting(infrav1.PowerCycledCondition, reason,
			"machine %s is off, and is switched on when a request whose response was lost can't switch it off again", id)
	case off && s.power == goal:
		return s.begin(infrav1.RemediationPowerOn, infrav1.PoweringOnReason,
			"machine %s is off, and is being switched on", id)
	case s.power == goal:
		return s.begin(infrav1.RemediationRecover, infrav1.PowerCycledReason, "machine %s was switched off and on", id)
	case p.Requests == 0:
		return proceed, nil
	case s.clock.Since(p.Requested.Time) < requestWait, settling:
		// MAAS may still do it; to be switched on restarts some machines that are on already.
	case p.Requests < maxRequests:
		return proceed, nil
	default:
		return s.begin(infrav1.RemediationReplace, infrav1.PowerCycleFailedReason,
			"MAAS was asked %d times to switch machine %s %s, and says that its power is %s: check its power settings in MAAS",
			p.Requests, id, goal, s.power)
	}
	return s.waiting(infrav1.PowerCycledCondition, reason, "machine %s is being switched %s", id, goal)
}

// license is what a request to switch a machine needs: the leave that was given in this reconcile, or that MAAS was
// asked before. A power cycle that has begun is finished.
type license interface{ IsLate() bool }

type askedBefore struct{}

func (askedBefore) IsLate() bool { return false }

// firstRequest asks MAAS to switch the machine off.
func (r *Reconciler) firstRequest(ctx context.Context, s *subject) (outcome, error) {
	return r.request(ctx, s, s.leave)
}

// repeatRequest asks MAAS again, or to switch the machine on.
func (r *Reconciler) repeatRequest(ctx context.Context, s *subject) (outcome, error) {
	return r.request(ctx, s, askedBefore{})
}

// request asks MAAS to switch the machine. The request is counted before it is sent, so that a manager that leads next
// does not begin to count anew.
func (r *Reconciler) request(ctx context.Context, s *subject, by license) (outcome, error) {
	before := s.progress()
	counted := before
	counted.Requests++
	counted.Requested = ptr.To(metav1.NewTime(r.Clock.Now()).Rfc3339Copy())
	if err := s.write(ctx, counted); err != nil {
		return proceed, err
	}
	goal, reason := s.goal()
	if by.IsLate() {
		s.record.Remediation = &before
		return s.again("", reason, tooSlow)
	}
	op, err := s.order(ctx, goal == maas.PowerOn)
	if failed := s.switched.Close(ctx); failed != nil && !apierrors.IsConflict(failed) {
		return proceed, errors.Join(err, failed)
	}
	switch {
	case err == nil:
		return s.waiting(infrav1.PowerCycledCondition, reason, "machine %s is being switched %s", s.found.SystemID, goal)
	case guard.Is[*record.UnsettledError](err), apierrors.IsConflict(err), maas.NotSent(err), errors.Is(err, maas.Busy),
		errors.Is(err, maas.Unauthorized):
		s.record.Remediation = &before // MAAS has not tried.
		return proceed, err
	}
	ctrl.LoggerFrom(ctx).Info("MAAS can't switch the machine", "operation", op, "error", maas.Message(err))
	return s.waiting(infrav1.PowerCycledCondition, reason, "MAAS could not switch machine %s: %s", s.named(),
		maas.Message(err))
}

// order has the machine switched, and returns the operation that does it.
func (s *subject) order(ctx context.Context, on bool) (record.Op, error) {
	if s.found.Device { // A late one would hit the next VM of the name.
		op := record.StopVM
		if on {
			op = record.StartVM
		}
		return op, s.switched.OnHost(ctx, op, func(ctx context.Context, permit maas.VMPermit) error {
			return s.inMAAS.Machines.LXD().SwitchVM(ctx, permit, s.vm(), on)
		})
	}
	op, do := record.PowerOff, s.inMAAS.Inventory.Client().PowerOffMachine
	if on {
		op, do = record.PowerOn, s.inMAAS.Inventory.Client().PowerOnMachine
	}
	return op, s.switched.Call(ctx, op, func(ctx context.Context, permit maas.Permit) error {
		_, err := s.inMAAS.Inventory.Change(s.found.SystemID, func(*maas.Client) (*maas.Machine, error) {
			return do(ctx, permit, s.found.SystemID, comment)
		})
		return err
	})
}

// recovery gives the Node time to be healthy after a power cycle.
func recovery(_ context.Context, s *subject) (outcome, error) {
	if isHealthy(s.Machine) {
		s.record.Remediation = nil // Whatever befalls it later begins from the start.
		return s.waiting(infrav1.HandedOverCondition, infrav1.MachineHealthyReason,
			"the Machine is healthy again: nothing more is done")
	}
	until := disruption.RecoversUntil(s.remediation, s.progress())
	if !s.clock.Now().Before(until) {
		return proceed, nil
	}
	return s.waiting(infrav1.HandedOverCondition, infrav1.WaitingForNodeReason,
		"the machine was switched on; its Node has until %s to be healthy", until.UTC().Format(time.RFC3339))
}

// blame keeps a server from being allocated next that could not be switched, or was of no use afterwards. Without a
// power cycle it is not known whether the server is to blame.
func (r *Reconciler) blame(ctx context.Context, s *subject) (outcome, error) {
	if s.progress().PowerCycles == 0 || isHandedOver(s.Machine) {
		return proceed, nil
	}
	if out, err := r.look(ctx, s); err != nil || s.found == nil {
		return out, err
	}
	rec, err := r.Records.OpenMachine(s.MaasMachine)
	if err != nil {
		return proceed, err
	}
	err = quarantine.Last(ctx, r.Recorder, rec, s.inMAAS, s.found, "a power cycle did not help")
	return proceed, errors.Join(err, rec.Close(ctx))
}

// isHandedOver reports whether the owner of a Machine knows that it is to replace it, or says why it does not.
func isHandedOver(m *clusterv1.Machine) bool {
	return conditions.IsFalse(m, clusterv1.MachineOwnerRemediatedCondition)
}

// handOver tells the owner of the Machine, a MachineSet or a control plane, to replace it. It is the one place where a
// machine is given up.
func (r *Reconciler) handOver(ctx context.Context, s *subject) (outcome, error) {
	if !isHandedOver(s.Machine) { // From then on the condition is the owner's.
		err := objects.PatchConditions(ctx, r.Client, s.Machine, func() {
			conditions.Set(s.Machine, metav1.Condition{
				Type: clusterv1.MachineOwnerRemediatedCondition, Status: metav1.ConditionFalse,
				Reason:  clusterv1.MachineOwnerRemediatedWaitingForRemediationReason,
				Message: "Waiting for remediation: MaasRemediation " + s.remediation.Name + " could not make the machine healthy",
			})
		}, clusterv1.MachineOwnerRemediatedCondition)
		if err != nil {
			return proceed, fmt.Errorf("handing Machine %s over: %w", s.Machine.Name, err)
		}
	}
	if conditions.GetReason(s.remediation, infrav1.HandedOverCondition) != infrav1.HandedOverReason {
		r.Recorder.Eventf(s.remediation, s.Machine, corev1.EventTypeWarning, infrav1.HandedOverReason, "Remediate",
			"Cluster API replaces Machine %s", s.Machine.Name)
	}
	report.SetTrue(s.remediation, infrav1.HandedOverCondition, infrav1.HandedOverReason)
	return proceed, nil
}
