// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/objects"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdapi"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

const (
	// placesMaxAge is the maximum age of MAAS's zones and resource pools.
	placesMaxAge = time.Minute
	// maxNamed is how many VMs a condition names.
	maxNamed = 5
)

// observe reads a host, and MAAS's zones and resource pools, into the status.
func (r *Reconciler) observe(ctx context.Context, host *infrav1.LXDHost) error {
	if err := r.showNode(ctx, host); err != nil {
		return err
	}
	options, reading, err := r.read(ctx, host)
	if !markConnection(host, err) {
		return err
	}
	if err == nil {
		owners, failed := r.owners(ctx)
		if failed != nil {
			return failed
		}
		setReading(host, reading, owners)
		noteNews(host)
		if err := r.tendImages(ctx, host, options, reading); err != nil {
			return err
		}
	}
	markKeys(host)
	r.markRegistered(ctx, host)
	markSchedulable(host, takesNoVMs(host, err))
	summarize(host)
	return nil
}

// noteNews says in Reachable that an LXD is newer than what was tried. It is used all the same.
func noteNews(host *infrav1.LXDHost) {
	if note := lxdapi.OfVersion(host.Status.Version).NotTried(); note != "" {
		conditions.Set(host, metav1.Condition{Type: infrav1.ReachableCondition, Status: metav1.ConditionTrue,
			Reason: infrav1.ReadyReason, Message: note})
	}
}

// read asks LXD, and shows the client certificate that LXD accepted. Other callers' responses may be used.
func (r *Reconciler) read(ctx context.Context, host *infrav1.LXDHost) (lxdhost.Options, lxdhost.Reading, error) {
	options, err := r.Scopes.LXDServer(ctx, host, 0)
	if err != nil {
		return options, lxdhost.Reading{}, err
	}
	guard.At(ctx, options.Server())
	reading, err := r.Scopes.LXD.Read(ctx, options, r.Interval/2)
	if err == nil {
		fingerprint, expires := options.Client()
		host.Status.ClientCertificate = &infrav1.LXDClientCertificate{Fingerprint: fingerprint,
			Expires: metav1.NewTime(expires)}
	}
	return options, reading, err
}

// owners returns the Clusters as namespace/name, by owner id.
func (r *Reconciler) owners(ctx context.Context) (map[string]string, error) {
	list := &infrav1.MaasClusterList{}
	if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing MaasClusters: %w", err)
	}
	owners := map[string]string{}
	for i := range list.Items {
		c := &list.Items[i]
		if id := c.Annotations[infrav1.OwnerIDAnnotation]; id != "" {
			owners[id] = c.Namespace + "/" + clusters.NameOf(c)
		}
	}
	return owners, nil
}

// markRegistered checks that MAAS has the host's zone and resource pool, which its VMs get.
func (r *Reconciler) markRegistered(ctx context.Context, host *infrav1.LXDHost) {
	region, err := r.Scopes.LXDHostRegion(ctx, host)
	var zones, pools []maas.Ref
	if err == nil {
		zones, err = region.Inventory.Zones(ctx, placesMaxAge)
	}
	if err == nil {
		pools, err = region.Inventory.ResourcePools(ctx, placesMaxAge)
	}
	if err == nil {
		err = cmp.Or(machine.Has(zones, machine.MissingZone, "spec.zone", host.Spec.Zone),
			machine.Has(pools, machine.MissingPool, "spec.resourcePool", host.Spec.ResourcePool))
	}
	if err == nil {
		report.SetTrue(host, infrav1.RegisteredCondition, infrav1.ReadyReason)
		return
	}
	p := report.Explain(scope.FromLXDHost(host, err))
	if p.Reason == infrav1.CredentialsInvalidReason || guard.Is[*machine.MissingError](err) {
		report.SetFalse(host, infrav1.RegisteredCondition, p.Reason, "%s", p.Message)
		return
	}
	report.SetUnknown(host, infrav1.RegisteredCondition, p.Reason, p.Message)
}

