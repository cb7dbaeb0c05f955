// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"context"
	"fmt"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

// spared is why a VM stays; the zero value: nothing speaks against its deletion.
type spared struct {
	text string
	// namesake means that another VM has, or gets, its name.
	namesake bool
}

var (
	noMAAS = spared{text: "its MaasCluster is gone, and no other uses its MAAS: `capmaasctl orphans` finds it with " +
		"that MAAS's key, or delete it on the host"}
	incredible = spared{text: "the manager did not record it on this LXDHost: remove it from the annotation " +
		"capmaas.io/record"}
	noVMHost  = spared{text: "MAAS does not have its VM host any more"}
	noCluster = spared{text: "its MaasCluster is gone, or was moved to another management cluster: if it was not " +
		"moved, `capmaasctl orphans` says how to delete it, or delete it on the host"}
)

// leftOwner is the MaasCluster of a VM that was left.
type leftOwner struct {
	*infrav1.MaasCluster
	// paused: it may be on its way to another management cluster, or be just restored.
	paused bool
}

// credible reports whether the manager can have recorded the VM. Whoever may write an LXDHost may write its record, and
// must not make us delete anything but VMs of a cluster's name on this host.
func (l *leftVM) credible() bool {
	here := clusters.RefersTo(l.LeftVM.Host, l.host, func() bool { return true })
	return here && maas.ValidOwnerID(l.OwnerID) && l.Hostname == maas.Hostname(l.Machine, l.OwnerID)
}

// clusterOf returns the MaasCluster that a VM was made for; nil if it is gone. A copy with the same owner id has no
// VMs.
func (r *Reconciler) clusterOf(ctx context.Context, l *leftVM) (*leftOwner, error) {
	list := &infrav1.MaasClusterList{}
	if err := r.Client.List(ctx, list, client.InNamespace(l.Namespace)); err != nil {
		return nil, fmt.Errorf("searching for its MaasCluster: %w", err)
	}
	for i := range list.Items {
		c := &list.Items[i]
		if c.Annotations[infrav1.OwnerIDAnnotation] != l.OwnerID {
			continue
		}
		original, err := clusters.CopiedFrom(ctx, r.Client, c)
		if err != nil {
			return nil, err
		}
		if original != nil {
			continue
		}
		cluster := &clusterv1.Cluster{}
		err = r.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: clusters.NameOf(c)}, cluster)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading its Cluster: %w", err)
		}
		return &leftOwner{MaasCluster: c, paused: annotations.HasPaused(c) || annotations.IsPaused(cluster, c)}, nil
	}
	return nil, nil
}

// regionOf returns the MAAS of a VM, as its cluster's identity sees it: another one may not see who has acquired the
// VM. Without the cluster it is any identity that MAAS knows, which is enough to find out that the VM is gone.
func (r *Reconciler) regionOf(ctx context.Context, l *leftVM, cluster *leftOwner) (*scope.Region, error) {
	if cluster != nil {
		s, err := r.Scopes.Cluster(ctx, &clusterv1.Cluster{}, cluster.MaasCluster)
		if err != nil {
			return nil, err
		}
		return s.Region, nil
	}
	if l.host.Spec.VMHost == nil {
		return r.Scopes.LXDHostRegion(ctx, l.host)
	}
	return list.First(r.Scopes.Regions(), func(region *scope.Region) bool {
		return region.Where() == l.host.Annotations[infrav1.MAASAnnotation]
	}), nil
}

// whySpared returns why a VM that was found is not deleted; the zero value if it is ours, and nothing claims it.
// Kubernetes is read after MAAS, and not from a cache: each VM has its MaasMachine before MAAS is asked for it.
func (r *Reconciler) whySpared(ctx context.Context, l *leftVM, cluster *leftOwner, found lxd.Presence) (spared, error) {
	if cluster == nil {
		return noCluster, nil
	}
	claim, err := r.claimed(ctx, l, found.VM.SystemID)
	if err == nil && claim == (spared{}) && !found.VM.IsAt(l.LeftVM.Host) {
		claim.text = "MAAS shows it on VM host " + found.VM.Host + ": `capmaasctl orphans` says how to remove it there"
	}
	return claim, err
}

// claimed returns which MaasMachine has the name or the machine of a VM; the zero value if none has. A VM that has a
// device in MAAS holds its name: see awaitLeft in package maasmachine.
func (r *Reconciler) claimed(ctx context.Context, l *leftVM, systemID string) (spared, error) {
	list := &infrav1.MaasMachineList{}
	if err := r.APIReader.List(ctx, list, client.InNamespace(l.Namespace)); err != nil {
		return spared{}, fmt.Errorf("reading which MaasMachines claim it: %w", err)
	}
	for i := range list.Items {
		m := &list.Items[i]
		if l.Device != "" && clusters.NothingAcquired(m) {
			continue // It waits until this one is gone.
		}
		if maas.Hostname(m.Name, l.OwnerID) == l.Hostname || (systemID != "" && m.Spec.SystemID == systemID) {
			text := fmt.Sprintf("MaasMachine %s has its name: delete the VM on the host, unless it is that MaasMachine's",
				m.Name)
			return spared{text: text, namesake: true}, nil
		}
	}
	return spared{}, nil
}
