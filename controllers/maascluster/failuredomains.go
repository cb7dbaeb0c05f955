// SPDX-License-Identifier: Apache-2.0

package maascluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/capacity"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

const (
	// failureDomainsRetry is the interval between updates: no event is sent when a host is added, fails or fills up.
	failureDomainsRetry = 5 * time.Minute
	// pendingRetry is the interval while MAAS lists its machines.
	pendingRetry = 10 * time.Second
	// maxFailureDomains is the maximum number in the status.
	maxFailureDomains = 100
)

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=maasmachinetemplates,verbs=list;watch

// reconcileFailureDomains publishes the zones for machines, and which of them can take a control plane. On a *roomError
// only the latter is not known, and its last published values stay.
func (r *Reconciler) reconcileFailureDomains(ctx context.Context, s *scope.Cluster) error {
	zones, err := s.Inventory.Zones(ctx, capacity.ZonesMaxAge)
	if err != nil {
		// The last result stays: machines must not be moved because MAAS can't be read.
		return fmt.Errorf("listing MAAS's zones: %w", err)
	}
	able, err := r.controlPlaneZones(ctx, s)
	if ctx.Err() != nil {
		return fmt.Errorf("looking for room for control planes: %w", ctx.Err())
	}
	var roomUnknown error
	status := &s.MaasCluster.Status
	wanted := s.MaasCluster.Spec.FailureDomains
	chosen, unknown := capacity.ChooseZones(zones, wanted, able)
	if err != nil {
		roomUnknown = &roomError{err}
		chosen, able = asPublished(chosen, zones, wanted, status.FailureDomains)
	}
	missing := machine.Has(zones, machine.MissingZone, "spec.failureDomains", unknown...)
	if missing != nil && len(chosen) == 0 {
		if !ptr.Deref(status.Initialization.Provisioned, false) {
			return missing
		}
		chosen = unknown // Without failure domains, machines would go anywhere. So they wait for these zones.
	}
	status.FailureDomains = failureDomains(chosen, able, len(wanted) > 0)
	if missing == nil && !errors.Is(roomUnknown, inventory.ErrPending) && !errors.Is(roomUnknown, maas.Unavailable) {
		missing = roomUnknown
	}
	if missing != nil {
		report.Explain(missing).Show(s.MaasCluster, infrav1.FailureDomainsReadyCondition)
	} else {
		report.SetTrue(s.MaasCluster, infrav1.FailureDomainsReadyCondition, infrav1.ReadyReason)
	}
	return roomUnknown
}

// roomError means that the room in the zones is not known. It stops no other step: the room is only extra information
// about the zones.
type roomError struct{ cause error }

func (e *roomError) Error() string { return "reading the room in the zones: " + e.cause.Error() }

func (e *roomError) Unwrap() error { return e.cause }

// retryAfter returns when to read the room again.
func (e *roomError) retryAfter() time.Duration {
	if errors.Is(e, inventory.ErrPending) {
		return pendingRetry
	}
	return cmp.Or(report.Explain(e).RetryAfter, report.CapacityRetry)
}

// asPublished returns the chosen zones as they were last published, while their room is not known. The built-in zone
// stays if it was published. A new zone counts as able to take a control plane.
func asPublished(
	chosen []string, zones []maas.Ref, wanted []string, last []clusterv1.FailureDomain,
) ([]string, map[string]zoneRoom) {
	room := map[string]zoneRoom{}
	for _, zone := range chosen {
		room[zone] = zoneRoom{able: true}
	}
	for _, domain := range last {
		_, isChosen := room[domain.Name]
		exists := slices.ContainsFunc(zones, func(zone maas.Ref) bool { return zone.Name == domain.Name })
		if isChosen || (exists && len(wanted) == 0) {
			room[domain.Name] = zoneRoom{able: ptr.Deref(domain.ControlPlane, true), attributes: domain.Attributes}
		}
	}
	return slices.Sorted(maps.Keys(room)), room
}

