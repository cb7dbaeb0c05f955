// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/ownership"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/turns"
)

const (
	// leftInterval bounds the time between two questions to a host that does not respond, at first. MAAS waits for such
	// a host.
	leftInterval = 30 * time.Second
	// leftPatience is the part of the time since a VM was left after which its host is asked again, up to
	// maxLeftIntervals.
	leftPatience     = 10
	maxLeftIntervals = 20
	// verifyAfter is when to check that a VM which was found and deleted is gone.
	verifyAfter = 5 * time.Second
)

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=maasclusters;maasmachines,verbs=list;watch
// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=ipaddressclaims,verbs=list;watch;delete

// looks are the last looks for VMs that may be left, by the host's key.
type looks struct{ sync.Map }

// look is one: what was recorded then, whether the host was Ready since, and when to look again.
type look struct {
	recorded string
	ready    bool
	next     time.Time
}

// lookForLeft deletes the VMs that were left on a host. When a host dies, its VMs are replaced, and their MaasMachines
// go although nobody knows whether the host still has the VMs. The record of its LXDHost names them. When the host can
// be asked again, those that it has are proven to be ours, and to be nobody's, and deleted. It returns when to look
// again; 0: none is recorded. Until then it asks nobody, unless a VM is added, or the host becomes Ready.
func (r *Reconciler) lookForLeft(ctx context.Context, host *infrav1.LXDHost) time.Duration {
	key := client.ObjectKeyFromObject(host)
	recorded, err := r.Records.OpenHost(host)
	if err != nil || len(recorded.Left) == 0 { // NoVMsLeft says that it can't be read.
		r.looks.Delete(key)
		return 0
	}
	all, _ := json.Marshal(recorded.Left) // It was read from JSON.
	now := look{recorded: string(all), ready: conditions.IsTrue(host, infrav1.ReadyCondition)}
	stored, _ := r.looks.Load(key)
	last, _ := stored.(look)
	wait := last.next.Sub(r.Clock.Now())
	if wait > 0 && now.recorded == last.recorded && (last.ready || !now.ready) {
		now.next = last.next
		r.looks.Store(key, now)
		return wait
	}
	wait = 0
	for _, vm := range recorded.Left {
		recorded.About(vm.Hostname)
		after, err := r.lookForVM(ctx, &leftVM{host: host, record: recorded, LeftVM: vm})
		if err != nil { // If it were returned, the others would be put off, too.
			ctrl.LoggerFrom(ctx).Info("Failed to look for a VM that may be left", "vm", vm.Hostname, "error", text.Lines(err))
			after = cmp.Or(report.Explain(err).RetryAfter, r.leftInterval())
		}
		wait = sooner(wait, after)
	}
	if err := recorded.Close(ctx); err != nil {
		ctrl.LoggerFrom(ctx).Info("Failed to store what became of VMs that may be left", "error", text.Lines(err))
	}
	if ctx.Err() == nil {
		now.next = r.Clock.Now().Add(wait)
		r.looks.Store(key, now)
	}
	return wait
}

// leftVM is a VM that may be left on a host.
type leftVM struct {
	record.LeftVM
	host   *infrav1.LXDHost
	record *record.Host
}

// vm returns what the VM is searched by.
func (l *leftVM) vm() lxd.VM {
	return lxd.VM{Hostname: l.Hostname, Namespace: l.Namespace, HostRef: l.LeftVM.Host,
		Marks: lxdhost.Marks{Owner: l.OwnerID, Machine: l.Hostname}, Namesakes: l.Namesakes, Addresses: l.Addresses,
		Mark: ownership.AgentName(l.OwnerID, l.Machine)}
}

// lookForVM searches the host for a VM, and deletes it there. It returns when to ask again; 0: the VM is not left.
func (r *Reconciler) lookForVM(ctx context.Context, l *leftVM) (again time.Duration, err error) {
	if !l.credible() {
		return r.pauseOf(l), r.spare(ctx, l, incredible)
	}
	cluster, err := r.clusterOf(ctx, l)
	if err != nil {
		return 0, err
	}
	if cluster != nil && cluster.paused {
		return r.pauseOf(l), nil
	}
	if left := l.record.Unsettled(); left > 0 {
		return left, nil // The host may still delete a VM: nothing is repeated, and no entry goes.
	}
	l.record.Done(record.DeleteVM)
	region, err := r.regionOf(ctx, l, cluster)
	if err != nil {
		return 0, err
	}
	if region == nil {
		return r.pauseOf(l), r.spare(ctx, l, noMAAS)
	}
	line := turns.Removal
	if l.host.Spec.VMHost == nil {
		line = turns.RemovalFrom(l.LeftVM.Host)
	}
	done, err := region.Turn(ctx, line, turns.Acquire)
	if err != nil {
		return 0, err
	}
	defer done()
	found, err := region.Machines.LXD().Find(ctx, l.vm())
	if err != nil {
		return 0, err
	}
	switch found.State {
	case lxd.Gone:
		return r.settleLeft(ctx, l, region)
	case lxd.Pending:
		return max(found.After, time.Second), nil
	case lxd.Unreachable:
		if guard.Is[*lxd.MissingVMHostError](found.Why) {
			return r.pauseOf(l), r.spare(ctx, l, noVMHost)
		}
		return max(found.After, r.pauseOf(l)), nil
	}
	return r.deleteVM(ctx, l, cluster, region, found)
}

