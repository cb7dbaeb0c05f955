// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/simulator"
)

// deleteNamespace deletes the namespace, and then objects in it, as Kubernetes does. From then on Kubernetes makes nothing there.
func (w *world) deleteNamespace(all ...client.Object) {
	w.t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}
	if err := w.client.Delete(w.t.Context(), namespace); err != nil {
		w.t.Fatal(err)
	}
	w.await("nothing is made in the namespace", namespace, func(ctx context.Context) bool {
		probe := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, GenerateName: "probe-"}}
		return apierrors.IsForbidden(w.client.Create(ctx, probe))
	})
	for _, object := range all {
		if err := w.client.Delete(w.t.Context(), object); client.IgnoreNotFound(err) != nil {
			w.t.Fatal(err)
		}
	}
}

// Whatever a namespace has is given back when it is deleted: nothing of that makes an object.
func TestAllIsGivenBackWithItsNamespace(t *testing.T) {
	t.Parallel()
	machine := func(name string, spec infrav1.MaasMachineSpec) func(*world) []client.Object {
		return func(w *world) []client.Object {
			m := w.newMachine(name, spec.IsLXD(), spec)
			w.deployed(m)
			return []client.Object{m}
		}
	}
	for name, tc := range map[string]struct {
		cluster func(*infrav1.MaasCluster)
		make    func(*world) []client.Object
	}{
		"bare metal":            {make: machine("m", withSpec(shapes["lvm"], func(s *infrav1.MaasMachineSpec) { s.Interfaces = bonded }))},
		"bare metal, address":   {make: machine("m", infrav1.MaasMachineSpec{StaticIP: "10.77.0.50"})},
		"a VM, in the endpoint": {make: machine("cp-0", vm)},
		"a VM, virtual IP":      {cluster: somewhere, make: machine("cp-0", vm)},
		"a remediation": {make: func(w *world) []client.Object {
			m := w.node("md-0", false, infrav1.MaasMachineSpec{})
			remediation := w.remedy("md-0")
			w.eventually(remediation, "begun", func() bool { return remediation.Status.Requests > 0 })
			return []client.Object{remediation, w.machineOf("md-0"), m}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			before := w.maas.State()
			cluster := w.newCluster(func(c *infrav1.MaasCluster) {
				if tc.cluster != nil {
					tc.cluster(c)
				}
			})
			w.provisioned(cluster)
			all := tc.make(w)
			w.deleteNamespace(append(all, w.cluster, cluster)...)
			for _, object := range append(all, cluster) {
				w.goes(object)
			}
			w.unchanged(before)
		})
	}
}

// A server that waits is given back as it was, though its namespace is being deleted, also by a new manager, and if what it needs
// is lost on the way.
func TestAServerThatIsKeptIsGivenBackWithItsNamespace(t *testing.T) {
	t.Parallel()
	all := withSpec(shapes["lvm"], func(s *infrav1.MaasMachineSpec) { s.Interfaces = bonded })
	for name, tc := range map[string]struct {
		spec    infrav1.MaasMachineSpec
		restart bool
		fault   *simulator.Fault
	}{
		"plain":                {},
		"all that is undone":   {spec: all},
		"over a restart":       {spec: all, restart: true},
		"an address":           {spec: infrav1.MaasMachineSpec{StaticIP: "10.77.0.50"}, restart: true},
		"the release is lost":  {spec: all, fault: &simulator.Fault{Op: "release", DropBefore: true, First: 1}},
		"its response is lost": {spec: all, restart: true, fault: &simulator.Fault{Op: "release", DropAfter: true, First: 1}},
		"MAAS is gone":         {spec: all, fault: &simulator.Fault{Op: "release", Status: 503, First: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(w *world) { w.region = oneServer })
			before := w.maas.State()
			cluster := w.newCluster()
			w.provisioned(cluster)
			_, id := w.keepsServer(tc.spec)
			w.waits(cluster, id)
			if tc.fault != nil {
				if _, err := w.maas.AddFault(*tc.fault); err != nil {
					t.Fatal(err)
				}
			}
			w.deleteNamespace(w.cluster, cluster)
			if tc.restart {
				w.restart()
			}
			w.goes(cluster)
			if now, _ := w.maas.Machine(id); now.Status != "Ready" || now.AgentName != "" {
				t.Errorf("the server is %s, agent name %q", now.Status, now.AgentName)
			}
			w.unchanged(before)
		})
	}
}

// A MaasCluster says what giving a server back waits for, and the server goes nowhere until then.
func TestAServerThatCannotBeGivenBackYetIsToldOf(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) { w.region = oneServer })
	before := w.maas.State()
	cluster := w.newCluster()
	w.provisioned(cluster)
	_, id := w.keepsServer(infrav1.MaasMachineSpec{})
	w.maasCall("POST", "machines/"+id+"/?op=lock", nil)
	w.deleteNamespace(w.cluster, cluster)
	w.eventually(cluster, "told of", func() bool {
		return strings.Contains(conditions.GetMessage(cluster, infrav1.DNSReadyCondition), "locked")
	})
	w.maasCall("POST", "machines/"+id+"/?op=unlock", nil)
	w.goes(cluster)
	w.unchanged(before)
}

// The record of a MaasCluster has no room, in the eyes of Kubernetes or by a policy: the server is given back instead of being kept.
func TestAServerThatCannotBeKeptIsGivenBack(t *testing.T) {
	t.Parallel()
	const limit = 256 << 10
	for name, room := range map[string]int{"no room at all": 200, "little room": 40 << 10} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(w *world) { w.region = contested })
			cluster := w.newCluster()
			w.provisioned(cluster)
			before := w.maas.State()
			m := w.newMachine("first", false, withKeep(infrav1.MaasMachineSpec{StaticIP: "10.77.0.50"}), of(w.deployment("md", 1)))
			w.deployed(m)
			w.fill(cluster, limit-room)
			w.delete(m)
			if n := w.keptIn(cluster); n != 0 {
				t.Errorf("%d servers are kept", n)
			}
			w.deleteCluster(cluster)
			w.unchanged(before)
		})
	}
}

// fill gives an object annotations of a size, as people can.
func (w *world) fill(object client.Object, size int) {
	w.t.Helper()
	if err := w.client.Get(w.t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		w.t.Fatal(err)
	}
	w.patch(object, func() {
		annotations := object.GetAnnotations()
		for key, value := range annotations {
			size -= len(key) + len(value)
		}
		annotations["filler"] = strings.Repeat("x", size-len("filler"))
		object.SetAnnotations(annotations)
	})
}

// Annotations that leave no room for the record stop no deletion.
func TestAnObjectFullOfAnnotationsIsDeleted(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]infrav1.MaasMachineSpec{
		"bare metal": withSpec(shapes["lvm"], func(s *infrav1.MaasMachineSpec) { s.Interfaces = bonded }),
		"a VM":       vm,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			cluster := w.newCluster()
			w.provisioned(cluster)
			before := w.maas.State()
			m := w.newMachine("m", false, spec)
			w.deployed(m)
			w.fill(m, 256<<10)
			w.fill(cluster, 256<<10)
			w.delete(m)
			w.deleteCluster(cluster)
			w.unchanged(before)
		})
	}
}
