// SPDX-License-Identifier: Apache-2.0

package played

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
)

const (
	// pause is how long what became an operation has not begun.
	pause = 50 * time.Millisecond
	// remembered is how long LXD knows an operation after its end.
	remembered = 5 * time.Second
)

// operations are those of the proxy: of what the daemon does at once.
type operations struct {
	mu  sync.Mutex
	all map[string]*operation
	// told get each operation as it is, in an event.
	told map[int]teller
	last int
}

type teller func(project string, shown map[string]any)

type operation struct {
	project string
	shown   map[string]any
	code    int // of the error
	done    chan struct{}
}

// begin makes an operation of a call, and returns the response. Later do does it.
func (o *operations) begin(c *call, description string, do handler) *reply {
	later := *c
	later.Request = c.WithContext(context.WithoutCancel(c.Context())) // The client may be gone by then.
	id, now := string(uuid.NewUUID()), time.Now().UTC()
	began := &operation{project: c.project(), done: make(chan struct{}), shown: map[string]any{
		"id": id, "class": "task", "description": description, "created_at": now, "updated_at": now, "status": "Running", "status_code": 103,
		"resources": map[string]any{}, "metadata": map[string]any{}, "may_cancel": false, "err": "", "location": "none",
	}}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all[id] = began
	o.tell(began)
	time.AfterFunc(pause, func() {
		o.end(began, try(func() *reply { return do(&later) }))
		time.AfterFunc(remembered, func() {
			o.mu.Lock()
			defer o.mu.Unlock()
			delete(o.all, id)
		})
	})
	at := "/1.0/operations/" + id
	return &reply{status: http.StatusAccepted, header: http.Header{"Location": {at}}, object: map[string]any{
		"type": "async", "status": "Operation created", "status_code": 100, "operation": at, "error_code": 0, "error": "", "metadata": normal(began.shown),
	}}
}

func (o *operations) end(ended *operation, got *reply) {
	if got == nil {
		got = refuse(http.StatusInternalServerError, "LXD is shutting down")
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	ended.shown["updated_at"], ended.shown["status"], ended.shown["status_code"] = time.Now().UTC(), "Success", http.StatusOK
	if got.refused() {
		ended.shown["status"], ended.shown["status_code"], ended.shown["err"], ended.code = "Failure", http.StatusBadRequest, got.at("error"), got.status
	}
	o.tell(ended)
	close(ended.done)
}

// code is the status of the error of an operation, or 0.
func (o *operations) code(id string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	if one := o.all[id]; one != nil {
		return one.code
	}
	return 0
}

// serve responds to a call about one of the operations; nil: it is about something else.
func (o *operations) serve(c *call) *reply {
	if len(c.path) < 2 || c.path[0] != "operations" {
		return nil
	}
	o.mu.Lock()
	one := o.all[c.path[1]]
	o.mu.Unlock()
	switch {
	case one == nil:
		return nil
	case c.Method != http.MethodGet:
		return refuse(http.StatusBadRequest, "This operation can't be cancelled")
	case isWait(c):
		ctx, cancel := context.WithCancel(c.Context())
		if seconds, err := strconv.Atoi(c.URL.Query().Get("timeout")); err == nil && seconds >= 0 {
			ctx, cancel = context.WithTimeout(ctx, time.Duration(seconds)*time.Second)
		}
		defer cancel()
		select {
		case <-one.done:
		case <-ctx.Done():
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return done(normal(one.shown))
}

// list adds the operations to the daemon's own.
func (o *operations) list(c *call, got *reply) {
	all := got.objectAt("metadata")
	if all == nil || !c.is(http.MethodGet, "operations") {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(o.all)) {
		one := o.all[id]
		if c.URL.Query().Get("all-projects") == "" && one.project != c.project() {
			continue
		}
		var shown any = "/1.0/operations/" + id
		if depth := c.URL.Query().Get("recursion"); depth != "" && depth != "0" {
			shown = normal(one.shown)
		}
		state := strings.ToLower(one.shown["status"].(string))
		others, _ := all[state].([]any)
		all[state] = append(others, shown)
	}
}

// tell sends events of an operation.
func (o *operations) tell(one *operation) {
	for _, to := range o.told {
		to(one.project, normal(one.shown))
	}
}

// follow calls back with each change of an operation, until stop.
func (o *operations) follow(to teller) (stop func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last++
	id := o.last
	o.told[id] = to
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.told, id)
	}
}
