// SPDX-License-Identifier: Apache-2.0

// Package maasmachine reconciles MaasMachines: the four lists in controller.go are the steps of a machine's life and of
// its deletion, on bare metal and as a VM.
package maasmachine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/utils/clock"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	capicontroller "sigs.k8s.io/cluster-api/util/controller"
	"sigs.k8s.io/cluster-api/util/finalizers"
	"sigs.k8s.io/cluster-api/util/paused"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/turns"
)

// Reconciler reconciles MaasMachines: it acquires a machine in MAAS, deploys it, and releases it.
type Reconciler struct {
	reconciler.Base
	ClusterCache clustercache.ClusterCache
	// Changes are the system ids of machines that changed in MAAS.
	Changes <-chan event.TypedGenericEvent[string]
	// CommissionTimeout is how long MAAS may commission and test a machine, DeployTimeout how long it may deploy one,
	// before the condition reports a timeout. 0 is no limit.
	CommissionTimeout, DeployTimeout time.Duration
	// HostUnreachableTimeout is how long an unreachable host delays the deletion of a VM. A rebooting host should be
	// back by then; the replacement of a control plane on a dead host waits as long, because its KubeadmControlPlane
	// waits for the deletion.
	HostUnreachableTimeout time.Duration

	controller capicontroller.Controller
	// told are the MaasMachines whose event Provisioned was sent, and those that were let go.
	told report.Once
	// silentSince is when host clusters began not to respond to this process, by the UID of the MaasMachine that is being
	// deleted.
	silentSince sync.Map
}

