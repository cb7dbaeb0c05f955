// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/test/allkinds"
)

// testNow is a time that a record can hold.
var testNow = time.Now().Truncate(time.Second)

// member is a control plane of TestWhoIsInTheEndpoint. Its address is 10.0.0.NAME.
type member struct {
	name string
	// joined: it is a Node. draining: its Machine is being deleted, its MaasMachine not yet.
	joined, draining bool
	// stopped is how long MAAS has reported that it does not run; 0: it runs.
	stopped time.Duration
	// unread: MAAS can't be asked. moved: its status is new, and has no addresses.
	unread, moved bool
	// remedied is how often its remediation has switched it off; remediation: it has one.
	remedied            int32
	remediation, healed bool
}

// remedy returns the member's remediation. That of one that is healed is being deleted.
func (m member) remedy(t *testing.T) *infrav1.MaasRemediation {
	t.Helper()
	text, err := json.Marshal(record.RemediationData{Remediation: &infrav1.RemediationProgress{PowerCycles: m.remedied}})
	if err != nil {
		t.Fatal(err)
	}
	r := &infrav1.MaasRemediation{ObjectMeta: metav1.ObjectMeta{
		Name: m.name, Namespace: "ns", Annotations: map[string]string{infrav1.RecordAnnotation: string(text)}, Finalizers: []string{infrav1.RemediationFinalizer},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: m.name, UID: types.UID(m.name)}},
	}}
	if m.healed {
		r.DeletionTimestamp = ptr.To(metav1.Now())
	}
	return r
}

func (m member) objects() (*clusterv1.Machine, infrav1.MaasMachine) {
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: m.name, Namespace: "ns", UID: types.UID(m.name)}}
	if m.joined {
		machine.Status.NodeRef = clusterv1.MachineNodeReference{Name: m.name}
	}
	if m.draining {
		machine.Finalizers = []string{"drain"}
		machine.DeletionTimestamp = ptr.To(metav1.Now())
	}
	maasMachine := infrav1.MaasMachine{ObjectMeta: metav1.ObjectMeta{
		Name: m.name, Namespace: "ns", Labels: map[string]string{clusterv1.MachineControlPlaneLabel: ""},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: m.name, UID: types.UID(m.name)}},
	}}
	maasMachine.Spec.ProviderID = "maas://z/" + m.name
	maasMachine.Status.Initialization.Provisioned = ptr.To(true)
	maasMachine.Status.Addresses = []clusterv1.MachineAddress{{Type: clusterv1.MachineInternalIP, Address: "10.0.0." + m.name}}
	if m.moved {
		maasMachine.Status.Addresses = nil
	}
	deployed := metav1.Condition{Type: infrav1.MachineDeployedCondition, Status: metav1.ConditionTrue, Reason: infrav1.DeployedReason}
	switch {
	case m.stopped > 0:
		deployed.Status, deployed.Reason = metav1.ConditionFalse, infrav1.PoweredOffReason
		deployed.LastTransitionTime = metav1.NewTime(testNow) // MAAS could not be asked until now.
		since := testNow.Add(-m.stopped.Truncate(time.Second)).UTC().Format(time.RFC3339)
		maasMachine.Annotations = map[string]string{infrav1.RecordAnnotation: `{"phase": {"name": "stopped", "since": "` + since + `"}}`}
	case m.unread:
		deployed.Status, deployed.Reason = metav1.ConditionUnknown, infrav1.MAASUnavailableReason
		deployed.LastTransitionTime = metav1.NewTime(testNow.Add(-24 * time.Hour))
	}
	conditions.Set(&maasMachine, deployed)
	return machine, maasMachine
}

