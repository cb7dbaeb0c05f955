// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"errors"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/internal/permit"
)

// Permit allows calls that change MAAS. Package record makes it for a call that it has recorded, or whose late effect
// is harmless.
//
// A permit may have a deadline after which the call is no longer sent: a process that was stopped after it recorded a
// call, and resumes when another one leads and has waited for the settle time, must not send it. The error is then
// of Kind Unavailable and not NotSent, so that the record stays: it may belong to the other process by then.
type Permit = permit.Permit

// ReleasePermit allows a call that lets a machine, or an address, go. Package record makes it only when no other call
// that may change it is pending.
type ReleasePermit = permit.Release

// VMPermit allows a call that stops or deletes a VM on its host. A VM that is made later may have the same name and the
// same marks there, so package record makes it only for a call that it has recorded.
type VMPermit = permit.VM

// UnrecordedVM is Unrecorded for calls that stop or delete a VM.
func UnrecordedVM(why string) VMPermit { return permit.ForVM(Unrecorded(why)) }

// UnrecordedRelease is Unrecorded for calls that let a machine, or an address, go.
func UnrecordedRelease(why string) ReleasePermit { return permit.ForRelease(Unrecorded(why)) }

// Unrecorded returns a permit for calls that no object records: those of tools that a person runs, of the initializer
// on a node, and of tests. why documents in the code why a lost response does no harm there. The reconcilers don't use
// it: TestTheManagerHasNoWayAroundTheRecord.
func Unrecorded(why string) Permit {
	_ = why
	return permit.AnyTime()
}

// errNoPermit is for a call with the zero Permit.
var errNoPermit = errors.New("the call would change MAAS and has no permit; it was not sent")

// pickPermit is for a dry run, which changes nothing.
var pickPermit = permit.AnyTime()

// refreshPermit is for calls that are sent with POST but only make MAAS read something again.
var refreshPermit = permit.AnyTime()