// takesNoVMs returns what a host that LXD was asked of lacks; nil if it lacks nothing, or was not read.
func takesNoVMs(host *infrav1.LXDHost, err error) *report.Problem {
	if reason := offersNoVMs(err); reason != "" {
		return &report.Problem{Reason: reason, Message: report.Brief(err.Error())}
	}
	if err != nil {
		return nil
	}
	if bridge := host.Spec.NetworkBridge; !slices.Contains(host.Status.Bridges, bridge) {
		return &report.Problem{Reason: infrav1.BridgeNotFoundReason, Message: fmt.Sprintf(
			"LXD shows no bridge %s, only %s: make it on the host, or change spec.networkBridge", bridge,
			listed(host.Status.Bridges))}
	}
	pools := list.Each(host.Status.StoragePools, func(pool infrav1.LXDStoragePoolStatus) string { return pool.Name })
	if pool := host.Spec.StoragePool; !slices.Contains(pools, pool) {
		return &report.Problem{Reason: infrav1.StoragePoolNotFoundReason, Message: fmt.Sprintf(
			"LXD has no storage pool %s, only %s: make it, or change spec.storagePool", pool, listed(pools))}
	}
	return nil
}

func listed(names []string) string { return cmp.Or(text.List(names, maxNamed), "none") }

// reconcileDelete lets the object go when LXD has no VM with marks any more. done means that it does.
func (r *Reconciler) reconcileDelete(ctx context.Context, host *infrav1.LXDHost) (done bool, err error) {
	if !controllerutil.ContainsFinalizer(host, infrav1.LXDHostFinalizer) {
		return true, nil // Another's finalizer keeps it.
	}
	vms, err := r.vms(ctx, host)
	if !markConnection(host, err) {
		return false, err
	}
	if err == nil && len(vms) == 0 {
		return r.awaitMachines(ctx, host)
	}
	if err != nil {
		addRemedy(host)
		markSchedulable(host, &report.Problem{Reason: infrav1.DeletingReason,
			Message: "the LXDHost is being deleted; it is unknown whether there are VMs on it"})
		if reason := offersNoVMs(err); reason != "" {
			report.SetFalse(host, infrav1.SchedulableCondition, reason, "%s", report.Brief(err.Error())+byHand)
		}
		summarize(host)
		return false, nil
	}
	names := list.Each(vms, func(vm lxdhost.VM) string { return vm.Name })
	host.Status.VMs = ptr.To(int32(len(vms)))
	report.SetFalse(host, infrav1.SchedulableCondition, infrav1.VMsOnHostReason,
		"waiting for %d VM(s) on this host to be deleted: %s", len(vms), text.List(names, maxNamed))
	summarize(host)
	return false, nil
}

// awaitMachines lets a host without VMs go when no MaasMachine may be making one there, and MAAS has no device of one.
func (r *Reconciler) awaitMachines(ctx context.Context, host *infrav1.LXDHost) (done bool, err error) {
	host.Status.VMs, host.Status.Clusters = ptr.To[int32](0), nil
	names, err := r.machinesOn(ctx, host)
	if err != nil {
		return false, err
	}
	what := "MaasMachine(s) that may have a VM on this host"
	if len(names) == 0 {
		names = r.leftOn(host)
		what = "VM(s) that were left on this host, and have a device in MAAS, or may still be deleted here"
	}
	if len(names) == 0 {
		return true, r.letGo(ctx, host)
	}
	slices.Sort(names)
	report.SetFalse(host, infrav1.SchedulableCondition, infrav1.VMsOnHostReason, "waiting for %d %s: %s", len(names), what,
		text.List(names, maxNamed))
	summarize(host)
	return false, nil
}

// machinesOn returns the MaasMachines that may have a VM on a host. The cache may lack what one recorded a moment ago,
// before it makes a VM there: if it knows of none, the API server is asked.
func (r *Reconciler) machinesOn(ctx context.Context, host *infrav1.LXDHost) (names []string, err error) {
	there, err := readObjects(ctx, r.Client)
	if err != nil {
		return nil, err
	}
	machines := there.on(host)
	if len(machines) == 0 {
		machines, err = r.machinesNow(ctx, there, host)
	}
	return list.Each(machines, func(m *infrav1.MaasMachine) string { return client.ObjectKeyFromObject(m).String() }), err
}

