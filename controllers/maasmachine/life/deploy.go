// SPDX-License-Identifier: Apache-2.0

package life

import (
	"cmp"
	"context"
	"errors"
	"fmt"

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
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/turns"
)

// Readiness waits until MAAS has finished preparing the machine, and stops at unusable states. Deployed and deploying
// machines pass.
func (s *Steps) Readiness(ctx context.Context, l *Life) (Outcome, error) {
	s.Report(l)
	l.NoteDeployment()
	if l.MAAS.Status == maas.StatusDeploying || l.MAAS.Status == maas.StatusDeployed {
		return s.deployedByUs(ctx, l)
	}
	if v := s.assess(l); v.Then != states.Deploy {
		return s.ReportFailure(ctx, l, v)
	}
	if !l.Record.In(HeldInVain) {
		l.Record.Enter("", s.Clock.Now())
	}
	return Proceed, nil
}

// deployedByUs stops at a machine that another call than ours had deployed. MAAS lets an administrator deploy what
// another user acquired, so our agent name proves nothing of it. A VM is made for one MaasMachine.
func (s *Steps) deployedByUs(ctx context.Context, l *Life) (Outcome, error) {
	if l.IsLXD() || WasProvisioned(l.MaasMachine) || l.Record.Deployed == l.MAAS.SystemID ||
		l.Record.IsPending(record.Deploy) {
		return Proceed, nil
	}
	if out, err := s.Prove(ctx, l); err != nil || out.Waits() {
		return out, err
	}
	return s.ReportState(l, states.DeployedByOthers(l.MAAS)), nil
}

// NoteDeployment settles a deploy call whose response was lost, once MAAS shows its effect.
func (l *Life) NoteDeployment() {
	if l.MAAS == nil || !l.Record.IsPending(record.Deploy) {
		return
	}
	switch l.MAAS.Status {
	case maas.StatusDeploying, maas.StatusDeployed, maas.StatusFailedDeployment:
		l.Record.Done(record.Deploy)
		l.Record.Deployed = l.MAAS.SystemID
	}
}

func (s *Steps) assess(l *Life) states.Assessment {
	return states.Assess(l.MAAS, WasProvisioned(l.MaasMachine), l.IsLXD())
}

// ReportFailure reports why a machine that MAAS has does not run, and quarantines it if it failed.
func (s *Steps) ReportFailure(ctx context.Context, l *Life, v states.Assessment) (Outcome, error) {
	out, why := s.ReportState(l, v), s.WhyFailed(l)
	if why == "" {
		return out, nil
	}
	err := quarantine.Machine(ctx, s.Recorder, l.Record, l.Machine, l.MAAS, why)
	if errors.Is(err, maas.Unavailable) || guard.Is[*record.UnsettledError](err) { // The state is what users must know.
		ctrl.LoggerFrom(ctx).Info("Failed to quarantine a machine that failed; trying again", "systemID", l.MAAS.SystemID,
			"error", text.Lines(err))
		return out.Within(max(report.UnknownRetry, report.Explain(err).RetryAfter)), nil
	}
	return out, err
}

// Deployable reports whether a machine is acquired, and neither deployed nor on the way.
func Deployable(m *maas.Machine) bool { return m.Status == maas.StatusAllocated }

// Deployment deploys the image with the user data.
func (s *Steps) Deployment(ctx context.Context, l *Life) (Outcome, error) {
	if !Deployable(l.MAAS) {
		return Proceed, nil
	}
	userData, err := l.UserData(ctx)
	if err != nil {
		return Proceed, err
	}
	done, formerBoot, err := s.turnToDeploy(ctx, l)
	if err != nil {
		return Proceed, err
	}
	defer done()
	if out, err := s.Prove(ctx, l); err != nil || out.Waits() {
		return out, err
	}
	l.NoteFormerNode(formerBoot)
	spec := l.MaasMachine.Spec
	err = s.Change(ctx, l, record.Deploy, func(ctx context.Context, permit maas.Permit) (err error) {
		l.MAAS, err = l.Machines.Deploy(ctx, permit, l.Identity(), l.MAAS, maas.DeployParams{
			DistroSeries: spec.Image, UserData: userData, InMemory: spec.DeployInMemory,
			Kernel: spec.Kernel,
		})
		if err == nil {
			l.Record.Deployed = l.MAAS.SystemID // Stored with the outcome of the call.
		}
		return err
	})
	if err != nil {
		l.passOver(err)
		return Proceed, err
	}
	l.Proven = true
	s.Tell(l.MaasMachine, "Deploying", "Deploy", "image %s on machine %s", spec.Image, l.MAAS)
	if l.MAAS.IsSwitchedByHand() {
		s.Warn(l.MaasMachine, infrav1.SwitchedByHandReason, "Deploy", "machine %s: MAAS can't switch this machine "+
			"(power type manual): a person must switch it on, or off and on, now", l.MAAS)
	}
	return Proceed, nil
}

