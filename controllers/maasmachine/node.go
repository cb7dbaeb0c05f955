// SPDX-License-Identifier: Apache-2.0

package maasmachine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

// endpoint adds this control plane's address to the API endpoint's DNS record as soon as it can serve.
func (r *Reconciler) endpoint(ctx context.Context, l *life) (outcome, error) {
	if !l.IsControlPlane() {
		return proceed, nil
	}
	m := l.MaasMachine
	switch l.Endpoint() {
	case scope.EndpointExternal:
		report.SetTrue(m, infrav1.DNSAttachedCondition, infrav1.ExternalEndpointReason)
		return proceed, nil
	case scope.EndpointVirtualIP:
		report.SetTrue(m, infrav1.DNSAttachedCondition, infrav1.VirtualIPReason)
		return proceed, nil
	}
	published, err := clusters.PublishFor(ctx, &r.Base, l.Cluster)
	if apierrors.IsConflict(err) {
		return proceed, err
	}
	if err != nil {
		p := report.Explain(err)
		report.SetUnknown(m, infrav1.DNSAttachedCondition, p.Reason, p.Message)
		return proceed, err
	}
	m.Status.DNSAttached = slices.Contains(published, clusters.EndpointAddress(m))
	if m.Status.DNSAttached {
		report.SetTrue(m, infrav1.DNSAttachedCondition, infrav1.ReadyReason)
	} else {
		report.SetFalse(m, infrav1.DNSAttachedCondition, infrav1.NotAttachedReason,
			"DNS record %s does not contain this machine's address yet", l.EndpointName())
	}
	return proceed, nil
}

// endpointRemoval removes the machine's address from the DNS record before the machine is released. If the whole
// cluster is deleted, the record is deleted with it.
func (r *Reconciler) endpointRemoval(ctx context.Context, l *life) (outcome, error) {
	if !l.IsControlPlane() || l.Endpoint() != scope.EndpointDNS || !l.Cluster.Cluster.DeletionTimestamp.IsZero() ||
		!l.MaasCluster.DeletionTimestamp.IsZero() {
		return proceed, nil
	}
	if _, err := clusters.PublishFor(ctx, &r.Base, l.Cluster); err != nil {
		return proceed, fmt.Errorf("removing the machine from the API endpoint: %w", err)
	}
	return proceed, nil
}

// NodeWatch names the watch on the Nodes of a workload cluster.
const NodeWatch = "maasmachine-watchNodes"

// node gives the machine's Node its provider ID, by which Cluster API finds the Node, and labels that say where it is.
// The kubelet can't set them: MAAS gives a machine its system id, but not its zone. The node's name is then stored in
// the status: this change of the MaasMachine wakes Cluster API, which does not watch Nodes before the control plane is
// initialized.
func (r *Reconciler) node(ctx context.Context, l *life) (outcome, error) {
	status, ref := &l.MaasMachine.Status, l.Machine.Machine.Status.NodeRef
	if ref.IsDefined() && status.NodeName == ref.Name {
		return proceed, nil
	}
	key := client.ObjectKeyFromObject(l.Cluster.Cluster)
	workload, err := r.ClusterCache.GetClient(ctx, key)
	if errors.Is(err, clustercache.ErrClusterNotConnected) {
		// The cluster cache triggers a reconcile.
		return report.Retry(report.SafetyRetry, infrav1.WaitingForNodeReason, "the workload cluster does not respond"), nil
	}
	if err != nil {
		return proceed, fmt.Errorf("connecting to the workload cluster: %w", err)
	}
	if err := r.watchNodes(ctx, l); err != nil {
		return proceed, err
	}
	node, err := findNode(ctx, workload, l.nodeNames())
	if err != nil || node == nil {
		// The watch triggers a reconcile.
		return report.Retry(report.SafetyRetry, infrav1.WaitingForNodeReason,
			"the Node has not joined the workload cluster"), err
	}
	before := node.DeepCopy()
	if node.Spec.ProviderID == "" {
		other, err := nodeWith(ctx, workload, l.MaasMachine.Spec.ProviderID)
		if err != nil {
			return proceed, err
		}
		if other != "" { // Of two Nodes with one provider ID, Cluster API finds neither.
			r.Warn(l.MaasMachine, infrav1.ProviderIDTakenReason, "Join",
				"Node %s has the provider ID %s, which Node %s would get: delete Node %s if its machine is gone; if it is a "+
					"machine of another MAAS, replace this Machine",
				other, l.MaasMachine.Spec.ProviderID, node.Name, other)
			return report.Retry(report.SafetyRetry, infrav1.WaitingForNodeReason, "another Node has its provider ID"), nil
		}
		node.Spec.ProviderID = l.MaasMachine.Spec.ProviderID
	}
	if node.Spec.ProviderID != l.MaasMachine.Spec.ProviderID {
		r.Warn(l.MaasMachine, infrav1.ProviderIDDiffersReason, "Join",
			"Node %s has the provider ID %s, not %s, so it is not this Machine's: switch off the cloud controller that set "+
				"it, and replace the Machine",
			node.Name, node.Spec.ProviderID, l.MaasMachine.Spec.ProviderID)
		return proceed, nil
	}
	label(node, l)
	if err := workload.Patch(ctx, node, client.MergeFrom(before)); err != nil {
		return proceed, fmt.Errorf("setting the provider ID and labels of Node %s: %w", node.Name, err)
	}
	status.NodeName = node.Name
	return proceed, nil
}

