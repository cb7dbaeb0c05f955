// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/vmhosts"
)

const (
	// vmsRetry: the VMs' own deletion wakes nobody here.
	vmsRetry = 15 * time.Second
	// retireTimeout is how long an initializer may take to answer; after that its node is taken for dead.
	retireTimeout = 2 * time.Minute
	// retireRetry: we don't watch for the answer, which comes within seconds.
	retireRetry = 3 * time.Second
	// maxNamed is how many VMs or machines a condition names.
	maxNamed = 5
)

// leaveVMHosts takes the machine of a host cluster out of service as a VM host before it is released: no new VM comes there,
// those that are there are waited for, the initializer takes back what it set up, and MAAS forgets the host.
func (r *MaasMachineReconciler) leaveVMHosts(ctx context.Context, l *life) (outcome, error) {
	if l.maas == nil || l.IsLXD() || !l.MaasCluster.Spec.LXDControlPlaneCluster {
		return proceed, nil
	}
	// MAAS gives a machine back only with its hosts gone. By then somebody else may have it, whose host is none of ours.
	if onItsWay.Has(l.maas.Status) || backInPool.Has(l.maas.Status) {
		return proceed, nil
	}
	if ours, err := l.Machines.IsOurs(ctx, l.Identity(), l.maas); err != nil || !ours {
		return proceed, err
	}
	hosts, err := r.closeVMHosts(ctx, l)
	if err != nil {
		return proceed, err
	}
	vms, err := vmsOn(ctx, l, hosts)
	if err != nil {
		return proceed, err
	}
	if len(vms) > 0 {
		notDeployed(l.MaasMachine, infrav1.VMsOnHostReason, "waiting for %d VM(s) on this host to be deleted: %s", len(vms), shorten(vms))
		return waitAtMost(vmsRetry), nil
	}
	// A node that has retired waits for others, whose API may be gone meanwhile.
	if len(hosts) > 0 || conditions.GetReason(l.MaasMachine, infrav1.MachineDeployedCondition) != infrav1.LXDHostRetiredReason {
		if out, err := r.retireNode(ctx, l); err != nil || out.stop {
			return out, err
		}
	}
	service := vmhosts.NewService(l.Inventory.Client())
	for _, host := range hosts {
		if err := service.Remove(ctx, host.ID); err != nil {
			return proceed, err
		}
		l.Inventory.DistrustVMHosts()
		r.Recorder.Eventf(l.MaasMachine, nil, corev1.EventTypeNormal, "VMHostRemoved", "Delete", "VM host %s left MAAS", host.Name)
	}
	return r.awaitOtherHosts(ctx, l)
}

// awaitOtherHosts keeps the machines of a host cluster that is deleted until all of them are out of service: their initializers need
// the cluster's API, and VMs of other clusters may still run on some.
func (r *MaasMachineReconciler) awaitOtherHosts(ctx context.Context, l *life) (outcome, error) {
	if l.Cluster.Cluster.DeletionTimestamp.IsZero() {
		return proceed, nil
	}
	machines, err := clusterMachines(ctx, r.Client, l.MaasMachine.Namespace, l.Cluster.Cluster.Name)
	if err != nil {
		return proceed, err
	}
	hosts, _, err := l.Inventory.VMHosts(ctx, hostsMaxAge)
	if err != nil {
		return proceed, fmt.Errorf("looking for the cluster's VM hosts: %w", err)
	}
	var waiting []string
	for _, m := range machines {
		if m.Name != l.MaasMachine.Name && len(vmhosts.OnMachine(hosts, m.Spec.SystemID)) > 0 {
			waiting = append(waiting, m.Name)
		}
	}
	if len(waiting) == 0 {
		return proceed, nil
	}
	slices.Sort(waiting)
	notDeployed(l.MaasMachine, infrav1.LXDHostRetiredReason, "out of service; waiting for other machines of the host cluster: %s", shorten(waiting))
	return waitAtMost(retireRetry), nil
}

// closeVMHosts finds the VM hosts on the machine, and keeps new VMs off them.
func (r *MaasMachineReconciler) closeVMHosts(ctx context.Context, l *life) ([]maas.VMHost, error) {
	var hosts []maas.VMHost
	for _, maxAge := range []time.Duration{hostsMaxAge, 0} {
		all, _, err := l.Inventory.VMHosts(ctx, maxAge)
		if err != nil {
			return nil, fmt.Errorf("looking for VM hosts on the machine: %w", err)
		}
		if hosts = vmhosts.OnMachine(all, l.maas.SystemID); len(hosts) > 0 {
			break // Before the machine goes, one that has registered itself a moment ago must be seen, too.
		}
	}
	for _, host := range hosts {
		if slices.Contains(host.Tags, lxd.RetiringTag) {
			continue
		}
		if _, err := l.Inventory.Client().AddVMHostTag(ctx, host.ID, lxd.RetiringTag); err != nil && !errors.Is(err, maas.NotFound) {
			return nil, fmt.Errorf("keeping new VMs off VM host %s: %w", host.Name, err)
		}
		l.Inventory.DistrustVMHosts()
	}
	return hosts, nil
}

