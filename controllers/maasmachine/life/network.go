// SPDX-License-Identifier: Apache-2.0

package life

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=ipaddressclaims,verbs=list;watch;create;patch;delete
// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=ipaddresses,verbs=get

// Address determines the machine's static address, from the pool if the spec names one. It runs before a machine is
// acquired: a machine that waits for its address must not be held in MAAS.
func (s *Steps) Address(ctx context.Context, l *Life) (Outcome, error) {
	m := l.MaasMachine
	if m.Spec.StaticIPPoolRef == nil {
		m.Status.StaticIP = m.Spec.StaticIP
		return Proceed, nil
	}
	if l.MAAS != nil && (l.MAAS.Status == maas.StatusDeploying || l.MAAS.Status == maas.StatusDeployed) {
		var err error
		if m.Status.StaticIP == "" { // After a move.
			m.Status.StaticIP, err = s.staticAddress(ctx, m)
		}
		return Proceed, err
	}
	claim, waiting, err := s.claimOf(ctx, m)
	if err != nil || claim == nil {
		return waiting, err
	}
	address, err := s.addressOf(ctx, claim)
	if err != nil {
		return Proceed, err
	}
	if address == "" {
		return s.awaitAddress(m, claim)
	}
	m.Status.StaticIP = address
	return Proceed, nil
}

// claimOf returns the machine's IPAddressClaim, and creates it if there is none. Without a claim, the outcome contains
// the time to wait.
func (s *Steps) claimOf(ctx context.Context, m *infrav1.MaasMachine) (*ipamv1.IPAddressClaim, Outcome, error) {
	claim := &ipamv1.IPAddressClaim{}
	err := s.Client.Get(ctx, client.ObjectKeyFromObject(m), claim)
	switch {
	case apierrors.IsNotFound(err):
		return nil, awaitPool(m.Spec.StaticIPPoolRef, report.SafetyRetry), s.makeClaim(ctx, m)
	case err != nil:
		return nil, Proceed, fmt.Errorf("reading IPAddressClaim %s: %w", m.Name, err)
	case claim.Annotations[infrav1.LeftVMAnnotation] != "":
		return nil, report.Wait(report.MendRetry, infrav1.IPAddressClaimNotOursReason,
			"IPAddressClaim %s holds the address of VM %s, which an earlier MaasMachine of this name left on a host that "+
				"can't be asked: use another name, or delete the claim, if the VM is gone", claim.Name,
			claim.Annotations[infrav1.LeftVMAnnotation]), nil
	case !metav1.IsControlledBy(claim, m):
		return nil, report.Wait(report.MendRetry, infrav1.IPAddressClaimNotOursReason,
			"IPAddressClaim %s has the name of this machine and another owner: delete it, or delete the Machine to get "+
				"another name", claim.Name), nil
	case !claim.DeletionTimestamp.IsZero():
		return nil, report.Wait(report.SafetyRetry, infrav1.WaitingForIPAddressReason,
			"waiting for IPAddressClaim %s to be deleted before creating a new one", claim.Name), nil
	}
	return claim, Proceed, nil
}

// makeClaim creates the claim for an address from the pool.
func (s *Steps) makeClaim(ctx context.Context, m *infrav1.MaasMachine) error {
	if err := s.checkPool(m.Spec.StaticIPPoolRef); err != nil {
		return err
	}
	cluster := m.Labels[clusterv1.ClusterNameLabel]
	claim := &ipamv1.IPAddressClaim{
		ObjectMeta: metav1.ObjectMeta{Name: m.Name, Namespace: m.Namespace,
			Labels: map[string]string{clusterv1.ClusterNameLabel: cluster}},
		Spec: ipamv1.IPAddressClaimSpec{ClusterName: cluster, PoolRef: *m.Spec.StaticIPPoolRef},
	}
	if filter, ok := m.Labels[clusterv1.WatchLabel]; ok {
		claim.Labels[clusterv1.WatchLabel] = filter
	}
	// Not blocking: a foreground deletion need not wait until the claim is gone. The garbage collector may delete it
	// first all the same.
	if err := controllerutil.SetControllerReference(m, claim, s.Client.Scheme(),
		controllerutil.WithBlockOwnerDeletion(false)); err != nil {
		return fmt.Errorf("owning IPAddressClaim %s: %w", claim.Name, err)
	}
	if err := s.Client.Create(ctx, claim); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("making IPAddressClaim %s: %w", claim.Name, err)
	}
	return nil
}

// checkPool returns a *report.NotReadyError if no such kind of pool is known: no IPAM provider would serve the claim.
func (s *Steps) checkPool(pool *ipamv1.IPPoolReference) error {
	_, err := s.Client.RESTMapper().RESTMapping(schema.GroupKind{Group: pool.APIGroup, Kind: pool.Kind})
	if meta.IsNoMatchError(err) {
		return report.Later(report.MendRetry, infrav1.IPPoolKindUnknownReason, "spec.staticIPPoolRef: there is no kind %s "+
			"in the API group %s: install its IPAM provider, or correct the reference", pool.Kind, pool.APIGroup)
	}
	if err != nil {
		return fmt.Errorf("looking for the kind %s of spec.staticIPPoolRef: %w", pool.Kind, err)
	}
	return nil
}

