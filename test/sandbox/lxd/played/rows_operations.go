// SPDX-License-Identifier: Apache-2.0

package played

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
)

func isWait(c *call) bool { return c.is(http.MethodGet, "operations/*/wait") }

// waitFails loses the operation: its error is all that there is.
func waitFails(p *Proxy, c *call, next handler) *reply {
	got := next(c)
	if text, _ := got.at("metadata", "err").(string); isWait(c) && text != "" {
		got.object = problem(p.codeOf(c.path[1], text), text)
	}
	return got
}

// codeOf is the code of an operation's error, of which LXD 5.0 has only the text.
func (p *Proxy) codeOf(id, text string) int {
	code := http.StatusInternalServerError
	switch {
	case text == "":
		code = 0
	case strings.HasSuffix(text, "not found"):
		code = http.StatusNotFound
	case strings.HasSuffix(text, "already exists"):
		code = http.StatusConflict
	}
	return cmp.Or(p.operations.code(id), code)
}

func waitEnds(_ *Proxy, c *call, next handler) *reply {
	got := next(c)
	if isWait(c) && got.at("metadata", "status") == "Running" {
		got.object = problem(http.StatusInternalServerError, "context deadline exceeded")
	}
	return got
}

func withCode(p *Proxy, c *call, next handler) *reply {
	got := next(c)
	eachOperation(got, func(shown map[string]any) {
		id, _ := shown["id"].(string)
		text, _ := shown["err"].(string)
		shown["err_code"] = p.codeOf(id, text)
	})
	return got
}

// eachOperation calls do with the operations in a response: one, or those of a list.
func eachOperation(got *reply, do func(map[string]any)) {
	metadata := got.objectAt("metadata")
	if metadata["may_cancel"] != nil {
		do(metadata)
	}
	for _, list := range metadata {
		list, _ := list.([]any)
		for _, one := range list {
			if shown, ok := one.(map[string]any); ok && shown["may_cancel"] != nil {
				do(shown)
			}
		}
	}
}

// eachInstance calls do with the operations about an instance, and its URL.
func eachInstance(got *reply, do func(shown map[string]any, at string)) {
	eachOperation(got, func(shown map[string]any) {
		if list, _ := at(shown, "resources", "instances").([]any); len(list) > 0 {
			text, _ := list[0].(string)
			do(shown, text)
		}
	})
}

func namesProject(_ *Proxy, c *call, next handler) *reply {
	got := next(c)
	eachInstance(got, func(shown map[string]any, at string) {
		if c.project() != "default" {
			shown["resources"] = map[string]any{"instances": []any{at + "?project=" + url.QueryEscape(c.project())}}
		}
	})
	return got
}

func madeInstance(_ *Proxy, c *call, next handler) *reply {
	got := next(c)
	eachInstance(got, func(shown map[string]any, at string) {
		if shown["description"] == "Creating instance" {
			shown["resources"], shown["metadata"] = map[string]any{"project": []any{"/1.0/projects/" + c.project()}}, withEntity(shown, at)
		}
	})
	return got
}

func withEntity(shown map[string]any, at string) map[string]any {
	metadata, _ := shown["metadata"].(map[string]any)
	all := map[string]any{"entity_url": at}
	maps.Copy(all, metadata)
	return all
}

func noResources(_ *Proxy, c *call, next handler) *reply {
	got := next(c)
	eachInstance(got, func(shown map[string]any, at string) { shown["metadata"] = withEntity(shown, at) })
	eachOperation(got, func(shown map[string]any) { shown["resources"] = map[string]any{} })
	return got
}

func volumesLater(p *Proxy, c *call, next handler) *reply {
	if c.sent != nil && (c.is(http.MethodPost, "storage-pools/*/volumes") || c.is(http.MethodPost, "storage-pools/*/volumes/custom")) {
		pool := "/1.0/storage-pools/" + c.path[1]
		if got := p.ask(c.Context(), c.who, http.MethodGet, pool, nil); got.refused() {
			return got
		}
		name := url.PathEscape(c.text("name"))
		if got := p.ask(c.Context(), c.who, http.MethodGet, pool+"/volumes/custom/"+name+"?project="+c.project(), nil); !got.refused() {
			return refuse(http.StatusConflict, "Volume by that name already exists")
		}
		return p.makeLater(c, next, "Creating storage volume")
	}
	return p.changeLater(c, next, "storage-pools/*/volumes/custom/*", "POST|PUT|PATCH|DELETE")
}

func poolsLater(p *Proxy, c *call, next handler) *reply {
	for _, kind := range []string{"storage-pools", "networks"} {
		if name := c.text("name"); c.is(http.MethodPost, kind) && name != "" && !strings.ContainsAny(name, "/ ") {
			return p.makeLater(c, next, "Creating "+kind)
		}
		if c.is("POST|PUT|PATCH|DELETE", kind+"/*") {
			return p.changeLater(c, next, kind+"/*", c.Method)
		}
	}
	return next(c)
}

func profilesLater(p *Proxy, c *call, next handler) *reply {
	return p.changeLater(c, next, "profiles/*", "PUT|PATCH")
}

func projectsLater(p *Proxy, c *call, next handler) *reply {
	return p.changeLater(c, next, "projects/*", http.MethodDelete)
}

// makeLater makes an operation of a call. Who may not do it is refused at once: LXD checks that before it reads on.
func (p *Proxy) makeLater(c *call, next handler, description string) *reply {
	if c.who.https {
		nothing := p.ask(c.Context(), c.who, c.Method, c.URL.RequestURI(), map[string]any{})
		if nothing.status == http.StatusForbidden || nothing.status == http.StatusNotFound {
			return nothing
		}
	}
	return p.operations.begin(c, description, next)
}

// changeLater makes an operation of a change, of what is there, has the ETag that the client read, and is not in use if
// it is to be deleted.
func (p *Proxy) changeLater(c *call, next handler, path, methods string) *reply {
	if !c.is(methods, path) {
		return next(c)
	}
	now := p.ask(c.Context(), c.who, http.MethodGet, c.URL.RequestURI(), nil)
	etag, wanted := now.header.Get("ETag"), c.Header.Get("If-Match")
	users, _ := now.at("metadata", "used_by").([]any)
	switch {
	case now.refused():
		return now
	case wanted != "" && wanted != etag:
		return refuse(http.StatusPreconditionFailed, fmt.Sprintf("ETag doesn't match: %s vs %s", etag, wanted))
	case c.Method == http.MethodDelete && len(users) > 0 && c.path[0] == "storage-pools":
		return next(c)
	}
	return p.operations.begin(c, c.Method+" "+strings.Join(c.path, " "), next)
}
