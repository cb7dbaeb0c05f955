// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"time"

	"github.com/capmaas/cluster-api-provider-maas/controllers/evacuation"
	"github.com/capmaas/cluster-api-provider-maas/controllers/keep"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachinetemplate"
	"github.com/capmaas/cluster-api-provider-maas/controllers/quarantine"
	"github.com/capmaas/cluster-api-provider-maas/controllers/remediation"
)

// hurry makes the parts look often.
func (p *parts) hurry() {
	for _, r := range p.runnables {
		if keeper, is := r.(*quarantine.Keeper); is {
			keeper.Interval, keeper.Quarantined = readOften, quarantine.NewMetric()
		}
	}
	for _, r := range p.reconcilers {
		switch r := r.(type) {
		case *maasmachinetemplate.Reconciler:
			r.Delay = 20 * time.Millisecond
		case *keep.Reconciler:
			r.Interval = readOften
		case *evacuation.Reconciler:
			r.Interval = readOften
		case *remediation.Reconciler:
			r.Interval = readOften
		}
	}
}
