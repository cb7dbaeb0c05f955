// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
)

// apiRoot is the path of MAAS's API.
const apiRoot = "/MAAS/api/2.0/"

// object is a JSON object of a response.
type object = map[string]any

// textReply is a success that is no JSON.
type textReply string

// created is a JSON object that is sent with 201.
type created object

// noContent is piston's rc.DELETED: 204 without a body.
type noContent struct{}

// request is one API call on its way through a handler.
type request struct {
	*Simulator
	http  *http.Request
	user  *user // nil: anonymous
	vars  []string
	query form
	data  form   // the body, if it is a form
	raw   []byte // the body as it came
	call  *Call
}

// unlocked calls a slow fn without blocking the rest of the region.
func (rq *request) unlocked(fn func()) {
	rq.mu.Unlock()
	defer rq.mu.Lock()
	fn()
}

// Handler serves the API below /MAAS/api/2.0/, that of machines' cloud-init below /MAAS/metadata/, and the testers'
// endpoints below /control/.
func (s *Simulator) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(http.StatusNotFound)
	})
	mux.HandleFunc("/MAAS/api/", s.serveAPI)
	mux.HandleFunc(metadataRoot, s.serveMetadata)
	mux.Handle("/control/", s.controlHandler())
	return mux
}

// reply is a rendered response.
type reply struct {
	status int
	header http.Header
	body   []byte
}

func (s *Simulator) serveAPI(w http.ResponseWriter, r *http.Request) {
	call := Call{Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, User: s.claimedUser(r),
		UserAgent: r.UserAgent()}
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		// The client is gone or sent too much: there is nobody to respond to, or nothing to do.
		http.Error(w, "Bad Request", http.StatusBadRequest)
		return
	}
	rq := &request{Simulator: s, http: r, call: &call, query: parseQuery(r.URL.RawQuery)}
	route := rq.resolve(raw)
	s.calls.begin(&call)
	if call.Method != http.MethodGet {
		s.observers.tell(func(o Observer) { o.Came(call) })
	}
	fault := s.faults.match(call)
	dropped := true
	defer func() {
		if dropped {
			call.Status = 0
			s.ended(call)
		}
	}()
	fault.wait(s)
	if fault.dropsBefore() || s.runHook(call, Before) != nil {
		panic(http.ErrAbortHandler)
	}
	out := fault.reply()
	if out == nil {
		out = rq.handle(route)
	}
	call.Status = out.status
	if fault.dropsAfter() || s.runHook(call, After) != nil {
		panic(http.ErrAbortHandler)
	}
	out = fault.spoil(out)
	dropped = false
	if call.Method != http.MethodGet {
		s.observers.tell(func(o Observer) { o.Replied(call) })
	}
	s.ended(call) // Who has the response may ask for the calls.
	out.send(w, fault.cutsBody())
}

func (s *Simulator) ended(call Call) {
	s.calls.end(call)
	s.log.V(1).Info("Call", "number", call.Number, "method", call.Method, "path", call.Path, "op", call.Op,
		"systemID", call.SystemID, "status", call.Status)
}

// resolve returns the endpoint, and sets the operation, which may stand in the query or in the form.
func (rq *request) resolve(raw []byte) *route {
	rq.data, rq.raw = parseBody(rq.http.Header.Get("Content-Type"), raw), raw
	rq.call.Op = orDefault(rq.query.get("op"), rq.data.get("op"))
	rq.call.AgentName, rq.call.Asked = rq.data.get("agent_name"), rq.data.get("system_id")
	rq.call.DryRun, _ = rq.data.boolean("dry_run", false) // The handler refuses what is neither.
	path, ok := strings.CutPrefix(rq.http.URL.Path, apiRoot)
	if !ok {
		return nil
	}
	route, vars := findRoute(path)
	if route != nil {
		rq.vars = vars
		rq.call.Endpoint = route.pattern
		if route.systemID {
			rq.call.SystemID = vars[0]
		}
	}
	return route
}

