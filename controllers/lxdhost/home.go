// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/objects"
	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

// keepToLXD records which LXD and project a host leads to. If a person changes that, it follows only if no VM can be
// lost: none may be there, or the new place shows all of them, as the same LXD does with a new certificate. Otherwise
// scope.Factory.LXDServer refuses the new place. changed: the update of the object begins another reconcile.
func (r *Reconciler) keepToLXD(ctx context.Context, host *infrav1.LXDHost) (changed bool, err error) {
	home, there := host.Annotations[infrav1.LXDAnnotation], scope.PlaceOf(host)
	if there == "" || there == home {
		return false, nil
	}
	if home != "" {
		missing, err := r.missing(ctx, host)
		if err != nil || len(missing) > 0 {
			ctrl.LoggerFrom(ctx).V(1).Info("An LXDHost leads to another LXD, which does not show its VMs", "missing",
				text.List(missing, maxNamed), "problem", err)
			return false, err
		}
		if err := r.forgetReading(ctx, host); err != nil {
			return false, err
		}
	}
	err = objects.PatchLocked(ctx, r.Client, host, func(h *infrav1.LXDHost) {
		record.SetAnnotation(h, infrav1.LXDAnnotation, there)
	})
	if err == nil && home != "" {
		r.Tell(host, "LXDMoved", "Connect", "the LXD and project of this host, which were %s, are %s", home, there)
	}
	return err == nil, err
}

// forgetReading removes what the LXD where a host led said of itself. If it has VMs, the LXD is the same.
func (r *Reconciler) forgetReading(ctx context.Context, host *infrav1.LXDHost) error {
	if ptr.Deref(host.Status.VMs, 0) > 0 {
		return nil
	}
	before, s := host.DeepCopy(), &host.Status
	s.Version, s.Capacity, s.Allocated, s.Free, s.StoragePools, s.Bridges = "", nil, nil, nil, nil, nil
	s.VMs, s.Clusters, s.ClientCertificate = nil, nil, nil
	conditions.Delete(host, infrav1.KeysCurrentCondition)
	if equality.Semantic.DeepEqual(before.Status, host.Status) {
		return nil
	}
	change := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}) // Others write conditions, too.
	if err := r.Client.Status().Patch(ctx, host, change); err != nil {
		return fmt.Errorf("removing the figures of another LXD from LXDHost %s: %w", host.Name, err)
	}
	return nil
}

// missing returns which of the VMs that may be on a host are not shown where it leads now; all of them if nothing
// responds there.
func (r *Reconciler) missing(ctx context.Context, host *infrav1.LXDHost) ([]string, error) {
	want, err := r.marksOn(ctx, host)
	if err != nil || len(want) == 0 {
		return nil, err
	}
	options, failed := r.Scopes.AnyLXDServer(ctx, host, 0)
	var shown []lxdhost.VM
	if failed == nil {
		shown, failed = r.list(ctx, options)
	}
	var missing []string
	for _, marks := range want {
		isIt := func(vm lxdhost.VM) bool { return failed == nil && vm.Name == marks.Machine && vm.Marks.Prove(marks) }
		if !slices.ContainsFunc(shown, isIt) {
			missing = append(missing, marks.Machine)
		}
	}
	return missing, nil
}

// marksOn returns the marks of the VMs that may be on a host, as Kubernetes knows them now. Without marks is what can't
// be read.
func (r *Reconciler) marksOn(ctx context.Context, host *infrav1.LXDHost) (all []lxdhost.Marks, err error) {
	there, err := readObjects(ctx, r.Client)
	if err != nil {
		return nil, err
	}
	machines, err := r.machinesNow(ctx, there, host)
	if err != nil {
		return nil, err
	}
	for _, m := range machines {
		owner := ""
		if of := there.homes.Of(m); of != nil {
			owner = of.Annotations[infrav1.OwnerIDAnnotation]
		}
		all = append(all, lxdhost.Marks{Owner: owner, Machine: maas.Hostname(m.Name, owner)})
	}
	recorded, err := record.OfHost(host)
	if err != nil {
		all = append(all, lxdhost.Marks{})
	}
	for _, vm := range recorded.Left {
		all = append(all, lxdhost.Marks{Owner: vm.OwnerID, Machine: vm.Hostname})
	}
	return all, nil
}
