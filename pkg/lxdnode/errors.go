// SPDX-License-Identifier: Apache-2.0

package lxdnode

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/canonical/lxd/shared/api"

	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdapi"
)

// maxMessage bounds a message of LXD, in bytes.
const maxMessage = 1024

// Error is a step that failed, described for the people who run the node.
type Error struct {
	// Step is one of the Step constants.
	Step string
	// Problem is the observed problem.
	Problem string
	// Remedy is what a person can do; empty if waiting is the remedy.
	Remedy string
	// Permanent means that retrying is useless until a person has changed something.
	Permanent bool

	cause error
}

// Error returns step, problem and remedy on one line.
func (e *Error) Error() string {
	text := e.Step + ": " + e.Problem
	if e.Remedy != "" {
		text += " (" + e.Remedy + ")"
	}
	return text
}

// Unwrap returns LXD's or the network's error, if any.
func (e *Error) Unwrap() error { return e.cause }

// Permanent reports whether an operator has to change something before err can go away: it holds a permanent *Error or
// a *SettingError, alone or among others.
func Permanent(err error) bool {
	switch e := err.(type) { //nolint:errorlint // It walks the tree itself: errors.As would stop at the first one.
	case nil:
		return false
	case *Error:
		return e.Permanent
	case *SettingError:
		return true
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), Permanent)
	}
	return Permanent(errors.Unwrap(err))
}

// wrong is the error of a step that a person has to set right; the step's name is added to it.
func wrong(remedy, format string, args ...any) *Error {
	return &Error{Problem: fmt.Sprintf(format, args...), Remedy: remedy, Permanent: true}
}

// asError turns an error of LXD or of the connection into that of a step. An *Error stays as it is.
func asError(step, doing string, err error) *Error {
	if known, is := errors.AsType[*Error](err); is {
		return known
	}
	change, isChange := errors.AsType[*lxdapi.Error](err)
	switch {
	case isChange && change.Refused && change.Operation != "":
		return &Error{Step: step, Problem: doing + ": LXD failed: " + text.Steady(err.Error(), maxMessage), cause: err}
	case isChange && change.Unfinished:
		return &Error{Step: step, Problem: doing + ": " + text.Steady(err.Error(), maxMessage), cause: err,
			Remedy: "wait; LXD's log shows what it waits for"}
	case guard.Is[api.StatusError](err):
		return &Error{Step: step, Problem: doing + ": LXD returned: " + text.Steady(err.Error(), maxMessage), cause: err}
	case errors.Is(err, errConflict):
		return &Error{Step: step, Problem: doing + ": " + errConflict.Error(), cause: err}
	case errors.Is(err, context.DeadlineExceeded):
		return &Error{Step: step, Problem: doing + ": LXD took too long", cause: err,
			Remedy: "the request may still be under way; LXD's log shows what it waits for"}
	}
	return &Error{Step: step, Problem: doing + ": no response from LXD: " + text.Steady(err.Error(), maxMessage),
		cause: err}
}

// unanswered reports whether LXD did not respond at all, so that further calls are useless for now.
func unanswered(err error) bool {
	var e *Error
	if !errors.As(err, &e) || e.cause == nil || errors.Is(e.cause, errConflict) {
		return false
	}
	change, isChange := errors.AsType[*lxdapi.Error](e.cause)
	return !api.StatusErrorCheck(e.cause) && (!isChange || !change.Refused && !change.Unfinished)
}

func notFound(err error) bool { return api.StatusErrorCheck(err, http.StatusNotFound) }