// label says on the Node, and on the MaasMachine, where the machine is. What another user wrote stays.
func label(node *corev1.Node, l *life) {
	for key, value := range map[string]string{
		corev1.LabelTopologyZone: l.maas.Zone.Name, infrav1.ResourcePoolLabel: l.maas.Pool.Name,
		infrav1.HostLabel: l.MaasMachine.Status.LXDHost,
	} {
		if value == "" || len(validation.IsValidLabelValue(value)) > 0 {
			continue // MAAS's names may have spaces.
		}
		for _, meta := range []*metav1.ObjectMeta{&node.ObjectMeta, &l.MaasMachine.ObjectMeta} {
			if _, set := meta.Labels[key]; !set {
				metav1.SetMetaDataLabel(meta, key, value)
			}
		}
	}
}

// nodeNames returns the names that the Node may have: the one that Cluster API keeps, and those that kubelets use, the
// hostname and the fully qualified name.
func (l *life) nodeNames() []string {
	names := []string{l.Machine.Machine.Status.NodeRef.Name, l.maas.Hostname, l.maas.FQDN}
	return list.Where(list.Each(names, strings.ToLower), func(name string) bool { return name != "" })
}

// findNode finds the Node by name. It returns nil if the Node has not joined.
func findNode(ctx context.Context, workload client.Reader, names []string) (*corev1.Node, error) {
	for _, name := range names {
		node := &corev1.Node{}
		err := workload.Get(ctx, client.ObjectKey{Name: name}, node)
		if err == nil {
			return node, nil
		}
		if !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("reading Node %s: %w", name, err)
		}
	}
	return nil, nil
}

// nodeWith returns the name of a Node with a provider ID, or "".
func nodeWith(ctx context.Context, workload client.Reader, providerID string) (string, error) {
	nodes := &corev1.NodeList{}
	if err := workload.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil { // They are only read.
		return "", fmt.Errorf("listing the Nodes: %w", err)
	}
	for i := range nodes.Items {
		if nodes.Items[i].Spec.ProviderID == providerID {
			return nodes.Items[i].Name, nil
		}
	}
	return "", nil
}

// watchNodes wakes machines when their Nodes join.
func (r *Reconciler) watchNodes(ctx context.Context, l *life) error {
	cluster := client.ObjectKeyFromObject(l.Cluster.Cluster)
	err := r.ClusterCache.Watch(ctx, cluster, clustercache.NewWatcher(clustercache.WatcherOptions{
		Name:    NodeWatch,
		Watcher: r.controller,
		Kind:    &corev1.Node{},
		EventHandler: handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, node client.Object) []reconcile.Request {
			return r.nodeToMachine(ctx, cluster, node.(*corev1.Node))
		}),
	}))
	if err != nil && !errors.Is(err, clustercache.ErrClusterNotConnected) {
		return fmt.Errorf("watching the workload cluster's Nodes: %w", err)
	}
	return nil
}

// nodeToMachine wakes the machine of a Node that lacks its provider ID; other changes of Nodes do not matter.
func (r *Reconciler) nodeToMachine(
	ctx context.Context, cluster client.ObjectKey, node *corev1.Node,
) []reconcile.Request {
	if node.Spec.ProviderID != "" {
		return nil
	}
	return r.wake(ctx, func(m client.Object) bool {
		return slices.ContainsFunc(m.(*infrav1.MaasMachine).Status.Addresses, func(a clusterv1.MachineAddress) bool {
			return (a.Type == clusterv1.MachineHostName || a.Type == clusterv1.MachineInternalDNS) &&
				strings.EqualFold(a.Address, node.Name)
		})
	}, client.InNamespace(cluster.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name})
}
