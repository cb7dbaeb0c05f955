// SPDX-License-Identifier: Apache-2.0

package maascluster

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/charts"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/vmhosts"
)

const (
	// fieldOwner is the field owner of objects in host clusters, and of those that are made of their nodes.
	fieldOwner = client.FieldOwner("capmaas-controller-manager")
	// credentialsName is the initializer's Secret in its namespace.
	credentialsName = "maas-credentials"
	endpointName    = "capmaas-config"
	// HostNodeWatch names the watch on the Nodes of a host cluster.
	HostNodeWatch = "maascluster-watchNodes"
	// hostsMaxAge is the maximum age of the list of VM hosts while some are missing.
	hostsMaxAge = 2 * time.Second
	// hostsRetry: MAAS learns the resources of a host on its own, and sends no notification.
	hostsRetry = 10 * time.Second
	// startAllowance is the time for pulling the initializer's image on a node.
	startAllowance = 3 * time.Minute
	// maxPending is how many hosts that are not ready a condition names.
	maxPending = 3
	secretKind = "Secret"
)

// Initializer configures the LXD initializer in host clusters.
type Initializer struct {
	// Image and PullPolicy of its container.
	Image, PullPolicy string
}

// reconcileHostCluster makes every node of a host cluster a VM host of MAAS, or an LXDHost if MAAS has no VM hosts: it
// installs the initializer there, and checks what came of it.
func (r *Reconciler) reconcileHostCluster(ctx context.Context, s *scope.Cluster) error {
	if !s.MaasCluster.Spec.LXDControlPlaneCluster {
		return nil
	}
	machines, err := clusters.MachinesOf(ctx, r.Client, s.Cluster, s.MaasCluster)
	if err != nil {
		return err
	}
	machines = slices.DeleteFunc(machines, func(m infrav1.MaasMachine) bool {
		return !m.DeletionTimestamp.IsZero() || m.Spec.IsLXD()
	})
	key := client.ObjectKeyFromObject(s.Cluster)
	workload, err := r.ClusterCache.GetClient(ctx, key)
	if errors.Is(err, clustercache.ErrClusterNotConnected) {
		// The cluster cache triggers a reconcile.
		return report.Later(report.SafetyRetry, infrav1.WaitingForWorkloadClusterReason,
			"waiting for the Kubernetes API of the host cluster")
	}
	if err != nil {
		return fmt.Errorf("connecting to the host cluster: %w", err)
	}
	if s.Cluster.DeletionTimestamp.IsZero() {
		if err := r.applyInitializer(ctx, s, workload); err != nil {
			return err
		}
	}
	if err := r.watchHostNodes(ctx, key); err != nil {
		return err
	}
	return r.awaitHosts(ctx, s, workload, machines)
}

// applyInitializer applies the initializer's objects in the host cluster.
func (r *Reconciler) applyInitializer(ctx context.Context, s *scope.Cluster, workload client.Client) error {
	credentials, err := r.Scopes.HostCredentials(ctx, s.MaasCluster)
	if err != nil {
		return err
	}
	config := configOf(s)
	objects, err := charts.Initializer(charts.Values{
		Namespace: clusters.InitializerNamespace, Image: r.Initializer.Image, PullPolicy: r.Initializer.PullPolicy,
		StorageBackend: string(config.StorageBackend), StorageSize: config.StorageSize, NetworkBridge: config.NetworkBridge,
		Zone: config.Zone, CredentialsHash: credentials.ID(),
		ResourcePool: cmp.Or(config.ResourcePool, defaultPool), // Hosts that were in another one leave it.
	})
	if err != nil {
		return fmt.Errorf("rendering the initializer: %w", err)
	}
	// Right after the namespace, which must exist first: pods wait for the Secrets that they mount.
	objects = slices.Insert(objects, 1, credentialObjects(credentials)...)
	for _, object := range objects {
		if err := workload.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), fieldOwner,
			client.ForceOwnership); err != nil {
			return report.Later(report.CapacityRetry, infrav1.InitializerNotAppliedReason,
				"the host cluster refuses %s %s: %s", object.GetKind(), object.GetName(), refusalOf(object, err))
		}
	}
	return nil
}