// Reconcile brings one MaasMachine closer to its desired state.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (_ ctrl.Result, reterr error) {
	maasMachine := &infrav1.MaasMachine{}
	if err := r.Client.Get(ctx, req.NamespacedName, maasMachine); err != nil {
		if apierrors.IsNotFound(err) {
			r.told.Gone(req.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if r.Ignores(maasMachine) || r.told.Ended(maasMachine) {
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

// bareMetalSteps lead from a machine in MAAS's pool to one that runs.
func (r *Reconciler) bareMetalSteps() []step {
	return []step{
		r.unused, r.lookup, r.handBack, r.address, r.succession, r.adoption, r.acceptance, r.preflight, r.image,
		r.holding, r.settlement, r.choice, r.layout, r.allocation, r.refused, r.acceptance,
		r.readiness, r.fit, r.storage, r.claim, r.storageCheck, r.interfaces, r.bridge,
		r.network, r.deployment, r.annotation, r.observation,
	}
}

// vmSteps lead from no VM to one that runs.
func (r *Reconciler) vmSteps() []step {
	return []step{
		r.lookup, r.composed, r.address, r.adoption, r.recovery, r.preflight, r.image, r.composition, r.start,
		r.readiness, r.claim, r.network,
		r.deployment, r.annotation, r.observation, r.vmObservation,
	}
}

// bareMetalDeletion releases a machine to MAAS's pool.
func (r *Reconciler) bareMetalDeletion() []step {
	return []step{
		r.endpointRemoval, r.unused, r.deletionLookup, r.acceptance, r.hostRetirement, r.keep, r.release, r.restoration,
	}
}

// vmDeletion deletes a VM, and makes sure that neither its host nor MAAS has it any more.
func (r *Reconciler) vmDeletion() []step {
	return []step{r.endpointRemoval, r.deletionLookup, r.markComposed, r.vmRemoval, r.vmVerification, r.deregistration}
}

// reconcileNormal runs the steps that lead to the machine's Node.
func (r *Reconciler) reconcileNormal(ctx context.Context, m *owners) (ctrl.Result, error) {
	m.maasMachine.Status.ProvisioningMode = m.maasMachine.Spec.Mode()
	if waiting := blocker(m); waiting != nil {
		markDeployedUnknown(m.maasMachine, *waiting)
		return ctrl.Result{RequeueAfter: waiting.RetryAfter}, nil
	}
	s, err := r.scope(ctx, m)
	if err != nil {
		return r.stopped(ctx, m.maasMachine, err)
	}
	l := &life{Machine: s, record: m.record, clock: r.Clock}
	defer func() { l.leave() }()
	if !l.IsLXD() {
		return r.reconcileNode(ctx, l, r.bareMetalSteps())
	}
	result, err := r.reconcileNode(ctx, l, r.vmSteps())
	return r.withoutSpares(ctx, l, result, err)
}

// reconcileNode runs the steps that lead to a machine that runs, and then those that lead to its Node.
func (r *Reconciler) reconcileNode(ctx context.Context, l *life, steps []step) (ctrl.Result, error) {
	out, err := reconciler.Through(ctx, l, steps)
	told := r.tellHardware(ctx, l)
	if err != nil {
		out, err = r.inVain(ctx, l, err)
	}
	if err != nil {
		return r.stopped(ctx, l.MaasMachine, err)
	}
	if told != nil { // The machine itself is as it was.
		return report.Explain(told).Result(told)
	}
	if out.Waits() {
		result := await(l.MaasMachine, out)
		result.RequeueAfter = out.Sooner(r.watchVM(l)).Problem().RetryAfter
		return result, nil
	}
	return r.reconcileRunning(ctx, l)
}

// reconcileRunning runs the steps that remain when the machine runs; a failure of them is not a failure of the machine.
func (r *Reconciler) reconcileRunning(ctx context.Context, l *life) (ctrl.Result, error) {
	out, err := reconciler.Through(ctx, l, []step{r.endpoint, r.node})
	if err != nil {
		return report.Explain(err).Result(err)
	}
	if l.IsLXD() {
		out = out.Sooner(r.watchVM(l))
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
	if m.maasCluster == nil {
		p := clusters.OtherInfrastructure(m.cluster)
		if p == nil {
			p = &report.Problem{Reason: infrav1.WaitingForClusterInfrastructureReason, Message: fmt.Sprintf(
				"the MaasCluster is gone, and with it the credentials to release machine %s", m.maasMachine.Spec.SystemID)}
		}
		notDeployed(m.maasMachine, p.Reason, "%s", p.Message)
		return ctrl.Result{RequeueAfter: report.MendRetry}, nil
	}
	steps := r.bareMetalDeletion()
	if m.maasMachine.Spec.IsLXD() {
		steps = r.vmDeletion()
	}
	return r.letGo(ctx, m, steps, func(how string) (ctrl.Result, error) { return r.finishDeletion(ctx, m, how) })
}

// letGo runs the steps of a deletion, then finish, which gets the reason why the object may go. The machine is watched
// until that succeeds: another attempt would ask MAAS for it anew.
func (r *Reconciler) letGo(
	ctx context.Context, m *owners, steps []step, finish func(how string) (ctrl.Result, error),
) (ctrl.Result, error) {
	if m.original != nil {
		m.record.Pending = nil // They are the original's.
		return finish("the cluster is a copy; what is in MAAS is left to the original's")
	}
	if p := clusters.OwnerProblem(m.maasCluster, m.maasMachine); p != nil {
		markDeployedUnknown(m.maasMachine, *p)
		return ctrl.Result{RequeueAfter: p.RetryAfter}, nil
	}
	s, err := r.scope(ctx, m)
	if err != nil {
		return r.stopped(ctx, m.maasMachine, err)
	}
	l := &life{Machine: s, record: m.record, clock: r.Clock}
	out, err := reconciler.Through(ctx, l, steps)
	if err != nil {
		return r.stopped(ctx, m.maasMachine, err)
	}
	if out.Waits() {
		return await(m.maasMachine, out), nil
	}
	if l.maas == nil && m.maasMachine.Spec.SystemID != "" {
		m.record.MachineGone()
	}
	if out := report.Settle(m.record.Unsettled()); out.Waits() {
		return await(m.maasMachine, out), nil
	}
	l.Machines.StopWithholding(m.maasMachine.Spec.SystemID, l.Mark())
	how := givenBack(m.maasMachine)
	if l.kept {
		how = fmt.Sprintf("machine %s is kept for the next Machine of the same owner",
			maas.Named(m.maasMachine.Status.Hostname, m.maasMachine.Spec.SystemID))
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
	if err := r.deleteLXDKeys(ctx, m); err != nil {
		return r.stopped(ctx, m.maasMachine, err)
	}
	if err := m.record.Finish(ctx, infrav1.MachineFinalizer); guard.Is[*record.UnsettledError](err) {
		return r.stopped(ctx, m.maasMachine, err)
	} else if err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	r.told.End(m.maasMachine)
	r.silentSince.Delete(m.maasMachine.UID)
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
	if remains, err := r.mayRemain(ctx, m.Status.Hostname, rec); err != nil {
		return false, err
	} else if remains && claim.DeletionTimestamp.IsZero() {
		return true, r.leaveAddress(ctx, m, claim)
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
	notDeployed(m, infrav1.ReturningIPAddressReason, "waiting for %s %s to release %s: IPAddressClaim %s is being deleted",
		claim.Spec.PoolRef.Kind, claim.Spec.PoolRef.Name, cmp.Or(m.Status.StaticIP, "the address"), claim.Name)
	return false, nil
}

// life is one machine during one reconcile.
type life struct {
	*scope.Machine
	record *record.Machine
	clock  clock.PassiveClock
	// maas is the machine in MAAS; nil until a step found or acquired it.
	maas *maas.Machine
	// foreign is another user's machine that has our VM's id or name; nil if the deletion has met none.
	foreign *maas.Machine
	// leftover is what another object of ours has left on the machine.
	leftover machine.Leftover
	// kept means that the machine waits for the next Machine.
	kept bool
	// released means that the machine is released to the pool, though the spec wants a VM: it was not composed for us.
	released bool
	// proven means that MAAS proved to this reconcile that the machine is ours.
	proven bool
	// noImage is why MAAS can deploy no VM; nil if it can.
	noImage error
	// hostFirst means that the VM is deleted on its host, as far as that could be asked, and that MAAS is to forget it.
	hostFirst bool
	// deletedAt is when its host answered that it deletes it; the zero value: it did not in this reconcile.
	deletedAt time.Time
	// bid is what the pool was asked for.
	bid bid
	// turn ends the turn that the machine has; nil if it has none.
	turn func()
}

// takeTurn waits for a turn, which lasts until leave, or until the reconcile ends.
func (l *life) takeTurn(ctx context.Context, line turns.Line, rank turns.Rank) error {
	done, err := l.Turn(ctx, line, rank)
	if err == nil {
		l.turn = done
	}
	return err
}

// leave ends the turn.
func (l *life) leave() {
	if l.turn != nil {
		l.turn()
	}
}

// step is a step of reconciler.Through.
type step func(ctx context.Context, l *life) (outcome, error)

type outcome = report.Outcome

var proceed = outcome{}

// change changes the machine in MAAS, unless it is too soon after the same failed. A change of bare metal is recorded,
// in one patch with the changes of also: MAAS may finish a call after the client stopped waiting for the response, and
// by then the machine may be back in the pool, or another user's.
func (r *Reconciler) change(
	ctx context.Context, l *life, op record.Op, do func(context.Context, maas.Permit) error, also ...func(client.Object),
) error {
	if l.IsLXD() && !l.released {
		if err := r.stillWanted(ctx, l); err != nil {
			return err
		}
		return l.record.Try(op, func() error { return do(ctx, record.ChangeVM.Permit()) })
	}
	return l.record.Call(ctx, op, do, also...)
}

// stillWanted returns a conflict, as the record does, if a VM's MaasMachine is being deleted, or is another one of
// its name, since this reconcile read it: a compose, or the wait for a turn, may have taken minutes.
func (r *Reconciler) stillWanted(ctx context.Context, l *life) error {
	if !l.MaasMachine.DeletionTimestamp.IsZero() {
		return nil // It is changed for its deletion.
	}
	now := &infrav1.MaasMachine{}
	err := r.Client.Get(ctx, client.ObjectKeyFromObject(l.MaasMachine), now)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading MaasMachine %s again: %w", l.MaasMachine.Name, err)
	}
	if err == nil && now.DeletionTimestamp.IsZero() && now.UID == l.MaasMachine.UID {
		return nil
	}
	return apierrors.NewConflict(schema.GroupResource{Group: infrav1.GroupVersion.Group, Resource: "maasmachines"},
		l.MaasMachine.Name, errGoing)
}

var errGoing = errors.New("it is being deleted: nothing more is acquired or deployed for it")

// patch stores the results of the reconcile in one patch.
func (r *Reconciler) patch(
	ctx context.Context, patcher *reconciler.Patcher[*record.Machine], m *infrav1.MaasMachine,
) error {
	types := Conditions(m)
	report.Summarize(m, !m.DeletionTimestamp.IsZero(), types...)
	m.Status.Ready = conditions.IsTrue(m, infrav1.ReadyCondition)
	if patcher.Record != nil && patcher.Record.Release != nil {
		m.Status.Release = patcher.Record.Release
	}
	owned := append([]string{infrav1.ReadyCondition}, types...)
	return patcher.Store(ctx, m, owned)
}
