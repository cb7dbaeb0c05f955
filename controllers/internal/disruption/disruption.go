// SPDX-License-Identifier: Apache-2.0

// Package disruption decides which Machines may go down: a control plane keeps its quorum, whoever wants one of its
// Machines down, and for whatever reason. A host goes down with the VMs on it, and so only if each of them may.
package disruption

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/controlplane"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
)

// Leave is the right to take a Machine down now. Only Ask makes one. It is no decision that can be stored: it holds the
// locks of all control planes that it is about until End, and is too late soon.
type Leave struct {
	late func() bool
	end  func()
}

// IsLate reports whether the leave may not be used any more. Without a leave it is always too late.
func (l *Leave) IsLate() bool { return l == nil || l.late() }

// End lets others ask. What was done must be stored by then, so that they see it.
func (l *Leave) End() {
	if l != nil {
		l.end()
	}
}

// lockWait is how long Ask waits for others.
const lockWait = 10 * time.Second

// Ask returns the leave to take a Machine down, with all VMs on its machine; or why it may not go down now.
func (l *Locks) Ask(ctx context.Context, b *reconciler.Base, about *clusters.Member) (_ *Leave, why string, err error) {
	q := &question{Base: b, about: about, planes: map[client.ObjectKey]*plane{}}
	if why, err := q.findPlanes(ctx); err != nil || why != "" {
		return nil, why, err
	}
	keys := make([]client.ObjectKey, 0, len(q.planes))
	for key := range q.planes {
		keys = append(keys, key)
	}
	bounded, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	end, err := l.take(bounded, keys)
	if err != nil {
		return nil, "", err
	}
	leave := &Leave{late: b.LookBegins(), end: end}
	slices.SortFunc(keys, compareKeys)
	for _, key := range keys {
		if why, err = q.whyNot(ctx, key); err != nil || why != "" {
			leave.End()
			return nil, why, err
		}
	}
	return leave, "", nil
}

// question is what is asked about one Machine.
type question struct {
	*reconciler.Base
	about     *clusters.Member
	planes    map[client.ObjectKey]*plane // by Cluster: those with a Machine that would go down
	placement *clusters.Placement
	hosts     []infrav1.LXDHost
}

// plane is a control plane, and those of its Machines that would go down.
type plane struct {
	cluster *clusterv1.Cluster
	leaves  sets.Set[types.UID]
}

// findPlanes finds the control planes that are concerned: the Machine's own, and those of the VMs on its machine. It
// returns why these are not known; "" if they are. A node of a host cluster that has no LXDHost may have VMs all the
// same: its LXDHost is gone, or can't be made.
func (q *question) findPlanes(ctx context.Context) (why string, err error) {
	if util.IsControlPlaneMachine(q.about.Machine) {
		q.add(q.about.Cluster, q.about.Machine)
	}
	m := q.about.MaasMachine
	if m == nil || m.Spec.IsLXD() {
		return "", nil
	}
	if err := q.place(ctx); err != nil {
		return "", err
	}
	found := false
	for i := range q.hosts {
		host := &q.hosts[i]
		if !slices.ContainsFunc(q.placement.Under(host), func(u *infrav1.MaasMachine) bool { return u.UID == m.UID }) {
			continue
		}
		found = true
		for _, on := range q.placement.On(host) {
			if err := q.addVM(ctx, on.MaasMachine); err != nil {
				return "", err
			}
		}
	}
	home, wasNode := q.placement.Homes.Of(m), q.about.Machine.Status.NodeRef.IsDefined()
	if !found && wasNode && home != nil && home.Spec.LXDControlPlaneCluster {
		return "there is no LXDHost of it, and so it is not known which VMs are on it", nil
	}
	return "", nil
}

func (q *question) add(cluster *clusterv1.Cluster, machine *clusterv1.Machine) {
	key := client.ObjectKeyFromObject(cluster)
	if q.planes[key] == nil {
		q.planes[key] = &plane{cluster: cluster, leaves: sets.Set[types.UID]{}}
	}
	q.planes[key].leaves.Insert(machine.UID)
}

// addVM adds the control plane of a VM on the machine. A VM whose Machine or Cluster is gone serves nobody.
func (q *question) addVM(ctx context.Context, m *infrav1.MaasMachine) error {
	if !clusters.IsControlPlane(m) {
		return nil
	}
	vm, err := clusters.OwnerMember(ctx, q.Client, m)
	if err != nil {
		return fmt.Errorf("reading whose MaasMachine %s/%s on the host is: %w", m.Namespace, m.Name, err)
	}
	if vm != nil {
		q.add(vm.Cluster, vm.Machine)
	}
	return nil
}