// deleteVM deletes a VM that was found, if it is ours and nothing claims it.
func (r *Reconciler) deleteVM(
	ctx context.Context, l *leftVM, cluster *leftOwner, region *scope.Region, found lxd.Presence,
) (again time.Duration, err error) {
	why, err := r.whySpared(ctx, l, cluster, found)
	if err != nil {
		return 0, err
	}
	if why != (spared{}) {
		return r.pauseOf(l), r.spare(ctx, l, why)
	}
	if l.Spared != "" { // From now on its device holds the LXDHost again: see leftOn.
		if err := l.record.Merge(ctx, func(all *record.LeftVMs) { all.Spare(l.LeftVM, "", false) }); err != nil {
			return 0, client.IgnoreNotFound(err)
		}
		l.Spared = ""
	}
	// Once the call is recorded, no MaasMachine of the name is given a VM there. One that was made before shows now.
	err = l.record.OnHost(ctx, record.DeleteVM, func(ctx context.Context, permit maas.VMPermit) error {
		if why, err = r.whySpared(ctx, l, cluster, found); err != nil || why != (spared{}) {
			return err
		}
		err := region.Machines.LXD().DeleteVM(ctx, permit, *found.VM)
		if errors.Is(err, maas.NotFound) && maas.HadNoEffect(err) {
			return nil
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("deleting it: %w", err)
	}
	if why != (spared{}) {
		return r.pauseOf(l), r.spare(ctx, l, why)
	}
	r.Tell(l.host, "LeftVMDeleted", "Delete",
		"VM %s of MaasMachine %s/%s, which is gone, was still there; "+
			"it is being deleted", l.Hostname, l.Namespace, l.Machine)
	return verifyAfter, nil
}

// settleLeft removes a VM from the record that the host does not have, or that another user has acquired. As long as a
// MaasMachine has its name, that can't be known: MAAS shows its VM under the name, and LXD has the same marks on
// both.
func (r *Reconciler) settleLeft(ctx context.Context, l *leftVM, region *scope.Region) (again time.Duration, err error) {
	why, err := r.claimed(ctx, l, "")
	if err != nil {
		return 0, err
	}
	if why != (spared{}) {
		return r.pauseOf(l), r.spare(ctx, l, why)
	}
	last, err := r.free(ctx, l, region)
	if err != nil {
		return 0, err
	}
	if err := l.record.Store(ctx, func() { l.record.Settle(l.LeftVM) }); err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	if !last { // The other one may have been settled meanwhile, by who saw this one.
		if _, err := r.free(ctx, l, region); err != nil {
			return 0, err
		}
	}
	r.Tell(l.host, "LeftVMGone", "Verify",
		"VM %s of MaasMachine %s/%s is not left on this host", l.Hostname, l.Namespace, l.Machine)
	return 0, nil
}

// free gives up what MAAS and Kubernetes hold for a VM that the host does not have, as far as no other host may have it
// still. It reports whether none may. The MaasMachine is gone by now: all that it left is recorded.
func (r *Reconciler) free(ctx context.Context, l *leftVM, region *scope.Region) (last bool, err error) {
	left, err := r.LeftVMs(ctx, l.Hostname)
	if err != nil {
		return false, err
	}
	elsewhere := list.Where(left, func(other record.LeftVM) bool { return !l.Is(other) })
	// An earlier MaasMachine of the name had another device, or none.
	if !slices.ContainsFunc(elsewhere, func(other record.LeftVM) bool { return other.Device == l.Device }) {
		if err := forgetDevice(ctx, l, region); err != nil {
			return false, err
		}
	}
	if len(elsewhere) > 0 {
		return false, nil
	}
	return true, r.freeAddress(ctx, l)
}

// forgetDevice deletes the VM's device in MAAS. One that is not ours any more is not changed.
func forgetDevice(ctx context.Context, l *leftVM, region *scope.Region) error {
	if l.Device == "" {
		return nil
	}
	device, err := region.Inventory.Read(ctx, l.Device)
	if errors.Is(err, maas.NotFound) || (err == nil && !device.Device) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading its device: %w", err)
	}
	mark := ownership.AgentName(l.OwnerID, l.Machine)
	err = region.Machines.LXD().Forget(ctx, record.ChangeVM.Permit(), device, mark)
	if !guard.Is[*lxd.NameTakenError](err) {
		return err
	}
	return nil
}

// freeAddress deletes the claim that was left to the VM. Any other one of the name is its MaasMachine's.
func (r *Reconciler) freeAddress(ctx context.Context, l *leftVM) error {
	claim := &ipamv1.IPAddressClaim{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: l.Namespace, Name: l.Machine}, claim)
	if err == nil && claim.Annotations[infrav1.LeftVMAnnotation] == l.Hostname && metav1.GetControllerOf(claim) == nil {
		uid := claim.UID
		err = r.Client.Delete(ctx, claim, client.Preconditions{UID: &uid})
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("giving its address back: %w", err)
	}
	return nil
}

// spare records why a VM stays, and says so once.
func (r *Reconciler) spare(ctx context.Context, l *leftVM, why spared) error {
	if l.IsSpared(why.text, why.namesake) {
		return nil
	}
	if err := l.record.Merge(ctx, func(all *record.LeftVMs) { all.Spare(l.LeftVM, why.text, why.namesake) }); err != nil {
		return client.IgnoreNotFound(err)
	}
	r.Warn(l.host, "LeftVMKept", "Verify",
		"VM %s of MaasMachine %s/%s is not deleted: %s", l.Hostname, l.Namespace, l.Machine, why.text)
	return nil
}

// pauseOf returns when to ask a host again: the longer a VM has been left, the later.
func (r *Reconciler) pauseOf(l *leftVM) time.Duration {
	since := r.Clock.Since(l.Since.Time)
	return min(max(since/leftPatience, r.leftInterval()), maxLeftIntervals*r.leftInterval())
}

func (r *Reconciler) leftInterval() time.Duration { return min(r.Interval, leftInterval) }
