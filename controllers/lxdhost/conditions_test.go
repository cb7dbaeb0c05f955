// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdapi"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

func direct() *infrav1.LXDHost {
	return &infrav1.LXDHost{Spec: infrav1.LXDHostSpec{Address: "10.0.0.1", CredentialsRef: &infrav1.LocalObjectReference{Name: "lxd"}}}
}

// Each error is told where a person looks for it, and Ready has the cause, not what follows from it.
func TestConditionsOfAnError(t *testing.T) {
	const yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	for _, test := range []struct {
		err                             error
		reachable, trusted, schedulable metav1.ConditionStatus
		ready                           string
	}{
		{nil, yes, yes, yes, infrav1.ReadyReason},
		{&scope.CredentialsError{Source: "Secret lxd"}, unknown, no, no, infrav1.CredentialsInvalidReason},
		{&lxdhost.Error{Kind: lxdhost.KindInvalid}, unknown, no, no, infrav1.CredentialsInvalidReason},
		{&lxdhost.Error{Kind: lxdhost.KindUnreachable}, no, unknown, no, infrav1.LXDUnreachableReason},
		{&lxdhost.Error{Kind: lxdhost.KindOther}, no, unknown, no, infrav1.LXDFailedReason},
		{&lxdhost.Error{Kind: lxdhost.KindPool}, no, unknown, no, infrav1.LXDFailedReason},
		{&lxdhost.Error{Kind: lxdhost.KindPin}, yes, no, no, infrav1.CertificateMismatchReason},
		{&lxdhost.Error{Kind: lxdhost.KindNotTrusted}, yes, no, no, infrav1.NotTrustedReason},
		{&lxdhost.Error{Kind: lxdhost.KindProject}, yes, no, no, infrav1.ProjectNotFoundReason},
		{&lxdhost.Error{Kind: lxdhost.KindNoVMs}, yes, yes, no, infrav1.VMsNotSupportedReason},
		{&lxdhost.Error{Kind: lxdhost.KindCluster}, yes, yes, no, infrav1.LXDClusteredReason},
	} {
		t.Run(test.ready+"/"+string(lxdhost.KindOf(test.err)), func(t *testing.T) {
			host := direct()
			if !markConnection(host, test.err) {
				t.Fatal("the error is not known")
			}
			report.SetTrue(host, infrav1.RegisteredCondition, infrav1.ReadyReason)
			var why *report.Problem
			if reason := offersNoVMs(test.err); reason != "" {
				why = &report.Problem{Reason: reason}
			}
			markSchedulable(host, why)
			summarize(host)
			for condition, want := range map[string]metav1.ConditionStatus{
				infrav1.ReachableCondition: test.reachable, infrav1.TrustedCondition: test.trusted, infrav1.SchedulableCondition: test.schedulable,
			} {
				if got := conditions.Get(host, condition).Status; got != want {
					t.Errorf("%s is %s, want %s", condition, got, want)
				}
			}
			ready := conditions.Get(host, infrav1.ReadyCondition)
			if ready.Reason != test.ready || (ready.Status == yes) != (test.err == nil) || ready.Status == unknown {
				t.Errorf("Ready is %s, %s", ready.Status, ready.Reason)
			}
		})
	}
	host := direct()
	if markConnection(host, errors.New("Kubernetes")) || len(host.Status.Conditions) > 0 {
		t.Errorf("an error that is not LXD's sets %v", host.Status.Conditions)
	}
}

// A cordoned host is Ready, as a Node is; but the choice hides nothing that is wrong.
func TestACordonedHostIsReady(t *testing.T) {
	missing := &report.Problem{Reason: infrav1.BridgeNotFoundReason, Message: "there is no bridge"}
	for name, test := range map[string]struct {
		why                *report.Problem
		trusted            bool
		schedulable, ready string
	}{
		"all is well":       {nil, true, infrav1.UnschedulableReason, infrav1.ReadyReason},
		"the bridge lacks":  {missing, true, infrav1.BridgeNotFoundReason, infrav1.BridgeNotFoundReason},
		"it is not trusted": {nil, false, infrav1.UnschedulableReason, infrav1.NotTrustedReason},
	} {
		t.Run(name, func(t *testing.T) {
			host := direct()
			host.Spec.Unschedulable = true
			report.SetTrue(host, infrav1.ReachableCondition, infrav1.ReadyReason)
			report.SetTrue(host, infrav1.RegisteredCondition, infrav1.ReadyReason)
			report.SetTrue(host, infrav1.TrustedCondition, infrav1.ReadyReason)
			if !test.trusted {
				report.SetFalse(host, infrav1.TrustedCondition, infrav1.NotTrustedReason, "it is not")
			}
			markSchedulable(host, test.why)
			summarize(host)
			if c := conditions.Get(host, infrav1.SchedulableCondition); c.Status != metav1.ConditionFalse || c.Reason != test.schedulable {
				t.Errorf("Schedulable is %s, %s, want False, %s", c.Status, c.Reason, test.schedulable)
			}
			if c := conditions.Get(host, infrav1.ReadyCondition); c.Reason != test.ready || (c.Status == metav1.ConditionTrue) != (test.ready == infrav1.ReadyReason) {
				t.Errorf("Ready is %s, %s, want %s", c.Status, c.Reason, test.ready)
			}
		})
	}
}

