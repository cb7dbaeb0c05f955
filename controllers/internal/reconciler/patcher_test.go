// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/test/allkinds"
)

// A status that stays as it is says which generation it is about, also if a person has edited that.
func TestAStatusThatStaysSaysWhatItIsAbout(t *testing.T) {
	t.Parallel()
	meta := metav1.ObjectMeta{Namespace: "ns", Name: "o", UID: "o", Generation: 3}
	records := &record.Records{}
	cluster := &infrav1.MaasCluster{ObjectMeta: meta}
	storesGeneration(t, cluster, records.OpenCluster)
	machine := &infrav1.MaasMachine{ObjectMeta: meta}
	storesGeneration(t, machine, records.OpenMachine)
	remediation := &infrav1.MaasRemediation{ObjectMeta: meta}
	storesGeneration(t, remediation, records.OpenRemediation)
}

// storesGeneration stores an object that a reconcile has left as it is.
func storesGeneration[O client.Object, R opened](t *testing.T, object O, open func(O) (R, error)) {
	t.Helper()
	c := fake.NewClientBuilder().WithScheme(allkinds.Scheme()).WithObjects(object).WithStatusSubresource(object).Build()
	now := object.DeepCopyObject().(O)
	key := client.ObjectKeyFromObject(object)
	if err := c.Get(t.Context(), key, now); err != nil {
		t.Fatal(err)
	}
	patcher, unreadable, err := NewPatcher(c, now, open)
	if err != nil || unreadable != nil {
		t.Fatal(err, unreadable)
	}
	if err := patcher.Store(t.Context(), now, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), key, now); err != nil {
		t.Fatal(err)
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(now)
	if err != nil {
		t.Fatal(err)
	}
	if status, _ := fields["status"].(map[string]any); status["observedGeneration"] != object.GetGeneration() {
		t.Errorf("%T: the status is %v, want that it is about generation %d", object, status, object.GetGeneration())
	}
}

// stored has an object in an API server, and counts what is asked of that.
type stored struct {
	t        *testing.T
	client   client.WithWatch
	requests []string
}

func (s *stored) now() *infrav1.MaasMachine {
	s.t.Helper()
	m := &infrav1.MaasMachine{}
	if err := s.client.Get(s.t.Context(), client.ObjectKey{Namespace: "ns", Name: "m"}, m); err != nil {
		s.t.Fatal(err)
	}
	s.requests = nil
	return m
}

func store(t *testing.T) *stored {
	t.Helper()
	m := &infrav1.MaasMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m", UID: "m"}}
	m.Status.Conditions = []metav1.Condition{{Type: "Theirs", Status: metav1.ConditionFalse, Reason: "Before"}}
	s := &stored{t: t}
	s.client = fake.NewClientBuilder().WithScheme(allkinds.Scheme()).WithObjects(m).WithStatusSubresource(m).
		WithInterceptorFuncs(interceptor.Funcs{
			Get: func(
				ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption,
			) error {
				s.requests = append(s.requests, "get")
				return c.Get(ctx, key, o, options...)
			},
			Patch: func(
				ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption,
			) error {
				s.requests = append(s.requests, "patch")
				return c.Patch(ctx, o, p, options...)
			},
			SubResourcePatch: func(
				ctx context.Context, c client.Client, of string, o client.Object, p client.Patch, options ...client.SubResourcePatchOption,
			) error {
				s.requests = append(s.requests, of)
				return c.SubResource(of).Patch(ctx, o, p, options...)
			},
		}).Build()
	return s
}

// reconcile records something, sets a condition and a field of each part, and stores all. In between do is called.
func (s *stored) reconcile(do func()) {
	s.t.Helper()
	m := s.now()
	records := &record.Records{Client: s.client}
	p, unreadable, err := NewPatcher(s.client, m, records.OpenMachine)
	if err != nil || unreadable != nil {
		s.t.Fatal(err, unreadable)
	}
	p.Record.Enter("deploying", time.Now())
	m.Spec.ProviderID, m.Status.Hostname = "maas:///z/abcdef", "host"
	conditions.Set(m, metav1.Condition{Type: "Ours", Status: metav1.ConditionTrue, Reason: "Now"})
	do()
	if err := p.Store(s.t.Context(), m, []string{"Ours"}); err != nil {
		s.t.Fatal(err)
	}
}

// isStored checks that what reconcile has set is there.
func (s *stored) isStored() *infrav1.MaasMachine {
	s.t.Helper()
	m := s.now()
	data, err := record.OfMachine(m)
	if err != nil || !data.In("deploying") || m.Spec.ProviderID == "" || m.Status.Hostname == "" ||
		!conditions.IsTrue(m, "Ours") {
		s.t.Errorf("stored are %+v, %+v, %+v; %v", data, m.Spec, m.Status, err)
	}
	return m
}

// The record, the status and the rest are one request each, and nothing is read again.
func TestAReconcileIsStoredInOneRequestForEachPart(t *testing.T) {
	t.Parallel()
	s := store(t)
	s.reconcile(func() {})
	if diff := cmp.Diff([]string{"patch", "patch", "status"}, s.requests); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if m := s.isStored(); !conditions.IsFalse(m, "Theirs") {
		t.Errorf("the conditions are %+v", m.Status.Conditions)
	}
	s.reconcile(func() {})
	if diff := cmp.Diff([]string(nil), s.requests); diff != "" {
		t.Errorf("requests for what is stored (-want +got):\n%s", diff)
	}
}

// What others write meanwhile stays.
func TestAReconcileIsStoredBesideWhatOthersWrite(t *testing.T) {
	t.Parallel()
	s := store(t)
	s.reconcile(func() {
		m := s.now()
		before := m.DeepCopy()
		m.Labels = map[string]string{"of": "others"}
		if err := s.client.Patch(t.Context(), m, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
		before = m.DeepCopy()
		conditions.Set(m, metav1.Condition{Type: "Theirs", Status: metav1.ConditionTrue, Reason: "Now"})
		if err := s.client.Status().Patch(t.Context(), m, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	})
	if m := s.isStored(); m.Labels["of"] != "others" || !conditions.IsTrue(m, "Theirs") {
		t.Errorf("there are the labels %v and the conditions %+v", m.Labels, m.Status.Conditions)
	}
}