// refusalOf returns the error text of an API server. For a Secret it returns only the reason, because
// the text could contain the Secret's data.
func refusalOf(object client.Object, err error) string {
	if object.GetObjectKind().GroupVersionKind().Kind == secretKind {
		return cmp.Or(string(apierrors.ReasonForError(err)), "no response")
	}
	return report.Brief(err.Error())
}

// credentialObjects returns the objects that the initializer's pods mount. They hold only the data for access to MAAS.
func credentialObjects(c maas.Config) []*unstructured.Unstructured {
	data := map[string]any{"apiKey": base64.StdEncoding.EncodeToString([]byte(c.APIKey))}
	if len(c.CABundle) > 0 {
		data["caBundle"] = base64.StdEncoding.EncodeToString(c.CABundle)
	}
	named := func(kind, name string, data map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"name": name,
				"namespace": clusters.InitializerNamespace}, "data": data,
		}}
	}
	return []*unstructured.Unstructured{
		named(secretKind, credentialsName, data),
		named("ConfigMap", endpointName, map[string]any{"maasEndpoint": c.Endpoint}),
	}
}

// awaitHosts returns nil when every machine is a VM host whose cores and memory MAAS knows; if MAAS has no VM hosts,
// when every machine has an LXDHost that is ready.
func (r *Reconciler) awaitHosts(
	ctx context.Context, s *scope.Cluster, workload client.Reader, machines []infrav1.MaasMachine,
) error {
	hosts, has, err := s.Inventory.AnyVMHosts(ctx, hostsMaxAge)
	if err != nil {
		return fmt.Errorf("listing VM hosts: %w", err)
	}
	what, notYet := "VM hosts", func(m *infrav1.MaasMachine) string { return r.notYetHost(ctx, workload, hosts, m) }
	if !has {
		what, notYet = "LXD hosts", func(m *infrav1.MaasMachine) string { return r.notYetLXDHost(ctx, s, workload, m) }
	}
	var pending []string
	for i := range machines {
		if why := notYet(&machines[i]); why != "" {
			pending = append(pending, machines[i].Name+": "+why)
		}
	}
	want := max(len(machines), desiredNodes(s.Cluster))
	if len(machines) == want && want > 0 && len(pending) == 0 {
		report.SetTrue(s.MaasCluster, infrav1.LXDReadyCondition, infrav1.ReadyReason)
		return nil
	}
	slices.Sort(pending)
	message := fmt.Sprintf("%d of %d nodes are %s", len(machines)-len(pending), want, what)
	if len(pending) > 0 {
		message += " (" + text.Parts(pending, maxPending) + ")"
	}
	return report.Later(hostsRetry, infrav1.HostsNotReadyReason, "%s", message)
}

// desiredNodes returns the desired number of the cluster's nodes: control planes are made one after the other.
func desiredNodes(cluster *clusterv1.Cluster) int {
	want := int32(0)
	if status := cluster.Status.ControlPlane; status != nil {
		want += ptr.Deref(status.DesiredReplicas, 0)
	}
	if status := cluster.Status.Workers; status != nil {
		want += ptr.Deref(status.DesiredReplicas, 0)
	}
	return int(want)
}

// notYetHost returns why a machine is no VM host yet; "" if it is one. The initializer's condition on the Node takes
// precedence.
func (r *Reconciler) notYetHost(
	ctx context.Context, workload client.Reader, hosts []maas.VMHost, m *infrav1.MaasMachine,
) string {
	on := vmhosts.OnMachine(hosts, m.Spec.SystemID)
	if slices.ContainsFunc(on, maas.VMHost.ResourcesKnown) {
		return ""
	}
	node := r.lookAtNode(ctx, workload, m)
	switch {
	case node.lacks != "":
		return node.lacks
	case len(on) > 0:
		return "MAAS does not know its cores and memory yet"
	case slices.ContainsFunc(hosts, func(h maas.VMHost) bool { return h.Name == node.name }):
		return "MAAS shows a VM host of its name on another machine: it is another cluster's, or interfaces of the nodes " +
			"have one MAC address in common, as with Calico"
	}
	return "not registered in MAAS yet"
}

