// SPDX-License-Identifier: Apache-2.0

package played

import (
	"bytes"
	"context"
	"encoding/json"
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
	// path is what follows /1.0/. It is nil for others.
	path []string
	// sent is the object in the body, or nil.
	sent map[string]any
	raw  []byte
}

// reply is a response. Its body is an object or something else; nil breaks the connection.
type reply struct {
	status int
	header http.Header
	object map[string]any
	other  io.ReadCloser
}

// handler sends a call on.
type handler func(*call) *reply

// respond reads a request, lets the rows play, and writes the response.
func (p *Proxy) respond(w http.ResponseWriter, r *http.Request) {
	c := &call{Request: r}
	c.who, _ = r.Context().Value(clientKey{}).(client)
	if rest, found := strings.CutPrefix(r.URL.Path, "/1.0"); found {
		c.path = strings.FieldsFunc(rest, func(r rune) bool { return r == '/' })
	}
	kind := r.Header.Get("Content-Type")
	if !strings.HasPrefix(kind, "multipart/") && kind != "application/octet-stream" {
		var err error
		if c.raw, err = io.ReadAll(r.Body); err != nil {
			panic(http.ErrAbortHandler)
		}
		c.sent = decode(c.raw)
	}
	next := handler(p.pass)
	for i := len(p.rows) - 1; i >= 0; i-- {
		if row, inner := p.rows[i], next; row.Play != nil {
			next = func(c *call) *reply { return row.Play(p, c, inner) }
		}
	}
	got := next(c)
	if got == nil {
		panic(http.ErrAbortHandler)
	}
	got.write(w)
}

// pass sends a call to the daemon, or to what the proxy has of its own. A refused change of the trust store is LXD's.
func (p *Proxy) pass(c *call) *reply {
	if got := p.operations.serve(c); got != nil {
		return got
	}
	if got := p.store.translate(c, p.send); got != nil {
		return got
	}
	got := p.send(c)
	p.operations.list(c, got)
	return got
}

func (p *Proxy) send(c *call) *reply {
	out := c.Clone(c.Context())
	p.lead(out, c.who)
	if c.sent != nil {
		c.raw, _ = json.Marshal(c.sent)
	}
	if c.raw != nil {
		out.ContentLength = int64(len(c.raw))
		out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(c.raw)), nil }
		out.Body, _ = out.GetBody()
		if len(c.raw) == 0 {
			out.Body = http.NoBody
		}
	}
	response, err := p.transport(c.who).RoundTrip(out)
	if err != nil {
		return nil
	}
	got := &reply{status: response.StatusCode, header: response.Header, other: response.Body}
	if strings.HasPrefix(response.Header.Get("Content-Type"), "application/json") {
		all, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil {
			return nil
		}
		if got.object = decode(all); got.object == nil {
			got.other = io.NopCloser(bytes.NewReader(all))
		}
	}
	return got
}

// ask sends the daemon a request of the proxy's own. It returns nil if there is no response.
func (p *Proxy) ask(ctx context.Context, who client, method, path string, body map[string]any) *reply {
	request, err := http.NewRequestWithContext(ctx, method, "http://lxd"+path, http.NoBody)
	if err != nil {
		return nil
	}
	got := p.send(&call{Request: request, who: who, sent: body})
	if got != nil && got.object == nil {
		_ = got.other.Close()
		return nil
	}
	return got
}

func (r *reply) write(w http.ResponseWriter) {
	header := w.Header()
	maps.Copy(header, r.header)
	header.Del("Connection")
	body := r.other
	if r.object != nil {
		content, _ := json.Marshal(r.object)
		header.Set("Content-Type", "application/json")
		header.Set("Content-Length", strconv.Itoa(len(content)))
		body = io.NopCloser(bytes.NewReader(content))
	}
	w.WriteHeader(r.status)
	_, err := io.Copy(w, body)
	_ = body.Close()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
}

// at returns what is at a place in the response, or nil.
func (r *reply) at(keys ...string) any {
	if r == nil {
		return nil
	}
	return at(r.object, keys...)
}

func at(value any, keys ...string) any {
	for _, key := range keys {
		object, _ := value.(map[string]any)
		value = object[key]
	}
	return value
}

// number returns the integer at a place in the response, or 0.
func (r *reply) number(keys ...string) int {
	n, _ := r.at(keys...).(json.Number)
	i, _ := strconv.Atoi(n.String())
	return i
}

// failed reports whether LXD refused.
func (r *reply) failed() bool { return r != nil && r.status >= http.StatusBadRequest }

func (r *reply) text() string {
	text, _ := r.at("error").(string)
	return text
}

func refuse(status int, text string) *reply {
	return &reply{status: status, header: http.Header{}, object: problem(status, text)}
}

func problem(status int, text string) map[string]any {
	return map[string]any{"type": "error", "status": "", "status_code": 0, "operation": "", "error_code": status, "error": text, "metadata": nil}
}

func sync200(metadata any) *reply {
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

// is reports whether a call is of a method, or "", and of a path, in which * stands for one part.
func (c *call) is(method, path string) bool {
	if c.path == nil || method != "" && c.Method != method {
		return false
	}
	parts := strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
	if len(parts) != len(c.path) {
		return false
	}
	for i, part := range parts {
		if part != "*" && part != c.path[i] {
			return false
		}
	}
	return true
}
