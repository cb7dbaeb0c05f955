// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/turns"
)

// readiness waits until MAAS has finished what it does before a machine can be deployed, and stops at states that can't be
// used. What is deployed, or on its way, passes.
func (r *MaasMachineReconciler) readiness(_ context.Context, l *life) (outcome, error) {
	r.report(l)
	if l.maas.Status == maas.StatusDeploying || l.maas.Status == maas.StatusDeployed {
		return proceed, nil
	}
	if v := r.assess(l); v.then != deployIt {
		return r.reportFailure(l, v), nil
	}
	l.record.Enter("", time.Now())
	return proceed, nil
}

func (r *MaasMachineReconciler) assess(l *life) assessment {
	return assess(l.maas, wasProvisioned(l.MaasMachine), l.IsLXD())
}

// reportFailure says why a machine that MAAS has does not run, and remembers it if it failed.
func (r *MaasMachineReconciler) reportFailure(l *life, v assessment) outcome {
	out := r.reportState(l, v)
	r.noteFailure(l)
	return out
}

var (
	// failedStates are those of a machine that would likely fail again.
	failedStates = sets.New(maas.StatusFailedCommissioning, maas.StatusFailedTesting, maas.StatusFailedDeployment)
)

// noteFailure remembers that a bare-metal machine failed, so that it is not the next one that MAAS gives. A VM goes with its failure.
func (r *MaasMachineReconciler) noteFailure(l *life) {
	if !l.IsLXD() && (failedStates.Has(l.maas.Status) || (l.maas.Status.Moving() && r.isOverdue(l))) {
		l.Machines.Failed(l.maas, string(l.MaasMachine.UID))
	}
}

// proofLasts is for how long a proof of a moment ago will do.
const proofLasts = 5 * time.Second

// prove makes sure that the machine is ours before it is changed.
func (r *MaasMachineReconciler) prove(ctx context.Context, l *life) (bool, error) {
	if l.proven {
		return true, nil
	}
	ours, err := l.Machines.IsOurs(ctx, l.Identity(), l.maas)
	if err != nil {
		return false, err
	}
	if !ours {
		r.reportState(l, notOurs(l.maas, wasProvisioned(l.MaasMachine)))
	}
	l.proven = ours
	return ours, nil
}

func deployable(m *maas.Machine) bool { return m.Status == maas.StatusAllocated }

// deployment installs the image with the user data.
func (r *MaasMachineReconciler) deployment(ctx context.Context, l *life) (outcome, error) {
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
	if ours, err := r.prove(ctx, l); err != nil || !ours {
		return waitAtMost(mendRetry), err
	}
	spec := l.MaasMachine.Spec
	err = r.change(ctx, l, record.Deploy, func(ctx context.Context, permit maas.Permit) (err error) {
		l.maas, err = l.Machines.Deploy(ctx, permit, l.Identity(), l.maas, machine.DeployRequest{
			Image: spec.Image, UserData: userData, InMemory: spec.DeployInMemory,
		})
		return err
	})
	if err != nil {
		return proceed, err
	}
	l.proven = true
	r.Recorder.Eventf(l.MaasMachine, nil, corev1.EventTypeNormal, "Deploying", "Deploy", "image %s on machine %s (%s)",
		spec.Image, l.maas.Hostname, l.maas.SystemID)
	return proceed, nil
}

// turnToDeploy waits for a turn. What was proven before a wait may not be so any more.
func (r *MaasMachineReconciler) turnToDeploy(ctx context.Context, l *life) (done func(), err error) {
	began := time.Now()
	done, err = l.Turn(ctx, turns.Machines, turns.Deploy)
	if time.Since(began) > proofLasts {
		l.proven = false
	}
	return done, err
}

// annotation makes our ownership readable in MAAS. A machine that does not carry the mark is proven first.
func (r *MaasMachineReconciler) annotation(ctx context.Context, l *life) (outcome, error) {
	if l.Identity().HasAnnotations(l.maas) {
		return proceed, nil
	}
	if ours, err := r.prove(ctx, l); err != nil || !ours {
		return waitAtMost(mendRetry), err
	}
	if !l.Machines.CanMark(l.maas) {
		return proceed, nil
	}
	return proceed, r.annotate(ctx, l)
}

func (r *MaasMachineReconciler) annotate(ctx context.Context, l *life) error {
	return r.change(ctx, l, record.Annotate, func(ctx context.Context, permit maas.Permit) error {
		return l.Machines.Mark(ctx, permit, l.Identity(), l.maas)
	})
}

// observation says in the status how the machine is.
func (r *MaasMachineReconciler) observation(ctx context.Context, l *life) (outcome, error) {
	m := l.MaasMachine
	r.report(l)
	if v := r.assess(l); v.then != itRuns {
		return r.reportFailure(l, v), nil
	}
	addresses, err := r.addresses(ctx, l)
	if err != nil {
		return proceed, err
	}
	if len(addresses) == 0 {
		return r.reportFailure(l, noAddress), nil
	}
	l.record.Enter("", time.Now())
	l.Machines.ClearFailures(l.maas.SystemID)
	m.Status.Addresses = addresses
	noteAutomaticAddress(l)
	m.Status.FailureReason, m.Status.FailureMessage = "", ""
	if m.Spec.ProviderID == "" {
		m.Spec.ProviderID = l.ProviderID(l.maas)
	}
	if !ptr.Deref(m.Status.Initialization.Provisioned, false) {
		m.Status.Initialization.Provisioned = ptr.To(true)
		r.Recorder.Eventf(m, nil, corev1.EventTypeNormal, "Provisioned", "Deploy", "machine %s runs at %s", l.maas.SystemID, addresses[0].Address)
	}
	setTrue(m, infrav1.MachineDeployedCondition, infrav1.DeployedReason)
	l.Inventory.Observe(l.maas.SystemID, inventory.Settled)
	return proceed, nil
}

// vmObservation says that the VM runs.
func (r *MaasMachineReconciler) vmObservation(_ context.Context, l *life) (outcome, error) {
	setTrue(l.MaasMachine, infrav1.LXDVMDeployedCondition, infrav1.DeployedReason)
	return proceed, nil
}

// report copies MAAS's view into the status.
func (r *MaasMachineReconciler) report(l *life) {
	status := &l.MaasMachine.Status
	status.MachineState = l.maas.StatusName
	status.MachinePowered = l.maas.PowerState == maas.PowerOn
	status.Hostname = l.maas.Hostname
	status.FailureDomain = l.maas.Zone.Name
	if l.IsLXD() {
		status.LXDHost = l.maas.HostName()
		r.vmExists(l, l.VMSpec().Resources)
	}
}
