// SPDX-License-Identifier: Apache-2.0

package bootstrap_test

import (
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

// distribution is what differs between the lives of clusters.
type distribution struct {
	provider            sandbox.BootstrapProvider
	flavor, name        string
	kind                string // of the control plane
	version, newVersion string
}

// lead leads a cluster of a flavor through its life: it comes up, scales, leaves a host that is emptied, is upgraded and
// deleted.
func lead(t *testing.T, d distribution) {
	t.Helper()
	require(t, d.provider)
	l := life.Begin(t, box, d.name)
	l.Create(flavor(t, d.flavor, d.name, d.version, 3, 2))
	awaitTemplate(l)
	l.Available(5)
	checkKinds(l)
	checkVersions(l, d.version)

	scaleControlPlane(l, d.kind, 1)
	l.Available(3)
	scaleControlPlane(l, d.kind, 3)
	scaleWorkers(l, 1)
	l.Available(4)
	evacuate(l)
	l.Available(4)

	change(l, controlPlane(d.kind), func(o *unstructured.Unstructured) error {
		return unstructured.SetNestedField(o.Object, d.newVersion, "spec", "version")
	})
	l.Wait("the control planes to be upgraded", func() (bool, string, error) { return upgraded(l, true, d.newVersion) })
	changeWorkers(l, func(md *clusterv1.MachineDeployment) { md.Spec.Template.Spec.Version = d.newVersion })
	l.Wait("the workers to be upgraded", func() (bool, string, error) { return upgraded(l, false, d.newVersion) })
	l.Available(4)
	checkVersions(l, d.newVersion)
	l.Delete()
}

// flavor is a cluster of a flavor.
func flavor(t *testing.T, flavor, name, version string, controlPlanes, workers int) string {
	t.Helper()
	manifest, err := box.Flavor(flavor, map[string]string{
		"CLUSTER_NAME": name, "NAMESPACE": life.Namespace, "KUBERNETES_VERSION": version, "MAAS_DNS_DOMAIN": "maas.sim", "MAAS_IMAGE": "ubuntu/noble",
		"CONTROL_PLANE_MACHINE_COUNT": strconv.Itoa(controlPlanes), "WORKER_MACHINE_COUNT": strconv.Itoa(workers),
		"CONTROL_PLANE_MACHINE_RESOURCEPOOL": "capi", "WORKER_MACHINE_RESOURCEPOOL": "capi",
	})
	if err != nil {
		t.Fatal(err)
	}
	return manifest
}

// awaitTemplate waits until the manager knows which template the control planes are made from.
func awaitTemplate(l *life.Life) {
	l.Helper()
	l.Wait("the template of the control plane to be known", func() (bool, string, error) {
		template := &infrav1.MaasMachineTemplate{}
		err := box.Client.Get(l.Context(), client.ObjectKey{Namespace: l.Key.Namespace, Name: l.Key.Name + "-control-plane"}, template)
		return template.Status.Room != nil && template.Status.Room.ControlPlane, "", err
	})
}

// evacuate empties the host of a control plane, and puts it into service again.
func evacuate(l *life.Life) {
	l.Helper()
	controlPlanes, _ := l.MaasMachines()
	was := controlPlanes[0]
	host := &infrav1.LXDHost{}
	if err := box.Client.Get(l.Context(), client.ObjectKey{Namespace: sandbox.Namespace, Name: was.Status.LXDHost}, host); err != nil {
		l.Fatal(err)
	}
	setEvacuate(l, host, true)
	l.Wait("the control plane to be elsewhere", func() (bool, string, error) {
		err := box.Client.Get(l.Context(), client.ObjectKeyFromObject(host), host)
		now, _ := l.MaasMachines()
		left := !slices.ContainsFunc(now, func(m infrav1.MaasMachine) bool { return m.Name == was.Name })
		return left && len(now) == len(controlPlanes), sandbox.Conditions(host.Status.Conditions), err
	})
	setEvacuate(l, host, false)
}

func setEvacuate(l *life.Life, host *infrav1.LXDHost, evacuate bool) {
	l.Helper()
	before := host.DeepCopy()
	host.Spec.Evacuate = evacuate
	if err := box.Client.Patch(l.Context(), host, client.MergeFrom(before)); err != nil {
		l.Fatal(err)
	}
}

// versions of the kinds of control planes that the flavors have.
var versions = map[string]string{"RKE2ControlPlane": "v1beta1", "KThreesControlPlane": "v1beta2"}

// controlPlane is the cluster's, of a kind.
func controlPlane(kind string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: "controlplane.cluster.x-k8s.io", Version: versions[kind], Kind: kind})
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
