// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

// A MAAS that shows other VM hosts in each round fills no memory. What is known of one stays while that has an object, or
// while MAAS may have it.
func TestVMHostsThatAreGoneAreForgotten(t *testing.T) {
	const where = "maas-1:5240/MAAS"
	object := func(id int64) *infrav1.LXDHost {
		host := &infrav1.LXDHost{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{infrav1.MAASAnnotation: where}}}
		host.Spec.VMHost = &infrav1.VMHostReference{ID: id}
		host.Namespace, host.Name = "its-place", "lxd"
		return host
	}
	shows := func(complete bool, ids ...int) map[string]*view {
		v := &view{complete: complete, hosts: map[int]maas.VMHost{}}
		for _, id := range ids {
			v.hosts[id] = maas.VMHost{ID: id}
		}
		return map[string]*view{where: v}
	}
	for name, tc := range map[string]struct {
		views map[string]*view
		there []*infrav1.LXDHost
		stays bool
	}{
		"shown":                       {views: shows(true, 7), stays: true},
		"gone":                        {views: shows(true, 8)},
		"gone, with an object":        {views: shows(true, 8), there: []*infrav1.LXDHost{object(7)}, stays: true},
		"perhaps gone":                {views: shows(false, 8), there: []*infrav1.LXDHost{object(8)}, stays: true},
		"of a MAAS that is not asked": {there: []*infrav1.LXDHost{object(8)}, stays: true},
		"of a MAAS that nobody uses":  {},
	} {
		t.Run(name, func(t *testing.T) {
			m := &Mirror{Base: reconciler.Base{Scopes: &scope.Factory{}}, known: map[string]asked{}, proofs: map[claimed]proof{{where, 7, "abc123"}: {}}}
			m.Scopes.Places.Put(where, object(7))
			m.forget(&existing{hosts: tc.there}, nil, tc.views)
			elsewhere := object(7)
			elsewhere.Namespace = "elsewhere"
			if placed := !m.Scopes.Places.Has(elsewhere); placed != tc.stays || (len(m.proofs) == 1) != tc.stays {
				t.Errorf("its place is known: %t, and %d proofs; want that it stays: %t", placed, len(m.proofs), tc.stays)
			}
		})
	}
}
