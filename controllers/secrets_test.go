// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// Secret parts of API keys, as long as MAAS's own.
const (
	rightKeySecret = "V8RvqFxWmNTn4dPz2hYkCj6sLbQ3gXeA"
	wrongKeySecret = "m7ZpKcWt5JyBqR9fUx3HdNvG2eSa8LkT"
)

// leaks returns the places where people can read a text: log, events, all objects but Secrets, and metrics.
func (w *world) leaks(text string) []string {
	w.t.Helper()
	var places []string
	look := func(place, content string) {
		if strings.Contains(content, text) {
			places = append(places, place)
		}
	}
	logs, err := filepath.Glob(filepath.Join(filepath.Dir(w.t.TempDir()), "*", "manager-*.log"))
	if err != nil || len(logs) != 1 {
		w.t.Fatalf("the manager's logs are %v: %v", logs, err)
	}
	log, err := os.ReadFile(logs[0])
	if err != nil || len(log) == 0 {
		w.t.Fatalf("%d bytes of log: %v", len(log), err)
	}
	look("log", string(log))
	for _, list := range []client.ObjectList{
		&corev1.EventList{}, &eventsv1.EventList{}, &infrav1.MaasClusterList{}, &infrav1.MaasMachineList{}, &infrav1.LXDHostList{}, &clusterv1.ClusterList{},
		&clusterv1.MachineList{}, &corev1.ConfigMapList{}, &appsv1.DaemonSetList{},
	} {
		w.must(w.client.List(w.t.Context(), list, client.InNamespace(w.namespace)))
		content, err := json.Marshal(list)
		if err != nil {
			w.t.Fatal(err)
		}
		look(fmt.Sprintf("%T", list), string(content))
	}
	look("metrics", metricsText(w.t))
	return places
}

// metricsText returns the text of /metrics.
func metricsText(t *testing.T) string {
	t.Helper()
	ours := prometheus.NewRegistry()
	ours.MustRegister(maas.Collectors()...)
	var text strings.Builder
	for _, from := range []prometheus.Gatherer{metrics.Registry, ours} {
		families, err := from.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			fmt.Fprintln(&text, family.String())
		}
	}
	return text.String()
}

func (w *world) useKeySecret(secret string) {
	w.t.Helper()
	credentials := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "maas", Namespace: w.namespace}}
	patch := fmt.Sprintf(`{"stringData":{"apiKey":"admin:token:%s"}}`, secret)
	w.must(w.client.Patch(w.t.Context(), credentials, client.RawPatch("application/merge-patch+json", []byte(patch))))
}

// TestTheAPIKeyIsNeverShown: machines are created and deleted, MAAS fails and repeats requests in its errors, and
// rejects a wrong key with an error that contains the right one.
func TestTheAPIKeyIsNeverShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) {
		w.region = strings.ReplaceAll(region, "admin:token:secret", "admin:token:"+rightKeySecret)
	})
	w.useKeySecret(rightKeySecret)
	cluster := w.provisionedCluster()

	// MAAS, or a proxy before it, repeats the request in its error.
	w.fault(simulator.Fault{
		Method: http.MethodPost, Op: "compose", Status: http.StatusInternalServerError, First: 1,
		Body: `Request was: Authorization: OAuth oauth_signature="%26` + rightKeySecret + `"`,
	})
	m := w.deployedMachine("cp-0", true, vm)
	w.useKeySecret(wrongKeySecret)
	w.poke(cluster)
	w.eventually(cluster, "without a key", func() bool {
		c := conditions.Get(cluster, infrav1.ReadyCondition)
		return c != nil && c.Reason == infrav1.CredentialsInvalidReason
	})
	for _, said := range []string{"Request was:", "Invalid signature."} {
		w.eventually(cluster, "MAAS's words where people read them: "+said, func() bool { return len(w.leaks(said)) > 0 })
	}
	for _, secret := range []string{rightKeySecret, wrongKeySecret} {
		if places := w.leaks(secret); len(places) > 0 {
			t.Errorf("the key's secret is in %v", places)
		}
	}

	w.useKeySecret(rightKeySecret)
	w.poke(cluster)
	w.poke(m)
	w.deployed(m)
	w.delete(m)
	w.delete(cluster)
	if places := w.leaks(rightKeySecret); len(places) > 0 {
		t.Errorf("the key's secret is in %v", places)
	}
	t.Run("and would be found", w.plantedIsFound)
}

// plantedIsFound proves that leaks searches all these places.
func (w *world) plantedIsFound(t *testing.T) {
	const planted = "planted-PjX4mCq8Zt"
	meta := metav1.ObjectMeta{Name: "planted", Namespace: w.namespace}
	w.create(&corev1.Event{
		ObjectMeta: meta, InvolvedObject: corev1.ObjectReference{Namespace: w.namespace}, Message: planted, Type: corev1.EventTypeNormal,
		Reason: "Planted", ReportingController: "test", ReportingInstance: "test", Action: "Plant", EventTime: metav1.NowMicro(),
	})
	w.create(&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"key": planted}})
	machine := &infrav1.MaasMachine{ObjectMeta: meta, Spec: vm}
	machine.Spec.Image = "ubuntu/jammy"
	w.create(machine)
	w.patchStatus(machine, func() {
		conditions.Set(machine, metav1.Condition{Type: "Planted", Status: metav1.ConditionFalse, Reason: "Planted", Message: planted})
	})
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "planted_total", ConstLabels: prometheus.Labels{"key": planted}})
	metrics.Registry.MustRegister(counter)
	defer metrics.Registry.Unregister(counter)
	logs, err := filepath.Glob(filepath.Join(filepath.Dir(w.t.TempDir()), "*", "manager-*.log"))
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.OpenFile(logs[0], os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	fmt.Fprintln(log, planted)

	found := w.leaks(planted)
	for _, place := range []string{"log", "*v1.EventList", "*v1beta1.MaasMachineList", "*v1.ConfigMapList", "metrics"} {
		if !slices.Contains(found, place) {
			t.Errorf("a secret in %s is not found, only in %v", place, found)
		}
	}
}
