// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// Who claims to be the machine of a VM host, and is in another MAAS, is not asked about.
func TestClaimsAreOfTheMAASThatShowsTheVMHost(t *testing.T) {
	machine := func(namespace string) *infrav1.MaasMachine {
		m := &infrav1.MaasMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Labels: map[string]string{clusterv1.ClusterNameLabel: "c"}}}
		m.Spec.SystemID = "abc123"
		return m
	}
	there := &existing{
		machines: map[string][]*infrav1.MaasMachine{"abc123": {machine("unknown"), machine("elsewhere"), machine("here")}},
		homes:    clusters.HomesOf([]infrav1.MaasCluster{homeOf("elsewhere", "c", "fake/MAAS"), homeOf("here", "c", "maas/MAAS")}),
	}
	claims := there.claimsOf(&sighting{VMHost: vmHost(7, "lxd-a", "abc123"), where: "maas/MAAS"})
	if len(claims) != 1 || claims[0].Namespace != "here" {
		t.Errorf("%d claims: %+v", len(claims), claims)
	}
	if claims := there.claimsOf(&sighting{VMHost: vmHost(7, "lxd-a", ""), where: "maas/MAAS"}); len(claims) > 0 {
		t.Errorf("%d claims of a VM host on no machine", len(claims))
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
	s := &sighting{VMHost: vmHost(3, "LXD-a", "abc"), where: "maas-1"}
	if diff := cmp.Diff([]string{"lxd-a", "lxd-a-3"}, s.names(true)); diff != "" {
		t.Errorf("in the manager's own MAAS (-want +got):\n%s", diff)
	}
	elsewhere := s.names(false)
	other := &sighting{VMHost: s.VMHost, where: "maas-3"}
	if elsewhere[0] == "lxd-a" || elsewhere[0] == other.names(false)[0] {
		t.Errorf("elsewhere: %v, and %v", elsewhere, other.names(false))
	}
	for _, name := range append(elsewhere, "lxd-a", "lxd-a-3") {
		if !s.isNamed(name) {
			t.Errorf("%s is not one of its names", name)
		}
	}
	for _, name := range []string{"lxd-b", "lxd-a-4", other.names(false)[0]} {
		if s.isNamed(name) {
			t.Errorf("%s is one of its names", name)
		}
	}
}

// Anybody can make a server that shows the ids and machines of another one.
func TestWhatAMAASShowsIsOfThatMAASAlone(t *testing.T) {
	show := func(hosts ...maas.VMHost) *view {
		v := &view{hosts: map[int]maas.VMHost{}}
		for _, h := range hosts {
			v.hosts[h.ID] = h
		}
		return v
	}
	views := map[string]*view{"a": show(vmHost(1, "one", "abc"), vmHost(2, "two", "")), "b": show(vmHost(1, "one", "abc"))}
	type place struct {
		Name, Where string
		IsOwn       bool
	}
	var got []place
	for _, s := range sightings(views, "b") {
		got = append(got, place{s.Name, s.where, s.isOwn})
	}
	if diff := cmp.Diff([]place{{"one", "a", false}, {"two", "a", false}, {"one", "b", true}}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestIsOf(t *testing.T) {
	own, other := &sighting{VMHost: vmHost(1, "one", "abc"), where: "a", isOwn: true}, &sighting{VMHost: vmHost(1, "one", "abc"), where: "a"}
	views := map[string]*view{"a": {}, "b": {}}
	for name, test := range map[string]struct {
		of       *sighting
		where    string
		ref      *infrav1.VMHostReference
		is, once bool
	}{
		"the same":               {other, "a", &infrav1.VMHostReference{ID: 1, SystemID: "abc"}, true, false},
		"on another machine now": {other, "a", &infrav1.VMHostReference{ID: 1, SystemID: "xyz"}, true, false},
		"another one":            {other, "a", &infrav1.VMHostReference{ID: 2, SystemID: "abc"}, false, false},
		"a person's":             {other, "a", nil, false, false},
		"of another MAAS":        {own, "b", &infrav1.VMHostReference{ID: 1, SystemID: "abc"}, false, false},
		"of the manager's, which had another URL": {own, "c", &infrav1.VMHostReference{ID: 1, SystemID: "abc"}, false, true},
		"of that one, on another machine":         {own, "c", &infrav1.VMHostReference{ID: 1, SystemID: "xyz"}, false, false},
		"of that one, machine unknown":            {own, "c", &infrav1.VMHostReference{ID: 1}, false, false},
		"of a MAAS that nobody uses now":          {other, "c", &infrav1.VMHostReference{ID: 1, SystemID: "abc"}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			host := &infrav1.LXDHost{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{infrav1.MAASAnnotation: test.where}}}
			host.Spec.VMHost = test.ref
			if is, once := isOf(host, test.of), wasOf(host, test.of, views); is != test.is || once != test.once {
				t.Errorf("it is: %t, and was: %t; want %t, %t", is, once, test.is, test.once)
			}
		})
	}
}

// Whoever names MAASes of their own fills neither the manager's namespace nor the places of others.
func TestANamespaceBringsABoundedNumberOfLXDHosts(t *testing.T) {
	brought := func(namespace, by string) *infrav1.LXDHost {
		return &infrav1.LXDHost{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Labels: map[string]string{infrav1.BroughtByLabel: by}}}
	}
	there := &existing{}
	for range maxVMHosts {
		there.hosts = append(there.hosts, brought("capmaas-system", "tenant"), brought("other", "friend"))
	}
	for want, users := range map[string][]string{"": {"tenant"}, "friend": {"friend", "tenant"}, "other": {"tenant", "other"}} {
		if got := there.hasRoom(users, "capmaas-system"); got != want {
			t.Errorf("for a MAAS that %v use, %q brings an LXDHost, want %q", users, got, want)
		}
	}
}