// awaitAddress reports the IPAM provider's condition while there is no address. The watch on the claim triggers the
// next reconcile.
func (s *Steps) awaitAddress(m *infrav1.MaasMachine, claim *ipamv1.IPAddressClaim) (Outcome, error) {
	pool := claim.Spec.PoolRef
	reason, message := refusal(claim)
	if reason == "" {
		if claim.Status.AddressRef.Name != "" {
			return awaitPool(&pool, report.CapacityRetry), nil // No event is sent when the IPAddress exists.
		}
		return awaitPool(&pool, report.SafetyRetry), s.checkPool(&pool)
	}
	text := report.Brief(fmt.Sprintf("%s %s refuses to assign an address: %s %s", pool.Kind, pool.Name, reason, message))
	if old := conditions.Get(m, infrav1.MachineDeployedCondition); old == nil || old.Message != text {
		s.Warn(m, infrav1.IPAddressRefusedReason, "Claim", "%s", text)
	}
	return report.Wait(report.SafetyRetry, infrav1.IPAddressRefusedReason, "%s", text), nil
}

// awaitPool waits for an address of a pool.
func awaitPool(pool *ipamv1.IPPoolReference, after time.Duration) Outcome {
	return report.Wait(after, infrav1.WaitingForIPAddressReason, "%s %s has not assigned an address yet", pool.Kind,
		pool.Name)
}

// refusal returns why a claim is not served, for providers of either contract version; "" if they give no reason.
func refusal(claim *ipamv1.IPAddressClaim) (reason, message string) {
	if c := conditions.Get(claim, ipamv1.IPAddressClaimReadyCondition); c != nil {
		if c.Status == metav1.ConditionFalse {
			return c.Reason, c.Message
		}
		return "", ""
	}
	for _, c := range claim.GetV1Beta1Conditions() {
		if string(c.Type) == ipamv1.IPAddressClaimReadyCondition && c.Status == corev1.ConditionFalse {
			return cmp.Or(c.Reason, infrav1.NotReadyReason), c.Message
		}
	}
	return "", ""
}

// addressOf returns the address that a claim was given; "" while there is none.
func (s *Steps) addressOf(ctx context.Context, claim *ipamv1.IPAddressClaim) (string, error) {
	name := claim.Status.AddressRef.Name
	if name == "" {
		return "", nil
	}
	address := &ipamv1.IPAddress{}
	err := s.APIReader.Get(ctx, client.ObjectKey{Namespace: claim.Namespace, Name: name}, address)
	if client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("reading IPAddress %s: %w", name, err)
	}
	return address.Spec.Address, nil
}

// staticAddress returns the address that the machine has or had: the spec's, the claim's, or, without a claim, the
// recorded one.
func (s *Steps) staticAddress(ctx context.Context, m *infrav1.MaasMachine) (string, error) {
	if m.Spec.StaticIPPoolRef == nil {
		return m.Spec.StaticIP, nil
	}
	claim := &ipamv1.IPAddressClaim{}
	if err := s.Client.Get(ctx, client.ObjectKeyFromObject(m), claim); err != nil {
		if client.IgnoreNotFound(err) != nil {
			return "", fmt.Errorf("reading IPAddressClaim %s: %w", m.Name, err)
		}
		return m.Status.StaticIP, nil
	}
	if !metav1.IsControlledBy(claim, m) {
		return m.Status.StaticIP, nil
	}
	address, err := s.addressOf(ctx, claim)
	return cmp.Or(address, m.Status.StaticIP), err
}

// addresses returns the machine's addresses for Cluster API and kubelet, those that the cluster prefers first.
func (s *Steps) addresses(ctx context.Context, l *Life) ([]clusterv1.MachineAddress, error) {
	preferred, err := l.AddressPreference(ctx)
	if err != nil {
		return nil, err
	}
	var notIts []string
	if l.Endpoint() == scope.EndpointVirtualIP {
		// It moves between the control planes; MAAS may have seen it on one.
		notIts = append(notIts, l.MaasCluster.Spec.ControlPlaneEndpoint.Host)
	}
	if IsHost(l) {
		notIts = append(notIts, scope.ForeignAddresses(l.MAAS, preferred)...)
	}
	return scope.MachineAddresses(l.MAAS, preferred, notIts...), nil
}

// recordAutomaticAddress records the address that MAAS chose for a machine that becomes a VM host: MAAS then makes it a
// static one, which would otherwise stay on the machine for ever.
func recordAutomaticAddress(l *Life) {
	if !IsHost(l) || l.MaasMachine.Annotations[infrav1.StaticIPAnnotation] != "" {
		return
	}
	for _, nic := range l.MAAS.Interfaces {
		for _, link := range nic.Links {
			if link.Mode == maas.LinkModeAuto && link.IPAddress != "" {
				record.SetAnnotation(l.MaasMachine, infrav1.StaticIPAnnotation, link.IPAddress)
				return
			}
		}
	}
}

// Connect connects the machine's interfaces. also changes what is recorded with the call.
func (s *Steps) Connect(ctx context.Context, l *Life, nics []machine.NIC, also ...func(client.Object)) error {
	return ofField(l, s.Change(ctx, l, record.Link, func(ctx context.Context, permit maas.Permit) (err error) {
		l.MAAS, err = l.Machines.Connect(ctx, permit, l.MAAS, nics)
		return err
	}, also...))
}
