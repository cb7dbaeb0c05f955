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

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// hangingList is a proxy for MAAS that delays the list of all machines until it is released.
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
	w.t.Cleanup(w.stopManager) // The delayed list ends with it.
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
	w.eventually(cluster, "updated with the zones where control planes fit", func() bool {
		return slices.Equal(domainsText(cluster), []string{"zone-a true map[machines:1 room:1]", "zone-b true map[machines:1 room:1]", "zone-c false map[]"})
	})
}
