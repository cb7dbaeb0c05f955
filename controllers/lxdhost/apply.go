// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdapi"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

// apply makes the objects as MAAS has the VM hosts.
func (m *Mirror) apply(
	ctx context.Context, there *existing, views map[string]*view, regions []*scope.Region, own string,
) error {
	seen := sightings(views, own)
	m.proveOwners(ctx, there, seen, regions)
	var errs []error
	choices := map[string]choice{} // by MAAS and system id: a VM host that was registered anew
	for _, host := range slices.Clone(there.hosts) {
		if !m.mayChange(host) || slices.ContainsFunc(seen, func(s *sighting) bool { return isOf(host, s) }) {
			continue
		}
		where := host.Annotations[infrav1.MAASAnnotation]
		if v := views[where]; v == nil || !v.complete {
			errs = append(errs, m.reportMissing(ctx, host, v))
			continue
		}
		if id := host.Spec.VMHost.SystemID; id != "" {
			choices[where+id] = choices[where+id].and(host)
		}
		if mayHaveLeft(host) {
			errs = append(errs, m.reportGone(ctx, host))
			continue
		}
		errs = append(errs, m.remove(ctx, there, host))
	}
	for _, s := range seen {
		s.users = m.Scopes.NamespacesOf(list.Where(regions, func(r *scope.Region) bool { return r.Where() == s.where }))
		errs = append(errs, m.follow(ctx, there, s, views, choices[s.where+s.Host.SystemID]))
	}
	return kerrors.NewAggregate(errs)
}

// follow brings the object of a VM host to its place, and up to date. It stays as it is while MAAS does not prove whose
// the VM host's machine is.
func (m *Mirror) follow(
	ctx context.Context, there *existing, s *sighting, views map[string]*view, chosen choice,
) error {
	var err error
	if s.owner, err = m.ownerOf(there, s); err != nil {
		return fmt.Errorf("proving whose machine VM host %s is: %w", s.Name, err)
	}
	host, err := m.ensure(ctx, there, s, views, chosen)
	if err != nil || host == nil {
		return err
	}
	if m.Scopes.Places.Put(s.where, host); !m.mayChange(host) {
		return nil
	}
	return m.show(ctx, there, s, host)
}

// choice is what a person chose for a VM host: it outlives the object.
type choice struct{ unschedulable, evacuate bool }

func (c choice) and(host *infrav1.LXDHost) choice {
	return choice{c.unschedulable || host.Spec.Unschedulable, c.evacuate || host.Spec.Evacuate}
}

// mayChange reports whether an LXDHost is one that the mirror made, and that no person asks it to leave alone. One with
// the finalizer is a VM host no more.
func (m *Mirror) mayChange(host *infrav1.LXDHost) bool {
	return host.Spec.VMHost != nil && host.DeletionTimestamp.IsZero() &&
		!controllerutil.ContainsFinalizer(host, infrav1.LXDHostFinalizer) && !m.Ignores(host) && !annotations.HasPaused(host)
}

// remove deletes an object; nothing but the object is lost. One that was changed since it was read, say by a
// cordon, stays until the next round, which begins at once.
func (m *Mirror) remove(ctx context.Context, there *existing, host *infrav1.LXDHost) error {
	key := client.ObjectKeyFromObject(host)
	read := client.Preconditions{UID: &host.UID, ResourceVersion: &host.ResourceVersion}
	if err := m.Client.Delete(ctx, host, read); apierrors.IsConflict(err) {
		there.stay = append(there.stay, host)
		ctrl.LoggerFrom(ctx).V(1).Info("An LXDHost stays for a round, because it was changed", "lxdHost", key)
		m.Wake()
		return nil
	} else if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting LXDHost %s: %w", key, err)
	}
	there.hosts = slices.DeleteFunc(there.hosts, func(h *infrav1.LXDHost) bool { return h == host })
	ctrl.LoggerFrom(ctx).Info("Deleted the LXDHost of a VM host", "lxdHost", key, "id", host.Spec.VMHost.ID)
	return nil
}

