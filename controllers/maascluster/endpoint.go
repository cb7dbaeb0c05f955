// SPDX-License-Identifier: Apache-2.0

package maascluster

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/rights"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

// reconcileEndpoint sets the cluster's endpoint, and keeps its DNS record or reservation in MAAS.
func (r *Reconciler) reconcileEndpoint(ctx context.Context, s *scope.Cluster, rec *record.Cluster) error {
	if s.MaasCluster.Spec.ClusterName != "" {
		return r.reconcileJoined(s)
	}
	if s.Endpoint() != scope.EndpointVirtualIP {
		if err := r.forgetVirtualIP(ctx, s, rec); err != nil {
			return err
		}
	}
	if s.MaasCluster.Spec.ControlPlaneEndpoint.Host == "" && s.EndpointDiffers() {
		endpointReady(s, "") // A recorded endpoint can't be changed any more.
		return nil
	}
	switch s.Endpoint() {
	case scope.EndpointExternal:
		return r.reconcileExternal(s)
	case scope.EndpointVirtualIP:
		return r.reconcileVirtualIP(ctx, s, rec)
	default:
		return r.reconcileRecord(ctx, s, rec)
	}
}

// reconcileExternal takes the user's endpoint as it is, or that of the Cluster, where whoever runs the control plane
// has set it.
func (r *Reconciler) reconcileExternal(s *scope.Cluster) error {
	endpoint, given := &s.MaasCluster.Spec.ControlPlaneEndpoint, s.Cluster.Spec.ControlPlaneEndpoint
	if endpoint.Host == "" && given.Host == "" {
		report.SetFalse(s.MaasCluster, infrav1.DNSReadyCondition, infrav1.ExternalEndpointReason, "%s", awaitsEndpoint(s))
		return nil
	}
	if endpoint.Host == "" {
		*endpoint = infrav1.APIEndpoint{Host: given.Host, Port: cmp.Or(given.Port, endpoint.Port)}
	}
	r.reachedAt(s, endpoint.Host, endpoint.Host)
	endpointReady(s, infrav1.ExternalEndpointReason)
	return nil
}

// awaitsEndpoint says what sets the endpoint that another party provides.
func awaitsEndpoint(s *scope.Cluster) string {
	why, or := "the annotation "+infrav1.CustomDNSAnnotation+" says that MAAS provides no API endpoint", ""
	if !s.Annotated() {
		why, or = "without spec.dnsDomain, MAAS provides no API endpoint", ", or spec.dnsDomain to a domain that MAAS serves"
	}
	return fmt.Sprintf("%s: waiting for the control-plane provider to set spec.controlPlaneEndpoint of Cluster %s; if "+
		"you provide it, set spec.controlPlaneEndpoint.host of the MaasCluster%s", why, s.Cluster.Name, or)
}

// reconcileRecord keeps the control planes' addresses in the DNS record.
func (r *Reconciler) reconcileRecord(ctx context.Context, s *scope.Cluster, rec *record.Cluster) error {
	if err := checkDomain(ctx, s); err != nil {
		return err
	}
	r.reachedAt(s, s.EndpointName(), s.EndpointName())
	published, wrote, err := clusters.PublishEndpoint(ctx, r.Client, r.Clock, s, rec)
	if err != nil {
		return err
	}
	if wrote {
		r.Tell(s.MaasCluster, "EndpointPublished", "Publish", "%s is at %v", s.EndpointName(), published)
	}
	if len(published) == 0 && !s.EndpointDiffers() {
		report.SetFalse(s.MaasCluster, infrav1.DNSReadyCondition, infrav1.WaitingForControlPlaneReason,
			"no control plane has an address yet")
		return nil
	}
	endpointReady(s, infrav1.ReadyReason)
	return nil
}

// checkDomain returns an error unless MAAS serves the domain of the cluster's name and, up to 3.7, lets us write there.
func checkDomain(ctx context.Context, s *scope.Cluster) error {
	isNew := !ptr.Deref(s.MaasCluster.Status.Initialization.Provisioned, false)
	if isNew {
		what, use := "an API endpoint in MAAS's DNS (spec.dnsDomain)", rights.DNSEndpoint
		if s.Endpoint() == scope.EndpointVirtualIP {
			what, use = "a virtual IP with a name in MAAS's DNS (spec.virtualIP)", rights.VirtualIP
		}
		if err := rights.Require(ctx, s.Inventory, what, use); err != nil {
			return err
		}
	}
	return s.DNS.CheckDomain(ctx, s.MaasCluster.Spec.DNSDomain, isNew)
}

