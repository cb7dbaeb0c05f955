// SPDX-License-Identifier: Apache-2.0

package maasmachine

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
)

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=lxdhosts,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;delete

// lxdHostRetirement is hostRetirement where MAAS has no VM hosts. The machine's LXDHost is deleted first: that keeps new
// VMs off it, and it stays until no VM is left. Then the initializer undoes its setup.
func (r *Reconciler) lxdHostRetirement(ctx context.Context, l *life, node *hostNode) (outcome, error) {
	// Not the cache: an LXDHost may have been made a moment ago.
	host, err := clusters.LXDHost(ctx, r.APIReader, l.MaasMachine)
	if err != nil {
		return proceed, err
	}
	if host != nil {
		return r.awaitLXDHost(ctx, l, host)
	}
	if err := r.deleteLXDKeys(ctx, l.MaasMachine); err != nil {
		return proceed, err
	}
	if !l.record.In(retired) {
		if out, err := r.retireNode(ctx, l, node); err != nil || out.stop {
			return out, err
		}
		l.record.Enter(retired, r.Clock.Now())
	}
	return r.awaitOtherHosts(ctx, l)
}

// awaitLXDHost deletes the machine's LXDHost, and waits until it is gone.
func (r *Reconciler) awaitLXDHost(ctx context.Context, l *life, host *infrav1.LXDHost) (outcome, error) {
	why := "it is being deleted"
	if host.DeletionTimestamp.IsZero() {
		if err := r.Client.Delete(ctx, host, client.Preconditions{UID: &host.UID}); client.IgnoreNotFound(err) != nil {
			return proceed, fmt.Errorf("deleting LXDHost %s: %w", host.Name, err)
		}
	} else if c := conditions.Get(host, infrav1.ReadyCondition); c != nil {
		why = report.Brief(cmp.Or(c.Message, why)) // It names the VMs, or why they are not known.
	}
	notDeployed(l.MaasMachine, infrav1.VMsOnHostReason, "LXDHost %s: %s", host.Name, why)
	return waitAtMost(vmsRetry), nil
}

// deleteLXDKeys deletes the Secret of an LXDHost that is gone: nobody can tell from the Secret whether its key is still
// of use.
func (r *Reconciler) deleteLXDKeys(ctx context.Context, m *infrav1.MaasMachine) error {
	secret, key := &corev1.Secret{}, client.ObjectKey{Namespace: m.Namespace, Name: clusters.LXDKeysName(m)}
	err := r.APIReader.Get(ctx, key, secret)
	if err == nil && metav1.IsControlledBy(secret, m) {
		err = r.Client.Delete(ctx, secret, client.Preconditions{UID: &secret.UID})
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting Secret %s: %w", key.Name, err)
	}
	return nil
}