func TestWhoIsInTheEndpoint(t *testing.T) {
	const blip, lasting = EndpointHold / 2, 2 * EndpointHold
	for name, tc := range map[string]struct {
		uninitialized bool
		members       []member
		current, want []string
	}{
		"a power blip changes nothing": {
			members: []member{{name: "1", joined: true, stopped: blip}, {name: "2", joined: true}},
			current: []string{"10.0.0.1", "10.0.0.2"}, want: []string{"10.0.0.1", "10.0.0.2"}},
		"a power blip of all changes nothing": {
			members: []member{{name: "1", joined: true, stopped: blip}, {name: "2", joined: true, stopped: blip}},
			current: []string{"10.0.0.1", "10.0.0.2"}, want: []string{"10.0.0.1", "10.0.0.2"}},
		"one that stays off leaves": {
			members: []member{{name: "1", joined: true, stopped: lasting}, {name: "2", joined: true}},
			current: []string{"10.0.0.1", "10.0.0.2"}, want: []string{"10.0.0.2"}},
		"when all stay off there is nothing to write": {
			members: []member{{name: "1", joined: true, stopped: lasting}, {name: "2", joined: true, stopped: lasting}},
			current: []string{"10.0.0.1", "10.0.0.2"}},
		"one that is off is not added": {
			members: []member{{name: "1", joined: true, stopped: blip}, {name: "2", joined: true}},
			current: []string{"10.0.0.2"}, want: []string{"10.0.0.2"}},
		"one that runs again comes back": {
			members: []member{{name: "1", joined: true}, {name: "2", joined: true}},
			current: []string{"10.0.0.2"}, want: []string{"10.0.0.1", "10.0.0.2"}},
		"one that is off after a move may come back": {
			members: []member{{name: "1", joined: true, stopped: blip, moved: true}, {name: "2", joined: true}},
			current: []string{"10.0.0.1"}, want: []string{"10.0.0.1"}},
		"one that stays off after a move leaves": {
			members: []member{{name: "1", joined: true, stopped: lasting, moved: true}, {name: "2", joined: true}, {name: "3", joined: true}},
			current: []string{"10.0.0.1", "10.0.0.2"}, want: []string{"10.0.0.2", "10.0.0.3"}},
		"after a move nothing is known": {
			members: []member{{name: "1", joined: true, unread: true, moved: true}, {name: "2", joined: true}},
			current: []string{"10.0.0.1"}, want: []string{"10.0.0.1"}},
		"while MAAS can't be read all stay": {
			members: []member{{name: "1", joined: true, unread: true}, {name: "2", joined: true, unread: true}},
			current: []string{"10.0.0.1", "10.0.0.2"}, want: []string{"10.0.0.1", "10.0.0.2"}},
		"one that is drained leaves": {
			members: []member{{name: "1", joined: true, draining: true}, {name: "2", joined: true}},
			current: []string{"10.0.0.1", "10.0.0.2"}, want: []string{"10.0.0.2"}},
		"when all are drained there is nothing to write": {
			members: []member{{name: "1", joined: true, draining: true}}, current: []string{"10.0.0.1"}},
		"one that never joined does not come in": {
			members: []member{{name: "1", joined: true, draining: true}, {name: "2"}}, current: []string{"10.0.0.1"}},
		"one that is switched off leaves before": {
			members: []member{{name: "1", joined: true, remediation: true, remedied: 1}, {name: "2", joined: true}},
			current: []string{"10.0.0.1", "10.0.0.2"}, want: []string{"10.0.0.2"}},
		"one whose remediation has not begun stays": {
			members: []member{{name: "1", joined: true, remediation: true}, {name: "2", joined: true}},
			current: []string{"10.0.0.1", "10.0.0.2"}, want: []string{"10.0.0.1", "10.0.0.2"}},
		"one that a power cycle has helped comes back": {
			members: []member{{name: "1", joined: true, remediation: true, remedied: 1, healed: true}, {name: "2", joined: true}},
			current: []string{"10.0.0.2"}, want: []string{"10.0.0.1", "10.0.0.2"}},
		"the first one, before the cluster is initialized": {
			uninitialized: true, members: []member{{name: "1"}}, want: []string{"10.0.0.1"}},
		"after a move others joined already": {
			uninitialized: true,
			members:       []member{{name: "1", joined: true}, {name: "2"}}, current: []string{"10.0.0.1"}, want: []string{"10.0.0.1"}},
		"the first one is replaced before the cluster is initialized": {
			uninitialized: true,
			members:       []member{{name: "1", draining: true}, {name: "2"}}, current: []string{"10.0.0.1"}, want: []string{"10.0.0.2"}},
	} {
		t.Run(name, func(t *testing.T) {
			builder := fake.NewClientBuilder().WithScheme(allkinds.Scheme())
			var machines []infrav1.MaasMachine
			for _, m := range tc.members {
				machine, maasMachine := m.objects()
				builder, machines = builder.WithObjects(machine), append(machines, maasMachine)
				if m.remediation {
					builder = builder.WithObjects(m.remedy(t))
				}
			}
			c, cluster := builder.Build(), &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}}
			away, err := switchedOff(t.Context(), c, cluster)
			if err != nil {
				t.Fatal(err)
			}
			cluster.Status.Initialization.ControlPlaneInitialized = ptr.To(!tc.uninitialized)
			if got := endpointAddresses(t.Context(), c, cluster, machines, away, isShown, tc.current, testNow); !slices.Equal(got, tc.want) {
				t.Errorf("the record should hold %v, want %v", got, tc.want)
			}
		})
	}
}

func TestTheEndpointStaysWhileKubernetesCannotBeRead(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(allkinds.Scheme()).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errors.New("down")
		},
	}).Build()
	_, machine := member{name: "1", joined: true}.objects()
	current := []string{"10.0.0.1", "10.0.0.2"}
	if got := endpointAddresses(t.Context(), c, &clusterv1.Cluster{}, []infrav1.MaasMachine{machine}, nil, isShown, current, testNow); !slices.Equal(got, current) {
		t.Errorf("the record should hold %v, want %v still", got, current)
	}
}

