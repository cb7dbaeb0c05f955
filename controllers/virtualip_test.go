// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"net/http"
	"net/netip"
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/simulator"
)

const (
	virtualIP     = "10.77.0.61"
	virtualSubnet = "10.77.0.0/24"
)

func at(address string) func(*infrav1.MaasCluster) {
	return func(c *infrav1.MaasCluster) { c.Spec.VirtualIP = &infrav1.VirtualIP{Address: address} }
}

func somewhere(c *infrav1.MaasCluster) {
	c.Spec.VirtualIP = &infrav1.VirtualIP{Subnet: virtualSubnet}
}

// reserved is what is reserved under the cluster's name.
func (w *world) reserved(cluster *infrav1.MaasCluster) []netip.Addr {
	return w.maas.Lookup((&scope.Cluster{MaasCluster: cluster}).EndpointName())
}

func TestVirtualIPIsTheEndpoint(t *testing.T) {
	t.Parallel()
	for name, choose := range map[string]func(*infrav1.MaasCluster){"an address": at(virtualIP), "MAAS chooses": somewhere} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			before := w.maas.State()
			cluster := w.newCluster(choose)
			w.provisioned(cluster)
			host := netip.MustParseAddr(cluster.Spec.ControlPlaneEndpoint.Host)
			if cluster.Spec.VirtualIP.Address != "" && host.String() != virtualIP {
				t.Errorf("the endpoint is %s, want %s", host, virtualIP)
			}
			if !netip.MustParsePrefix(virtualSubnet).Contains(host) {
				t.Errorf("the endpoint %s is not in %s", host, virtualSubnet)
			}
			if cluster.Spec.ControlPlaneEndpoint.Port != 6443 {
				t.Errorf("the port is %d, want 6443", cluster.Spec.ControlPlaneEndpoint.Port)
			}
			w.eventually(cluster, "its endpoint is ready", func() bool {
				return conditions.GetReason(cluster, infrav1.DNSReadyCondition) == infrav1.VirtualIPReason
			})
			m := w.newMachine("cp", true, vm)
			w.deployed(m)
			w.eventually(m, "it is attached", func() bool {
				return conditions.GetReason(m, infrav1.DNSAttachedCondition) == infrav1.VirtualIPReason
			})
			if diff := cmp.Diff([]netip.Addr{host}, w.reserved(cluster), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
				t.Errorf("with a control plane, the name leads elsewhere (-want +got):\n%s", diff)
			}
			w.delete(m)
			w.deleteCluster(cluster)
			w.unchanged(before)
		})
	}
}

func TestVirtualIPIsReservedOnceWhateverBecomesOfTheAnswer(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]simulator.Fault{
		"the answer is lost":         {DropAfter: true},
		"the request is lost":        {DropBefore: true},
		"the answer can't be read":   {Garbage: true},
		"MAAS has a moment of doubt": {Status: http.StatusBadGateway},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			before := w.maas.State()
			fault.Method, fault.Endpoint, fault.Op, fault.First = http.MethodPost, "ipaddresses/", "reserve", 1
			if _, err := w.maas.AddFault(fault); err != nil {
				t.Fatal(err)
			}
			cluster := w.newCluster(somewhere)
			w.provisioned(cluster)
			if reserved := w.reserved(cluster); len(reserved) != 1 || reserved[0].String() != cluster.Spec.ControlPlaneEndpoint.Host {
				t.Errorf("%v are reserved, want %s", reserved, cluster.Spec.ControlPlaneEndpoint.Host)
			}
			w.deleteCluster(cluster)
			w.unchanged(before)
		})
	}
}

func TestVirtualIPOfAClusterThatGoesAtOnceIsGivenBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before := w.maas.State()
	if _, err := w.maas.AddFault(simulator.Fault{Method: http.MethodPost, Endpoint: "ipaddresses/", Op: "reserve", DropAfter: true, First: 1}); err != nil {
		t.Fatal(err)
	}
	cluster := w.newCluster(somewhere)
	w.eventually(cluster, "MAAS was asked", func() bool { return cluster.Annotations[infrav1.AcquireStartedAnnotation] != "" })
	w.deleteCluster(cluster)
	w.unchanged(before)
}

func TestVirtualIPThatCanNotBeHad(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		address, reason string
	}{
		"taken":                    {virtualIP, infrav1.VirtualIPInUseReason},
		"in a dynamic range":       {"10.77.0.201", infrav1.VirtualIPInvalidReason},
		"outside of all subnets":   {"192.0.2.1", infrav1.VirtualIPInvalidReason},
		"IPv6 where there is none": {"2001:db8::1", infrav1.VirtualIPInvalidReason},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.maasCall(http.MethodPost, "ipaddresses/?op=reserve", url.Values{"ip": {virtualIP}})
			before := w.maas.State()
			cluster := w.newCluster(at(tc.address))
			w.eventually(cluster, "it says why", func() bool {
				return conditions.GetReason(cluster, infrav1.DNSReadyCondition) == tc.reason
			})
			if cluster.Spec.ControlPlaneEndpoint.Host != "" {
				t.Errorf("the endpoint is %s, want none", cluster.Spec.ControlPlaneEndpoint.Host)
			}
			w.deleteCluster(cluster)
			w.unchanged(before)
		})
	}
}
