// SPDX-License-Identifier: Apache-2.0

package played

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
)

// call is a request.
type call struct {
	*http.Request

	who client
	// path is what follows /1.0. It is nil for others.
	path []string
	// sent is the object in the body, or nil.
	sent map[string]any
	raw  []byte
}

// reply is a response. Its body is an object, or other.
type reply struct {
	status int
	header http.Header
	object map[string]any
	other  io.ReadCloser
}

// handler sends a call on. Where the daemon breaks the connection it panics, and so the client's is broken.
type handler func(*call) *reply

func broken() { panic(http.ErrAbortHandler) }

// try returns nil where the connection is broken.
func try(do func() *reply) (got *reply) {
	defer func() {
		reason := recover()
		if err, _ := reason.(error); reason != nil && !errors.Is(err, http.ErrAbortHandler) {
			panic(reason)
		}
	}()
	return do()
}

// respond reads a request, lets the rows play, and writes the response.
func (p *Proxy) respond(w http.ResponseWriter, r *http.Request, who client) {
	c := &call{Request: r, who: who}
	if rest, found := strings.CutPrefix(r.URL.Path, "/1.0"); found {
		c.path = strings.FieldsFunc(rest, func(r rune) bool { return r == '/' })
	}
	if kind := r.Header.Get("Content-Type"); !strings.HasPrefix(kind, "multipart/") && kind != "application/octet-stream" {
		var err error
		if c.raw, err = io.ReadAll(r.Body); err != nil {
			broken()
		}
		c.sent = decode(c.raw)
	}
	next := handler(p.pass)
	for i := len(p.rows) - 1; i >= 0; i-- {
		if play, inner := p.rows[i].Play, next; play != nil {
			next = func(c *call) *reply { return play(p, c, inner) }
		}
	}
	next(c).write(w)
}

// pass sends a call to the daemon, or to what the proxy has of its own.
func (p *Proxy) pass(c *call) *reply {
	if got := p.operations.serve(c); got != nil {
		return got
	}
	if len(c.path) > 0 && c.path[0] == "certificates" {
		return p.store.translate(c, p.send)
	}
	got := p.send(c)
	p.operations.list(c, got)
	return got
}

func (p *Proxy) send(c *call) *reply {
	out := c.Clone(c.Context())
	lead(out, c.who)
	content := c.raw
	if c.sent != nil {
		content, _ = json.Marshal(c.sent)
	}
	if content != nil {
		out.ContentLength = int64(len(content))
		out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }
		out.Body, _ = out.GetBody()
	}
	if out.ContentLength == 0 {
		out.Body = http.NoBody
	}
	response, err := p.transport(c.who).RoundTrip(out)
	if err != nil {
		broken()
	}
	got := &reply{status: response.StatusCode, header: response.Header, other: response.Body}
	if strings.HasPrefix(response.Header.Get("Content-Type"), "application/json") {
		all, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil {
			broken()
		}
		got.object, got.other = decode(all), io.NopCloser(bytes.NewReader(all))
	}
	return got
}

// ask sends the daemon a request of the proxy's own.
func (p *Proxy) ask(ctx context.Context, who client, method, path string, body map[string]any) *reply {
	request, err := http.NewRequestWithContext(ctx, method, "http://lxd"+path, http.NoBody)
	if err != nil {
		broken()
	}
	got := p.send(&call{Request: request, who: who, sent: body})
	_ = got.other.Close()
	return got
}

func (r *reply) write(w http.ResponseWriter) {
	maps.Copy(w.Header(), r.header)
	w.Header().Del("Connection")
	body := r.other
	if r.object != nil {
		content, _ := json.Marshal(r.object)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		body = io.NopCloser(bytes.NewReader(content))
	}
	defer func() { _ = body.Close() }()
	w.WriteHeader(r.status)
	if _, err := io.Copy(w, body); err != nil {
		broken()
	}
}

// at returns what is at a place in the response, or nil.
func (r *reply) at(keys ...string) any {
	if r == nil {
		return nil
	}
	return at(r.object, keys...)
}

// objectAt returns the object at a place in the response, or nil.
func (r *reply) objectAt(keys ...string) map[string]any {
	object, _ := r.at(keys...).(map[string]any)
	return object
}

func at(value any, keys ...string) any {
	for _, key := range keys {
		object, _ := value.(map[string]any)
		value = object[key]
	}
	return value
}

func (r *reply) refused() bool { return r.status >= http.StatusBadRequest }

func refuse(status int, text string) *reply {
	return &reply{status: status, header: http.Header{}, object: problem(status, text)}
}

func problem(status int, text string) map[string]any {
	return map[string]any{"type": "error", "status": "", "status_code": 0, "operation": "", "error_code": status, "error": text, "metadata": nil}
}

func done(metadata map[string]any) *reply {
	return &reply{status: http.StatusOK, header: http.Header{}, object: map[string]any{
		"type": "sync", "status": "Success", "status_code": http.StatusOK, "operation": "", "error_code": 0, "error": "", "metadata": metadata,
	}}
}

// decode returns a JSON object, or nil.
func decode(text []byte) map[string]any {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var object map[string]any
	if decoder.Decode(&object) != nil {
		return nil
	}
	return object
}

// normal is an object as it would be decoded.
func normal(object map[string]any) map[string]any {
	text, _ := json.Marshal(object)
	return decode(text)
}

// is reports whether a call is of a method, of those that are separated by |, and of a path, in which * stands for any
// one part.
func (c *call) is(methods, path string) bool {
	parts := strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
	if c.path == nil || len(parts) != len(c.path) || !strings.Contains("|"+methods+"|", "|"+c.Method+"|") {
		return false
	}
	for i, part := range parts {
		if part != "*" && part != c.path[i] {
			return false
		}
	}
	return true
}

// project is the one that a call is for.
func (c *call) project() string { return cmp.Or(c.URL.Query().Get("project"), "default") }

// config is the configuration that is sent, or nil.
func (c *call) config() map[string]any {
	config, _ := c.sent["config"].(map[string]any)
	return config
}

// with returns the call with another configuration.
func (c *call) with(change func(config map[string]any)) *call {
	changed := *c
	changed.sent = normal(c.sent)
	if config := changed.config(); config != nil {
		change(config)
	}
	return &changed
}

// text returns a text that is sent, or "".
func (c *call) text(key string) string {
	text, _ := c.sent[key].(string)
	return text
}