// place reads where VMs are, once.
func (q *question) place(ctx context.Context) (err error) {
	if q.placement != nil {
		return nil
	}
	hosts := &infrav1.LXDHostList{}
	if err := q.Client.List(ctx, hosts, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing LXDHosts: %w", err)
	}
	q.hosts = hosts.Items
	q.placement, err = clusters.ReadPlacement(ctx, q.Client)
	return err
}

// whyNot returns why a control plane can't do without what would go down; "" if it can.
func (q *question) whyNot(ctx context.Context, key client.ObjectKey) (string, error) {
	p := q.planes[key]
	down, err := q.downIn(ctx, key)
	if err != nil {
		return "", err
	}
	why, err := controlplane.Quorum(ctx, q.Client, q.APIReader, p.cluster, q.about.Machine.UID,
		func(m *clusterv1.Machine) bool { return p.leaves.Has(m.UID) },
		func(m *clusterv1.Machine) bool { return down.Has(m.UID) })
	if why != "" && p.cluster != q.about.Cluster {
		why = fmt.Sprintf("a VM on it is a control plane of Cluster %s: %s", key, why)
	}
	return why, err
}

// downIn returns the Machines of a control plane whose machines a remediation switches off now, alone or with their
// hosts; and those of VMs that may not run yet since their hosts were switched on: their conditions are older.
func (q *question) downIn(ctx context.Context, plane client.ObjectKey) (sets.Set[types.UID], error) {
	if err := q.place(ctx); err != nil {
		return nil, err
	}
	namespaces := sets.New(plane.Namespace)
	type pair struct {
		vms, hosts []types.UID // Machines
	}
	var carried []pair
	for i := range q.hosts {
		host := &q.hosts[i]
		for _, m := range q.placement.Under(host) {
			for _, on := range q.placement.On(host) {
				if clusters.KeyOf(on.MaasMachine) == plane && clusters.IsControlPlane(on.MaasMachine) {
					namespaces.Insert(m.Namespace)
					carried = append(carried, pair{machinesOf(on.MaasMachine), machinesOf(m)})
				}
			}
		}
	}
	down, carriers := sets.Set[types.UID]{}, sets.Set[types.UID]{}
	for namespace := range namespaces {
		if err := q.addDown(ctx, namespace, down, carriers); err != nil {
			return nil, err
		}
	}
	for _, c := range carried {
		if carriers.HasAny(c.hosts...) {
			down.Insert(c.vms...)
		}
	}
	return down, nil
}

// addDown adds the Machines whose machines remediations of a namespace switch off now, and those whose VMs are down
// with them. The API server is asked: a cache may not have what began just now.
func (q *question) addDown(ctx context.Context, namespace string, down, carriers sets.Set[types.UID]) error {
	remediations := &infrav1.MaasRemediationList{}
	if err := q.APIReader.List(ctx, remediations, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("listing MaasRemediations: %w", err)
	}
	for i := range remediations.Items {
		remediation := &remediations.Items[i]
		isDown, areVMsDown := mayBeDown(remediation, q.Clock.Now())
		if isDown {
			down.Insert(machinesOf(remediation)...)
		}
		if areVMsDown {
			carriers.Insert(machinesOf(remediation)...)
		}
	}
	return nil
}

// mayBeDown reports whether a remediation switches its machine off now, or can't be read; and whether VMs on the
// machine may be down. Until its Node is healthy, the machine's own conditions say that it is not, but not theirs.
func mayBeDown(remediation *infrav1.MaasRemediation, now time.Time) (itself, itsVMs bool) {
	recorded, err := record.OfRemediation(remediation)
	if err != nil || recorded.Remediation == nil {
		return err != nil, err != nil
	}
	switch recorded.Remediation.Step {
	case infrav1.RemediationLeaveEndpoint, infrav1.RemediationPowerOff, infrav1.RemediationPowerOn:
		return true, true
	case infrav1.RemediationRecover:
		return false, now.Before(RecoversUntil(remediation, *recorded.Remediation))
	}
	return false, false
}

// RecoversUntil returns when the time is over that the Node of a machine has to be healthy after a power cycle.
func RecoversUntil(remediation *infrav1.MaasRemediation, p infrav1.RemediationProgress) time.Time {
	limit := cmp.Or(remediation.Spec.PowerCycle.TimeoutSeconds, infrav1.DefaultPowerCycleTimeoutSeconds)
	return ptr.Deref(p.Since, metav1.Time{}).Add(time.Duration(limit) * time.Second)
}

// machinesOf returns the Machines that own an object.
func machinesOf(object client.Object) (machines []types.UID) {
	for _, owner := range clusters.OwnersOf(object, clusters.MachineKind) {
		machines = append(machines, owner.UID)
	}
	return machines
}
