// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"time"

	lxdclient "github.com/canonical/lxd/client"
	"github.com/canonical/lxd/shared/api"

	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
)

// CallTimeout bounds each call of a client that Connect returned. LXD's own client would wait for an hour.
const CallTimeout = eventually.Limit

// Connect returns a client of the daemon at a unix socket, which has responded to it. The calls of the client end with
// ctx. One that gets no response within CallTimeout fails with context.DeadlineExceeded, and so does Connect.
//
// What the client's methods take for done has been done: newer LXDs make operations of it, which are waited for.
func Connect(ctx context.Context, socket string) (lxdclient.InstanceServer, error) {
	return connect(ctx, socket, CallTimeout)
}

func connect(ctx context.Context, socket string, timeout time.Duration) (lxdclient.InstanceServer, error) {
	args := &lxdclient.ConnectionArgs{HTTPClient: &http.Client{Timeout: timeout},
		TransportWrapper: func(t *http.Transport) lxdclient.HTTPTransporter { return finisher{endingWith(ctx, t)} }}
	client, err := lxdclient.ConnectLXDUnixWithContext(ctx, socket, args)
	if err != nil {
		return nil, fmt.Errorf("connecting to the LXD at %s: %w", socket, err)
	}
	return client, nil
}

// endingWith ends the connections of a transport with ctx. LXD's own client keeps that of an operation's events for a
// minute, also when it is disconnected, and LXD writes each event to all that there are.
func endingWith(ctx context.Context, t *http.Transport) *http.Transport {
	dial := t.DialContext
	t.DialContext = func(dialing context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(dialing, network, address)
		if err != nil {
			return nil, err
		}
		return ending{conn, context.AfterFunc(ctx, func() { _ = conn.Close() })}, nil
	}
	return t
}

// ending is a connection that ends with a context; forget ends the wait for that.
type ending struct {
	net.Conn
	forget func() bool
}

func (e ending) Close() error {
	e.forget()
	return e.Conn.Close()
}

// Finish waits until LXD has finished the operation of a call. LXD's client takes one that was cancelled for a success.
func Finish(ctx context.Context, operation lxdclient.Operation, err error) error {
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	if err := operation.WaitContext(ctx); err != nil {
		return err
	}
	if ended := operation.Get(); ended.StatusCode != api.Success {
		return fmt.Errorf("the operation %s is %s", ended.Description, ended.Status)
	}
	return nil
}

// finisher waits for the end of what was no operation when LXD's client was written, and returns the result in its place.
type finisher struct{ inner *http.Transport }

// Transport is what LXD's client asks for.
func (f finisher) Transport() *http.Transport { return f.inner }

// once are the paths of what were no operations, without those of snapshots and backups.
var once = regexp.MustCompile(`^(POST|PUT|PATCH|DELETE) /1\.0/(storage-pools|networks|profiles)(/[^/]+)?(/volumes(/[^/]+){0,2})?$|^DELETE /1\.0/projects/`)

// RoundTrip sends a request.
func (f finisher) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := f.inner.RoundTrip(r)
	if err != nil || response.StatusCode != http.StatusAccepted || !once.MatchString(r.Method+" "+r.URL.Path) {
		return response, err
	}
	at := response.Header.Get("Location")
	_ = response.Body.Close()
	for _, path := range []string{at + "/wait", at} { // LXD 5.21 and later report a failure as that of the wait
		next, err := http.NewRequestWithContext(r.Context(), http.MethodGet, r.URL.Scheme+"://"+r.URL.Host+path, http.NoBody)
		if err != nil {
			return nil, err
		}
		if response, err = f.inner.RoundTrip(next); err != nil {
			return nil, err
		}
		if path == at {
			break
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
	}
	defer response.Body.Close()
	var ended struct {
		Metadata struct {
			Err     string
			ErrCode int `json:"err_code"` // since 6.8
		}
	}
	if err := json.NewDecoder(response.Body).Decode(&ended); err != nil {
		return nil, fmt.Errorf("reading the end of %s %s: %w", r.Method, r.URL.Path, err)
	}
	result := api.ResponseRaw{Type: api.SyncResponse, Status: api.Success.String(), StatusCode: int(api.Success)}
	response.StatusCode = http.StatusOK
	if ended.Metadata.Err != "" {
		response.StatusCode = cmp.Or(ended.Metadata.ErrCode, http.StatusInternalServerError)
		result = api.ResponseRaw{Type: api.ErrorResponse, Code: response.StatusCode, Error: ended.Metadata.Err}
	}
	content, err := json.Marshal(result)
	response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(content)), int64(len(content))
	return response, err
}
