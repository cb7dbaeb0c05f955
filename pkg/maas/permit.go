// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"errors"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/internal/permit"
)

// Permit allows calls that change MAAS. Package record makes it for a call that it has recorded, or whose late effect is harmless.
//
// A permit may have a deadline after which no call is sent any more: a process that was stopped after it recorded a call, and woke up when
// another one had taken over and waited long enough, must not send it. Such an error is of Kind Unavailable and not NotSent, so that the record
// stays: it may be the other's by then.
type Permit = permit.Permit

// Unrecorded returns a permit for calls that no object records: those of tools that a person runs, of the initializer on a node, and of tests.
// why says, to who reads the code, why a lost response does no harm there. The
// reconcilers don't use it: TestTheManagerHasNoWayAroundTheRecord.
func Unrecorded(why string) Permit {
	_ = why
	return permit.AnyTime()
}

// errNoPermit is for a call with the zero Permit.
var errNoPermit = errors.New("the call would change MAAS and has no permit; it was not sent")

// lookPermit is for calls that are sent with POST and have MAAS look at something.
var lookPermit = permit.AnyTime()
