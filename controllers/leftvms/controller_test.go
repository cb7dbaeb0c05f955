// SPDX-License-Identifier: Apache-2.0

package leftvms

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/test/allkinds"
)

// An error would put off the look for all VMs that may be left on the host, ever longer.
func TestAVMThatCannotBeLookedForPutsOffNoOther(t *testing.T) {
	t.Parallel()
	const ownerID, broken = "abcdefghijkl", "broken"
	now := time.Now()
	left := func(namespace string) record.LeftVM {
		return record.LeftVM{
			Namespace: namespace, Machine: "m", OwnerID: ownerID, Hostname: maas.Hostname("m", ownerID), Host: lxd.DirectRef("infra", "lxd-a"),
			Since: metav1.NewTime(now),
		}
	}
	recorded, err := json.Marshal(record.HostData{Left: []record.LeftVM{left(broken), left("paused")}})
	if err != nil {
		t.Fatal(err)
	}
	host := &infrav1.LXDHost{ObjectMeta: metav1.ObjectMeta{Namespace: "infra", Name: "lxd-a", Annotations: map[string]string{
		infrav1.RecordAnnotation: string(recorded),
	}}}
	paused := &infrav1.MaasCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "paused", Name: "c", Annotations: map[string]string{
		infrav1.OwnerIDAnnotation: ownerID, clusterv1.PausedAnnotation: "",
	}}}
	asked := map[string]int{}
	c := fake.NewClientBuilder().WithScheme(allkinds.Scheme()).WithObjects(host, paused).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			var options client.ListOptions
			options.ApplyOptions(opts)
			asked[options.Namespace]++
			if options.Namespace == broken {
				return errors.New("it can't be listed")
			}
			return c.List(ctx, list, opts...)
		},
	}).Build()
	r := &Reconciler{
		Base:     reconciler.Base{Client: c, APIReader: c, Records: &record.Records{Client: c}, Clock: testingclock.NewFakePassiveClock(now)},
		Interval: time.Minute,
	}
	result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(host)})
	if err != nil || result.RequeueAfter != time.Minute || asked[broken] == 0 || asked["paused"] == 0 {
		t.Errorf("asked for %v, the next look is after %s: %v", asked, result.RequeueAfter, err)
	}
}
