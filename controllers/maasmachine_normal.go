// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/turns"
)

// look reads what the inventory knows of a machine that was acquired before.
func (r *MaasMachineReconciler) look(ctx context.Context, l *life) (outcome, error) {
	m := l.MaasMachine
	if m.Spec.SystemID == "" {
		return proceed, nil
	}
	interest := inventory.Changing
	if conditions.IsTrue(m, infrav1.MachineDeployedCondition) {
		interest = inventory.Settled
	}
	if out, err := r.readMachine(l, interest); err != nil || out.stop {
		return out, err
	}
	if l.maas == nil {
		return r.settle(l, gone), nil
	}
	return r.isUsable(ctx, l)
}

// readMachine reads the machine from the inventory; nil means that MAAS proved not to have it any more.
func (r *MaasMachineReconciler) readMachine(l *life, interest inventory.Interest) (outcome, error) {
	m := l.MaasMachine
	seen := l.Inventory.Observe(m.Spec.SystemID, interest)
	if err := l.Inventory.Health(); err != nil {
		// It may have changed since the last response. The inventory wakes us when MAAS can be read again.
		p := explain(err)
		return proceed, &notReadyError{p.reason, p.message, safetyRetry}
	}
	_, accepted := l.MaasCluster.Annotations[infrav1.AcceptVanishedAnnotation]
	switch {
	case !seen.Known:
		return waitAtMost(unknownRetry), nil
	case seen.Hidden:
		return hold(m, infrav1.MachineHiddenReason,
			"MAAS has machine %s, and does not show it to the user of the API key: let that user see it again, or use another key", m.Spec.SystemID), nil
	case seen.Machine == nil && seen.Vanished > 0 && !accepted:
		return hold(m, infrav1.MachinesVanishedReason,
			"MAAS says that machine %s is gone, and so are %d machines at once: was MAAS restored or emptied? If they are really gone, set the annotation %s on the MaasCluster",
			m.Spec.SystemID, seen.Vanished, infrav1.AcceptVanishedAnnotation), nil
	}
	l.maas = seen.Machine
	return proceed, nil
}

// hold waits for a person: the machine is neither lost nor let go meanwhile.
func hold(m *infrav1.MaasMachine, reason, format string, args ...any) outcome {
	cantSee(m, problem{reason: reason, message: fmt.Sprintf(format, args...)})
	m.Status.FailureReason, m.Status.FailureMessage = "", ""
	return waitAtMost(mendRetry)
}

// isUsable makes sure that a machine which is to become an LXD VM of ours was composed for it. Another one would be deleted with its disks.
func (r *MaasMachineReconciler) isUsable(ctx context.Context, l *life) (outcome, error) {
	if !l.IsLXD() || wasProvisioned(l.MaasMachine) {
		return proceed, nil
	}
	composed, err := l.Machines.IsComposed(ctx, l.Identity(), l.maas)
	if err != nil || composed {
		return proceed, err
	}
	notDeployed(l.MaasMachine, infrav1.MachineNotOursReason,
		"machine %s (%s) was not composed for this MaasMachine: remove spec.systemID, or use provisioningMode bare-metal for a machine of choice",
		l.maas.SystemID, l.maas.Hostname)
	return waitAtMost(mendRetry), nil
}

// adopt finds what an earlier try acquired but could not record, and gives back what was acquired twice.
func (r *MaasMachineReconciler) adopt(ctx context.Context, l *life) (outcome, error) {
	if l.maas != nil {
		return proceed, nil
	}
	found, foreign, err := r.find(ctx, l)
	switch {
	case err != nil:
		return proceed, err
	case foreign != nil:
		notDeployed(l.MaasMachine, infrav1.MachineNotOursReason, "machine %s has the name %s, and is not ours (MAAS user %q): rename it in MAAS, or delete the Machine",
			foreign.SystemID, foreign.Hostname, foreign.Owner)
		return waitAtMost(mendRetry), nil
	case len(found) == 0:
		return r.awaitSettled(l), nil
	}
	return r.adoptOne(ctx, l, found)
}

// adoptOne goes on with one of the machines that were found, and gives back the others.
func (r *MaasMachineReconciler) adoptOne(ctx context.Context, l *life, found []*maas.Machine) (outcome, error) {
	// Of two, what failed lately is given back.
	sort.SliceStable(found, func(i, j int) bool {
		return !l.Machines.IsCoolingDown(found[i].SystemID) && l.Machines.IsCoolingDown(found[j].SystemID)
	})
	if !l.IsLXD() && found[0].Pod != nil {
		// MAAS composed it when no machine fitted, and the response was lost.
		return waitAtMost(mendRetry), r.giveBack(ctx, l, found[0])
	}
	for _, extra := range found[1:] {
		ctrl.LoggerFrom(ctx).Info("Giving back a machine that was acquired twice", "systemID", extra.SystemID)
		if err := r.giveBack(ctx, l, extra); err != nil {
			return proceed, err
		}
	}
	return proceed, r.acquired(ctx, l, found[0], "Adopted")
}

