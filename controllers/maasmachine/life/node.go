// SPDX-License-Identifier: Apache-2.0

package life

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/objects"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/internal/nodes"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

// Endpoint adds this control plane's address to the API endpoint's DNS record as soon as it can serve.
func (s *Steps) Endpoint(ctx context.Context, l *Life) (Outcome, error) {
	if !l.IsControlPlane() {
		return Proceed, nil
	}
	m := l.MaasMachine
	switch l.Endpoint() {
	case scope.EndpointExternal:
		report.SetTrue(m, infrav1.DNSAttachedCondition, infrav1.ExternalEndpointReason)
		return Proceed, nil
	case scope.EndpointVirtualIP:
		report.SetTrue(m, infrav1.DNSAttachedCondition, infrav1.VirtualIPReason)
		return Proceed, nil
	}
	published, err := clusters.PublishFor(ctx, &s.Base, l.Cluster)
	if apierrors.IsConflict(err) {
		return Proceed, err
	}
	if err != nil {
		p := report.Explain(err)
		report.SetUnknown(m, infrav1.DNSAttachedCondition, p.Reason, p.Message)
		return Proceed, err
	}
	m.Status.DNSAttached = slices.Contains(published, clusters.EndpointAddress(m))
	if m.Status.DNSAttached {
		report.SetTrue(m, infrav1.DNSAttachedCondition, infrav1.ReadyReason)
	} else {
		report.SetFalse(m, infrav1.DNSAttachedCondition, infrav1.NotAttachedReason,
			"DNS record %s does not contain this machine's address yet", l.EndpointName())
	}
	return Proceed, nil
}

// EndpointRemoval removes the machine's address from the DNS record before the machine is released. If the whole
// cluster is deleted, the record is deleted with it.
func (s *Steps) EndpointRemoval(ctx context.Context, l *Life) (Outcome, error) {
	if !l.IsControlPlane() || l.Endpoint() != scope.EndpointDNS || !l.Cluster.Cluster.DeletionTimestamp.IsZero() ||
		!l.MaasCluster.DeletionTimestamp.IsZero() {
		return Proceed, nil
	}
	if _, err := clusters.PublishFor(ctx, &s.Base, l.Cluster); err != nil {
		return Proceed, fmt.Errorf("removing the machine from the API endpoint: %w", err)
	}
	return Proceed, nil
}

// NodeWatch names the watch on the Nodes of a workload cluster.
const NodeWatch = "maasmachine-watchNodes"

// Node gives the machine's Node its provider ID, by which Cluster API finds the Node, and labels that say where it is,
// and again whenever it lacks them: a Node that was deleted has neither when its kubelet registers it again. The node's
// name is then stored in the status: this change of the MaasMachine wakes Cluster API, which does not watch Nodes
// before the control plane is initialized.
//
// The kubelet can't set the ID by its argument --provider-id: the user data are written before the machine is chosen.
// MAAS's metadata give them its system id, but not the name of its zone, which is part of the ID.
func (s *Steps) Node(ctx context.Context, l *Life) (Outcome, error) {
	m := l.MaasMachine
	workload, err := s.workload(ctx, l)
	if err != nil {
		return Proceed, err
	}
	if workload == nil { // When it responds, the cluster cache triggers a reconcile.
		if l.hasJoined() {
			return Proceed, nil
		}
		return report.Retry(report.SafetyRetry, infrav1.WaitingForNodeReason, "the workload cluster does not respond"), nil
	}
	node, former, err := l.findNode(ctx, workload)
	if err != nil {
		return Proceed, err
	}
	if node != nil {
		conditions.Delete(m, infrav1.NodeJoinedCondition)
		return s.identify(ctx, l, workload, node)
	}
	// The watch triggers a reconcile.
	switch {
	case former != "":
		report.SetFalse(m, infrav1.NodeJoinedCondition, infrav1.FormerNodeReason, "%s", former)
	case m.Status.NodeName != "":
		report.SetFalse(m, infrav1.NodeJoinedCondition, infrav1.NodeGoneReason, "Node %s is gone from the workload cluster: "+
			"restart the kubelet of machine %s, which registers it again, or delete the Machine", m.Status.NodeName, l.MAAS)
	default:
		conditions.Delete(m, infrav1.NodeJoinedCondition)
	}
	if l.hasJoined() {
		return Proceed, nil
	}
	return report.Retry(report.SafetyRetry, infrav1.WaitingForNodeReason,
		"the Node has not joined the workload cluster"), nil
}

