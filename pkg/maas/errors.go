// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/internal/text"
)

// Kind classifies errors of MAAS. It is itself an error, for errors.Is(err, maas.NotFound).
type Kind string

// Error makes a Kind usable as the target of errors.Is.
func (k Kind) Error() string { return string(k) }

const (
	// NotFound (404): MAAS has no such object. For calls that take an address it also means that the address is in use.
	NotFound Kind = "NotFound"
	// Conflict (409): the object's state does not allow the call or, for allocate, no machine fits.
	Conflict Kind = "Conflict"
	// Unauthorized (401): the API key is wrong or revoked, or the clocks differ by more than five minutes.
	Unauthorized Kind = "Unauthorized"
	// Forbidden (403): the key's user may not do this, or the machine is locked or another user's.
	Forbidden Kind = "Forbidden"
	// Invalid (400): a parameter is wrong; Error.Fields names it where MAAS does.
	Invalid Kind = "Invalid"
	// Gone (410): this MAAS has no VM hosts (4.0 and newer).
	Gone Kind = "Gone"
	// Exhausted (503): a subnet has no address left that nothing uses. A deployment was taken back.
	Exhausted Kind = "Exhausted"
	// Unaddressed (404 or 503): MAAS can't give a machine that it has the address that is reserved for it, or can't find
	// out whether an address is in use. A deployment was taken back.
	Unaddressed Kind = "Unaddressed"
	// Unroutable (500 or 503): no rack controller of MAAS reaches the machine's BMC. Nothing was switched, and a
	// deployment was taken back.
	Unroutable Kind = "Unroutable"
	// Busy (409 with Retry-After or an HTML page): MAAS gave up the call because its transaction conflicted with
	// others. It was rolled back, so nothing in MAAS's database changed. Effects outside of the database are possible:
	// compose may have made the VM on the host. It is Unavailable, too.
	Busy Kind = "Busy"
	// Untrusted (a server responds, and its certificate can't be verified, or it has none): nothing was sent. It is
	// Unavailable, too.
	Untrusted Kind = "Untrusted"
	// Unavailable (no response, a broken response, 429 or 5xx, or a 404 that is not MAAS's): it may pass. A call that
	// changes something may have taken effect all the same, unless NotSent: check before trying again.
	Unavailable Kind = "Unavailable"
)

// Error is a call to MAAS that failed.
type Error struct {
	Kind Kind
	// Method, Endpoint and Op name the call; Endpoint is a pattern such as machines/{id}/.
	Method, Endpoint, Op string
	// Status is the HTTP status, or 0 without a response.
	Status int
	// Message is MAAS's error message, on one line.
	Message string
	// Fields are MAAS's errors by form field, if any; __all__ holds those that belong to no field.
	Fields map[string][]string
	// RetryAfter is how long to wait before the next try: as MAAS asked, or until the next probe; or 0.
	RetryAfter time.Duration
	// NotSent reports whether MAAS never got the call: there was no connection, or the circuit was open. It had no
	// effect.
	NotSent bool
	// Answered reports whether MAAS says that it could not switch a machine: it does not go on trying.
	Answered bool

	cause error
}

// Error returns which call failed, and MAAS's message.
func (e *Error) Error() string {
	call := e.Method + " " + e.Endpoint
	if e.Op != "" {
		call += " op=" + e.Op
	}
	if e.Status == 0 {
		return fmt.Sprintf("%s: %s", call, e.Message)
	}
	return fmt.Sprintf("%s: %d: %s", call, e.Status, e.Message)
}

// Unwrap returns the transport's error, if any.
func (e *Error) Unwrap() error { return e.cause }

// Is makes errors.Is(err, Kind) work.
func (e *Error) Is(target error) bool {
	kind, ok := target.(Kind)
	return ok && (kind == e.Kind || kind == Unavailable && (e.Kind == Busy || e.Kind == Untrusted))
}

// InvalidField reports whether MAAS refused this parameter of the call.
func InvalidField(err error, field string) bool {
	var e *Error
	return errors.As(err, &e) && e.Kind == Invalid && len(e.Fields[field]) > 0
}

// Message returns MAAS's own message, for people; for other errors it is the error's text.
func Message(err error) string {
	if e, is := errors.AsType[*Error](err); is {
		return e.Message
	}
	return err.Error()
}

// NotSent reports whether MAAS never got the call, so that it had no effect.
func NotSent(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.NotSent
}

// HadNoEffect reports whether a call that failed certainly changed nothing in MAAS: it was refused, rolled back, or
// never sent.
func HadNoEffect(err error) bool {
	return !errors.Is(err, Unavailable) || errors.Is(err, Busy) || NotSent(err)
}

// NeedsPerson reports whether MAAS refuses a call until a person corrects something in MAAS, or in what is asked for.
// The other refusals end when the object is read again, or with other credentials.
func NeedsPerson(err error) bool {
	kinds := []Kind{Invalid, Forbidden, Exhausted, Unaddressed, Unroutable}
	return slices.ContainsFunc(kinds, func(kind Kind) bool { return errors.Is(err, kind) })
}

