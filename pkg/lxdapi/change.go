// SPDX-License-Identifier: Apache-2.0

package lxdapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/canonical/lxd/shared/api"
)

// waitReserve is the part of the context's time that is left when LXD is asked to stop waiting for an operation: what
// the operation came to is read in it.
const waitReserve = 2 * time.Second

// Upload is a body that is sent as it is. Other bodies are sent as JSON.
type Upload struct {
	Content io.Reader
	// Bytes is its length.
	Bytes  int64
	Header http.Header
}

// Post sends a body, and returns when what it began is over. The error is that of Change.
func (c *Client) Post(target *api.URL, body any) error {
	return c.Change(http.MethodPost, target, body, "")
}

// Put replaces what has the ETag, if one is given, and returns when what it began is over. The error is that of Change.
func (c *Client) Put(target *api.URL, body any, etag string) error {
	return c.Change(http.MethodPut, target, body, etag)
}

// Patch changes a part of what has the ETag, if one is given, and returns when what it began is over. The error is that
// of Change.
func (c *Client) Patch(target *api.URL, body any, etag string) error {
	return c.Change(http.MethodPatch, target, body, etag)
}

// Delete deletes, and returns when what it began is over. The error is that of Change.
func (c *Client) Delete(target *api.URL) error { return c.Change(http.MethodDelete, target, nil, "") }

// Change sends a request that changes something. If LXD returns an operation, Change waits for its end, at most until
// the context's: GET operations/ID/wait, and GET operations/ID if that is refused. nil means that it is done; the error
// is an *Error.
//
// LXD ignores an ETag but for PUT and PATCH of the object itself.
func (c *Client) Change(method string, target *api.URL, body any, etag string) error {
	response, err := c.send(method, target, body, etag)
	if err != nil {
		return err
	}
	if response.Type == api.SyncResponse {
		return nil
	}
	begun, err := operationOf(response)
	if err != nil {
		return err
	}
	return c.Wait(begun.ID)
}

// ImageSecret returns what lets another LXD read an image once: POST images/FINGERPRINT/secret, whose operation lasts
// until then. The error is that of Change.
func (c *Client) ImageSecret(fingerprint string) (string, error) {
	response, err := c.send(http.MethodPost, c.Path("images", fingerprint, "secret"), struct{}{}, "")
	if err != nil {
		return "", err
	}
	begun, err := operationOf(response)
	if err != nil {
		return "", err
	}
	secret, _ := begun.Metadata["secret"].(string)
	return secret, nil
}

// send sends a request that changes something. The response is of LXD's form, and no error.
func (c *Client) send(method string, target *api.URL, body any, etag string) (*api.Response, error) {
	request, err := c.request(method, target, body)
	if err != nil {
		return nil, &Error{cause: fmt.Errorf("making the request: %w", err)}
	}
	if etag != "" {
		request.Header.Set("If-Match", etag)
	}
	sent, err := c.sdk.DoHTTP(request)
	if err != nil {
		return nil, &Error{cause: err}
	}
	defer func() { _ = sent.Body.Close() }()
	response := &api.Response{}
	if err := json.NewDecoder(sent.Body).Decode(response); err != nil {
		return nil, &Error{cause: fmt.Errorf("a response (%s) that is not LXD's: %w", sent.Status, err)}
	}
	switch response.Type {
	case api.SyncResponse, api.AsyncResponse:
		return response, nil
	case api.ErrorResponse:
		return nil, refusal(sent.StatusCode, response)
	}
	return nil, &Error{cause: fmt.Errorf("a response (%s) that is not LXD's", sent.Status)}
}

func (c *Client) request(method string, target *api.URL, body any) (*http.Request, error) {
	upload, isUpload := body.(*Upload)
	switch {
	case body == nil:
		upload = &Upload{}
	case !isUpload:
		content, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		upload = &Upload{Content: bytes.NewReader(content), Header: http.Header{"Content-Type": {"application/json"}}}
	}
	request, err := http.NewRequestWithContext(c.ctx, method, c.base+target.String(), upload.Content)
	if err != nil {
		return nil, err
	}
	for key, values := range upload.Header {
		request.Header[key] = values
	}
	if isUpload {
		request.ContentLength = upload.Bytes
	}
	return request, nil
}

