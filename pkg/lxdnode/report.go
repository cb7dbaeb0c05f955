// SPDX-License-Identifier: Apache-2.0

package lxdnode

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

// Report is the result of a run, in the order of the steps. A step that was not reached has no check.
type Report struct {
	Checks []Check
}

// Changed reports whether the run changed anything.
func (r Report) Changed() bool { return r.has(Changed) }

// Ready reports whether everything is as wanted.
func (r Report) Ready() bool {
	return len(r.Checks) > 0 && !r.has(Failed) && !r.has(Missing)
}

func (r Report) has(state State) bool {
	for _, check := range r.Checks {
		if check.State == state {
			return true
		}
	}
	return false
}

// stands reports whether the named step ran and did not fail.
func (r Report) stands(name string) bool {
	for _, check := range r.Checks {
		if check.Name == name {
			return check.State != Failed
		}
	}
	return false
}
