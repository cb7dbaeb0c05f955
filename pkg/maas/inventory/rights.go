// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/rights"
)

const (
	// rightsMaxAge is how long a right is believed in.
	rightsMaxAge = 10 * time.Minute
	// rightsRetry is how often MAAS is asked about a right that the user lacks.
	rightsRetry = 20 * time.Second
)

// grant is an entitlement for a resource pool, or for all of MAAS.
type grant struct {
	entitlement maas.Entitlement
	inPool      bool
	pool        int
}

// asker returns what asks MAAS about the API key.
func (i *Inventory) asker() rights.Direct { return rights.Direct{Client: i.client} }

// HasEntitlements reports whether MAAS has entitlements.
func (i *Inventory) HasEntitlements(ctx context.Context) (bool, error) {
	return i.entitlements.get(ctx, rightsMaxAge, i.asker().HasEntitlements)
}

// User returns the API key's user, who may be no administrator any more.
func (i *Inventory) User(ctx context.Context) (maas.User, error) {
	user, err := i.user.get(ctx, rightsMaxAge, i.asker().User)
	if err == nil && !user.Administrator {
		user, err = i.user.get(ctx, rightsRetry, i.asker().User)
	}
	return user, err
}

// Has reports whether the API key's user has an entitlement, for all of MAAS or for a resource pool.
func (i *Inventory) Has(ctx context.Context, e maas.Entitlement, pool *maas.Ref) (rights.Answer, error) {
	key := grant{entitlement: e}
	if pool != nil {
		key.inPool, key.pool = true, pool.ID
	}
	ask := func(ctx context.Context) (rights.Answer, error) { return i.asker().Has(ctx, e, pool) }
	has, err := i.granted.at(key).get(ctx, rightsMaxAge, ask)
	if err == nil && has != rights.Yes {
		has, err = i.granted.at(key).get(ctx, rightsRetry, ask)
	}
	return has, err
}
