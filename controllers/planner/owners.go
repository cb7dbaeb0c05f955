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
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/capacity"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/controlplane"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/plan"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/quarantine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

const (
	machineDeployment = "MachineDeployment"
	// pendingRetry is how soon MAAS is asked again while it lists its machines.
	pendingRetry = 500 * time.Millisecond
)

// owner is a control plane or a MachineDeployment. It is read without its type: control planes are of several kinds,
// and manifests of several versions.
type owner struct {
	*unstructured.Unstructured
	controlPlane bool
}

func (o owner) name() string { return o.GetKind() + "/" + o.GetName() }

func (o owner) text(path ...string) string {
	text, _, _ := unstructured.NestedString(o.Object, path...)
	return text
}

func (o owner) version() string {
	if o.controlPlane {
		return o.text("spec", "version")
	}
	return o.text("spec", "template", "spec", "version")
}

// bootstrap names the bootstrap configuration of a MachineDeployment. That of a control plane has no name.
func (o owner) bootstrap() string {
	at := []string{"spec", "template", "spec", "bootstrap"}
	return o.text(append(at, "configRef", "name")...) + "/" + o.text(append(at, "dataSecretName")...)
}

func (o owner) template() string {
	if o.controlPlane {
		return clusters.InfrastructureTemplate(o.Unstructured)
	}
	ref, _, _ := unstructured.NestedStringMap(o.Object, "spec", "template", "spec", "infrastructureRef")
	return clusters.MachineTemplate(ref)
}

func (o owner) replicas() int {
	replicas, found, _ := unstructured.NestedInt64(o.Object, "spec", "replicas")
	if !found {
		return 1
	}
	return int(replicas)
}

// strategy returns a field of the rollout's strategy, which is at a different place in each version and kind.
func (o owner) strategy(path ...string) any {
	for _, at := range [][]string{{"spec", "rollout", "strategy"}, {"spec", "rolloutStrategy"}, {"spec", "strategy"}} {
		if value, found, _ := unstructured.NestedFieldNoCopy(o.Object, append(at, path...)...); found {
			return value
		}
	}
	return nil
}

// leeway returns maxSurge or maxUnavailable as a number of machines.
func (o owner) leeway(field string, byDefault int, roundUp bool) int {
	value := intstr.FromInt(byDefault)
	switch given := o.strategy("rollingUpdate", field).(type) {
	case int64:
		value = intstr.FromInt(int(given))
	case string:
		value = intstr.Parse(given)
	}
	number, err := intstr.GetScaledValueFromIntOrPercent(&value, o.replicas(), roundUp)
	if err != nil {
		return byDefault
	}
	return number
}

// owners returns what makes the machines of a cluster: its control plane, and then its MachineDeployments by name.
func (p *Planner) owners(ctx context.Context, v *view) ([]owner, error) {
	var owners []owner
	ref := v.Cluster.Cluster.Spec.ControlPlaneRef
	if ref.IsDefined() {
		key := client.ObjectKey{Namespace: v.Cluster.Cluster.Namespace, Name: ref.Name}
		object, err := v.objects.find(ref.Kind, key), error(nil)
		if object == nil {
			object, err = controlplane.Of(ctx, p.Client, p.Client, v.Cluster.Cluster)
		}
		switch {
		case err != nil:
			return nil, err
		case object == nil:
			return nil, problem("there is no %s %s, or it may not be read", ref.Kind, key)
		}
		owners = append(owners, owner{object, true})
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(clusterv1.GroupVersion.WithKind(machineDeployment + "List"))
	if err := p.Client.List(ctx, list, client.InNamespace(v.Cluster.Cluster.Namespace)); err != nil {
		return nil, fmt.Errorf("listing MachineDeployments: %w", err)
	}
	byName := map[string]*unstructured.Unstructured{}
	for i := range list.Items {
		byName[list.Items[i].GetName()] = &list.Items[i]
	}
	for _, u := range v.objects.list {
		if u.GetKind() == machineDeployment && u.GetNamespace() == v.Cluster.Cluster.Namespace {
			byName[u.GetName()] = u
		}
	}
	var workers []owner
	for _, u := range byName {
		if o := (owner{u, false}); o.text("spec", "clusterName") == v.Cluster.Cluster.Name {
			workers = append(workers, o)
		}
	}
	slices.SortFunc(workers, func(a, b owner) int { return strings.Compare(a.GetName(), b.GetName()) })
	return append(owners, workers...), nil
}

// group returns the machines of an owner, as the simulation knows them.
func (p *Planner) group(ctx context.Context, v *view, o owner) (*plan.Group, error) {
	spec, err := p.templateOf(ctx, v, o)
	if err != nil {
		return nil, err
	}
	g := &plan.Group{
		Cluster: v.name(), Owner: o.name(), ControlPlane: o.controlPlane, Replicas: o.replicas(),
		Among:    v.TemplateVM(spec, o.controlPlane).Cluster,
		MaxSurge: o.leeway("maxSurge", 1, true),
		OnDelete: o.strategy("type") == "OnDelete",
	}
	if !o.controlPlane {
		g.MaxUnavailable, g.Zone = o.leeway("maxUnavailable", 0, false), o.text("spec", "template", "spec", "failureDomain")
	}
	if paused, _, _ := unstructured.NestedBool(o.Object, "spec", "paused"); paused ||
		annotations.IsPaused(v.Cluster.Cluster, o) {
		g.Held = "it is paused: Cluster API replaces nothing"
	}
	q := capacity.Question{Spec: spec, ControlPlane: o.controlPlane, Anywhere: true}
	if g.Source, err = v.source(ctx, q); err != nil {
		return nil, err
	}
	if o.controlPlane {
		g.Only = len(v.Cluster.MaasCluster.Spec.FailureDomains) > 0
		g.FailureDomains, err = failureDomains(ctx, v.Cluster)
	}
	if guard.Is[*machine.MissingError](err) { // The cluster waits for the zones of its spec.
		g.Source.Refused, err = err, nil
	}
	return g, err
}

// templateOf returns what the machines of an owner are made as.
func (p *Planner) templateOf(ctx context.Context, v *view, o owner) (infrav1.MaasMachineSpec, error) {
	template := &infrav1.MaasMachineTemplate{}
	name := o.template()
	if name == "" {
		return infrav1.MaasMachineSpec{}, problem("%s of cluster %s names no MaasMachineTemplate", o.name(), v.name())
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
