// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/life"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
)

// leave records on the LXDHost of a host that the VM may be left there: package lxdhost deletes it when the host can be
// asked again. It returns what becomes of the VM, and whether the LXDHost remembers it.
func (s *Steps) leave(
	ctx context.Context, l *life.Life, ref string, found lxd.Presence, now time.Time,
) (remedy string, remembered bool, err error) {
	const inLXD = "Delete the VM in the LXD of that host, if it is there"
	hostname := l.Identity().Hostname
	if found.Never {
		return inLXD, false, nil
	}
	host, err := s.lxdHostOf(ctx, l, ref)
	if err != nil {
		return "", false, err
	}
	if recorded := s.RecordOf(ctx, host); recorded != nil {
		left := record.LeftVM{
			Hostname: hostname, OwnerID: l.OwnerID(), Namespace: l.MaasMachine.Namespace, Machine: l.MaasMachine.Name,
			Host: ref, Namesakes: l.Record.CleanupSoFar().Namesakes, Addresses: l.Record.Addresses,
		}
		if l.MAAS != nil && l.MAAS.Device {
			left.Device = l.MAAS.SystemID
		}
		remembered, err = recorded.Add(ctx, func(all *record.LeftVMs) bool { return all.Leave(left, now) })
		if err != nil {
			return "", false, fmt.Errorf("recording on LXDHost %s that VM %s may be left there: %w", host.Name, hostname, err)
		}
		if remembered {
			return fmt.Sprintf("LXDHost %s/%s remembers it: if it is there when the host can be asked again, it is deleted",
				host.Namespace, host.Name), true, nil
		}
	}
	if _, _, direct := lxd.SoleLXDHost([]string{ref}); direct || guard.Is[*lxd.MissingVMHostError](found.Why) {
		return inLXD, false, nil
	}
	return fmt.Sprintf("When the VM host is reachable, refresh it in MAAS: a VM that is left becomes machine %s there, "+
		"and `capmaasctl orphans` finds it",
		hostname), false, nil
}

// awaitLeft returns an error while a VM of the machine's name, which was left on a host, may still be deleted there,
// which would hit the one that is made now; or may run on a host that can't be asked: the device that has its addresses
// would become that of a second one. The LXDHosts are read after the MaasMachine was made, and package lxdhost looks
// for MaasMachines after it has recorded the deletion, so one of both sees the other.
func (s *Steps) awaitLeft(ctx context.Context, l *life.Life, ref string) error {
	hosts, err := s.LXDHostsNow(ctx)
	if err != nil {
		return err
	}
	hostname, is := l.Identity().Hostname, s.isAt(l, ref)
	for i := range hosts {
		host := &hosts[i]
		recorded := s.RecordOf(ctx, host)
		if recorded == nil {
			continue
		}
		if recorded.Left.HasDevice(hostname) {
			return report.Later(report.CapacityRetry, infrav1.VMHostUnreachableReason, "VM %s of an earlier MaasMachine of "+
				"this name may still run on LXDHost %s/%s: this one is made when that is gone; use another name, or delete "+
				"that LXDHost, if its VMs are gone", hostname, host.Namespace, host.Name)
		}
		mayHit := recorded.MayChangeHost() && len(recorded.Left.Of(hostname)) > 0 && is(*host)
		if left := recorded.Unsettled(); left > 0 && mayHit {
			return &record.UnsettledError{Op: record.Compose, Pending: record.DeleteVM, Remaining: left}
		}
	}
	return nil
}

// MayRemain reports whether the VM may be left on a host, as the LXDHosts remember it: another manager, or an earlier
// reconcile, may have left it there.
func (s *Steps) MayRemain(ctx context.Context, hostname string, of *record.Machine) (bool, error) {
	left, err := s.LeftVMs(ctx, hostname)
	return of.CleanupSoFar().Remains || len(left) > 0, err
}

// LeaveAddress leaves the claim of a MaasMachine that goes to its VM, which may be left on hosts. Package lxdhost
// deletes it when the last of them does not have the VM. It moves with its cluster, though nothing of the cluster owns
// it.
func (s *Steps) LeaveAddress(ctx context.Context, m *infrav1.MaasMachine, claim *ipamv1.IPAddressClaim) error {
	before := claim.DeepCopy()
	claim.OwnerReferences = slices.DeleteFunc(claim.OwnerReferences, func(ref metav1.OwnerReference) bool {
		return ref.UID == m.UID
	})
	metav1.SetMetaDataAnnotation(&claim.ObjectMeta, infrav1.LeftVMAnnotation, m.Status.Hostname)
	metav1.SetMetaDataLabel(&claim.ObjectMeta, clusterctlv1.ClusterctlMoveLabel, "")
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := s.Client.Patch(ctx, claim, patch); err != nil {
		return fmt.Errorf("leaving IPAddressClaim %s to VM %s: %w", claim.Name, m.Status.Hostname, err)
	}
	s.Warn(m, "AddressHeld", "Delete", "IPAddressClaim %s holds the address of VM %s, which may run on a host that can't "+
		"be asked, until that is gone: delete the claim, if you know that", claim.Name, m.Status.Hostname)
	return nil
}

// lxdHostOf returns the LXDHost of a reference to a host; nil if there is none.
func (s *Steps) lxdHostOf(ctx context.Context, l *life.Life, ref string) (*infrav1.LXDHost, error) {
	hosts := &infrav1.LXDHostList{}
	if err := s.Client.List(ctx, hosts); err != nil {
		return nil, fmt.Errorf("searching for the LXDHost of %s: %w", ref, err)
	}
	return list.Find(hosts.Items, s.isAt(l, ref)), nil
}

// isAt reports whether an LXDHost is that of a reference to a host.
func (s *Steps) isAt(l *life.Life, ref string) func(infrav1.LXDHost) bool {
	return func(h infrav1.LXDHost) bool {
		return clusters.RefersTo(ref, &h, func() bool {
			return h.Annotations[infrav1.MAASAnnotation] == l.Where() && s.Scopes.Places.Has(&h)
		})
	}
}
