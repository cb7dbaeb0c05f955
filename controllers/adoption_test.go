// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// patchCluster changes the spec of the Cluster.
func (w *world) patchCluster(spec map[string]any) {
	w.t.Helper()
	patch, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		w.t.Fatal(err)
	}
	w.must(w.client.Patch(w.t.Context(), w.cluster, client.RawPatch(client.Merge.Type(), patch)))
}

// differs waits until a MaasCluster reports that its Cluster has another endpoint, and names both.
func (w *world) differs(cluster *infrav1.MaasCluster, hosts ...string) {
	w.t.Helper()
	w.eventually(cluster, "updated: the endpoints differ", func() bool {
		return conditions.IsFalse(cluster, infrav1.DNSReadyCondition) &&
			conditions.GetReason(cluster, infrav1.DNSReadyCondition) == infrav1.EndpointDiffersReason
	})
	for _, host := range hosts {
		if message := conditions.GetMessage(cluster, infrav1.ReadyCondition); !strings.Contains(message, host) {
			w.t.Errorf("the message %q does not name %s", message, host)
		}
	}
}

// external makes the endpoint one that the user provides.
func external(host string) func(*infrav1.MaasCluster) {
	return func(c *infrav1.MaasCluster) { c.Spec.ControlPlaneEndpoint.Host = host }
}

// annotated says that another party provides the endpoint.
func annotated(c *infrav1.MaasCluster) {
	c.Annotations = map[string]string{infrav1.CustomDNSAnnotation: ""}
}

// Whatever were published under another name would be what neither clients nor nodes use, and could not be changed any
// more.
func TestAnEndpointThatTheClusterHasNotIsNotMade(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		host   string // the Cluster's
		change func(*infrav1.MaasCluster)
		names  []string
	}{
		"a name of ours":            {"api.example.com", func(*infrav1.MaasCluster) {}, []string{clusterName + "-", ".maas.sim"}},
		"another one of the user's": {"api.example.com", external("10.0.0.5"), []string{"10.0.0.5"}},
		"another virtual IP":        {"10.77.0.61", at("10.77.0.60"), []string{"10.77.0.60"}},
		"any virtual IP":            {"10.77.0.61", somewhere, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(w *world) { w.clusterEndpoint = clusterv1.APIEndpoint{Host: tc.host, Port: 6443} })
			before := w.maas.State()
			cluster := w.newCluster(tc.change)
			recorded := cluster.Spec.ControlPlaneEndpoint.Host
			w.differs(cluster, append(tc.names, tc.host)...)
			if cluster.Spec.ControlPlaneEndpoint.Host != recorded || ptr.Deref(cluster.Status.Initialization.Provisioned, false) {
				t.Errorf("the MaasCluster has the endpoint %+v, provisioned: %v", cluster.Spec.ControlPlaneEndpoint, cluster.Status.Initialization.Provisioned)
			}
			w.unchanged(before)
			w.deleteCluster(cluster)
		})
	}
}

func TestAnEndpointThatTheClusterHasIsMade(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		host   string // the Cluster's
		change func(*infrav1.MaasCluster)
		want   string // DNSReady's reason
	}{
		"the user's":                     {"api.example.com", external("api.example.com"), infrav1.ExternalEndpointReason},
		"the user's, in capital letters": {"API.example.com", external("api.example.com"), infrav1.ExternalEndpointReason},
		"the user's, only there":         {"api.example.com", annotated, infrav1.ExternalEndpointReason},
		"a virtual IP":                   {"10.77.0.60", at("10.77.0.60"), infrav1.VirtualIPReason},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(w *world) { w.clusterEndpoint = clusterv1.APIEndpoint{Host: tc.host, Port: 7443} })
			cluster := w.provisionedCluster(tc.change)
			if reason := conditions.GetReason(cluster, infrav1.DNSReadyCondition); reason != tc.want {
				t.Errorf("DNSReady is %s, want %s", reason, tc.want)
			}
			if !strings.EqualFold(cluster.Spec.ControlPlaneEndpoint.Host, tc.host) || cluster.Spec.ControlPlaneEndpoint.Port != 7443 {
				t.Errorf("the MaasCluster has the endpoint %+v, want the Cluster's", cluster.Spec.ControlPlaneEndpoint)
			}
		})
	}
}

