// SPDX-License-Identifier: Apache-2.0

package bootstrap_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

const (
	rke2Version    = "v1.35.0+rke2r1"
	rke2NewVersion = "v1.36.0+rke2r1"
)

// A cluster of the flavor lxd-rke2 comes up, scales, loses a control plane, is upgraded and deleted.
func TestRKE2(t *testing.T) {
	require(t, sandbox.RKE2)
	l := life.Begin(t, box, "rke2")
	manifest, err := box.Flavor("lxd-rke2", map[string]string{
		"CLUSTER_NAME": "rke2", "NAMESPACE": life.Namespace, "KUBERNETES_VERSION": rke2Version,
		"CONTROL_PLANE_MACHINE_COUNT": "3", "WORKER_MACHINE_COUNT": "2", "MAAS_DNS_DOMAIN": "maas.sim", "MAAS_IMAGE": "ubuntu/noble",
		"CONTROL_PLANE_MACHINE_RESOURCEPOOL": "capi", "WORKER_MACHINE_RESOURCEPOOL": "capi",
	})
	if err != nil {
		t.Fatal(err)
	}
	l.Create(manifest)
	l.Available(5)
	checkKinds(l)
	checkVersions(l, rke2Version)

	scaleControlPlane(l, "RKE2ControlPlane", 1)
	l.Available(3)
	scaleControlPlane(l, "RKE2ControlPlane", 3)
	scaleWorkers(l, 1)
	l.Available(4)

	change(l, controlPlane("RKE2ControlPlane"), func(o *unstructured.Unstructured) error {
		return unstructured.SetNestedField(o.Object, rke2NewVersion, "spec", "version")
	})
	l.Wait("the control planes to be upgraded", func() (bool, string, error) { return upgraded(l, true, rke2NewVersion) })
	changeWorkers(l, func(md *clusterv1.MachineDeployment) { md.Spec.Template.Spec.Version = rke2NewVersion })
	l.Wait("the workers to be upgraded", func() (bool, string, error) { return upgraded(l, false, rke2NewVersion) })
	l.Available(4)
	checkVersions(l, rke2NewVersion)
	l.Delete()
}

// controlPlane is the cluster's, of a kind.
func controlPlane(kind string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: "controlplane.cluster.x-k8s.io", Version: "v1beta1", Kind: kind})
	return o
}

// scaleControlPlane changes how many control planes there are.
func scaleControlPlane(l *life.Life, kind string, replicas int64) {
	l.Helper()
	change(l, controlPlane(kind), func(o *unstructured.Unstructured) error {
		return unstructured.SetNestedField(o.Object, replicas, "spec", "replicas")
	})
}

// change patches the cluster's control plane, whose name is the flavors'.
func change(l *life.Life, o *unstructured.Unstructured, mutate func(*unstructured.Unstructured) error) {
	l.Helper()
	if err := box.Client.Get(l.Context(), client.ObjectKey{Namespace: l.Key.Namespace, Name: l.Key.Name + "-control-plane"}, o); err != nil {
		l.Fatal(err)
	}
	before := o.DeepCopy()
	if err := mutate(o); err != nil {
		l.Fatal(err)
	}
	if err := box.Client.Patch(l.Context(), o, client.MergeFrom(before)); err != nil {
		l.Fatal(err)
	}
}

func scaleWorkers(l *life.Life, replicas int32) {
	l.Helper()
	changeWorkers(l, func(md *clusterv1.MachineDeployment) { md.Spec.Replicas = &replicas })
}

// changeWorkers patches the cluster's MachineDeployment, whose name is the flavors'.
func changeWorkers(l *life.Life, mutate func(*clusterv1.MachineDeployment)) {
	l.Helper()
	md := &clusterv1.MachineDeployment{}
	if err := box.Client.Get(l.Context(), client.ObjectKey{Namespace: l.Key.Namespace, Name: l.Key.Name + "-md-0"}, md); err != nil {
		l.Fatal(err)
	}
	before := md.DeepCopy()
	mutate(md)
	if err := box.Client.Patch(l.Context(), md, client.MergeFrom(before)); err != nil {
		l.Fatal(err)
	}
}

// checkKinds checks that control planes are VMs, and workers are not.
func checkKinds(l *life.Life) {
	l.Helper()
	controlPlanes, workers := l.MaasMachines()
	for _, m := range l.Held(controlPlanes) {
		if m.VMHost == "" {
			l.Errorf("the control plane %s is no VM", m.Hostname)
		}
	}
	for _, m := range l.Held(workers) {
		if m.VMHost != "" {
			l.Errorf("the worker %s is a VM", m.Hostname)
		}
	}
}

// upgraded reports whether all Machines of a role have a version, and a Node.
func upgraded(l *life.Life, controlPlanes bool, version string) (bool, string, error) {
	l.Helper()
	done, status := true, ""
	for _, m := range l.Machines() {
		if _, is := m.Labels[clusterv1.MachineControlPlaneLabel]; is != controlPlanes {
			continue
		}
		done = done && m.Spec.Version == version && m.Status.NodeRef.IsDefined()
		status += m.Name + " " + m.Spec.Version + "; "
	}
	return done, status, nil
}

// checkVersions checks what kubelets run.
func checkVersions(l *life.Life, version string) {
	l.Helper()
	workload, err := box.WorkloadClient(l.Context(), l.Key)
	if err != nil {
		l.Fatal(err)
	}
	nodes := &corev1.NodeList{}
	if err := workload.List(l.Context(), nodes); err != nil {
		l.Fatal(err)
	}
	if slices.ContainsFunc(nodes.Items, func(n corev1.Node) bool { return n.Status.NodeInfo.KubeletVersion != version }) {
		l.Errorf("not all of the Nodes %v run %s", nodes.Items, version)
	}
}