// RetryAfter returns how long to wait before the next try, or 0 if that is unknown.
func RetryAfter(err error) time.Duration {
	if e, is := errors.AsType[*Error](err); is {
		return e.RetryAfter
	}
	return 0
}

// ofStatus are the kinds of the statuses that mean one thing.
var ofStatus = map[int]Kind{
	http.StatusNotFound: NotFound, http.StatusConflict: Conflict, http.StatusUnauthorized: Unauthorized,
	http.StatusForbidden: Forbidden, http.StatusGone: Gone, http.StatusTooManyRequests: Unavailable,
	http.StatusRequestTimeout: Unavailable,
}

// spoken are the errors to which MAAS gives a text alone: others have their status (StaticIPAddressExhaustion and
// IPAddressCheckFailed in maasserver/exceptions.py; UnroutablePowerWorkflowException in
// maastemporalworker/workflow/power.py, and NoConnectionsAvailable and PowerProblem in models/node.py before 3.5;
// UnsupportedEraseOperationError in forms/ephemeral.py).
var spoken = map[string]Kind{
	"No more IPs available in subnet":                   Exhausted,
	"Failed to allocate the required AUTO IP addresses": Exhausted,
	"IP address checks failed after":                    Unaddressed,
	"Erasing disk is disabled for DPUs":                 Invalid,
	"Error determining BMC task queue":                  Unroutable,
	"No rack controllers can access the BMC of":         Unroutable,
	"Unable to reach the BMC":                           Unroutable,
}

// triesNoMore reports whether MAAS says why it could not switch a machine: the error of the agent's last try
// (maasagent/internal/power/service.go), or of one that it did not begin (models/node.py). With any other error, also
// with a text of its own, it may go on trying.
func triesNoMore(message string) bool {
	return slices.ContainsFunc([]string{
		"ExitError: ", "BMC is in the wrong power state", "Power control software is missing", "No BMC is defined",
	}, func(text string) bool { return strings.Contains(message, text) })
}

// kindOfError returns the kind of an error response.
func kindOfError(status int, message string) Kind {
	if status == http.StatusInternalServerError || status == http.StatusServiceUnavailable {
		for text, kind := range spoken {
			if strings.HasPrefix(message, text) {
				return kind
			}
		}
	}
	if kind, known := ofStatus[status]; known || status < 400 || status >= 500 {
		return cmp.Or(kind, Unavailable)
	}
	return Invalid
}

const (
	// maxMessage bounds an error message, in bytes: a proxy's error page does not belong in a condition.
	maxMessage = 512
	// tellingPart is how many bytes of a secret reveal it: what follows them in a message is the rest of it.
	tellingPart = 16
	// rightSecret is what MAAS writes before the right secret when a key has a wrong one.
	rightSecret = "Expected signature"
)

// describe reads an error body: JSON with a list of messages by field, or text.
func describe(body string) (message string, fields map[string][]string) {
	if json.Unmarshal([]byte(body), &fields) == nil && len(fields) > 0 {
		return joinFields(fields), fields
	}
	if isPage(body) {
		return "", nil
	}
	return body, nil
}

// isPage reports whether a body is HTML.
func isPage(body string) bool { return strings.HasPrefix(strings.TrimSpace(body), "<") }

// presentable makes the message fit for logs and conditions: short, on one line, and without secrets.
func (e *Error) presentable(secrets []string) *Error {
	e.Message = cmp.Or(presentable(e.Message, secrets), http.StatusText(e.Status), "MAAS gives no reason")
	fields := make(map[string][]string, len(e.Fields))
	for field, messages := range e.Fields {
		field = presentable(field, secrets)
		for _, message := range messages {
			fields[field] = append(fields[field], presentable(message, secrets))
		}
	}
	e.Fields = fields
	return e
}

// steady leaves out what differs from try to try. It comes after the secrets, of which it could leave a part.
func (e *Error) steady() *Error {
	e.Message = text.Steady(e.Message, maxMessage)
	for _, messages := range e.Fields {
		for i := range messages {
			messages[i] = text.Steady(messages[i], maxMessage)
		}
	}
	return e
}

func presentable(message string, secrets []string) string {
	message = text.OneLine(message, len(message)) // A secret may be broken over lines.
	for _, secret := range append(secrets, rightSecret) {
		if secret != "" {
			message, _, _ = strings.Cut(message, secret[:min(len(secret), tellingPart)])
		}
	}
	return text.OneLine(message, maxMessage)
}

func joinFields(fields map[string][]string) string {
	parts := make([]string, 0, len(fields))
	for field, messages := range fields {
		text := strings.Join(messages, " ")
		if field != "__all__" {
			text = field + ": " + text
		}
		parts = append(parts, text)
	}
	sort.Strings(parts)
	return strings.Join(parts, "; ")
}
