// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
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

// reserved returns the addresses that are reserved under the cluster's name.
func (w *world) reserved(cluster *infrav1.MaasCluster) []netip.Addr {
	return w.maas.Lookup((&scope.Cluster{Cluster: w.cluster, MaasCluster: cluster}).EndpointName())
}

func TestVirtualIPIsReservedOnceWhateverBecomesOfTheAnswer(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]simulator.Fault{
		"the response is lost":       {DropAfter: true},
		"the request is lost":        {DropBefore: true},
		"the response can't be read": {Garbage: true},
		"MAAS has a moment of doubt": {Status: http.StatusBadGateway},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			before := w.maas.State()
			fault.Method, fault.Endpoint, fault.Op, fault.First = http.MethodPost, "ipaddresses/", "reserve", 1
			w.fault(fault)
			cluster := w.provisionedCluster(somewhere)
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
	w.fault(simulator.Fault{Method: http.MethodPost, Endpoint: "ipaddresses/", Op: "reserve", DropAfter: true, First: 1})
	cluster := w.newCluster(somewhere)
	w.eventually(cluster, "MAAS was asked", func() bool { return mayReserve(t, cluster) })
	w.deleteCluster(cluster)
	w.unchanged(before)
}

// An address that was reserved for a spec, which changed before the response came, is released, whatever the spec wants
// now. Up to 3.6.0 MAAS does not do that when the name is deleted.
func TestVirtualIPThatIsChangedBeforeItIsKnown(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ before, after func(*infrav1.MaasCluster) }{
		"another address":              {at(virtualIP), at("10.77.0.62")},
		"an address of another subnet": {somewhere, func(c *infrav1.MaasCluster) { c.Spec.VirtualIP = &infrav1.VirtualIP{Subnet: "10.78.0.0/24"} }},
		"a name in MAAS's DNS":         {somewhere, func(c *infrav1.MaasCluster) { c.Spec.VirtualIP = nil }},
		"an endpoint that the user has": {at(virtualIP), func(c *infrav1.MaasCluster) {
			c.Spec.VirtualIP, c.Spec.ControlPlaneEndpoint.Host = nil, "api.example.com"
		}},
		"nothing, for the cluster goes":     {somewhere, nil},
		"a name, and then the cluster goes": {somewhere, func(c *infrav1.MaasCluster) { c.Spec.VirtualIP = nil; c.Labels["goes"] = "" }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(w *world) {
				w.version = "3.5.13"
				w.region = strings.Replace(w.region, "subnets: [", "subnets: [{cidr: 10.78.0.0/24}, ", 1)
			})
			before := w.maas.State()
			lost := simulator.Fault{Method: http.MethodPost, Endpoint: "ipaddresses/", Op: "reserve", DropAfter: true, First: 1}
			unread := simulator.Fault{Method: http.MethodGet, Endpoint: "dnsresources/", Status: http.StatusBadGateway}
			var asked atomic.Bool // Before that it may only read.
			w.maas.ChooseFaults(func(c simulator.Call) *simulator.Fault {
				switch {
				case c.Method == lost.Method && c.Op == lost.Op && c.Endpoint == lost.Endpoint:
					asked.Store(true)
					return &lost
				case c.Method == unread.Method && c.Endpoint == unread.Endpoint && asked.Load():
					return &unread
				}
				return nil
			})
			cluster := w.newCluster(tc.before)
			w.eventually(cluster, "MAAS was asked", func() bool {
				return mayReserve(t, cluster) && len(w.reserved(cluster)) == 1
			})
			if tc.after != nil {
				w.eventually(cluster, "changed", func() bool { tc.after(cluster); return w.client.Update(t.Context(), cluster) == nil })
			}
			w.maas.ChooseFaults(nil)
			if _, goes := cluster.Labels["goes"]; tc.after != nil && !goes {
				w.provisioned(cluster)
				if reserved := w.reserved(cluster); cluster.Spec.VirtualIP != nil && (len(reserved) != 1 || reserved[0].String() != cluster.Spec.ControlPlaneEndpoint.Host) {
					t.Errorf("%v are reserved, want %s", reserved, cluster.Spec.ControlPlaneEndpoint.Host)
				}
			}
			w.deleteCluster(cluster)
			w.unchanged(before)
		})
	}
}

