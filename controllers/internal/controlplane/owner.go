// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// The kinds of owners that are no control planes.
var (
	MachineDeployment = clusterv1.GroupVersion.WithKind("MachineDeployment").GroupKind()
	MachineSet        = clusterv1.GroupVersion.WithKind("MachineSet").GroupKind()
)

// Owner makes Machines: a control plane, a MachineDeployment or a MachineSet. It is read without its type: control
// planes are of several kinds, and all are of several versions.
type Owner struct{ *unstructured.Unstructured }

// ID is kind/name.
func (o Owner) ID() string { return o.GetKind() + "/" + o.GetName() }

// IsControlPlane reports whether its Machines are control planes.
func (o Owner) IsControlPlane() bool {
	return o.GetKind() != MachineDeployment.Kind && o.GetKind() != MachineSet.Kind
}

// Text returns a field; "" if there is none.
func (o Owner) Text(path ...string) string {
	text, _, _ := unstructured.NestedString(o.Object, path...)
	return text
}

// Version returns the version of Kubernetes.
func (o Owner) Version() string {
	return cmp.Or(o.Text("spec", "version"), o.Text("spec", "template", "spec", "version"))
}

// Template returns the name of the MaasMachineTemplate, or "": where Cluster API's contract has it, in either version,
// and where control planes have it that are older than the contract.
func (o Owner) Template() string {
	for _, path := range [][]string{
		{"spec", "template", "spec", "infrastructureRef"},
		{"spec", "machineTemplate", "spec", "infrastructureRef"}, {"spec", "machineTemplate", "infrastructureRef"},
		{"spec", "machineTemplate", "infrastructureTemplate"}, {"spec", "infrastructureTemplate"},
		{"spec", "infrastructureRef"},
	} {
		ref, _, _ := unstructured.NestedStringMap(o.Object, path...)
		if name := machineTemplate(ref); name != "" {
			return name
		}
	}
	return ""
}

// machineTemplate returns the name in a reference to a MaasMachineTemplate, in either version of Cluster API's
// contract; "" if the reference is to another kind.
func machineTemplate(ref map[string]string) string {
	version, err := schema.ParseGroupVersion(ref["apiVersion"])
	group := cmp.Or(ref["apiGroup"], version.Group, infrav1.GroupVersion.Group)
	if err != nil || ref["kind"] != "MaasMachineTemplate" || group != infrav1.GroupVersion.Group {
		return ""
	}
	return ref["name"]
}

// Replicas returns how many Machines it wants; 1 if it does not say.
func (o Owner) Replicas() int {
	replicas, found, _ := unstructured.NestedInt64(o.Object, "spec", "replicas")
	if !found {
		return 1
	}
	return int(replicas)
}

// WithReplicasOf returns an owner with the number of Machines of another one, if it does not say how many it wants.
func (o Owner) WithReplicasOf(other Owner) Owner {
	if _, found, _ := unstructured.NestedInt64(o.Object, "spec", "replicas"); found {
		return o
	}
	o = Owner{o.DeepCopy()}
	_ = unstructured.SetNestedField(o.Object, int64(other.Replicas()), "spec", "replicas") // spec is an object, if any
	return o
}

// IsPaused reports whether Cluster API leaves it as it is.
func (o Owner) IsPaused() bool {
	paused, _, _ := unstructured.NestedBool(o.Object, "spec", "paused")
	return paused || annotations.HasPaused(o)
}

// Conditions returns what it says of itself. What can't be read is taken for not said.
func (o Owner) Conditions() []metav1.Condition {
	said, _ := conditions.UnstructuredGetAll(o.Unstructured)
	return said
}

// IsOnDelete reports whether a rollout replaces only what others delete.
func (o Owner) IsOnDelete() bool { return o.strategy("type") == "OnDelete" }

// DeletionOrder returns which of its Machines goes first; "" is Cluster API's default. v1beta1 has it elsewhere.
func (o Owner) DeletionOrder() string {
	former, _ := o.strategy("rollingUpdate", "deletePolicy").(string)
	return cmp.Or(o.Text("spec", "deletion", "order"), former)
}

// MaxSurge returns how many Machines may be made beyond those that are wanted during a rollout.
func (o Owner) MaxSurge() int { return o.leeway("maxSurge", 1, true) }

// MaxUnavailable returns how many of its Machines may be unavailable during a rollout.
func (o Owner) MaxUnavailable() int { return o.leeway("maxUnavailable", 0, false) }

// strategy returns a field of the rollout's strategy, which is at a different place in each version and kind.
func (o Owner) strategy(path ...string) any {
	for _, at := range [][]string{{"spec", "rollout", "strategy"}, {"spec", "rolloutStrategy"}, {"spec", "strategy"}} {
		if value, found, _ := unstructured.NestedFieldNoCopy(o.Object, append(at, path...)...); found {
			return value
		}
	}
	return nil
}

// leeway returns a number of Machines, which may be given as a part of them.
func (o Owner) leeway(field string, byDefault int, roundUp bool) int {
	value := intstr.FromInt(byDefault)
	switch given := o.strategy("rollingUpdate", field).(type) {
	case int64:
		value = intstr.FromInt(int(given))
	case string:
		value = intstr.Parse(given)
	}
	number, err := intstr.GetScaledValueFromIntOrPercent(&value, o.Replicas(), roundUp)
	if err != nil {
		return byDefault
	}
	return number
}
