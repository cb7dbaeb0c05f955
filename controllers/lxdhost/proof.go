// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
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

func claimedOf(s *sighting) claimed { return claimed{s.where, s.ID, s.Host.SystemID} }

// proof is what MAAS said of such claims.
type proof struct {
	owner  types.UID // "": it is none of them.
	claims string
	at     time.Time
	err    error // why MAAS did not say
}

// errUnproven means that MAAS has not been asked, or has not responded yet.
var errUnproven = errors.New("MAAS has not responded yet")

// ownerOf returns the MaasMachine that MAAS has proven to be the machine that a VM host runs on; nil if there is none.
// What objects say is only a claim.
func (m *Mirror) ownerOf(there *existing, s *sighting) (*infrav1.MaasMachine, error) {
	claims, known := there.claimsOf(s), m.proofs[claimedOf(s)]
	at := slices.IndexFunc(claims, func(c *infrav1.MaasMachine) bool { return c.UID == known.owner })
	switch {
	case at >= 0:
		return claims[at], nil
	case len(claims) == 0:
		return nil, nil
	case known.err != nil:
		return nil, known.err
	case known.claims != namesOf(claims):
		return nil, errUnproven
	}
	return nil, nil
}

// isProven reports whether MAAS need not be asked again: the claims have changed, or it refused them a while ago.
func (m *Mirror) isProven(there *existing, s *sighting) bool {
	owner, err := m.ownerOf(there, s)
	return owner != nil || (err == nil && m.Clock.Since(m.proofs[claimedOf(s)].at) < machinesMaxAge)
}

// proveOwners asks all MAASes at the same time whose the machines of their VM hosts are, where that is not known.
func (m *Mirror) proveOwners(ctx context.Context, there *existing, seen []*sighting, regions []*scope.Region) {
	unproven, now := map[string][]*sighting{}, m.Clock.Now() // by MAAS
	for _, s := range seen {
		switch {
		case len(there.claimsOf(s)) == 0:
			delete(m.proofs, claimedOf(s))
		case !m.isProven(there, s):
			unproven[s.where] = append(unproven[s.where], s)
		}
	}
	asked := list.Where(regions, func(r *scope.Region) bool { return len(unproven[r.Where()]) > 0 })
	answers := m.proving.Ask(ctx, asked, func(ctx context.Context, regions []*scope.Region) map[claimed]proof {
		proofs := map[claimed]proof{}
		for _, s := range unproven[regions[0].Where()] {
			proofs[claimedOf(s)] = m.prove(ctx, s, there.claimsOf(s), now, regions)
		}
		return proofs
	})
	for _, proofs := range answers {
		maps.Copy(m.proofs, proofs)
	}
}

func namesOf(claims []*infrav1.MaasMachine) string {
	names := list.Each(claims, func(c *infrav1.MaasMachine) string { return string(c.UID) })
	slices.Sort(names)
	return strings.Join(names, " ")
}

// prove asks the MAAS that shows a VM host whose machine it runs on, with one identity after the other: some see less.
func (m *Mirror) prove(
	ctx context.Context, s *sighting, claims []*infrav1.MaasMachine, now time.Time, regions []*scope.Region,
) proof {
	found := proof{claims: namesOf(claims), at: now}
	var errs []error
	for _, region := range regions {
		owner, err := m.proveIn(ctx, region, s.Host.SystemID, claims)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if owner != nil {
			found.owner = owner.UID
		}
		return found
	}
	found.err = errors.Join(errs...)
	return found
}

// proveIn finds the claim that MAAS has noted on the machine, and has it proven by who acquired the machine.
func (m *Mirror) proveIn(
	ctx context.Context, region *scope.Region, systemID string, claims []*infrav1.MaasMachine,
) (*infrav1.MaasMachine, error) {
	machine, err := region.Inventory.Read(ctx, systemID)
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
		noted, name := machine.WorkloadAnnotations, id.Annotations[ownership.AnnotationMachine]
		if id.OwnerID == "" || noted[ownership.AnnotationOwner] != id.OwnerID || noted[ownership.AnnotationMachine] != name {
			continue
		}
		if ours, err := region.Machines.IsOurs(ctx, id, machine); err != nil || ours {
			return claim, err
		}
	}
	return nil, nil
}

// identityOf returns what identifies the machine of a MaasMachine in MAAS. Only the manager writes the owner id.
func (m *Mirror) identityOf(ctx context.Context, claim *infrav1.MaasMachine) (ownership.Identity, error) {
	homes, err := clusters.ReadHomes(ctx, m.Client, client.InNamespace(claim.Namespace))
	of := homes.Of(claim)
	if err != nil || of == nil {
		return ownership.Identity{}, err
	}
	s := &scope.Machine{Cluster: &scope.Cluster{Cluster: &clusterv1.Cluster{}, MaasCluster: of},
		MaasMachine: claim}
	return s.Identity(), nil
}
