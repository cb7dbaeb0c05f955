// SPDX-License-Identifier: Apache-2.0

// Package maasmachine reconciles MaasMachines: the lists in lists.go are the steps of a machine's life and of its
// deletion, on bare metal and as a VM.
package maasmachine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/finalizers"
	"sigs.k8s.io/cluster-api/util/paused"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/hostnode"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/life"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/metal"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/vm"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

// Reconciler reconciles MaasMachines: it acquires a machine in MAAS, deploys it, and releases it.
type Reconciler struct {
	life.Steps
	// Changes are the system ids of machines that changed in MAAS.
	Changes <-chan event.TypedGenericEvent[string]
	// HostUnreachableTimeout is how long an unreachable host delays the deletion of a VM. A rebooting host should be
	// back by then; the replacement of a control plane on a dead host waits as long, because its KubeadmControlPlane
	// waits for the deletion.
	HostUnreachableTimeout time.Duration

	silence hostnode.Silence
}

// Reconcile brings one MaasMachine closer to its desired state.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (_ ctrl.Result, reterr error) {
	maasMachine := &infrav1.MaasMachine{}
	if err := r.Client.Get(ctx, req.NamespacedName, maasMachine); err != nil {
		if apierrors.IsNotFound(err) {
			r.Told.Gone(req.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if r.Ignores(maasMachine) || r.Told.Ended(maasMachine) {
		return ctrl.Result{}, nil
	}
	m, err := r.owners(ctx, maasMachine)
	if err != nil || m == nil {
		return ctrl.Result{}, err
	}
	if isPaused, requeue, err := paused.EnsurePausedCondition(ctx, r.Client, m.cluster, maasMachine); err != nil ||
		isPaused || requeue {
		return ctrl.Result{}, err
	}
	added, err := finalizers.EnsureFinalizer(ctx, r.Client, maasMachine, infrav1.MachineFinalizer)
	if err != nil || added {
		return ctrl.Result{}, err
	}
	patcher, unreadable, err := reconciler.NewPatcher(r.Records.Client, maasMachine, r.Records.OpenMachine)
	if err != nil {
		return ctrl.Result{}, err
	}
	defer func() {
		reterr = kerrors.NewAggregate([]error{reterr, r.patch(ctx, patcher, maasMachine)})
	}()
	if unreadable != nil {
		return r.stopped(ctx, maasMachine, unreadable)
	}
	m.record = patcher.Record
	if !maasMachine.DeletionTimestamp.IsZero() {
		return r.reconcileDelete(ctx, m)
	}
	return r.reconcileNormal(ctx, m)
}

// reconcileNormal runs the steps that lead to the machine's Node.
func (r *Reconciler) reconcileNormal(ctx context.Context, m *owners) (ctrl.Result, error) {
	m.maasMachine.Status.ProvisioningMode = m.maasMachine.Spec.Mode()
	if waiting := blocker(m); waiting != nil {
		life.MarkDeployedUnknown(m.maasMachine, *waiting)
		return ctrl.Result{RequeueAfter: waiting.RetryAfter}, nil
	}
	s, err := r.scope(ctx, m)
	if err != nil {
		return r.stopped(ctx, m.maasMachine, err)
	}
	l := &life.Life{Machine: s, Record: m.record, Clock: r.Clock}
	defer func() { l.EndTurn() }()
	if !l.IsLXD() {
		return r.reconcileNode(ctx, l, r.bareMetalSteps(), metal.New(&r.Steps).InVain)
	}
	result, err := r.reconcileNode(ctx, l, r.vmSteps(), stays)
	return r.vm().WithoutSecondVMs(ctx, l, result, err)
}

// stays keeps a VM whose steps fail: no other user has it.
func stays(_ context.Context, _ *life.Life, cause error) (life.Outcome, error) {
	return life.Proceed, cause
}

// reconcileNode runs the steps that lead to a machine that runs, and then those that lead to its Node. failed is what
// follows when one of the first fails; it returns why, unless it waits for something else.
func (r *Reconciler) reconcileNode(
	ctx context.Context, l *life.Life, steps []life.Step,
	failed func(context.Context, *life.Life, error) (life.Outcome, error),
) (ctrl.Result, error) {
	out, err := reconciler.Through(ctx, l, steps)
	told := r.TellHardware(ctx, l)
	if err != nil {
		out, err = failed(ctx, l, err)
	}
	if err != nil {
		return r.stopped(ctx, l.MaasMachine, l.From(err))
	}
	if told != nil { // The machine itself is as it was.
		return report.Explain(told).Result(told)
	}
	if out.Waits() {
		result := life.Await(l.MaasMachine, out)
		result.RequeueAfter = out.Sooner(vm.LookAgain(l)).Problem().RetryAfter
		return result, nil
	}
	return r.reconcileRunning(ctx, l)
}

// reconcileRunning runs the steps that remain when the machine runs; a failure of them is not a failure of the machine.
func (r *Reconciler) reconcileRunning(ctx context.Context, l *life.Life) (ctrl.Result, error) {
	out, err := reconciler.Through(ctx, l, r.runningSteps())
	if err != nil {
		return report.Explain(err).Result(err)
	}
	if l.IsLXD() {
		out = out.Sooner(vm.LookAgain(l))
	}
	return ctrl.Result{RequeueAfter: out.Problem().RetryAfter}, nil
}

// reconcileDelete removes a machine from the endpoint's DNS record, then from MAAS and its host, or releases it to the
// pool. It removes the finalizer only when MAAS confirms that.
func (r *Reconciler) reconcileDelete(ctx context.Context, m *owners) (ctrl.Result, error) {
	if clusters.NothingAcquired(m.maasMachine) {
		return r.finishDeletion(ctx, m, "nothing was acquired in MAAS")
	}
	if m.record.In(returning) {
		return r.finishDeletion(ctx, m, givenBack(m.maasMachine))
	}
	if m.maasCluster == nil && m.lacks != nil && clusters.OnlyChosen(m.maasMachine) {
		return r.finishDeletion(ctx, m, "MAAS was not asked for the machine")
	}
	if m.maasCluster == nil {
		p := m.lacks
		if p == nil {
			p = &report.Problem{Reason: infrav1.WaitingForClusterInfrastructureReason, Message: fmt.Sprintf(
				"the MaasCluster is gone, and with it the credentials to release machine %s", m.maasMachine.Spec.SystemID)}
		}
		life.NotDeployed(m.maasMachine, p.Reason, "%s", p.Message)
		return ctrl.Result{RequeueAfter: report.MendRetry}, nil
	}
	steps := r.bareMetalDeletion()
	if m.maasMachine.Spec.IsLXD() {
		steps = r.vmDeletion()
	}
	return r.runDeletion(ctx, m, steps, func(how string) (ctrl.Result, error) { return r.finishDeletion(ctx, m, how) })
}

// runDeletion runs the steps of a deletion, then finish, which gets the reason why the object may go. The machine is
// watched until that succeeds: another attempt would ask MAAS for it anew.
func (r *Reconciler) runDeletion(
	ctx context.Context, m *owners, steps []life.Step, finish func(how string) (ctrl.Result, error),
) (ctrl.Result, error) {
	if m.original != nil {
		m.record.Pending = nil // They are the original's.
		return finish("the cluster is a copy; what is in MAAS is left to the original's")
	}
	if p := clusters.OwnerProblem(m.maasCluster, m.maasMachine); p != nil {
		life.MarkDeployedUnknown(m.maasMachine, *p)
		return ctrl.Result{RequeueAfter: p.RetryAfter}, nil
	}
	s, err := r.scope(ctx, m)
	if err != nil {
		return r.stopped(ctx, m.maasMachine, err)
	}
	l := &life.Life{Machine: s, Record: m.record, Clock: r.Clock}
	out, err := reconciler.Through(ctx, l, steps)
	if err != nil {
		return r.stopped(ctx, m.maasMachine, l.From(err))
	}
	if out.Waits() {
		return life.Await(m.maasMachine, out), nil
	}
	if l.MAAS == nil && m.maasMachine.Spec.SystemID != "" {
		m.record.MachineGone()
	}
	if out := report.Settle(m.record.Unsettled()); out.Waits() {
		return life.Await(m.maasMachine, out), nil
	}
	l.Machines.StopWithholding(m.maasMachine.Spec.SystemID, l.Mark())
	if l.IsControlPlane() && l.Endpoint() == scope.EndpointDNS {
		l.DNS.LetGo(l.EndpointName(), string(m.maasMachine.UID))
	}
	how := givenBack(m.maasMachine)
	if l.Kept {
		how = fmt.Sprintf("machine %s is kept for the next Machine of the same owner",
			maas.Named(m.maasMachine.Status.Hostname, m.maasMachine.Spec.SystemID))
	} else if l.MAAS != nil && l.MAAS.IsSwitchedByHand() {
		how = fmt.Sprintf("machine %s %s", l.MAAS, metal.RunsOn)
	}
	result, err := finish(how)
	if err == nil || m.record.In(returning) { // MAAS is not asked again.
		l.Inventory.Forget(m.maasMachine.Spec.SystemID)
	}
	return result, err
}

// givenBack says what became of the machine when the finalizer is removed.
func givenBack(m *infrav1.MaasMachine) string {
	switch named := maas.Named(m.Status.Hostname, m.Spec.SystemID); {
	case named == "":
		return "nothing was taken in MAAS"
	case m.Spec.IsLXD():
		return fmt.Sprintf("VM %s on host %s is deleted", named, cmp.Or(m.Status.LXDHost, "(unknown)"))
	default:
		return fmt.Sprintf("machine %s is released in MAAS", named)
	}
}

// returning is the phase in which nothing of the machine is left in MAAS, and its address is being returned to the
// pool. MAAS is not asked any more: the machine may be another user's.
const returning = "returning-address"

// finishDeletion returns the address to its pool, now that nothing of the machine is left in MAAS, lets the key pair
// for its LXD go, and removes the finalizer.
func (r *Reconciler) finishDeletion(ctx context.Context, m *owners, how string) (ctrl.Result, error) {
	returned, err := r.returnAddress(ctx, m.maasMachine, m.record)
	if err != nil {
		return r.stopped(ctx, m.maasMachine, err)
	}
	if !returned {
		return ctrl.Result{RequeueAfter: report.SafetyRetry}, nil
	}
	if err := r.host().DeleteLXDKeys(ctx, m.maasMachine, m.maasCluster); err != nil {
		return r.stopped(ctx, m.maasMachine, err)
	}
	if err := m.record.Finish(ctx, infrav1.MachineFinalizer); guard.Is[*record.UnsettledError](err) {
		return r.stopped(ctx, m.maasMachine, err)
	} else if err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	r.Told.End(m.maasMachine)
	r.silence.End(m.maasMachine.UID)
	r.Tell(m.maasMachine, "Deleted", "Delete", "%s", how)
	return ctrl.Result{}, nil
}

// returnAddress deletes the claim, and reports whether it is gone. No other machine may get the address before this one
// is gone: the claim of a VM that may be left on a host stays.
func (r *Reconciler) returnAddress(ctx context.Context, m *infrav1.MaasMachine, rec *record.Machine) (bool, error) {
	if m.Spec.StaticIPPoolRef == nil {
		return true, nil
	}
	claim := &ipamv1.IPAddressClaim{}
	err := r.Client.Get(ctx, client.ObjectKeyFromObject(m), claim)
	if apierrors.IsNotFound(err) || (err == nil && !metav1.IsControlledBy(claim, m)) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading IPAddressClaim %s: %w", m.Name, err)
	}
	if remains, err := r.vm().MayRemain(ctx, m.Status.Hostname, rec); err != nil {
		return false, err
	} else if remains && claim.DeletionTimestamp.IsZero() {
		return true, r.vm().LeaveAddress(ctx, m, claim)
	}
	if !rec.In(returning) {
		if err := rec.Store(ctx, func() { rec.Enter(returning, r.Clock.Now()) }); err != nil {
			return false, err
		}
	}
	if claim.DeletionTimestamp.IsZero() {
		uid := claim.UID
		err := r.Client.Delete(ctx, claim, client.Preconditions{UID: &uid})
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("deleting IPAddressClaim %s: %w", claim.Name, err)
		}
	}
	life.NotDeployed(m, infrav1.ReturningIPAddressReason,
		"waiting for %s %s to release %s: IPAddressClaim %s is being deleted",
		claim.Spec.PoolRef.Kind, claim.Spec.PoolRef.Name, cmp.Or(m.Status.StaticIP, "the address"), claim.Name)
	return false, nil
}