func TestEndpointRetryIsTheFirstEndOfAHold(t *testing.T) {
	var machines []infrav1.MaasMachine
	for _, m := range []member{{name: "1"}, {name: "2", stopped: time.Minute}, {name: "3", stopped: 2 * time.Minute}, {name: "4", stopped: time.Hour}} {
		_, machine := m.objects()
		machines = append(machines, machine)
	}
	if got := EndpointRetry(machines, testNow); got <= EndpointHold-3*time.Minute || got > EndpointHold-2*time.Minute {
		t.Errorf("it is looked at again after %v", got)
	}
	if got := EndpointRetry(machines[:1], testNow); got != 0 {
		t.Errorf("with all of them running it is looked at again after %v", got)
	}
}

// claimed is the name of a MaasMachine on whose machine MAAS does not show the address that its status has.
const claimed = "66"

func isShown(m *infrav1.MaasMachine, _ string) bool { return m.Name != claimed }

func TestEndpointAddresses(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(allkinds.Scheme()).Build()
	machine := func(name string, change ...func(*infrav1.MaasMachine)) infrav1.MaasMachine {
		m := infrav1.MaasMachine{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{clusterv1.MachineControlPlaneLabel: ""}}}
		m.Spec.ProviderID = "maas-lxd://z/" + name
		m.Status.Initialization.Provisioned = ptr.To(true)
		report.SetTrue(&m, infrav1.MachineDeployedCondition, infrav1.DeployedReason)
		m.Status.Addresses = []clusterv1.MachineAddress{
			{Type: clusterv1.MachineHostName, Address: name}, {Type: clusterv1.MachineInternalIP, Address: "10.0.0." + name}, {Type: clusterv1.MachineInternalIP, Address: "10.1.0." + name},
		}
		for _, c := range change {
			c(&m)
		}
		return m
	}
	deleting := func(m *infrav1.MaasMachine) { m.DeletionTimestamp = ptr.To(metav1.Now()) }
	deploying := func(m *infrav1.MaasMachine) { m.Spec.ProviderID, m.Status = "", infrav1.MaasMachineStatus{} }
	unseen := func(m *infrav1.MaasMachine) { m.Status = infrav1.MaasMachineStatus{} }
	vanished := func(m *infrav1.MaasMachine) {
		m.Status.FailureReason, m.Status.Addresses = infrav1.MachineMissingReason, nil
	}
	for name, tc := range map[string]struct {
		initialized bool
		machines    []infrav1.MaasMachine
		current     []string
		want        []string
	}{
		"the first one, before the API responds":     {false, []infrav1.MaasMachine{machine("1")}, nil, []string{"10.0.0.1"}},
		"one that deploys is not there yet":          {false, []infrav1.MaasMachine{machine("1", deploying)}, nil, nil},
		"one that has not joined waits":              {true, []infrav1.MaasMachine{machine("1"), machine("2")}, []string{"10.0.0.1"}, []string{"10.0.0.1"}},
		"one that is being deleted leaves":           {true, []infrav1.MaasMachine{machine("1", deleting), machine("2")}, []string{"10.0.0.1", "10.0.0.2"}, []string{"10.0.0.2"}},
		"one that vanished leaves":                   {true, []infrav1.MaasMachine{machine("1", vanished), machine("2")}, []string{"10.0.0.1", "10.0.0.2"}, []string{"10.0.0.2"}},
		"nothing changes while one is not seen":      {true, []infrav1.MaasMachine{machine("1", unseen), machine("2")}, []string{"10.0.0.1", "10.0.0.2"}, []string{"10.0.0.1", "10.0.0.2"}},
		"an address that nobody has leaves":          {true, []infrav1.MaasMachine{machine("1")}, []string{"10.0.0.1", "10.0.0.9"}, []string{"10.0.0.1"}},
		"what its status alone says is not added":    {false, []infrav1.MaasMachine{machine(claimed)}, nil, nil},
		"what is there stays, who ever shows it":     {true, []infrav1.MaasMachine{machine(claimed)}, []string{"10.0.0." + claimed}, []string{"10.0.0." + claimed}},
		"with nobody left there is nothing to write": {true, []infrav1.MaasMachine{machine("1", deleting)}, []string{"10.0.0.1"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := &clusterv1.Cluster{}
			cluster.Status.Initialization.ControlPlaneInitialized = ptr.To(tc.initialized)
			got := endpointAddresses(t.Context(), c, cluster, tc.machines, nil, isShown, tc.current, testNow)
			if !slices.Equal(got, tc.want) {
				t.Errorf("the record should hold %v, want %v", got, tc.want)
			}
		})
	}
}