// refusal is the error of a response that is one. A proxy, or an LXD that starts, may have passed the request on.
func refusal(status int, response *api.Response) *Error {
	if status < http.StatusBadRequest {
		status = max(response.Code, http.StatusBadRequest)
	}
	e := &Error{Status: status, cause: api.NewStatusError(status, response.Error)}
	switch status {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
	default:
		e.Refused = true
	}
	return e
}

// operation is LXD's, with what LXD's client does not know of it.
type operation struct {
	api.Operation
	// ErrCode is the HTTP status of its error, from 6.8 on.
	ErrCode int `json:"err_code"`
}

func operationOf(response *api.Response) (*operation, error) {
	begun := &operation{}
	if err := json.Unmarshal(response.Metadata, begun); err != nil || begun.ID == "" {
		return nil, &Error{cause: errors.Join(errors.New("a response without the operation that began"), err)}
	}
	return begun, nil
}

// Wait waits for the end of an operation of the project, at most until the context's. The error is that of Change.
//
// Only the operation says what it came to: LXD returns the failure of an operation as the response to the wait with the
// status 200 (5.0.2 as the operation, 5.21 and newer as an error), or with the operation's own (5.0.3 to 5.20), and the
// end of the time in the same way. It forgets an operation 5 seconds after its end.
func (c *Client) Wait(id string) error {
	patience := time.Second
	if deadline, ok := c.ctx.Deadline(); ok {
		patience = max(patience, time.Until(deadline)-waitReserve)
	}
	wait := c.Path("operations", id, "wait").WithQuery("timeout", strconv.Itoa(int(patience.Seconds())))
	found, err := c.operation(wait)
	if api.StatusErrorCheck(err) {
		found, err = c.operation(c.Path("operations", id))
	}
	switch {
	case api.StatusErrorCheck(err, http.StatusNotFound):
		return &Error{Operation: id, cause: fmt.Errorf("LXD has forgotten the operation %s", id)}
	case api.StatusErrorCheck(err): // That is of this request, and not of the change.
		return &Error{Operation: id, cause: errors.New(err.Error())}
	case err != nil:
		return &Error{Operation: id, cause: err}
	case !found.StatusCode.IsFinal():
		return &Error{Operation: id, Unfinished: true,
			cause: fmt.Errorf("LXD accepted it, and the operation %s is still %s", id, found.Status)}
	case found.StatusCode != api.Success || found.Err != "":
		return &Error{Operation: id, Refused: true, Status: found.ErrCode,
			cause: fmt.Errorf("%s: %s", found.Status, found.Err)}
	}
	return nil
}

// operation reads one. The error is an api.StatusError if LXD returned one.
func (c *Client) operation(target *api.URL) (*operation, error) {
	found := &operation{}
	if err := c.get(found, target); err != nil {
		return nil, err
	}
	return found, nil
}

// Error is the outcome of a change that is not known to be done.
type Error struct {
	// Refused means that LXD did not do it, and will not. Otherwise that is not known: LXD may have done it, may do it
	// later, or may never have got the request.
	Refused bool
	// Status is LXD's HTTP status; 0 if there was no response of LXD's form, or for an operation of LXD older than 6.8.
	Status int
	// Operation is the id of the operation that LXD began; "" if it began none.
	Operation string
	// Unfinished means that LXD was still at it when the time was over.
	Unfinished bool

	cause error
}

// Error returns LXD's words, or those of the connection.
func (e *Error) Error() string { return e.cause.Error() }

// Unwrap returns the error of LXD's response, an api.StatusError, or that of the connection. The failure of an
// operation is neither, whatever its status: that is of what the operation did, and not of what was asked for.
func (e *Error) Unwrap() error { return e.cause }

// IsRefused reports whether an error is that of a change that LXD did not do, and will not.
func IsRefused(err error) bool {
	e, is := errors.AsType[*Error](err)
	return is && e.Refused
}
