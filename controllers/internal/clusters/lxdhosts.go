// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// LXDKeysName returns the name of the Secret with the key pair that the LXD of a host cluster's machine trusts.
func LXDKeysName(m *infrav1.MaasMachine) string { return m.Name + "-lxd" }

// LXDHost returns the LXDHost that was made for the machine of a host cluster; nil if there is none. Another's LXDHost of
// that name is none.
func LXDHost(ctx context.Context, c client.Reader, m *infrav1.MaasMachine) (*infrav1.LXDHost, error) {
	host := &infrav1.LXDHost{}
	err := c.Get(ctx, client.ObjectKeyFromObject(m), host)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading LXDHost %s: %w", m.Name, err)
	}
	if !metav1.IsControlledBy(host, m) {
		return nil, nil
	}
	return host, nil
}
