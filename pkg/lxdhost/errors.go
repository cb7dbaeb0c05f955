// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"

	"github.com/canonical/lxd/shared/api"

	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdapi"
)

// maxMessage bounds a message of LXD, in bytes.
const maxMessage = 1024

// Kind is what an error means for the caller.
type Kind string

// Kinds of errors.
const (
	// KindUnreachable: there was no response, or LXD is not ready. A change may still take effect.
	KindUnreachable Kind = "Unreachable"
	// KindPin: the server has another certificate than the pinned one.
	KindPin Kind = "Pin"
	// KindNotTrusted: LXD does not trust the client's certificate, or not for this call (403).
	KindNotTrusted Kind = "NotTrusted"
	// KindProject: there is no such project, or the certificate is not for it.
	KindProject Kind = "Project"
	// KindNoVMs: LXD can't run virtual machines there.
	KindNoVMs Kind = "NoVMs"
	// KindCluster: the LXD is a member of an LXD cluster, whose members this package does not tell apart.
	KindCluster Kind = "Cluster"
	// KindInvalid: the caller's input, as found here, or by LXD when it creates a VM (400). Of a VM that is there,
	// LXD's 400 is KindOther: it says that LXD is busy with it, or that it runs.
	KindInvalid Kind = "Invalid"
	// KindConflict: what has the name does not carry the marks. It was not changed.
	KindConflict Kind = "Conflict"
	// KindVolume: a volume has the name of a further disk of a VM of ours, and does not carry the marks. It was not
	// changed; the VM may be there.
	KindVolume Kind = "Volume"
	// KindOutdated: the VM carries the marks, and was made as it is not wanted any more, or LXD did not finish it. It was
	// not changed.
	KindOutdated Kind = "Outdated"
	// KindNotFound: there is no VM of the name.
	KindNotFound Kind = "NotFound"
	// KindBridge: the host has no such bridge.
	KindBridge Kind = "Bridge"
	// KindPool: the host has no such storage pool.
	KindPool Kind = "Pool"
	// KindMACInUse: another instance of the project has the MAC address.
	KindMACInUse Kind = "MACInUse"
	// KindNoRoom: the host, a storage pool or the project's limits have no room for the VM.
	KindNoRoom Kind = "NoRoom"
	// KindTooLate: the time to send a change has passed: this process was paused, or took too long. It was not sent.
	KindTooLate Kind = "TooLate"
	// KindUnfinished: LXD has accepted the change, and did not finish it in time.
	KindUnfinished Kind = "Unfinished"
	// KindOther: LXD refused or failed; the message has its words.
	KindOther Kind = "Other"
)

// Error is an error of this package.
type Error struct {
	Kind Kind
	// Doing is what was being done, and where.
	Doing string
	// Problem is one line; it may quote LXD.
	Problem string
	// Sent reports whether a request that changes something was sent to LXD.
	Sent bool

	// unsent is the error of a request that was not sent, whatever it was to change.
	unsent bool
	cause  error
}

// Error returns both on one line.
func (e *Error) Error() string {
	if e.Doing == "" {
		return e.Problem
	}
	return e.Doing + ": " + e.Problem
}

// Unwrap returns the error of LXD (an api.StatusError) or of the network, if any.
func (e *Error) Unwrap() error { return e.cause }

// KindOf returns the kind of an error of this package, or "".
func KindOf(err error) Kind {
	if guard.Is[*Error](err) || guard.Is[*lxdapi.Error](err) {
		return classify(err).Kind
	}
	return ""
}

func problem(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Problem: fmt.Sprintf(format, args...)}
}

// fail adds what was being done to an error that does not say it yet.
func (h *Host) fail(doing string, err error) error {
	if err == nil {
		return nil
	}
	known := classify(err)
	if known.Doing != "" {
		return known
	}
	return &Error{Kind: known.Kind, Doing: doing + " on the LXD at " + h.address, Problem: known.Problem, Sent: known.Sent,
		cause: known.cause}
}

