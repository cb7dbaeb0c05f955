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

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	keeper "github.com/capmaas/cluster-api-provider-maas/controllers/quarantine"
	"github.com/capmaas/cluster-api-provider-maas/internal/states"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/quarantine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/rights"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
	"github.com/capmaas/cluster-api-provider-maas/test/hostile"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// inQuarantine reports whether a machine has the tag in MAAS.
func (w *world) inQuarantine(systemID string) bool {
	m, _ := w.maas.Machine(systemID)
	return slices.Contains(m.Tags, quarantine.Tag)
}

// failedOne makes a MaasMachine whose deployment fails, and returns it and the machine.
func (w *world) failedOne(name string) (m *infrav1.MaasMachine, systemID string) {
	w.t.Helper()
	w.failNext("deploy")
	m = w.newMachine(name, false, infrav1.MaasMachineSpec{})
	w.assessed(m, states.Assessment{Reason: infrav1.DeployFailedReason, Then: states.Replace})
	return m, m.Spec.SystemID
}

// restart ends the manager and starts another one, which remembers nothing.
func (w *world) restart() {
	w.t.Helper()
	w.stopManager()
	w.startManager()
}

// released waits until a machine is back in the pool.
func (w *world) released(systemID string) {
	w.t.Helper()
	w.await("the machine is in the pool", nil, func(context.Context) bool {
		m, _ := w.maas.Machine(systemID)
		return m.Status == "Ready"
	})
}

func TestAnotherManagerLeavesAFailedMachineAloneUntilItsTimeIsOver(t *testing.T) {
	t.Parallel()
	w, cluster := clusterWorld(t)
	first, failed := w.failedOne("first")
	w.await("it is quarantined", first, func(context.Context) bool { return w.inQuarantine(failed) })
	w.delete(first)
	w.restart()
	second := w.deployedMachine("second", false, infrav1.MaasMachineSpec{})
	if second.Spec.SystemID == failed {
		t.Fatal("the machine that failed was picked again, and there was another")
	}
	third := w.newMachine("third", false, infrav1.MaasMachineSpec{})
	w.eventually(third, "told which machine is quarantined", func() bool {
		message := conditions.GetMessage(third, infrav1.MachineDeployedCondition)
		return strings.Contains(message, failed) && strings.Contains(message, "capmaasctl machines lift") && !strings.Contains(message, "after its release")
	})
	_, clock := w.machineService(cluster)
	at := until(t, conditions.GetMessage(third, infrav1.MachineDeployedCondition))
	if at.Before(clock.now()) || at.After(clock.now().Add(quarantine.Limits.First+time.Minute)) {
		t.Errorf("at %v it is quarantined until %v", clock.now(), at)
	}
	w.restart()
	_, clock = w.machineService(cluster)
	clock.pass(quarantine.Limits.First)
	w.await("a manager lifts it", third, func(context.Context) bool { return !w.inQuarantine(failed) })
	w.poke(third)
	w.deployed(third)
	if third.Spec.SystemID != failed {
		t.Errorf("it is on %s", third.Spec.SystemID)
	}
}

// What MAAS does not tell stays as it was.
func TestTheKeeperCountsQuarantines(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t)
	metric := keeper.NewMetric()
	k := &keeper.Keeper{Scopes: w.scopes, Interval: 0, Quarantined: metric}
	counts := func(want float64) {
		t.Helper()
		k.Round(t.Context())
		if got := testutil.ToFloat64(metric); got != want {
			t.Errorf("%v machines are in quarantine, want %v", got, want)
		}
	}
	counts(0)
	w.maasCall(http.MethodPost, "tags/", url.Values{"name": {quarantine.Tag}})
	for _, m := range w.maas.Machines() {
		if strings.HasPrefix(m.Hostname, "metal-") {
			w.maasCall(http.MethodPost, "tags/"+quarantine.Tag+"/?op=update_nodes", url.Values{"add": {m.SystemID}})
		}
	}
	counts(2)
	id, err := w.maas.AddFault(simulator.Fault{Endpoint: "tags/{name}/", Status: http.StatusInternalServerError})
	if err != nil {
		t.Fatal(err)
	}
	counts(2)
	w.maas.RemoveFault(id)
	w.maasCall(http.MethodDelete, "tags/"+quarantine.Tag+"/", nil)
	counts(0)
}

