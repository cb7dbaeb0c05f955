// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/capacity"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/controlplane"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/internal/presence"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/plan"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/quarantine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

// pendingRetry is how soon MAAS is asked again while it lists its machines.
const pendingRetry = 500 * time.Millisecond

// owners returns what makes the machines of a cluster: its control plane, and then its MachineDeployments by name.
func (p *Planner) owners(ctx context.Context, v *view) (owners []controlplane.Owner, err error) {
	ref := v.Cluster.Cluster.Spec.ControlPlaneRef
	if ref.IsDefined() {
		key := client.ObjectKey{Namespace: v.Cluster.Cluster.Namespace, Name: ref.Name}
		object := v.objects.find(ref.Kind, key)
		if object == nil {
			found, err := controlplane.Of(ctx, p.Client, p.Client, v.Cluster.Cluster)
			switch {
			case presence.IsUnknown(err), err == nil && found == nil:
				return nil, problem("there is no %s %s, or it may not be read", ref.Kind, key)
			case err != nil:
				return nil, err
			}
			object = found.Unstructured
		}
		owners = append(owners, controlplane.Owner{Unstructured: object})
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(clusterv1.GroupVersion.WithKind(controlplane.MachineDeployment.Kind + "List"))
	if err := p.Client.List(ctx, list, client.InNamespace(v.Cluster.Cluster.Namespace)); err != nil {
		return nil, fmt.Errorf("listing MachineDeployments: %w", err)
	}
	byName := map[string]*unstructured.Unstructured{}
	for i := range list.Items {
		byName[list.Items[i].GetName()] = &list.Items[i]
	}
	for _, u := range v.objects.list {
		if u.GetKind() == controlplane.MachineDeployment.Kind && u.GetNamespace() == v.Cluster.Cluster.Namespace {
			byName[u.GetName()] = u
		}
	}
	var workers []controlplane.Owner
	for _, u := range byName {
		if o := (controlplane.Owner{Unstructured: u}); o.Text("spec", "clusterName") == v.Cluster.Cluster.Name {
			workers = append(workers, o)
		}
	}
	slices.SortFunc(workers, func(a, b controlplane.Owner) int { return strings.Compare(a.GetName(), b.GetName()) })
	return p.ofView(ctx, v, append(owners, workers...))
}

// ofView returns those of the owners that make machines in the MAAS of a view. Others are another provider's, or of
// another MaasCluster of the cluster.
func (p *Planner) ofView(
	ctx context.Context, v *view, owners []controlplane.Owner,
) (theirs []controlplane.Owner, _ error) {
	if v.MaasCluster.Spec.ClusterName == "" && len(v.serving.All()) == 1 {
		return owners, nil
	}
	for _, o := range owners {
		if o.Template() == "" {
			if v.MaasCluster.Spec.ClusterName == "" { // It is hosted: whoever plans it says so.
				theirs = append(theirs, o)
			}
			continue
		}
		spec, err := p.templateOf(ctx, v, o)
		if err != nil {
			return nil, err
		}
		if v.makes(&infrav1.MaasMachine{Spec: spec}) {
			theirs = append(theirs, o)
		}
	}
	return theirs, nil
}

// group returns the machines of an owner, as the simulation knows them.
func (p *Planner) group(ctx context.Context, v *view, o controlplane.Owner) (*plan.Group, error) {
	spec, err := p.templateOf(ctx, v, o)
	if err != nil {
		return nil, err
	}
	isControlPlane := o.IsControlPlane()
	g := &plan.Group{
		Cluster: v.name(), Owner: o.ID(), ControlPlane: isControlPlane, Replicas: o.Replicas(),
		Among: v.TemplateVM(spec, isControlPlane).Cluster, MaxSurge: o.MaxSurge(), OnDelete: o.IsOnDelete(),
	}
	if !isControlPlane {
		g.MaxUnavailable, g.Zone = o.MaxUnavailable(), o.Text("spec", "template", "spec", "failureDomain")
		g.DeletionOrder = plan.DeletionOrder(o.DeletionOrder())
	}
	if o.IsPaused() || annotations.IsPaused(v.Cluster.Cluster, o) {
		g.Held = "it is paused: Cluster API replaces nothing"
	}
	q := capacity.Question{Spec: spec, ControlPlane: isControlPlane, Anywhere: true}
	if g.Source, err = v.source(ctx, q); err != nil {
		return nil, err
	}
	if isControlPlane {
		g.Only = len(v.Cluster.MaasCluster.Spec.FailureDomains) > 0
		g.FailureDomains, err = failureDomains(ctx, v.Cluster)
	}
	if guard.Is[*machine.MissingError](err) { // The cluster waits for the zones of its spec.
		g.Source.Refused, err = err, nil
	}
	return g, err
}

// templateOf returns what the machines of an owner are made as.
func (p *Planner) templateOf(ctx context.Context, v *view, o controlplane.Owner) (infrav1.MaasMachineSpec, error) {
	template := &infrav1.MaasMachineTemplate{}
	name := o.Template()
	if name == "" {
		return infrav1.MaasMachineSpec{}, problem("%s of cluster %s names no MaasMachineTemplate", o.ID(), v.name())
	}
	err := p.get(ctx, v.objects, "MaasMachineTemplate", client.ObjectKey{Namespace: o.GetNamespace(), Name: name},
		template)
	return template.Spec.Template.Spec, err
}

// source returns what machines of a spec are made from: of bare metal what MAAS can allocate now, or once the cluster
// gives it back. Quarantined machines stay out.
func (v *view) source(ctx context.Context, q capacity.Question) (source plan.Source, err error) {
	var supply *capacity.Supply
	err = wait.PollUntilContextCancel(ctx, pendingRetry, true, func(ctx context.Context) (bool, error) {
		found, err := capacity.Gather(ctx, v.Cluster, q)
		if errors.Is(err, inventory.ErrPending) {
			return false, nil
		}
		supply = found
		return true, err
	})
	if err != nil {
		return source, err
	}
	source = supply.Source
	source.Calls, source.Takes = callsFor(q.Spec), v.paces[q.Spec.Mode()]
	source.Hosts = v.allowed(source.Hosts)
	source.Metal = list.Where(source.Metal, func(m *maas.Machine) bool {
		ours := slices.ContainsFunc(v.machines, func(known plan.Machine) bool { return known.SystemID == m.SystemID })
		return !quarantine.Has(m) && (m.Status == maas.StatusReady || ours)
	})
	return source, nil
}

// callsFor returns how many calls to MAAS a machine of a spec takes.
func callsFor(spec infrav1.MaasMachineSpec) plan.Calls {
	hasAddress := spec.StaticIP != "" || spec.StaticIPPoolRef != nil
	switch {
	case spec.IsLXD() && hasAddress:
		return plan.CallsForVMWithAddress
	case spec.IsLXD():
		return plan.CallsForVM
	case hasAddress:
		return plan.CallsForMetalWithAddress
	}
	return plan.CallsForMetal
}

// failureDomains returns the zones that Cluster API chooses from for control planes: those that the MaasCluster
// publishes, or will.
func failureDomains(ctx context.Context, s *scope.Cluster) (zones []string, err error) {
	if domains := s.MaasCluster.Status.FailureDomains; len(domains) > 0 {
		return list.Each(domains, func(d clusterv1.FailureDomain) string { return d.Name }), nil
	}
	all, err := s.Inventory.Zones(ctx, capacity.ZonesMaxAge)
	if err != nil {
		return nil, fmt.Errorf("listing MAAS's zones: %w", err)
	}
	zones, unknown := capacity.ChooseZones(all, s.MaasCluster.Spec.FailureDomains, map[string]capacity.Zone(nil))
	if len(zones) == 0 {
		return nil, machine.Has(all, machine.MissingZone, "spec.failureDomains", unknown...)
	}
	return zones, nil
}
