// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/allkinds"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
)

const hostTitle = "lxdhost.infrastructure.cluster.x-k8s.io/lxd-a"

func (k *kubernetes) newHost(t *testing.T, name string) *infrav1.LXDHost {
	t.Helper()
	host := &infrav1.LXDHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       infrav1.LXDHostSpec{VMHost: &infrav1.VMHostReference{ID: 1}},
	}
	if err := k.client.Create(t.Context(), host); err != nil {
		t.Fatal(err)
	}
	return host
}

func (k *kubernetes) specOf(t *testing.T, host *infrav1.LXDHost) infrav1.LXDHostSpec {
	t.Helper()
	if err := k.client.Get(t.Context(), client.ObjectKeyFromObject(host), host); err != nil {
		t.Fatal(err)
	}
	return host.Spec
}

// report plays the manager: it says how far the evacuation of a host is.
func (k *kubernetes) report(t *testing.T, host *infrav1.LXDHost, condition metav1.Condition, vms ...infrav1.LXDEvacuationVM) {
	t.Helper()
	k.specOf(t, host)
	before := host.DeepCopy()
	host.Status.Evacuation = &infrav1.LXDEvacuationStatus{Leaving: int32(len(vms)), VMs: vms}
	condition.Type = infrav1.EvacuatedCondition
	conditions.Set(host, condition)
	if err := k.client.Status().Patch(t.Context(), host, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

var (
	isEvacuating = metav1.Condition{Status: metav1.ConditionFalse, Reason: infrav1.EvacuatingReason, Message: "VMs are left"}
	isEvacuated  = metav1.Condition{Status: metav1.ConditionTrue, Reason: infrav1.EvacuatedReason}
)

// screen is what a command writes; it is read while the command runs.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// A server that is away for a moment does not end a drain. What stays as it is does.
func TestADrainRetriesReads(t *testing.T) {
	hosts := schema.GroupResource{Group: infrav1.GroupVersion.Group, Resource: "lxdhosts"}
	for name, tc := range map[string]struct {
		err  error
		ends bool
	}{
		"unavailable":     {err: apierrors.NewServiceUnavailable("it restarts")},
		"no connection":   {err: syscall.ECONNREFUSED},
		"no response":     {err: context.DeadlineExceeded},
		"not found":       {apierrors.NewNotFound(hosts, "lxd-a"), true},
		"forbidden":       {apierrors.NewForbidden(hosts, "lxd-a", nil), true},
		"unauthorized":    {apierrors.NewUnauthorized("the token expired"), true},
		"another cluster": {&meta.NoKindMatchError{GroupKind: infrav1.GroupVersion.WithKind("LXDHost").GroupKind()}, true},
	} {
		t.Run(name, func(t *testing.T) {
			host := &infrav1.LXDHost{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "lxd-a"}}
			host.Status.Evacuation = &infrav1.LXDEvacuationStatus{}
			conditions.Set(host, metav1.Condition{Type: infrav1.EvacuatedCondition, Status: metav1.ConditionTrue, Reason: infrav1.EvacuatedReason})
			reads, scheme := 0, allkinds.Scheme()
			h := &lxdHosts{key: client.ObjectKeyFromObject(host)}
			h.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(host).WithInterceptorFuncs(interceptor.Funcs{Get: func(
				ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption,
			) error {
				if _, is := ctx.Deadline(); !is {
					t.Error("a read has no timeout")
				}
				if reads++; reads == 1 {
					return tc.err
				}
				return c.Get(ctx, key, object, opts...)
			}}).Build()
			var out, problems bytes.Buffer
			err := h.awaitEmpty(t.Context(), surroundings{out: &out, err: &problems})
			if tc.ends != errors.Is(err, tc.err) || tc.ends != (err != nil) || tc.ends != (problems.Len() == 0) {
				t.Errorf("it ends with %v, and says %q; want an end with %v: %v", err, problems.String(), tc.err, tc.ends)
			}
		})
	}
}

// drain is capmaasctl host drain, while it runs.
type drain struct {
	t        *testing.T
	out, err screen
	code     chan int
}

func (k *kubernetes) drain(ctx context.Context, t *testing.T, args ...string) *drain {
	t.Helper()
	d := &drain{t: t, code: make(chan int, 1)}
	args = append([]string{"capmaasctl", "host", "drain", "lxd-a", "--kubeconfig", k.kubeconfig}, args...)
	go func() {
		d.code <- run(ctx, args, surroundings{in: strings.NewReader(""), out: &d.out, err: &d.err, getenv: func(string) string { return "" }})
	}()
	return d
}

// shows waits until a line was written.
func (d *drain) shows(on *screen, line string) {
	d.t.Helper()
	eventually.True(d.t, "it says "+line, func() bool { return strings.Contains(on.String(), line+"\n") },
		func() any { return d.out.String() + d.err.String() })
}

func (d *drain) ends(code int) {
	d.t.Helper()
	select {
	case got := <-d.code:
		if got != code {
			d.t.Errorf("exit code %d, want %d:\n%s%s", got, code, d.out.String(), d.err.String())
		}
	case <-time.After(eventually.Limit):
		d.t.Fatalf("it does not end:\n%s%s", d.out.String(), d.err.String())
	}
}

func TestHosts(t *testing.T) {
	k := newKubernetes(t)
	host := k.newHost(t, "lxd-a")
	ctl := func(args ...string) outcome {
		return call(t, "", []string{"KUBECONFIG=" + k.kubeconfig}, append([]string{"capmaasctl", "host"}, args...)...)
	}
	t.Run("Cordon", func(t *testing.T) {
		for _, tc := range []struct {
			command, said string
			cordoned      bool
		}{
			{"cordon", "cordoned", true}, {"cordon", "already cordoned", true}, {"uncordon", "uncordoned", false}, {"uncordon", "already uncordoned", false},
		} {
			got := ctl(tc.command, "lxd-a", "-n", "default")
			if got.code != exitOK || got.stdout != hostTitle+" "+tc.said+"\n" || got.err != "" {
				t.Errorf("%s: %+v, want %q", tc.command, got, tc.said)
			}
			if is := k.specOf(t, host).Unschedulable; is != tc.cordoned {
				t.Errorf("after %s it is cordoned: %v", tc.command, is)
			}
		}
	})
	t.Run("WhatFails", func(t *testing.T) {
		for name, tc := range map[string]struct {
			args []string
			code int
			said string
		}{
			"no such host":      {[]string{"cordon", "lxd-b"}, exitFailed, "Error from server (NotFound)"},
			"another namespace": {[]string{"uncordon", "lxd-a", "--namespace", "elsewhere"}, exitFailed, "in namespace elsewhere: add --namespace=default"},
			"no drain of it":    {[]string{"drain", "lxd-b"}, exitFailed, "Error from server (NotFound)"},
			"no name":           {[]string{"cordon"}, exitUsage, "NAME"},
			"two names":         {[]string{"cordon", "lxd-a", "lxd-b"}, exitUsage, "unexpected argument"},
			"no good name":      {[]string{"cordon", "a/default/lxd-a"}, exitUsage, "a/default/lxd-a"},
			"no such context":   {[]string{"cordon", "lxd-a", "--context", "none"}, exitUsage, "kubeconfig"},
			"no timeout":        {[]string{"drain", "lxd-a", "--timeout", "-1s"}, exitUsage, "--timeout"},
		} {
			if got := ctl(tc.args...); got.code != tc.code || !strings.Contains(got.err, tc.said) || got.stdout != "" {
				t.Errorf("%s: %+v, want exit code %d, and %q", name, got, tc.code, tc.said)
			}
		}
	})
	t.Run("Drain", func(t *testing.T) { checkDrain(t, &k, host) })
	t.Run("DrainThatEndsEarly", func(t *testing.T) { checkEnds(t, &k, host) })
}

func checkDrain(t *testing.T, k *kubernetes, host *infrav1.LXDHost) {
	t.Helper()
	d := k.drain(t.Context(), t)
	d.shows(&d.out, hostTitle+" cordoned")
	a := infrav1.LXDEvacuationVM{Machine: "default/a", State: infrav1.LXDVMLeaving, Message: "its Machine is being deleted"}
	b := infrav1.LXDEvacuationVM{Machine: "default/b", State: infrav1.LXDVMWaiting, Message: "Machine a is being deleted"}
	eventually.True(t, "it is asked to be empty", func() bool { return k.specOf(t, host).Evacuate })
	if !host.Spec.Unschedulable {
		t.Fatalf("it is not cordoned: %+v", host.Spec)
	}
	k.report(t, host, isEvacuating, a, b)
	d.shows(&d.out, "evacuating machine default/a: its Machine is being deleted")
	d.shows(&d.out, "waiting for machine default/b: Machine a is being deleted")
	b.State, b.Message = infrav1.LXDVMHeld, "its Cluster is paused"
	k.report(t, host, isEvacuating, b)
	d.shows(&d.out, "machine default/a evacuated")
	d.shows(&d.err, "cannot evacuate machine default/b: its Cluster is paused")
	k.report(t, host, isEvacuated)
	d.shows(&d.out, "machine default/b evacuated")
	d.shows(&d.out, hostTitle+" drained")
	d.ends(exitOK)
	if n := strings.Count(d.out.String(), "default/a: "); n != 1 {
		t.Errorf("it says %d times what became of a:\n%s", n, d.out.String())
	}
	got := call(t, "", []string{"KUBECONFIG=" + k.kubeconfig}, "capmaasctl", "host", "uncordon", "lxd-a")
	if spec := k.specOf(t, host); got.code != exitOK || spec.Unschedulable || spec.Evacuate {
		t.Errorf("uncordon: %+v; it is %+v", got, spec)
	}
}

// A drain that ends early leaves the manager at it, and says so. What was said about an earlier drain does not count.
func checkEnds(t *testing.T, k *kubernetes, host *infrav1.LXDHost) {
	t.Helper()
	const goesOn = "capmaasctl host uncordon lxd-a"
	ends := func(t *testing.T, d *drain, said string) {
		t.Helper()
		d.ends(exitFailed)
		if !strings.Contains(d.err.String(), said) {
			t.Errorf("it says %q, want %q", d.err.String(), said)
		}
		if spec := k.specOf(t, host); !spec.Evacuate || !spec.Unschedulable {
			t.Errorf("it is no longer asked to be empty: %+v", spec)
		}
	}
	t.Run("Timeout", func(t *testing.T) {
		ends(t, k.drain(t.Context(), t, "--timeout", "10s"), goesOn)
	})
	t.Run("Interrupt", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		d := k.drain(ctx, t)
		d.shows(&d.out, hostTitle+" already cordoned")
		k.report(t, host, isEvacuating, infrav1.LXDEvacuationVM{Machine: "default/a", State: infrav1.LXDVMLeaving})
		d.shows(&d.out, "evacuating machine default/a: ")
		cancel()
		ends(t, d, goesOn)
	})
	t.Run("NotEnabled", func(t *testing.T) {
		k.report(t, host, metav1.Condition{Status: metav1.ConditionFalse, Reason: infrav1.EvacuationNotEnabledReason, Message: "set evacuation.enabled"})
		ends(t, k.drain(t.Context(), t), "evacuation.enabled")
	})
}
