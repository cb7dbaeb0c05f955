// SPDX-License-Identifier: Apache-2.0

package played

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Row is a difference between LXD's versions.
type Row struct {
	// ID and Says are the number of the difference and what it is.
	ID, Says string
	// Since is the first version that has it. Until is the last, or "".
	Since, Until string
	// Needs is a test of this repository that fails under the version because of it, if what it tests is wrong.
	Needs string
	// Play sends a call on, and changes it or the response.
	Play func(p *Proxy, c *call, next handler) *reply
}

// Rows are all differences that are played, the outermost first.
var Rows = []Row{
	{ID: "1", Since: "5.21.0", Says: "/wait of an operation that failed is an error, with status 200", Play: waitFails},
	{ID: "1b", Since: "5.21.0", Says: "/wait of an operation that still runs is an error, with status 200", Play: waitEnds},
	{ID: "1c", Since: "6.8", Says: "operations have err_code", Play: withCode},
	{ID: "1d", Since: "", Until: "6.7", Says: "operations have none", Play: withoutCode},
	{ID: "2", Since: "5.21.5", Says: "two certificates can't have one name", Play: uniqueNames},
	{ID: "3", Since: "6.7", Says: "security.secureboot is refused; boot.mode replaces it", Play: bootMode},
	{ID: "4", Since: "6.6", Says: "changes of volumes are operations", Play: volumesLater},
	{ID: "5", Since: "6.8", Says: "changes of pools and networks are operations", Play: poolsLater},
	{ID: "6", Since: "6.6", Says: "changes of profiles are operations", Play: profilesLater},
	{ID: "6b", Since: "6.7", Says: "the deletion of a project is an operation", Play: projectsLater},
	{ID: "ext", Since: "5.21.0", Says: "the version and the API extensions", Play: aboutServer},
}

// since returns the rows that hold for a version.
func since(version string) ([]Row, error) {
	wanted, err := parse(version)
	if err != nil {
		return nil, err
	}
	var hold []Row
	for _, row := range Rows {
		first, err := parse(cmp.Or(row.Since, "0"))
		if err != nil {
			return nil, err
		}
		last, err := parse(cmp.Or(row.Until, "99"))
		if err != nil {
			return nil, err
		}
		if slices.Compare(first, wanted) <= 0 && slices.Compare(wanted, last) <= 0 {
			hold = append(hold, row)
		}
	}
	return hold, nil
}