// passOver has others leave out a server that MAAS refuses to deploy for its own sake. This object can't have another
// one: its owner is to replace it.
func (l *Life) passOver(refusal error) {
	if l.IsLXD() || !machine.IsOwnRefusal(refusal, l.MaasMachine.Spec.Storage != nil) {
		return
	}
	l.Machines.MeetUnsuited(l.MAAS, "was refused when it was to be deployed ("+report.Brief(maas.Message(refusal))+")")
	status := &l.MaasMachine.Status
	status.FailureReason = infrav1.MAASRefusedReason
	status.FailureMessage = fmt.Sprintf("MAAS refuses to deploy machine %s, and may deploy another one: delete the "+
		"Machine: %s", l.MAAS, maas.Message(refusal))
}

// turnToDeploy waits for a turn, unless it is too soon after MAAS refused the deployment. The refusal stays the error
// of a machine that gets no turn. A proof from before the wait may no longer hold.
func (s *Steps) turnToDeploy(ctx context.Context, l *Life) (done func(), formerBoot string, err error) {
	refusal, err := l.Record.Again(record.Deploy)
	if err != nil {
		return nil, "", err
	}
	rank := turns.Deploy
	if refusal != nil {
		rank = turns.Again
	}
	began := s.Clock.Now()
	formerBoot = s.FormerBoot(ctx, l)
	done, err = l.Turn(ctx, turns.Machines, rank)
	l.EndTurn()
	if s.Clock.Since(began) > proofLasts {
		l.Proven = false
	}
	if refusal != nil && guard.Is[*guard.LaterError](err) {
		err = refusal
	}
	return done, formerBoot, err
}

// Observation reports the machine's state in the status.
func (s *Steps) Observation(ctx context.Context, l *Life) (Outcome, error) {
	m := l.MaasMachine
	s.Report(l)
	if v := s.assess(l); v.Then != states.Runs {
		return s.ReportFailure(ctx, l, v)
	}
	addresses, err := s.addresses(ctx, l)
	if err != nil {
		return Proceed, err
	}
	if len(addresses) == 0 {
		return s.ReportFailure(ctx, l, states.NoAddress)
	}
	l.Record.Enter("", s.Clock.Now())
	m.Status.Addresses = addresses
	recordAutomaticAddress(l)
	m.Status.FailureReason, m.Status.FailureMessage = "", ""
	if m.Spec.ProviderID == "" {
		m.Spec.ProviderID = l.ProviderID(l.MAAS)
	}
	if !ptr.Deref(m.Status.Initialization.Provisioned, false) {
		s.forgive(ctx, l)
		m.Status.Initialization.Provisioned = ptr.To(true)
		s.tellProvisioned(l, addresses[0].Address)
	}
	report.SetTrue(m, infrav1.MachineDeployedCondition, infrav1.DeployedReason)
	l.Inventory.Observe(l.MAAS.SystemID, inventory.Settled)
	return Proceed, nil
}

func (s *Steps) tellProvisioned(l *Life, address string) {
	if !s.Told.First(l.MaasMachine) {
		return
	}
	s.Tell(l.MaasMachine, "Provisioned", "Deploy", "machine %s runs at %s", l.MAAS, address)
}

// Report copies MAAS's view into the status.
func (s *Steps) Report(l *Life) {
	status := &l.MaasMachine.Status
	status.MachineState = l.MAAS.StatusName
	status.MachinePowered = l.MAAS.PowerState == maas.PowerOn
	status.Hostname = l.MAAS.Hostname
	status.FailureDomain = l.MAAS.Zone.Name
	if l.IsLXD() {
		status.LXDHost = cmp.Or(l.MAAS.HostName(), status.LXDHost)
		s.VMExists(l, l.VMSpec().Resources)
		return
	}
	if l.Proven || l.Identity().HasAnnotations(l.MAAS) { // Any user may name a machine in spec.systemID.
		status.Hardware = hardwareOf(l.MAAS)
		markHardware(l.MaasMachine, l.MAAS.Tests)
	}
}

// VMExists reports in the conditions that the VM exists, with its resources.
func (s *Steps) VMExists(l *Life, taken lxd.Resources) {
	report.SetTrue(l.MaasMachine, infrav1.LXDHostSelectedCondition, infrav1.HostSelectedReason)
	report.SetTrue(l.MaasMachine, infrav1.LXDResourcesAllocatedCondition, infrav1.AllocatedReason)
	report.SetTrue(l.MaasMachine, infrav1.LXDVMCreatedCondition, infrav1.CreatedReason)
	l.MaasMachine.Status.VMResourceUsage = &infrav1.VMResourceUsage{
		// From int32.
		AllocatedCores: int32(taken.Cores), AllocatedMemory: int32(taken.Memory), AllocatedDisk: int32(taken.Disk),
	}
}