// ensure returns the object of a VM host in its place, and makes it if it is missing; nil if it can't be made. One that
// the mirror may not change counts all the same. chosen is what a person chose in an earlier object of the VM host.
func (m *Mirror) ensure(
	ctx context.Context, there *existing, s *sighting, views map[string]*view, chosen choice,
) (*infrav1.LXDHost, error) {
	namespace := m.Namespace
	if s.owner != nil {
		namespace = s.owner.Namespace
	}
	var kept *infrav1.LXDHost
	var others []*infrav1.LXDHost
	for _, host := range there.of(s, views) {
		switch {
		case !m.mayChange(host) && host.Namespace == namespace:
			return host, nil
		case !m.mayChange(host):
		case kept == nil && s.isNamed(host.Name) && host.Namespace == namespace:
			kept = host
		default:
			others = append(others, host)
			if host.Namespace == m.Namespace {
				chosen = chosen.and(host)
			}
		}
	}
	if kept == nil {
		made, err := m.make(ctx, there, s, namespace, chosen)
		if err != nil || made == nil {
			return nil, err
		}
		kept = made
	}
	if len(others) == 0 {
		return kept, nil
	}
	if err := m.inherit(ctx, kept, others, chosen); err != nil {
		return nil, err
	}
	for _, host := range others {
		if err := m.remove(ctx, there, host); err != nil {
			return nil, err
		}
	}
	return kept, nil
}

// inherit gives the object of a VM host what others have that are removed: the VMs that may be left on it, and what a
// person chose.
func (m *Mirror) inherit(ctx context.Context, kept *infrav1.LXDHost, others []*infrav1.LXDHost, chosen choice) error {
	before := kept.DeepCopy()
	chosen = chosen.and(kept)
	kept.Spec.Unschedulable, kept.Spec.Evacuate = chosen.unschedulable, chosen.evacuate
	if !equality.Semantic.DeepEqual(before.Spec, kept.Spec) {
		if err := m.Client.Patch(ctx, kept, client.MergeFrom(before)); err != nil {
			return fmt.Errorf("cordoning LXDHost %s as the one that it replaces: %w", client.ObjectKeyFromObject(kept), err)
		}
	}
	var left []record.LeftVM
	for _, host := range others {
		recorded, err := record.OfHost(host)
		if err != nil { // Whoever may write an LXDHost may make its record unreadable.
			ctrl.LoggerFrom(ctx).Error(err, "An LXDHost that is replaced does not tell which VMs may be left", "lxdHost",
				client.ObjectKeyFromObject(host))
			continue
		}
		left = append(left, recorded.Left...)
	}
	if len(left) == 0 {
		return nil
	}
	recorded, err := m.Records.OpenHost(kept)
	if err != nil {
		return err
	}
	err = recorded.Merge(ctx, func(all *record.LeftVMs) {
		for _, vm := range left {
			all.Leave(vm, vm.Since.Time)
		}
	})
	if err != nil {
		return fmt.Errorf("recording on LXDHost %s which VMs may be left there: %w", client.ObjectKeyFromObject(kept), err)
	}
	return nil
}

// make creates the object of a VM host under the first name that is free. A name that a person's LXDHost has is left to
// it.
func (m *Mirror) make(
	ctx context.Context, there *existing, s *sighting, namespace string, chosen choice,
) (*infrav1.LXDHost, error) {
	if slices.ContainsFunc(there.stay, s.follows) {
		return nil, nil // The next round knows what a person chose in it, and has its name.
	}
	by, isFull := m.broughtBy(ctx, there, s, namespace)
	if namespace == "" || isFull {
		return nil, nil // The manager runs in no namespace, or there are as many as there may be.
	}
	for _, name := range s.names(s.isOwn) {
		key := client.ObjectKey{Namespace: namespace, Name: name}
		at := slices.IndexFunc(there.hosts, func(h *infrav1.LXDHost) bool { return client.ObjectKeyFromObject(h) == key })
		if at >= 0 && there.hosts[at].Spec.VMHost == nil {
			m.refuse(ctx, s, there.hosts[at])
			return nil, nil
		}
		if at >= 0 {
			continue // Another VM host's, whose name differs in what Kubernetes does not allow.
		}
		host := m.newHost(s, key, by)
		host.Spec.Unschedulable, host.Spec.Evacuate = chosen.unschedulable, chosen.evacuate
		if err := m.Client.Create(ctx, host); apierrors.IsAlreadyExists(err) {
			return nil, nil // The cache does not have it yet.
		} else if err != nil {
			return nil, fmt.Errorf("making LXDHost %s for VM host %s: %w", key, s.Name, err)
		}
		delete(m.refusals, key)
		there.hosts = append(there.hosts, host)
		return host, nil
	}
	return nil, nil
}

