// SPDX-License-Identifier: Apache-2.0

package keep

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/internal/presence"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/test/allkinds"
)

// An error would put off the look at all machines of the cluster, ever longer. While the Cluster is not there, as when a backup is
// restored, nothing is given back before the MaasCluster is deleted itself.
func TestAMachineThatCannotBeGivenBackPutsOffNoOther(t *testing.T) {
	t.Parallel()
	maasCluster := &infrav1.MaasCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", Finalizers: []string{infrav1.ClusterFinalizer}, Annotations: map[string]string{
		infrav1.RecordAnnotation: `{"kept":[{"systemID":"a","machine":"a","givenBack":true},{"systemID":"b","machine":"b","givenBack":true}]}`,
	}}}
	c := fake.NewClientBuilder().WithScheme(allkinds.Scheme()).WithObjects(maasCluster).Build()
	const soon = 2 * time.Second
	asked := map[string]int{}
	r := &Reconciler{
		Base:     reconciler.Base{Client: c, APIReader: presence.NewReader(c, 0), Records: &record.Records{Client: c}, Clock: testingclock.NewFakePassiveClock(time.Now())},
		Interval: time.Minute,
		GiveBack: func(_ context.Context, _ *clusterv1.Cluster, _ *infrav1.MaasCluster, kept record.KeptMachine, _ *record.Cluster) (bool, time.Duration, error) {
			asked[kept.SystemID]++
			if kept.SystemID == "a" {
				return false, 0, errors.New("MAAS refuses")
			}
			return false, soon, nil
		},
	}
	request := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(maasCluster)}
	if result, err := r.Reconcile(t.Context(), request); err != nil || result.RequeueAfter != r.Interval || len(asked) > 0 {
		t.Errorf("without a Cluster: asked for %v, the next look is after %s: %v", asked, result.RequeueAfter, err)
	}
	if err := c.Delete(t.Context(), maasCluster); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Reconcile(t.Context(), request); err != nil || len(asked) > 0 {
		t.Errorf("before it is certain that the MaasMachines are gone: asked for %v: %v", asked, err)
	}
	result, err := r.Reconcile(t.Context(), request)
	if err != nil || result.RequeueAfter != soon || asked["a"] != 1 || asked["b"] != 1 {
		t.Errorf("asked for %v, the next look is after %s: %v", asked, result.RequeueAfter, err)
	}
}
