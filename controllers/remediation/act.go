// SPDX-License-Identifier: Apache-2.0

package remediation

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/patch"
	ctrl "sigs.k8s.io/controller-runtime"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/controllers/quarantine"
	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
)

// comment is what MAAS shows as the reason for switching a machine.
const comment = "remediation by Cluster API"

// decideWithin is how old a look at a control plane may be when a machine of it is switched off: a manager that was
// stopped meanwhile does not know what another one has begun.
const decideWithin = 5 * time.Second

// start begins a power cycle, or the replacement.
func (r *Reconciler) start(ctx context.Context, s *subject) (ctrl.Result, error) {
	f := r.said(s)
	if v := withoutMAAS(f); v != nil {
		return r.follow(ctx, s, v)
	}
	f, err := r.lookAtMachine(ctx, s)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !s.isControlPlane() || unfit(f) != nil {
		return r.follow(ctx, s, start(f))
	}
	r.quorum.Lock() // Until it is stored that this one begins.
	defer r.quorum.Unlock()
	looked := r.Clock.Now()
	if f.quorum, err = r.quorumWithout(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	if r.Clock.Since(looked) > decideWithin {
		return ctrl.Result{RequeueAfter: r.Interval}, nil
	}
	return r.follow(ctx, s, start(f))
}

// leaveEndpoint takes a control plane out of the endpoint's DNS record. It is the first reconcile that has the step
// from the cache, where the endpoint's record is made from.
func (r *Reconciler) leaveEndpoint(ctx context.Context, s *subject) (ctrl.Result, error) {
	if s.isGivenBack() {
		return r.follow(ctx, s, unfit(r.said(s)))
	}
	sm, err := r.scope(ctx, s)
	if err != nil {
		return ctrl.Result{}, err
	}
	if _, _, err := clusters.PublishEndpoint(ctx, r.Client, r.Clock, sm.Cluster); err != nil {
		return ctrl.Result{}, fmt.Errorf("removing the machine from the API endpoint: %w", err)
	}
	return r.follow(ctx, s, begins(infrav1.RemediationPowerOff, infrav1.PoweringOffReason,
		"machine %s is being switched off", s.named()))
}

// switchPower switches the machine off or on, and goes on when it is.
func (r *Reconciler) switchPower(ctx context.Context, s *subject) (ctrl.Result, error) {
	f, err := r.lookAtMachine(ctx, s)
	if err != nil {
		return ctrl.Result{}, err
	}
	if v := unfit(f); v != nil {
		return r.follow(ctx, s, v)
	}
	rec, err := r.Records.OpenMachine(s.maasMachine)
	if err != nil {
		return ctrl.Result{}, err
	}
	power, err := r.power(ctx, s, f.machine, rec)
	if err != nil {
		return ctrl.Result{}, err
	}
	v, ask := switching(s.progress(), f.machine.SystemID, power, rec.Unsettled(), r.Clock.Now())
	if !ask {
		return r.follow(ctx, s, v)
	}
	s.say(v)
	if f, err = r.lookAtMachine(ctx, s); err != nil { // Anew: the BMC may have taken minutes.
		return ctrl.Result{}, err
	}
	if v := unfit(f); v != nil {
		return r.follow(ctx, s, v)
	}
	return ctrl.Result{RequeueAfter: r.Interval}, r.ask(ctx, s, f.machine, rec)
}

// vm returns a VM that its host switches.
func (s *subject) vm(rec *record.Machine) lxd.VM {
	vm := s.inMAAS.VM(s.maasMachine.Spec.SystemID)
	vm.HostRef, vm.HostFirst = rec.Runs, true
	return vm
}

// switches returns the request that switches the machine, and its operation.
func (s *subject) switches(
	machine *maas.Machine, rec *record.Machine, on bool,
) (record.Op, func(context.Context, maas.Permit) error) {
	op, do := record.PowerOff, s.inMAAS.Inventory.Client().PowerOffMachine
	if on {
		op, do = record.PowerOn, s.inMAAS.Inventory.Client().PowerOnMachine
	} else if machine.Device {
		op = record.StopVM // A late one would hit the next VM of the name.
	}
	return op, func(ctx context.Context, permit maas.Permit) error {
		if machine.Device {
			return s.inMAAS.Machines.LXD().SwitchVM(ctx, permit, s.vm(rec), on)
		}
		_, err := s.inMAAS.Inventory.Change(machine.SystemID, func(*maas.Client) (*maas.Machine, error) {
			return do(ctx, permit, machine.SystemID, comment)
		})
		return err
	}
}

// power returns the power of a machine. A BMC that does not respond is an error of its own, not of MAAS, which was read
// just before.
func (r *Reconciler) power(
	ctx context.Context, s *subject, machine *maas.Machine, rec *record.Machine,
) (string, error) {
	if machine.Device {
		return s.inMAAS.Machines.LXD().PowerOf(ctx, s.vm(rec))
	}
	power, err := s.inMAAS.Inventory.Client().QueryPower(ctx, machine.SystemID)
	if errors.Is(err, maas.Unavailable) && !maas.NotSent(err) {
		ctrl.LoggerFrom(ctx).Info("MAAS can't read the machine's power", "error", maas.Message(err))
		return maas.PowerError, nil
	}
	return power, err
}

// ask asks MAAS to switch the machine. The request is counted before it is sent, so that a manager that leads next does
// not begin to count anew.
func (r *Reconciler) ask(ctx context.Context, s *subject, machine *maas.Machine, rec *record.Machine) error {
	before := s.progress()
	counted := before
	counted.Requests++
	counted.Requested = ptr.To(metav1.NewTime(r.Clock.Now()).Rfc3339Copy())
	if err := s.write(ctx, counted); err != nil {
		return err
	}
	op, request := s.switches(machine, rec, before.Step == infrav1.RemediationPowerOn)
	err := rec.Call(ctx, op, request)
	switch {
	case err == nil:
		return nil
	case guard.Is[*record.UnsettledError](err), apierrors.IsConflict(err), maas.NotSent(err), errors.Is(err, maas.Busy),
		errors.Is(err, maas.Unauthorized):
		s.record.Remediation = &before // MAAS has not tried.
		return err
	}
	ctrl.LoggerFrom(ctx).Info("MAAS can't switch the machine", "operation", op, "error", maas.Message(err))
	report.SetFalse(s.remediation, infrav1.PowerCycledCondition, conditions.GetReason(s.remediation,
		infrav1.PowerCycledCondition), "MAAS could not switch machine %s: %s", s.named(), maas.Message(err))
	return nil
}

// recover gives the Node time to be healthy.
func (r *Reconciler) recover(ctx context.Context, s *subject) (ctrl.Result, error) {
	v := recovering(r.said(s), r.Clock.Now())
	if v == nil {
		return r.start(ctx, s)
	}
	if v.reason == infrav1.MachineHealthyReason {
		s.record.Remediation = nil // Whatever befalls it later begins from the start.
	}
	return r.follow(ctx, s, v)
}

// replace hands the Machine over to Cluster API.
func (r *Reconciler) replace(ctx context.Context, s *subject) (ctrl.Result, error) {
	f := r.said(s)
	if s.isControlPlane() && !isHandedOver(s.machine) {
		why, err := r.quorumWithout(ctx, s)
		if err != nil {
			return ctrl.Result{}, err
		}
		f.quorum = why
	}
	if v := replacing(f); v != nil {
		return r.follow(ctx, s, v)
	}
	if err := r.handOver(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	if s.say(&verdict{condition: infrav1.HandedOverCondition, reason: infrav1.HandedOverReason}) {
		r.Recorder.Eventf(s.remediation, s.machine, corev1.EventTypeWarning, infrav1.HandedOverReason, "Remediate",
			"Cluster API replaces Machine %s", s.machine.Name)
	}
	return ctrl.Result{}, nil
}

// isHandedOver reports whether the owner of a Machine knows that it is to replace it, or says why it does not.
func isHandedOver(m *clusterv1.Machine) bool {
	return conditions.IsFalse(m, clusterv1.MachineOwnerRemediatedCondition)
}

// handOver tells the owner of the Machine, a MachineSet or a control plane, to replace it. It is the one place where a
// machine is given up.
func (r *Reconciler) handOver(ctx context.Context, s *subject) error {
	if isHandedOver(s.machine) {
		return nil // From here on the condition is the owner's.
	}
	if err := r.quarantine(ctx, s); err != nil {
		return err
	}
	helper, err := patch.NewHelper(s.machine, r.Client)
	if err != nil {
		return fmt.Errorf("preparing to patch Machine %s: %w", s.machine.Name, err)
	}
	conditions.Set(s.machine, metav1.Condition{
		Type: clusterv1.MachineOwnerRemediatedCondition, Status: metav1.ConditionFalse,
		Reason:  clusterv1.MachineOwnerRemediatedWaitingForRemediationReason,
		Message: "Waiting for remediation: MaasRemediation " + s.remediation.Name + " could not make the machine healthy",
	})
	owned := patch.WithOwnedConditions{Conditions: []string{clusterv1.MachineOwnerRemediatedCondition}}
	if err := helper.Patch(ctx, s.machine, owned); err != nil {
		return fmt.Errorf("handing Machine %s over: %w", s.machine.Name, err)
	}
	return nil
}

// quarantine keeps a server from being allocated next that could not be switched, or was of no use afterwards. If MAAS
// does not answer twice, the Machine is replaced without.
func (r *Reconciler) quarantine(ctx context.Context, s *subject) error {
	if s.progress().PowerCycles == 0 {
		return nil // Nobody knows whether the server is to blame.
	}
	f, err := r.lookAtMachine(ctx, s)
	if err != nil || f.machine == nil {
		return err
	}
	rec, err := r.Records.OpenMachine(s.maasMachine)
	if err != nil {
		return err
	}
	again, before := rec.IsPending(record.Quarantine), rec.Quarantine
	err = quarantine.Proven(ctx, rec, s.inMAAS, f.machine, "a power cycle did not help")
	err = quarantine.Report(ctx, r.Recorder, s.inMAAS, f.machine, before != rec.Quarantine, err)
	if again && errors.Is(err, maas.Unavailable) {
		ctrl.LoggerFrom(ctx).Info("Replacing a machine without a quarantine", "systemID", f.machine.SystemID, "error",
			text.Lines(err))
		err = nil
	}
	return errors.Join(err, rec.Close(ctx))
}