// reconcileVirtualIP keeps the virtual IP reserved; one control plane at a time holds it. The reservation is found by
// its name, even if the response to the request was lost.
func (r *Reconciler) reconcileVirtualIP(ctx context.Context, s *scope.Cluster, rec *record.Cluster) error {
	if err := checkDomain(ctx, s); err != nil {
		return err
	}
	recorded := s.MaasCluster.Spec.ControlPlaneEndpoint.Host
	reserved, err := s.DNS.VirtualIP(ctx, s.EndpointName(), recorded)
	if err != nil {
		return err
	}
	if recorded == "" && slices.ContainsFunc(reserved,
		func(address string) bool { return !meets(address, s.MaasCluster.Spec.VirtualIP) }) {
		// The spec was changed before the outcome of the reservation was known.
		if err := releaseVirtualIP(ctx, s, rec, ""); err != nil {
			return err
		}
		reserved = nil
	}
	address := ours(reserved, cmp.Or(recorded, s.MaasCluster.Spec.VirtualIP.Address))
	if address == "" && recorded != "" {
		if address, err = r.heldByItsOwn(ctx, s, recorded); err != nil {
			return err
		}
	}
	if address == "" {
		if address, err = r.reserveVirtualIP(ctx, s, rec, recorded); err != nil {
			return err
		}
	}
	if recorded == "" {
		if err := recordVirtualIP(ctx, s, rec, address); err != nil {
			return err
		}
	}
	rec.Acquired() // The outcome of the reservation is known.
	r.reachedAt(s, address, s.EndpointName())
	endpointReady(s, infrav1.VirtualIPReason)
	return nil
}

// heldByItsOwn returns the virtual IP if MAAS has made it an address of one of the cluster's machines, as MAAS does
// with VM hosts. MAAS gives the address to no other machine while that one has it.
func (r *Reconciler) heldByItsOwn(ctx context.Context, s *scope.Cluster, address string) (string, error) {
	machines, err := clusters.MachinesOf(ctx, r.Client, s.Cluster, s.MaasCluster)
	if err != nil {
		return "", err
	}
	for _, m := range machines {
		if m.Spec.SystemID != "" && clusters.IsShownOn(lastSeen(s, &m), address) {
			return address, nil
		}
	}
	return "", nil
}

// lastSeen returns the machine as it was last seen, or nil. Its own reconciler observes it; one that waits for
// something else may not have done that since the manager was started.
func lastSeen(s *scope.Cluster, m *infrav1.MaasMachine) *maas.Machine {
	seen, tracked := s.Inventory.Peek(m.Spec.SystemID)
	if !tracked && m.DeletionTimestamp.IsZero() {
		seen = s.Inventory.Observe(m.Spec.SystemID, inventory.Settled)
	}
	return seen.Machine
}

// recordVirtualIP stores the address as the endpoint, unless the MaasCluster was changed since it was read. A user may
// just have removed spec.virtualIP, and then nothing would record that the address must be released.
func recordVirtualIP(ctx context.Context, s *scope.Cluster, rec *record.Cluster, address string) error {
	endpoint := infrav1.APIEndpoint{Host: address, Port: s.APIServerPort()}
	return rec.Write(ctx, func(c client.Object) { c.(*infrav1.MaasCluster).Spec.ControlPlaneEndpoint = endpoint })
}

// ours returns the wanted address if it is reserved under the cluster's name. If wanted is "", it returns any reserved
// address.
func ours(reserved []string, wanted string) string {
	at := slices.IndexFunc(reserved, func(address string) bool {
		return wanted == "" || maas.SameAddress(address, wanted)
	})
	if at < 0 {
		return ""
	}
	return cmp.Or(wanted, reserved[at])
}

// meets reports whether an address meets spec.virtualIP.
func meets(address string, wanted *infrav1.VirtualIP) bool {
	if wanted.Address != "" {
		return maas.SameAddress(address, wanted.Address)
	}
	ip, err := netip.ParseAddr(address)
	subnet, bad := netip.ParsePrefix(wanted.Subnet)
	return err == nil && bad == nil && subnet.Contains(ip)
}

// forgetVirtualIP releases an address that may have been reserved before spec.virtualIP was removed, while there was no
// endpoint yet.
func (r *Reconciler) forgetVirtualIP(ctx context.Context, s *scope.Cluster, rec *record.Cluster) error {
	if !rec.MayAcquire() {
		return nil
	}
	if err := releaseVirtualIP(ctx, s, rec, ""); err != nil {
		return err
	}
	if err := settled(rec); err != nil {
		return err
	}
	rec.Acquired()
	return nil
}

