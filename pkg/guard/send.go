// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptrace"
	"sync"
	"time"
)

// ErrTooLate is for a request whose time to be sent has passed.
var ErrTooLate = errors.New("this process was paused, or too slow, before it sent the call; the call was not sent")

// errProtocol is for a server that wants the connection for something else: no timeout would bound reading from it.
var errProtocol = errors.New("the server wants to speak another protocol than HTTP")

// Sending is one request on its way to a connection. It is not sent after its time: not even if this process was paused
// while it connected, and resumes anywhere.
type Sending struct {
	before time.Time // the zero time: no limit

	mu        sync.Mutex
	cancel    context.CancelCauseFunc
	connected bool // there was a connection to send the request on
	again     bool // there was another one, because the first broke
	late      bool // its time had passed
}

// NewSending returns a request that is sent before a time; the zero time is no limit.
func NewSending(before time.Time) *Sending { return &Sending{before: before} }

// RoundTrip sends the request. The error is ErrTooLate if it was not sent in time.
func (s *Sending) RoundTrip(base http.RoundTripper, request *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(request.Context())
	s.cancel = cancel
	if s.isOver() {
		s.giveUp()
		return nil, ErrTooLate
	}
	if !s.before.IsZero() {
		defer time.AfterFunc(time.Until(s.before), s.giveUp).Stop() // Connecting takes time, too.
	}
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: s.gotConn})
	response, err := base.RoundTrip(request.WithContext(ctx))
	if err != nil {
		cancel(nil)
		if s.IsLate() {
			err = ErrTooLate
		}
		return nil, err
	}
	if response.StatusCode == http.StatusSwitchingProtocols {
		cancel(nil)
		return nil, errors.Join(errProtocol, response.Body.Close())
	}
	return response, nil
}

func (s *Sending) isOver() bool { return !s.before.IsZero() && Passed(s.before) }

// giveUp prevents the request from being sent, unless it is already on its way.
func (s *Sending) giveUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.connected {
		s.tooLate()
	}
}

// tooLate ends the request. The caller holds s.mu.
func (s *Sending) tooLate() {
	s.late = true
	s.cancel(ErrTooLate)
}

// gotConn is called before anything is written to a connection, and again if a kept one turned out to be closed.
func (s *Sending) gotConn(info httptrace.GotConnInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isOver() {
		s.tooLate()
	}
	if !s.late {
		s.again, s.connected = s.connected, true
		return
	}
	// HTTP/2 checks the context again before it writes. HTTP/1 may not; there, no other request has the connection.
	if secure, ok := info.Conn.(*tls.Conn); !ok || secure.ConnectionState().NegotiatedProtocol != "h2" {
		_ = info.Conn.Close()
	}
}

// IsLate reports whether it was too late to send the request.
func (s *Sending) IsLate() bool { return s.is(&s.late) }

// IsConnected reports whether there was a connection for the request: the server may have it.
func (s *Sending) IsConnected() bool { return s.is(&s.connected) }

// IsRepeated reports whether the server may have the request twice.
func (s *Sending) IsRepeated() bool { return s.is(&s.again) }

func (s *Sending) is(state *bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *state
}