// find returns the machines that an earlier try acquired, or the one of another user that has the name of ours.
func (r *MaasMachineReconciler) find(ctx context.Context, l *life) (ours []*maas.Machine, foreign *maas.Machine, err error) {
	found, err := l.Machines.Find(ctx, l.Identity())
	if err != nil || !l.IsLXD() {
		return found, nil, err
	}
	for _, m := range found {
		isOurs, err := l.Machines.IsOurs(ctx, l.Identity(), m)
		if err != nil {
			return nil, nil, err
		}
		if !isOurs {
			return nil, m, nil
		}
	}
	return found, nil, nil
}

// awaitSettled waits while it is not known what became of a request for a machine.
func (r *MaasMachineReconciler) awaitSettled(l *life) outcome {
	left := r.settling.Left(l.record, r.SettleTime)
	if left <= 0 {
		return proceed
	}
	notDeployed(l.MaasMachine, infrav1.MAASUnavailableReason,
		"MAAS did not say what became of the request for a machine; looking for it before asking again")
	return waitAtMost(min(left, capacityRetry))
}

// acquire takes a machine: bare metal from the pool, or a VM composed on a host.
func (r *MaasMachineReconciler) acquire(ctx context.Context, l *life) (outcome, error) {
	if l.maas != nil {
		return proceed, nil
	}
	if l.IsLXD() {
		return r.compose(ctx, l)
	}
	constraints := l.Constraints()
	var err error
	if constraints.NotOnVMHosts, err = l.Machines.VMHostNames(ctx); err != nil {
		return proceed, err
	}
	done, err := l.Turn(ctx, turns.Machines, turns.Acquire)
	if err != nil {
		return proceed, err
	}
	defer done()
	var allocated *maas.Machine
	var instead *machine.ComposedInsteadError
	err = l.record.Call(ctx, record.Allocate, func(ctx context.Context, permit maas.Permit) (err error) {
		allocated, err = l.Machines.Allocate(ctx, permit, l.Identity(), constraints)
		if errors.As(err, &instead) {
			return nil // It is ours until it is given back.
		}
		return err
	}, l.noteOwner)
	switch {
	case instead != nil:
		return proceed, errors.Join(instead, r.giveBack(ctx, l, instead.VM))
	case errors.Is(err, maas.Conflict):
		return noMachine(l, err, l.Machines.CoolingDown(constraints)), nil
	case err != nil:
		return proceed, err
	}
	return proceed, r.acquired(ctx, l, allocated, "Allocated")
}

// compose places a VM on a host, has it created there, and claims it.
func (r *MaasMachineReconciler) compose(ctx context.Context, l *life) (outcome, error) {
	spec := l.VMSpec()
	placer := l.Machines.LXD()
	hosts, err := placer.GetAvailableLXDHosts(ctx, spec)
	if err != nil {
		return proceed, err
	}
	peers, err := r.peers(ctx, l)
	if err != nil {
		return proceed, err
	}
	host, err := placer.SelectOptimalHost(hosts, spec, peers)
	if err != nil {
		return proceed, err
	}
	vm, err := r.composeOn(ctx, l, host, spec)
	if err != nil {
		return proceed, err
	}
	status := &l.MaasMachine.Status
	status.LXDHost, status.FailureDomain, status.LXDProject = host.Name, host.Zone, vm.Project
	r.Recorder.Eventf(l.MaasMachine, nil, corev1.EventTypeNormal, "VMComposed", "Compose", "VM %s on VM host %s", spec.Hostname, host.Name)
	if err := r.store(ctx, l, vm.SystemID); err != nil {
		return proceed, err
	}
	r.vmExists(l, spec.Resources)
	l.Inventory.Observe(vm.SystemID, inventory.Changing)
	notDeployed(l.MaasMachine, infrav1.CreatingReason, "VM %s was composed on VM host %s", vm.SystemID, host.Name)
	if spec.Commission {
		return waitAtMost(unknownRetry), nil // The inventory tells when it is Ready.
	}
	return r.claimNow(ctx, l, vm.SystemID)
}

