// SPDX-License-Identifier: Apache-2.0

package maasmachine

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// What a host cluster refuses, with its policies and webhooks, does not hold the machine for ever: its power is cut, as
// if the cluster were gone. Nor does it wait for a node that was asked and has no power: the API server of a control
// plane that leaves hangs once, the machine is switched off, and then another one takes the request.
func TestANodeThatCannotBeAskedHoldsNoDeletion(t *testing.T) {
	t.Parallel()
	nodes := schema.GroupResource{Resource: "nodes"}
	for name, refusal := range map[string]error{
		"a policy":             apierrors.NewForbidden(nodes, "host-a", errors.New("nobody changes Nodes")),
		"a webhook that hangs": apierrors.NewInternalError(errors.New("failed calling webhook: context deadline exceeded")),
		"the Node has left":    apierrors.NewNotFound(nodes, "host-a"),
		"nobody":               nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "host-a"}, Status: corev1.NodeStatus{
				Conditions: []corev1.NodeCondition{{Type: infrav1.LXDHostReadyNodeCondition, Status: corev1.ConditionTrue}},
			}}
			refuse := func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
				return refusal
			}
			workload := fake.NewClientBuilder().WithObjects(node).WithInterceptorFuncs(interceptor.Funcs{Patch: refuse}).Build()
			r := &Reconciler{Base: reconciler.Base{Clock: testingclock.NewFakePassiveClock(time.Now())}}
			l := &life{maas: &maas.Machine{SystemID: "abc", PowerState: maas.PowerOff}}
			out, err := r.retireNode(t.Context(), l, &hostNode{Node: node, workload: workload})
			if err != nil || out.Waits() {
				t.Errorf("the deletion waits: %+v, %v", out, err)
			}
		})
	}
}
