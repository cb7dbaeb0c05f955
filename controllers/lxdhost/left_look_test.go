// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/test/allkinds"
)

// The look for a VM of namespace broken ends with an error, that for one of namespace paused with a wait.
const broken, onPause = "broken", "paused"

// leftIn returns what an LXDHost remembers of VMs that were left now, one for each of the namespaces.
func leftIn(t *testing.T, now time.Time, namespaces ...string) string {
	t.Helper()
	var data record.HostData
	for _, namespace := range namespaces {
		data.Left = append(data.Left, record.LeftVM{
			Namespace: namespace, Machine: "m", OwnerID: leftOwnerID, Hostname: maas.Hostname("m", leftOwnerID),
			Host: lxd.DirectRef("infra", "lxd-a"), Since: metav1.NewTime(now),
		})
	}
	text, err := json.Marshal(data)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

const leftOwnerID = "abcdefghijkl"

// looking returns a reconciler, and how often it asked for the MaasClusters of each namespace: once in each look.
func looking(t *testing.T, host *infrav1.LXDHost, clock *testingclock.FakePassiveClock) (*Reconciler, map[string]int) {
	t.Helper()
	paused := &infrav1.MaasCluster{ObjectMeta: metav1.ObjectMeta{Namespace: onPause, Name: "c", Annotations: map[string]string{
		infrav1.OwnerIDAnnotation: leftOwnerID, clusterv1.PausedAnnotation: "",
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
	return &Reconciler{
		Base:     reconciler.Base{Client: c, APIReader: c, Records: &record.Records{Client: c}, Clock: clock},
		Interval: time.Minute,
	}, asked
}

func hostThatRemembers(text string) *infrav1.LXDHost {
	return &infrav1.LXDHost{ObjectMeta: metav1.ObjectMeta{Namespace: "infra", Name: "lxd-a", Annotations: map[string]string{
		infrav1.RecordAnnotation: text,
	}}}
}

// An error would put off the look for all VMs that may be left on the host, ever longer.
func TestAVMThatCannotBeLookedForPutsOffNoOther(t *testing.T) {
	t.Parallel()
	now := time.Now()
	host := hostThatRemembers(leftIn(t, now, broken, onPause))
	r, asked := looking(t, host, testingclock.NewFakePassiveClock(now))
	if after := r.lookForLeft(t.Context(), host); after != leftInterval || asked[broken] == 0 || asked[onPause] == 0 {
		t.Errorf("asked for %v, the next look is after %s", asked, after)
	}
}

// An LXDHost is reconciled for many reasons. A host that does not respond is asked when that is due, and when it may be back.
func TestAHostIsAskedForWhatWasLeftWhenThatIsDue(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		later time.Duration
		what  func(*Reconciler, *infrav1.LXDHost)
		looks bool
	}{
		"nothing happens":             {leftInterval / 2, nil, false},
		"it is due":                   {leftInterval, nil, true},
		"its figures change":          {0, func(_ *Reconciler, host *infrav1.LXDHost) { host.Status.Version = "6.9" }, false},
		"another VM is left":          {0, remembers(leftIn(t, time.Now(), onPause, broken)), true},
		"another annotation":          {0, func(_ *Reconciler, host *infrav1.LXDHost) { host.Annotations["a"] = "b" }, false},
		"the host becomes Ready":      {0, isReady(true), true},
		"the host becomes not Ready":  {0, isReady(false), false},
		"all that was left is gone":   {leftInterval, remembers(""), false},
		"it can't be read any more":   {leftInterval, remembers("{"), false},
		"it was forgotten, and again": {0, forgottenFor(leftIn(t, time.Now(), onPause)), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := testingclock.NewFakePassiveClock(time.Now())
			host := hostThatRemembers(leftIn(t, clock.Now(), onPause))
			r, asked := looking(t, host, clock)
			if after := r.lookForLeft(t.Context(), host); after != leftInterval {
				t.Fatalf("the next look is after %s", after)
			}
			before := asked[onPause]
			clock.SetTime(clock.Now().Add(tc.later))
			if tc.what != nil {
				tc.what(r, host)
			}
			after := r.lookForLeft(t.Context(), host)
			if looks := asked[onPause] > before; looks != tc.looks {
				t.Errorf("it looks again: %t, want %t; the next look is after %s", looks, tc.looks, after)
			}
		})
	}
}

// A host that is not Ready for a moment, and Ready again, may have been started anew.
func TestAHostThatIsBackIsAskedForWhatWasLeft(t *testing.T) {
	t.Parallel()
	clock := testingclock.NewFakePassiveClock(time.Now())
	host := hostThatRemembers(leftIn(t, clock.Now(), onPause))
	r, asked := looking(t, host, clock)
	for _, step := range []struct{ ready, looks bool }{
		{true, true}, {true, false}, {false, false}, {true, true}, {true, false}, {false, false}, {false, false}, {true, true},
	} {
		before := asked[onPause]
		isReady(step.ready)(r, host)
		if r.lookForLeft(t.Context(), host); (asked[onPause] > before) != step.looks {
			t.Errorf("asked %d times: %+v", asked[onPause], step)
		}
	}
}

func remembers(text string) func(*Reconciler, *infrav1.LXDHost) {
	return func(_ *Reconciler, host *infrav1.LXDHost) { host.Annotations[infrav1.RecordAnnotation] = text }
}

func forgottenFor(text string) func(*Reconciler, *infrav1.LXDHost) {
	return func(r *Reconciler, host *infrav1.LXDHost) {
		host.Annotations[infrav1.RecordAnnotation] = ""
		r.lookForLeft(context.Background(), host)
		host.Annotations[infrav1.RecordAnnotation] = text
	}
}

func isReady(ready bool) func(*Reconciler, *infrav1.LXDHost) {
	return func(_ *Reconciler, host *infrav1.LXDHost) {
		if ready {
			report.SetTrue(host, infrav1.ReadyCondition, infrav1.ReadyReason)
		} else {
			report.SetFalse(host, infrav1.ReadyCondition, infrav1.LXDUnreachableReason, "it does not respond")
		}
	}
}
