// SPDX-License-Identifier: Apache-2.0

package evacuation

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
)

func TestConclude(t *testing.T) {
	vms := func(states ...infrav1.LXDEvacuationState) (left []infrav1.LXDEvacuationVM) {
		for i, state := range states {
			left = append(left, infrav1.LXDEvacuationVM{Machine: fmt.Sprintf("default/%d", i), State: state, Message: "why"})
		}
		return left
	}
	leaving, waiting, held := infrav1.LXDVMLeaving, infrav1.LXDVMWaiting, infrav1.LXDVMHeld
	for name, tc := range map[string]struct {
		left     []infrav1.LXDEvacuationVM
		there    *int32 // by the host's own figures
		disabled bool
		want     string
	}{
		"nothing is left":             {nil, ptr.To[int32](0), false, infrav1.EvacuatedReason},
		"nor without the right":       {nil, ptr.To[int32](0), true, infrav1.EvacuatedReason},
		"nobody knows what is there":  {nil, nil, false, infrav1.EvacuatingReason},
		"something is there":          {nil, ptr.To[int32](1), false, infrav1.EvacuatingReason},
		"one is leaving":              {vms(held, leaving), ptr.To[int32](2), false, infrav1.EvacuatingReason},
		"one is waiting":              {vms(waiting, held), ptr.To[int32](2), false, infrav1.EvacuatingReason},
		"all are held":                {vms(held, held), ptr.To[int32](2), false, infrav1.VMsHeldReason},
		"the manager may not do it":   {vms(held, held), ptr.To[int32](2), true, infrav1.EvacuationNotEnabledReason},
		"one is left, and not listed": {vms(leaving), ptr.To[int32](0), false, infrav1.EvacuatingReason},
	} {
		t.Run(name, func(t *testing.T) {
			host := &infrav1.LXDHost{}
			host.Status.VMs = tc.there
			conclude(host, tc.left, !tc.disabled)
			c := conditions.Get(host, infrav1.EvacuatedCondition)
			if c.Reason != tc.want || (c.Status == metav1.ConditionTrue) != (tc.want == infrav1.EvacuatedReason) {
				t.Errorf("it is %s, %s: %s; want %s", c.Status, c.Reason, c.Message, tc.want)
			}
			if n := host.Status.Evacuation; int(n.Leaving+n.Waiting+n.Held) != len(tc.left) || len(n.VMs) != len(tc.left) {
				t.Errorf("it counts %+v", n)
			}
		})
	}
}

// However much is left, the API server takes the status, and what needs a person comes first.
func TestWhatIsSaidIsBounded(t *testing.T) {
	var left []infrav1.LXDEvacuationVM
	for i := range 300 {
		left = append(left, infrav1.LXDEvacuationVM{Machine: fmt.Sprintf("default/%d", i), State: infrav1.LXDVMLeaving, Message: strings.Repeat("long\n", 1000)})
	}
	left[299].State = infrav1.LXDVMHeld
	host := &infrav1.LXDHost{}
	conclude(host, left, true)
	status := host.Status.Evacuation
	if len(status.VMs) != maxListed || status.VMs[0].Machine != "default/299" || status.Leaving != 299 || status.Held != 1 {
		t.Errorf("%d are listed, the first is %s; it counts %d leaving, %d held", len(status.VMs), status.VMs[0].Machine, status.Leaving, status.Held)
	}
	for _, vm := range status.VMs {
		if len(vm.Message) > 1024 || strings.Contains(vm.Message, "\n") {
			t.Fatalf("of a VM it says %d bytes", len(vm.Message))
		}
	}
	if message := conditions.GetMessage(host, infrav1.EvacuatedCondition); len(message) > 1<<14 || !strings.Contains(message, "290 more") {
		t.Errorf("the condition says %d bytes", len(message))
	}
}

