// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdnode"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/rights"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/vmhosts"
)

// Reasons of the Node's condition that only the initializer sets.
const (
	reasonPreparing        = "Preparing"
	reasonRegistered       = "Registered"
	reasonPrepared         = "Prepared"
	reasonResourcesUnknown = "ResourcesUnknown"
	reasonAddressUnknown   = "AddressUnknown"
	reasonZoneUnknown      = "ZoneUnknown"
	reasonLXDNotInstalled  = "LXDNotInstalled"
	reasonLXDNotReady      = "LXDNotReady"
	reasonHostUnreachable  = "HostUnreachable"
	reasonAmbiguous        = "Ambiguous"
	reasonVMHostNameTaken  = "VMHostNameTaken"
	reasonMACNotUnique     = "MACNotUnique"
	reasonWrongMachine     = "WrongMachine"
	reasonFailed           = "Failed"
)

// problem is why a pass did not succeed, in the form that users see.
type problem struct {
	reason string
	// status of the condition: False, or Unknown if MAAS could not be asked.
	status  corev1.ConditionStatus
	message string // one line: the problem and, where it helps, the remedy
	// permanent: retrying soon is useless, because a person has to change something.
	permanent bool
	// retryAfter is MAAS's Retry-After.
	retryAfter time.Duration
	cause      error
}

func (p *problem) Error() string { return p.reason + ": " + p.message }
func (p *problem) Unwrap() error { return p.cause }

// problemOf makes a problem of any error of a step.
func problemOf(err error) *problem {
	var (
		known      *problem
		node       *lxdnode.Error
		mac        *lxdnode.MACError
		credential *credentialError
		api        *maas.Error
		ambiguous  *vmhosts.AmbiguousError
		taken      *vmhosts.TakenError
	)
	p := &problem{status: corev1.ConditionFalse, reason: reasonFailed, message: text.Lines(err), cause: err}
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &mac):
		p.reason, p.permanent = reasonMACNotUnique, true
	case errors.Is(err, lxdnode.ErrNotInstalled):
		p.reason = reasonLXDNotInstalled
	case errors.As(err, &node):
		p.reason, p.permanent = reasonLXDNotReady, lxdnode.Permanent(err)
	case errors.As(err, &credential):
		p.reason, p.status, p.permanent = infrav1.CredentialsInvalidReason, corev1.ConditionUnknown, true
	case errors.As(err, &ambiguous):
		p.reason, p.message, p.permanent = reasonAmbiguous, ambiguous.Error(), true
	case errors.As(err, &taken):
		p.reason, p.message, p.permanent = reasonVMHostNameTaken, taken.Error(), true
	case errors.As(err, &api):
		p.ofMAAS(api)
	case apierrors.IsForbidden(err):
		p.permanent = true
	}
	return p
}

// ofMAAS sets the meaning of an error of MAAS. MAAS's message for a wrong key is not repeated: it may hold parts of the
// right one.
func (p *problem) ofMAAS(err *maas.Error) {
	p.retryAfter = err.RetryAfter
	switch err.Kind {
	case maas.Unauthorized:
		p.reason, p.status, p.permanent = infrav1.CredentialsInvalidReason, corev1.ConditionUnknown, true
		p.message = explained(err)
	case maas.Forbidden:
		p.reason, p.status, p.permanent = infrav1.CredentialsInvalidReason, corev1.ConditionUnknown, true
		p.message = "VM hosts are registered only by " + rights.Registration.Users("") + ": give the API key of one"
	case maas.Invalid:
		p.reason, p.permanent = infrav1.MAASRefusedReason, true
		p.message = "MAAS refuses the registration: " + err.Message
		for field, what := range map[string]string{"zone": "zone", "pool": "resource pool"} {
			if maas.InvalidField(err, field) {
				p.message = fmt.Sprintf("MAAS has no such %s: make it, or choose another", what)
			}
		}
	case maas.Untrusted:
		p.reason, p.status = infrav1.CertificateInvalidReason, corev1.ConditionUnknown
		p.message = explained(err)
	case maas.Unavailable, maas.Busy:
		p.reason, p.status = infrav1.MAASUnavailableReason, corev1.ConditionUnknown
		p.message = "MAAS can't be asked: " + err.Message
		if err.Op == "refresh" && err.Status == http.StatusServiceUnavailable {
			p.reason, p.status = reasonHostUnreachable, corev1.ConditionFalse
			p.message = "MAAS can't use LXD on this node: " + err.Message
		}
	}
}

// explained says what an error of MAAS means, and what helps.
func explained(err *maas.Error) string {
	found, remedy := maas.Explain(err)
	return found + ": " + remedy
}
