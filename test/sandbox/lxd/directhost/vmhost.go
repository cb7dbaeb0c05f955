// SPDX-License-Identifier: Apache-2.0

package directhost

import (
	"context"
	"fmt"
	"net/url"
	"strconv"

	"github.com/juju/gomaasapi/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// VMHost is how MAAS shall know a Host.
type VMHost struct {
	Name, Zone, Pool string
	// OverCommit is how often cores and memory may be promised, at most 10: a test's computer is small. Default: 1.
	OverCommit int
}

// RegisterAsVMHost makes the LXD a VM host of a MAAS that has them, as an administrator would by hand.
func (h *Host) RegisterAsVMHost(endpoint, apiKey string, as VMHost) error {
	admin, err := gomaasapi.NewAuthenticatedClient(gomaasapi.AddAPIVersionToURL(endpoint, "2.0"), apiKey)
	if err != nil {
		return fmt.Errorf("registering %s as a VM host: %w", as.Name, err)
	}
	ratio := strconv.Itoa(max(as.OverCommit, 1))
	if _, err := admin.Post(&url.URL{Path: "vm-hosts/"}, "", url.Values{
		"type": {maas.VMHostTypeLXD}, "name": {as.Name}, "zone": {as.Zone}, "pool": {as.Pool},
		"power_address": {h.Address}, "project": {Project},
		"certificate": {string(h.Keys.Certificate)}, "key": {string(h.Keys.Key)},
		"cpu_over_commit_ratio": {ratio}, "memory_over_commit_ratio": {ratio},
	}, nil); err != nil {
		return fmt.Errorf("registering %s as a VM host: %w", as.Name, err)
	}
	return nil
}

// Prepare does what an operator does with the LXDHost of a VM host before or after MAAS is upgraded to a version
// without VM hosts: it says how the manager itself reaches the LXD.
func (h *Host) Prepare(ctx context.Context, kube client.Client, key client.ObjectKey) error {
	wanted, secret := h.Objects(key, "")
	if err := kube.Create(ctx, secret); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("preparing LXDHost %s: %w", key, err)
	}
	host := &infrav1.LXDHost{}
	if err := kube.Get(ctx, key, host); err != nil {
		return fmt.Errorf("preparing LXDHost %s: %w", key, err)
	}
	before := host.DeepCopy()
	spec := &host.Spec
	spec.Address, spec.ServerCertificate, spec.CredentialsRef = wanted.Spec.Address, wanted.Spec.ServerCertificate, wanted.Spec.CredentialsRef
	spec.Project, spec.NetworkBridge, spec.Subnet = wanted.Spec.Project, wanted.Spec.NetworkBridge, wanted.Spec.Subnet
	if err := kube.Patch(ctx, host, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("preparing LXDHost %s: %w", key, err)
	}
	return nil
}
