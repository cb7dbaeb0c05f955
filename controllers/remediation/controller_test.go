// SPDX-License-Identifier: Apache-2.0

package remediation

import (
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/test/allkinds"
)

// Whoever may write a MaasRemediation may make its record unreadable. It goes all the same, unless its machine may be off.
func TestARemediationWhoseRecordCannotBeReadGoes(t *testing.T) {
	remediation := &infrav1.MaasRemediation{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "m", Finalizers: []string{infrav1.RemediationFinalizer}, Annotations: map[string]string{infrav1.RecordAnnotation: "{"},
	}}
	c := fake.NewClientBuilder().WithScheme(allkinds.Scheme()).WithObjects(remediation).Build()
	if err := c.Delete(t.Context(), remediation); err != nil {
		t.Fatal(err)
	}
	key := client.ObjectKeyFromObject(remediation)
	r := &Reconciler{Base: reconciler.Base{Client: c, APIReader: c, Records: &record.Records{Client: c}, Clock: testingclock.NewFakePassiveClock(now)}}
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), key, remediation); !apierrors.IsNotFound(err) {
		t.Errorf("it is still there: %v", err)
	}
	for step, want := range map[infrav1.RemediationStep]bool{
		"": true, infrav1.RemediationLeaveEndpoint: true, infrav1.RemediationRecover: true,
		infrav1.RemediationPowerOff: false, infrav1.RemediationPowerOn: false,
	} {
		going := &infrav1.MaasRemediation{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: time.Unix(1, 0)}}}
		going.Status.Step = step
		if got := mayEndUnread(going, &clusters.Member{}); got != want {
			t.Errorf("at the step %q it may go: %v, want %v", step, got, want)
		}
	}
}
