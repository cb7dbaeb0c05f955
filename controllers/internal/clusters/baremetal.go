// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"fmt"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/vmhosts"
)

// BareMetalMaxAge is the maximum age of the list of all machines. The list is long, and changes when an operator adds
// machines.
const BareMetalMaxAge = 10 * time.Minute

// BareMetal lists the machines in MAAS that are neither VMs nor VM hosts, including those in use. The machines of a
// host cluster are VM hosts: for the host cluster itself they are listed.
func BareMetal(ctx context.Context, s *scope.Cluster) ([]*maas.Machine, error) {
	return BareMetalWithin(ctx, s, BareMetalMaxAge)
}

// BareMetalWithin is BareMetal for who needs a list that is not older than this.
func BareMetalWithin(ctx context.Context, s *scope.Cluster, maxAge time.Duration) ([]*maas.Machine, error) {
	machines, err := s.Inventory.BareMetal(ctx, maxAge)
	if err != nil {
		return nil, fmt.Errorf("listing MAAS's machines: %w", err)
	}
	if s.MaasCluster.Spec.LXDControlPlaneCluster {
		return machines, nil
	}
	hosts, _, err := s.Inventory.AnyVMHosts(ctx, BareMetalMaxAge)
	if err != nil {
		return nil, fmt.Errorf("listing MAAS's VM hosts: %w", err)
	}
	return list.Where(machines, func(m *maas.Machine) bool { return len(vmhosts.OnMachine(hosts, m.SystemID)) == 0 }), nil
}