func TestWhichVMsAreOnAHost(t *testing.T) {
	const here, there = "maas-1:5240/MAAS", "maas-2:5240/MAAS"
	machine := func(hosts, cluster string, change ...func(*infrav1.MaasMachine)) infrav1.MaasMachine {
		m := infrav1.MaasMachine{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "m", Labels: map[string]string{clusterv1.ClusterNameLabel: cluster},
			Annotations: map[string]string{infrav1.RecordAnnotation: `{"hosts":[` + hosts + `]}`},
		}}
		m.Spec.ProvisioningMode = infrav1.ProvisioningModeLXD
		for _, c := range change {
			c(&m)
		}
		return m
	}
	vmHost := &infrav1.LXDHost{ObjectMeta: metav1.ObjectMeta{Namespace: "capmaas-system", Name: "lxd-a", Annotations: map[string]string{infrav1.MAASAnnotation: here}}}
	vmHost.Spec.VMHost = &infrav1.VMHostReference{ID: 7}
	direct := &infrav1.LXDHost{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "lxd-a"}}
	infra := &infrav1.LXDHost{ObjectMeta: metav1.ObjectMeta{Namespace: "infra", Name: "lxd-a"}}
	runsOn := func(ref string) func(*infrav1.MaasMachine) {
		return func(m *infrav1.MaasMachine) {
			m.Annotations[infrav1.RecordAnnotation] = `{"hosts":["lxdhost:default/lxd-a","lxdhost:default/lxd-b"],"runs":"` + ref + `"}`
		}
	}
	unreadable := func(m *infrav1.MaasMachine) {
		m.Annotations[infrav1.RecordAnnotation], m.Status.LXDHost = "no JSON", "lxd-a"
	}
	for name, tc := range map[string]struct {
		host                     *infrav1.LXDHost
		machine                  infrav1.MaasMachine
		is, isUnsure, isNotKnown bool
	}{
		"on a VM host":                             {vmHost, machine(`"7/lxd-a"`, "here"), true, false, false},
		"on another VM host":                       {vmHost, machine(`"8/lxd-a"`, "here"), false, false, false},
		"in another MAAS":                          {vmHost, machine(`"7/lxd-a"`, "there"), false, false, false},
		"in a MAAS nobody knows":                   {vmHost, machine(`"7/lxd-a"`, "nowhere"), false, false, false},
		"on a direct host":                         {direct, machine(`"lxdhost:default/lxd-a"`, "here"), true, false, false},
		"on another direct host":                   {direct, machine(`"lxdhost:other/lxd-a"`, "here"), false, false, false},
		"on either":                                {vmHost, machine(`"8/lxd-b","7/lxd-a"`, "here"), true, true, false},
		"on this one of two direct hosts":          {direct, machine(``, "here", runsOn("lxdhost:default/lxd-a")), true, false, false},
		"on the other of two direct hosts":         {direct, machine(``, "here", runsOn("lxdhost:default/lxd-b")), false, false, false},
		"nowhere yet":                              {vmHost, machine(``, "here"), false, false, false},
		"bare metal":                               {vmHost, machine(`"7/lxd-a"`, "here", func(m *infrav1.MaasMachine) { m.Spec.ProvisioningMode = infrav1.ProvisioningModeBareMetal }), false, false, false},
		"with an unreadable record":                {vmHost, machine(``, "here", unreadable), true, false, true},
		"with one, in another MAAS":                {vmHost, machine(``, "there", unreadable), false, false, false},
		"of a namespace that may not use the host": {infra, machine(`"lxdhost:infra/lxd-a"`, "here"), false, false, false},
		"of such a one, with an unreadable record": {infra, machine(``, "here", unreadable), false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			found := (&round{maasMachines: []infrav1.MaasMachine{tc.machine}, homes: clusters.HomesOf([]infrav1.MaasCluster{
				homeOf("here", here), homeOf("there", there),
			})}).on(tc.host)
			if (len(found) == 1) != tc.is {
				t.Fatalf("%d VMs are on it", len(found))
			}
			if tc.is && (found[0].unsure != tc.isUnsure || (found[0].unreadable != nil) != tc.isNotKnown) {
				t.Errorf("it is %+v", found[0])
			}
		})
	}
}

// homeOf returns the MaasCluster of a Cluster, which records its MAAS.
func homeOf(cluster, where string) infrav1.MaasCluster {
	return infrav1.MaasCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: cluster,
		Labels: map[string]string{clusterv1.ClusterNameLabel: cluster}, Annotations: map[string]string{infrav1.MAASAnnotation: where},
	}}
}
