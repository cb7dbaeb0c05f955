// SPDX-License-Identifier: Apache-2.0

package played

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"net/url"
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

// operations are those of the proxy: what is done at once in the daemon.
type operations struct {
	mu  sync.Mutex
	all map[string]*operation
	// told get each operation as it is, in an event.
	told map[int]func(project string, metadata map[string]any)
	last int
}

type operation struct {
	project string
	shown   map[string]any
	done    chan struct{}
}

// begin makes an operation of a call, and returns the response. Later do does it.
func (o *operations) begin(c *call, description string, do func() *reply) *reply {
	id, now := string(uuid.NewUUID()), time.Now().UTC()
	began := &operation{project: cmp.Or(c.URL.Query().Get("project"), "default"), done: make(chan struct{}), shown: map[string]any{
		"id": id, "class": "task", "description": description, "created_at": now, "updated_at": now, "status": "Running", "status_code": 103,
		"resources": map[string]any{}, "metadata": map[string]any{}, "may_cancel": false, "err": "", "location": "none",
	}}
	o.mu.Lock()
	o.all[id] = began
	shown := o.tell(began)
	o.mu.Unlock()
	go func() {
		time.Sleep(pause)
		o.end(id, do())
		time.Sleep(remembered)
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.all, id)
	}()
	at := "/1.0/operations/" + id
	return &reply{status: http.StatusAccepted, header: http.Header{"Location": {at}}, object: map[string]any{
		"type": "async", "status": "Operation created", "status_code": 100, "operation": at, "error_code": 0, "error": "", "metadata": normal(shown),
	}}
}

func (o *operations) end(id string, got *reply) {
	o.mu.Lock()
	defer o.mu.Unlock()
	ended := o.all[id]
	ended.shown["updated_at"] = time.Now().UTC()
	ended.shown["status"], ended.shown["status_code"] = "Success", http.StatusOK
	if got == nil {
		got = refuse(http.StatusInternalServerError, "LXD is shutting down")
	}
	if got.failed() {
		ended.shown["status"], ended.shown["status_code"] = "Failure", http.StatusBadRequest
		ended.shown["err"], ended.shown["err_code"] = got.text(), got.status
	}
	o.tell(ended)
	close(ended.done)
}

// tell sends an event, and returns the operation as it is.
func (o *operations) tell(one *operation) map[string]any {
	for _, to := range o.told {
		to(one.project, maps.Clone(one.shown))
	}
	return maps.Clone(one.shown)
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
	case c.is(http.MethodGet, "operations/*"):
	case c.is(http.MethodGet, "operations/*/wait"):
		ctx, cancel := c.Context(), context.CancelFunc(func() {})
		if seconds, err := strconv.Atoi(c.URL.Query().Get("timeout")); err == nil && seconds >= 0 {
			ctx, cancel = context.WithTimeout(ctx, time.Duration(seconds)*time.Second)
		}
		defer cancel()
		select {
		case <-one.done:
		case <-ctx.Done():
		}
	default:
		return refuse(http.StatusBadRequest, "This operation can't be cancelled")
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	shown := maps.Clone(one.shown)
	return sync200(normal(shown))
}

// list adds the operations to the daemon's own.
func (o *operations) list(c *call, got *reply) {
	metadata, ok := map[string]any(nil), false
	if got != nil && c.is(http.MethodGet, "operations") {
		metadata, ok = got.at("metadata").(map[string]any)
	}
	if !ok {
		return
	}
	query := c.URL.Query()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(o.all)) {
		one := o.all[id]
		if query.Get("all-projects") == "" && one.project != cmp.Or(query.Get("project"), "default") {
			continue
		}
		var shown any = "/1.0/operations/" + id
		if recursion, _ := strconv.Atoi(query.Get("recursion")); recursion > 0 {
			shown = normal(maps.Clone(one.shown))
		}
		state := strings.ToLower(one.shown["status"].(string))
		others, _ := metadata[state].([]any)
		metadata[state] = append(others, shown)
	}
}

// background is a call that goes on when its client is gone.
func (c *call) background() *call {
	later := *c
	later.Request = c.WithContext(context.WithoutCancel(c.Context()))
	return &later
}

// inProject is the query of a call's project.
func (c *call) inProject() string {
	return "?" + url.Values{"project": {cmp.Or(c.URL.Query().Get("project"), "default")}}.Encode()
}