// awaitWorker takes the time that the region needs for a call that changes something, once a worker is free.
func (rq *request) awaitWorker() {
	if rq.http.Method == http.MethodGet || rq.timings.write() == 0 {
		return
	}
	if rq.workers != nil {
		select {
		case rq.workers <- struct{}{}:
			defer func() { <-rq.workers }()
		case <-rq.stop:
			return
		}
	}
	rq.sleep(rq.timings.write())
}

// handle executes the call under the region's lock.
func (rq *request) handle(rt *route) *reply {
	rq.awaitWorker()
	rq.mu.Lock()
	defer rq.mu.Unlock()
	out := rq.did(func() *reply { return makeReply(rq.dispatch(rt)) })
	if rt != nil {
		out.header.Set("X-MAAS-API-Hash", apiHash(rq.version))
		out.header.Set("Vary", "Authorization, Cookie")
	}
	return out
}

// dispatch responds as MAAS does: no endpoint, no credentials, verb not allowed, unknown operation, or the handler.
func (rq *request) dispatch(rt *route) (value any, err error) {
	defer func() {
		if p := recover(); p != nil {
			rq.log.Error(fmt.Errorf("%v", p), "Handler panicked", "path", rq.call.Path, "stack", string(debug.Stack()))
			err = textError(http.StatusInternalServerError, "%v", p)
		}
	}()
	if rt == nil || rt.where != nil && !rt.where(rq.Simulator) {
		return nil, notFoundText("Unknown API endpoint: %s.", rq.http.URL.Path)
	}
	if rq.user, err = rq.authenticate(rq.http); err != nil {
		return nil, err
	}
	methods := rt.methods
	if rq.user == nil {
		if rt.anonymous == nil {
			return nil, unauthorized("Forbidden")
		}
		methods = rt.anonymous
	}
	if !methods.allow(rq.http.Method) {
		return nil, &apiError{status: http.StatusMethodNotAllowed, contentType: "text/html; charset=utf-8",
			header: http.Header{"Allow": {methods.allowed()}}}
	}
	handler, ok := methods[signature{rq.http.Method, rq.call.Op}]
	if !ok {
		op := rq.call.Op
		if op == "" {
			op = "None"
		}
		return nil, badRequest("Unrecognised signature: method=%s op=%s", rq.http.Method, op)
	}
	if rt.vmHosts && !rq.hasVMHosts() {
		return nil, vmHostsGone()
	}
	return handler(rq)
}

func makeReply(value any, err error) *reply {
	out := &reply{status: http.StatusOK, header: http.Header{}}
	if err != nil {
		var refusal *apiError
		if !errors.As(err, &refusal) {
			refusal = textError(http.StatusInternalServerError, "%v", err)
		}
		out.status, out.body = refusal.status, refusal.body
		for key, values := range refusal.header {
			out.header[key] = values
		}
		out.header.Set("Content-Type", refusal.contentType)
		return out
	}
	switch v := value.(type) {
	case noContent:
		out.status = http.StatusNoContent
	case textReply:
		out.header.Set("Content-Type", contentText)
		out.body = []byte(v)
	case created:
		out = makeReply(object(v), nil)
		out.status = http.StatusCreated
	default:
		raw, err := json.MarshalIndent(v, "", "    ")
		if err != nil {
			return makeReply(nil, err)
		}
		out.header.Set("Content-Type", contentJSON)
		out.body = raw
	}
	return out
}

// send writes the reply; cut omits the second half of the body after announcing all of it.
func (r *reply) send(w http.ResponseWriter, cut bool) {
	for key, values := range r.header {
		w.Header()[key] = values
	}
	body := r.body
	if r.status != http.StatusNoContent {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	}
	w.WriteHeader(r.status)
	if cut {
		body = body[:len(body)/2]
	}
	if _, err := w.Write(body); err != nil {
		// The client is gone; it notices itself.
		return
	}
	if cut {
		panic(http.ErrAbortHandler)
	}
}
