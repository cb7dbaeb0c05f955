// SPDX-License-Identifier: Apache-2.0

package evacuation

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/test/allkinds"
)

// What was looked at is true for a moment: if the API server took too long to show it, the Machine stays for this round.
func TestAMachineIsNotDeletedForWhatWasTrueBefore(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		takes time.Duration
		stays bool
	}{
		"at once":            {},
		"in time":            {takes: reconciler.LookLasts},
		"the look took long": {takes: reconciler.LookLasts + time.Second, stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set := &clusterv1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "md", UID: "md"}}
			set.Spec.ClusterName, set.Spec.Replicas = "c", ptr.To[int32](1)
			cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c"}}
			machine := newMachine("md-0")
			machine.UID, machine.Spec.ClusterName, machine.Labels = "md-0", "c", map[string]string{clusterv1.ClusterNameLabel: "c"}
			machine.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineSet", Name: set.Name, UID: set.UID, Controller: ptr.To(true)}}
			m := &infrav1.MaasMachine{ObjectMeta: *machine.ObjectMeta.DeepCopy()}
			m.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: machine.Name, UID: machine.UID}}

			served := meta.NewDefaultRESTMapper([]schema.GroupVersion{clusterv1.GroupVersion})
			served.Add(clusterv1.GroupVersion.WithKind("MachineSet"), meta.RESTScopeNamespace)
			c := fake.NewClientBuilder().WithScheme(allkinds.Scheme()).WithRESTMapper(served).WithObjects(set, cluster, machine, m).Build()
			clock, takes := testingclock.NewFakePassiveClock(now), time.Duration(0)
			slow := interceptor.NewClient(c, interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, into client.ObjectList, options ...client.ListOption) error {
					clock.SetTime(clock.Now().Add(takes))
					return c.List(ctx, into, options...)
				},
			})
			r := &Reconciler{Enabled: true, Base: reconciler.Base{Client: c, APIReader: slow, Clock: clock, Recorder: events.NewFakeRecorder(10)}}
			v := &vm{maasMachine: m}
			if v.out = r.judge(t.Context(), &round{}, v); v.out.action != deleteMachine {
				t.Fatalf("it does %v before: %s", v.out.action, v.out.Problem().Message)
			}
			takes = tc.takes
			out, err := r.act(t.Context(), &infrav1.LXDHost{}, v)
			if err != nil || (out.action == none) != tc.stays {
				t.Errorf("it does %v: %v", out.action, err)
			}
			err = c.Get(t.Context(), client.ObjectKeyFromObject(machine), machine)
			if stays := err == nil; stays != tc.stays {
				t.Errorf("the Machine stays: %v, want %v: %v", stays, tc.stays, err)
			}
		})
	}
}