// patch stores the results of the reconcile in one patch.
func (r *Reconciler) patch(
	ctx context.Context, patcher *reconciler.Patcher[*record.Machine], m *infrav1.MaasMachine,
) error {
	types := life.Conditions(m)
	report.Summarize(m, !m.DeletionTimestamp.IsZero(), types...)
	m.Status.Ready = conditions.IsTrue(m, infrav1.ReadyCondition)
	if patcher.Record != nil && patcher.Record.Release != nil {
		m.Status.Release = patcher.Record.Release
	}
	owned := append([]string{infrav1.ReadyCondition}, types...)
	return patcher.Store(ctx, m, owned)
}

// stopped reports in the conditions, in an event and in the log why a step failed.
func (r *Reconciler) stopped(ctx context.Context, m *infrav1.MaasMachine, err error) (ctrl.Result, error) {
	if apierrors.IsConflict(err) || errors.Is(err, context.Canceled) {
		return ctrl.Result{}, err
	}
	p := report.Explain(err)
	old := conditions.Get(m, infrav1.MachineDeployedCondition)
	log := ctrl.LoggerFrom(ctx)
	if old == nil || old.Reason != p.Reason {
		r.Warn(m, p.Reason, "Reconcile", "%s", p.Message)
	} else if p.Reason == infrav1.MAASBusyReason {
		log = log.V(1) // Of a thousand machines most wait for their turn.
	}
	if guard.Is[*record.LostError](err) {
		log = log.WithValues("response", maas.Message(err)) // The condition says what is waited for.
	}
	log.Info("Can't go on", "reason", p.Reason, "error", strings.ReplaceAll(err.Error(), "\n", "; "))
	life.MarkDeployedUnknown(m, p)
	if p.Reason == infrav1.MAASBusyReason {
		// The new condition would trigger a reconcile at once.
		r.Controller.DeferNextReconcileForObject(m, r.Clock.Now().Add(p.RetryAfter))
	}
	return p.Result(err)
}
