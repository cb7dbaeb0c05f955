// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// awaitTooNew makes passes until the node is refused for its LXD.
func (n *testNode) awaitTooNew(a *agent) {
	n.t.Helper()
	n.await("LXD is found too new", func(ctx context.Context) bool {
		err := a.pass(ctx)
		return err != nil && problemOf(err).reason == infrav1.LXDTooNewReason
	})
	n.wantCondition(corev1.ConditionFalse, infrav1.LXDTooNewReason)
	if message := n.condition().Message; !strings.Contains(message, "LXD 6.9") || strings.Contains(message, "\n") {
		n.t.Errorf("the message is %q", message)
	}
	if writes := n.writes(); len(writes) > 0 {
		n.t.Errorf("MAAS was asked to change something: %v", writes)
	}
	if a.ready.Load() {
		n.t.Error("the initializer is ready")
	}
}

// Where MAAS has VM hosts, it can't use LXD 6.7 and newer. Where it has none, the manager can.
func TestAnLXDThatMAASCannotUseIsNotRegistered(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.plays = "6.9"
	n := b.newNode()
	a := n.agent()
	n.awaitTooNew(a)
	n.wantLabel(false)
	if hosts := n.vmHosts(); len(hosts) > 0 {
		t.Errorf("MAAS has %+v", hosts)
	}
	if !problemOf(a.pass(t.Context())).permanent {
		t.Error("it is tried again soon")
	}

	n.withoutVMHosts()
	n.settle(a)
	n.wantOffered()
}

// A snap is refreshed by itself.
func TestAVMHostWhoseLXDBecomesTooNewIsKept(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.plays = "6.6"
	n := b.newNode()
	n.settle(n.agent())
	n.wantHost()
	before := n.onlyHost()

	n.must(n.lxd.Play("6.9"))
	n.region.ResetCalls()
	for _, a := range []*agent{n.agent(), n.agent()} {
		n.awaitTooNew(a)
		n.wantLabel(true)
	}
	if host := n.onlyHost(); host.ID != before.ID {
		t.Errorf("MAAS has VM host %+v, and had %+v", host, before)
	}
	if message := n.condition().Message; !strings.Contains(message, before.Name) {
		t.Errorf("the message does not name the VM host: %q", message)
	}
}