// MAAS frees an address by its number, whoever of our clusters has it by then. So a release whose response was lost is
// not repeated, and the cluster does not go, before it can't take effect any more; once its effect shows, nothing waits
// for it.
func TestAVirtualIPIsNotFreedByALateReleaseOfAnEarlierCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) { w.settleTime = time.Hour })
	before := w.maas.State()
	cluster := w.provisionedCluster(at(virtualIP))
	var looks, releases atomic.Int32
	lost := simulator.Fault{Method: http.MethodPost, Endpoint: "ipaddresses/", Op: "release", DropBefore: true}
	w.maas.ChooseFaults(func(c simulator.Call) *simulator.Fault {
		if c.Method == http.MethodGet && c.Endpoint == "dnsresources/" {
			looks.Add(1)
		}
		if c.Method != lost.Method || c.Endpoint != lost.Endpoint || c.Op != lost.Op || releases.Add(1) > 1 {
			return nil
		}
		return &lost
	})
	w.beginDeletion(cluster)
	w.eventually(cluster, "waiting", func() bool {
		return conditions.GetReason(cluster, infrav1.DNSReadyCondition) == infrav1.MAASUnavailableReason
	})
	w.restart()   // A new manager knows it as well.
	for range 2 { // When it looks again, it is done with what followed from the look before.
		looked := looks.Load()
		w.poke(cluster)
		w.await("the manager looks for the name", cluster, func(context.Context) bool { return looks.Load() > looked })
	}
	if reserved := w.reserved(cluster); len(reserved) != 1 || releases.Load() != 1 {
		t.Fatalf("%v are reserved, after %d releases", reserved, releases.Load())
	}
	w.maasCall(http.MethodPost, "ipaddresses/?op=release", url.Values{"ip": {virtualIP}})
	w.poke(cluster)
	w.deleteCluster(cluster)
	w.unchanged(before)
}

// What MAAS has reserved for a DNS record is freed by its number, too: also then a release whose response was lost is not
// repeated, and the cluster does not go, before it can't take effect any more.
func TestAnAddressOfAnEndpointIsNotFreedByALateRelease(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) { w.settleTime = time.Hour })
	before := w.maas.State()
	cluster := w.provisionedCluster()
	w.maasCall(http.MethodPost, "dnsresources/", url.Values{ // A late write of an address that no machine has any more.
		"fqdn": {cluster.Spec.ControlPlaneEndpoint.Host}, "ip_addresses": {virtualIP},
	})
	var looks, releases atomic.Int32
	lost := simulator.Fault{Method: http.MethodPost, Endpoint: "ipaddresses/", Op: "release", DropBefore: true}
	w.maas.ChooseFaults(func(c simulator.Call) *simulator.Fault {
		if c.Method == http.MethodGet && c.Endpoint == "dnsresources/" {
			looks.Add(1)
		}
		if c.Method != lost.Method || c.Endpoint != lost.Endpoint || c.Op != lost.Op || releases.Add(1) > 1 {
			return nil
		}
		return &lost
	})
	w.beginDeletion(cluster)
	w.await("MAAS is asked to free it", cluster, func(context.Context) bool { return releases.Load() > 0 })
	w.restart()   // A new manager knows it as well.
	for range 2 { // When it looks again, it is done with what followed from the look before.
		looked := looks.Load()
		w.poke(cluster)
		w.await("the manager looks for the record", cluster, func(context.Context) bool { return looks.Load() > looked })
	}
	data, err := record.OfCluster(cluster)
	if err != nil || !data.IsPending(record.Unreserve) || len(w.reserved(cluster)) != 1 || releases.Load() != 1 {
		t.Fatalf("%v are reserved, after %d releases; recorded is %+v, %v", w.reserved(cluster), releases.Load(), data, err)
	}
	data.Pending = []record.Pending{{Op: record.Unreserve, At: metav1.NewTime(time.Now().Add(-2 * time.Hour))}}
	w.annotate(cluster, infrav1.RecordAnnotation, new(recordText(t, data))) // As if that had been so long ago.
	w.goes(cluster)
	w.delete(w.cluster)
	w.unchanged(before)
}

// mayReserve reports whether the outcome of a reservation is not known.
func mayReserve(t testing.TB, cluster *infrav1.MaasCluster) bool {
	t.Helper()
	data, err := record.OfCluster(cluster)
	if err != nil {
		t.Fatal(err)
	}
	return data.MayAcquire()
}