// LateNode gives its provider ID to a Node that joined when its machine was already being deleted. By it Cluster API
// finds the Node, and deletes it after the machine. A Node that Cluster API knows by name needs none for that, and a
// deletion never waits for this.
func (s *Steps) LateNode(ctx context.Context, l *Life) (Outcome, error) {
	if l.Machine.Machine.Status.NodeRef.IsDefined() || l.MaasMachine.Spec.ProviderID == "" ||
		!l.Cluster.Cluster.DeletionTimestamp.IsZero() {
		return Proceed, nil
	}
	workload, err := s.workload(ctx, l)
	if err == nil && workload != nil {
		var node *corev1.Node
		if node, _, err = l.findNode(ctx, workload); err == nil && node != nil {
			_, err = s.identify(ctx, l, workload, node)
		}
	}
	if err != nil {
		ctrl.LoggerFrom(ctx).Info("Failed to look for a Node that joined late; it may be left", "error", err.Error())
	}
	return Proceed, nil
}

// workload returns a client of the workload cluster that reads from a cache, and watches the Nodes there; nil if the
// cluster does not respond.
func (s *Steps) workload(ctx context.Context, l *Life) (client.Client, error) {
	workload, err := s.ClusterCache.GetClient(ctx, client.ObjectKeyFromObject(l.Cluster.Cluster))
	if errors.Is(err, clustercache.ErrClusterNotConnected) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("connecting to the workload cluster: %w", err)
	}
	return workload, s.watchNodes(ctx, l)
}

// hasJoined reports whether Cluster API and the status name the same Node.
func (l *Life) hasJoined() bool {
	ref := l.Machine.Machine.Status.NodeRef
	return ref.IsDefined() && l.MaasMachine.Status.NodeName == ref.Name
}

// identify gives a Node of the machine what it lacks of its provider ID and its labels.
func (s *Steps) identify(
	ctx context.Context, l *Life, workload client.Client, node *corev1.Node,
) (Outcome, error) {
	m, before := l.MaasMachine, node.DeepCopy()
	if node.Spec.ProviderID == "" {
		other, err := nodeWith(ctx, workload, m.Spec.ProviderID)
		if err != nil {
			return Proceed, err
		}
		if other != "" { // Of two Nodes with one provider ID, Cluster API finds neither.
			s.Warn(m, infrav1.ProviderIDTakenReason, "Join",
				"Node %s has the provider ID %s, which Node %s would get: delete Node %s if its machine is gone; if it is a "+
					"machine of another MAAS, replace this Machine", other, m.Spec.ProviderID, node.Name, other)
			return report.Retry(report.SafetyRetry, infrav1.WaitingForNodeReason, "another Node has its provider ID"), nil
		}
		node.Spec.ProviderID = m.Spec.ProviderID
	}
	if node.Spec.ProviderID != m.Spec.ProviderID {
		s.Warn(m, infrav1.ProviderIDDiffersReason, "Join",
			"Node %s has the provider ID %s, not %s, so it is not this Machine's: switch off the cloud controller that set "+
				"it, and replace the Machine", node.Name, node.Spec.ProviderID, m.Spec.ProviderID)
		return Proceed, nil
	}
	if l.MAAS != nil { // Otherwise the Node is to be deleted.
		label(node, l)
	}
	if before.Spec.ProviderID != node.Spec.ProviderID || !maps.Equal(before.Labels, node.Labels) {
		if err := workload.Patch(ctx, node, client.MergeFrom(before)); err != nil {
			return Proceed, fmt.Errorf("setting the provider ID and labels of Node %s: %w", node.Name, err)
		}
	}
	m.Status.NodeName = node.Name
	return Proceed, nil
}

