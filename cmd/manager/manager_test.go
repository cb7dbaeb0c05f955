// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"sigs.k8s.io/cluster-api/core/setup"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// client-go logs an error if two informers have one name, and omits the second one from the metrics.
func TestInformersOfSecretsHaveDifferentNames(t *testing.T) {
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	var logged []string
	klog.SetLogger(funcr.New(func(_, line string) { logged = append(logged, line) }, funcr.Options{}))
	t.Cleanup(klog.ClearLogger)
	metadata := &metav1.PartialObjectMetadata{}
	metadata.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	newInformer := cacheOptions(scheme, options{}).NewInformer
	for _, example := range []runtime.Object{&corev1.Secret{}, metadata} {
		newInformer(&toolscache.ListWatch{}, example, time.Hour, nil)
	}
	if len(logged) > 0 {
		t.Errorf("client-go says %q", logged)
	}
}

func TestWhatNobodyReadsIsNotCached(t *testing.T) {
	fields := []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	for _, test := range []struct{ in, want any }{
		{
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", ManagedFields: fields}, Status: corev1.NodeStatus{Images: []corev1.ContainerImage{{SizeBytes: 1}}, Phase: "p"}},
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Phase: "p"}},
		},
		{&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "m", ManagedFields: fields}}, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "m"}}},
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
			if _, err := transform(in); err != nil || in.GetManagedFields() != nil {
				t.Errorf("the transform of %s leaves a %T its managedFields (%v)", kind, in, err)
			}
		}
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "c1-etcd"}, Data: map[string][]byte{"tls.key": nil}}
	if _, err := transforms["*v1.Secret"](secret); err != nil || secret.Data != nil {
		t.Errorf("the data of Secret %s stay in the cache (%v)", secret.Name, err)
	}
}
