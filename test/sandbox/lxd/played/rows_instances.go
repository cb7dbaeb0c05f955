// SPDX-License-Identifier: Apache-2.0

package played

import (
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"strings"
)

func onlyInstances(_ *Proxy, c *call, next handler) *reply {
	if len(c.path) > 0 && (c.path[0] == "virtual-machines" || c.path[0] == "containers") {
		return refuse(http.StatusNotFound, "Not Found")
	}
	return next(c)
}

const oldBoot, newBoot = "security.secureboot", "boot.mode"

// bootMode knows boot.mode alone. The daemon's key is the old one, so a VM that was made with that shows the new one.
func bootMode(p *Proxy, c *call, next handler) *reply {
	words := fmt.Sprintf("Invalid config: Unknown configuration key: %q", oldBoot)
	fail := func(*call) *reply { return refuse(http.StatusInternalServerError, words) }
	if _, old := c.config()[oldBoot]; old && c.path != nil {
		switch {
		case c.is(http.MethodPost, "instances"), c.is(http.MethodPut, "instances/*"):
			return p.operations.begin(c, "Creating instance", fail)
		case c.is(http.MethodPatch, "instances/*"):
			return fail(c)
		case c.path[0] == "profiles":
			return refuse(http.StatusBadRequest, words)
		}
	}
	if _, sent := c.config()[newBoot].(string); sent {
		c = c.with(func(config map[string]any) {
			config[oldBoot] = strings.NewReplacer("uefi-secureboot", "true", "uefi-nosecureboot", "false").Replace(config[newBoot].(string))
			delete(config, newBoot)
		})
	}
	got := next(c)
	eachConfig(got.object, func(config map[string]any) {
		if value, has := config[oldBoot]; has {
			delete(config, oldBoot)
			config[newBoot] = map[bool]string{true: "uefi-nosecureboot", false: "uefi-secureboot"}[value == "false"]
		}
	})
	return got
}

var instanceName = regexp.MustCompile(`^[a-zA-Z]([-a-zA-Z0-9]{0,61}[a-zA-Z0-9])?$`)

func badName(_ *Proxy, c *call, next handler) *reply {
	got := next(c)
	if name := c.text("name"); c.is(http.MethodPost, "instances") && got.status == http.StatusBadRequest && name != "" && !instanceName.MatchString(name) {
		return refuse(http.StatusInternalServerError, fmt.Sprintf("Invalid instance name: %q", name))
	}
	return got
}

func takenName(p *Proxy, c *call, next handler) *reply {
	if name := c.text("name"); c.is(http.MethodPost, "instances") && instanceName.MatchString(name) {
		at := "/1.0/instances/" + name + "?" + url.Values{"project": {c.project()}}.Encode()
		if !p.ask(c.Context(), c.who, http.MethodGet, at, nil).refused() {
			return refuse(http.StatusConflict, fmt.Sprintf("Instance %q already exists", name))
		}
	}
	return next(c)
}

var isNewVolatile = regexp.MustCompile(`^volatile\.(uuid\.generation|bus\.mode|.*\.bus)$`)

func volatile(_ *Proxy, c *call, next handler) *reply {
	if c.is("PUT|PATCH", "instances/*") {
		c = c.with(func(config map[string]any) {
			for key := range config {
				if isNewVolatile.MatchString(key) {
					delete(config, key)
				}
			}
		})
	}
	got := next(c)
	if c.is(http.MethodGet, "instances") || c.is(http.MethodGet, "instances/*") {
		eachConfig(got.object, func(config map[string]any) {
			if id := config["volatile.vsock_id"]; id != nil { // a VM
				config["volatile.uuid.generation"], config["volatile.bus.mode"], config["volatile.root.bus"] = config["volatile.uuid"], "persistent", "4"
			}
		})
	}
	return got
}

// withoutAgent ends well what LXD 5.0 did, and then could not tell the VM. It fails so for other reasons, too, and has
// done nothing.
func withoutAgent(p *Proxy, c *call, next handler) *reply {
	got := next(c)
	if c.is(http.MethodPatch, "instances/*") && got.status == http.StatusInternalServerError {
		now := p.ask(c.Context(), c.who, http.MethodGet, c.URL.RequestURI(), nil).objectAt("metadata")
		if now["status"] == "Running" && has(now, c.sent) {
			return done(map[string]any{})
		}
	}
	return got
}

// has reports whether an object has all that is in another.
func has(object, wanted map[string]any) bool {
	for key, value := range wanted {
		inner, isObject := value.(map[string]any)
		within, _ := object[key].(map[string]any)
		if isObject && !has(within, inner) || !isObject && !reflect.DeepEqual(object[key], value) {
			return false
		}
	}
	return true
}

// hugepages leaves out what LXD takes there in spite of the project's restrictions.
func hugepages(p *Proxy, c *call, next handler) *reply {
	if c.is(http.MethodPost, "instances") && c.config()["limits.memory.hugepages"] != nil {
		config := p.ask(c.Context(), client{}, http.MethodGet, "/1.0/projects/"+url.PathEscape(c.project()), nil).objectAt("metadata", "config")
		if config["restricted"] == "true" && config["restricted.virtual-machines.lowlevel"] != "allow" {
			c = c.with(func(config map[string]any) { delete(config, "limits.memory.hugepages") })
		}
	}
	return next(c)
}
