// SPDX-License-Identifier: Apache-2.0

package maasmachine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
	inmaas "github.com/capmaas/cluster-api-provider-maas/pkg/maas/quarantine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/rights"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/turns"
)

// Which machines of the pool fit is decided here: what the spec asks for, and what MAAS can't be asked.

// constraints returns what bare metal has to be. MAAS would allocate a machine of any architecture, and then refuse to
// deploy an image that it does not have for that one.
func (l *life) constraints(ctx context.Context) (maas.AllocateParams, error) {
	constraints := l.Constraints()
	if constraints.Architecture != "" {
		return constraints, nil
	}
	processors, err := l.Machines.Processors(ctx, l.MaasMachine.Spec.Image)
	if len(processors) == 1 {
		constraints.Architecture = processors[0]
	}
	return constraints, err
}

// choice determines what a machine of the pool has to be, in the turn in which it is allocated; MAAS chooses one.
func (r *Reconciler) choice(ctx context.Context, l *life) (outcome, error) {
	if l.maas != nil {
		return proceed, nil
	}
	hosts, err := l.Machines.VMHostNames(ctx)
	if err != nil {
		return proceed, err
	}
	wanted := &l.bid.wanted
	wanted.NotOnVMHosts = hosts
	if err := l.takeTurn(ctx, turns.Machines, turns.Acquire); err != nil {
		return proceed, err
	}
	for _, m := range l.unsuited() {
		wanted.NotHostnames = append(wanted.NotHostnames, m.Hostname)
	}
	without, err := r.bridgeless(ctx, l, *wanted)
	wanted.NotHostnames = append(wanted.NotHostnames, without...)
	return proceed, err
}

// bridgeless returns the names of free machines that may not become VM hosts: they lack the bridge for VMs, and the API
// key's user may not make it. *rights.Error: there are no others.
func (r *Reconciler) bridgeless(ctx context.Context, l *life, constraints maas.AllocateParams) ([]string, error) {
	if !isHost(l) {
		return nil, nil
	}
	mayMake := func(pools rights.Pools) error {
		return rights.Require(ctx, l.Inventory, bridgeField, rights.HostBridge, pools)
	}
	mayNot := mayMake(rights.Where(l.Inventory, rights.BareMetal, l.pools))
	if !guard.Is[*rights.Error](mayNot) {
		return nil, mayNot
	}
	var names []string
	for range maxPicks {
		picked, err := l.Machines.Pick(ctx, constraints, append(slices.Clone(constraints.NotHostnames), names...))
		switch {
		case errors.Is(err, maas.Conflict) && len(names) > 0:
			return nil, mayNot
		case errors.Is(err, maas.Conflict): // There is none at all, which the allocation says.
			return nil, nil
		case err != nil:
			return nil, err
		case picked.Pod != nil || !lacksBridge(l, picked): // A VM that MAAS has composed is given back once it is allocated.
			return names, nil
		}
		pool := []maas.Ref{picked.Pool}
		mayNot = mayMake(func(context.Context) ([]maas.Ref, error) { return pool, nil })
		if !guard.Is[*rights.Error](mayNot) {
			return names, mayNot
		}
		names = append(names, picked.Hostname)
	}
	return nil, mayNot
}

// fit checks that a machine of choice is as before and meets the spec, before it is claimed.
func (r *Reconciler) fit(ctx context.Context, l *life) (outcome, error) {
	if l.maas.Status != maas.StatusReady {
		return proceed, nil
	}
	if out, err := r.undoneByAnother(ctx, l); err != nil || out.Waits() {
		return out, err
	}
	constraints, err := l.constraints(ctx)
	if err != nil {
		return proceed, err
	}
	misfit := machine.Misfit(l.maas, constraints)
	misfit = cmp.Or(misfit, whyUnsuited(l, l.maas))
	if misfit != "" {
		return report.Wait(report.MendRetry, infrav1.MachineDoesNotFitReason, "machine %s, which spec.systemID names, %s",
			l.maas, misfit), nil
	}
	return proceed, nil
}

// undoneByAnother waits while another object, of this or of another manager, undoes what it did to a machine of choice.
func (r *Reconciler) undoneByAnother(ctx context.Context, l *life) (outcome, error) {
	if l.Machines.WithheldByAnother(l.maas.SystemID, l.Mark()) {
		return taken(l, "another MaasMachine gives it back, or takes it"), nil
	}
	if !inmaas.IsExcluded(l.maas) {
		return proceed, nil
	}
	by, err := l.Machines.Quarantine.NotedBy(ctx, l.maas.SystemID)
	if err != nil || by == "" || by == l.Mark() {
		return proceed, err
	}
	return taken(l, fmt.Sprintf("the MaasMachine with the mark %s gives it back, or takes it; if that is gone, take the "+
		"tag %s off the machine in MAAS", by, inmaas.ExcludeTag)), nil
}

// noRoot is what a machine is that MAAS can install nothing on.
const noRoot = "has no root file system in MAAS, whose commissioning could not apply the layout that a script wrote: " +
	"correct the script and commission it again, or set spec.storage in the template"

// needsRoot reports whether the spec takes a machine's layout as it is.
func needsRoot(l *life) bool {
	spec := l.MaasMachine.Spec
	return !l.IsLXD() && spec.Storage == nil && !spec.DeployInMemory
}

// whyUnsuited returns why MAAS should not allocate a machine for this object, though it does; "" if nothing is wrong.
func whyUnsuited(l *life, m *maas.Machine) string {
	switch {
	case !l.IsLXD() && m.IsDPU:
		return machine.Misfit(m, maas.AllocateParams{})
	case needsRoot(l) && !machine.HasRoot(m):
		return noRoot
	}
	return ""
}

// unsuited returns the machines that are known to be.
func (l *life) unsuited() []*maas.Machine {
	return l.Machines.Unsuited(func(m *maas.Machine) bool { return whyUnsuited(l, m) != "" })
}
