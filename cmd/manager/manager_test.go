// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/core/setup"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/objectmetrics"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
)

var testFailures = objectmetrics.NewWatchFailures()

// testCacheOptions are the manager's. A process makes them once, because informers' names are its own.
var testCacheOptions = sync.OnceValue(func() cache.Options {
	scheme, err := newScheme()
	if err != nil {
		panic(err)
	}
	return cacheOptions(scheme, options{}, testFailures)
})

// client-go logs an error if two informers have one name, and omits the second one from the metrics.
func TestInformersOfSecretsHaveDifferentNames(t *testing.T) {
	var logged []string
	klog.SetLogger(funcr.New(func(_, line string) { logged = append(logged, line) }, funcr.Options{}))
	t.Cleanup(klog.ClearLogger)
	metadata := &metav1.PartialObjectMetadata{}
	metadata.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	newInformer := testCacheOptions().NewInformer
	for _, example := range []runtime.Object{&corev1.Secret{}, metadata} {
		newInformer(&toolscache.ListWatch{}, example, time.Hour, nil)
	}
	if len(logged) > 0 {
		t.Errorf("client-go says %q", logged)
	}
}

// serveUnreadable serves as an API server that has a MaasMachine whose status Go can't read.
func serveUnreadable(t *testing.T) *rest.Config {
	t.Helper()
	since := strings.ToLower(time.Now().UTC().Format(time.RFC3339))
	list := map[string]any{"apiVersion": infrav1.GroupVersion.String(), "kind": "MaasMachineList", "items": []any{map[string]any{
		"metadata": map[string]any{"namespace": "tenant", "name": "m"},
		"status":   map[string]any{"conditions": []any{map[string]any{"type": "Ready", "lastTransitionTime": since}}},
	}}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("watch") {
			http.Error(w, "no watch begins with a list", http.StatusUnprocessableEntity)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(list) // The client may be gone.
	}))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL}
}

// One object that can't be read keeps the manager from all of its kind. That is not silent.
func TestAKindThatCannotBeReadIsCounted(t *testing.T) {
	cacheOptions := testCacheOptions()
	var err error
	if cacheOptions.Scheme, err = newScheme(); err != nil {
		t.Fatal(err)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []schema.GroupVersionKind{infrav1.GroupVersion.WithKind("MaasMachine"), corev1.SchemeGroupVersion.WithKind("Secret")} {
		mapper.Add(kind, meta.RESTScopeNamespace)
	}
	cacheOptions.Mapper = mapper
	cached, err := cache.New(serveUnreadable(t), cacheOptions)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- cached.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the cache ended with %v", err)
		}
	})
	if _, err := cached.GetInformer(ctx, &infrav1.MaasMachine{}, cache.BlockUntilSynced(false)); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the failure is counted", func() bool { return testutil.ToFloat64(testFailures.WithLabelValues("MaasMachine")) > 0 })
}

func TestWhatNobodyReadsIsNotCached(t *testing.T) {
	now := metav1.NewTime(time.Unix(1, 0))
	of := func() metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Namespace: "n", Name: "m", UID: "u", ResourceVersion: "1", Generation: 2, DeletionTimestamp: &now, Finalizers: []string{"f"},
			Labels: map[string]string{"l": "v"}, Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: "{}", "a": "v"},
			OwnerReferences: []metav1.OwnerReference{{Name: "o"}}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
		}
	}
	kept, id := of(), metav1.ObjectMeta{Namespace: "n", Name: "m", UID: "u", ResourceVersion: "1", DeletionTimestamp: &now}
	kept.ManagedFields, kept.Annotations = nil, map[string]string{"a": "v"}
	spec := clusterv1.MachineSpec{ClusterName: "c"}
	status := clusterv1.MachineStatus{Phase: "Running", Conditions: []metav1.Condition{{Type: "Ready"}}}
	old := status
	old.Deprecated = &clusterv1.MachineDeprecatedStatus{}
	data, image := map[string][]byte{"value": []byte("kubeconfig")}, infrav1.MaasMachineSpec{Image: "i"}
	for _, test := range []struct{ in, want any }{
		{&metav1.PartialObjectMetadata{ObjectMeta: of()}, &metav1.PartialObjectMetadata{ObjectMeta: id}},
		{&corev1.Secret{ObjectMeta: of(), Type: "t", Data: data}, &corev1.Secret{ObjectMeta: id, Type: "t", Data: data}},
		{&infrav1.MaasMachine{ObjectMeta: of(), Spec: image}, &infrav1.MaasMachine{ObjectMeta: kept, Spec: image}},
		{&clusterv1.Machine{ObjectMeta: of(), Spec: spec, Status: old}, &clusterv1.Machine{ObjectMeta: kept, Spec: spec, Status: status}},
		{
			&clusterv1.Cluster{ObjectMeta: of(), Status: clusterv1.ClusterStatus{Phase: "p", Deprecated: &clusterv1.ClusterDeprecatedStatus{}}},
			&clusterv1.Cluster{ObjectMeta: kept, Status: clusterv1.ClusterStatus{Phase: "p"}},
		},
		{toolscache.DeletedFinalStateUnknown{Key: "k"}, toolscache.DeletedFinalStateUnknown{Key: "k"}},
	} {
		got, err := lean(test.in)
		if diff := cmp.Diff(test.want, got); diff != "" || err != nil {
			t.Errorf("%T: %v (-want +got):\n%s", test.in, err, diff)
		}
	}
}

// The manager watches some kinds in two forms, and options of a kind apply to both: also metadata lose what nothing
// reads, whatever else is done to the kind. Half of a Secret's metadata are managedFields.
func TestNothingInTheCacheHasManagedFields(t *testing.T) {
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	got := setup.ManagerCacheOptions(scheme, "a-test", "", time.Hour)
	makeLean(&got)
	transforms := map[string]func(any) (any, error){"all others": got.DefaultTransform}
	for object, its := range got.ByObject {
		if its.Transform != nil {
			transforms[fmt.Sprintf("%T", object)] = its.Transform
		}
	}
	if transforms["*v1.Secret"] == nil {
		t.Error("Secrets have no transform of their own, which drops their data")
	}
	for kind, transform := range transforms {
		of := metav1.ObjectMeta{Name: "c1-etcd", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}}
		for _, in := range []client.Object{&metav1.PartialObjectMetadata{ObjectMeta: of}, &corev1.Secret{ObjectMeta: of}} {
			if out, err := transform(in); err != nil || out.(client.Object).GetManagedFields() != nil {
				t.Errorf("the transform of %s leaves a %T its managedFields (%v)", kind, in, err)
			}
		}
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "c1-etcd"}, Data: map[string][]byte{"tls.key": nil}}
	if out, err := transforms["*v1.Secret"](secret); err != nil || out.(*corev1.Secret).Data != nil {
		t.Errorf("the data of Secret %s stay in the cache (%v)", secret.Name, err)
	}
}
