// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"fmt"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

const (
	// userMaxAge is how long an administrator is taken for one.
	userMaxAge = 10 * time.Minute
	// userRetry is how often MAAS is asked about a user who is none.
	userRetry = 20 * time.Second
)

// RightsError means that MAAS lets only administrators do what is needed, and that the API key's user is none.
type RightsError struct {
	// Need is a field, or a thing.
	Need string
	// User is the key's user in MAAS.
	User string
}

// Error names what needs an administrator, the user, and the remedy.
func (e *RightsError) Error() string {
	return fmt.Sprintf("%s needs an API key of a MAAS administrator, and this one's user, %s, is none: "+
		"use an administrator's key, or make %s one", e.Need, e.User, e.User)
}

// NeedAdministrator returns a *RightsError if the API key's user is no administrator of MAAS (GET users/ op=whoami).
func (i *Inventory) NeedAdministrator(ctx context.Context, need string) error {
	var user maas.User
	for _, age := range []time.Duration{userMaxAge, userRetry} {
		var err error
		user, _, err = i.user.get(ctx, age, i.client.WhoAmI)
		if err != nil {
			return fmt.Errorf("asking MAAS for the user of the API key: %w", err)
		}
		if user.Administrator {
			return nil
		}
	}
	return &RightsError{Need: need, User: user.Username}
}
