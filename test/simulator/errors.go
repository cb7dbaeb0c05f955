// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// apiError is a refusal in MAAS's form.
type apiError struct {
	status      int
	contentType string
	body        []byte
	header      http.Header
}

func (e *apiError) Error() string { return fmt.Sprintf("%d: %s", e.status, e.body) }

const (
	contentText = "text/plain; charset=utf-8"
	contentJSON = "application/json; charset=utf-8"
)

func textError(status int, format string, args ...any) *apiError {
	text := format
	if len(args) > 0 {
		text = fmt.Sprintf(format, args...)
	}
	return &apiError{status: status, contentType: contentText, body: []byte(text)}
}

// badRequest is MAASAPIBadRequest: 400 with a text.
func badRequest(format string, args ...any) *apiError {
	return textError(http.StatusBadRequest, format, args...)
}

// formErrors are a form's complaints by field; "__all__" has those of no field.
type formErrors map[string][]string

// add adds a complaint.
func (e formErrors) add(field, format string, args ...any) {
	text := format
	if len(args) > 0 {
		text = fmt.Sprintf(format, args...)
	}
	e[field] = append(e[field], text)
}

// err returns nil, or the 400 with the complaints as JSON.
func (e formErrors) err() error {
	if len(e) == 0 {
		return nil
	}
	return invalid(e)
}

// invalid is a form's or a model's ValidationError: 400 with JSON.
func invalid(e formErrors) *apiError {
	raw, err := json.Marshal(e)
	if err != nil {
		return textError(http.StatusInternalServerError, "%v", err)
	}
	return &apiError{status: http.StatusBadRequest, contentType: "application/json", body: raw}
}

// invalidField is invalid with one complaint.
func invalidField(field, format string, args ...any) *apiError {
	e := formErrors{}
	e.add(field, format, args...)
	return invalid(e)
}

// forbidden is PermissionDenied: 403, mostly without a text.
func forbidden(text string) *apiError { return textError(http.StatusForbidden, "%s", text) }

// notAnAddress is netaddr's message for a text that is no IP address; MAAS returns it as an internal error.
func notAnAddress(text string) *apiError {
	return textError(http.StatusInternalServerError, "failed to detect a valid IP address from %s", pythonText(text))
}

// adminOnly refuses methods that only administrators may call.
func adminOnly() *apiError { return forbidden("This method is reserved for admin users.") }

// notFound is Django's error for an object that does not exist.
func notFound(model string) *apiError {
	e := textError(http.StatusNotFound, "No %s matches the given query.", model)
	e.contentType = "text/plain"
	return e
}

// notFoundText is MAASAPINotFound, and other 404s.
func notFoundText(format string, args ...any) *apiError {
	return textError(http.StatusNotFound, format, args...)
}

// conflict is NodeStateViolation, NodesNotAvailable and similar errors: 409 with a text.
func conflict(format string, args ...any) *apiError {
	return textError(http.StatusConflict, format, args...)
}

// unavailable is PodProblem, PowerProblem, StaticIPAddressExhaustion: 503 with a text.
func unavailable(format string, args ...any) *apiError {
	return textError(http.StatusServiceUnavailable, format, args...)
}
