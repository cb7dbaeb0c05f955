// SPDX-License-Identifier: Apache-2.0

package maasmachine

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
)

// leave records on the LXDHost of a host that the VM may be left there: package leftvms deletes it when the host can be
// asked again. It returns what becomes of the VM.
func (r *Reconciler) leave(
	ctx context.Context, l *life, ref string, found lxd.Presence, now time.Time,
) (remedy string, err error) {
	const inLXD = "Delete the VM in the LXD of that host, if it is there"
	hostname := l.Identity().Hostname
	if found.Never {
		return inLXD, nil
	}
	host, err := r.lxdHostOf(ctx, l, ref)
	if err != nil {
		return "", err
	}
	if recorded := r.readable(ctx, host); recorded != nil {
		left := record.LeftVM{
			Hostname: hostname, OwnerID: l.OwnerID(), Namespace: l.MaasMachine.Namespace, Machine: l.MaasMachine.Name,
			Host: ref, Namesakes: l.record.CleanupSoFar().Namesakes, Addresses: l.record.Addresses,
		}
		if l.maas != nil && l.maas.Device {
			left.Device = l.maas.SystemID
		}
		remembered, err := recorded.Add(ctx, func(all *record.LeftVMs) bool { return all.Leave(left, now) })
		if err != nil {
			return "", fmt.Errorf("recording on LXDHost %s that VM %s may be left there: %w", host.Name, hostname, err)
		}
		if remembered {
			return fmt.Sprintf("LXDHost %s/%s remembers it: if it is there when the host can be asked again, it is deleted",
				host.Namespace, host.Name), nil
		}
	}
	if _, _, direct := lxd.SoleLXDHost([]string{ref}); direct {
		return inLXD, nil
	}
	return fmt.Sprintf("When the VM host is reachable, refresh it in MAAS: a VM that is left becomes machine %s there, "+
		"and `capmaasctl orphans` finds it",
		hostname), nil
}

// awaitLeft returns an error while a VM of the machine's name, which was left on a host, may still be deleted there:
// that would hit the one that is made now. The LXDHost is read after the MaasMachine was made, and package leftvms
// looks for MaasMachines after it has recorded the deletion, so one of both sees the other.
func (r *Reconciler) awaitLeft(ctx context.Context, l *life, ref string) error {
	if err := r.awaitName(ctx, l); err != nil {
		return err
	}
	cached, err := r.lxdHostOf(ctx, l, ref)
	if err != nil || cached == nil {
		return err
	}
	now := &infrav1.LXDHostList{}
	byName := client.MatchingFields{metav1.ObjectNameField: cached.Name}
	if err := r.APIReader.List(ctx, now, client.InNamespace(cached.Namespace), byName); err != nil {
		return fmt.Errorf("reading which VMs are left on LXDHost %s: %w", cached.Name, err)
	}
	for i := range now.Items {
		recorded := r.readable(ctx, &now.Items[i])
		if recorded == nil || !recorded.MayChangeHost() || !recorded.Left.Has(l.Identity().Hostname) {
			continue
		}
		if left := recorded.Unsettled(); left > 0 {
			return &record.UnsettledError{Op: record.Compose, Pending: record.DeleteVM, Remaining: left}
		}
	}
	return nil
}

// awaitName returns an error while a VM of the machine's name may run on a host that can't be asked: the device that
// has its addresses would become that of a second one.
func (r *Reconciler) awaitName(ctx context.Context, l *life) error {
	list := &infrav1.LXDHostList{}
	if err := r.Client.List(ctx, list); err != nil {
		return fmt.Errorf("reading which VMs are left on LXDHosts: %w", err)
	}
	hostname := l.Identity().Hostname
	for i := range list.Items {
		host := &list.Items[i]
		if recorded := r.readable(ctx, host); recorded == nil || !recorded.Left.HoldName(hostname) {
			continue
		}
		return report.Later(report.CapacityRetry, infrav1.VMHostUnreachableReason, "VM %s of an earlier MaasMachine of this "+
			"name may still run on LXDHost %s/%s: this one is made when that is gone; use another name, or delete that "+
			"LXDHost, if its VMs are gone", hostname, host.Namespace, host.Name)
	}
	return nil
}

// readable returns the record of an LXDHost; nil if there is none that can be read. Whoever may write the LXDHost may
// write it, and holds nobody's deletion by that.
func (r *Reconciler) readable(ctx context.Context, host *infrav1.LXDHost) *record.Host {
	if host == nil {
		return nil
	}
	recorded, err := r.Records.OpenHost(host)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "An LXDHost can't remember that a VM may be left", "lxdHost",
			client.ObjectKeyFromObject(host))
		return nil
	}
	return recorded
}

// lxdHostOf returns the LXDHost of a reference to a host; nil if there is none.
func (r *Reconciler) lxdHostOf(ctx context.Context, l *life, ref string) (*infrav1.LXDHost, error) {
	hosts := &infrav1.LXDHostList{}
	if err := r.Client.List(ctx, hosts); err != nil {
		return nil, fmt.Errorf("searching for the LXDHost of %s: %w", ref, err)
	}
	return list.Find(hosts.Items, func(h infrav1.LXDHost) bool {
		return clusters.RefersTo(ref, &h, func() bool {
			return h.Annotations[infrav1.MAASAnnotation] == l.Where() && r.Scopes.Places.Has(&h)
		})
	}), nil
}
