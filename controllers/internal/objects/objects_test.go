// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/allkinds"
)

// A server can word each refusal anew. Only what a condition means wakes its object.
func TestTheWordsOfAConditionWakeNobody(t *testing.T) {
	t.Parallel()
	said := metav1.Condition{
		Type: infrav1.ReadyCondition, Status: metav1.ConditionFalse, Reason: "Refused", Message: "for the first time",
	}
	objects := []conditions.Setter{
		&infrav1.MaasMachine{}, &infrav1.MaasCluster{}, &infrav1.LXDHost{}, &infrav1.MaasRemediation{},
	}
	for name, tc := range map[string]struct {
		change func(*metav1.Condition)
		wakes  bool
	}{
		"other words":    {func(c *metav1.Condition) { c.Message = "for the second time" }, false},
		"another reason": {func(c *metav1.Condition) { c.Reason = "Unavailable" }, true},
		"another status": {func(c *metav1.Condition) { c.Status = metav1.ConditionTrue }, true},
		"another spec":   {func(c *metav1.Condition) { c.ObservedGeneration = 2 }, true},
	} {
		for _, object := range objects {
			then := said
			tc.change(&then)
			before, after := object, object.(client.Object).DeepCopyObject().(conditions.Setter)
			before.SetConditions([]metav1.Condition{said})
			after.SetConditions([]metav1.Condition{then})
			old, now := before.(client.Object), after.(client.Object)
			old.SetResourceVersion("1")
			now.SetResourceVersion("2")
			for _, ignore := range []predicate.Predicate{IgnoreBookkeeping, IgnoreWords} {
				if wakes := ignore.Update(event.UpdateEvent{ObjectOld: old, ObjectNew: now}); wakes != tc.wakes {
					t.Errorf("%s of a %T: wakes it: %v", name, object, wakes)
				}
			}
			if then.Message != after.GetConditions()[0].Message {
				t.Errorf("%s: the object has lost its message", name)
			}
		}
	}
}

// A condition is stored beside those that others have written since the object was read.
func TestConditionsOfOthersStay(t *testing.T) {
	t.Parallel()
	object := &infrav1.LXDHost{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "h"}}
	c := fake.NewClientBuilder().WithScheme(allkinds.Scheme()).WithObjects(object).WithStatusSubresource(object).Build()
	key := client.ObjectKeyFromObject(object)
	read := func() *infrav1.LXDHost {
		t.Helper()
		now := &infrav1.LXDHost{}
		if err := c.Get(t.Context(), key, now); err != nil {
			t.Fatal(err)
		}
		return now
	}
	set := func(o *infrav1.LXDHost, condition string) error {
		return PatchConditions(t.Context(), c, o, func() {
			conditions.Set(o, metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: "Said"})
		}, condition)
	}
	stale := read()
	for _, err := range []error{set(read(), "Theirs"), set(stale, "Ours")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if now := read(); !conditions.IsTrue(now, "Theirs") || !conditions.IsTrue(now, "Ours") {
		t.Errorf("it has the conditions %+v, want both", now.Status.Conditions)
	}
	if err := c.Delete(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	if err := set(stale, "Late"); !apierrors.IsNotFound(err) {
		t.Errorf("of an object that is gone: %v, want NotFound", err)
	}
}
