// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

const (
	// zonesMaxAge is how old the list of zones may be.
	zonesMaxAge = time.Minute
	// builtInZone exists in every MAAS and can't be deleted.
	builtInZone = "default"
)

// reconcileFailureDomains publishes the zones that machines are spread over.
func (r *MaasClusterReconciler) reconcileFailureDomains(ctx context.Context, s *scope.Cluster) error {
	zones, err := s.Inventory.Zones(ctx, zonesMaxAge)
	if err != nil {
		// The last answer stays: machines must not be moved because MAAS can't be read.
		return fmt.Errorf("listing MAAS's zones: %w", err)
	}
	chosen, unknown := chooseZones(zones, s.MaasCluster.Spec.FailureDomains)
	s.MaasCluster.Status.FailureDomains = nil
	for _, zone := range chosen {
		s.MaasCluster.Status.FailureDomains = append(s.MaasCluster.Status.FailureDomains,
			clusterv1.FailureDomain{Name: zone, ControlPlane: ptr.To(true)})
	}
	if len(unknown) > 0 {
		setFalse(s.MaasCluster, infrav1.FailureDomainsReadyCondition, infrav1.ZonesNotFoundReason,
			"MAAS has no zone %s: create it in MAAS, or change spec.failureDomains", strings.Join(unknown, ", "))
		return nil
	}
	setTrue(s.MaasCluster, infrav1.FailureDomainsReadyCondition, infrav1.ReadyReason)
	return nil
}

// chooseZones answers the wanted zones that exist, and those that don't. With none wanted it is all zones; MAAS's built-in zone
// holds what nobody sorted, so it counts only where it is the only one.
func chooseZones(zones []maas.Ref, wanted []string) (chosen, unknown []string) {
	var all []string
	for _, zone := range zones {
		all = append(all, zone.Name)
	}
	slices.Sort(all)
	if len(wanted) == 0 {
		if sorted := slices.DeleteFunc(slices.Clone(all), func(zone string) bool { return zone == builtInZone }); len(sorted) > 0 {
			return sorted, nil
		}
		return all, nil
	}
	for _, zone := range wanted {
		if slices.Contains(all, zone) {
			chosen = append(chosen, zone)
		} else {
			unknown = append(unknown, zone)
		}
	}
	slices.Sort(chosen)
	return chosen, unknown
}
