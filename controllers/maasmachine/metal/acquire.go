// SPDX-License-Identifier: Apache-2.0

// Package metal has the steps of bare metal: how it is taken from MAAS's pool and prepared, and how it goes back as it
// was.
package metal

import (
	"context"
	"errors"

	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/life"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
)

// Steps are the steps of one machine during one reconcile.
type Steps struct {
	*life.Steps
	// bid is what the pool was asked for.
	bid bid
	// leftover is what another object of ours has left on the machine.
	leftover machine.Leftover
}

// New returns the steps of one reconcile.
func New(common *life.Steps) *Steps { return &Steps{Steps: common} }

// bid is the attempt of one reconcile to get bare metal from the pool: the steps from the earlier choice to acceptance.
type bid struct {
	// wanted is what the machine has to be.
	wanted maas.AllocateParams
	// setAside is the machine that an earlier try began to set aside; nil if there is none.
	setAside *maas.Machine
	// given is the machine that MAAS gave this or an earlier try; nil if there is none, or it is accepted.
	given *maas.Machine
	// adopted means that an earlier try was given it.
	adopted bool
	// extra are the system ids of machines that MAAS gave as well, or that can't become this one.
	extra []string
	// refusal is why MAAS gave none; nil if it was not asked, or gave one.
	refusal error
}

// Allocation acquires a machine from the pool.
func (s *Steps) Allocation(ctx context.Context, l *life.Life) (life.Outcome, error) {
	if l.MAAS != nil {
		return life.Proceed, nil
	}
	err := s.Ask(ctx, l, record.Allocate, func(ctx context.Context, permit maas.Permit) (err error) {
		s.bid.given, err = l.Machines.Allocate(ctx, permit, l.Identity(), s.bid.wanted)
		return err
	}, l.RecordOwner)
	if errors.Is(err, maas.Conflict) {
		s.bid.refusal, err = err, nil
	}
	return life.Proceed, err
}

// Refused reports that MAAS gave no machine. What this try did to one is undone.
func (s *Steps) Refused(ctx context.Context, l *life.Life) (life.Outcome, error) {
	if s.bid.refusal == nil {
		return life.Proceed, nil
	}
	if out, err := s.Restoration(ctx, l); err != nil || out.Waits() {
		return out, err
	}
	return s.noMachine(ctx, l, s.bid.refusal), nil
}
