// SPDX-License-Identifier: Apache-2.0

package stale

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Connection is one manager's way to the API server.
type Connection struct {
	view   *View
	number int
	// cut refuses all further requests, as if the manager had died: what it has sent is done, and it sends nothing more.
	cut atomic.Bool
}

// errCut is what a manager gets that is cut off.
var errCut = errors.New("the manager is cut off")

// Wrap is for rest.Config.Wrap.
func (c *Connection) Wrap(next http.RoundTripper) http.RoundTripper { return &trip{c, next} }

type trip struct {
	*Connection
	next http.RoundTripper
}

// RoundTrip sends a request, or lies.
func (t *trip) RoundTrip(request *http.Request) (*http.Response, error) {
	if t.cut.Load() {
		return nil, errCut
	}
	kind, named := kindOf(request)
	query := request.URL.Query()
	switch {
	case kind == "":
		return t.next.RoundTrip(request)
	case request.Method != http.MethodGet:
		return t.write(request, kind)
	case query.Has("watch"):
		return t.watch(request, kind)
	case !named && query.Get("resourceVersion") == "0":
		return t.list(request, kind)
	}
	return t.next.RoundTrip(request)
}

// write sends a request that may change an object.
func (t *trip) write(request *http.Request, kind string) (*http.Response, error) {
	answers := t.view.answers(kind)
	response, err := t.next.RoundTrip(request)
	if err != nil || answers {
		return response, err
	}
	_, err = io.Copy(io.Discard, response.Body) // By then it is done.
	return nil, errors.Join(&net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}, err, response.Body.Close())
}

// list answers a list that may be as old as it likes.
func (t *trip) list(request *http.Request, kind string) (*http.Response, error) {
	old := t.view.old(t.Connection, kind)
	if old == "" {
		return t.next.RoundTrip(request)
	}
	request = request.Clone(request.Context())
	query := request.URL.Query()
	query.Set("resourceVersion", old)
	query.Set("resourceVersionMatch", "Exact")
	request.URL.RawQuery = query.Encode()
	response, err := t.next.RoundTrip(request)
	if err == nil && response.StatusCode == http.StatusOK {
		t.view.tell()
	}
	return response, err
}

// watch begins a watch. One that begins with all that there is has to be true to the moment: API servers that can't do
// that refuse it, and are asked for a list that may be old.
func (t *trip) watch(request *http.Request, kind string) (*http.Response, error) {
	begins := request.URL.Query().Get("sendInitialEvents") == "true"
	if begins && t.view.old(t.Connection, kind) != "" {
		return refuse(request)
	}
	t.view.watched(kind)
	request = request.Clone(request.Context())
	for i, accepts := range request.Header["Accept"] {
		request.Header["Accept"][i] = strings.ReplaceAll(accepts, "application/vnd.kubernetes.protobuf", "application/json")
	}
	response, err := t.next.RoundTrip(request)
	if err != nil || response.StatusCode != http.StatusOK {
		return response, err
	}
	response.Body = t.stream(response.Body, kind, begins)
	return response, nil
}

// refuse answers as an API server that can't begin a watch with all that there is.
func refuse(request *http.Request) (*http.Response, error) {
	status := apierrors.NewInvalid(schema.GroupKind{Group: "meta.k8s.io", Kind: "ListOptions"}, "", nil).ErrStatus
	status.Kind, status.APIVersion = "Status", "v1"
	body, err := json.Marshal(status)
	if err != nil {
		return nil, fmt.Errorf("refusing a watch: %w", err)
	}
	return &http.Response{
		StatusCode: http.StatusUnprocessableEntity, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: request,
	}, nil
}
