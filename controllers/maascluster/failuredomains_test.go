// SPDX-License-Identifier: Apache-2.0

package maascluster

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/capacity"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
)

func TestZonesStayAsTheyWereWhileTheirRoomIsNotKnown(t *testing.T) {
	t.Parallel()
	domain := func(name string, able bool) clusterv1.FailureDomain {
		return clusterv1.FailureDomain{Name: name, ControlPlane: ptr.To(able), Attributes: map[string]string{infrav1.FailureDomainRoom: "1"}}
	}
	isNew := func(name string) clusterv1.FailureDomain {
		return clusterv1.FailureDomain{Name: name, ControlPlane: ptr.To(true)}
	}
	domains := func(list ...clusterv1.FailureDomain) []clusterv1.FailureDomain { return list }
	for name, tc := range map[string]struct {
		zones, wanted []string
		last, want    []clusterv1.FailureDomain
	}{
		"nothing was published":             {[]string{"default", "a", "b"}, nil, nil, domains(isNew("a"), isNew("b"))},
		"all that was published":            {[]string{"default", "a", "b"}, nil, domains(domain("a", true), domain("b", false)), domains(domain("a", true), domain("b", false))},
		"and the built-in one with it":      {[]string{"default", "a"}, nil, domains(domain("a", false), domain("default", true)), domains(domain("a", false), domain("default", true))},
		"a new zone":                        {[]string{"default", "a", "b"}, nil, domains(domain("a", false)), domains(domain("a", false), isNew("b"))},
		"a zone that is gone":               {[]string{"default", "b"}, nil, domains(domain("a", true), domain("b", false)), domains(domain("b", false))},
		"a zone that is not wanted anymore": {[]string{"default", "a", "b"}, []string{"b"}, domains(domain("a", true), domain("b", false)), domains(domain("b", true))},
	} {
		t.Run(name, func(t *testing.T) {
			var zones []maas.Ref
			for _, zone := range tc.zones {
				zones = append(zones, maas.Ref{Name: zone})
			}
			chosen, _ := capacity.ChooseZones(zones, tc.wanted, map[string]zoneRoom(nil))
			chosen, room := asPublished(chosen, zones, tc.wanted, tc.last)
			if diff := cmp.Diff(tc.want, failureDomains(chosen, room, len(tc.wanted) > 0)); diff != "" {
				t.Errorf("the failure domains differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUnknownRoomIsReadAgainSoon(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		cause error
		want  time.Duration
	}{
		"MAAS lists its machines":  {inventory.ErrPending, pendingRetry},
		"MAAS can't be read":       {maas.Unavailable, report.CapacityRetry},
		"MAAS sent a time":         {&maas.Error{Kind: maas.Unavailable, RetryAfter: 7 * time.Second}, 7 * time.Second},
		"MAAS has no VM hosts":     {maas.Gone, report.MendRetry},
		"something without a type": {http.ErrBodyNotAllowed, report.CapacityRetry},
	} {
		t.Run(name, func(t *testing.T) {
			if got := (&roomError{tc.cause}).retryAfter(); got != tc.want {
				t.Errorf("it is looked for again after %s, want %s", got, tc.want)
			}
		})
	}
}

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
			chosen, unknown := capacity.ChooseZones(tc.zones, tc.wanted, tc.able)
			if !slices.Equal(chosen, tc.chosen) || !slices.Equal(unknown, tc.unknown) {
				t.Errorf("chosen %v, unknown %v; want %v and %v", chosen, unknown, tc.chosen, tc.unknown)
			}
		})
	}
}

func TestFailureDomainsAreOnlyForControlPlanesWhereTheyFit(t *testing.T) {
	room := map[string]string{infrav1.FailureDomainRoom: "1"}
	got := failureDomains([]string{"a", "b", "c"}, map[string]zoneRoom{"a": {able: true, attributes: room}, "b": {attributes: room}}, true)
	want := []clusterv1.FailureDomain{
		{Name: "a", ControlPlane: ptr.To(true), Attributes: room}, {Name: "b", ControlPlane: ptr.To(false), Attributes: room},
		{Name: "c", ControlPlane: ptr.To(false)},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the failure domains differ (-want +got):\n%s", diff)
	}
	t.Run("and everywhere while that is not known", func(t *testing.T) {
		want := []clusterv1.FailureDomain{{Name: "a", ControlPlane: ptr.To(true)}}
		if diff := cmp.Diff(want, failureDomains([]string{"a"}, nil, false)); diff != "" {
			t.Errorf("the failure domains differ (-want +got):\n%s", diff)
		}
	})
	t.Run("and where none fits, nowhere, or in all zones if no other ones are wanted", func(t *testing.T) {
		for _, only := range []bool{false, true} {
			want := []clusterv1.FailureDomain{{Name: "a", ControlPlane: ptr.To(only)}, {Name: "b", ControlPlane: ptr.To(only), Attributes: room}}
			got := failureDomains([]string{"a", "b"}, map[string]zoneRoom{"b": {attributes: room}, "c": {able: true}}, only)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the failure domains differ (-want +got):\n%s", diff)
			}
		}
	})
	t.Run("and those of use are kept where there are too many", func(t *testing.T) {
		var zones []string
		for i := range maxFailureDomains + 20 {
			zones = append(zones, fmt.Sprintf("z%03d", i))
		}
		got := failureDomains(zones, map[string]zoneRoom{"z003": {able: true}, "z119": {able: true}}, false)
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

func TestAboutRoundsRoom(t *testing.T) {
	want := []string{"0", "1", "2-3", "2-3", "4-7", "4-7", "4-7", "4-7", "8-15"}
	for n, text := range want {
		if got := about(n); got != text {
			t.Errorf("%d is shown as %s, want %s", n, got, text)
		}
	}
	for n, text := range map[int]string{-3: "0", 15: "8-15", 16: "16+", 1 << 40: "16+"} {
		if got := about(n); got != text {
			t.Errorf("%d is shown as %s, want %s", n, got, text)
		}
	}
}
