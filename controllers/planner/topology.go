// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/core/webhooks/admission"
	"sigs.k8s.io/cluster-api/exp/topology/desiredstate"
	topology "sigs.k8s.io/cluster-api/exp/topology/scope"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/controlplane"
)

// Cluster API makes the objects of a ClusterClass's cluster when it makes the cluster. So a plan of a new one has its
// own code make them, in memory.

// expand adds the objects that Cluster API would make of new clusters of a ClusterClass.
func (p *Planner) expand(ctx context.Context, given *objects) error {
	for i, u := range slices.Clone(given.list) {
		if u.GetKind() != "Cluster" {
			continue
		}
		cluster := &clusterv1.Cluster{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, cluster); err != nil {
			return problem("Cluster %s is not as its kind should be: %v", u.GetName(), err)
		}
		if cluster.Spec.Topology.ClassRef.Name == "" || cluster.Spec.InfrastructureRef.IsDefined() {
			continue
		}
		err := p.Client.Get(ctx, client.ObjectKeyFromObject(cluster), &clusterv1.Cluster{})
		if err == nil {
			continue // It is not new: plan upgrade is for it.
		}
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("reading Cluster %s: %w", cluster.Name, err)
		}
		made, err := p.madeOf(ctx, given, cluster)
		if err != nil {
			return err
		}
		given.list[i] = made[0]
		given.list = append(given.list, made[1:]...)
	}
	return nil
}

// madeOf returns a new cluster of a ClusterClass as Cluster API would complete it, then what it would make of it.
func (p *Planner) madeOf(
	ctx context.Context, given *objects, cluster *clusterv1.Cluster,
) ([]*unstructured.Unstructured, error) {
	class := &clusterv1.ClusterClass{}
	err := p.get(ctx, given, "ClusterClass", cluster.GetClassKey(), class)
	if apierrors.IsNotFound(err) {
		return nil, problem("there is no ClusterClass %s in namespace %s: apply it first, or add it to the manifests",
			cluster.GetClassKey().Name, cluster.GetClassKey().Namespace)
	}
	if err != nil {
		return nil, err
	}
	if len(class.Status.Variables) == 0 { // Its controller has not seen it.
		for _, v := range class.Spec.Variables {
			class.Status.Variables = append(class.Status.Variables, clusterv1.ClusterClassStatusVariable{Name: v.Name,
				Definitions: []clusterv1.ClusterClassStatusVariableDefinition{{
					From: clusterv1.VariableDefinitionFromInline, Required: v.Required, Schema: v.Schema,
				}}})
		}
	}
	wrong := (&admission.Cluster{}).DefaultAndValidateVariables(ctx, cluster, nil, class)
	if err = wrong.ToAggregate(); err != nil {
		return nil, problem("Cluster %s would be refused: %v", cluster.Name, err)
	}
	nameAfter(class)
	scope := topology.New(cluster)
	scope.Current.ControlPlane, scope.Current.MachineDeployments = &topology.ControlPlaneState{},
		topology.MachineDeploymentsStateMap{}
	if scope.Blueprint, err = p.blueprint(ctx, given, cluster, class); err != nil {
		return nil, err
	}
	generator, err := desiredstate.NewGenerator(p.Client, noWorkloadClusters{}, nil, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("preparing Cluster %s: %w", cluster.Name, err)
	}
	state, err := generator.Generate(ctx, scope)
	if err != nil {
		return nil, problem("Cluster API can make nothing of Cluster %s: %v", cluster.Name, err)
	}
	return listed(state)
}

// listed returns the objects of a state that a plan is about.
func listed(state *topology.ClusterState) ([]*unstructured.Unstructured, error) {
	complete, err := unstructuredOf("Cluster", state.Cluster)
	if err != nil {
		return nil, err
	}
	all := []*unstructured.Unstructured{complete, state.InfrastructureCluster, state.ControlPlane.Object}
	if template := state.ControlPlane.InfrastructureMachineTemplate; template != nil {
		all = append(all, template)
	}
	for _, workers := range state.MachineDeployments {
		object, err := unstructuredOf(controlplane.MachineDeployment.Kind, workers.Object)
		if err != nil {
			return nil, err
		}
		all = append(all, object, workers.InfrastructureMachineTemplate)
	}
	return all, nil
}

func unstructuredOf(kind string, object client.Object) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("converting %s %s: %w", kind, object.GetName(), err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(clusterv1.GroupVersion.WithKind(kind))
	return u, nil
}

// nameAfter makes a class name what people read of after the cluster, without the random letters that it gets later.
func nameAfter(class *clusterv1.ClusterClass) {
	class.Spec.ControlPlane.Naming.Template = "{{ .cluster.name }}"
	for i := range class.Spec.Workers.MachineDeployments {
		class.Spec.Workers.MachineDeployments[i].Naming.Template =
			"{{ .cluster.name }}-{{ .machineDeployment.topologyName }}"
	}
}

// blueprint reads the templates of a class.
func (p *Planner) blueprint(
	ctx context.Context, given *objects, cluster *clusterv1.Cluster, class *clusterv1.ClusterClass,
) (*topology.ClusterBlueprint, error) {
	made := &topology.ClusterBlueprint{
		Topology: cluster.Spec.Topology, ClusterClass: class, ControlPlane: &topology.ControlPlaneBlueprint{},
		MachineDeployments: map[string]*topology.MachineDeploymentBlueprint{},
	}
	type wanted struct {
		ref  clusterv1.ClusterClassTemplateReference
		into **unstructured.Unstructured
	}
	spec := &class.Spec
	templates := []wanted{
		{spec.Infrastructure.TemplateRef, &made.InfrastructureClusterTemplate},
		{spec.ControlPlane.TemplateRef, &made.ControlPlane.Template},
	}
	if ref := spec.ControlPlane.MachineInfrastructure.TemplateRef; ref.IsDefined() {
		templates = append(templates, wanted{ref, &made.ControlPlane.InfrastructureMachineTemplate})
	}
	for _, of := range spec.Workers.MachineDeployments {
		workers := &topology.MachineDeploymentBlueprint{Metadata: of.Metadata, HealthCheck: of.HealthCheck}
		made.MachineDeployments[of.Class] = workers
		templates = append(templates, wanted{of.Infrastructure.TemplateRef, &workers.InfrastructureMachineTemplate},
			wanted{of.Bootstrap.TemplateRef, &workers.BootstrapTemplate})
	}
	for _, template := range templates {
		found := &unstructured.Unstructured{}
		found.SetAPIVersion(template.ref.APIVersion)
		found.SetKind(template.ref.Kind)
		key := client.ObjectKey{Namespace: class.Namespace, Name: template.ref.Name}
		if there := given.find(template.ref.Kind, key); there != nil {
			found = there
		} else if err := p.Client.Get(ctx, key, found); err != nil {
			return nil, fmt.Errorf("reading %s %s of ClusterClass %s: %w", template.ref.Kind, key, class.Name, err)
		}
		*template.into = found
	}
	return made, nil
}

// noWorkloadClusters are the connections to workload clusters: a new one has none.
type noWorkloadClusters struct{ clustercache.ClusterCache }
