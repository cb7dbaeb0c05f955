// SPDX-License-Identifier: Apache-2.0

package evacuation

import (
	"slices"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
)

// vm is a VM of ours on a host, with what Cluster API has for it now.
type vm struct {
	maasMachine *infrav1.MaasMachine
	// unreadable is why it is not known which hosts the VM is on; unsure means that it may be on another one.
	unreadable error
	unsure     bool

	cluster *clusterv1.Cluster // nil: there is none
	machine *clusterv1.Machine // nil: there is none
	owner   *owner             // nil: nothing replaces the Machine

	out outcome // what was decided in this round
}

// owner makes a successor for a Machine that is deleted: a control plane, or a MachineSet with its MachineDeployment.
type owner struct {
	kind, name string
	// paused names what is paused; "" if nothing is.
	paused   string
	deleting bool
	replicas int
	// rollingOut: a rollout deletes Machines by itself. maxUnavailable is how many it lets be unavailable.
	rollingOut     bool
	maxUnavailable int
	// machines are all of its Machines, also those that are being deleted.
	machines []*clusterv1.Machine
	// controlPlane is nil for workers.
	controlPlane *controlPlane
}

// action is what the reconciler does for a VM.
type action int

const (
	// none: it waits, or is on its way.
	none action = iota
	// deleteMachine deletes the Machine; its owner makes the successor.
	deleteMachine
	// rollOut makes the control plane replace its only Machine by a new one, which is made first.
	rollOut
)

// outcome is what is decided about a VM until the next round, as in package report: the zero value leaves that to the
// next rule. Its reason is the state of the VM.
type outcome struct {
	report.Outcome
	action action
}

var proceed = outcome{}

func (o outcome) state() infrav1.LXDEvacuationState {
	return infrav1.LXDEvacuationState(o.Problem().Reason)
}

// by returns an outcome that an action leads to.
func (o outcome) by(a action) outcome {
	o.action = a
	return o
}

func leaving(format string, args ...any) outcome { return as(infrav1.LXDVMLeaving, format, args...) }

func waiting(format string, args ...any) outcome { return as(infrav1.LXDVMWaiting, format, args...) }

func held(format string, args ...any) outcome { return as(infrav1.LXDVMHeld, format, args...) }

func as(state infrav1.LXDEvacuationState, format string, args ...any) outcome {
	return outcome{Outcome: report.Wait(Interval, string(state), format, args...)}
}

// decide returns what is to be done for a VM. It is pure: all that it knows is in the VM, and now. The first rule that
// has something to say decides.
func decide(v *vm, now time.Time) outcome {
	rules := common
	switch {
	case v.owner == nil:
	case v.owner.controlPlane != nil:
		rules = slices.Concat(common, controlPlaneRules)
	default:
		rules = slices.Concat(common, workerRules)
	}
	for _, rule := range rules {
		if out := rule(v, now); out.Waits() {
			return out
		}
	}
	return leaving("its Machine is being deleted").by(deleteMachine)
}

type rule func(v *vm, now time.Time) outcome

var common = []rule{
	func(v *vm, _ time.Time) outcome {
		switch {
		case v.unreadable != nil:
			return held("%v", v.unreadable)
		case v.unsure:
			return waiting("it is not certain yet which host has its VM")
		}
		return proceed
	},
	// What is on its way is never stopped.
	func(v *vm, _ time.Time) outcome {
		switch {
		case v.machine != nil && !v.machine.DeletionTimestamp.IsZero():
			return leaving("its Machine is being deleted%s",
				report.After(conditions.GetMessage(v.machine, clusterv1.DeletingCondition)))
		case !v.maasMachine.DeletionTimestamp.IsZero():
			return leaving("its VM is being deleted%s", report.After(conditions.GetMessage(v.maasMachine,
				infrav1.ReadyCondition)))
		}
		return proceed
	},
	func(v *vm, _ time.Time) outcome {
		switch {
		case v.machine == nil:
			return held("no Machine owns it: kubectl delete maasmachine %s --namespace %s, if nothing needs it",
				v.maasMachine.Name, v.maasMachine.Namespace)
		case v.cluster == nil:
			return held("there is no Cluster %s: delete its Machine, if nothing needs it", v.machine.Spec.ClusterName)
		case !v.cluster.DeletionTimestamp.IsZero():
			return waiting("its Cluster is being deleted")
		}
		return proceed
	},
	// Whoever pauses something wants it untouched.
	func(v *vm, _ time.Time) outcome {
		if what := v.paused(); what != "" {
			return held("%s is paused: it is not touched until that is taken back", what)
		}
		return proceed
	},
	func(v *vm, _ time.Time) outcome {
		if v.owner == nil {
			return held("nothing would replace its Machine, which belongs to no MachineSet and no control plane that can be "+
				"read: if the Machine may go, kubectl delete machine %s --namespace %s", v.machine.Name, v.machine.Namespace)
		}
		if v.owner.deleting {
			return waiting("its %s is being deleted", v.owner.kind)
		}
		return proceed
	},
}

// paused returns what is paused; "" if nothing is.
func (v *vm) paused() string {
	switch {
	case annotations.IsPaused(v.cluster, v.cluster):
		return "its Cluster"
	case annotations.HasPaused(v.machine):
		return "its Machine"
	case annotations.HasPaused(v.maasMachine):
		return "its MaasMachine"
	case v.owner != nil && v.owner.paused != "":
		return v.owner.paused
	}
	return ""
}

var workerRules = []rule{
	// The rollout replaces it, and does so by the strategy.
	func(v *vm, _ time.Time) outcome {
		if v.owner.rollingOut {
			return waiting("its %s %s is being rolled out", v.owner.kind, v.owner.name)
		}
		return proceed
	},
	// One at a time even where none may be unavailable: MachineSets delete before they make the successor available.
	func(v *vm, _ time.Time) outcome {
		available := len(list.Where(v.owner.machines,
			func(m *clusterv1.Machine) bool { return m.Name != v.machine.Name && isAvailable(m) }))
		if missing := v.owner.replicas - available; missing > max(v.owner.maxUnavailable, 1) {
			return waiting("its %s %s has only %d other available Machine(s) of %d", v.owner.kind, v.owner.name, available,
				v.owner.replicas)
		}
		return proceed
	},
}

// isAvailable reports whether a Machine counts for its MachineDeployment.
func isAvailable(m *clusterv1.Machine) bool {
	return m.DeletionTimestamp.IsZero() && conditions.IsTrue(m, clusterv1.AvailableCondition)
}

// isUnclear reports whether it is not certain that the VM is on the host.
func (v *vm) isUnclear() bool { return v.unreadable != nil || v.unsure }

// key is namespace/name of a VM's MaasMachine.
func (v *vm) key() string { return client.ObjectKeyFromObject(v.maasMachine).String() }