// zoneRoom is the room of a zone for control planes of a cluster.
type zoneRoom struct {
	able       bool
	attributes map[string]string
}

// controlPlaneZones returns the room in the zones for control planes made from this cluster's template. It returns nil
// if that is not known: the control plane does not exist yet, or is of a kind that the provider can't read. A zone that
// is full can't take VMs: they would only wait. One whose machines are all in use stays, because that changes all the
// time.
func (r *Reconciler) controlPlaneZones(ctx context.Context, s *scope.Cluster) (map[string]zoneRoom, error) {
	spec, err := r.controlPlaneSpec(ctx, s.Cluster)
	if err != nil || spec == nil {
		return nil, err
	}
	supply, err := capacity.Gather(ctx, s, capacity.Question{Spec: *spec, ControlPlane: true})
	switch {
	case err != nil:
		return nil, err
	case errors.Is(supply.Refused, maas.Gone): // The machines report any other refusal.
		return nil, supply.Refused
	}
	rooms, err := supply.Zones(ctx, r.Client)
	zones := map[string]zoneRoom{}
	for zone, room := range rooms {
		fits := room.Supply[machine.Ready]
		attributes := map[string]string{infrav1.FailureDomainRoom: about(fits)}
		switch {
		case spec.IsLXD():
			attributes[infrav1.FailureDomainHosts] = strconv.Itoa(room.All)
			zones[zone] = zoneRoom{fits > 0, attributes}
		case room.All > 0:
			attributes[infrav1.FailureDomainMachines] = about(room.All)
			zones[zone] = zoneRoom{true, attributes}
		}
	}
	return zones, err
}

// about rounds a number so that its text rarely changes: 0, 1, 2-3, 4-7, 8-15, 16+.
func about(n int) string {
	const most = 16
	switch {
	case n <= 1:
		return strconv.Itoa(max(n, 0))
	case n >= most:
		return strconv.Itoa(most) + "+"
	}
	least := 2
	for least*2 <= n {
		least *= 2
	}
	return fmt.Sprintf("%d-%d", least, 2*least-1)
}

// failureDomains returns the zones in Cluster API's form. All may take a control plane if nothing is known about them,
// and if none can, and no others are wanted: Cluster API would choose none of them, and machines would go anywhere.
func failureDomains(zones []string, able map[string]zoneRoom, only bool) []clusterv1.FailureDomain {
	all := able == nil || only && !slices.ContainsFunc(zones, func(zone string) bool { return able[zone].able })
	var domains []clusterv1.FailureDomain
	for _, zone := range zones {
		domains = append(domains, clusterv1.FailureDomain{
			Name: zone, ControlPlane: ptr.To(all || able[zone].able), Attributes: able[zone].attributes,
		})
	}
	for of := len(domains) - maxFailureDomains; of > 0; of-- { // Drop the unusable zones first.
		at := max(slices.IndexFunc(domains, func(d clusterv1.FailureDomain) bool { return !*d.ControlPlane }), 0)
		domains = slices.Delete(domains, at, at+1)
	}
	return domains
}

// controlPlaneSpec returns the template of the cluster's control planes, or nil if there is none to read.
func (r *Reconciler) controlPlaneSpec(
	ctx context.Context, cluster *clusterv1.Cluster,
) (*infrav1.MaasMachineSpec, error) {
	name, err := clusters.ControlPlaneTemplate(ctx, r.Client, r.APIReader, cluster)
	if err != nil || name == "" {
		return nil, err
	}
	template := &infrav1.MaasMachineTemplate{}
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: name}, template); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return &template.Spec.Template.Spec, nil
}

// templateToCluster wakes the cluster of a template: its control planes may be made from it.
func (r *Reconciler) templateToCluster(ctx context.Context, object client.Object) []reconcile.Request {
	template, ok := object.(*infrav1.MaasMachineTemplate)
	if !ok {
		return nil
	}
	cluster, err := clusters.OwnerCluster(ctx, r.Client, template)
	if err != nil || cluster == nil {
		return nil
	}
	return clusters.Requests(ctx, r.Client, cluster)
}
