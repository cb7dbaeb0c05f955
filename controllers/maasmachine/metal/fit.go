// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/life"
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
func constraints(ctx context.Context, l *life.Life) (maas.AllocateParams, error) {
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

// Choice determines what a machine of the pool has to be, in the turn in which it is allocated; MAAS chooses one.
func (s *Steps) Choice(ctx context.Context, l *life.Life) (life.Outcome, error) {
	if l.MAAS != nil {
		return life.Proceed, nil
	}
	hosts, err := l.Machines.VMHostNames(ctx)
	if err != nil {
		return life.Proceed, err
	}
	wanted := &s.bid.wanted
	wanted.NotOnVMHosts = hosts
	if err := l.TakeTurn(ctx, turns.Machines, turns.Acquire); err != nil {
		return life.Proceed, err
	}
	for _, m := range unsuited(l) {
		wanted.NotHostnames = append(wanted.NotHostnames, m.Hostname)
	}
	without, err := s.bridgeless(ctx, l, *wanted)
	wanted.NotHostnames = append(wanted.NotHostnames, without...)
	return life.Proceed, err
}

// bridgeless returns the names of free machines that may not become VM hosts: they lack the bridge for VMs, and the API
// key's user may not make it, as MAAS tells up to 3.7. *rights.Error: there are no others.
func (s *Steps) bridgeless(ctx context.Context, l *life.Life, constraints maas.AllocateParams) ([]string, error) {
	if !life.IsHost(l) {
		return nil, nil
	}
	mayNot := rights.Require(ctx, l.Inventory, bridgeField, rights.HostBridge)
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
		case picked.Pod != nil || !life.LacksBridge(l, picked): // A VM that MAAS composed is given back when it is allocated.
			return names, nil
		}
		names = append(names, picked.Hostname)
	}
	return nil, mayNot
}

// Fit checks that a machine of choice is as before and meets the spec, before it is claimed.
func (s *Steps) Fit(ctx context.Context, l *life.Life) (life.Outcome, error) {
	if l.MAAS.Status != maas.StatusReady {
		return life.Proceed, nil
	}
	if out, err := s.undoneByAnother(ctx, l); err != nil || out.Waits() {
		return out, err
	}
	constraints, err := constraints(ctx, l)
	if err != nil {
		return life.Proceed, err
	}
	misfit := machine.Misfit(l.MAAS, constraints)
	misfit = cmp.Or(misfit, whyUnsuited(l, l.MAAS))
	if misfit != "" {
		return report.Wait(report.MendRetry, infrav1.MachineDoesNotFitReason, "machine %s, which spec.systemID names, %s",
			l.MAAS, misfit), nil
	}
	return life.Proceed, nil
}

// undoneByAnother waits while another object, of this or of another manager, undoes what it did to a machine of choice.
func (s *Steps) undoneByAnother(ctx context.Context, l *life.Life) (life.Outcome, error) {
	if l.Machines.WithheldByAnother(l.MAAS.SystemID, l.Mark()) {
		return taken(l, "another MaasMachine gives it back, or takes it"), nil
	}
	if !inmaas.IsExcluded(l.MAAS) {
		return life.Proceed, nil
	}
	by, err := l.Machines.Quarantine.NotedBy(ctx, l.MAAS.SystemID)
	if err != nil || by == "" || by == l.Mark() {
		return life.Proceed, err
	}
	return taken(l, fmt.Sprintf("the MaasMachine with the mark %s gives it back, or takes it; if that is gone, take the "+
		"tag %s off the machine in MAAS", by, inmaas.ExcludeTag)), nil
}

// noRoot is what a machine is that MAAS can install nothing on.
const noRoot = "has no root file system in MAAS, whose commissioning could not apply the layout that a script wrote: " +
	"correct the script and commission it again, or set spec.storage in the template"

// needsRoot reports whether the spec takes a machine's layout as it is.
func needsRoot(l *life.Life) bool {
	spec := l.MaasMachine.Spec
	return spec.Storage == nil && !spec.DeployInMemory
}

// whyUnsuited returns why MAAS should not allocate a machine for this object, though it does; "" if nothing is wrong.
func whyUnsuited(l *life.Life, m *maas.Machine) string {
	switch {
	case m.IsDPU:
		return machine.Misfit(m, maas.AllocateParams{})
	case needsRoot(l) && !machine.HasRoot(m):
		return noRoot
	}
	return ""
}

// unsuited returns the machines that are known to be.
func unsuited(l *life.Life) []machine.Unsuited {
	return l.Machines.Unsuited(func(m *maas.Machine) string { return whyUnsuited(l, m) })
}

// Preflight stops, before a machine is taken, at what MAAS refuses afterwards, or what Kubernetes lacks.
func (s *Steps) Preflight(ctx context.Context, l *life.Life) (life.Outcome, error) {
	return s.Before(ctx, l, mayDo, life.Names, life.Connections, life.BootstrapData, s.pause, s.checkable)
}

// mayDo checks, up to MAAS 3.7, that the API key's user is an administrator if the spec needs one. What MAAS forbids
// from 3.8 on shows when it does.
func mayDo(ctx context.Context, l *life.Life) error {
	spec := l.MaasMachine.Spec
	for _, also := range []struct {
		what   string
		wanted bool
		use    rights.Use
	}{
		{"spec.interfaces", len(spec.Interfaces) > 0, rights.Interfaces},
		{bridgeField, l.MAAS != nil && life.LacksBridge(l, l.MAAS), rights.HostBridge},
		{"spec.storage", spec.Storage != nil, rights.Storage},
		{"spec.checks", spec.Checks != nil, rights.HardwareTests},
		{"spec.checks", spec.Checks != nil, rights.Tags},
		{"spec.staticIP", spec.StaticIP != "", rights.StaticAddresses},
		{"spec.staticIPPoolRef", spec.StaticIPPoolRef != nil, rights.StaticAddresses},
	} {
		if !also.wanted {
			continue
		}
		if err := rights.Require(ctx, l.Inventory, also.what, also.use); err != nil {
			return err
		}
	}
	return nil
}

// bridgeField is the field of the MaasCluster with the bridge that a node of a host cluster needs.
const bridgeField = "lxdConfig.networkBridge of the MaasCluster"
