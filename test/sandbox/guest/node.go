// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudv1 "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/cloud/api/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// noContext is for the objects in memory, which are available at once.
var noContext = context.Background()

const (
	controlPlaneLabel  = "node-role.kubernetes.io/control-plane"
	uninitializedTaint = "node.cloudprovider.kubernetes.io/uninitialized"
)

// setUp registers the node and what runs on it, or marks it ready again.
func (c *cluster) setUp(m *member) error {
	if m.first {
		if err := c.createFoundation(m.version); err != nil {
			return err
		}
	}
	if err := create(c.objects, m.newNode()); err != nil {
		return err
	}
	if m.controlPlane {
		if err := c.createPods(m); err != nil {
			return err
		}
	}
	if err := c.setReady(m, true); err != nil {
		return err
	}
	return c.electLeader()
}

// setDown does what the cluster's own controllers do when a node no longer responds.
func (c *cluster) setDown(m *member) error {
	if err := c.setReady(m, false); err != nil {
		return err
	}
	return c.electLeader()
}

func (m *member) newNode() *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: m.node, Labels: map[string]string{
			corev1.LabelHostname: m.node, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
		}},
		// Without a cloud controller nothing else sets the provider ID: the MAAS provider does.
		Spec: corev1.NodeSpec{ProviderID: m.registration.KubeletExtraArgs["provider-id"]},
	}
	if node.Spec.ProviderID == "" && m.cluster.cloud != "" {
		node.Spec.ProviderID = m.cluster.cloud + "://" + m.node
	}
	maps.Copy(node.Labels, labelsOf(m.registration.KubeletExtraArgs["node-labels"]))
	maps.Copy(node.Labels, m.registration.roles)
	if m.registration.Taints != nil {
		node.Spec.Taints = slices.Clone(*m.registration.Taints)
	}
	if e, ok := m.cluster.founder.(embedder); ok {
		node.Annotations = e.nodeAnnotations(m)
	}
	if m.uninitialized() {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: uninitializedTaint, Value: "true", Effect: corev1.TaintEffectNoSchedule})
	}
	return node
}

// uninitialized reports whether the kubelet waits for a cloud controller that the cluster does not have.
func (m *member) uninitialized() bool {
	return m.registration.KubeletExtraArgs["cloud-provider"] == "external" && m.cluster.cloud == ""
}

func labelsOf(text string) map[string]string {
	labels := map[string]string{}
	for label := range strings.SplitSeq(text, ",") {
		if name, value, ok := strings.Cut(strings.TrimSpace(label), "="); ok {
			labels[name] = value
		}
	}
	return labels
}

// nodeAddresses are the first address of each family, as the kubelet finds them, and the hostname.
func (m *member) nodeAddresses() []corev1.NodeAddress {
	var addresses []corev1.NodeAddress
	for _, family := range []func(netip.Addr) bool{netip.Addr.Is4, netip.Addr.Is6} {
		if i := slices.IndexFunc(m.addresses, family); i >= 0 {
			addresses = append(addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: m.addresses[i].String()})
		}
	}
	return append(addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: m.node})
}

// nodeConditions returns those of a node that runs, or of one that has stopped reporting.
func nodeConditions(ready bool) []corev1.NodeCondition {
	now := metav1.Now()
	status, pressure, reason := corev1.ConditionTrue, corev1.ConditionFalse, "KubeletReady"
	if !ready {
		status, pressure, reason = corev1.ConditionUnknown, corev1.ConditionUnknown, "NodeStatusUnknown"
	}
	conditions := []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, Reason: reason, LastTransitionTime: now, LastHeartbeatTime: now}}
	for _, kind := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		conditions = append(conditions, corev1.NodeCondition{Type: kind, Status: pressure, Reason: reason, LastTransitionTime: now, LastHeartbeatTime: now})
	}
	return conditions
}

// setReady writes the status of the node and of the pods on it.
func (c *cluster) setReady(m *member, ready bool) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.node}}
	if err := changeStatus(c.objects, node, func() { m.setStatus(&node.Status, ready) }); err != nil {
		return fmt.Errorf("writing the status of the node %s: %w", m.node, err)
	}
	if ready {
		if err := c.untaint(m); err != nil {
			return err
		}
	}
	if err := setPodsReady(c.pods, m.node, ready); err != nil {
		return err
	}
	if c.backing == nil || ready {
		return nil // a real kubelet reports when its pods are ready
	}
	return setPodsReady(c.objects, m.node, false)
}

