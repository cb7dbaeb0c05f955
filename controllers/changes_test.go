// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/simulator"
)

// A manager that was stopped between its note and its call may wake up when another one has taken over: MAAS is not asked any more, and
// the note, which may be the other's by now, stays.
// Another manager has taken a machine between what this one read and what it is about to ask for.
func TestAManagerThatStoodStillBeforeItsNoteTakesNoSecondMachine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.provisioned(w.newCluster())
	machines := w.maas.Machines()
	slices.Reverse(machines) // MAAS would give the first one.
	taken := machines[slices.IndexFunc(machines, func(m simulator.MachineSnapshot) bool { return m.Status == "Ready" })]
	var once sync.Once
	w.maas.SetHook(func(call simulator.Call, phase simulator.Phase) error {
		if phase == simulator.Before && call.Endpoint == "machines/" && strings.Contains(call.Query, "agent_name=") {
			once.Do(func() { w.takenByOther("stood-still", taken.SystemID) })
		}
		return nil
	})
	m := w.newMachine("stood-still", false, infrav1.MaasMachineSpec{})
	w.eventually(m, "deployed", func() bool { return conditions.IsTrue(m, infrav1.MachineDeployedCondition) })
	if m.Spec.SystemID != taken.SystemID {
		t.Errorf("the MaasMachine has machine %s, want %s", m.Spec.SystemID, taken.SystemID)
	}
	for _, other := range w.maas.Machines() {
		if other.SystemID != taken.SystemID && other.AgentName != "" {
			t.Errorf("machine %s (%s) has the agent name %s", other.SystemID, other.Hostname, other.AgentName)
		}
	}
}

// takenByOther records a machine for a MaasMachine, as another manager would.
func (w *world) takenByOther(name, systemID string) {
	m := &infrav1.MaasMachine{}
	m.Namespace, m.Name = w.namespace, name
	patch := fmt.Appendf(nil, `{"spec":{"systemID":%q}}`, systemID)
	if err := w.client.Patch(w.t.Context(), m, client.RawPatch(client.Merge.Type(), patch)); err != nil {
		w.t.Error(err)
	}
}

func TestAManagerThatStoodStillAfterItsNoteAsksMAASForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		scheme := runtime.NewScheme()
		if err := infrav1.AddToScheme(scheme); err != nil {
			t.Fatal(err)
		}
		m := &infrav1.MaasMachine{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "default"}}
		stopped := interceptor.Funcs{Patch: func(
			ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption,
		) error {
			err := c.Patch(ctx, object, patch, options...)
			<-time.After(sendWithin + time.Second)
			return err
		}}
		r := &MaasMachineReconciler{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(m).WithInterceptorFuncs(stopped).Build()}
		api, err := maas.NewClient(maas.Config{Endpoint: "http://127.0.0.1:1/MAAS", APIKey: "a:b:c"})
		if err != nil {
			t.Fatal(err)
		}
		defer api.Close()
		l := &life{Machine: &scope.Machine{MaasMachine: m}}
		err = r.change(t.Context(), l, func(ctx context.Context) error {
			_, err := api.ReleaseMachine(ctx, "abc", maas.ReleaseParams{})
			return err
		})
		if !errors.Is(err, maas.Unavailable) || maas.NotSent(err) {
			t.Errorf("the error is %v; what could not be sent at once must count as of unknown outcome", err)
		}
		if m.Annotations[infrav1.ChangeStartedAnnotation] == "" {
			t.Error("the note is gone")
		}
	})
}
