// SPDX-License-Identifier: Apache-2.0

package maasmachine

import (
	"cmp"
	"context"
	"errors"
	"time"

	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/controllers/quarantine"
	"github.com/capmaas/cluster-api-provider-maas/internal/states"
	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/turns"
)

// readiness waits until MAAS has finished preparing the machine, and stops at unusable states. Deployed and deploying
// machines pass.
func (r *Reconciler) readiness(ctx context.Context, l *life) (outcome, error) {
	r.report(l)
	l.noteDeployment()
	if l.maas.Status == maas.StatusDeploying || l.maas.Status == maas.StatusDeployed {
		return r.deployedByUs(ctx, l)
	}
	if v := r.assess(l); v.Then != states.Deploy {
		return r.reportFailure(ctx, l, v)
	}
	if !l.record.In(heldInVain) {
		l.record.Enter("", r.Clock.Now())
	}
	return proceed, nil
}

// deployedByUs stops at a machine that another call than ours had deployed. MAAS lets an administrator deploy what
// another user acquired, so our agent name proves nothing of it. A VM is made for one MaasMachine.
func (r *Reconciler) deployedByUs(ctx context.Context, l *life) (outcome, error) {
	if l.IsLXD() || wasProvisioned(l.MaasMachine) || l.record.Deployed == l.maas.SystemID ||
		l.record.IsPending(record.Deploy) {
		return proceed, nil
	}
	if out, err := r.prove(ctx, l); err != nil || out.Waits() {
		return out, err
	}
	return r.reportState(l, states.DeployedByOthers(l.maas)), nil
}

// noteDeployment notes that the effect of a deploy shows whose response was lost: nothing waits for it any more.
func (l *life) noteDeployment() {
	if l.maas == nil || !l.record.IsPending(record.Deploy) {
		return
	}
	switch l.maas.Status {
	case maas.StatusDeploying, maas.StatusDeployed, maas.StatusFailedDeployment:
		l.record.Done(record.Deploy)
		l.record.Deployed = l.maas.SystemID
	}
}

func (r *Reconciler) assess(l *life) states.Assessment {
	return states.Assess(l.maas, wasProvisioned(l.MaasMachine), l.IsLXD())
}

// reportFailure reports why a machine that MAAS has does not run, and quarantines it if it failed.
func (r *Reconciler) reportFailure(ctx context.Context, l *life, v states.Assessment) (outcome, error) {
	out, why := r.reportState(l, v), r.whyFailed(l)
	if why == "" {
		return out, nil
	}
	err := quarantine.Machine(ctx, r.Recorder, l.record, l.Machine, l.maas, why)
	if errors.Is(err, maas.Unavailable) || guard.Is[*record.UnsettledError](err) { // The state is what users must know.
		ctrl.LoggerFrom(ctx).Info("Failed to quarantine a machine that failed; trying again", "systemID", l.maas.SystemID,
			"error", text.Lines(err))
		return out.Within(max(report.UnknownRetry, report.Explain(err).RetryAfter)), nil
	}
	return out, err
}

// proofLasts is how long a proof stays valid.
const proofLasts = 5 * time.Second

// prove proves that the machine is ours before it is changed. It waits if it is not.
func (r *Reconciler) prove(ctx context.Context, l *life) (outcome, error) {
	if l.proven {
		return proceed, nil
	}
	ours, err := l.Machines.IsOurs(ctx, l.Identity(), l.maas)
	if err != nil {
		return proceed, err
	}
	if !ours {
		return r.reportState(l, states.NotOurs(l.maas, wasProvisioned(l.MaasMachine))).Within(report.MendRetry), nil
	}
	l.proven = true
	return proceed, nil
}

func deployable(m *maas.Machine) bool { return m.Status == maas.StatusAllocated }

// deployment deploys the image with the user data.
func (r *Reconciler) deployment(ctx context.Context, l *life) (outcome, error) {
	if !deployable(l.maas) {
		return proceed, nil
	}
	userData, err := l.UserData(ctx)
	if err != nil {
		return proceed, err
	}
	done, err := r.turnToDeploy(ctx, l)
	if err != nil {
		return proceed, err
	}
	defer done()
	if out, err := r.prove(ctx, l); err != nil || out.Waits() {
		return out, err
	}
	spec := l.MaasMachine.Spec
	err = r.change(ctx, l, record.Deploy, func(ctx context.Context, permit maas.Permit) (err error) {
		l.maas, err = l.Machines.Deploy(ctx, permit, l.Identity(), l.maas, maas.DeployParams{
			DistroSeries: spec.Image, UserData: userData, InMemory: spec.DeployInMemory,
			Kernel: spec.Kernel,
		})
		if err == nil {
			l.record.Deployed = l.maas.SystemID // Stored with the outcome of the call.
		}
		return err
	})
	if err != nil {
		return proceed, err
	}
	l.proven = true
	r.Tell(l.MaasMachine, "Deploying", "Deploy", "image %s on machine %s", spec.Image, l.maas)
	return proceed, nil
}

