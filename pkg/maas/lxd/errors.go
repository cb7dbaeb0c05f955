// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"fmt"
)

// ErrorType tells the errors of LXD VMs apart.
type ErrorType string

const (
	// HostUnavailable says: there are no VM hosts, or the one that was asked for can't be used.
	HostUnavailable ErrorType = "HostUnavailable"
	// InsufficientResources says: no VM host has room.
	InsufficientResources ErrorType = "InsufficientResources"
	// ProfileNotFound says: the LXD profile can't be used.
	ProfileNotFound ErrorType = "ProfileNotFound"
	// ProjectNotFound says: no VM host uses the LXD project.
	ProjectNotFound ErrorType = "ProjectNotFound"
	// VMCreationFailed says: the host could not compose the VM.
	VMCreationFailed ErrorType = "VMCreationFailed"
)

// LXDError is why a VM can't be had. It wraps the error of MAAS, where there was one.
type LXDError struct { //nolint:revive // The name that users of the provider's packages know.
	Type    ErrorType
	Message string
	Host    string // the VM host, where one was involved
	cause   error
}

// Error says what happened, on one line.
func (e *LXDError) Error() string {
	if e.Host == "" {
		return e.Message
	}
	return fmt.Sprintf("VM host %s: %s", e.Host, e.Message)
}

// Unwrap gives MAAS's error.
func (e *LXDError) Unwrap() error { return e.cause }
