// SPDX-License-Identifier: Apache-2.0

package evacuation

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/controlplane"
)

var (
	now    = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	before = metav1.NewTime(now.Add(-time.Hour))
)

// newMachine is a healthy Machine.
func newMachine(name string) *clusterv1.Machine {
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, CreationTimestamp: before}}
	m.Status.NodeRef.Name = name
	for _, condition := range append([]string{clusterv1.ReadyCondition}, controlplane.MachineHealth...) {
		say(m, condition, metav1.ConditionTrue)
	}
	return m
}

func say(m *clusterv1.Machine, condition string, status metav1.ConditionStatus) {
	conditions.Set(m, metav1.Condition{Type: condition, Status: status, Reason: "Test", Message: "a test"})
}

// beingDeleted is a Machine on its way.
func beingDeleted(m *clusterv1.Machine) { m.DeletionTimestamp = &before }

// newVM is the VM of the first of some Machines of a healthy owner.
func newVM(o *owner, machines ...string) *vm {
	v := &vm{
		maasMachine: &infrav1.MaasMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: machines[0]}},
		cluster:     &clusterv1.Cluster{}, owner: o,
	}
	o.replicas = len(machines)
	for _, name := range machines {
		o.machines = append(o.machines, newMachine(name))
	}
	v.machine = o.machines[0]
	return v
}

// newControlPlane is the VM of the first Machine of a healthy control plane.
func newControlPlane(machines ...string) *vm {
	healthy := metav1.ConditionTrue
	return newVM(&owner{kind: "KubeadmControlPlane", name: "cp", controlPlane: &controlPlane{
		observed: true, upToDate: len(machines), maxSurge: 1, conditions: []metav1.Condition{
			{Type: clusterv1.AvailableCondition, Status: healthy},
			{Type: controlplanev1.KubeadmControlPlaneEtcdClusterHealthyCondition, Status: healthy},
			{Type: controlplanev1.KubeadmControlPlaneControlPlaneComponentsHealthyCondition, Status: healthy},
		},
	}}, machines...)
}

func newWorkers(maxUnavailable int, machines ...string) *vm {
	return newVM(&owner{kind: "MachineDeployment", name: "md", maxUnavailable: maxUnavailable}, machines...)
}

// with changes a VM.
func with(v *vm, changes ...func(*vm)) *vm {
	for _, change := range changes {
		change(v)
	}
	return v
}

// machineIs changes one of the owner's Machines.
func machineIs(index int, change func(*clusterv1.Machine)) func(*vm) {
	return func(v *vm) { change(v.owner.machines[index]) }
}

func is(condition string, status metav1.ConditionStatus) func(*clusterv1.Machine) {
	return func(m *clusterv1.Machine) { say(m, condition, status) }
}

// says changes a condition of the control plane.
func says(condition string, status metav1.ConditionStatus) func(*vm) {
	return func(v *vm) { meta.FindStatusCondition(v.owner.controlPlane.conditions, condition).Status = status }
}

