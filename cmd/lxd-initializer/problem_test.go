// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdnode"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/vmhosts"
)

func TestProblems(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		err       error
		status    corev1.ConditionStatus
		reason    string
		permanent bool
	}{
		{"anything", errors.New("first\nsecond"), corev1.ConditionFalse, reasonFailed, false},
		{"no LXD", fmt.Errorf("looking: %w", lxdnode.ErrNotInstalled), corev1.ConditionFalse, reasonLXDNotInstalled, false},
		{"LXD is not up", &lxdnode.Error{Problem: "no"}, corev1.ConditionFalse, reasonLXDNotReady, false},
		{"LXD in several ways", errors.Join(&lxdnode.Error{Problem: "no"}, &lxdnode.Error{Problem: "never", Permanent: true}), corev1.ConditionFalse, reasonLXDNotReady, true},
		{"no credentials", &maas.ConfigError{Field: "apiKey", Problem: "none"}, corev1.ConditionUnknown, infrav1.CredentialsInvalidReason, true},
		{"401", &maas.Error{Kind: maas.Unauthorized, Message: "&hush"}, corev1.ConditionUnknown, infrav1.CredentialsInvalidReason, true},
		{"403", &maas.Error{Kind: maas.Forbidden}, corev1.ConditionUnknown, infrav1.CredentialsInvalidReason, true},
		{"400", &maas.Error{Kind: maas.Invalid}, corev1.ConditionFalse, infrav1.MAASRefusedReason, true},
		{"404", &maas.Error{Kind: maas.NotFound}, corev1.ConditionFalse, reasonFailed, false},
		{"no answer", &maas.Error{Kind: maas.Unavailable}, corev1.ConditionUnknown, infrav1.MAASUnavailableReason, false},
		{"MAAS does not reach LXD", &maas.Error{Kind: maas.Unavailable, Op: "refresh", Status: http.StatusServiceUnavailable}, corev1.ConditionFalse, reasonHostUnreachable, false},
		{"a proxy responds to a refresh", &maas.Error{Kind: maas.Unavailable, Op: "refresh", Status: http.StatusBadGateway}, corev1.ConditionUnknown, infrav1.MAASUnavailableReason, false},
		{"another's host", &vmhosts.Error{Kind: vmhosts.Taken}, corev1.ConditionFalse, reasonVMHostNameTaken, true},
		{"VMs that MAAS does not know", &vmhosts.Error{Kind: vmhosts.Occupied}, corev1.ConditionFalse, reasonVMsWouldRestart, true},
		{"several hosts", &vmhosts.Error{Kind: vmhosts.Ambiguous}, corev1.ConditionFalse, reasonAmbiguous, true},
		{"Kubernetes forbids", apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "x", nil), corev1.ConditionFalse, reasonFailed, true},
		{"Kubernetes is busy", apierrors.NewTooManyRequests("x", 1), corev1.ConditionFalse, reasonFailed, false},
	} {
		p := problemOf(fmt.Errorf("doing: %w", c.err))
		if p.status != c.status || p.reason != c.reason || p.permanent != c.permanent {
			t.Errorf("%s: it is %s/%s, permanent: %v", c.name, p.status, p.reason, p.permanent)
		}
		if p.message == "" || strings.Contains(p.message, "\n") || strings.Contains(p.message, "hush") {
			t.Errorf("%s: the message is %q", c.name, p.message)
		}
		if !errors.Is(p, c.err) && p.cause != nil {
			t.Errorf("%s: the cause is lost", c.name)
		}
	}
}

func TestMAASIsNotAskedBeforeItWants(t *testing.T) {
	t.Parallel()
	p := problemOf(&maas.Error{Kind: maas.Unavailable, RetryAfter: time.Minute})
	if p.retryAfter != time.Minute {
		t.Errorf("it is asked again after %s", p.retryAfter)
	}
}

func TestMachineOfTheNode(t *testing.T) {
	t.Parallel()
	for providerID, want := range map[string][2]string{
		"maas://zone-b/abc123": {"zone-b", "abc123"}, "": {}, "other://zone-b/abc123": {}, "maas://abc123": {},
	} {
		p := &pass{agent: newAgent(options{zoneOfMachine: true}, nil, nil), node: &corev1.Node{Spec: corev1.NodeSpec{ProviderID: providerID}}}
		if zone, system := p.machine(); zone != want[0] || system != want[1] {
			t.Errorf("%q: zone %q, system id %q", providerID, zone, system)
		}
		if want[1] != "" {
			continue
		}
		if _, err := p.zone(t.Context()); problemOf(err).reason != reasonZoneUnknown || problemOf(err).permanent {
			t.Errorf("%q: %v", providerID, err)
		}
	}
}
