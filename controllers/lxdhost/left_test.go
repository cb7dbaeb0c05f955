// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/test/allkinds"
)

// What was left on an LXDHost that is being deleted keeps it as long as its name, or its address, is not free.
func TestWhatWasLeftKeepsTheLXDHost(t *testing.T) {
	t.Parallel()
	deleting := []record.Pending{{Op: record.DeleteVM, At: metav1.Now()}}
	for name, tc := range map[string]struct {
		left    record.LeftVM
		pending []record.Pending
		keeps   bool
	}{
		"with a device":         {record.LeftVM{Device: "abc"}, nil, true},
		"a person decides":      {record.LeftVM{Device: "abc", Spared: "why"}, nil, false},
		"without a device":      {record.LeftVM{}, nil, false},
		"it may be deleted":     {record.LeftVM{}, deleting, true},
		"spared, while another": {record.LeftVM{Device: "abc", Spared: "why"}, deleting, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.left.Hostname = "vm"
			text, err := json.Marshal(record.HostData{Calls: record.Calls{Pending: tc.pending}, Left: record.LeftVMs{tc.left}})
			if err != nil {
				t.Fatal(err)
			}
			host := directHost(nil)
			host.Annotations = map[string]string{infrav1.RecordAnnotation: string(text)}
			r := reconcilerOf(t, host)
			r.Records = &record.Records{Client: r.Client, SettleTime: time.Hour}
			if got := r.leftOn(host); (len(got) > 0) != tc.keeps {
				t.Errorf("it is kept by %v", got)
			}
		})
	}
}

// The last host that may have a VM frees its address, also if two are asked at the same time, and each sees the other.
func TestTheLastHostFreesTheAddress(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ other, meanwhile, frees bool }{
		"alone":                         {false, false, true},
		"another one may have it":       {true, false, false},
		"another one settles meanwhile": {true, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host, other := hostThatRemembers(leftIn(t, time.Now(), "ns")), hostThatRemembers("")
			other.Name = "lxd-b"
			var data record.HostData
			if err := json.Unmarshal([]byte(host.Annotations[infrav1.RecordAnnotation]), &data); err != nil {
				t.Fatal(err)
			}
			left := data.Left[0]
			if tc.other {
				data.Left[0].Host = lxd.DirectRef("infra", other.Name)
				text, err := json.Marshal(data)
				if err != nil {
					t.Fatal(err)
				}
				other.Annotations[infrav1.RecordAnnotation] = string(text)
			}
			claim := &ipamv1.IPAddressClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: left.Machine,
				Annotations: map[string]string{infrav1.LeftVMAnnotation: left.Hostname}}}
			c := fake.NewClientBuilder().WithScheme(allkinds.Scheme()).WithObjects(host, other, claim).WithInterceptorFuncs(interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
					if tc.meanwhile && object.GetName() == host.Name {
						settled := other.DeepCopy()
						settled.Annotations = nil
						if err := c.Patch(ctx, settled, client.MergeFrom(other)); err != nil {
							t.Error(err)
						}
					}
					return c.Patch(ctx, object, patch, opts...)
				},
			}).Build()
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(host), host); err != nil {
				t.Fatal(err)
			}
			r := &Reconciler{Base: reconciler.Base{Client: c, APIReader: c, Records: &record.Records{Client: c},
				Recorder: events.NewFakeRecorder(1), Clock: testingclock.NewFakePassiveClock(time.Now())}}
			recorded, err := r.Records.OpenHost(host)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := r.settleLeft(t.Context(), &leftVM{LeftVM: left, host: host, record: recorded}, nil); err != nil || again != 0 {
				t.Fatalf("it is looked for again after %s: %v", again, err)
			}
			if now, err := r.LeftVMs(t.Context(), left.Hostname); err != nil || (len(now) > 0) != (tc.other && !tc.meanwhile) {
				t.Errorf("it may be left: %+v, %v", now, err)
			}
			err = c.Get(t.Context(), client.ObjectKeyFromObject(claim), claim)
			if freed := err != nil && client.IgnoreNotFound(err) == nil; freed != tc.frees {
				t.Errorf("its address is free: %t (%v), want %t", freed, err, tc.frees)
			}
		})
	}
}
