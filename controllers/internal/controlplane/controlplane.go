// SPDX-License-Identifier: Apache-2.0

// Package controlplane reads what makes Machines, and says whether a control plane and its Machines are healthy, by
// what Cluster API says of them.
package controlplane

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/internal/presence"
)

// Of returns the control plane of a Cluster, of any kind; see Get.
func Of(ctx context.Context, c client.Client, live client.Reader, cluster *clusterv1.Cluster) (*Owner, error) {
	ref := cluster.Spec.ControlPlaneRef
	return Get(ctx, c, live, schema.GroupKind{Group: ref.APIGroup, Kind: ref.Kind},
		client.ObjectKey{Namespace: cluster.Namespace, Name: ref.Name})
}

// Get returns an owner of any kind, which live reads; nil if it is proven to be gone. *presence.UnknownError: it is not
// known, or the provider may not read it.
func Get(
	ctx context.Context, c client.Client, live client.Reader, kind schema.GroupKind, key client.ObjectKey,
) (*Owner, error) {
	mapping, err := c.RESTMapper().RESTMapping(kind)
	if err != nil {
		return nil, presence.Unreadable(kind, key, err)
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(mapping.GroupVersionKind)
	if there, err := presence.Look(ctx, live, kind, key, object); err != nil || !there {
		return nil, err
	}
	return &Owner{object}, nil
}

// MachineHealth are the conditions of a control plane's Machine that must be True where it has them.
var MachineHealth = []string{
	clusterv1.MachineNodeHealthyCondition, clusterv1.MachineHealthCheckSucceededCondition,
	controlplanev1.KubeadmControlPlaneMachineAPIServerPodHealthyCondition,
	controlplanev1.KubeadmControlPlaneMachineControllerManagerPodHealthyCondition,
	controlplanev1.KubeadmControlPlaneMachineSchedulerPodHealthyCondition,
	controlplanev1.KubeadmControlPlaneMachineEtcdPodHealthyCondition,
	controlplanev1.KubeadmControlPlaneMachineEtcdMemberHealthyCondition,
	clusterv1.AvailableCondition,
}

// MachineSickness returns why a Machine of a control plane is not healthy; "" if it is.
func MachineSickness(m *clusterv1.Machine) string {
	if !m.Status.NodeRef.IsDefined() {
		return "it has no Node yet"
	}
	if !conditions.IsTrue(m, clusterv1.ReadyCondition) {
		return "Ready is not True" + report.After(conditions.GetMessage(m, clusterv1.ReadyCondition))
	}
	for _, condition := range MachineHealth {
		if c := conditions.Get(m, condition); c != nil && c.Status != metav1.ConditionTrue {
			return condition + " is not True" + report.After(c.Message)
		}
	}
	return ""
}

// Sickness returns why a control plane with these conditions is not healthy; "" if it is. What it says of its parts
// includes a Machine that is sick and is dealt with for that very reason.
func Sickness(said []metav1.Condition, ofTheOneDealtWith bool) string {
	required := []string{clusterv1.AvailableCondition}
	if !ofTheOneDealtWith {
		required = append(required, controlplanev1.KubeadmControlPlaneEtcdClusterHealthyCondition,
			controlplanev1.KubeadmControlPlaneControlPlaneComponentsHealthyCondition)
	}
	for _, condition := range required {
		if c := meta.FindStatusCondition(said, condition); c != nil && c.Status != metav1.ConditionTrue {
			return condition + " is not True" + report.After(c.Message)
		}
	}
	if len(said) == 0 {
		return "it has no conditions"
	}
	return ""
}

// Quorum returns why a Cluster's control plane can't do without some of its Machines; "" if it can. It asks the API
// server, which live reads: a cache may not have what began just now. isDown reports whether a Machine's machine is
// switched off on purpose, leaves whether it is one of those that would be; dealtWith is the one that is remedied or
// replaced; the others are as well as they are.
func Quorum(
	ctx context.Context, c client.Client, live client.Reader, cluster *clusterv1.Cluster, dealtWith types.UID,
	leaves, isDown func(*clusterv1.Machine) bool,
) (string, error) {
	machines := &clusterv1.MachineList{}
	if err := live.List(ctx, machines, client.InNamespace(cluster.Namespace), client.MatchingLabels{
		clusterv1.ClusterNameLabel: cluster.Name}, client.HasLabels{clusterv1.MachineControlPlaneLabel}); err != nil {
		return "", fmt.Errorf("listing the control plane's Machines: %w", err)
	}
	all := list.Each(machines.Items, func(m clusterv1.Machine) *clusterv1.Machine { return &m })
	others := list.Where(all, func(m *clusterv1.Machine) bool { return !leaves(m) })
	if len(others) == 0 {
		return alone(all, dealtWith), nil
	}
	if why := quorum(others, len(all)-len(others), isDown); why != "" {
		return why, nil
	}
	ref := cluster.Spec.ControlPlaneRef
	if !ref.IsDefined() { // Nothing says more of it.
		return "", nil
	}
	owner, err := Of(ctx, c, live, cluster)
	switch {
	case presence.IsUnknown(err):
		return report.Brief(err.Error()), nil
	case err != nil:
		return "", err
	case owner == nil:
		return fmt.Sprintf("%s %s is gone, and with it what is known of its health", ref.Kind, ref.Name), nil
	}
	if why := Sickness(owner.Conditions(), true); why != "" {
		return fmt.Sprintf("%s %s is not healthy: %s", owner.GetKind(), owner.GetName(), why), nil
	}
	return "", nil
}

// alone returns why no Machine of a control plane may go: one of them is healthy, and not the one that is dealt with.
// "" if it can't be worse without them.
func alone(all []*clusterv1.Machine, dealtWith types.UID) string {
	for _, m := range all {
		if m.UID != dealtWith && MachineSickness(m) == "" {
			return fmt.Sprintf("Machine %s is healthy, and no other one of its control plane would be left", m.Name)
		}
	}
	return ""
}

// quorum returns why Machines of a control plane must go on running, as far as they do: the others could not do without
// them. "" if they can. others are all other Machines of the control plane; isDown reports whether one is switched off
// on purpose.
func quorum(others []*clusterv1.Machine, leaving int, isDown func(*clusterv1.Machine) bool) string {
	healthy, why := 0, ""
	for _, m := range others {
		switch sick := MachineSickness(m); {
		case !m.DeletionTimestamp.IsZero():
			return fmt.Sprintf("Machine %s of the same control plane is being deleted", m.Name)
		case isDown(m):
			why = fmt.Sprintf("Machine %s is being switched off and on", m.Name)
		case sick != "":
			why = fmt.Sprintf("Machine %s is not healthy: %s", m.Name, sick)
		default:
			healthy++
		}
	}
	all := len(others) + leaving
	if healthy > all/2 {
		return ""
	}
	return fmt.Sprintf("only %d of %d Machines of the control plane would be left, and %d are needed%s", healthy, all,
		all/2+1, report.After(why))
}