func TestDecide(t *testing.T) {
	const unhealthy = metav1.ConditionFalse
	three := func(changes ...func(*vm)) *vm { return with(newControlPlane("a", "b", "c"), changes...) }
	one := func(changes ...func(*vm)) *vm { return with(newControlPlane("a"), changes...) }
	md := func(maxUnavailable int, changes ...func(*vm)) *vm {
		return with(newWorkers(maxUnavailable, "a", "b", "c"), changes...)
	}
	missing := func(v *vm) { v.owner.machines = v.owner.machines[:2] }
	pausedAnnotation := map[string]string{clusterv1.PausedAnnotation: ""}
	rolloutAt := func(at time.Time) func(*vm) { return func(v *vm) { v.owner.controlPlane.rolloutAfter = at } }
	for name, tc := range map[string]struct {
		vm     *vm
		action action
		state  infrav1.LXDEvacuationState
	}{
		// Anything.
		"its record can't be read":      {with(three(), func(v *vm) { v.unreadable = errors.New("no JSON") }), none, infrav1.LXDVMHeld},
		"it may be elsewhere":           {with(three(), func(v *vm) { v.unsure = true }), none, infrav1.LXDVMWaiting},
		"its Machine is being deleted":  {three(machineIs(0, beingDeleted)), none, infrav1.LXDVMLeaving},
		"so is it, and all is paused":   {three(machineIs(0, beingDeleted), func(v *vm) { v.cluster.Spec.Paused = ptr.To(true) }), none, infrav1.LXDVMLeaving},
		"its VM is being deleted":       {three(func(v *vm) { v.machine, v.maasMachine.DeletionTimestamp = nil, &before }), none, infrav1.LXDVMLeaving},
		"it has no Machine":             {three(func(v *vm) { v.machine = nil }), none, infrav1.LXDVMHeld},
		"it has no Cluster":             {three(func(v *vm) { v.cluster = nil }), none, infrav1.LXDVMHeld},
		"its Cluster is being deleted":  {three(func(v *vm) { v.cluster.DeletionTimestamp = &before }), none, infrav1.LXDVMWaiting},
		"its Cluster is paused":         {three(func(v *vm) { v.cluster.Spec.Paused = ptr.To(true) }), none, infrav1.LXDVMHeld},
		"its Cluster has the pause":     {three(func(v *vm) { v.cluster.Annotations = pausedAnnotation }), none, infrav1.LXDVMHeld},
		"its Machine is paused":         {three(machineIs(0, func(m *clusterv1.Machine) { m.Annotations = pausedAnnotation })), none, infrav1.LXDVMHeld},
		"its MaasMachine is paused":     {three(func(v *vm) { v.maasMachine.Annotations = pausedAnnotation }), none, infrav1.LXDVMHeld},
		"its control plane is paused":   {three(func(v *vm) { v.owner.paused = "its KubeadmControlPlane" }), none, infrav1.LXDVMHeld},
		"nothing replaces it":           {with(three(), func(v *vm) { v.owner = nil }), none, infrav1.LXDVMHeld},
		"its owner is being deleted":    {three(func(v *vm) { v.owner.deleting = true }), none, infrav1.LXDVMWaiting},
		"another Machine is paused, it": {three(machineIs(1, func(m *clusterv1.Machine) { m.Annotations = pausedAnnotation })), deleteMachine, infrav1.LXDVMLeaving},

		// Control planes.
		"one of three":                       {three(), deleteMachine, infrav1.LXDVMLeaving},
		"one of five":                        {newControlPlane("a", "b", "c", "d", "e"), deleteMachine, infrav1.LXDVMLeaving},
		"another one is being deleted":       {three(machineIs(2, beingDeleted)), none, infrav1.LXDVMWaiting},
		"one is missing":                     {three(missing), none, infrav1.LXDVMWaiting},
		"one is too many":                    {three(func(v *vm) { v.owner.replicas = 2 }), none, infrav1.LXDVMWaiting},
		"another one has no Node":            {three(machineIs(1, func(m *clusterv1.Machine) { m.Status.NodeRef.Name = "" })), none, infrav1.LXDVMWaiting},
		"another one is not Ready":           {three(machineIs(1, is(clusterv1.ReadyCondition, unhealthy))), none, infrav1.LXDVMWaiting},
		"another one's etcd is unknown":      {three(machineIs(1, is(controlplanev1.KubeadmControlPlaneMachineEtcdMemberHealthyCondition, metav1.ConditionUnknown))), none, infrav1.LXDVMWaiting},
		"another one's Node is sick":         {three(machineIs(2, is(clusterv1.MachineNodeHealthyCondition, unhealthy))), none, infrav1.LXDVMWaiting},
		"another one is to be remediated":    {three(machineIs(2, is(clusterv1.MachineHealthCheckSucceededCondition, unhealthy))), none, infrav1.LXDVMWaiting},
		"etcd has no quorum to spare":        {three(says(controlplanev1.KubeadmControlPlaneEtcdClusterHealthyCondition, unhealthy)), none, infrav1.LXDVMWaiting},
		"etcd can't be asked":                {three(says(controlplanev1.KubeadmControlPlaneEtcdClusterHealthyCondition, metav1.ConditionUnknown)), none, infrav1.LXDVMWaiting},
		"it is not available":                {three(says(clusterv1.AvailableCondition, unhealthy)), none, infrav1.LXDVMWaiting},
		"it is being rolled out":             {three(func(v *vm) { v.owner.rollingOut = true }), none, infrav1.LXDVMWaiting},
		"some are not up to date":            {three(func(v *vm) { v.owner.controlPlane.upToDate = 2 }), none, infrav1.LXDVMWaiting},
		"a change has not been seen":         {three(func(v *vm) { v.owner.controlPlane.observed = false }), none, infrav1.LXDVMWaiting},
		"it says nothing of itself":          {three(func(v *vm) { v.owner.controlPlane.conditions = nil }), none, infrav1.LXDVMWaiting},
		"it is the sick one":                 {three(machineIs(0, is(clusterv1.ReadyCondition, unhealthy)), says(controlplanev1.KubeadmControlPlaneEtcdClusterHealthyCondition, unhealthy)), deleteMachine, infrav1.LXDVMLeaving},
		"it is the sick one of no quorum":    {three(machineIs(0, is(clusterv1.ReadyCondition, unhealthy)), says(clusterv1.AvailableCondition, unhealthy)), none, infrav1.LXDVMWaiting},
		"it is one of two sick ones":         {three(machineIs(0, is(clusterv1.ReadyCondition, unhealthy)), machineIs(1, is(clusterv1.ReadyCondition, unhealthy))), none, infrav1.LXDVMWaiting},
		"the only one":                       {one(), rollOut, infrav1.LXDVMLeaving},
		"the only one, sick":                 {one(machineIs(0, is(clusterv1.ReadyCondition, unhealthy))), none, infrav1.LXDVMWaiting},
		"the only one, and no surge":         {one(func(v *vm) { v.owner.controlPlane.maxSurge = 0 }), none, infrav1.LXDVMHeld},
		"the only one, of another kind":      {one(func(v *vm) { v.owner.controlPlane.noRollout = true }), none, infrav1.LXDVMHeld},
		"the only one, asked for before":     {one(rolloutAt(now.Add(-time.Minute))), none, infrav1.LXDVMLeaving},
		"the only one, made since":           {one(rolloutAt(before.Add(-time.Minute))), rollOut, infrav1.LXDVMLeaving},
		"the only one, to be made later":     {one(rolloutAt(now.Add(time.Hour))), none, infrav1.LXDVMHeld},
		"the only one, and its successor":    {one(rolloutAt(now.Add(-time.Minute)), func(v *vm) { v.owner.machines = append(v.owner.machines, newMachine("b")) }), none, infrav1.LXDVMLeaving},
		"the only one, another is going":     {one(func(v *vm) { v.owner.machines = append(v.owner.machines, newMachine("b")) }, machineIs(1, beingDeleted)), none, infrav1.LXDVMWaiting},
		"a rollout of three, long ago":       {three(rolloutAt(before.Add(-time.Minute))), deleteMachine, infrav1.LXDVMLeaving},
		"a Machine's Available is not there": {three(machineIs(1, func(m *clusterv1.Machine) { conditions.Delete(m, clusterv1.AvailableCondition) })), deleteMachine, infrav1.LXDVMLeaving},

		// Workers.
		"a worker":                         {md(0), deleteMachine, infrav1.LXDVMLeaving},
		"the only worker":                  {newWorkers(0, "a"), deleteMachine, infrav1.LXDVMLeaving},
		"another worker is being deleted":  {md(0, machineIs(1, beingDeleted)), none, infrav1.LXDVMWaiting},
		"so it is, and two may lack":       {md(2, machineIs(1, beingDeleted)), deleteMachine, infrav1.LXDVMLeaving},
		"two are, and two may lack":        {md(2, machineIs(1, beingDeleted), machineIs(2, beingDeleted)), none, infrav1.LXDVMWaiting},
		"another worker is not available":  {md(1, machineIs(1, is(clusterv1.AvailableCondition, unhealthy))), none, infrav1.LXDVMWaiting},
		"a worker that is not available":   {md(0, machineIs(0, is(clusterv1.AvailableCondition, unhealthy))), deleteMachine, infrav1.LXDVMLeaving},
		"another worker is missing":        {md(0, missing), none, infrav1.LXDVMWaiting},
		"the MachineDeployment rolls out":  {md(0, func(v *vm) { v.owner.rollingOut = true }), none, infrav1.LXDVMWaiting},
		"a worker of a paused deployment":  {md(0, func(v *vm) { v.owner.paused = "its MachineDeployment" }), none, infrav1.LXDVMHeld},
		"one worker more than is wanted":   {md(0, func(v *vm) { v.owner.replicas = 2 }), deleteMachine, infrav1.LXDVMLeaving},
		"no worker is wanted, and all are": {md(0, func(v *vm) { v.owner.replicas = 0 }), deleteMachine, infrav1.LXDVMLeaving},
	} {
		t.Run(name, func(t *testing.T) {
			got := decide(tc.vm, now)
			if p := got.Problem(); got.action != tc.action || got.state() != tc.state || p.Message == "" {
				t.Errorf("it is action %d, %s: %s; want %d, %s", got.action, p.Reason, p.Message, tc.action, tc.state)
			}
			if again := decide(tc.vm, now); again.action != got.action || again.Problem() != got.Problem() {
				t.Errorf("the second time it is %+v", again)
			}
		})
	}
}