// composeOn has the VM created on a host, when it is its turn there.
func (r *MaasMachineReconciler) composeOn(ctx context.Context, l *life, host lxd.Host, spec lxd.VMSpec) (lxd.VM, error) {
	placer := l.Machines.LXD()
	done, err := l.Turn(ctx, turns.OnHost(string(host.Key()), host.Name), turns.Acquire)
	if err != nil {
		placer.Cancel(spec.Hostname)
		return lxd.VM{}, err
	}
	defer done()
	place := placer.Place(host)
	known := slices.Contains(l.record.Hosts, place) // An earlier try may have made one there all the same.
	l.record.AddHost(place)
	var vm lxd.VM
	called := false
	err = l.record.Call(ctx, record.Compose, func(ctx context.Context, permit maas.Permit) (err error) {
		called = true
		if vm, err = placer.ComposeVM(ctx, permit, host, spec); err != nil && wasNotComposed(err) && !known {
			l.record.DropHost(place)
		}
		return err
	}, l.noteOwner)
	if !called {
		placer.Cancel(spec.Hostname)
	}
	return vm, err
}

// noteOwner notes which cluster asks for the machine.
func (l *life) noteOwner(m client.Object) { annotate(m, infrav1.OwnerIDAnnotation, l.OwnerID()) }

// peers are the control planes of the same cluster that have a host already; workers don't count for control planes, nor the
// other way round.
func (r *MaasMachineReconciler) peers(ctx context.Context, l *life) ([]lxd.Peer, error) {
	machines, err := clusterMachines(ctx, r.Client, l.MaasMachine.Namespace, l.Cluster.Cluster.Name)
	if err != nil {
		return nil, err
	}
	var peers []lxd.Peer
	for i := range machines {
		m := &machines[i]
		if (m.Status.LXDHost == "" && m.Status.FailureDomain == "") || m.Name == l.MaasMachine.Name || isControlPlane(m) != l.IsControlPlane() {
			continue
		}
		peers = append(peers, lxd.Peer{
			VM: maas.Hostname(m.Name, l.OwnerID()), Host: m.Status.LXDHost, Zone: m.Status.FailureDomain,
		})
	}
	return peers, nil
}

// acquired goes on with a machine that is proven to be ours.
func (r *MaasMachineReconciler) acquired(ctx context.Context, l *life, m *maas.Machine, how string) error {
	l.maas, l.proven = m, true
	l.left = l.Machines.LeftoverAddress(m)
	l.Inventory.Track(m)
	r.Recorder.Eventf(l.MaasMachine, nil, corev1.EventTypeNormal, how, "Acquire", "machine %s (%s) in zone %s", m.Hostname, m.SystemID, m.Zone.Name)
	return r.store(ctx, l, m.SystemID)
}

// store stores which machine it is at once: from here on it can't be lost any more.
func (r *MaasMachineReconciler) store(ctx context.Context, l *life, systemID string) error {
	return l.record.Store(ctx, (*record.Data).Acquired, l.noteOwner, func(m client.Object) {
		m.(*infrav1.MaasMachine).Spec.SystemID = systemID
		if l.left != "" {
			annotate(m, infrav1.StaticIPAnnotation, l.left)
		}
	})
}

// vmExists says that the VM is there, and what it takes.
func (r *MaasMachineReconciler) vmExists(l *life, taken lxd.Resources) {
	setTrue(l.MaasMachine, infrav1.LXDHostSelectedCondition, infrav1.HostSelectedReason)
	setTrue(l.MaasMachine, infrav1.LXDResourcesAllocatedCondition, infrav1.AllocatedReason)
	setTrue(l.MaasMachine, infrav1.LXDVMCreatedCondition, infrav1.CreatedReason)
	l.MaasMachine.Status.VMResourceUsage = &infrav1.VMResourceUsage{
		AllocatedCores: int32(taken.Cores), AllocatedMemory: int32(taken.Memory), AllocatedDisk: int32(taken.Disk), // From int32.
	}
}

// becomeReady waits until MAAS has finished what it does before a machine can be deployed, and stops at states that can't be
// used. What is deployed, or on its way, passes.
func (r *MaasMachineReconciler) becomeReady(_ context.Context, l *life) (outcome, error) {
	r.report(l)
	if l.maas.Status == maas.StatusDeploying || l.maas.Status == maas.StatusDeployed {
		return proceed, nil
	}
	if v := r.judge(l); v.then != deployIt {
		return r.settleSeen(l, v), nil
	}
	l.record.Enter("", time.Now())
	return proceed, nil
}

func (r *MaasMachineReconciler) judge(l *life) verdict {
	return judge(l.maas, wasProvisioned(l.MaasMachine), l.IsLXD())
}

