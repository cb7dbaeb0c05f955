// SPDX-License-Identifier: Apache-2.0

package evacuation

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// sendWithin is how long after the API server was asked for the state of a control plane one of its Machines may be
// deleted. A manager that was stopped meanwhile, and resumes when another one has taken over, must not delete a second
// one. It is shorter than the others wait for the lease.
const sendWithin = 5 * time.Second

// act does what was decided for a VM, if it is decided once more.
func (r *Reconciler) act(ctx context.Context, host *infrav1.LXDHost, v *vm, decided verdict) (verdict, error) {
	// Not the monotonic clock, which stands still while the machine is suspended.
	began := r.Clock.Now().Round(0)
	ctx, cancel := context.WithTimeout(ctx, sendWithin)
	defer cancel()
	if err := r.look(ctx, v); err != nil {
		return verdict{}, err
	}
	if again := decide(v, r.Clock.Now()); again.action != decided.action {
		return again, nil
	}
	if r.Clock.Now().Round(0).Sub(began) > sendWithin {
		return *waiting("the API server takes too long"), nil
	}
	var err error
	if decided.action == rollOut {
		err = r.rollOut(ctx, v)
	} else {
		err = r.Client.Delete(ctx, v.machine, client.Preconditions{UID: &v.machine.UID,
			ResourceVersion: &v.machine.ResourceVersion})
	}
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return *waiting("it has changed a moment ago"), nil
	case apierrors.IsForbidden(err):
		return *held("the manager may not replace it: set the chart's value %s; the API server says: %v", enabledValue,
			err), nil
	case err != nil:
		return verdict{}, fmt.Errorf("replacing Machine %s: %w", client.ObjectKeyFromObject(v.machine), err)
	case v.owner.controlPlane != nil && v.owner.controlPlane.noRollout:
		return decide(v, r.Clock.Now()), nil
	}
	r.Recorder.Eventf(v.maasMachine, host, corev1.EventTypeNormal, "Evacuating", "Evacuate", "it leaves LXDHost %s: %s",
		host.Name, decided.message)
	ctrl.LoggerFrom(ctx).Info("A VM leaves its host", "lxdHost", client.ObjectKeyFromObject(host), "maasMachine", v.key(),
		"message", decided.message)
	return decided, nil
}

// rollOut makes a control plane replace the Machines that were made before now. A kind that does not know the field
// loses it.
func (r *Reconciler) rollOut(ctx context.Context, v *vm) error {
	cp := v.owner.controlPlane
	before := cp.object.DeepCopy()
	if err := unstructured.SetNestedField(cp.object.Object, r.Clock.Now().UTC().Format(time.RFC3339),
		rolloutAfterPath...); err != nil {
		return fmt.Errorf("setting spec.rollout.after: %w", err)
	}
	err := r.Client.Patch(ctx, cp.object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return err
	}
	_, known, _ := unstructured.NestedString(cp.object.Object, rolloutAfterPath...)
	cp.noRollout = !known
	return nil
}