func TestReadControlPlane(t *testing.T) {
	object := func(spec, status map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"kind": "KubeadmControlPlane", "metadata": map[string]any{"name": "cp", "generation": int64(3)}, "spec": spec, "status": status,
		}}
	}
	said := []any{map[string]any{"type": "Available", "status": "True", "reason": "Available", "lastTransitionTime": "2026-01-02T03:04:05Z"},
		map[string]any{"type": "RollingOut", "status": "True", "reason": "RollingOut", "lastTransitionTime": "2026-01-02T03:04:05Z"}}
	for name, tc := range map[string]struct {
		object *unstructured.Unstructured
		want   controlPlane
	}{
		"all of it": {
			object(map[string]any{"replicas": int64(3), "rollout": map[string]any{
				"after": "2026-01-02T03:04:05Z", "strategy": map[string]any{"rollingUpdate": map[string]any{"maxSurge": int64(0)}},
			}}, map[string]any{"observedGeneration": int64(3), "upToDateReplicas": int64(2), "conditions": said}),
			controlPlane{observed: true, upToDate: 2, maxSurge: 0, rolloutAfter: now},
		},
		"of the older contract": {
			object(map[string]any{"replicas": int64(3)}, map[string]any{"updatedReplicas": int64(2)}), controlPlane{observed: true, upToDate: 2, maxSurge: 1},
		},
		"what every kind has": {object(map[string]any{"replicas": int64(3)}, map[string]any{}), controlPlane{observed: true, upToDate: -1, maxSurge: 1}},
		"a change since": {
			object(map[string]any{"replicas": int64(3)}, map[string]any{"observedGeneration": int64(2)}), controlPlane{upToDate: -1, maxSurge: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := readControlPlane(controlplane.Owner{Unstructured: tc.object})
			if err != nil || o.replicas != 3 || o.kind != "KubeadmControlPlane" || o.name != "cp" || o.rollingOut != (name == "all of it") {
				t.Fatalf("it is %+v, %v", o, err)
			}
			if meta.IsStatusConditionTrue(o.controlPlane.conditions, "Available") != (name == "all of it") {
				t.Errorf("its conditions are %v", o.controlPlane.conditions)
			}
			got := *o.controlPlane
			got.object, got.conditions = nil, nil
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(controlPlane{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if _, err := readControlPlane(controlplane.Owner{Unstructured: object(map[string]any{}, nil)}); err == nil {
		t.Error("a control plane without replicas is read")
	}
}

// The successor of a control plane may get each of the failure domains with the fewest of its Machines.
func TestZones(t *testing.T) {
	in := func(zones ...string) func(*vm) {
		return func(v *vm) {
			for i, zone := range zones {
				v.owner.machines[i].Spec.FailureDomain = zone
			}
			for _, zone := range []string{"a", "b", "c"} {
				v.cluster.Status.FailureDomains = append(v.cluster.Status.FailureDomains, clusterv1.FailureDomain{Name: zone, ControlPlane: ptr.To(true)})
			}
		}
	}
	full := func(zone int) func(*vm) {
		return func(v *vm) { v.cluster.Status.FailureDomains[zone].ControlPlane = ptr.To(false) }
	}
	for name, tc := range map[string]struct {
		vm   *vm
		want []string
	}{
		"its own":                        {with(newControlPlane("1", "2", "3"), in("a", "b", "c")), []string{"a"}},
		"its own takes none":             {with(newControlPlane("1", "2", "3"), in("a", "b", "c"), full(0)), []string{"b", "c"}},
		"the one that was left out":      {with(newControlPlane("1", "2", "3"), in("a", "a", "b")), []string{"c"}},
		"one that is made first":         {with(newControlPlane("1"), in("a")), []string{"b", "c"}},
		"no zone takes any":              {with(newControlPlane("1"), in("a"), full(0), full(1), full(2)), []string{""}},
		"a worker's":                     {with(newWorkers(0, "1", "2"), in("a", "b")), []string{"a"}},
		"a worker's without any":         {newWorkers(0, "1", "2"), []string{""}},
		"a worker's from its template":   {with(newWorkers(0, "1"), func(v *vm) { v.maasMachine.Spec.FailureDomain = "b" }), []string{"b"}},
		"from the template, of planes":   {with(newControlPlane("1", "2"), func(v *vm) { v.maasMachine.Spec.FailureDomain = "b" }), []string{"b"}},
		"a zone that is none any longer": {with(newControlPlane("1", "2", "3"), in("x", "b", "c")), []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.vm.zones()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