// setStatus leaves conditions of others alone.
func (m *member) setStatus(status *corev1.NodeStatus, ready bool) {
	status.NodeInfo = corev1.NodeSystemInfo{KubeletVersion: m.version, OperatingSystem: "linux", Architecture: "amd64"}
	status.Addresses = m.nodeAddresses()
	status.Capacity, status.Allocatable = m.resources, m.resources
	for _, condition := range nodeConditions(ready) {
		status.Conditions = slices.DeleteFunc(status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == condition.Type })
		status.Conditions = append(status.Conditions, condition)
	}
}

// untaint removes the taint that a real API server gives to each new node, as the node lifecycle controller does when
// it is ready.
func (c *cluster) untaint(m *member) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.node}}
	err := change(c.objects, node, func() {
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeNotReady })
	})
	if err != nil {
		return fmt.Errorf("writing the taints of the node %s: %w", m.node, err)
	}
	return nil
}

func setPodsReady(s store, node string, ready bool) error {
	pods, err := podsOn(s, node)
	if err != nil {
		return err
	}
	for i := range pods {
		pod := &pods[i]
		err := changeStatus(s, pod, func() {
			pod.Status.Conditions = slices.DeleteFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })
			pod.Status.Conditions = append(pod.Status.Conditions, podReady(ready))
		})
		if err != nil {
			return fmt.Errorf("writing the status of the pod %s: %w", pod.Name, err)
		}
	}
	return nil
}

func podReady(ready bool) corev1.PodCondition {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	return corev1.PodCondition{Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.Now()}
}

func podsOn(s store, node string) ([]corev1.Pod, error) {
	pods := &corev1.PodList{}
	if err := s.List(noContext, pods); err != nil {
		return nil, fmt.Errorf("listing pods of the workload cluster: %w", err)
	}
	return slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return pod.Spec.NodeName != node }), nil
}

// createPods makes the pods of a control plane: mirror pods, or those of the distribution.
func (c *cluster) createPods(m *member) error {
	if err := c.forgetMember(m); err != nil {
		return err
	}
	annotations, err := c.etcdAnnotations()
	if err != nil {
		return err
	}
	etcd := m.staticPod("etcd", annotations)
	etcd.Name = m.etcdPod()
	pods := []*corev1.Pod{m.staticPod("kube-apiserver", nil), m.staticPod("kube-controller-manager", nil), m.staticPod("kube-scheduler", nil)}
	if e, ok := c.founder.(embedder); ok {
		pods = e.pods(m)
	}
	for _, pod := range append(pods, etcd) {
		if err := create(c.pods, pod); err != nil {
			return err
		}
	}
	return nil
}

// forgetMember removes the pod of a member that left etcd, where the same machine joins before its old pod was collected.
func (c *cluster) forgetMember(m *member) error {
	old := &corev1.Pod{}
	err := c.pods.Get(noContext, key(metav1.NamespaceSystem, m.etcdPod()), old)
	if err == nil && removed(old) {
		err = c.pods.Delete(noContext, old)
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing the old pod %s: %w", m.etcdPod(), err)
	}
	return nil
}

// staticPod returns a mirror pod, which a drain leaves where it is.
func (m *member) staticPod(component string, annotations map[string]string) *corev1.Pod {
	annotations = maps.Clone(annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[corev1.MirrorPodAnnotationKey] = component
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceSystem, Name: component + "-" + m.node, Annotations: annotations,
			Labels: map[string]string{"component": component, "tier": "control-plane"},
		},
		Spec:   corev1.PodSpec{NodeName: m.node, Containers: []corev1.Container{{Name: component, Image: imageRegistry + "/" + component}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{podReady(true)}},
	}
}