// claim takes a machine that is free: a VM that was composed, a machine of choice, or one that another user released before it was
// deployed. From then on MAAS gives it to no other client, and its record proves that it is ours.
func (r *MaasMachineReconciler) claim(ctx context.Context, l *life) (outcome, error) {
	if l.maas.Status != maas.StatusReady {
		l.record.Acquired() // What became of it is known.
		return proceed, nil
	}
	if misfit := machine.Misfit(l.maas, l.Constraints()); !l.IsLXD() && misfit != "" {
		notDeployed(l.MaasMachine, infrav1.MachineDoesNotFitReason, "machine %s, which spec.systemID names, %s", l.maas.SystemID, misfit)
		return waitAtMost(mendRetry), nil
	}
	return r.claimNow(ctx, l, l.maas.SystemID)
}

// claimNow has MAAS give us a machine. A late claim of bare metal could meet a machine that was given back, so that it is noted before.
func (r *MaasMachineReconciler) claimNow(ctx context.Context, l *life, systemID string) (outcome, error) {
	done, err := l.Turn(ctx, turns.Machines, turns.Claim)
	if err != nil {
		return proceed, err
	}
	defer done()
	err = r.change(ctx, l, record.Claim, func(ctx context.Context, permit maas.Permit) error {
		claimed, err := l.Machines.Claim(ctx, permit, l.Identity(), systemID)
		if err == nil {
			l.maas, l.proven = claimed, true
		}
		return err
	}, l.noteOwner)
	if err == nil {
		l.record.Acquired()
		return proceed, nil
	}
	if errors.Is(err, maas.Conflict) {
		notDeployed(l.MaasMachine, infrav1.NoMachineAvailableReason, "%s", maas.Message(err))
		return waitAtMost(capacityRetry), nil // The inventory wakes us when it has another state.
	}
	return proceed, err
}

// proofLasts is for how long a proof of a moment ago will do.
const proofLasts = 5 * time.Second

func deployable(m *maas.Machine) bool { return m.Status == maas.StatusAllocated }

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
		r.settle(l, notOurs(l.maas, wasProvisioned(l.MaasMachine)))
	}
	l.proven = ours
	return ours, nil
}

// deploy installs the image with the user data.
func (r *MaasMachineReconciler) deploy(ctx context.Context, l *life) (outcome, error) {
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

// mark makes our ownership readable in MAAS. A machine that does not carry the mark is proven first.
func (r *MaasMachineReconciler) mark(ctx context.Context, l *life) (outcome, error) {
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

// observe says in the status how the machine is.
func (r *MaasMachineReconciler) observe(ctx context.Context, l *life) (outcome, error) {
	m := l.MaasMachine
	r.report(l)
	if v := r.judge(l); v.then != itRuns {
		return r.settleSeen(l, v), nil
	}
	addresses, err := r.addresses(ctx, l)
	if err != nil {
		return proceed, err
	}
	if len(addresses) == 0 {
		return r.settleSeen(l, noAddress), nil
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
	if l.IsLXD() {
		setTrue(m, infrav1.LXDVMDeployedCondition, infrav1.DeployedReason)
	}
	l.Inventory.Observe(l.maas.SystemID, inventory.Settled)
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

// attach has the API endpoint's DNS record lead to this control plane, as soon as it can serve.
func (r *MaasMachineReconciler) attach(ctx context.Context, l *life) (outcome, error) {
	if !l.IsControlPlane() {
		return proceed, nil
	}
	m := l.MaasMachine
	switch l.Endpoint() {
	case scope.EndpointExternal:
		setTrue(m, infrav1.DNSAttachedCondition, infrav1.ExternalEndpointReason)
		return proceed, nil
	case scope.EndpointVirtualIP:
		setTrue(m, infrav1.DNSAttachedCondition, infrav1.VirtualIPReason)
		return proceed, nil
	}
	published, _, err := publishEndpoint(ctx, r.Client, l.Cluster)
	if err != nil {
		p := explain(err)
		setUnknown(m, infrav1.DNSAttachedCondition, p.reason, p.message)
		return proceed, err
	}
	m.Status.DNSAttached = slices.Contains(published, endpointAddress(m))
	if m.Status.DNSAttached {
		setTrue(m, infrav1.DNSAttachedCondition, infrav1.ReadyReason)
	} else {
		setFalse(m, infrav1.DNSAttachedCondition, infrav1.NotAttachedReason, "%s does not lead to this machine yet", l.EndpointName())
	}
	return proceed, nil
}
