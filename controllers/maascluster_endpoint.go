// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/dns"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

// reconcileEndpoint gives the cluster its endpoint, and keeps what MAAS does for it.
func (r *MaasClusterReconciler) reconcileEndpoint(ctx context.Context, s *scope.Cluster) error {
	if s.Endpoint() != scope.EndpointVirtualIP {
		if err := r.forgetVirtualIP(ctx, s); err != nil {
			return err
		}
	}
	switch s.Endpoint() {
	case scope.EndpointExternal:
		return r.reconcileExternal(s)
	case scope.EndpointVirtualIP:
		return r.reconcileVirtualIP(ctx, s)
	default:
		return r.reconcileRecord(ctx, s)
	}
}

// reconcileExternal takes the user's endpoint as it is.
func (r *MaasClusterReconciler) reconcileExternal(s *scope.Cluster) error {
	endpoint := &s.MaasCluster.Spec.ControlPlaneEndpoint
	if endpoint.Host == "" {
		setFalse(s.MaasCluster, infrav1.DNSReadyCondition, infrav1.ExternalEndpointReason,
			"the annotation %s says that you provide the API endpoint: set spec.controlPlaneEndpoint.host", infrav1.CustomDNSAnnotation)
		return nil
	}
	r.reachedAt(s, endpoint.Host, endpoint.Host)
	setTrue(s.MaasCluster, infrav1.DNSReadyCondition, infrav1.ExternalEndpointReason)
	return nil
}

// reconcileRecord keeps the DNS record at the control planes' addresses.
func (r *MaasClusterReconciler) reconcileRecord(ctx context.Context, s *scope.Cluster) error {
	if err := s.DNS.CheckDomain(ctx, s.MaasCluster.Spec.DNSDomain); err != nil {
		return err
	}
	r.reachedAt(s, s.EndpointName(), s.EndpointName())
	published, wrote, err := publishEndpoint(ctx, r.Client, s)
	if err != nil {
		return err
	}
	if wrote {
		r.Recorder.Eventf(s.MaasCluster, nil, corev1.EventTypeNormal, "EndpointPublished", "Publish", "%s is at %v", s.EndpointName(), published)
	}
	if len(published) == 0 {
		setFalse(s.MaasCluster, infrav1.DNSReadyCondition, infrav1.WaitingForControlPlaneReason, "no control plane has an address yet")
		return nil
	}
	setTrue(s.MaasCluster, infrav1.DNSReadyCondition, infrav1.ReadyReason)
	return nil
}

// reconcileVirtualIP keeps the address reserved that the control planes hold in turn. The name that it is reserved under is the mark
// that it is found by, also when the answer to the reservation was lost.
func (r *MaasClusterReconciler) reconcileVirtualIP(ctx context.Context, s *scope.Cluster) error {
	if err := s.DNS.CheckDomain(ctx, s.MaasCluster.Spec.DNSDomain); err != nil {
		return err
	}
	recorded := s.MaasCluster.Spec.ControlPlaneEndpoint.Host
	reserved, err := s.DNS.VirtualIP(ctx, s.EndpointName(), recorded)
	if err != nil {
		return err
	}
	if recorded == "" && slices.ContainsFunc(reserved, func(address string) bool { return !meets(address, s.MaasCluster.Spec.VirtualIP) }) {
		// The spec was changed before it was known what became of the reservation.
		if err := s.DNS.ReleaseVirtualIP(ctx, s.EndpointName(), ""); err != nil {
			return err
		}
		reserved = nil
	}
	address := ours(reserved, cmp.Or(recorded, s.MaasCluster.Spec.VirtualIP.Address))
	if address == "" {
		if address, err = r.reserveVirtualIP(ctx, s, recorded); err != nil {
			return err
		}
	}
	if recorded == "" {
		if err := r.recordVirtualIP(ctx, s, address); err != nil {
			return err
		}
	}
	delete(s.MaasCluster.Annotations, infrav1.AcquireStartedAnnotation) // What became of it is known.
	r.reachedAt(s, address, s.EndpointName())
	setTrue(s.MaasCluster, infrav1.DNSReadyCondition, infrav1.VirtualIPReason)
	return nil
}

// recordVirtualIP stores the address as the endpoint, if spec.virtualIP is still what it was reserved for: somebody may have removed it a
// moment ago, and then nothing would tell that the endpoint is to be given back.
func (r *MaasClusterReconciler) recordVirtualIP(ctx context.Context, s *scope.Cluster, address string) error {
	now := &infrav1.MaasCluster{}
	if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(s.MaasCluster), now); err != nil {
		return fmt.Errorf("reading the MaasCluster: %w", err)
	}
	changed := &notReadyError{infrav1.NotReadyReason, "the MaasCluster was changed just now; it is looked at anew", time.Second}
	if !equality.Semantic.DeepEqual(now.Spec.VirtualIP, s.MaasCluster.Spec.VirtualIP) {
		return changed
	}
	before := now.DeepCopy()
	now.Spec.ControlPlaneEndpoint = infrav1.APIEndpoint{Host: address, Port: s.APIServerPort()}
	delete(now.Annotations, infrav1.AcquireStartedAnnotation)
	err := r.Client.Patch(ctx, now, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) {
		return changed
	}
	if err != nil {
		return fmt.Errorf("recording the virtual IP: %w", err)
	}
	return nil
}