// nodeState is what a machine's Node reports of the initializer.
type nodeState struct {
	name     string // "" if there is no Node
	prepared bool   // the initializer has done all that it does
	lacks    string // what keeps it from that; "" if that is not known
	keys     string // the key pair in use, as the Node's annotation has it: infrav1.LXDKeysAnnotation
}

// lookAtNode reads a machine's Node.
func (r *Reconciler) lookAtNode(ctx context.Context, workload client.Reader, m *infrav1.MaasMachine) nodeState {
	machine, err := clusters.OwnerMachine(ctx, r.Client, m)
	if err != nil || machine == nil || !machine.Status.NodeRef.IsDefined() {
		return nodeState{lacks: "no node yet"}
	}
	state, node := nodeState{name: machine.Status.NodeRef.Name}, &corev1.Node{}
	if err := workload.Get(ctx, client.ObjectKey{Name: state.name}, node); err != nil {
		return state
	}
	state.keys = node.Annotations[infrav1.LXDKeysAnnotation]
	switch c := clusters.HostCondition(node); {
	case c != nil && c.Status == corev1.ConditionTrue:
		state.prepared = true
	case c != nil:
		state.lacks = report.Brief(c.Message)
	case r.cannotStart(ctx, client.ObjectKey{Namespace: m.Namespace, Name: machine.Spec.ClusterName}, node.Name):
		state.lacks = fmt.Sprintf("the initializer's pod does not start there: can the node pull %s?", r.Initializer.Image)
	}
	return state
}

// cannotStart reports whether the initializer's pod has been on a node for too long without running, so that it can't
// report the cause itself.
func (r *Reconciler) cannotStart(ctx context.Context, cluster client.ObjectKey, node string) bool {
	workload, err := r.ClusterCache.GetUncachedClient(ctx, cluster) // A cache would hold all pods.
	if err != nil {
		return false
	}
	pods := &corev1.PodList{}
	if err := workload.List(ctx, pods, client.InNamespace(clusters.InitializerNamespace),
		client.MatchingLabels{"app": charts.InitializerName}); err != nil {
		return false
	}
	return slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool {
		return p.Spec.NodeName == node && p.Status.Phase == corev1.PodPending &&
			slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue &&
					r.Clock.Since(c.LastTransitionTime.Time) > startAllowance
			})
	})
}

// watchHostNodes wakes the cluster when the initializer's condition on a Node changes.
func (r *Reconciler) watchHostNodes(ctx context.Context, cluster client.ObjectKey) error {
	err := r.ClusterCache.Watch(ctx, cluster, clustercache.NewWatcher(clustercache.WatcherOptions{
		Name:         HostNodeWatch,
		Watcher:      r.controller,
		Kind:         &corev1.Node{},
		EventHandler: handler.EnqueueRequestsFromMapFunc(r.hostNodeToCluster(cluster)),
		Predicates:   hostNodeChanged,
	}))
	if err != nil && !errors.Is(err, clustercache.ErrClusterNotConnected) {
		return fmt.Errorf("watching the host cluster's Nodes: %w", err)
	}
	return nil
}

func (r *Reconciler) hostNodeToCluster(key client.ObjectKey) handler.MapFunc {
	return func(ctx context.Context, _ client.Object) []reconcile.Request {
		cluster := &clusterv1.Cluster{}
		if err := r.Client.Get(ctx, key, cluster); err != nil {
			return nil
		}
		return clusters.Requests(ctx, r.Client, cluster)
	}
}

// hostNodeChanged passes on the initializer's changes, and drops the kubelet's heartbeats.
var hostNodeChanged = []predicate.TypedPredicate[client.Object]{predicate.Funcs{UpdateFunc: func(
	e event.UpdateEvent) bool {
	before, after := clusters.HostCondition(e.ObjectOld.(*corev1.Node)), clusters.HostCondition(e.ObjectNew.(*corev1.Node))
	return after != nil && (before == nil || before.Status != after.Status || before.Message != after.Message)
}}}
