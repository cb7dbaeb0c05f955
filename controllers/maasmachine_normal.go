// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"slices"
	"sort"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

// look reads what the inventory knows of a machine that was acquired before.
func (r *MaasMachineReconciler) look(_ context.Context, l *life) (outcome, error) {
	if l.MaasMachine.Spec.SystemID == "" {
		return proceed, nil
	}
	seen := l.Inventory.Observe(l.MaasMachine.Spec.SystemID, !conditions.IsTrue(l.MaasMachine, infrav1.MachineDeployedCondition))
	if err := l.Inventory.Health(); err != nil {
		// It may have changed since the last answer. The inventory wakes us when MAAS can be read again.
		p := explain(err)
		return proceed, &notReadyError{p.reason, p.message, safetyRetry}
	}
	if !seen.Known {
		return waitAtMost(unknownRetry), nil
	}
	if seen.Machine == nil {
		return r.settle(l.MaasMachine, gone), nil
	}
	l.maas = seen.Machine
	return proceed, nil
}

// adopt finds what an earlier try acquired but could not record, and gives back what was acquired twice.
func (r *MaasMachineReconciler) adopt(ctx context.Context, l *life) (outcome, error) {
	if l.maas != nil {
		return proceed, nil
	}
	found, err := l.Machines.Find(ctx, l.Identity())
	if err != nil {
		return proceed, err
	}
	if len(found) == 0 {
		if left := unsettled(l.MaasMachine, r.SettleTime); left > 0 {
			notDeployed(l.MaasMachine, infrav1.MAASUnavailableReason,
				"MAAS did not say what became of the request for a machine; looking for it before asking again")
			return waitAtMost(min(left, capacityRetry)), nil
		}
		return proceed, nil
	}
	// Of two, what failed lately is given back.
	sort.SliceStable(found, func(i, j int) bool {
		return !l.Machines.IsLeftAlone(found[i].SystemID) && l.Machines.IsLeftAlone(found[j].SystemID)
	})
	if l.IsLXD() && found[0].Pod == nil {
		notDeployed(l.MaasMachine, infrav1.MachineNotOursReason,
			"machine %s has the name %s, and is no VM: rename it in MAAS", found[0].SystemID, found[0].Hostname)
		return waitAtMost(mendRetry), nil
	}
	if !l.IsLXD() && found[0].Pod != nil {
		// MAAS composed it when no machine fitted, and the answer was lost.
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
	atOnce := soon(ctx)
	if err := acquiring(ctx, r.Client, l.MaasMachine, true); err != nil {
		return proceed, err
	}
	allocated, err := l.Machines.Allocate(atOnce, l.Identity(), constraints)
	if err != nil {
		if nothingCame(err) {
			err = errors.Join(err, acquiring(ctx, r.Client, l.MaasMachine, false))
		}
		if errors.Is(err, maas.Conflict) {
			return noMachine(l, err, l.Machines.LeftAlone(constraints)), nil
		}
		return proceed, err
	}
	return proceed, r.acquired(ctx, l, allocated, "Allocated")
}

// compose places a VM on a host, and has it created there. The inventory tells when MAAS knows it.
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
	atOnce := soon(ctx)
	refused, err := r.composing(ctx, l.MaasMachine, placer.Place(host))
	if err != nil {
		placer.Cancel(spec.Hostname)
		return proceed, err
	}
	vm, err := placer.ComposeVM(atOnce, host, spec)
	if err != nil {
		var later *lxd.LaterError
		if errors.As(err, &later) {
			notDeployed(l.MaasMachine, infrav1.NoHostAvailableReason, "%s", err)
			return waitAtMost(later.After), refused()
		}
		if nothingCame(err) {
			err = errors.Join(err, refused())
		}
		return proceed, err
	}
	status := &l.MaasMachine.Status
	status.LXDHost, status.FailureDomain, status.LXDProject = host.Name, host.Zone, vm.Project
	r.Recorder.Eventf(l.MaasMachine, nil, corev1.EventTypeNormal, "VMComposed", "Compose", "VM %s on VM host %s", spec.Hostname, host.Name)
	if err := r.record(ctx, l, vm.SystemID); err != nil {
		return proceed, err
	}
	r.vmExists(l, spec.Resources)
	l.Inventory.Observe(vm.SystemID, true)
	notDeployed(l.MaasMachine, infrav1.CreatingReason, "VM %s was composed on VM host %s", vm.SystemID, host.Name)
	return waitAtMost(unknownRetry), nil
}

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
	l.Inventory.Wrote(m)
	r.Recorder.Eventf(l.MaasMachine, nil, corev1.EventTypeNormal, how, "Acquire", "machine %s (%s) in zone %s", m.Hostname, m.SystemID, m.Zone.Name)
	return r.record(ctx, l, m.SystemID)
}