// With entitlements, no identity sees all that is in quarantine.
func TestTheKeeperAsksEveryIdentity(t *testing.T) {
	t.Parallel()
	const key = "jill:token:secret"
	w := newWorld(t, withLeastKey("3.8", rights.BareMetal), func(w *world) {
		joe := w.region[strings.Index(w.region, "{name: joe"):strings.Index(w.region, "{name: admin")]
		jill := strings.NewReplacer("joe", "jill", plainUser, key, "pool: capi", "pool: others").Replace(joe)
		w.region = strings.NewReplacer(joe, joe+jill, "zone: zone-b, pool: capi", "zone: zone-b, pool: others").Replace(w.region)
	})
	w.setKey(plainUser)
	w.provisionedCluster(withoutDomain, external("api.example.com"))
	w.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "jill", Namespace: w.namespace}, StringData: map[string]string{"endpoint": w.maasURL, "apiKey": key},
	})
	other := &infrav1.MaasCluster{ObjectMeta: metav1.ObjectMeta{Name: "other", Namespace: w.namespace}}
	other.Spec.CredentialsRef = &infrav1.LocalObjectReference{Name: "jill"}
	if _, err := w.scopes.Anywhere(t.Context(), w.cluster, other); err != nil {
		t.Fatal(err)
	}
	w.maasCall(http.MethodPost, "tags/", url.Values{"name": {quarantine.Tag}})
	for _, m := range w.maas.Machines() {
		if strings.HasPrefix(m.Hostname, "metal-") {
			w.maasCall(http.MethodPost, "tags/"+quarantine.Tag+"/?op=update_nodes", url.Values{"add": {m.SystemID}})
		}
	}
	metric := keeper.NewMetric()
	k := &keeper.Keeper{Scopes: w.scopes, Interval: 0, Quarantined: metric}
	k.Round(t.Context())
	if got := testutil.ToFloat64(metric); got != 2 {
		t.Errorf("%v machines are in quarantine, want 2", got)
	}
}

func TestAPersonLiftsAQuarantine(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t)
	first, failed := w.failedOne("first")
	w.await("it is quarantined", first, func(context.Context) bool { return w.inQuarantine(failed) })
	w.eventually(first, "recorded", func() bool { return recorded(t, first).Quarantine == record.Quarantined })
	w.maasCall(http.MethodPost, "tags/"+quarantine.Tag+"/?op=update_nodes", url.Values{"remove": {failed}})
	w.poke(first)
	w.delete(first)
	w.released(failed)
	if w.inQuarantine(failed) {
		t.Error("it was quarantined again")
	}
}

// A key that is no administrator's: the failure stays in the manager's memory, and nothing else is different.
func TestAKeyThatMayNotQuarantine(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t)
	w.fault(simulator.Fault{Method: http.MethodPost, Endpoint: "tags/", Status: http.StatusForbidden})
	first, failed := w.failedOne("first")
	w.eventually(first, "refused", func() bool { return recorded(t, first).Quarantine == record.QuarantineRefused })
	w.await("an event says so", first, func(ctx context.Context) bool {
		list := &eventsv1.EventList{}
		return w.client.List(ctx, list, client.InNamespace(w.namespace)) == nil && slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool {
			return e.Reason == "QuarantineRefused" && e.Type == corev1.EventTypeWarning && e.Regarding.Name == first.Name
		})
	})
	w.delete(first)
	if w.inQuarantine(failed) {
		t.Fatal("it is quarantined")
	}
	second := w.deployedMachine("second", false, infrav1.MaasMachineSpec{})
	if second.Spec.SystemID == failed {
		t.Error("the machine that failed was picked again, and there was another")
	}
}

