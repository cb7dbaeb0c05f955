// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/simulator"
)

func TestChooseZones(t *testing.T) {
	zones := func(names ...string) (refs []maas.Ref) {
		for i, name := range names {
			refs = append(refs, maas.Ref{ID: i + 1, Name: name})
		}
		return refs
	}
	have := func(names ...string) map[string]zoneRoom {
		able := map[string]zoneRoom{}
		for _, name := range names {
			able[name] = zoneRoom{able: true}
		}
		return able
	}
	for name, tc := range map[string]struct {
		zones           []maas.Ref
		wanted          []string
		able            map[string]zoneRoom
		chosen, unknown []string
	}{
		"all but the built-in one":                      {zones("default", "b", "a"), nil, nil, []string{"a", "b"}, nil},
		"the built-in one where it is all":              {zones("default"), nil, nil, []string{"default"}, nil},
		"those that are wanted":                         {zones("default", "b", "a"), []string{"default", "b"}, nil, []string{"b", "default"}, nil},
		"those that are wanted and unknown":             {zones("default", "a"), []string{"a", "x"}, nil, []string{"a"}, []string{"x"}},
		"the built-in one where all hosts are in it":    {zones("default", "a"), nil, have("default"), []string{"a", "default"}, nil},
		"not the built-in one where others have hosts":  {zones("default", "a", "b"), nil, have("default", "a"), []string{"a", "b"}, nil},
		"not the built-in one where there are no hosts": {zones("default", "a"), nil, have(), []string{"a"}, nil},
		"those that are wanted, without hosts too":      {zones("default", "a", "b"), []string{"a"}, have("b"), []string{"a"}, nil},
		"the only one, without hosts":                   {zones("default"), nil, have(), []string{"default"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			chosen, unknown := chooseZones(tc.zones, tc.wanted, tc.able)
			if !slices.Equal(chosen, tc.chosen) || !slices.Equal(unknown, tc.unknown) {
				t.Errorf("chosen %v, unknown %v; want %v and %v", chosen, unknown, tc.chosen, tc.unknown)
			}
		})
	}
}

func TestFailureDomainsAreOnlyForControlPlanesWhereTheyFit(t *testing.T) {
	room := map[string]string{infrav1.FailureDomainRoom: "1"}
	got := failureDomains([]string{"a", "b", "c"}, map[string]zoneRoom{"a": {able: true, attributes: room}, "b": {attributes: room}})
	want := []clusterv1.FailureDomain{
		{Name: "a", ControlPlane: ptr.To(true), Attributes: room}, {Name: "b", ControlPlane: ptr.To(false), Attributes: room},
		{Name: "c", ControlPlane: ptr.To(false)},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the failure domains differ (-want +got):\n%s", diff)
	}
	t.Run("and everywhere while that is not known", func(t *testing.T) {
		want := []clusterv1.FailureDomain{{Name: "a", ControlPlane: ptr.To(true)}}
		if diff := cmp.Diff(want, failureDomains([]string{"a"}, nil)); diff != "" {
			t.Errorf("the failure domains differ (-want +got):\n%s", diff)
		}
	})
	t.Run("and those of use are kept where there are too many", func(t *testing.T) {
		var zones []string
		for i := range maxFailureDomains + 20 {
			zones = append(zones, fmt.Sprintf("z%03d", i))
		}
		got := failureDomains(zones, map[string]zoneRoom{"z003": {able: true}, "z119": {able: true}})
		var able []string
		for _, domain := range got {
			if *domain.ControlPlane {
				able = append(able, domain.Name)
			}
		}
		if len(got) != maxFailureDomains || !slices.Equal(able, []string{"z003", "z119"}) {
			t.Errorf("%d are kept, and of use are %v", len(got), able)
		}
	})
}

func TestRoomIsSaidRoughly(t *testing.T) {
	want := []string{"0", "1", "2-3", "2-3", "4-7", "4-7", "4-7", "4-7", "8-15"}
	for n, text := range want {
		if got := about(n); got != text {
			t.Errorf("%d is said as %s, want %s", n, got, text)
		}
	}
	for n, text := range map[int]string{-3: "0", 15: "8-15", 16: "16+", 1 << 40: "16+"} {
		if got := about(n); got != text {
			t.Errorf("%d is said as %s, want %s", n, got, text)
		}
	}
}

func TestTheTemplateOfAControlPlaneIsFoundInBothContracts(t *testing.T) {
	ref := func(kind string) map[string]any { return map[string]any{"kind": kind, "name": "t"} }
	for name, tc := range map[string]struct {
		machineTemplate map[string]any
		want            string
	}{
		"v1beta2":        {map[string]any{"spec": map[string]any{"infrastructureRef": ref("MaasMachineTemplate")}}, "t"},
		"v1beta1":        {map[string]any{"infrastructureRef": ref("MaasMachineTemplate")}, "t"},
		"another kind's": {map[string]any{"infrastructureRef": ref("OtherMachineTemplate")}, ""},
		"none":           {map[string]any{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"machineTemplate": tc.machineTemplate}}}
			if got := infrastructureTemplate(object); got != tc.want {
				t.Errorf("the template is %q, want %q", got, tc.want)
			}
		})
	}
}