// etcdAnnotations are how the in-memory etcd knows its members: they are those of a new one. The first one leads.
func (c *cluster) etcdAnnotations() (map[string]string, error) {
	members, err := c.etcdMembers()
	if err != nil {
		return nil, err
	}
	annotations := map[string]string{cloudv1.EtcdMemberIDAnnotationName: newEtcdID()}
	if len(members) > 0 {
		annotations[cloudv1.EtcdClusterIDAnnotationName] = members[0].Annotations[cloudv1.EtcdClusterIDAnnotationName]
		return annotations, nil
	}
	annotations[cloudv1.EtcdClusterIDAnnotationName] = newEtcdID()
	annotations[cloudv1.EtcdLeaderFromAnnotationName] = time.Now().Format(time.RFC3339)
	return annotations, nil
}

func newEtcdID() string {
	return strconv.FormatInt(1+rand.Int64N(1<<31), 10) // an id, no secret
}

// etcdMembers returns the pods of all members that were not removed, whether they run or not.
func (c *cluster) etcdMembers() ([]corev1.Pod, error) {
	pods := &corev1.PodList{}
	err := c.pods.List(noContext, pods, client.InNamespace(metav1.NamespaceSystem), client.MatchingLabels{"component": "etcd"})
	if err != nil {
		return nil, fmt.Errorf("listing etcd members: %w", err)
	}
	return slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return removed(&pod) }), nil
}

func removed(pod *corev1.Pod) bool {
	_, ok := pod.Annotations[cloudv1.EtcdMemberRemoved]
	return ok
}

// quorum reports whether more than half of the etcd members run. Before the first pod is there, the first member does.
func (c *cluster) quorum() bool {
	members, err := c.etcdMembers()
	if err != nil {
		return false
	}
	up := 0
	for i := range members {
		if c.serverOfPod(members[i].Name) != nil {
			up++
		}
	}
	return len(members) == 0 || 2*up > len(members)
}

// electLeader makes a running member the leader, where the leader does not run.
func (c *cluster) electLeader() error {
	members, err := c.etcdMembers()
	if err != nil {
		return err
	}
	var candidate *corev1.Pod
	for i := range members {
		pod := &members[i]
		_, leads := pod.Annotations[cloudv1.EtcdLeaderFromAnnotationName]
		if c.serverOfPod(pod.Name) == nil {
			if err := change(c.pods, pod, func() { delete(pod.Annotations, cloudv1.EtcdLeaderFromAnnotationName) }); err != nil {
				return fmt.Errorf("taking the lead from %s: %w", pod.Name, err)
			}
			continue
		}
		if leads {
			return nil
		}
		candidate = pod
	}
	if candidate == nil {
		return nil
	}
	err = change(c.pods, candidate, func() {
		candidate.Annotations[cloudv1.EtcdLeaderFromAnnotationName] = time.Now().Format(time.RFC3339)
	})
	if err != nil {
		return fmt.Errorf("electing %s: %w", candidate.Name, err)
	}
	return nil
}

// react does what the cluster's distribution does when a client has changed a Node.
func (c *cluster) react(name string) {
	reactor, ok := c.founder.(nodeReactor)
	if !ok {
		return
	}
	node := &corev1.Node{}
	if c.objects.Get(noContext, key("", name), node) == nil {
		_ = reactor.nodeChanged(c, node) // in memory, only what is gone fails
	}
}

// collect removes pods of nodes that are gone, as the cluster's pod garbage collector does. An etcd member stays until
// it is removed from etcd: with its node alone it would not leave.
func (c *cluster) collect() {
	collectPods(c.objects, c.pods)
	if c.backing != nil {
		collectPods(c.objects, c.objects)
	}
	_ = c.electLeader()
}

func collectPods(nodesOf, podsOf store) {
	nodes, pods := &corev1.NodeList{}, &corev1.PodList{}
	// In this order a node that joins meanwhile does not lose its pods.
	if podsOf.List(noContext, pods) != nil || nodesOf.List(noContext, nodes) != nil {
		return
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		alive := pod.Spec.NodeName == "" || slices.ContainsFunc(nodes.Items, func(node corev1.Node) bool { return node.Name == pod.Spec.NodeName })
		if alive || (pod.Labels["component"] == "etcd" && !removed(pod)) {
			continue
		}
		_ = podsOf.Delete(noContext, pod) // gone is gone
	}
}