// reserveVirtualIP reserves the address in MAAS. The attempt is recorded first: a retry after a lost response could
// reserve a second address.
func (r *Reconciler) reserveVirtualIP(
	ctx context.Context, s *scope.Cluster, rec *record.Cluster, recorded string,
) (string, error) {
	wanted := s.MaasCluster.Spec.VirtualIP
	if err := settled(rec); err != nil {
		return "", err
	}
	address := ""
	err := rec.Call(ctx, record.Reserve, func(ctx context.Context, permit maas.Permit) (err error) {
		address, err = s.DNS.ReserveVirtualIP(ctx, permit, s.EndpointName(), cmp.Or(recorded, wanted.Address), wanted.Subnet)
		return err
	})
	if err != nil {
		return "", err
	}
	r.Tell(s.MaasCluster, "VirtualIPReserved", "Reserve",
		"%s is reserved in MAAS under the name %s", address, s.EndpointName())
	return address, nil
}

// releaseVirtualIP frees the recorded address or, without one, what is reserved under the cluster's name, and deletes
// the name. MAAS frees an address by its number: a late call would take it from the cluster that has it next, so it is
// recorded.
func releaseVirtualIP(ctx context.Context, s *scope.Cluster, rec *record.Cluster, recorded string) error {
	reserved, err := s.DNS.VirtualIP(ctx, s.EndpointName(), "")
	if err != nil {
		return err
	}
	if len(reserved) == 0 {
		rec.Done(record.Unreserve) // An earlier call has taken effect.
		return s.DNS.DropName(ctx, record.DropEndpoint.Permit(), s.EndpointName())
	}
	return rec.CallRelease(ctx, record.Unreserve, func(ctx context.Context, permit maas.ReleasePermit) error {
		return s.DNS.ReleaseVirtualIP(ctx, permit, s.EndpointName(), recorded)
	})
}

// settled returns an error while the outcome of a call is not known: until then no other address is reserved, and the
// cluster is not removed.
func settled(rec *record.Cluster) error {
	if left := rec.Unsettled(); left > 0 {
		return report.Later(min(left, report.CapacityRetry), infrav1.MAASUnavailableReason, record.LostEndpoint)
	}
	return nil
}

// reachedAt stores the endpoint of the API.
func (r *Reconciler) reachedAt(s *scope.Cluster, host, name string) {
	endpoint := &s.MaasCluster.Spec.ControlPlaneEndpoint
	endpoint.Host, endpoint.Port = host, s.APIServerPort()
	s.MaasCluster.Status.Network.DNSName = name
	if !s.EndpointDiffers() {
		r.provisioned(s.MaasCluster)
	}
}

// endpointReady sets DNSReady to True with a reason, unless the Cluster has another endpoint.
func endpointReady(s *scope.Cluster, reason string) {
	if !s.EndpointDiffers() {
		report.SetTrue(s.MaasCluster, infrav1.DNSReadyCondition, reason)
		return
	}
	remedy := "set the Cluster's to the same if clients use that, or replace the MaasCluster by one with the Cluster's"
	if s.MaasCluster.Spec.ControlPlaneEndpoint.Host == "" {
		remedy = "remove the Cluster's, or set the MaasCluster's to the same if you provide the endpoint yourself"
	}
	report.SetFalse(s.MaasCluster, infrav1.DNSReadyCondition, infrav1.EndpointDiffersReason,
		"controlPlaneEndpoint.host of the Cluster is %s, of the MaasCluster %q: %s", s.Cluster.Spec.ControlPlaneEndpoint.Host,
		s.Host(), remedy)
}

// deleteEndpoint removes the DNS record or the reservation from MAAS.
func (r *Reconciler) deleteEndpoint(ctx context.Context, s *scope.Cluster, rec *record.Cluster) error {
	if s.Endpoint() != scope.EndpointVirtualIP {
		if err := r.forgetVirtualIP(ctx, s, rec); err != nil {
			return err
		}
	}
	switch s.Endpoint() {
	case scope.EndpointVirtualIP:
		if err := releaseVirtualIP(ctx, s, rec, s.MaasCluster.Spec.ControlPlaneEndpoint.Host); err != nil {
			return err
		}
	case scope.EndpointDNS:
		free := func(ctx context.Context, call func(context.Context, maas.ReleasePermit) error) error {
			return rec.CallRelease(ctx, record.Unreserve, call)
		}
		if err := s.DNS.Delete(ctx, record.DropEndpoint.Permit(), free, s.EndpointName()); err != nil {
			return err
		}
	}
	return settled(rec)
}
