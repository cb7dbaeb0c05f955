// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"errors"
	"fmt"
	"slices"

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
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

// NotAllowedError means that a host does not take the VM that was to be made there: it was changed meanwhile.
// Nothing was asked for.
type NotAllowedError struct{ Problem string }

// Error returns the problem and the remedy.
func (e *NotAllowedError) Error() string { return e.Problem }

// TakenError means that another user of MAAS has acquired a VM that was to be deleted. Nothing was changed.
type TakenError struct{ Machine *maas.Machine }

// Error names the machine, and who has it.
func (e *TakenError) Error() string {
	return fmt.Sprintf("machine %s is not deleted: MAAS user %q has acquired it meanwhile", e.Machine, e.Machine.Owner)
}

// IsRefusal reports whether an error is why no VM can be made, however often it is tried.
func IsRefusal(err error) bool {
	return guard.Is[*LXDError](err) || errors.Is(err, maas.Gone)
}

// NotComposed reports whether a failed compose certainly left no VM on the host. MAAS lets a VM host create the VM
// before it finishes its own part: if it refuses or rolls back after that, the VM stays on the host (models/bmc.py:
// create_machine). LXD may have made a part of the VM.
func NotComposed(err error) bool {
	direct, is := errors.AsType[*DirectError](err)
	switch {
	case guard.Is[*NotRegisteredError](err):
		return true
	case is:
		return !direct.sent()
	case guard.Is[*guard.LaterError](err), guard.Is[*NotAllowedError](err), maas.NotSent(err),
		maas.InvalidField(err, "hostname"):
		return true
	}
	return slices.ContainsFunc([]maas.Kind{maas.Unauthorized, maas.Forbidden, maas.NotFound, maas.Gone},
		func(kind maas.Kind) bool { return errors.Is(err, kind) })
}

// CantAsk reports whether a host can't be asked for a VM: it does not respond, or not with what is known of it, or its
// LXDHost is gone.
func CantAsk(err error) bool {
	return guard.Is[*GoneLXDHostError](err) || lost(err)
}
