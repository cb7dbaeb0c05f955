// SPDX-License-Identifier: Apache-2.0

package maasmachine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/rights"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/vmhosts"
)

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=lxdhosts,verbs=list;watch;delete
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;patch;delete

// lxdHostRetirement is hostRetirement where MAAS has no VM hosts. The machine's LXDHost is deleted first: that keeps
// new VMs off it, and it stays until no VM is left. Then the initializer undoes its setup.
func (r *Reconciler) lxdHostRetirement(ctx context.Context, l *life, node *hostNode) (outcome, error) {
	// Not the cache: an LXDHost may have been made a moment ago.
	host, err := clusters.LXDHost(ctx, r.APIReader, l.MaasMachine)
	if err != nil {
		return proceed, err
	}
	if host != nil {
		return r.awaitLXDHost(ctx, host)
	}
	vms, err := r.vmsAt(ctx, l, node.identity(l))
	if err != nil {
		return proceed, err
	}
	if len(vms) > 0 {
		return report.Wait(vmsRetry, infrav1.VMsOnHostReason, "waiting for %d VM(s) on this host to be deleted: %s", len(vms),
			text.List(vms, maxNamed)), nil
	}
	if !isOutOfService(l.record.MachineData) {
		if out, err := r.retire(ctx, l, node); err != nil || out.Waits() {
			return out, err
		}
		l.record.Enter(retired, r.Clock.Now())
	}
	return r.awaitOtherHosts(ctx, l)
}

// vmsAt names the VMs that MAAS switches at a node's addresses, whoever made them: those that were composed on a VM
// host, before MAAS lost its VM hosts, carry no marks in LXD.
func (r *Reconciler) vmsAt(ctx context.Context, l *life, node vmhosts.Node) ([]string, error) {
	instances, err := r.instances(ctx, l)
	if err != nil {
		return nil, fmt.Errorf("looking for VMs on the node: %w", err)
	}
	var names []string
	for _, vm := range instances {
		if vm.Name != "" && node.Has(vm.PowerAddress) {
			names = append(names, vm.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// instances asks how MAAS switches all machines. MAAS tells that to who may edit all of them: the key on the nodes, and
// only perhaps the cluster's.
func (r *Reconciler) instances(ctx context.Context, l *life) (map[string]maas.Instance, error) {
	lacking := rights.Require(ctx, l.Inventory, "the release of an LXD host", rights.Registration, nil)
	if !guard.Is[*rights.Error](lacking) {
		return l.Inventory.Client().Instances(ctx)
	}
	config, err := r.Scopes.HostCredentials(ctx, l.MaasCluster)
	if err != nil {
		return nil, err
	}
	if config.Where() != l.Where() { // It knows nothing of these VMs.
		return nil, report.Later(report.MendRetry, infrav1.CredentialsInvalidReason,
			"which VMs are on this host is not known: the Secret of spec.lxdConfig.credentialsRef leads to MAAS at %s, and "+
				"this cluster is in MAAS at %s: correct the endpoint in the Secret; if both are the same MAAS, "+
				"use the same URL in both",
			config.Where(), l.Where())
	}
	nodes, err := maas.NewClient(config)
	if err != nil {
		return nil, err
	}
	defer nodes.Close()
	instances, err := nodes.Instances(ctx)
	if errors.Is(err, maas.Forbidden) {
		return nil, lacking
	}
	return instances, err
}

// awaitLXDHost deletes the machine's LXDHost, and waits until it is gone.
func (r *Reconciler) awaitLXDHost(ctx context.Context, host *infrav1.LXDHost) (outcome, error) {
	why := "it is being deleted"
	if host.DeletionTimestamp.IsZero() {
		if err := r.Client.Delete(ctx, host, client.Preconditions{UID: &host.UID}); client.IgnoreNotFound(err) != nil {
			return proceed, fmt.Errorf("deleting LXDHost %s: %w", host.Name, err)
		}
	} else if c := conditions.Get(host, infrav1.ReadyCondition); c != nil {
		why = report.Brief(cmp.Or(c.Message, why)) // It names the VMs, or why they are not known.
	}
	return report.Wait(vmsRetry, infrav1.VMsOnHostReason, "LXDHost %s: %s", host.Name, why), nil
}

// deleteLXDKeys deletes the Secret of the machine's LXDHost, and removes its finalizer.
func (r *Reconciler) deleteLXDKeys(ctx context.Context, m *owners) error {
	if m.maasMachine.Spec.IsLXD() || (m.maasCluster != nil && !m.maasCluster.Spec.LXDControlPlaneCluster) {
		return nil
	}
	secret, name := &corev1.Secret{}, clusters.LXDKeysName(m.maasMachine)
	err := r.APIReader.Get(ctx, client.ObjectKey{Namespace: m.maasMachine.Namespace, Name: name}, secret)
	if err == nil && metav1.IsControlledBy(secret, m.maasMachine) {
		err = r.deleteKeys(ctx, secret)
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting Secret %s: %w", name, err)
	}
	return nil
}

func (r *Reconciler) deleteKeys(ctx context.Context, secret *corev1.Secret) error {
	if err := r.Client.Delete(ctx, secret, client.Preconditions{UID: &secret.UID}); err != nil {
		return err
	}
	before := secret.DeepCopy()
	controllerutil.RemoveFinalizer(secret, infrav1.LXDKeysFinalizer)
	return r.Client.Patch(ctx, secret, client.MergeFrom(before))
}