// ours is the address that is wanted, or any where none is, among those that are reserved under the cluster's name.
func ours(reserved []string, wanted string) string {
	at := slices.IndexFunc(reserved, func(address string) bool { return wanted == "" || dns.SameAddress(address, wanted) })
	if at < 0 {
		return ""
	}
	return cmp.Or(wanted, reserved[at])
}

// meets tells whether an address is what is wanted.
func meets(address string, wanted *infrav1.VirtualIP) bool {
	if wanted.Address != "" {
		return dns.SameAddress(address, wanted.Address)
	}
	ip, err := netip.ParseAddr(address)
	subnet, bad := netip.ParsePrefix(wanted.Subnet)
	return err == nil && bad == nil && subnet.Contains(ip)
}

// forgetVirtualIP gives back what may have been reserved before spec.virtualIP was removed, as long as there was no endpoint.
func (r *MaasClusterReconciler) forgetVirtualIP(ctx context.Context, s *scope.Cluster) error {
	if s.MaasCluster.Annotations[infrav1.AcquireStartedAnnotation] == "" {
		return nil
	}
	if err := s.DNS.ReleaseVirtualIP(ctx, s.EndpointName(), ""); err != nil {
		return err
	}
	if err := r.awaitReservation(s.MaasCluster); err != nil {
		return err
	}
	delete(s.MaasCluster.Annotations, infrav1.AcquireStartedAnnotation)
	return nil
}

// reserveVirtualIP has MAAS reserve the address. To ask twice for a free one could reserve two, so that it is noted before.
func (r *MaasClusterReconciler) reserveVirtualIP(ctx context.Context, s *scope.Cluster, recorded string) (string, error) {
	wanted := s.MaasCluster.Spec.VirtualIP
	if err := r.awaitReservation(s.MaasCluster); err != nil {
		return "", err
	}
	if err := acquiring(ctx, r.Client, s.MaasCluster, true); err != nil {
		return "", err
	}
	address, err := s.DNS.ReserveVirtualIP(ctx, s.EndpointName(), cmp.Or(recorded, wanted.Address), wanted.Subnet)
	if err != nil && nothingCame(err) {
		return "", errors.Join(err, acquiring(ctx, r.Client, s.MaasCluster, false))
	}
	if err != nil {
		return "", err
	}
	r.Recorder.Eventf(s.MaasCluster, nil, corev1.EventTypeNormal, "VirtualIPReserved", "Reserve", "%s is reserved in MAAS under the name %s", address, s.EndpointName())
	return address, nil
}

// awaitReservation: while it is not known what became of a reservation, there is no other, and the cluster does not go.
func (r *MaasClusterReconciler) awaitReservation(maasCluster *infrav1.MaasCluster) error {
	if left := unsettled(maasCluster, r.SettleTime); left > 0 {
		return &notReadyError{infrav1.MAASUnavailableReason,
			"MAAS did not say what became of the request for a virtual IP; looking for it before asking again", min(left, capacityRetry)}
	}
	return nil
}

// reachedAt says where the API is.
func (r *MaasClusterReconciler) reachedAt(s *scope.Cluster, host, name string) {
	endpoint := &s.MaasCluster.Spec.ControlPlaneEndpoint
	endpoint.Host, endpoint.Port = host, s.APIServerPort()
	s.MaasCluster.Status.Network.DNSName = name
	r.provisioned(s.MaasCluster)
}

// deleteEndpoint takes away what MAAS did for the endpoint.
func (r *MaasClusterReconciler) deleteEndpoint(ctx context.Context, cluster *clusterv1.Cluster, maasCluster *infrav1.MaasCluster) error {
	s, err := r.scope(ctx, cluster, maasCluster)
	if err != nil {
		return err
	}
	if s.Endpoint() != scope.EndpointVirtualIP {
		if err := r.forgetVirtualIP(ctx, s); err != nil {
			return err
		}
	}
	switch s.Endpoint() {
	case scope.EndpointVirtualIP:
		if err := s.DNS.ReleaseVirtualIP(ctx, s.EndpointName(), maasCluster.Spec.ControlPlaneEndpoint.Host); err != nil {
			return err
		}
		return r.awaitReservation(maasCluster)
	case scope.EndpointDNS:
		return s.DNS.Delete(ctx, s.EndpointName())
	}
	return nil
}
