// SPDX-License-Identifier: Apache-2.0

package life

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
)

// What a later version recorded can be read by this one, and is missed when it is lost.
func TestWhatALaterVersionRecordedIsReadAndMissed(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := infrav1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	const recorded = `{"pending":[{"op":"deploy","at":"2026-11-26T16:00:00Z"}],` +
		`"kept":[{"systemID":"abc","machine":"m","labels":{"a":"b"},"spec":{"image":"ubuntu/jammy"}}]}`
	cluster := &infrav1.MaasCluster{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "c", UID: "c", Annotations: map[string]string{infrav1.RecordAnnotation: recorded},
	}}
	m := &infrav1.MaasMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "m", UID: "m"}}
	kube := fake.NewClientBuilder().WithScheme(scheme).WithObjects(m, cluster).Build()
	rolledBack, err := RollBack(t.Context(), kube)
	if err != nil || rolledBack.Objects() != 2 {
		t.Fatalf("%d objects: %v", rolledBack.Objects(), err)
	}
	if lost, err := rolledBack.Lost(t.Context()); err != nil || len(lost) > 0 {
		t.Errorf("lost at once: %q, %v", lost, err)
	}
	if err := kube.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster); err != nil {
		t.Fatal(err)
	}
	data, err := record.OfCluster(cluster)
	if err != nil {
		t.Fatal(err)
	}
	pending, kept := data.Pending[0], data.Kept[0]
	if data.Unknown == "" || pending.Unknown == "" || kept.Unknown == "" || len(kept.Labels) != 1 {
		t.Errorf("this version reads %+v", data)
	}
	cluster.Annotations[infrav1.RecordAnnotation] = recorded
	if err := kube.Update(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	if lost, err := rolledBack.Lost(t.Context()); err != nil || len(lost) != 1 {
		t.Errorf("an earlier version that loses it loses %q, %v", lost, err)
	}
}