// sent marks the error of a request that changes something, unless it was not sent.
func sent(err error) error {
	if err == nil {
		return nil
	}
	known := classify(err)
	marked := *known
	marked.Sent = !known.unsent
	return &marked
}

// isOther reports whether LXD shows that a VM is gone, or that another one has its name.
func isOther(err error) bool { return KindOf(err) == KindNotFound || KindOf(err) == KindConflict }

// MayFollow reports whether what LXD was asked for may still take effect.
func (e *Error) MayFollow() bool {
	return e.Sent && (e.Kind == KindUnreachable || e.Kind == KindUnfinished)
}

// mayFollow is MayFollow of any error.
func mayFollow(err error) bool { return err != nil && classify(err).MayFollow() }

// errPin is the end of a handshake with a server that has another certificate.
var errPin = errors.New("the server's certificate is not the pinned one")

// classify finds the kind of an error, of LXD's client for example.
func classify(err error) *Error {
	for each := err; each != nil; each = errors.Unwrap(each) {
		switch known := each.(type) { //nolint:errorlint // It walks the chain itself: each of both may wrap the other.
		case *Error:
			return known
		case *lxdapi.Error:
			return ofChange(known)
		}
	}
	switch known, is := errors.AsType[*Error](err); { // of a join
	case is:
		return known
	case errors.Is(err, errPin):
		return &Error{Kind: KindPin, Problem: errPin.Error(), cause: err}
	case errors.Is(err, guard.ErrTooLate):
		return &Error{Kind: KindTooLate, Problem: guard.ErrTooLate.Error(), unsent: true, cause: err}
	}
	said := text.Steady(err.Error(), maxMessage)
	if status, ok := api.StatusErrorMatch(err); ok {
		return &Error{Kind: kindOfStatus(status), Problem: fmt.Sprintf("LXD returned %d: %s", status, said), cause: err}
	}
	if broken(err) {
		return &Error{Kind: KindUnreachable, Problem: "no response from LXD: " + said, cause: err}
	}
	return &Error{Kind: KindOther, Problem: "no response of LXD's form: " + said, cause: err}
}

// ofChange finds the kind of a change that is not known to be done.
func ofChange(e *lxdapi.Error) *Error {
	said := text.Steady(e.Error(), maxMessage)
	switch {
	case e.Refused && e.Operation != "":
		return &Error{Kind: KindOther, Problem: "LXD failed: " + said, cause: e}
	case e.Refused:
		return &Error{Kind: kindOfStatus(e.Status), Problem: fmt.Sprintf("LXD returned %d: %s", e.Status, said), cause: e}
	case e.Unfinished:
		return &Error{Kind: KindUnfinished, Problem: said, cause: e}
	}
	if e.Operation != "" { // LXD has accepted it, whatever became of the request that waited.
		return &Error{Kind: KindUnreachable, Problem: classify(e.Unwrap()).Problem, cause: e}
	}
	return uncertain(e.Unwrap())
}

// uncertain is the error of a request that LXD may have done, or may do later, whatever its response was: Unreachable,
// unless it was not sent.
func uncertain(err error) *Error {
	known := classify(err)
	if known.Kind == KindPin || known.unsent {
		return known
	}
	return &Error{Kind: KindUnreachable, Problem: known.Problem, cause: err}
}

// unsent is the error of what was asked before a change was to be sent.
func unsent(err error) error {
	known := *classify(err)
	known.unsent = true
	return &known
}

func kindOfStatus(status int) Kind {
	switch status {
	case http.StatusForbidden, http.StatusUnauthorized:
		return KindNotTrusted
	case http.StatusNotFound:
		return KindNotFound
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return KindUnreachable
	}
	return KindOther
}

// broken reports whether a connection failed.
func broken(err error) bool {
	return guard.Is[*url.Error](err) || guard.Is[net.Error](err) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, io.EOF) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

func isNotFound(err error) bool { return api.StatusErrorCheck(err, http.StatusNotFound) }