// Nothing new is placed where MAAS can't make VMs. That a direct host's LXD is newer than all that was tried is said, and
// changes nothing.
func TestAnLXDThatIsNew(t *testing.T) {
	for version, want := range map[string]string{"": "", "5.21.7": "", "6.6": "", "6.7": infrav1.LXDTooNewReason, "6.10.0": infrav1.LXDTooNewReason} {
		s := &sighting{VMHost: vmHost(1, "a", "")}
		s.Version = version
		why := s.closed()
		if (why != nil) != (want != "") || why != nil && (why.Reason != want || !strings.Contains(why.Message, version)) {
			t.Errorf("a VM host with LXD %s is closed: %+v", version, why)
		}
	}
	for version, isNoted := range map[string]bool{"": false, "5.0.2": false, lxdapi.Newest: false, "6.10.0": true} {
		host := direct()
		if !markConnection(host, nil) {
			t.Fatal("it is not connected")
		}
		host.Status.Version = version
		noteNews(host)
		report.SetTrue(host, infrav1.RegisteredCondition, infrav1.ReadyReason)
		markSchedulable(host, nil)
		summarize(host)
		if c := conditions.Get(host, infrav1.ReachableCondition); c.Status != metav1.ConditionTrue || strings.Contains(c.Message, version+" is newer") != isNoted {
			t.Errorf("Reachable of LXD %s is %+v", version, c)
		}
		if !conditions.IsTrue(host, infrav1.ReadyCondition) {
			t.Errorf("a direct host with LXD %s is not ready: %+v", version, host.Status.Conditions)
		}
	}
}

// A message that is another one each time would be a write each time.
func TestCauseIsStable(t *testing.T) {
	broken := func(port int) error {
		return &net.OpError{
			Op: "read", Net: "tcp", Source: &net.TCPAddr{Port: port}, Addr: &net.TCPAddr{Port: 8443}, Err: syscall.ECONNRESET,
		}
	}
	for name, both := range map[string][2]error{
		"connection": {broken(1), broken(2)},
		"name":       {&net.DNSError{Err: "read udp 127.0.0.1:1"}, &net.DNSError{Err: "read udp 127.0.0.1:2"}},
		"deadline":   {fmt.Errorf("a: %w", context.DeadlineExceeded), fmt.Errorf("b: %w", context.DeadlineExceeded)},
		"another":    {errors.New("a"), errors.New("b")},
	} {
		if a, b := cause(both[0]), cause(both[1]); a != b || a == "" {
			t.Errorf("%s: %q, then %q", name, a, b)
		}
	}
}

func TestEventsOfTransitions(t *testing.T) {
	host := func(status metav1.ConditionStatus, reason string) *infrav1.LXDHost {
		h := direct()
		if reason != "" {
			conditions.Set(h, metav1.Condition{Type: infrav1.ReadyCondition, Status: status, Reason: reason})
		}
		return h
	}
	for name, test := range map[string]struct {
		before, after *infrav1.LXDHost
		want          string
	}{
		"it fails":           {host(metav1.ConditionTrue, infrav1.ReadyReason), host(metav1.ConditionFalse, infrav1.NotTrustedReason), infrav1.NotTrustedReason},
		"it never was ready": {host("", ""), host(metav1.ConditionFalse, infrav1.NotTrustedReason), infrav1.NotTrustedReason},
		"another failure":    {host(metav1.ConditionFalse, infrav1.LXDUnreachableReason), host(metav1.ConditionFalse, infrav1.NotTrustedReason), infrav1.NotTrustedReason},
		"the same failure":   {host(metav1.ConditionFalse, infrav1.NotTrustedReason), host(metav1.ConditionFalse, infrav1.NotTrustedReason), ""},
		"it is ready":        {host(metav1.ConditionFalse, infrav1.NotTrustedReason), host(metav1.ConditionTrue, infrav1.ReadyReason), ""},
		"MAAS does not say":  {host(metav1.ConditionTrue, infrav1.ReadyReason), host(metav1.ConditionUnknown, infrav1.MAASUnavailableReason), ""},
		"a deletion":         {host(metav1.ConditionTrue, infrav1.ReadyReason), host(metav1.ConditionFalse, infrav1.DeletingReason), ""},
	} {
		t.Run(name, func(t *testing.T) {
			recorder := events.NewFakeRecorder(1)
			announce(recorder, test.before, test.after)
			close(recorder.Events)
			said := <-recorder.Events
			if (said == "") != (test.want == "") || !strings.Contains(said, test.want) {
				t.Errorf("the event is %q, want %q", said, test.want)
			}
		})
	}
}
