// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
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

// OtherLXDError means that an LXDHost leads to another LXD, or another project, than the one with its VMs: that one
// can't be asked for them, and the other one proves nothing.
type OtherLXDError struct {
	// Home is where the VMs are, There where the LXDHost leads, each in the form of lxdhost.Options.Place.
	Home, There string
}

// Error names the field, what there is, and the remedies.
func (e *OtherLXDError) Error() string {
	home, project, _ := strings.Cut(e.Home, "/")
	there, now, _ := strings.Cut(e.There, "/")
	if home == there {
		return fmt.Sprintf("spec.project is %s, and the VMs of this LXDHost are in project %s: put that back; an LXDHost of "+
			"its own may lead to project %[1]s", now, project)
	}
	return fmt.Sprintf("spec.serverCertificate is that of another LXD (%.12s, project %s) than the one with the VMs of "+
		"this LXDHost (%.12s, project %s): put it back, and spec.address. A new certificate of the same LXD counts when "+
		"LXD shows all of these VMs with it; if some are gone for good, remove the annotation capmaas.io/lxd",
		there, now, home, project)
}

// MissingVMHostError means that MAAS does not have a VM host any more, under its id or its name. A person has deleted
// it, or MAAS was restored: it says nothing about the VMs on it, which may run.
type MissingVMHostError struct{ VMHost string }

// Error names the VM host.
func (e *MissingVMHostError) Error() string {
	return "MAAS does not have VM host " + e.VMHost + " any more"
}

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

// Unfit reports whether an error of ComposeVM, or of Service.Again, means that the VM which an earlier try made on the
// host can't become the one that is wanted: the host responded.
func Unfit(err error) bool {
	if guard.Is[*NotAllowedError](err) || guard.Is[*NoImageError](err) {
		return true
	}
	switch lxdhost.KindOf(err) {
	case lxdhost.KindUnfinished, lxdhost.KindTooLate:
		return false
	}
	return guard.Is[*DirectError](err) && !lost(err)
}

// CantAsk reports whether a host can't be asked for a VM: it does not respond, or not with what is known of it, or its
// LXDHost is gone.
func CantAsk(err error) bool {
	return guard.Is[*GoneLXDHostError](err) || lost(err)
}