// broughtBy returns which namespace brings a VM host into the manager's own, by using its MAAS; "": none does. isFull:
// those who use that MAAS have brought as many as they may.
func (m *Mirror) broughtBy(
	ctx context.Context, there *existing, s *sighting, namespace string,
) (by string, isFull bool) {
	if s.isOwn || namespace != m.Namespace {
		return "", false
	}
	told := client.ObjectKey{Name: s.where}
	if by = there.hasRoom(s.users, m.Namespace); by != "" {
		delete(m.refusals, told)
	} else if !m.refusals[told] {
		m.refusals[told] = true
		ctrl.LoggerFrom(ctx).Info("Some VM hosts of a MAAS get no LXDHost: the namespaces that use it have brought as many "+
			"as they may", "maas", s.where, "namespaces", s.users)
	}
	return by, by == ""
}

// refuse says once that a name is taken.
func (m *Mirror) refuse(ctx context.Context, s *sighting, taken *infrav1.LXDHost) {
	key := client.ObjectKeyFromObject(taken)
	if m.refusals[key] {
		return
	}
	m.refusals[key] = true
	m.Warn(taken, "NameTaken", "Mirror",
		"VM host %s of MAAS at %s gets no LXDHost, because this one has its name: make this one anew under another name",
		s.Name, s.where)
	ctrl.LoggerFrom(ctx).Info("A VM host gets no LXDHost, because another one has its name", "vmHost", s.Name, "lxdHost",
		key)
}

// newHost returns the object of a VM host, in a MAAS that a namespace brought, unless it is the manager's own.
func (m *Mirror) newHost(s *sighting, key client.ObjectKey, by string) *infrav1.LXDHost {
	host := &infrav1.LXDHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Labels: map[string]string{}},
		Spec:       infrav1.LXDHostSpec{VMHost: &infrav1.VMHostReference{ID: int64(s.ID)}},
	}
	if m.WatchFilter != "" {
		host.Labels[clusterv1.WatchLabel] = m.WatchFilter
	}
	if by != "" {
		host.Labels[infrav1.BroughtByLabel] = by
	}
	s.describe(host)
	return host
}

// describe sets all of an object but its status that follows MAAS. It ends with the MaasMachine in its namespace.
func (s *sighting) describe(host *infrav1.LXDHost) {
	record.SetAnnotation(host, infrav1.MAASAnnotation, s.where)
	if machine := s.owner; machine != nil {
		host.OwnerReferences = util.EnsureOwnerRef(host.OwnerReferences, metav1.OwnerReference{
			APIVersion: infrav1.GroupVersion.String(), Kind: clusters.MaasMachineKind.Kind, Name: machine.Name, UID: machine.UID,
		})
	}
	spec := &host.Spec
	spec.VMHost.SystemID = s.Host.SystemID
	spec.Zone, spec.ResourcePool, spec.Tags = s.Zone.Name, s.Pool.Name, s.Tags
	spec.OverCommit = infrav1.LXDOverCommit{CPUPercent: percent(s.CPUOverCommit),
		MemoryPercent: percent(s.MemoryOverCommit)}
	spec.AllowedNamespaces = []string{infrav1.AllNamespaces}
	if pool := list.Find(s.StoragePools, func(p maas.StoragePool) bool { return p.Default }); pool != nil {
		spec.StoragePool = pool.Name
	}
}

