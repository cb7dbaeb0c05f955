// SPDX-License-Identifier: Apache-2.0

// Package disruption decides which Machines may go down: a control plane keeps its quorum, whoever wants one of its
// Machines down, and for whatever reason. A host goes down with the VMs on it, and so only if each of them may.
package disruption

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
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
	if err := q.findPlanes(ctx); err != nil {
		return nil, "", err
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

// findPlanes finds the control planes that are concerned: the Machine's own, and those of the VMs on its machine.
func (q *question) findPlanes(ctx context.Context) error {
	if util.IsControlPlaneMachine(q.about.Machine) {
		q.add(q.about.Cluster, q.about.Machine)
	}
	if q.about.MaasMachine == nil {
		return nil
	}
	var own []*infrav1.LXDHost
	for _, find := range []func(context.Context, client.Reader, *infrav1.MaasMachine) (*infrav1.LXDHost, error){
		clusters.LXDHost, clusters.LXDHostOfVMHost,
	} {
		host, err := find(ctx, q.Client, q.about.MaasMachine)
		if err != nil {
			return err
		}
		if host != nil {
			own = append(own, host)
		}
	}
	for _, host := range own {
		if err := q.place(ctx); err != nil {
			return err
		}
		for _, on := range q.placement.On(host) {
			if err := q.addVM(ctx, on.MaasMachine); err != nil {
				return err
			}
		}
	}
	return nil
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
// hosts.
func (q *question) downIn(ctx context.Context, plane client.ObjectKey) (sets.Set[types.UID], error) {
	if err := q.place(ctx); err != nil {
		return nil, err
	}
	down := sets.Set[types.UID]{}
	namespaces := sets.New(plane.Namespace)
	type pair struct {
		vm   types.UID
		host client.ObjectKey // the MaasMachine
	}
	var carried []pair
	for i := range q.hosts {
		host := &q.hosts[i]
		owners := clusters.OwnersOf(host, clusters.MaasMachineKind)
		if len(owners) == 0 {
			continue // The machine is none of ours.
		}
		for _, on := range q.placement.On(host) {
			if clusters.KeyOf(on.MaasMachine) != plane || !clusters.IsControlPlane(on.MaasMachine) {
				continue
			}
			namespaces.Insert(host.Namespace)
			for _, vm := range clusters.OwnersOf(on.MaasMachine, clusters.MachineKind) {
				carried = append(carried, pair{vm.UID, client.ObjectKey{Namespace: host.Namespace, Name: owners[0].Name}})
			}
		}
	}
	for namespace := range namespaces {
		going, err := q.goingIn(ctx, namespace)
		if err != nil {
			return nil, err
		}
		down = down.Union(going)
	}
	for _, c := range carried {
		if slices.ContainsFunc(q.machinesOf(c.host), down.Has) {
			down.Insert(c.vm)
		}
	}
	return down, nil
}

// machinesOf returns the Machines that own a MaasMachine.
func (q *question) machinesOf(key client.ObjectKey) (owners []types.UID) {
	for i := range q.placement.MaasMachines {
		if m := &q.placement.MaasMachines[i]; client.ObjectKeyFromObject(m) == key {
			owners = append(owners, uidsOf(clusters.OwnersOf(m, clusters.MachineKind))...)
		}
	}
	return owners
}

// goingIn returns the Machines whose machines remediations of a namespace switch off now. The API server is asked: a
// cache may not have what began just now.
func (q *question) goingIn(ctx context.Context, namespace string) (sets.Set[types.UID], error) {
	remediations := &infrav1.MaasRemediationList{}
	if err := q.APIReader.List(ctx, remediations, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing MaasRemediations: %w", err)
	}
	going := sets.Set[types.UID]{}
	for i := range remediations.Items {
		if mayBeDown(&remediations.Items[i]) {
			going.Insert(uidsOf(clusters.OwnersOf(&remediations.Items[i], clusters.MachineKind))...)
		}
	}
	return going, nil
}

// mayBeDown reports whether a remediation switches its machine off now, or can't be read.
func mayBeDown(remediation *infrav1.MaasRemediation) bool {
	recorded, err := record.OfRemediation(remediation)
	if err != nil || recorded.Remediation == nil {
		return err != nil
	}
	switch recorded.Remediation.Step {
	case infrav1.RemediationLeaveEndpoint, infrav1.RemediationPowerOff, infrav1.RemediationPowerOn:
		return true
	}
	return false
}

func uidsOf(owners []metav1.OwnerReference) (uids []types.UID) {
	for _, owner := range owners {
		uids = append(uids, owner.UID)
	}
	return uids
}