// record stores which machine it is at once: from here on it can't be lost any more.
func (r *MaasMachineReconciler) record(ctx context.Context, l *life, systemID string) error {
	return patchNow(ctx, r.Client, l.MaasMachine, func(m *infrav1.MaasMachine) {
		m.Spec.SystemID = systemID
		delete(m.Annotations, infrav1.AcquireStartedAnnotation)
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
	inPhase(l.MaasMachine, "", time.Now())
	return proceed, nil
}

func (r *MaasMachineReconciler) judge(l *life) verdict {
	return judge(l.maas, wasProvisioned(l.MaasMachine), l.IsLXD())
}

// claim takes a bare-metal machine that nobody has: one that the user chose, or that somebody released before it was deployed. To
// deploy it would take it too, but also from somebody who took it a moment ago with the same MAAS user.
func (r *MaasMachineReconciler) claim(ctx context.Context, l *life) (outcome, error) {
	if l.IsLXD() || l.maas.Pod != nil { // Allocate takes a VM for one that MAAS composed, and gives it back; deploy acquires it.
		return proceed, nil
	}
	if l.maas.Status != maas.StatusReady {
		delete(l.MaasMachine.Annotations, infrav1.AcquireStartedAnnotation) // What became of it is known.
		return proceed, nil
	}
	atOnce := soon(ctx)
	if err := acquiring(ctx, r.Client, l.MaasMachine, true); err != nil {
		return proceed, err
	}
	claimed, err := l.Machines.Allocate(atOnce, l.Identity(), maas.AllocateParams{SystemID: l.maas.SystemID})
	if err == nil {
		delete(l.MaasMachine.Annotations, infrav1.AcquireStartedAnnotation)
		l.maas, l.proven = claimed, true
		return proceed, nil
	}
	l.Inventory.Distrust(l.maas.SystemID)
	if nothingCame(err) {
		err = errors.Join(err, acquiring(ctx, r.Client, l.MaasMachine, false))
	}
	if errors.Is(err, maas.Conflict) {
		notDeployed(l.MaasMachine, infrav1.NoMachineAvailableReason, "%s", maas.Message(err))
		return waitAtMost(capacityRetry), nil
	}
	return proceed, err
}

func deployable(m *maas.Machine) bool {
	return m.Status == maas.StatusReady || m.Status == maas.StatusAllocated
}

// prove makes sure that the machine is ours, or nobody's, before it is changed.
func (r *MaasMachineReconciler) prove(ctx context.Context, l *life) (bool, error) {
	if l.proven || (l.maas.Status == maas.StatusReady && l.maas.Owner == "") {
		return true, nil
	}
	ours, err := l.Machines.IsOurs(ctx, l.Identity(), l.maas)
	if err != nil {
		return false, err
	}
	if !ours {
		r.settle(l.MaasMachine, notOurs(l.maas, wasProvisioned(l.MaasMachine)))
	}
	l.proven = ours
	return ours, nil
}

// deploy installs the image with the user data.
func (r *MaasMachineReconciler) deploy(ctx context.Context, l *life) (outcome, error) {
	if !deployable(l.maas) {
		return proceed, nil
	}
	if ours, err := r.prove(ctx, l); err != nil || !ours {
		return waitAtMost(mendRetry), err
	}
	userData, err := l.UserData(ctx)
	if err != nil {
		return proceed, err
	}
	spec := l.MaasMachine.Spec
	err = r.change(ctx, l, func(ctx context.Context) (err error) {
		l.maas, err = l.Machines.Deploy(ctx, l.Identity(), l.maas, machine.DeployRequest{
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

// mark makes our ownership readable in MAAS. A machine that does not carry the mark is proven first.
func (r *MaasMachineReconciler) mark(ctx context.Context, l *life) (outcome, error) {
	if !l.Machines.IsToBeMarked(l.Identity(), l.maas) {
		return proceed, nil
	}
	if ours, err := r.prove(ctx, l); err != nil || !ours {
		return waitAtMost(mendRetry), err
	}
	return proceed, r.change(ctx, l, func(ctx context.Context) error { return l.Machines.Mark(ctx, l.Identity(), l.maas) })
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
	inPhase(m, "", time.Now())
	l.Machines.Forgive(l.maas.SystemID)
	m.Status.Addresses = addresses
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
	l.Inventory.Observe(l.maas.SystemID, false)
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
