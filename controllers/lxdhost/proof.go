// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/ownership"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

// claimed is a VM host whose machine MaasMachines claim to be.
type claimed struct {
	where    string
	id       int
	systemID string
}

// proof is what MAAS said of such claims.
type proof struct {
	owner  types.UID // "": it is none of them.
	claims string
	at     time.Time
}

// ownerOf returns the MaasMachine that MAAS proves to be the machine that a VM host runs on; nil if there is none. What
// objects say is only a claim. MAAS is asked when the claims change; a claim that it has refused, now and then.
func (m *Mirror) ownerOf(ctx context.Context, there *existing, s *sighting, regions []*scope.Region) (*infrav1.MaasMachine, error) {
	key, claims := claimed{s.where, s.ID, s.Host.SystemID}, there.claimsOf(s)
	if len(claims) == 0 {
		delete(m.proofs, key)
		return nil, nil
	}
	known := m.proofs[key]
	if at := slices.IndexFunc(claims, func(c *infrav1.MaasMachine) bool { return c.UID == known.owner }); at >= 0 {
		return claims[at], nil
	}
	now := proof{claims: namesOf(claims), at: m.Clock.Now()}
	if known.claims == now.claims && now.at.Sub(known.at) < machinesMaxAge {
		return nil, nil
	}
	owner, err := m.prove(ctx, s, claims, regions)
	if err != nil {
		return nil, err
	}
	if owner != nil {
		now.owner = owner.UID
	}
	m.proofs[key] = now
	return owner, nil
}

func namesOf(claims []*infrav1.MaasMachine) string {
	var names []string
	for _, c := range claims {
		names = append(names, string(c.UID))
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// prove asks the MAAS that shows a VM host whose machine it runs on, with one identity after the other: some see less.
func (m *Mirror) prove(ctx context.Context, s *sighting, claims []*infrav1.MaasMachine, regions []*scope.Region) (*infrav1.MaasMachine, error) {
	var errs []error
	for _, region := range regions {
		owner, err := m.proveIn(ctx, region, s.Host.SystemID, claims)
		if err == nil {
			return owner, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// proveIn finds the claim that MAAS has noted on the machine, and has it proven by who acquired the machine.
func (m *Mirror) proveIn(ctx context.Context, region *scope.Region, systemID string, claims []*infrav1.MaasMachine) (*infrav1.MaasMachine, error) {
	machine, err := region.Inventory.Client().GetMachine(ctx, systemID)
	if errors.Is(err, maas.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading machine %s: %w", systemID, err)
	}
	for _, claim := range claims {
		id, err := m.identityOf(ctx, claim)
		if err != nil {
			return nil, err
		}
		noted := machine.WorkloadAnnotations
		if id.OwnerID == "" || noted[ownership.AnnotationOwner] != id.OwnerID || noted[ownership.AnnotationMachine] != id.Annotations[ownership.AnnotationMachine] {
			continue
		}
		if ours, err := region.Machines.IsOurs(ctx, id, machine); err != nil || ours {
			return claim, err
		}
	}
	return nil, nil
}

// identityOf returns what identifies the machine of a MaasMachine in MAAS. Nobody but the manager writes the owner id.
func (m *Mirror) identityOf(ctx context.Context, claim *infrav1.MaasMachine) (ownership.Identity, error) {
	list := &infrav1.MaasClusterList{}
	if err := m.Client.List(ctx, list, client.InNamespace(claim.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return ownership.Identity{}, fmt.Errorf("listing the MaasClusters of namespace %s: %w", claim.Namespace, err)
	}
	name := clusters.KeyOf(claim).Name
	at := slices.IndexFunc(list.Items, func(c infrav1.MaasCluster) bool { return clusters.NameOf(&c) == name })
	if at < 0 {
		return ownership.Identity{}, nil
	}
	s := &scope.Machine{Cluster: &scope.Cluster{Cluster: &clusterv1.Cluster{}, MaasCluster: &list.Items[at]}, MaasMachine: claim}
	return s.Identity(), nil
}
