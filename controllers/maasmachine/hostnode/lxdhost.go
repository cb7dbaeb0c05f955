// SPDX-License-Identifier: Apache-2.0

package hostnode

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
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/life"
	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/vmhosts"
)

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=lxdhosts,verbs=list;watch;delete
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;patch;delete

// lxdHostRetirement is hostRetirement where MAAS has no VM hosts. The machine's LXDHost is deleted first: that keeps
// new VMs off it, and it stays until no VM is left. Then the initializer undoes its setup.
func (s *Steps) lxdHostRetirement(ctx context.Context, l *life.Life, node *hostNode) (life.Outcome, error) {
	// Not the cache: an LXDHost may have been made a moment ago.
	host, err := clusters.LXDHost(ctx, s.APIReader, l.MaasMachine)
	if err != nil {
		return life.Proceed, err
	}
	if host != nil {
		return s.awaitLXDHost(ctx, host)
	}
	vms, err := s.vmsAt(ctx, l, node.identity(l))
	if err != nil {
		return life.Proceed, err
	}
	if len(vms) > 0 {
		return report.Wait(vmsRetry, infrav1.VMsOnHostReason, "waiting for %d VM(s) on this host to be deleted: %s", len(vms),
			text.List(vms, maxNamed)), nil
	}
	if !isOutOfService(l.Record.MachineData) {
		if out, err := s.retire(ctx, l, node); err != nil || out.Waits() {
			return out, err
		}
		l.Record.Enter(retired, s.Clock.Now())
	}
	return s.awaitOtherHosts(ctx, l)
}

// vmsAt names the VMs that MAAS switches at a node's addresses, whoever made them: those that were composed on a VM
// host, before MAAS lost its VM hosts, carry no marks in LXD.
func (s *Steps) vmsAt(ctx context.Context, l *life.Life, node vmhosts.Node) ([]string, error) {
	instances, err := s.instances(ctx, l)
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

// instances asks how MAAS switches all machines. MAAS shows that to users who may edit all of them: to the key on the
// nodes, and only perhaps to the cluster's.
func (s *Steps) instances(ctx context.Context, l *life.Life) (map[string]maas.Instance, error) {
	instances, lacking := l.Inventory.Client().Instances(ctx)
	if !errors.Is(lacking, maas.Forbidden) {
		return instances, lacking
	}
	config, err := s.Scopes.HostCredentials(ctx, l.MaasCluster)
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
	return nodes.Instances(ctx)
}

// awaitLXDHost deletes the machine's LXDHost, and waits until it is gone.
func (s *Steps) awaitLXDHost(ctx context.Context, host *infrav1.LXDHost) (life.Outcome, error) {
	why := "it is being deleted"
	if host.DeletionTimestamp.IsZero() {
		if err := s.Client.Delete(ctx, host, client.Preconditions{UID: &host.UID}); client.IgnoreNotFound(err) != nil {
			return life.Proceed, fmt.Errorf("deleting LXDHost %s: %w", host.Name, err)
		}
	} else if c := conditions.Get(host, infrav1.ReadyCondition); c != nil {
		why = report.Brief(cmp.Or(c.Message, why)) // It names the VMs, or why they are not known.
	}
	return report.Wait(vmsRetry, infrav1.VMsOnHostReason, "LXDHost %s: %s", host.Name, why), nil
}

// DeleteLXDKeys deletes the Secret of the LXDHost of a host cluster's machine, and removes its finalizer.
func (s *Steps) DeleteLXDKeys(
	ctx context.Context, m *infrav1.MaasMachine, maasCluster *infrav1.MaasCluster,
) error {
	if m.Spec.IsLXD() || (maasCluster != nil && !maasCluster.Spec.LXDControlPlaneCluster) {
		return nil
	}
	secret, name := &corev1.Secret{}, clusters.LXDKeysName(m)
	err := s.APIReader.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: name}, secret)
	if err == nil && metav1.IsControlledBy(secret, m) {
		err = s.deleteKeys(ctx, secret)
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting Secret %s: %w", name, err)
	}
	return nil
}

func (s *Steps) deleteKeys(ctx context.Context, secret *corev1.Secret) error {
	if err := s.Client.Delete(ctx, secret, client.Preconditions{UID: &secret.UID}); err != nil {
		return err
	}
	before := secret.DeepCopy()
	controllerutil.RemoveFinalizer(secret, infrav1.LXDKeysFinalizer)
	return s.Client.Patch(ctx, secret, client.MergeFrom(before))
}
