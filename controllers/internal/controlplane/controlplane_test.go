// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
)

// A control plane works while more than half of its Machines do.
func TestQuorum(t *testing.T) {
	machine := func(change ...func(*clusterv1.Machine)) *clusterv1.Machine {
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
		m.Status.NodeRef.Name = "other"
		for _, condition := range append([]string{clusterv1.ReadyCondition}, MachineHealth...) {
			conditions.Set(m, metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: "Test"})
		}
		for _, c := range change {
			c(m)
		}
		return m
	}
	healthy := machine()
	joining := machine(func(m *clusterv1.Machine) { m.Status.NodeRef.Name = "" })
	sick := machine(func(m *clusterv1.Machine) {
		conditions.Set(m, metav1.Condition{Type: clusterv1.MachineHealthCheckSucceededCondition, Status: metav1.ConditionFalse, Reason: "Test"})
	})
	leaving := machine(func(m *clusterv1.Machine) { m.DeletionTimestamp = &metav1.Time{} })
	leaving.DeletionTimestamp.Time = leaving.CreationTimestamp.AddDate(1, 0, 0)
	off := machine(func(m *clusterv1.Machine) { m.Name = "off" })
	for name, tc := range map[string]struct {
		others []*clusterv1.Machine
		holds  bool
	}{
		"of one":                              {nil, true},
		"of two":                              {[]*clusterv1.Machine{healthy}, false},
		"of three":                            {[]*clusterv1.Machine{healthy, healthy}, true},
		"of three, another one is sick":       {[]*clusterv1.Machine{healthy, sick}, false},
		"of three, another one joins":         {[]*clusterv1.Machine{healthy, joining}, false},
		"of three, another one is off":        {[]*clusterv1.Machine{healthy, off}, false},
		"of five, another one is sick":        {[]*clusterv1.Machine{healthy, healthy, healthy, sick}, true},
		"of five, two others are sick or off": {[]*clusterv1.Machine{healthy, healthy, sick, off}, false},
		"of five, another one leaves":         {[]*clusterv1.Machine{healthy, healthy, healthy, leaving}, false},
	} {
		t.Run(name, func(t *testing.T) {
			why := quorum(tc.others, func(m *clusterv1.Machine) bool { return m == off })
			if (why == "") != tc.holds {
				t.Errorf("the quorum holds: %v (%s), want %v", why == "", why, tc.holds)
			}
		})
	}
}
