// SPDX-License-Identifier: Apache-2.0

// Package controlplane reads what makes Machines, and says whether a control plane and its Machines are healthy, by
// what Cluster API says of them.
package controlplane

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
)

// Of returns the control plane of a Cluster, of any kind; see Get.
func Of(ctx context.Context, c client.Client, live client.Reader, cluster *clusterv1.Cluster) (*Owner, error) {
	ref := cluster.Spec.ControlPlaneRef
	return Get(ctx, c, live, schema.GroupKind{Group: ref.APIGroup, Kind: ref.Kind},
		client.ObjectKey{Namespace: cluster.Namespace, Name: ref.Name})
}

// Get returns an owner of any kind, which live reads; nil if there is none, or none that the provider may read.
func Get(
	ctx context.Context, c client.Client, live client.Reader, kind schema.GroupKind, key client.ObjectKey,
) (*Owner, error) {
	object := &unstructured.Unstructured{}
	mapping, err := c.RESTMapper().RESTMapping(kind)
	if err == nil {
		object.SetGroupVersionKind(mapping.GroupVersionKind)
		err = live.Get(ctx, key, object)
	}
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err), meta.IsNoMatchError(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading the %s %s: %w", kind.Kind, key, err)
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

// Quorum returns why the rest of a Cluster's control plane can't do without a Machine; "" if it can. It asks the API
// server, which live reads: a cache may not have what began just now. down reports whether a Machine's machine is
// switched off on purpose.
func Quorum(
	ctx context.Context, c client.Client, live client.Reader, cluster *clusterv1.Cluster, without *clusterv1.Machine,
	down func(*clusterv1.Machine) bool,
) (string, error) {
	machines := &clusterv1.MachineList{}
	if err := live.List(ctx, machines, client.InNamespace(cluster.Namespace), client.MatchingLabels{
		clusterv1.ClusterNameLabel: cluster.Name}, client.HasLabels{clusterv1.MachineControlPlaneLabel}); err != nil {
		return "", fmt.Errorf("listing the control plane's Machines: %w", err)
	}
	others := list.Where(list.Each(machines.Items, func(m clusterv1.Machine) *clusterv1.Machine { return &m }),
		func(m *clusterv1.Machine) bool { return m.UID != without.UID })
	if why := quorum(others, down); why != "" || len(others) == 0 { // Without others it can't be worse without it.
		return why, nil
	}
	owner, err := Of(ctx, c, live, cluster)
	if err != nil || owner == nil {
		return "", err
	}
	if why := Sickness(owner.Conditions(), true); why != "" {
		return fmt.Sprintf("%s %s is not healthy: %s", owner.GetKind(), owner.GetName(), why), nil
	}
	return "", nil
}

// quorum returns why a Machine of a control plane must go on running, as far as it does: the others could not do
// without it. "" if they can. others are all other Machines of the control plane; down reports whether one is switched
// off on purpose. A Machine without others has no quorum to keep.
func quorum(others []*clusterv1.Machine, down func(*clusterv1.Machine) bool) string {
	healthy, why := 0, ""
	for _, m := range others {
		switch sick := MachineSickness(m); {
		case !m.DeletionTimestamp.IsZero():
			return fmt.Sprintf("Machine %s of the same control plane is being deleted", m.Name)
		case down(m):
			why = fmt.Sprintf("Machine %s is being switched off and on", m.Name)
		case sick != "":
			why = fmt.Sprintf("Machine %s is not healthy: %s", m.Name, sick)
		default:
			healthy++
		}
	}
	all := len(others) + 1
	if len(others) == 0 || healthy > all/2 {
		return ""
	}
	return fmt.Sprintf("only %d of %d Machines of the control plane would be left, and %d are needed%s", healthy, all,
		all/2+1, report.After(why))
}
