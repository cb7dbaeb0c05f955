// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// A MAAS that only pretends to be the one with the VM host has no say in whose machine that is.
func TestTheMachineOfAVMHostIsInTheFirstMAAS(t *testing.T) {
	machine := func(namespace string) *infrav1.MaasMachine {
		m := &infrav1.MaasMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Labels: map[string]string{clusterv1.ClusterNameLabel: "c"}}}
		m.Spec.SystemID = "abc123"
		m.Status.Conditions = []metav1.Condition{{Type: infrav1.MachineDeployedCondition, Status: metav1.ConditionTrue}}
		return m
	}
	there := &existing{
		machines: map[string][]*infrav1.MaasMachine{"abc123": {machine("unknown"), machine("pretends"), machine("real")}},
		homes:    map[client.ObjectKey]string{{Namespace: "pretends", Name: "c"}: "fake/MAAS", {Namespace: "real", Name: "c"}: "maas/MAAS"},
	}
	s := &sighting{VMHost: vmHost(7, "lxd-a", "abc123"), where: []string{"maas/MAAS", "fake/MAAS"}}
	if got := there.machineOf(s); got == nil || got.Namespace != "real" {
		t.Errorf("the machine is %+v, want that of the namespace real", got)
	}
	delete(there.homes, client.ObjectKey{Namespace: "real", Name: "c"})
	if got := there.machineOf(s); got != nil {
		t.Errorf("the machine is %+v, want none", got)
	}
}

func vmHost(id int, name, systemID string) maas.VMHost {
	h := maas.VMHost{ID: id, Name: name, Type: maas.VMHostTypeLXD}
	h.Host.SystemID = systemID
	return h
}

func TestDNSName(t *testing.T) {
	for name, want := range map[string]string{
		"lxd-a": "lxd-a", "LXD_A": "lxd-a", "host.maas": "host.maas", "-a-": "a", "a.-b": "a.b", "..": "vm-host", "é": "vm-host",
		strings.Repeat("a", 300): strings.Repeat("a", maxName), strings.Repeat("a", maxName-1) + "-b": strings.Repeat("a", maxName-1),
	} {
		got := dnsName(name)
		if got != want {
			t.Errorf("dnsName(%q) = %q, want %q", name, got, want)
		}
		if problems := validation.IsDNS1123Subdomain(got); len(problems) > 0 {
			t.Errorf("dnsName(%q) = %q: %v", name, got, problems)
		}
	}
}

func TestNames(t *testing.T) {
	s := &sighting{VMHost: vmHost(3, "LXD-a", "abc"), where: []string{"maas-1"}}
	if diff := cmp.Diff([]string{"lxd-a", "lxd-a-3"}, s.names("maas-1")); diff != "" {
		t.Errorf("in the manager's own MAAS (-want +got):\n%s", diff)
	}
	elsewhere := s.names("maas-2")
	other := &sighting{VMHost: s.VMHost, where: []string{"maas-3"}}
	if elsewhere[0] == "lxd-a" || elsewhere[0] == other.names("maas-2")[0] {
		t.Errorf("elsewhere: %v, and %v", elsewhere, other.names("maas-2"))
	}
	for _, name := range append(elsewhere, "lxd-a", "lxd-a-3") {
		if !s.isNamed(name) {
			t.Errorf("%s is not one of its names", name)
		}
	}
	for _, name := range []string{"lxd-b", "lxd-a-4", other.names("")[0]} {
		if s.isNamed(name) {
			t.Errorf("%s is one of its names", name)
		}
	}
}

// Several names of a MAAS are one: its VM hosts have the same ids and machines.
func TestSightings(t *testing.T) {
	show := func(hosts ...maas.VMHost) *view {
		v := &view{hosts: map[int]maas.VMHost{}}
		for _, h := range hosts {
			v.hosts[h.ID] = h
		}
		return v
	}
	type place struct {
		Name  string
		Where []string
	}
	var got []place
	for _, s := range sightings(map[string]*view{
		"a": show(vmHost(1, "one", "abc"), vmHost(2, "two", "")),
		"b": show(vmHost(1, "one", "abc"), vmHost(2, "two", ""), vmHost(3, "three", "xyz")),
		"c": show(vmHost(1, "other", "def")),
	}, "b") {
		got = append(got, place{s.Name, s.where})
	}
	want := []place{{"one", []string{"b", "a"}}, {"two", []string{"b"}}, {"three", []string{"b"}}, {"two", []string{"a"}}, {"other", []string{"c"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestIsOf(t *testing.T) {
	s := &sighting{VMHost: vmHost(1, "one", "abc"), where: []string{"a", "b"}}
	for name, test := range map[string]struct {
		where string
		ref   *infrav1.VMHostReference
		want  bool
	}{
		"the same":                         {"a", &infrav1.VMHostReference{ID: 1, SystemID: "abc"}, true},
		"under another name of the MAAS":   {"b", &infrav1.VMHostReference{ID: 1}, true},
		"on another machine now":           {"a", &infrav1.VMHostReference{ID: 1, SystemID: "xyz"}, true},
		"of a MAAS that has another name":  {"c", &infrav1.VMHostReference{ID: 1, SystemID: "abc"}, true},
		"of another MAAS":                  {"c", &infrav1.VMHostReference{ID: 1, SystemID: "xyz"}, false},
		"of another MAAS, machine unknown": {"c", &infrav1.VMHostReference{ID: 1}, false},
		"another one":                      {"a", &infrav1.VMHostReference{ID: 2, SystemID: "abc"}, false},
		"a person's":                       {"a", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			host := &infrav1.LXDHost{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{infrav1.MAASAnnotation: test.where}}}
			host.Spec.VMHost = test.ref
			if got := isOf(host, s); got != test.want {
				t.Errorf("isOf = %t", got)
			}
		})
	}
}
