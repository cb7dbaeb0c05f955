// SPDX-License-Identifier: Apache-2.0

// Package permit holds the permits for calls that change MAAS. It is internal, so that only package record makes
// permits for recorded calls.
package permit

import (
	"context"
	"time"
)

// Permit allows calls that change MAAS. The zero value allows none.
type Permit struct {
	given  bool
	before time.Time // the zero time: no limit
	again  func(context.Context) (Permit, error)
}

// Before returns a permit for calls that are sent before a time, and what Again calls.
func Before(at time.Time, again func(context.Context) (Permit, error)) Permit {
	return Permit{given: true, before: at, again: again}
}

// AnyTime returns a permit for calls that may take effect late, or twice.
func AnyTime() Permit { return Permit{given: true} }

// IsGiven reports whether p allows any call.
func (p Permit) IsGiven() bool { return p.given }

// SendBefore returns the time after which no call is sent, and whether there is one.
func (p Permit) SendBefore() (at time.Time, limited bool) { return p.before, !p.before.IsZero() }

// Again returns another permit for the same call, of which more is to be sent, and the time for that may have passed.
func (p Permit) Again(ctx context.Context) (Permit, error) {
	if p.again == nil {
		return p, nil
	}
	return p.again(ctx)
}

// VM allows a call that starts, stops or deletes a VM on its host, where others may have its name and marks later. The
// zero value allows none.
type VM struct{ permit Permit }

// ForVM makes the permit for a call that starts, stops or deletes a VM.
func ForVM(p Permit) VM { return VM{p} }

// SendBefore returns the time after which the VM is not looked at any more, to be changed; the zero time is no limit.
func (v VM) SendBefore() time.Time { return v.permit.before }

// IsGiven reports whether v allows any call.
func (v VM) IsGiven() bool { return v.permit.given }

// Machine returns the permit for the VM's machine in MAAS: its system id is never given again.
func (v VM) Machine() Permit { return Permit{given: v.permit.given} }

// Release allows a call that lets a machine, or an address, go: afterwards any user of MAAS may have it. The zero value
// allows none.
type Release struct{ permit Permit }

// ForRelease makes the permit for a call that lets a machine, or an address, go.
func ForRelease(p Permit) Release { return Release{p} }

// Permit returns the permit for the same call, and for others that belong to it.
func (r Release) Permit() Permit { return r.permit }
