// SPDX-License-Identifier: Apache-2.0

package evacuation

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/controlplane"
)

// controlPlane is what a control plane says of itself, by Cluster API's contract.
type controlPlane struct {
	// object is only for changing it.
	object *unstructured.Unstructured
	// observed: its status is about its spec.
	observed   bool
	conditions []metav1.Condition
	// upToDate is how many Machines are as the spec wants them; -1 if it does not say.
	upToDate int
	// maxSurge is how many Machines may be made beyond spec.replicas during a rollout.
	maxSurge int
	// rolloutAfter is the time before which Machines were made that are to be replaced from then on.
	rolloutAfter time.Time
	// noRollout: this kind does not know spec.rollout.after.
	noRollout bool
}

// rolloutAfterPath is where a KubeadmControlPlane has the time of a rollout.
var rolloutAfterPath = []string{"spec", "rollout", "after"}

// readControlPlane reads a control plane of any kind. What it does not have is taken for fine, except spec.replicas.
func readControlPlane(from controlplane.Owner) (*owner, error) {
	if _, found, err := unstructured.NestedInt64(from.Object, "spec", "replicas"); err != nil || !found {
		return nil, fmt.Errorf("%s %s has no spec.replicas", from.GetKind(), from.GetName())
	}
	cp := &controlPlane{object: from.Unstructured, observed: true, conditions: from.Conditions(), upToDate: -1,
		maxSurge: from.MaxSurge()}
	if observed, found, _ := unstructured.NestedInt64(from.Object, "status", "observedGeneration"); found {
		cp.observed = observed >= from.GetGeneration()
	}
	for _, name := range []string{"upToDateReplicas", "updatedReplicas"} { // contracts v1beta2 and v1beta1
		if n, found, _ := unstructured.NestedInt64(from.Object, "status", name); found {
			cp.upToDate = int(n)
			break
		}
	}
	if text := from.Text(rolloutAfterPath...); text != "" {
		cp.rolloutAfter, _ = time.Parse(time.RFC3339, text) // The API server accepts only a time.
	}
	o := newOwner(from)
	o.controlPlane = cp
	return o, nil
}

// controlPlaneRules let one Machine of a control plane go at a time, and only from a healthy one: its successor is made
// when it is gone.
var controlPlaneRules = []rule{
	func(v *vm, _ time.Time) outcome {
		for _, m := range v.owner.machines {
			if !m.DeletionTimestamp.IsZero() {
				return waiting("Machine %s of the same control plane is being deleted", m.Name)
			}
		}
		return proceed
	},
	replacement,
	func(v *vm, _ time.Time) outcome {
		if n := len(v.owner.machines); n != v.owner.replicas {
			return waiting("its %s %s has %d of %d Machines", v.owner.kind, v.owner.name, n, v.owner.replicas)
		}
		return proceed
	},
	func(v *vm, _ time.Time) outcome {
		cp := v.owner.controlPlane
		rolling := v.owner.rollingOut || (cp.upToDate >= 0 && cp.upToDate != v.owner.replicas)
		switch {
		case !cp.observed:
			return waiting("its %s %s has changed, and its controller has not seen that yet", v.owner.kind, v.owner.name)
		case rolling:
			return waiting("its %s %s is being rolled out", v.owner.kind, v.owner.name)
		}
		return proceed
	},
	func(v *vm, _ time.Time) outcome {
		for _, m := range v.owner.machines {
			if why := controlplane.MachineSickness(m); why != "" && (m.Name != v.machine.Name || v.owner.replicas == 1) {
				return waiting("Machine %s of the same control plane is not healthy: %s", m.Name, why)
			}
		}
		if why := controlplane.Sickness(v.owner.controlPlane.conditions,
			controlplane.MachineSickness(v.machine) != ""); why != "" {
			return waiting("its %s %s is not healthy: %s", v.owner.kind, v.owner.name, why)
		}
		return proceed
	},
	alone,
}

// replacement says that the only Machine of a control plane is being replaced already, or will be when a person has
// said.
func replacement(v *vm, now time.Time) outcome {
	after := v.owner.controlPlane.rolloutAfter
	switch {
	case v.owner.replicas != 1 || !v.machine.CreationTimestamp.Time.Before(after):
		return proceed
	case after.After(now):
		return held("its %s %s is to be rolled out only at %s: wait, or remove spec.rollout.after", v.owner.kind,
			v.owner.name, after.UTC().Format(time.RFC3339))
	}
	return leaving("its %s %s replaces it by a new Machine, which is made first", v.owner.kind, v.owner.name)
}

// alone replaces the only Machine of a control plane by a new one first: without it there would be no cluster.
func alone(v *vm, _ time.Time) outcome {
	cp := v.owner.controlPlane
	remedy := fmt.Sprintf("scale %s %s to 3, or delete the cluster", v.owner.kind, v.owner.name)
	switch {
	case v.owner.replicas != 1:
		return proceed
	case cp.noRollout:
		return held("it is the only Machine of its control plane, and a %s has no spec.rollout.after, by which a new one "+
			"is made first: %s", v.owner.kind, remedy)
	case cp.maxSurge == 0:
		return held("it is the only Machine of its control plane, and a new one can't be made first: set "+
			"spec.rollout.strategy.rollingUpdate.maxSurge of %s %s to 1", v.owner.kind, v.owner.name)
	}
	return leaving("its %s %s replaces it by a new Machine, which is made first", v.owner.kind, v.owner.name).by(rollOut)
}