// FormerBoot returns the boot id of the Node that has the machine's name before it is deployed; "" if there is none, or
// none can be read: then the kubelet's last sign of life is looked at instead. A workload cluster may take long to
// respond, so it is asked once, and before the machine has a turn, which is one of few.
func (s *Steps) FormerBoot(ctx context.Context, l *Life) string {
	if l.formerBoot == nil {
		boot := s.bootNow(ctx, l)
		l.formerBoot = &boot
	}
	return *l.formerBoot
}

func (s *Steps) bootNow(ctx context.Context, l *Life) string {
	workload, err := s.workload(ctx, l)
	if err != nil || workload == nil {
		return ""
	}
	for _, name := range l.NodeNames() {
		node := &corev1.Node{}
		err := workload.Get(ctx, client.ObjectKey{Name: name}, node)
		if !apierrors.IsNotFound(err) {
			return node.Status.NodeInfo.BootID
		}
	}
	return ""
}

// NoteFormerNode records, before the machine is deployed, when that is and how far its former Node has come.
func (l *Life) NoteFormerNode(boot string) {
	l.Record.DeployedSince, l.Record.FormerBoot = PtrTime(l.Clock.Now()), boot
}

// whyFormer returns why a Node with the machine's name is not that of this deployment; "" if it is. A name proves
// nothing: the Node of the server's former life has it, and the same provider ID.
func (l *Life) whyFormer(node *corev1.Node) string {
	switch {
	case !node.DeletionTimestamp.IsZero():
		held := ""
		if len(node.Finalizers) > 0 {
			held = fmt.Sprintf(", and held by the finalizers %s", strings.Join(node.Finalizers, ", "))
		}
		return fmt.Sprintf("Node %s is being deleted%s: when it is gone, the kubelet of machine %s registers it again, at "+
			"its next start", node.Name, held, l.MAAS)
	case !l.IsFormer(node):
		return ""
	}
	return fmt.Sprintf("Node %s is older than this deployment of machine %s, and no kubelet of it has reported there: it "+
		"is of the machine's former life; delete it, if nothing else does", node.Name, l.MAAS)
}

// IsFormer reports whether a Node with the machine's name, or its provider ID, is of the machine's former life.
func (l *Life) IsFormer(node *corev1.Node) bool {
	since := l.Record.DeployedSince
	return since != nil && !node.CreationTimestamp.IsZero() && node.CreationTimestamp.Before(since) && !l.hasTaken(node)
}

// hasTaken reports whether a kubelet of this deployment goes on with a Node that it found: it has booted since. If the
// former boot is not known, the kubelet's last report counts: before it was deployed, the machine was off.
func (l *Life) hasTaken(node *corev1.Node) bool {
	if former := l.Record.FormerBoot; former != "" {
		boot := node.Status.NodeInfo.BootID
		return boot != "" && boot != former
	}
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.LastHeartbeatTime.After(l.Record.DeployedSince.Time)
	})
}