// show brings an object up to date with a VM host.
func (m *Mirror) show(ctx context.Context, there *existing, s *sighting, host *infrav1.LXDHost) error {
	before := host.DeepCopy()
	s.describe(host)
	if !equality.Semantic.DeepEqual(before, host) {
		if err := m.Client.Patch(ctx, host, client.MergeFrom(before)); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	before = host.DeepCopy()
	setVMHost(&host.Status, &s.VMHost, there.counts(s))
	host.Status.NodeName = ""
	if s.owner != nil {
		node, err := clusters.NodeOf(ctx, m.Client, s.owner)
		if err != nil {
			return err
		}
		host.Status.NodeName = node
	}
	if s.ResourcesKnown() {
		report.SetTrue(host, infrav1.ReachableCondition, infrav1.ReadyReason)
	} else {
		report.SetFalse(host, infrav1.ReachableCondition, infrav1.ResourcesUnknownReason,
			"MAAS has never reached this VM host, or does not know its cores and memory yet")
	}
	report.SetTrue(host, infrav1.TrustedCondition, infrav1.ThroughMAASReason)
	report.SetTrue(host, infrav1.RegisteredCondition, infrav1.ReadyReason)
	markSchedulable(host, s.closed())
	summarize(host)
	return m.store(ctx, before, host)
}

// store stores the status. If another client was faster, that is done in another round, which begins at once.
func (m *Mirror) store(ctx context.Context, before, host *infrav1.LXDHost) error {
	err := store(ctx, m.Client, m.Recorder, before, host)
	if apierrors.IsConflict(err) {
		m.Wake()
		return nil
	}
	return err
}

// closed returns why no VMs are placed on a VM host, as placement sees it; nil if they are.
func (s *sighting) closed() *report.Problem {
	switch {
	case slices.Contains(s.Tags, lxd.RetiringTag):
		return &report.Problem{Reason: infrav1.RetiringReason, Message: "its machine is being deleted, and waits for its VMs"}
	case !lxdapi.OfVersion(s.Version).TakesMAAS():
		return &report.Problem{Reason: infrav1.LXDTooNewReason,
			Message: lxdapi.OfVersion(s.Version).NotForMAAS() + ": " + lxdapi.NotForMAASRemedy}
	case s.machine != nil && s.machine.Status != maas.StatusDeployed:
		return &report.Problem{Reason: infrav1.HostNotRunningReason, Message: "its machine " + s.machine.Hostname +
			" is " + s.machine.StatusName + " in MAAS"}
	case s.machine != nil && s.machine.PowerState == maas.PowerOff:
		return &report.Problem{Reason: infrav1.HostNotRunningReason, Message: "its machine " + s.machine.Hostname +
			" is powered off"}
	}
	return nil
}

// reportMissing reports that MAAS no longer shows a VM host whose object stays, because MAAS has no VM hosts any more,
// or could not be asked. A short outage changes nothing.
func (m *Mirror) reportMissing(ctx context.Context, host *infrav1.LXDHost, v *view) error {
	before := host.DeepCopy()
	switch {
	case v != nil && v.gone:
		if host.Namespace == m.Namespace { // No other user writes there, and MAAS proves nothing any more.
			m.Scopes.Places.Put(host.Annotations[infrav1.MAASAnnotation], host)
		}
		const message = "this MAAS has no VM hosts any more (MAAS 4.0 and newer): its VMs run on; for new ones, and to " +
			"delete these, set spec.address, spec.serverCertificate " +
			"and spec.credentialsRef, and spec.maasCredentialsRef if this MAAS is not the manager's own"
		report.SetUnknown(host, infrav1.ReachableCondition, infrav1.VMHostsNotSupportedReason, "MAAS does not say")
		report.SetFalse(host, infrav1.RegisteredCondition, infrav1.VMHostsNotSupportedReason, message)
		markSchedulable(host, nil)
	case v == nil && !m.isOverdue(host), v != nil && !v.overdue:
		return nil
	default:
		const message = "MAAS has not told its VM hosts for minutes: nobody uses credentials for it, or it does not " +
			"respond to some"
		report.SetUnknown(host, infrav1.ReachableCondition, infrav1.MAASUnavailableReason, message)
		report.SetUnknown(host, infrav1.RegisteredCondition, infrav1.MAASUnavailableReason, message)
	}
	summarize(host)
	return m.store(ctx, before, host)
}

// mayHaveLeft reports whether an object is all that knows of VMs that may run on its host.
func mayHaveLeft(host *infrav1.LXDHost) bool {
	recorded, err := record.OfHost(host)
	return err != nil || len(recorded.Left) > 0
}

// reportGone reports that MAAS has a VM host no more whose object stays, because VMs may be left there.
func (m *Mirror) reportGone(ctx context.Context, host *infrav1.LXDHost) error {
	before := host.DeepCopy()
	const message = "MAAS does not have this VM host any more, and VMs may be left on it: register it again to have " +
		"them deleted, or delete this LXDHost if the host is gone for good"
	report.SetUnknown(host, infrav1.ReachableCondition, infrav1.VMHostGoneReason, "MAAS does not say")
	report.SetFalse(host, infrav1.RegisteredCondition, infrav1.VMHostGoneReason, message)
	markSchedulable(host, &report.Problem{Reason: infrav1.VMHostGoneReason, Message: message})
	summarize(host)
	return m.store(ctx, before, host)
}

// isOverdue reports whether the MAAS of a host, for which there are no credentials, has not been asked for long.
func (m *Mirror) isOverdue(host *infrav1.LXDHost) bool {
	return m.Clock.Since(m.of(host.Annotations[infrav1.MAASAnnotation]).answered) > patience
}
