// SPDX-License-Identifier: Apache-2.0

package played

import (
	"fmt"
	"net/http"
	"net/url"
)

const addressKey, passwordKey, uuidKey = "core.https_address", "core.trust_password", "volatile.uuid"

// otherWords has those of LXD 6.9, which tells who may not see a thing from who may not do it.
func otherWords(_ *Proxy, c *call, next handler) *reply {
	got := next(c)
	if words := map[int]string{http.StatusForbidden: "Certificate is restricted", http.StatusNotFound: "Not Found"}[got.status]; words != "" && got.object != nil {
		got.object["error"] = words
	}
	return got
}

// aboutServer is what LXD reports about itself, more of it to a client that it does not trust.
func aboutServer(p *Proxy, c *call, next handler) *reply {
	got := next(c)
	metadata := got.objectAt("metadata")
	if !c.is(http.MethodGet, "") || metadata == nil {
		return got
	}
	if environment := got.objectAt("metadata", "environment"); environment["server_version"] != nil {
		environment["server_version"] = p.options.Version
		environment["server_lts"] = !p.since("6.0")
		environment["instance_types"] = []string{"container", "virtual-machine"}
	}
	extensions, _ := metadata["api_extensions"].([]any)
	for _, row := range p.rows {
		for _, name := range row.Extensions {
			extensions = append(extensions, name)
		}
	}
	metadata["api_extensions"], metadata["client_certificate"] = extensions, c.who.fingerprint != ""
	if _, has := metadata["config"]; !has {
		metadata["config"] = nil
	}
	return got
}

func serverUUID(p *Proxy, c *call, next handler) *reply {
	switch config := c.config(); {
	case c.is(http.MethodPut, "") && config[uuidKey] != p.store.uuid, c.is(http.MethodPatch, "") && config[uuidKey] != nil && config[uuidKey] != p.store.uuid:
		return refuse(http.StatusBadRequest, "The cluster UUID cannot be changed")
	case c.is("PUT|PATCH", ""):
		return next(c.with(func(config map[string]any) { delete(config, uuidKey) }))
	}
	got := next(c)
	if config := got.objectAt("metadata", "config"); c.is(http.MethodGet, "") && config != nil {
		config[uuidKey] = p.store.uuid
	}
	return got
}

// setsAddress reports whether a call says where LXD shall listen.
func setsAddress(c *call) bool { return c.is("PUT|PATCH", "") && c.config()[addressKey] != nil }

// putBack undoes a change that failed because LXD could not listen.
func putBack(p *Proxy, c *call, next handler) *reply {
	if !setsAddress(c) {
		return next(c)
	}
	before := p.ask(c.Context(), client{}, http.MethodGet, "/1.0", nil).objectAt("metadata", "config")
	got := next(c)
	if got.status == http.StatusInternalServerError {
		for key := range c.config() {
			if before[key] == nil {
				before[key] = ""
			}
		}
		delete(before, passwordKey) // LXD shows only that there is one.
		p.ask(c.Context(), client{}, http.MethodPatch, "/1.0", map[string]any{"config": before})
	}
	return got
}

// keepRest does again what was undone but for the address.
func keepRest(p *Proxy, c *call, next handler) *reply {
	got := next(c)
	if setsAddress(c) && got.status == http.StatusInternalServerError {
		rest := c.with(func(config map[string]any) { delete(config, addressKey); delete(config, uuidKey) })
		p.ask(c.Context(), client{}, http.MethodPatch, "/1.0", rest.sent)
	}
	return got
}

func noPassword(_ *Proxy, c *call, next handler) *reply {
	value, sent := c.config()[passwordKey]
	switch {
	case sent && c.is("PUT|PATCH", ""):
		return refuse(http.StatusBadRequest, fmt.Sprintf("Cannot set %q to %q: Unknown key", passwordKey, value))
	case c.is(http.MethodPost, "certificates") && c.text("password") != "":
		return refuse(http.StatusNotImplemented, "Password authentication is no longer supported, please update your client")
	}
	return next(c)
}

func uniqueNames(p *Proxy, c *call, next handler) *reply {
	name, own := c.text("name"), ""
	switch {
	case name == "" || c.sent["token"] == true:
		return next(c)
	case c.is("PUT|PATCH", "certificates/*"):
		own = p.store.of(c.path[1])
	case c.is(http.MethodPost, "certificates"):
		if sent, _ := read(c.text("certificate")); sent != nil {
			own = fingerprint(p.store.stand(sent))
		}
	default:
		return next(c)
	}
	list, _ := p.ask(c.Context(), client{}, http.MethodGet, "/1.0/certificates?recursion=1", nil).at("metadata").([]any)
	for _, one := range list {
		if at(one, "name") == name && at(one, "fingerprint") != own {
			return refuse(http.StatusConflict, "An identity with this name and authentication method already exists")
		}
	}
	return next(c)
}

// otherProjects asks LXD whether a key is for a project.
func otherProjects(p *Proxy, c *call, next handler) *reply {
	if c.who.https && (c.is(http.MethodGet, "images") || c.is(http.MethodGet, "operations")) && c.URL.Query().Get("all-projects") == "" &&
		p.ask(c.Context(), c.who, http.MethodGet, "/1.0", nil).at("metadata", "auth") == "trusted" {
		if p.ask(c.Context(), c.who, http.MethodGet, "/1.0/projects/"+url.PathEscape(c.project()), nil).status == http.StatusForbidden {
			return refuse(http.StatusForbidden, "Certificate is restricted")
		}
	}
	return next(c)
}

func buckets(_ *Proxy, c *call, next handler) *reply {
	const key = "features.storage.buckets"
	if c.is(http.MethodPost, "projects") || c.is("PUT|PATCH", "projects/*") {
		c = c.with(func(config map[string]any) { delete(config, key) })
	}
	got := next(c)
	if c.is(http.MethodGet, "projects") || c.is(http.MethodGet, "projects/*") {
		eachConfig(got.object, func(config map[string]any) {
			if volumes := config["features.storage.volumes"]; volumes != nil {
				config[key] = volumes
			}
		})
	}
	return got
}

// eachConfig calls do with all configurations in a response.
func eachConfig(value any, do func(config map[string]any)) {
	switch v := value.(type) {
	case []any:
		for _, one := range v {
			eachConfig(one, do)
		}
	case map[string]any:
		for _, key := range []string{"config", "expanded_config"} {
			if config, ok := v[key].(map[string]any); ok {
				do(config)
			}
		}
		for _, one := range v {
			eachConfig(one, do)
		}
	}
}

// identity is that of a certificate: none of those that are played has its rights by groups.
func identity(p *Proxy, c *call, next handler) *reply {
	if !c.is(http.MethodGet, "auth/identities/current") {
		return next(c)
	}
	if !c.who.https || p.ask(c.Context(), c.who, http.MethodGet, "/1.0", nil).at("metadata", "auth") != "trusted" {
		return refuse(http.StatusForbidden, "Forbidden")
	}
	return done(map[string]any{"authentication_method": "tls", "type": "Client certificate (restricted)", "fine_grained": false})
}