// The manager dies, or MAAS is gone, between the failure and the tag: the next reconcile completes it.
func TestAQuarantineThatWasInterrupted(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]simulator.Fault{
		"the request is lost":  {Op: "update_nodes", DropBefore: true, First: 1},
		"the response is lost": {Op: "update_nodes", DropAfter: true, First: 1},
		"before its note":      {Method: http.MethodPost, Endpoint: "tags/", DropBefore: true, First: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, _ := clusterWorld(t)
			w.fault(fault)
			first, failed := w.failedOne("first")
			w.restart()
			w.delete(first)
			w.released(failed)
			if !w.inQuarantine(failed) {
				t.Errorf("it is not quarantined; its record was %+v", recorded(t, first))
			}
		})
	}
}

// A machine that another user has by the time it fails is theirs, and is not quarantined.
func TestAMachineThatIsNotOursIsNotQuarantined(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t)
	m := w.deployedMachine("m", false, infrav1.MaasMachineSpec{})
	theirs := m.Spec.SystemID
	w.maasCall(http.MethodPost, "machines/"+theirs+"/?op=release", nil)
	w.released(theirs)
	w.allocateAs("juju", theirs)
	w.failNext("deploy")
	w.maasCall(http.MethodPost, "machines/"+theirs+"/?op=deploy", url.Values{"distro_series": {"ubuntu/jammy"}})
	w.await("it failed", m, func(context.Context) bool {
		seen, _ := w.maas.Machine(theirs)
		return seen.Status == "Failed deployment"
	})
	w.poke(m)
	w.delete(m)
	if w.inQuarantine(theirs) {
		t.Error("a machine of another user is quarantined")
	}
}

// A MAAS of a tenant hangs: quarantines elsewhere end, VM hosts elsewhere are shown, and nothing waits for it.
func TestAMAASThatHangsHoldsUpNoRound(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t)
	hangs := hostile.NewSilence()
	address := hostile.Serve(t, hangs)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "hangs", Namespace: w.namespace}, StringData: map[string]string{
		scope.EndpointKey: address + "/MAAS", scope.APIKeyKey: "a:b:c",
	}}
	w.create(secret)
	other := &infrav1.MaasCluster{ObjectMeta: metav1.ObjectMeta{Name: "hangs", Namespace: w.namespace}}
	other.Spec.CredentialsRef = &infrav1.LocalObjectReference{Name: secret.Name}
	w.await("its MAAS is used", other, func(ctx context.Context) bool {
		_, err := w.scopes.Cluster(ctx, &clusterv1.Cluster{}, other)
		return err == nil
	})
	t.Cleanup(func() { w.scopes.Release(other) })
	w.maasCall(http.MethodPost, "tags/", url.Values{"name": {quarantine.Tag}})
	for _, m := range w.maas.Machines() {
		if strings.HasPrefix(m.Hostname, "metal-") {
			w.maasCall(http.MethodPost, "tags/"+quarantine.Tag+"/?op=update_nodes", url.Values{"add": {m.SystemID}})
		}
	}
	// waitsNot makes a round, and checks that nothing in it waited for the call that hangs: it is open still. It may reach
	// the MAAS only when the round is over.
	waitsNot := func(round func()) {
		t.Helper()
		asked := hangs.Asked()
		round()
		w.await("a call of the round is under way still", other, func(context.Context) bool { return hangs.OpenAfter(asked) > 0 })
	}
	metric := keeper.NewMetric()
	waitsNot(func() {
		(&keeper.Keeper{Scopes: w.scopes, Quarantined: metric}).Round(t.Context())
	})
	if got := testutil.ToFloat64(metric); got != 2 {
		t.Errorf("%v machines are in quarantine, want those of the MAAS that answers", got)
	}
	waitsNot(func() { w.mirror(clock.RealClock{}, time.Minute).Sync(t.Context()) })
	list := &infrav1.LXDHostList{}
	w.must(w.client.List(t.Context(), list, client.InNamespace(w.namespace)))
	if len(list.Items) == 0 {
		t.Error("the VM hosts of the MAAS that answers have no LXDHosts")
	}
}
