// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"fmt"
)

// ErrorType classifies the errors of LXD VMs.
type ErrorType string

const (
	// HostUnavailable means that there are no VM hosts, or the wanted one can't be used.
	HostUnavailable ErrorType = "HostUnavailable"
	// InsufficientResources means that no VM host has room.
	InsufficientResources ErrorType = "InsufficientResources"
	// ProfileNotFound means that the LXD profile can't be used.
	ProfileNotFound ErrorType = "ProfileNotFound"
	// ProjectNotFound means that no VM host uses the LXD project.
	ProjectNotFound ErrorType = "ProjectNotFound"
	// VMCreationFailed means that the host could not compose the VM.
	VMCreationFailed ErrorType = "VMCreationFailed"
)

// LXDError is why a VM can't be created. It wraps MAAS's error, if any.
type LXDError struct { //nolint:revive // The name that users of the provider's packages know.
	Type    ErrorType
	Message string
	Host    string // the VM host, if one was involved
	cause   error
}

// Error returns the problem, on one line.
func (e *LXDError) Error() string {
	if e.Host == "" {
		return e.Message
	}
	return fmt.Sprintf("VM host %s: %s", e.Host, e.Message)
}

// Unwrap returns MAAS's error.
func (e *LXDError) Unwrap() error { return e.cause }
