// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator/simtest"
)

// endpoint returns the addresses of the API endpoint's name in MAAS's DNS.
func (w *world) endpoint(cluster *infrav1.MaasCluster) []string {
	var addresses []string
	for _, address := range w.maas.Lookup(cluster.Spec.ControlPlaneEndpoint.Host) {
		addresses = append(addresses, address.String())
	}
	slices.Sort(addresses)
	return addresses
}

// deleteCluster deletes a Cluster as Cluster API does: the infrastructure first.
func (w *world) deleteCluster(cluster *infrav1.MaasCluster) {
	w.t.Helper()
	w.delete(cluster)
	w.delete(w.cluster)
}

// poke triggers a reconcile of an object.
func (w *world) poke(object client.Object) {
	w.t.Helper()
	w.must(w.client.Get(w.t.Context(), client.ObjectKeyFromObject(object), object))
	before := object.DeepCopyObject().(client.Object)
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations["poked"] = time.Now().String()
	object.SetAnnotations(annotations)
	w.must(w.client.Patch(w.t.Context(), object, client.MergeFrom(before)))
}

func (w *world) eventuallyWorkload(object client.Object, done func() bool) {
	w.t.Helper()
	w.await(object.GetName()+" is right in the workload cluster", object, func(ctx context.Context) bool {
		return w.workload.Get(ctx, client.ObjectKeyFromObject(object), object) == nil && done()
	})
}

// maasCall makes a call to MAAS as another client.
func (w *world) maasCall(method, path string, form url.Values) {
	w.t.Helper()
	simtest.Call(w.t, w.maas, "admin:token:secret", method, path, form)
}

func (w *world) allocateAs(agent, systemID string) {
	w.t.Helper()
	w.maasCall(http.MethodPost, "machines/?op=allocate", url.Values{"system_id": {systemID}, "agent_name": {agent}})
}

func TestClusterLife(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before := w.maas.State()
	cluster := w.provisionedCluster()

	t.Run("it is provisioned with an endpoint and zones", func(t *testing.T) {
		want := infrav1.APIEndpoint{Host: maas.EndpointLabel(clusterName, cluster.Annotations[infrav1.OwnerIDAnnotation]) + ".maas.sim", Port: 6443}
		if diff := cmp.Diff(want, cluster.Spec.ControlPlaneEndpoint); diff != "" {
			t.Errorf("the endpoint differs (-want +got):\n%s", diff)
		}
		var zones []string
		for _, domain := range cluster.Status.FailureDomains {
			zones = append(zones, domain.Name)
		}
		if diff := cmp.Diff([]string{"zone-a", "zone-b", "zone-c"}, zones); diff != "" {
			t.Errorf("the failure domains differ (-want +got):\n%s", diff)
		}
		if got := conditions.GetReason(cluster, infrav1.DNSReadyCondition); got != infrav1.WaitingForControlPlaneReason {
			t.Errorf("DNSReady is %s, want %s", got, infrav1.WaitingForControlPlaneReason)
		}
	})
	t.Run("the record leads to the control plane, and is not taken away when the last one goes", func(t *testing.T) {
		m := w.deployedMachine("cp", true, vm)
		w.eventually(m, "in DNS", func() bool { return m.Status.DNSAttached })
		if got := w.endpoint(cluster); !slices.Equal(got, []string{m.Status.Addresses[0].Address}) {
			t.Errorf("the endpoint leads to %v, want %v", got, m.Status.Addresses)
		}
		w.maas.ResetCalls()
		w.delete(m)
		for key := range w.maas.Calls().ByKey {
			if strings.HasPrefix(key.Endpoint, "dnsresources") && key.Method != http.MethodGet {
				t.Errorf("the record of a live cluster was written: %+v", key)
			}
		}
	})
	t.Run("nothing is left of it", func(t *testing.T) {
		w.deleteCluster(cluster)
		w.unchanged(before)
	})
}

