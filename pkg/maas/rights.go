// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/internal/permit"
)

// Entitlement is what MAAS 3.8 and newer let the users of a group do: in all of MAAS, or to the machines of one
// resource pool. MAAS tells nobody his own entitlements but who may see all groups, so each is found out by a call that
// changes nothing, and that MAAS refuses without it.
type Entitlement string

// The entitlements that the provider needs. Those of machines can be given for one resource pool.
const (
	CanEditMachines          Entitlement = "can_edit_machines"
	CanDeployMachines        Entitlement = "can_deploy_machines"
	CanViewAvailableMachines Entitlement = "can_view_available_machines"
	CanEditGlobalEntities    Entitlement = "can_edit_global_entities"
	CanViewGlobalEntities    Entitlement = "can_view_global_entities"
	CanEditBootEntities      Entitlement = "can_edit_boot_entities"
	CanViewControllers       Entitlement = "can_view_controllers"
)

// probePermit is for calls that MAAS always refuses: with 403, or as invalid.
var probePermit = permit.AnyTime()

// Entitled reports whether the key's user has an entitlement for all of MAAS.
func (c *Client) Entitled(ctx context.Context, e Entitlement) (bool, error) {
	switch e {
	case CanEditMachines:
		return permitted(c.do(ctx, on("machines/").query("power_parameters", url.Values{"id": {"none"}}).asList(), nil))
	case CanEditGlobalEntities:
		return permitted(c.do(ctx, on("commissioning-scripts/").get(), nil))
	case CanViewGlobalEntities:
		domains, err := c.ListDomains(ctx)
		if err != nil || len(domains) == 0 {
			return false, err
		}
		return permitted(c.do(ctx, on("domains/{id}/", domains[0].ID).get(), nil))
	case CanViewControllers: // There is at least one.
		n, err := c.CountRegionControllers(ctx)
		return n > 0, err
	case CanEditBootEntities: // An image without a name.
		return permitted(c.do(ctx, on("boot-resources/").post(probePermit, "", url.Values{}), nil))
	}
	return false, fmt.Errorf("MAAS can't be asked whether it gives %s for all of MAAS", e)
}

// EntitledIn reports whether the key's user has an entitlement for the machines of a resource pool, also by one for all
// of MAAS. NotFound: there is no such pool.
func (c *Client) EntitledIn(ctx context.Context, e Entitlement, poolID int) (bool, error) {
	pool := on("resourcepool/{id}/", poolID)
	switch e {
	case CanEditMachines: // Who may edit its machines may edit the pool, but not give it such a name.
		pool = pool.put(probePermit, url.Values{"name": {impossibleName}})
	case CanViewAvailableMachines:
		pool = pool.get()
	default:
		return false, fmt.Errorf("MAAS can't be asked whether it gives %s for a resource pool", e)
	}
	return permitted(c.do(ctx, pool, nil))
}

// impossibleName is one that nothing in MAAS can have: it is too long, and of characters that no name has.
var impossibleName = strings.Repeat("!", 257)

// permitted turns the answer to a probe into whether the user may.
func permitted(err error) (bool, error) {
	switch {
	case errors.Is(err, Forbidden):
		return false, nil
	case errors.Is(err, Invalid):
		return true, nil
	}
	return err == nil, err
}
