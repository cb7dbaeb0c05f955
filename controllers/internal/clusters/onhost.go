// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
)

// OnHost is a MaasMachine whose VM is on a host, or may be there.
type OnHost struct {
	*infrav1.MaasMachine
	// Unreadable is why it is not known which hosts the VM is on; Unsure means that it may be on another one.
	Unreadable error
	Unsure     bool
}

// Placement is where the VMs of MaasMachines are.
type Placement struct {
	MaasMachines []infrav1.MaasMachine
	Homes        Homes
}

// ReadPlacement reads the MaasMachines of all namespaces, from the cache: where a VM is does not change.
func ReadPlacement(ctx context.Context, c client.Client) (*Placement, error) {
	machines := &infrav1.MaasMachineList{}
	if err := c.List(ctx, machines, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing MaasMachines: %w", err)
	}
	homes, err := ReadHomes(ctx, c)
	return &Placement{MaasMachines: machines.Items, Homes: homes}, err
}

// Under returns the MaasMachines whose machine an LXDHost is: those that own it or, if none does, those on whose
// machine MAAS has the VM host. Nobody has proven then whose that is, as where our mark can't be noted on it.
func (p *Placement) Under(host *infrav1.LXDHost) (machines []*infrav1.MaasMachine) {
	owners, vmHost, where := OwnersOf(host, MaasMachineKind), host.Spec.VMHost, host.Annotations[infrav1.MAASAnnotation]
	for i := range p.MaasMachines {
		m := &p.MaasMachines[i]
		is := slices.ContainsFunc(owners, func(owner metav1.OwnerReference) bool { return owner.UID == m.UID })
		if len(owners) == 0 && vmHost != nil && vmHost.SystemID != "" && where != "" {
			is = m.Spec.SystemID == vmHost.SystemID && p.HomeOf(m) == where
		}
		if is {
			machines = append(machines, m)
		}
	}
	return machines
}

// On returns the MaasMachines whose VMs are on a host, or may be there.
func (p *Placement) On(host *infrav1.LXDHost) (there []OnHost) {
	for i := range p.MaasMachines {
		m := &p.MaasMachines[i]
		if !m.Spec.IsLXD() || !MayUse(host, m) {
			continue
		}
		recorded, err := record.OfMachine(m)
		hosts := recorded.Hosts
		if recorded.Runs != "" { // Another one may have a second VM, which never runs.
			hosts = []string{recorded.Runs}
		}
		switch {
		case err != nil && p.isNamed(host, m):
			there = append(there, OnHost{MaasMachine: m, Unreadable: err})
		case slices.ContainsFunc(hosts, func(ref string) bool { return p.isRefTo(ref, host, m) }):
			there = append(there, OnHost{MaasMachine: m, Unsure: len(hosts) > 1})
		}
	}
	return there
}

// isNamed reports whether the status of a machine names a host, which may be another one of this name: in another MAAS.
func (p *Placement) isNamed(host *infrav1.LXDHost, m *infrav1.MaasMachine) bool {
	elsewhere := host.Spec.VMHost != nil && p.HomeOf(m) != host.Annotations[infrav1.MAASAnnotation]
	return m.Status.LXDHost == host.Name && !elsewhere
}

// isRefTo reports whether what a machine recorded of the host of its VM is a host: by its name, or by its id in the
// machine's MAAS.
func (p *Placement) isRefTo(ref string, host *infrav1.LXDHost, m *infrav1.MaasMachine) bool {
	return RefersTo(ref, host, func() bool {
		home := p.HomeOf(m)
		return home != "" && home == host.Annotations[infrav1.MAASAnnotation]
	})
}

// HomeOf returns the MAAS of a machine; "" if it is not known.
func (p *Placement) HomeOf(m *infrav1.MaasMachine) string {
	where, _ := p.Homes.Where(m)
	return where
}
