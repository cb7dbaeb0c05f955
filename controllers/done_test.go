// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// doneness returns what Helm and Flux take an object for, as Kubernetes has it now.
func (w *world) doneness(object client.Object) status.Status {
	w.t.Helper()
	gvk, err := w.client.GroupVersionKindFor(object)
	w.must(err)
	now := &unstructured.Unstructured{}
	now.SetGroupVersionKind(gvk)
	w.must(w.client.Get(w.t.Context(), client.ObjectKeyFromObject(object), now))
	result, err := status.Compute(now)
	w.must(err)
	return result.Status
}

func (w *world) isDone(object client.Object) {
	w.t.Helper()
	w.eventually(object, "done", func() bool { return w.doneness(object) == status.CurrentStatus })
}

func (w *world) isNotDone(object client.Object, when string) {
	w.t.Helper()
	if got := w.doneness(object); got != status.InProgressStatus {
		w.t.Errorf("%s, %T %s is %s, want it in progress", when, object, object.GetName(), got)
	}
}

// ownEndpoint makes a MaasCluster Ready without a control plane.
func ownEndpoint(c *infrav1.MaasCluster) {
	c.Spec.ControlPlaneEndpoint = infrav1.APIEndpoint{Host: "api.example.com", Port: 6443}
}

// Helm and Flux take an object for done when it is Ready, and not before the manager has seen it, nor its last change.
func TestWhoWaitsForAnObjectKnowsWhenItIsDone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) { w.hostInterval = readOften })
	cluster := w.provisionedCluster(ownEndpoint)
	w.isDone(cluster)
	m := w.node("md-0", false, infrav1.MaasMachineSpec{})
	w.isDone(m)
	host := w.lxdHost(w.hostName("lxd-a"))
	w.isDone(host)
	template := w.template("metal", infrav1.MaasMachineSpec{MinCPU: 2})
	w.isDone(template)
	remediation := w.remedy("md-0")
	w.isDone(remediation)

	w.patch(cluster, func() { cluster.Spec.PreferredSubnets = []string{"10.0.0.0/8"} })
	w.change(host, func(s *infrav1.LXDHostSpec) { s.Unschedulable = true })
	w.patch(m, func() { m.Spec.Release.Erase = infrav1.EraseQuick })
	for _, changed := range []client.Object{cluster, host, m} {
		w.eventually(changed, "done again", func() bool {
			return changed.GetGeneration() > 1 && w.doneness(changed) == status.CurrentStatus
		})
	}

	w.setPaused(cluster, true)
	later := w.newMachine("md-1", false, vm)
	w.eventually(later, "paused", func() bool { return conditions.IsTrue(later, clusterv1.PausedCondition) })
	w.isNotDone(later, "in a Cluster that was paused before it was made")
	w.patch(cluster, func() { cluster.Spec.PreferredSubnets = nil })
	w.isNotDone(cluster, "changed while it is paused")
}

// A MaasCluster waits for its Cluster.
func TestAnObjectThatTheManagerDoesNotWorkOnIsNotDone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alone := &infrav1.MaasCluster{}
	alone.Name, alone.Namespace = "alone", w.namespace
	w.create(alone)
	w.isDone(w.provisionedCluster(ownEndpoint))
	w.isNotDone(alone, "without a Cluster")
}

// Whether a MaasCluster is ready that something else manages, that says.
func TestAClusterThatSomethingElseManagesIsSeen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.isDone(w.newManaged())
}