// The endpoint that clients used before is kept up to date.
func TestTheRecordOfAClusterThatGotAnotherEndpoint(t *testing.T) {
	t.Parallel()
	w, cluster := clusterWorld(t)
	first := w.newMachine("cp-0", true, withSpec(vm, func(s *infrav1.MaasMachineSpec) { s.StaticIP = "10.77.0.50" }))
	w.eventually(first, "in DNS", func() bool { return first.Status.DNSAttached })
	w.patchCluster(map[string]any{"controlPlaneEndpoint": map[string]any{"host": "api.example.com", "port": 6443}})
	w.differs(cluster, "api.example.com", cluster.Spec.ControlPlaneEndpoint.Host)
	w.delete(first)
	second := w.newMachine("cp-1", true, withSpec(vm, func(s *infrav1.MaasMachineSpec) { s.StaticIP = "10.77.0.51" }))
	w.eventually(second, "in DNS", func() bool { return second.Status.DNSAttached })
	if got := w.endpoint(cluster); !slices.Equal(got, []string{"10.77.0.51"}) {
		t.Errorf("the endpoint leads to %v", got)
	}
	w.patchCluster(map[string]any{"controlPlaneEndpoint": map[string]any{"host": cluster.Spec.ControlPlaneEndpoint.Host}})
	w.eventually(cluster, "ready", func() bool { return cluster.Status.Ready })
}

// forget removes an object, and leaves its machine in MAAS.
func (w *world) forget(object client.Object) {
	w.t.Helper()
	before := object.DeepCopyObject().(client.Object)
	object.SetFinalizers(nil)
	w.must(w.client.Patch(w.t.Context(), object, client.MergeFrom(before)))
	w.delete(object)
}

// A Cluster is created again over running machines, with a MaasCluster of another name, as a ClusterClass does.
func TestTheEndpointOfAnAdoptedControlPlaneStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before := w.maas.State()
	cluster := w.provisionedCluster()
	m := w.newMachine("cp-0", true, withSpec(vm, func(s *infrav1.MaasMachineSpec) { s.StaticIP = "10.77.0.50" }))
	w.eventually(m, "in DNS", func() bool { return m.Status.DNSAttached })
	endpoint := cluster.Spec.ControlPlaneEndpoint
	w.setPaused(cluster, true, m)
	w.forget(m)
	w.forget(cluster)

	const newName = "c1-b7k2p"
	w.patchCluster(map[string]any{
		"paused": false, "infrastructureRef": map[string]any{"name": newName},
		"controlPlaneEndpoint": map[string]any{"host": endpoint.Host, "port": endpoint.Port},
	})
	adopted := &infrav1.MaasCluster{}
	adopted.Name, adopted.Namespace, adopted.Labels, adopted.Spec = newName, w.namespace, cluster.Labels, cluster.Spec
	adopted.Annotations = map[string]string{}
	for _, mark := range []string{infrav1.OwnerIDAnnotation, infrav1.MAASAnnotation} {
		adopted.Annotations[mark] = cluster.Annotations[mark]
	}
	adopted.Spec.ControlPlaneEndpoint = infrav1.APIEndpoint{}
	w.own(w.cluster, adopted)
	w.create(adopted)
	again := &infrav1.MaasMachine{Spec: m.Spec}
	again.Name, again.Namespace, again.Labels, again.OwnerReferences = m.Name, w.namespace, m.Labels, m.OwnerReferences
	w.create(again)

	w.eventually(adopted, "ready", func() bool { return adopted.Status.Ready })
	w.eventually(again, "in DNS", func() bool { return again.Status.DNSAttached })
	if adopted.Spec.ControlPlaneEndpoint != endpoint {
		t.Errorf("the endpoint is %+v, want %+v still", adopted.Spec.ControlPlaneEndpoint, endpoint)
	}
	w.delete(again)
	next := w.newMachine("cp-1", true, withSpec(vm, func(s *infrav1.MaasMachineSpec) { s.StaticIP = "10.77.0.51" }))
	w.eventually(next, "in DNS", func() bool { return next.Status.DNSAttached })
	if got := w.endpoint(adopted); !slices.Equal(got, []string{"10.77.0.51"}) {
		t.Errorf("the endpoint leads to %v", got)
	}
	w.delete(next)
	w.deleteCluster(adopted)
	w.unchanged(before)
}
