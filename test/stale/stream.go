// SPDX-License-Identifier: Apache-2.0

package stale

import (
	"encoding/json"
	"io"
	"net/http"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// event is one of a watch.
type event struct {
	Type   watch.EventType `json:"type"`
	Object json.RawMessage `json:"object"`

	of metav1.PartialObjectMetadata
}

// ofObject reports whether the event is about an object.
func (e event) ofObject() bool { return e.Type != watch.Bookmark && e.Type != watch.Error }

// beganWith reports whether the event ends those with which a watch begins.
func (e event) beganWith() bool {
	return e.Type == watch.Bookmark && e.of.Annotations[metav1.InitialEventsAnnotationKey] == "true"
}

// stream passes on a watch.
type stream struct {
	*Connection
	kind   string
	begins bool // what comes is all that there is
	held   []event

	from io.ReadCloser
	to   *io.PipeWriter
	out  *json.Encoder
}

// body is what the manager reads of a watch.
type body struct {
	io.Reader
	close func() error
}

func (b body) Close() error { return b.close() }

// stream returns what a manager sees of a watch.
func (t *trip) stream(from io.ReadCloser, kind string, begins bool) io.ReadCloser {
	reader, writer := io.Pipe()
	s := &stream{
		Connection: t.Connection, kind: kind, begins: begins, from: from, to: writer, out: json.NewEncoder(writer),
	}
	events, done := make(chan event), make(chan struct{})
	go s.read(events, done)
	go s.pass(events, done)
	stop := sync.OnceFunc(func() { close(done) })
	return body{reader, func() error {
		stop()
		_ = reader.Close() // It returns no error.
		return from.Close()
	}}
}

// read reads the events that the API server sends.
func (s *stream) read(events chan<- event, done <-chan struct{}) {
	defer close(events)
	for in := json.NewDecoder(s.from); ; {
		var e event
		if in.Decode(&e) != nil || json.Unmarshal(e.Object, &e.of) != nil {
			return // The watch ended.
		}
		select {
		case events <- e:
		case <-done:
			return
		}
	}
}

// pass shows events to the manager, or holds them until the lie is over.
func (s *stream) pass(events <-chan event, done <-chan struct{}) {
	defer func() { _ = s.to.Close() }() // It returns no error.
	for {
		var over <-chan struct{}
		if len(s.held) > 0 {
			over = s.view.Over()
		}
		select {
		case e, more := <-events:
			// A manager whose watch ends begins another one, after what it was shown.
			if !more || !s.take(e) {
				return
			}
		case <-over:
			if !s.release() {
				return
			}
		case <-done:
			return
		}
	}
}

// take shows an event, or holds it; false: the manager does not read any more.
func (s *stream) take(e event) bool {
	if s.begins {
		s.begins = !e.beganWith()
		return s.out.Encode(e) == nil
	}
	shows := len(s.held) == 0 // What is held comes first, and a bookmark would tell of it.
	if e.ofObject() {
		shows = s.view.shows(s.Connection, s.kind, e.of.ResourceVersion)
		if shows && len(s.held) > 0 && !s.release() {
			return false
		}
	}
	if !shows {
		s.held = append(s.held, e)
		return true
	}
	return s.out.Encode(e) == nil
}

// release ends the lie for this watch; false: the watch is over.
func (s *stream) release() bool {
	held := s.held
	s.held = nil
	switch s.view.lie.Class {
	case Merged:
		held = merge(held)
	case Dropped:
		status := metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
			Code: http.StatusGone, Reason: metav1.StatusReasonExpired, Message: "too old resource version",
		}
		object, err := json.Marshal(status)
		if err == nil {
			_ = s.out.Encode(event{Type: watch.Error, Object: object})
		}
		return false
	}
	for _, e := range held {
		if s.out.Encode(e) != nil {
			return false
		}
	}
	return true
}

// merge leaves one event of each object: how it is in the end, for those who know how it was.
func merge(held []event) []event {
	type change struct {
		first watch.EventType
		last  int
	}
	changes := map[string]change{}
	nameOf := func(e event) string { return e.of.Namespace + "/" + e.of.Name }
	for i, e := range held {
		if !e.ofObject() {
			continue
		}
		c, has := changes[nameOf(e)]
		if !has {
			c.first = e.Type
		}
		c.last = i
		changes[nameOf(e)] = c
	}
	var merged []event
	for i, e := range held {
		c := changes[nameOf(e)]
		if !e.ofObject() || c.last != i {
			continue
		}
		known, is := c.first != watch.Added, e.Type != watch.Deleted
		switch {
		case known && is:
			e.Type = watch.Modified
		case is:
			e.Type = watch.Added
		case !known:
			continue
		}
		merged = append(merged, e)
	}
	return merged
}
