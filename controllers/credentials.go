// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// secretToClusters wakes the clusters that a Secret has credentials for, so that a rotated key is used, and a mended one noticed, at once.
func (r *MaasClusterReconciler) secretToClusters(ctx context.Context, secret client.Object) []reconcile.Request {
	var list []reconcile.Request
	for _, c := range clustersWithCredentials(ctx, r.Client, secret) {
		list = append(list, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&c)})
	}
	return list
}

// secretToMachines wakes their machines.
func (r *MaasMachineReconciler) secretToMachines(ctx context.Context, secret client.Object) []reconcile.Request {
	var list []reconcile.Request
	for _, c := range clustersWithCredentials(ctx, r.Client, secret) {
		list = append(list, r.maasClusterToMachines(ctx, &c)...)
	}
	return list
}

func clustersWithCredentials(ctx context.Context, c client.Reader, secret client.Object) []infrav1.MaasCluster {
	list := &infrav1.MaasClusterList{}
	if err := c.List(ctx, list, client.InNamespace(secret.GetNamespace())); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Can't tell which MaasClusters use a Secret")
		return nil
	}
	var users []infrav1.MaasCluster
	for i := range list.Items {
		spec := &list.Items[i].Spec
		hosts := spec.LXDConfig
		if isNamed(spec.CredentialsRef, secret) || (hosts != nil && isNamed(hosts.CredentialsRef, secret)) {
			users = append(users, list.Items[i])
		}
	}
	return users
}

func isNamed(ref *infrav1.LocalObjectReference, object client.Object) bool {
	return ref != nil && ref.Name == object.GetName()
}