// turnToDeploy waits for a turn, unless it is too soon after MAAS refused the deployment. The refusal stays the error
// of a machine that gets no turn. A proof from before the wait may no longer hold.
func (r *Reconciler) turnToDeploy(ctx context.Context, l *life) (done func(), err error) {
	refusal, err := l.record.Again(record.Deploy)
	if err != nil {
		return nil, err
	}
	rank := turns.Deploy
	if refusal != nil {
		rank = turns.Again
	}
	began := r.Clock.Now()
	done, err = l.Turn(ctx, turns.Machines, rank)
	l.leave()
	if r.Clock.Since(began) > proofLasts {
		l.proven = false
	}
	if refusal != nil && guard.Is[*guard.LaterError](err) {
		err = refusal
	}
	return done, err
}

// annotation writes our ownership annotations to the machine in MAAS. It first proves that a machine without them is
// ours.
func (r *Reconciler) annotation(ctx context.Context, l *life) (outcome, error) {
	if l.Identity().HasAnnotations(l.maas) {
		return proceed, nil
	}
	if out, err := r.prove(ctx, l); err != nil || out.Waits() {
		return out, err
	}
	if !l.Machines.CanMark(l.maas) {
		return proceed, nil
	}
	return proceed, r.annotate(ctx, l)
}

// observation reports the machine's state in the status.
func (r *Reconciler) observation(ctx context.Context, l *life) (outcome, error) {
	m := l.MaasMachine
	r.report(l)
	if v := r.assess(l); v.Then != states.Runs {
		return r.reportFailure(ctx, l, v)
	}
	addresses, err := r.addresses(ctx, l)
	if err != nil {
		return proceed, err
	}
	if len(addresses) == 0 {
		return r.reportFailure(ctx, l, states.NoAddress)
	}
	l.record.Enter("", r.Clock.Now())
	m.Status.Addresses = addresses
	recordAutomaticAddress(l)
	m.Status.FailureReason, m.Status.FailureMessage = "", ""
	if m.Spec.ProviderID == "" {
		m.Spec.ProviderID = l.ProviderID(l.maas)
	}
	if !ptr.Deref(m.Status.Initialization.Provisioned, false) {
		r.forgive(ctx, l)
		m.Status.Initialization.Provisioned = ptr.To(true)
		r.tellProvisioned(l, addresses[0].Address)
	}
	report.SetTrue(m, infrav1.MachineDeployedCondition, infrav1.DeployedReason)
	l.Inventory.Observe(l.maas.SystemID, inventory.Settled)
	return proceed, nil
}

func (r *Reconciler) tellProvisioned(l *life, address string) {
	if !r.told.First(l.MaasMachine) {
		return
	}
	r.Tell(l.MaasMachine, "Provisioned", "Deploy", "machine %s runs at %s", l.maas, address)
}

// vmObservation reports that the VM runs.
func (r *Reconciler) vmObservation(_ context.Context, l *life) (outcome, error) {
	l.noteAddresses(l.maas)
	if l.MaasMachine.Status.LXDHost == "" {
		l.MaasMachine.Status.LXDHost = l.vmOn(l.maas).Host
	}
	report.SetTrue(l.MaasMachine, infrav1.LXDVMDeployedCondition, infrav1.DeployedReason)
	return proceed, nil
}

// report copies MAAS's view into the status.
func (r *Reconciler) report(l *life) {
	status := &l.MaasMachine.Status
	status.MachineState = l.maas.StatusName
	status.MachinePowered = l.maas.PowerState == maas.PowerOn
	status.Hostname = l.maas.Hostname
	status.FailureDomain = l.maas.Zone.Name
	if l.IsLXD() {
		status.LXDHost = cmp.Or(l.maas.HostName(), status.LXDHost)
		r.vmExists(l, l.VMSpec().Resources)
		return
	}
	if l.proven || l.Identity().HasAnnotations(l.maas) { // Anybody may name a machine in spec.systemID.
		status.Hardware = hardwareOf(l.maas)
		markHardware(l.MaasMachine, l.maas.Tests)
	}
}
