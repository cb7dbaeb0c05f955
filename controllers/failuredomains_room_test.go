// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
)

// hangingList is a proxy before MAAS, behind which the list of all machines takes until it is released.
func (w *world) hangingList() (released chan struct{}) {
	w.t.Helper()
	target, err := url.Parse(strings.TrimSuffix(w.maasURL, "/MAAS"))
	if err != nil {
		w.t.Fatal(err)
	}
	released = make(chan struct{})
	proxy := httputil.NewSingleHostReverseProxy(target)
	front := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/machines/") && r.URL.RawQuery == "" {
			select {
			case <-released:
			case <-r.Context().Done():
			}
		}
		proxy.ServeHTTP(rw, r)
	}))
	w.t.Cleanup(front.Close)
	w.t.Cleanup(w.stopManager) // The list that hangs ends with it.
	w.setEndpoint(front.URL + "/MAAS")
	return released
}

func TestAListThatTakesLongKeepsNoClusterWaiting(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	released := w.hangingList()
	cluster := w.newCluster()
	w.controlPlane(infrav1.MaasMachineSpec{MinCPU: 8})
	w.eventually(cluster, "provisioned", func() bool {
		return ptr.Deref(cluster.Status.Initialization.Provisioned, false) && !cluster.Spec.ControlPlaneEndpoint.IsZero()
	})
	if diff := cmp.Diff([]string{"zone-a true map[]", "zone-b true map[]", "zone-c true map[]"}, domainsText(cluster)); diff != "" {
		t.Errorf("the failure domains while their room is not known differ (-want +got):\n%s", diff)
	}
	if !conditions.IsTrue(cluster, infrav1.FailureDomainsReadyCondition) {
		t.Errorf("FailureDomainsReady is %+v", conditions.Get(cluster, infrav1.FailureDomainsReadyCondition))
	}
	close(released)
	w.eventually(cluster, "told where control planes fit", func() bool {
		return slices.Equal(domainsText(cluster), []string{"zone-a true map[machines:1 room:1]", "zone-b true map[machines:1 room:1]", "zone-c false map[]"})
	})
}

func TestAMAASWithoutVMHostsKeepsNoEndpointWaiting(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) { w.version = "3.8.0" })
	cluster := w.newCluster()
	w.provisioned(cluster)
	w.controlPlane(infrav1.MaasMachineSpec{DynamicLXD: true})
	w.eventually(cluster, "told that MAAS has no VM hosts", func() bool {
		return conditions.GetReason(cluster, infrav1.FailureDomainsReadyCondition) == infrav1.VMHostsNotSupportedReason
	})
	if diff := cmp.Diff([]string{"zone-a true map[]", "zone-b true map[]", "zone-c true map[]"}, domainsText(cluster)); diff != "" {
		t.Errorf("the failure domains differ (-want +got):\n%s", diff)
	}
	m := w.newMachine("cp", true, infrav1.MaasMachineSpec{})
	w.deployed(m)
	w.eventually(cluster, "served by its control plane", func() bool { return conditions.IsTrue(cluster, infrav1.DNSReadyCondition) })
}

func TestZonesStayAsTheyWereWhileTheirRoomIsNotKnown(t *testing.T) {
	t.Parallel()
	domain := func(name string, able bool) clusterv1.FailureDomain {
		return clusterv1.FailureDomain{Name: name, ControlPlane: ptr.To(able), Attributes: map[string]string{infrav1.FailureDomainRoom: "1"}}
	}
	isNew := func(name string) clusterv1.FailureDomain {
		return clusterv1.FailureDomain{Name: name, ControlPlane: ptr.To(true)}
	}
	domains := func(list ...clusterv1.FailureDomain) []clusterv1.FailureDomain { return list }
	for name, tc := range map[string]struct {
		zones, wanted []string
		last, want    []clusterv1.FailureDomain
	}{
		"nothing was published":             {[]string{"default", "a", "b"}, nil, nil, domains(isNew("a"), isNew("b"))},
		"all that was published":            {[]string{"default", "a", "b"}, nil, domains(domain("a", true), domain("b", false)), domains(domain("a", true), domain("b", false))},
		"and the built-in one with it":      {[]string{"default", "a"}, nil, domains(domain("a", false), domain("default", true)), domains(domain("a", false), domain("default", true))},
		"a new zone":                        {[]string{"default", "a", "b"}, nil, domains(domain("a", false)), domains(domain("a", false), isNew("b"))},
		"a zone that is gone":               {[]string{"default", "b"}, nil, domains(domain("a", true), domain("b", false)), domains(domain("b", false))},
		"a zone that is not wanted anymore": {[]string{"default", "a", "b"}, []string{"b"}, domains(domain("a", true), domain("b", false)), domains(domain("b", false))},
	} {
		t.Run(name, func(t *testing.T) {
			var zones []maas.Ref
			for _, zone := range tc.zones {
				zones = append(zones, maas.Ref{Name: zone})
			}
			chosen, _ := chooseZones(zones, tc.wanted, nil)
			chosen, room := keepZones(chosen, zones, tc.wanted, tc.last)
			if diff := cmp.Diff(tc.want, failureDomains(chosen, room)); diff != "" {
				t.Errorf("the failure domains differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUnknownRoomIsLookedForAgainSoon(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		cause error
		want  time.Duration
	}{
		"MAAS lists its machines":  {inventory.ErrPending, pendingRetry},
		"MAAS can't be read":       {maas.Unavailable, capacityRetry},
		"MAAS says when":           {&maas.Error{Kind: maas.Unavailable, RetryAfter: 7 * time.Second}, 7 * time.Second},
		"MAAS has no VM hosts":     {maas.Gone, mendRetry},
		"something without a type": {http.ErrBodyNotAllowed, capacityRetry},
	} {
		t.Run(name, func(t *testing.T) {
			if got := (&roomError{tc.cause}).retryAfter(); got != tc.want {
				t.Errorf("it is looked for again after %s, want %s", got, tc.want)
			}
		})
	}
}
