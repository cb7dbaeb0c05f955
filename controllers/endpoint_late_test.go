// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// withLateWrites leaves time for what MAAS does late.
func withLateWrites(w *world) { w.settleTime = 15 * time.Second }

// fault makes a call fail from now on.
func (w *world) fault(fault simulator.Fault) {
	w.t.Helper()
	if _, err := w.maas.AddFault(fault); err != nil {
		w.t.Fatal(err)
	}
}

// cannotPublish waits until the response to a write for a control plane is lost.
func (w *world) cannotPublish(m *infrav1.MaasMachine) {
	w.t.Helper()
	w.eventually(m, "MAAS was asked", func() bool {
		return conditions.GetReason(m, infrav1.DNSAttachedCondition) == infrav1.MAASUnavailableReason
	})
}

// A write of the record whose response was lost may take effect when the control plane that it was for is gone.
func TestALateWriteOfTheEndpointIsCorrected(t *testing.T) {
	t.Parallel()
	w, cluster := clusterWorld(t, withLateWrites)
	first := w.deployedMachine("cp-0", true, vm)
	w.join(first)
	w.eventually(first, "in DNS", func() bool { return first.Status.DNSAttached })
	right := w.endpoint(cluster)
	w.fault(simulator.Fault{Method: http.MethodPut, Endpoint: "dnsresources/{id}/", DropBefore: true})
	second := w.deployedMachine("cp-1", true, infrav1.MaasMachineSpec{})
	w.join(second)
	w.cannotPublish(second)
	late := right[0] + " " + clusters.EndpointAddress(second)
	w.delete(second)
	w.maas.ClearFaults()
	records, err := w.maasClient().ListDNSResources(t.Context(), cluster.Spec.ControlPlaneEndpoint.Host)
	if err != nil || len(records) != 1 || !slices.Equal(w.endpoint(cluster), right) {
		t.Fatalf("the records are %+v, %v", records, err)
	}
	w.maasCall(http.MethodPut, "dnsresources/"+strconv.Itoa(records[0].ID)+"/", url.Values{"ip_addresses": {late}})
	if got := w.endpoint(cluster); len(got) != 2 {
		t.Fatalf("the late write has made the record %v", got)
	}
	w.await("the record is right again", cluster, func(context.Context) bool { return slices.Equal(w.endpoint(cluster), right) })
}

// The first write of the record may even come when the cluster goes.
func TestTheEndpointOfAClusterThatGoesAtOnceIsDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withLateWrites)
	before := w.maas.State()
	cluster := w.provisionedCluster()
	w.fault(simulator.Fault{Method: http.MethodPost, Endpoint: "dnsresources/", DropBefore: true})
	m := w.deployedMachine("cp", true, vm)
	w.cannotPublish(m)
	w.beginDeletion(cluster)
	w.delete(m)
	w.eventually(cluster, "waiting until MAAS can't make it any more", func() bool {
		return conditions.GetReason(cluster, infrav1.DNSReadyCondition) == infrav1.MAASUnavailableReason
	})
	w.maas.ClearFaults()
	w.maasCall(http.MethodPost, "dnsresources/", url.Values{
		"fqdn": {cluster.Spec.ControlPlaneEndpoint.Host}, "ip_addresses": {"10.77.0.99"},
	})
	w.goes(cluster)
	w.delete(w.cluster)
	w.unchanged(before)
}

// Credentials for another MAAS don't lose a record that is all that is left of a cluster.
func TestCredentialsThatLeadToAnotherMAASLoseNoEndpoint(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	home, homeURL, before := w.maas, w.maasURL, w.maas.State()
	cluster := w.provisionedCluster()
	m := w.deployedMachine("cp", true, infrav1.MaasMachineSpec{})
	w.eventually(m, "it is attached", func() bool { return conditions.IsTrue(m, infrav1.DNSAttachedCondition) })
	w.fault(simulator.Fault{Method: http.MethodGet, Endpoint: "dnsresources/", Status: http.StatusBadGateway})
	w.beginDeletion(cluster)
	w.delete(m)
	w.setEndpoint(w.startMAAS())
	w.eventually(cluster, "the cluster reports it", func() bool {
		return conditions.GetReason(cluster, infrav1.DNSReadyCondition) == infrav1.CredentialsInvalidReason
	})
	home.ClearFaults()
	w.setEndpoint(strings.Replace(homeURL, "127.0.0.1", "localhost", 1))
	w.goes(cluster)
	w.delete(w.cluster)
	w.maas = home
	w.unchanged(before)
}
