// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
)

// expiresSoon is how long before its end a client certificate is reported. The initializer renews its own then.
const expiresSoon = 30 * 24 * time.Hour

// markKeys sets KeysCurrent, once LXD has accepted a client certificate. A former VM host may have lost its key pair by
// a person's edit.
func markKeys(host *infrav1.LXDHost) {
	if host.Spec.CredentialsRef == nil {
		host.Status.ClientCertificate = nil
		conditions.Delete(host, infrav1.KeysCurrentCondition)
	}
	certificate := host.Status.ClientCertificate
	if certificate == nil {
		return
	}
	if time.Until(certificate.Expires.Time) < expiresSoon {
		report.SetFalse(host, infrav1.KeysCurrentCondition, infrav1.CertificateExpiresReason,
			"the certificate in Secret %s ends on %s: make a new pair, let LXD trust it, then put it into the Secret",
			host.Spec.CredentialsRef.Name, certificate.Expires.UTC().Format(time.DateOnly))
		return
	}
	report.SetTrue(host, infrav1.KeysCurrentCondition, infrav1.ReadyReason)
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
		// Otherwise it is gone, and the LXDHost goes with it.
		if err == nil && clusters.IsOwner(owner, clusters.MaasMachineKind, m) {
			host.Status.NodeName, err = clusters.NodeOf(ctx, r.Client, m)
			return err
		}
	}
	return nil
}
