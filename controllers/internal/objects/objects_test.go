// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
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
