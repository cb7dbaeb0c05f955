// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
)

// maasMachineKind is the kind of the owner of a host that is a machine of a host cluster.
const maasMachineKind = "MaasMachine"

// expiresSoon is how long before its end a client certificate is reported. The initializer renews its own then.
const expiresSoon = 30 * 24 * time.Hour

// handover is how long after a certificate was replaced a call may end that began with the earlier one: a reconcile
// lasts 15 minutes at most, and a lost call has an effect within the settle time.
const handover = 30 * time.Minute

// showCertificate shows the client certificate that LXD accepted.
func showCertificate(status *infrav1.LXDHostStatus, options lxdhost.Options) {
	fingerprint, expires := options.Client()
	now := &infrav1.LXDClientCertificate{Fingerprint: fingerprint, Expires: metav1.NewTime(expires)}
	if before := status.ClientCertificate; before != nil {
		now.ReplacedAt = before.ReplacedAt
		if before.Fingerprint != fingerprint {
			now.ReplacedAt = ptr.To(metav1.Now())
		}
	}
	status.ClientCertificate = now
}

// isBehind reports whether MAAS may switch a VM with another certificate. One that is being made gets the present one,
// unless that was replaced meanwhile.
func isBehind(m *infrav1.MaasMachine, certificate *infrav1.LXDClientCertificate) bool {
	if m.Status.LXDCertificate != "" || m.Spec.SystemID != "" {
		return m.Status.LXDCertificate != certificate.Fingerprint
	}
	return certificate.ReplacedAt != nil && time.Since(certificate.ReplacedAt.Time) < handover
}

// markKeys sets KeysCurrent, once LXD has accepted a client certificate.
func (r *Reconciler) markKeys(ctx context.Context, host *infrav1.LXDHost) error {
	certificate := host.Status.ClientCertificate
	if certificate == nil {
		return nil
	}
	list := &infrav1.MaasMachineList{}
	if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing MaasMachines: %w", err)
	}
	var there *existing
	if host.Spec.VMHost != nil {
		var err error
		if there, err = readObjects(ctx, r.Client); err != nil {
			return err
		}
	}
	var behind []string
	for i := range list.Items {
		m := &list.Items[i]
		if m.Spec.IsLXD() && isBehind(m, certificate) && mayBeOn(m, host, there) {
			behind = append(behind, client.ObjectKeyFromObject(m).String())
		}
	}
	slices.Sort(behind)
	switch {
	case len(behind) > 0:
		report.SetFalse(host, infrav1.KeysCurrentCondition, infrav1.EarlierKeysInUseReason,
			"MAAS may switch %d VM(s) with an earlier key pair, which LXD must trust until then: %s", len(behind), text.List(behind, maxNamed))
	case time.Until(certificate.Expires.Time) < expiresSoon:
		report.SetFalse(host, infrav1.KeysCurrentCondition, infrav1.CertificateExpiresReason,
			"the certificate in Secret %s ends on %s: make a new pair, let LXD trust it, then put it into the Secret",
			host.Spec.CredentialsRef.Name, certificate.Expires.UTC().Format(time.DateOnly))
	default:
		report.SetTrue(host, infrav1.KeysCurrentCondition, infrav1.ReadyReason)
	}
	return nil
}

// announceKeys says in an event that a certificate ends soon, or that nobody uses an earlier one any more.
func announceKeys(recorder events.EventRecorder, before, host *infrav1.LXDHost) {
	was, is := conditions.Get(before, infrav1.KeysCurrentCondition), conditions.Get(host, infrav1.KeysCurrentCondition)
	switch {
	case is == nil || (was != nil && was.Reason == is.Reason):
	case is.Reason == infrav1.CertificateExpiresReason:
		recorder.Eventf(host, nil, corev1.EventTypeWarning, is.Reason, "Observe", "%s", is.Message)
	case is.Status == metav1.ConditionTrue && was != nil && was.Reason == infrav1.EarlierKeysInUseReason:
		recorder.Eventf(host, nil, corev1.EventTypeNormal, infrav1.KeysCurrentCondition, "Observe",
			"MAAS switches all VMs here with the key pair in Secret %s: LXD need not trust earlier ones any more", host.Spec.CredentialsRef.Name)
	}
}

// showNode puts the Node of the machine that owns a host into the status.
func (r *Reconciler) showNode(ctx context.Context, host *infrav1.LXDHost) error {
	owners := clusters.OwnersOf(host, clusters.MaasMachineKind)
	if len(owners) == 0 {
		host.Status.NodeName = ""
	}
	for _, owner := range owners {
		m := &infrav1.MaasMachine{}
		err := r.Client.Get(ctx, client.ObjectKey{Namespace: host.Namespace, Name: owner.Name}, m)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading MaasMachine %s of LXDHost %s: %w", owner.Name, host.Name, err)
		}
		if err == nil && clusters.IsOwner(owner, clusters.MaasMachineKind, m) { // Otherwise it is gone, and the LXDHost goes with it.
			host.Status.NodeName, err = clusters.NodeOf(ctx, r.Client, m)
			return err
		}
	}
	return nil
}