// vmsOn names the machines that MAAS has on the hosts, sorted.
func vmsOn(ctx context.Context, l *life, hosts []maas.VMHost) ([]string, error) {
	var names []string
	for _, host := range hosts {
		machines, err := l.Inventory.Client().ListMachines(ctx, maas.MachineFilter{VMHosts: []string{host.Name}})
		if err != nil && !errors.Is(err, maas.Invalid) { // No such host: it went meanwhile.
			return nil, fmt.Errorf("looking for VMs on VM host %s: %w", host.Name, err)
		}
		for _, m := range machines {
			if m.Pod != nil && m.Pod.ID == host.ID {
				names = append(names, m.Hostname)
			}
		}
	}
	slices.Sort(names)
	return names, nil
}

func shorten(names []string) string {
	if len(names) <= maxNamed {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), len(names)-maxNamed)
}

// retireNode has the initializer on the node stop, and waits until it says that it did: a host that registers itself again while
// its machine is released would count as deployed. Where it can't be told, the machine is switched off first.
func (r *MaasMachineReconciler) retireNode(ctx context.Context, l *life) (outcome, error) {
	node, workload, err := r.hostNode(ctx, l)
	if err != nil {
		ctrl.LoggerFrom(ctx).Info("The node can't be told to stop being a VM host; its machine is switched off instead", "reason", err.Error())
		return r.switchOff(ctx, l)
	}
	if node == nil {
		return proceed, nil // It never joined, or left.
	}
	asked, err := askToRetire(ctx, workload, node)
	if err != nil {
		return proceed, err
	}
	if c := nodeCondition(node); c == nil || c.Reason == infrav1.LXDHostRetiredReason {
		return proceed, nil // The initializer never began, and won't any more, or it is done.
	}
	if time.Since(asked) > retireTimeout {
		return r.switchOff(ctx, l)
	}
	notDeployed(l.MaasMachine, infrav1.RetiringReason, "the node is taken out of service as a VM host")
	return waitAtMost(retireRetry), nil
}

// askToRetire tells the initializer on a node to stop, once, and answers when that was.
func askToRetire(ctx context.Context, workload client.Client, node *corev1.Node) (time.Time, error) {
	if asked, err := time.Parse(time.RFC3339, node.Annotations[infrav1.LXDHostRetireAnnotation]); err == nil {
		return asked, nil
	}
	asked := time.Now()
	patched := node.DeepCopy()
	if patched.Annotations == nil {
		patched.Annotations = map[string]string{}
	}
	patched.Annotations[infrav1.LXDHostRetireAnnotation] = asked.UTC().Format(time.RFC3339)
	if err := workload.Patch(ctx, patched, client.MergeFrom(node)); err != nil {
		return asked, fmt.Errorf("telling Node %s to stop being a VM host: %w", node.Name, err)
	}
	return asked, nil
}

// hostNode is the machine's Node as the host cluster has it now; nil where there is none. An error: the cluster does not answer.
func (r *MaasMachineReconciler) hostNode(ctx context.Context, l *life) (*corev1.Node, client.Client, error) {
	if !l.Machine.Machine.Status.NodeRef.IsDefined() {
		return nil, nil, nil
	}
	workload, err := r.ClusterCache.GetUncachedClient(ctx, client.ObjectKeyFromObject(l.Cluster.Cluster))
	if errors.Is(err, clustercache.ErrClusterNotConnected) {
		return nil, nil, errors.New("the host cluster does not answer")
	}
	if err != nil {
		return nil, nil, fmt.Errorf("connecting to the host cluster: %w", err)
	}
	node := &corev1.Node{}
	err = workload.Get(ctx, client.ObjectKey{Name: l.Machine.Machine.Status.NodeRef.Name}, node)
	if apierrors.IsNotFound(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading the Node: %w", err)
	}
	return node, workload, nil
}

// switchOff makes sure that nothing on the machine registers it again. A machine whose power MAAS can't switch is released as it is.
func (r *MaasMachineReconciler) switchOff(ctx context.Context, l *life) (outcome, error) {
	if l.maas.PowerState != maas.PowerOn {
		return proceed, nil
	}
	if _, err := l.Inventory.Client().PowerOffMachine(ctx, l.maas.SystemID, "released by Cluster API"); err != nil {
		return proceed, fmt.Errorf("switching the machine off: %w", err)
	}
	notDeployed(l.MaasMachine, infrav1.RetiringReason, "the machine is switched off")
	return waitAtMost(retireRetry), nil
}