func parse(version string) (numbers []int, err error) {
	for part := range strings.SplitSeq(version, ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return nil, fmt.Errorf("LXD %q is no version: %w", version, err)
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}

func isWait(c *call) bool { return c.is(http.MethodGet, "operations/*/wait") }

// waitFails loses the operation: its error is all that there is.
func waitFails(_ *Proxy, c *call, next handler) *reply {
	got := next(c)
	if text, _ := got.at("metadata", "err").(string); isWait(c) && text != "" {
		got.object = problem(cmp.Or(got.number("metadata", "err_code"), codeOf(text)), text)
	}
	return got
}

// codeOf is the code of an error that LXD 5.0 reports by its text alone.
func codeOf(text string) int {
	switch {
	case strings.HasSuffix(text, "not found"):
		return http.StatusNotFound
	case strings.Contains(text, "already exists"):
		return http.StatusConflict
	}
	return http.StatusInternalServerError
}

func waitEnds(_ *Proxy, c *call, next handler) *reply {
	got := next(c)
	if isWait(c) && got.at("metadata", "may_cancel") != nil && got.number("metadata", "status_code") < http.StatusOK {
		got.object = problem(http.StatusInternalServerError, "context deadline exceeded")
	}
	return got
}

func withCode(_ *Proxy, c *call, next handler) *reply {
	got := next(c)
	eachOperation(got, func(shown map[string]any) {
		if shown["err_code"] == nil {
			code := 0
			if text, _ := shown["err"].(string); text != "" {
				code = codeOf(text)
			}
			shown["err_code"] = code
		}
	})
	return got
}

func withoutCode(_ *Proxy, c *call, next handler) *reply {
	got := next(c)
	eachOperation(got, func(shown map[string]any) { delete(shown, "err_code") })
	return got
}

// eachOperation calls do with the operations in a response: one, or those of a list.
func eachOperation(got *reply, do func(map[string]any)) {
	if got == nil {
		return
	}
	metadata, _ := got.at("metadata").(map[string]any)
	if metadata["class"] != nil && metadata["may_cancel"] != nil {
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

func uniqueNames(p *Proxy, c *call, next handler) *reply {
	name, _ := c.sent["name"].(string)
	if !c.is(http.MethodPost, "certificates") && !c.is(http.MethodPut, "certificates/*") && !c.is(http.MethodPatch, "certificates/*") ||
		name == "" || c.sent["token"] == true {
		return next(c)
	}
	own := ""
	if len(c.path) == 2 {
		own = p.store.of(c.path[1])
	} else if text, _ := c.sent["certificate"].(string); text != "" {
		if sent, _ := read(text); sent != nil { // LXD's own refusal
			own = fingerprint(p.store.stand(sent))
		}
	}
	got := p.ask(c.Context(), client{}, http.MethodGet, "/1.0/certificates?recursion=1", nil)
	if got == nil {
		return nil
	}
	list, _ := got.at("metadata").([]any)
	for _, one := range list {
		if at(one, "name") == name && at(one, "fingerprint") != own {
			return refuse(http.StatusConflict, "An identity with this name and authentication method already exists")
		}
	}
	return next(c)
}

const (
	oldBoot = "security.secureboot"
	newBoot = "boot.mode"
)

// bootMode knows boot.mode alone. The daemon's key is the old one, also that of a VM that was made with it.
func bootMode(p *Proxy, c *call, next handler) *reply {
	refused := fmt.Sprintf("Unknown configuration key: %q", oldBoot)
	config, _ := c.sent["config"].(map[string]any)
	_, old := config[oldBoot]
	value, isNew := config[newBoot].(string)
	switch {
	case old && c.is(http.MethodPost, "instances"):
		return p.operations.begin(c, "Creating instance", func() *reply {
			return refuse(http.StatusInternalServerError, "Failed creating instance record: Invalid config: "+refused)
		})
	case old && (c.is(http.MethodPut, "instances/*")):
		return p.operations.begin(c, "Updating instance", func() *reply {
			return refuse(http.StatusInternalServerError, "Invalid config: "+refused)
		})
	case old && c.is(http.MethodPatch, "instances/*"):
		return refuse(http.StatusInternalServerError, "Invalid config: "+refused)
	case old && (c.is("", "profiles") || c.is("", "profiles/*")):
		return refuse(http.StatusBadRequest, refused)
	case isNew:
		changed := *c
		changed.sent = maps.Clone(c.sent)
		config = maps.Clone(config)
		changed.sent["config"] = config
		delete(config, newBoot)
		config[oldBoot] = strings.NewReplacer("uefi-secureboot", "true", "uefi-nosecureboot", "false").Replace(value)
		c = &changed
	}
	got := next(c)
	if got != nil && len(c.path) > 0 && c.path[0] != "operations" {
		showBoot(got.object)
	}
	return got
}

// showBoot renames the key in all configurations in a response.
func showBoot(value any) {
	switch v := value.(type) {
	case []any:
		for _, one := range v {
			showBoot(one)
		}
	case map[string]any:
		if value, found := v[oldBoot].(string); found {
			delete(v, oldBoot)
			v[newBoot] = "uefi-secureboot"
			if value == "false" {
				v[newBoot] = "uefi-nosecureboot"
			}
		}
		for _, one := range v {
			showBoot(one)
		}
	}
}

func volumesLater(p *Proxy, c *call, next handler) *reply {
	switch {
	case c.sent != nil && c.is(http.MethodPost, "storage-pools/*/volumes"), c.sent != nil && c.is(http.MethodPost, "storage-pools/*/volumes/custom"):
		name, _ := c.sent["name"].(string)
		pool := "/1.0/storage-pools/" + c.path[1]
		if got := p.ask(c.Context(), c.who, http.MethodGet, pool, nil); got == nil || got.failed() {
			return got
		}
		got := p.ask(c.Context(), c.who, http.MethodGet, pool+"/volumes/custom/"+name+c.inProject(), nil)
		switch {
		case got == nil:
			return nil
		case got.status == http.StatusOK:
			return refuse(http.StatusConflict, "Volume by that name already exists")
		}
		return p.later(c, next, "Creating storage volume")
	case c.is("", "storage-pools/*/volumes/custom/*"):
		return p.changeLater(c, next, "storage volume")
	}
	return next(c)
}

func poolsLater(p *Proxy, c *call, next handler) *reply {
	for path, what := range map[string]string{"storage-pools": "storage pool", "networks": "network"} {
		name, _ := c.sent["name"].(string)
		switch {
		case c.is(http.MethodPost, path) && name != "" && !strings.ContainsAny(name, "/ "):
			return p.later(c, next, "Creating "+what)
		case c.is("", path+"/*"):
			return p.changeLater(c, next, what)
		}
	}
	return next(c)
}

func profilesLater(p *Proxy, c *call, next handler) *reply {
	if c.is(http.MethodPut, "profiles/*") || c.is(http.MethodPatch, "profiles/*") {
		return p.changeLater(c, next, "profile")
	}
	return next(c)
}

func projectsLater(p *Proxy, c *call, next handler) *reply {
	if c.is(http.MethodDelete, "projects/*") {
		return p.changeLater(c, next, "project")
	}
	return next(c)
}

// later makes an operation of a call. Who may not do it is refused at once: LXD checks that before it reads what is sent.
func (p *Proxy) later(c *call, next handler, description string) *reply {
	if c.who.address != "" {
		probe := p.ask(c.Context(), c.who, c.Method, c.URL.RequestURI(), map[string]any{})
		if probe == nil || probe.status == http.StatusForbidden || probe.status == http.StatusNotFound {
			return probe
		}
	}
	c = c.background()
	return p.operations.begin(c, description, func() *reply { return next(c) })
}

// changeLater makes operations of changes of what there is, with the ETag that the client has read.
func (p *Proxy) changeLater(c *call, next handler, what string) *reply {
	doing := map[string]string{
		http.MethodPut: "Updating ", http.MethodPatch: "Updating ", http.MethodPost: "Renaming ", http.MethodDelete: "Deleting ",
	}[c.Method]
	if doing == "" {
		return next(c)
	}
	now := p.ask(c.Context(), c.who, http.MethodGet, c.URL.RequestURI(), nil)
	switch etag := c.Header.Get("If-Match"); {
	case now == nil || now.failed():
		return now
	case etag != "" && etag != now.header.Get("ETag"):
		return refuse(http.StatusPreconditionFailed, fmt.Sprintf("ETag doesn't match: %s vs %s", etag, now.header.Get("ETag")))
	}
	c = c.background()
	return p.operations.begin(c, doing+what, func() *reply { return next(c) })
}

// aboutServer is what LXD reports about itself.
func aboutServer(p *Proxy, c *call, next handler) *reply {
	got := next(c)
	if got == nil || !c.is(http.MethodGet, "") || got.at("metadata", "api_extensions") == nil {
		return got
	}
	metadata, _ := got.at("metadata").(map[string]any)
	if environment, ok := metadata["environment"].(map[string]any); ok && environment["server_version"] != nil {
		environment["server_version"] = p.options.Version
	}
	list, _ := metadata["api_extensions"].([]any)
	for _, row := range p.rows {
		for _, name := range extensions[row.ID] {
			list = append(list, name)
		}
	}
	metadata["api_extensions"] = list
	return got
}

// normal is an object as it was decoded.
func normal(object map[string]any) map[string]any {
	text, _ := json.Marshal(object)
	return decode(text)
}

var extensions = map[string][]string{
	"1":  {"explicit_trust_token", "operation_wait", "server_instance_type_info"},
	"3":  {"instance_boot_mode"},
	"4":  {"storage_and_profile_operations"},
	"5":  {"storage_and_network_operations"},
	"6b": {"project_delete_operation"},
}
