// SPDX-License-Identifier: Apache-2.0

package lxdnode

import "slices"

// Names of the steps, in their order; checks and errors carry them.
const (
	StepConnect    = "connection"
	StepServer     = "LXD server"
	StepPool       = "storage pool"
	StepBridge     = "network bridge"
	StepInterfaces = "interfaces"
	StepProject    = "project"
	StepProfile    = "profile"
	StepListen     = "https address"
	StepTrust      = "trust"
)

// State is the result of a check.
type State string

const (
	// OK means as wanted; nothing was changed.
	OK State = "ok"
	// Changed means as wanted, because this run made or changed it.
	Changed State = "changed"
	// Missing means that it does not exist, and that Prepare would make it. Only Inspect reports it.
	Missing State = "missing"
	// Failed means not as wanted; the error has the details.
	Failed State = "failed"
)

// Check is the result for one thing.
type Check struct {
	Name   string // one of the Step constants
	State  State
	Found  string
	Remedy string // what a person can do about it; with Failed, if anything
}

// stands reports whether the named step ran and did not fail.
func stands(checks []Check, name string) bool {
	return slices.ContainsFunc(checks, func(c Check) bool { return c.Name == name && c.State != Failed })
}