func TestClusterRefusals(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change            func(*infrav1.MaasCluster)
		condition, reason string
	}{
		"no Secret":                        {func(c *infrav1.MaasCluster) { c.Spec.CredentialsRef.Name = "nosuch" }, infrav1.FailureDomainsReadyCondition, infrav1.CredentialsInvalidReason},
		"no credentials":                   {func(c *infrav1.MaasCluster) { c.Spec.CredentialsRef = nil }, infrav1.FailureDomainsReadyCondition, infrav1.CredentialsInvalidReason},
		"a wrong key":                      {func(c *infrav1.MaasCluster) { c.Spec.CredentialsRef.Name = "wrong" }, infrav1.FailureDomainsReadyCondition, infrav1.CredentialsInvalidReason},
		"no such zone":                     {func(c *infrav1.MaasCluster) { c.Spec.FailureDomains = []string{"zone-a", "zone-z"} }, infrav1.FailureDomainsReadyCondition, infrav1.ZonesNotFoundReason},
		"no zone at all":                   {func(c *infrav1.MaasCluster) { c.Spec.FailureDomains = []string{"zone-y", "zone-z"} }, infrav1.FailureDomainsReadyCondition, infrav1.ZonesNotFoundReason},
		"no such domain":                   {func(c *infrav1.MaasCluster) { c.Spec.DNSDomain = "nosuch.example" }, infrav1.DNSReadyCondition, infrav1.DomainNotFoundReason},
		"a virtual IP that is taken":       {at("10.77.0.2"), infrav1.DNSReadyCondition, infrav1.VirtualIPInUseReason},
		"a virtual IP outside all subnets": {at("192.0.2.1"), infrav1.DNSReadyCondition, infrav1.VirtualIPInvalidReason},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.create(&corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Name: "wrong", Namespace: w.namespace},
				StringData: map[string]string{"endpoint": w.maasURL, "apiKey": "admin:token:wrong"},
			})
			before := w.maas.State()
			cluster := w.newCluster(tc.change)
			w.eventually(cluster, tc.reason, func() bool {
				return conditions.IsFalse(cluster, tc.condition) && conditions.GetReason(cluster, tc.condition) == tc.reason
			})
			if !conditions.IsFalse(cluster, infrav1.ReadyCondition) || conditions.GetReason(cluster, infrav1.ReadyCondition) != tc.reason {
				t.Errorf("Ready is %+v", conditions.Get(cluster, infrav1.ReadyCondition))
			}
			w.stored(cluster)
			if tc.reason == infrav1.ZonesNotFoundReason && len(cluster.Status.FailureDomains) == 0 && ptr.Deref(cluster.Status.Initialization.Provisioned, false) {
				t.Error("machines may be made anywhere")
			}
			w.unchanged(before)
			w.deleteCluster(cluster) // It does not wait for a machine that never existed.
		})
	}
}

// A name in a domain that MAAS has, and is not authoritative for, never resolves. Nothing is made for it.
func TestADomainThatMAASIsNotAuthoritativeFor(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*infrav1.MaasCluster){
		"a name":       func(*infrav1.MaasCluster) {},
		"a virtual IP": func(c *infrav1.MaasCluster) { c.Spec.VirtualIP = &infrav1.VirtualIP{Subnet: "10.77.0.0/24"} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.maasCall(http.MethodPost, "domains/", url.Values{"name": {"ext.sim"}, "authoritative": {"false"}})
			before := w.maas.State()
			cluster := w.newCluster(change, func(c *infrav1.MaasCluster) { c.Spec.DNSDomain = "ext.sim" })
			w.eventually(cluster, "refused", func() bool {
				return conditions.IsFalse(cluster, infrav1.DNSReadyCondition) &&
					conditions.GetReason(cluster, infrav1.DNSReadyCondition) == infrav1.DomainNotAuthoritativeReason
			})
			w.stored(cluster)
			if cluster.Spec.ControlPlaneEndpoint.Host != "" || ptr.Deref(cluster.Status.Initialization.Provisioned, false) {
				t.Errorf("it has the endpoint %+v and the status %+v", cluster.Spec.ControlPlaneEndpoint, cluster.Status.Initialization)
			}
			w.unchanged(before)
			w.maasCall(http.MethodPut, "domains/ext.sim/", url.Values{"authoritative": {"true"}})
			w.await("it is provisioned once MAAS serves the domain", cluster, func(ctx context.Context) bool {
				w.nudge(cluster)
				return w.sees(ctx, cluster) == nil && ptr.Deref(cluster.Status.Initialization.Provisioned, false)
			})
		})
	}
}

// A rollout that waits for room says so on the cluster, as long as it waits.
func TestAClusterSaysWhichMachinesWaitForRoom(t *testing.T) {
	t.Parallel()
	w, cluster := clusterWorld(t)
	fits := w.newMachine("fits", false, vm)
	metal := w.newMachine("metal", false, infrav1.MaasMachineSpec{MinCPU: 64})
	large := w.newMachine("large", false, withSpec(vm, func(s *infrav1.MaasMachineSpec) { s.MinCPU = 64 }))
	w.deployed(fits)
	waiting := func(words ...string) func() bool {
		return func() bool {
			c := conditions.Get(cluster, infrav1.MachinesHaveRoomCondition)
			return c != nil && c.Reason == infrav1.WaitingForRoomReason && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(c.Message, w) })
		}
	}
	w.eventually(cluster, "waiting for room for both", waiting("2 machine(s)", "large: ", "3 too small for the VM", "metal: "))
	if got := conditions.GetReason(cluster, infrav1.ReadyCondition); got == infrav1.WaitingForRoomReason {
		t.Errorf("it decides about Ready")
	}
	w.delete(large)
	w.eventually(cluster, "waiting for room for one", waiting("1 machine(s)", "metal: "))
	w.delete(metal)
	w.eventually(cluster, "not waiting", func() bool { return !conditions.Has(cluster, infrav1.MachinesHaveRoomCondition) })
}