// controlPlane makes the KubeadmControlPlane that the Cluster refers to, and its template.
func (w *world) controlPlane(spec infrav1.MaasMachineSpec) *infrav1.MaasMachineTemplate {
	w.t.Helper()
	w.create(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "controlplane.cluster.x-k8s.io/v1beta2", "kind": "KubeadmControlPlane",
		"metadata": map[string]any{"name": clusterName, "namespace": w.namespace},
		"spec": map[string]any{"version": "v1.35.0", "machineTemplate": map[string]any{
			"spec": map[string]any{"infrastructureRef": map[string]any{
				"apiGroup": infrav1.GroupVersion.Group, "kind": "MaasMachineTemplate", "name": "control-plane",
			}},
		}},
	}})
	return w.template("control-plane", spec)
}

// template makes a MaasMachineTemplate of the cluster.
func (w *world) template(name string, spec infrav1.MaasMachineSpec) *infrav1.MaasMachineTemplate {
	w.t.Helper()
	template := &infrav1.MaasMachineTemplate{}
	template.Name, template.Namespace = name, w.namespace
	spec.Image = "ubuntu/jammy"
	template.Spec.Template.Spec = spec
	w.own(w.cluster, template)
	w.create(template)
	return template
}

func domainsText(cluster *infrav1.MaasCluster) (text []string) {
	for _, d := range cluster.Status.FailureDomains {
		text = append(text, fmt.Sprintf("%s %t %v", d.Name, *d.ControlPlane, d.Attributes))
	}
	return text
}

func TestFailureDomainsFollowTheTemplateOfTheControlPlane(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		spec infrav1.MaasMachineSpec
		want []string
	}{
		"VMs": {
			infrav1.MaasMachineSpec{DynamicLXD: true, MinCPU: 3, MinMemory: 4096},
			[]string{"zone-a true map[hosts:1 room:2-3]", "zone-b true map[hosts:1 room:2-3]", "zone-c true map[hosts:1 room:2-3]"},
		},
		"VMs pinned to a host": {
			infrav1.MaasMachineSpec{DynamicLXD: true, LXDConfig: &infrav1.LXDMachineConfig{VMHost: "lxd-b"}},
			[]string{"zone-a false map[]", "zone-b true map[hosts:1 room:4-7]", "zone-c false map[]"},
		},
		"VMs that fit nowhere": {
			infrav1.MaasMachineSpec{DynamicLXD: true, LXDConfig: &infrav1.LXDMachineConfig{Profile: "fast"}},
			[]string{"zone-a false map[]", "zone-b false map[]", "zone-c false map[]"},
		},
		"bare metal": {
			infrav1.MaasMachineSpec{MinCPU: 8},
			[]string{"zone-a true map[machines:1 room:1]", "zone-b true map[machines:1 room:1]", "zone-c false map[]"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			cluster := w.newCluster()
			w.provisioned(cluster)
			w.controlPlane(tc.spec)
			w.eventually(cluster, "told where control planes fit", func() bool { return slices.Equal(domainsText(cluster), tc.want) })
			if !conditions.IsTrue(cluster, infrav1.FailureDomainsReadyCondition) {
				t.Errorf("FailureDomainsReady is %+v", conditions.Get(cluster, infrav1.FailureDomainsReadyCondition))
			}
		})
	}
}

func TestFailureDomainsStayWhileTheirRoomIsNotKnown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cluster := w.newCluster()
	w.provisioned(cluster)
	if _, err := w.maas.AddFault(simulator.Fault{Method: http.MethodGet, Endpoint: "vm-hosts/", Status: http.StatusForbidden}); err != nil {
		t.Fatal(err)
	}
	before := domainsText(cluster)
	w.controlPlane(infrav1.MaasMachineSpec{DynamicLXD: true})
	w.eventually(cluster, "told that MAAS shows no VM hosts", func() bool {
		return conditions.GetReason(cluster, infrav1.FailureDomainsReadyCondition) == infrav1.MAASRefusedReason
	})
	if diff := cmp.Diff(before, domainsText(cluster)); diff != "" {
		t.Errorf("the failure domains changed:\n%s", diff)
	}
}

// A zone whose only host went down with a control plane must not be where the replacement is sent.
func TestAZoneWhoseHostDoesNotAnswerIsNoFailureDomainUntilItDoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cluster := w.newCluster()
	w.provisioned(cluster)
	w.controlPlane(vm)
	m := w.newMachine("cp", true, withSpec(vm, func(s *infrav1.MaasMachineSpec) { s.FailureDomain = "zone-b" }))
	w.deployed(m)
	able := func(zones ...string) func() bool {
		return func() bool {
			var got []string
			for _, domain := range cluster.Status.FailureDomains {
				if *domain.ControlPlane {
					got = append(got, domain.Name)
				}
			}
			return slices.Equal(got, zones)
		}
	}
	w.eventually(cluster, "of use in all zones", able("zone-a", "zone-b", "zone-c"))
	w.maas.BreakVMHost(m.Status.LXDHost, true, false)
	w.beginDeletion(m)
	w.eventually(cluster, "of use where hosts answer", able("zone-a", "zone-c"))
	other := w.newMachine("other", true, withSpec(vm, func(s *infrav1.MaasMachineSpec) { s.FailureDomain = "zone-b" }))
	w.refused(other, infrav1.LXDHostSelectedCondition, infrav1.NoHostAvailableReason)
	if n := w.calls("compose"); n != 1 {
		t.Errorf("MAAS was asked for %d VMs, want none on the host that does not answer", n-1)
	}
	w.delete(other)
	w.maas.BreakVMHost(m.Status.LXDHost, false, false)
	w.goes(m)
	w.eventually(cluster, "of use in all zones again", able("zone-a", "zone-b", "zone-c"))
}