// label says on the Node, and on the MaasMachine, where the machine is. What another user wrote stays.
func label(node *corev1.Node, l *Life) {
	for key, value := range map[string]string{
		corev1.LabelTopologyZone: l.MAAS.Zone.Name, infrav1.ResourcePoolLabel: l.MAAS.Pool.Name,
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

// NodeNames returns the names that the Node may have: the one that Cluster API keeps, and those that kubelets use, the
// hostname and the fully qualified name.
func (l *Life) NodeNames() []string {
	names := []string{l.Machine.Machine.Status.NodeRef.Name, l.MaasMachine.Status.Hostname}
	if l.MAAS != nil {
		names = append(names, l.MAAS.Hostname, l.MAAS.FQDN)
	}
	return list.Where(list.Each(names, strings.ToLower), func(name string) bool { return name != "" })
}

// findNode finds the Node of this deployment by name. If there is none, former says why one with the name is not.
func (l *Life) findNode(ctx context.Context, workload client.Reader) (_ *corev1.Node, former string, _ error) {
	for _, name := range l.NodeNames() {
		node := &corev1.Node{}
		err := workload.Get(ctx, client.ObjectKey{Name: name}, node)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, "", fmt.Errorf("reading Node %s: %w", name, err)
		}
		why := l.whyFormer(node)
		if why == "" {
			return node, "", nil
		}
		former = cmp.Or(former, why)
	}
	return nil, former, nil
}

// nodeWith returns the name of a Node with a provider ID, or "".
func nodeWith(ctx context.Context, workload client.Reader, providerID string) (string, error) {
	all := &corev1.NodeList{}
	if err := workload.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil { // They are only read.
		return "", fmt.Errorf("listing the Nodes: %w", err)
	}
	for i := range all.Items {
		if all.Items[i].Spec.ProviderID == providerID {
			return all.Items[i].Name, nil
		}
	}
	return "", nil
}

// watchNodes wakes machines when their Nodes join, or lack something.
func (s *Steps) watchNodes(ctx context.Context, l *Life) error {
	cluster := client.ObjectKeyFromObject(l.Cluster.Cluster)
	err := s.ClusterCache.Watch(ctx, cluster, clustercache.NewWatcher(clustercache.WatcherOptions{
		Name:    NodeWatch,
		Watcher: s.Controller,
		Kind:    &corev1.Node{},
		EventHandler: handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, node client.Object) []reconcile.Request {
			return s.nodeToMachine(ctx, cluster, node.(*corev1.Node))
		}),
		Predicates: []predicate.TypedPredicate[client.Object]{identities},
	}))
	if err != nil && !errors.Is(err, clustercache.ErrClusterNotConnected) {
		return fmt.Errorf("watching the workload cluster's Nodes: %w", err)
	}
	return nil
}

// identities are the events after which a Node may lack its provider ID or labels, or be another one than before;
// kubelets change their Nodes all the time. Machines of Nodes that were there before the watch are woken by the cluster
// cache.
var identities = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return lacksIdentity(e.Object.(*corev1.Node)) },
	UpdateFunc: func(e event.UpdateEvent) bool {
		was, is := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
		return is.Spec.ProviderID == "" || was.UID != is.UID || was.Spec.ProviderID != is.Spec.ProviderID ||
			was.DeletionTimestamp.IsZero() != is.DeletionTimestamp.IsZero() ||
			was.Status.NodeInfo.BootID != is.Status.NodeInfo.BootID ||
			slices.ContainsFunc(nodes.Labels, func(key string) bool { return was.Labels[key] != "" && is.Labels[key] == "" })
	},
	DeleteFunc: func(event.DeleteEvent) bool { return true },
}

func lacksIdentity(node *corev1.Node) bool {
	return node.Spec.ProviderID == "" || !slices.ContainsFunc(nodes.Labels, func(key string) bool {
		return node.Labels[key] != ""
	})
}

// nodeToMachine wakes the machine of a Node.
func (s *Steps) nodeToMachine(
	ctx context.Context, cluster client.ObjectKey, node *corev1.Node,
) []reconcile.Request {
	return objects.Wake(ctx, s.Client, &infrav1.MaasMachineList{}, func(m client.Object) bool {
		status := m.(*infrav1.MaasMachine).Status
		return status.NodeName == node.Name || slices.ContainsFunc(status.Addresses, func(a clusterv1.MachineAddress) bool {
			return (a.Type == clusterv1.MachineHostName || a.Type == clusterv1.MachineInternalDNS) &&
				strings.EqualFold(a.Address, node.Name)
		})
	}, client.InNamespace(cluster.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name})
}