// machinesNow returns the MaasMachines that may have a VM on a host, as the API server has them, and what their
// MaasClusters recorded: those of the namespaces that may use the host.
func (r *Reconciler) machinesNow(
	ctx context.Context, there *existing, host *infrav1.LXDHost,
) (machines []*infrav1.MaasMachine, err error) {
	namespaces := sets.Set[string]{}
	for _, m := range there.lxd {
		if clusters.MayUse(host, m) {
			namespaces.Insert(m.Namespace)
		}
	}
	for _, namespace := range sets.List(namespaces) {
		now, err := readObjects(ctx, r.APIReader, client.InNamespace(namespace))
		if err != nil {
			return nil, err
		}
		machines = append(machines, now.on(host)...)
	}
	return machines, nil
}

// on returns the MaasMachines that may have a VM on a host.
func (e *existing) on(host *infrav1.LXDHost) []*infrav1.MaasMachine {
	return list.Where(e.lxd, func(m *infrav1.MaasMachine) bool { return mayBeOn(m, host, e) })
}

// leftOn returns the VMs that were left on a host and whose devices MAAS still has, but for those that a person decides
// about: only what the LXDHost remembers makes their names and addresses free. All of them stay while the host may
// still delete one: a VM of its name could be made there through another LXDHost. A record that can't be read holds
// nothing.
func (r *Reconciler) leftOn(host *infrav1.LXDHost) []string {
	recorded, err := r.Records.OpenHost(host)
	if err != nil {
		return nil
	}
	late := recorded.Unsettled() > 0
	waits := list.Where(recorded.Left, func(vm record.LeftVM) bool {
		return late || (vm.Device != "" && vm.Spared == "")
	})
	return list.Each(waits, func(vm record.LeftVM) string { return vm.Hostname })
}

// mayBeOn reports whether a MaasMachine's VM may be on a host, or be made there: one that may use the host, and whose
// record can't be read, may. MAAS's VMs on a former VM host carry no marks until they are adopted.
func mayBeOn(m *infrav1.MaasMachine, host *infrav1.LXDHost, there *existing) bool {
	if !clusters.MayUse(host, m) {
		return false
	}
	recorded, err := record.OfMachine(m)
	inItsMAAS := func() bool { // Without its MaasCluster, which may be gone by force, it may be in any.
		home, known := there.homes.Where(m)
		return !known || home == host.Annotations[infrav1.MAASAnnotation]
	}
	return err != nil ||
		slices.ContainsFunc(recorded.Hosts, func(ref string) bool { return clusters.RefersTo(ref, host, inItsMAAS) })
}

// vms lists the VMs with marks on a host as they are now.
func (r *Reconciler) vms(ctx context.Context, host *infrav1.LXDHost) ([]lxdhost.VM, error) {
	options, err := r.Scopes.LXDServer(ctx, host, 0)
	if err != nil {
		return nil, err
	}
	return r.list(ctx, options)
}

func (r *Reconciler) list(ctx context.Context, options lxdhost.Options) ([]lxdhost.VM, error) {
	there, err := r.Scopes.LXD.Host(ctx, options)
	if err != nil {
		return nil, err
	}
	return there.List(ctx)
}

// byHand is the remedy for a host that can't be asked.
const byHand = "; if the host is gone for good, remove the finalizer " + infrav1.LXDHostFinalizer +
	" of this LXDHost by hand: VMs that are on it stay there"

// addRemedy says in the condition that is False how to let a host go that can't be asked for its VMs.
func addRemedy(host *infrav1.LXDHost) {
	for _, condition := range []string{infrav1.ReachableCondition, infrav1.TrustedCondition} {
		c := conditions.Get(host, condition)
		if c.Status == metav1.ConditionFalse {
			report.SetFalse(host, condition, c.Reason, "%s", c.Message+byHand)
		}
	}
}

// letGo removes the finalizer of a host without VMs.
func (r *Reconciler) letGo(ctx context.Context, host *infrav1.LXDHost) error {
	err := objects.PatchLocked(ctx, r.Client, host, func(h *infrav1.LXDHost) {
		controllerutil.RemoveFinalizer(h, infrav1.LXDHostFinalizer)
	})
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	r.Scopes.ReleaseLXDHost(client.ObjectKeyFromObject(host))
	r.Tell(host, "Deleted", "Delete", "no VM of ours is left on the host")
	return nil
}
