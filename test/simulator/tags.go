// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"regexp"
	"slices"
	"sort"
	"strings"
)

// tagName is the pattern of names of tags.
var tagName = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

// maxTagName is the length of the longest name of a tag.
const maxTagName = 256

func renderTag(t *tag) object {
	return object{
		"name": t.name, "comment": t.comment, "definition": "", "kernel_opts": "",
		"resource_uri": apiRoot + "tags/" + t.name + "/",
	}
}

func (rq *request) listTags() (any, error) {
	tags := slices.Clone(rq.db.tags)
	sort.Slice(tags, func(i, j int) bool { return tags[i].name < tags[j].name })
	out := []any{}
	for _, t := range tags {
		out = append(out, renderTag(t))
	}
	return out, nil
}

func (rq *request) tagFor() (*tag, error) {
	if t := rq.tagByName(rq.vars[0]); t != nil {
		return t, nil
	}
	return nil, notFound("Tag")
}

// mayEditTags refuses who may not edit tags (maasserver/api/tags.py).
func (rq *request) mayEditTags() error { return rq.check(editGlobalEntities, forbidden("")) }

// tagToEdit returns the tag of the path. Who may not edit tags does not learn whether there is one.
func (rq *request) tagToEdit() (*tag, error) {
	if err := rq.mayEditTags(); err != nil {
		return nil, err
	}
	return rq.tagFor()
}

func (rq *request) createTag() (any, error) {
	if err := rq.mayEditTags(); err != nil {
		return nil, err
	}
	t := &tag{}
	if err := rq.editTag(t); err != nil {
		return nil, err
	}
	rq.db.tags = append(rq.db.tags, t)
	return renderTag(t), nil
}

func (rq *request) editTag(t *tag) error {
	name := t.name
	if rq.data.has("name") {
		name = strings.TrimSpace(rq.data.get("name"))
	}
	switch other := rq.tagByName(name); {
	case name == "":
		return invalidField("name", "This field is required.")
	case len(name) > maxTagName:
		return invalidField("name", "Ensure this value has at most %d characters (it has %d).", maxTagName, len(name))
	case !tagName.MatchString(name):
		return invalidField("name", "Enter a valid value.")
	case other != nil && other != t:
		return invalidField("name", "Tag with this Name already exists.")
	}
	t.name = name
	if rq.data.has("comment") {
		t.comment = strings.TrimSpace(rq.data.get("comment")) // As Django's forms do.
	}
	return nil
}

func (rq *request) updateTag() (any, error) {
	t, err := rq.tagToEdit()
	if err != nil {
		return nil, err
	}
	if err := rq.editTag(t); err != nil {
		return nil, err
	}
	return renderTag(t), nil
}

func (rq *request) deleteTag() (any, error) {
	t, err := rq.tagToEdit()
	if err != nil {
		return nil, err
	}
	for _, m := range rq.db.machines {
		m.tags = slices.DeleteFunc(m.tags, func(o *tag) bool { return o == t })
	}
	rq.db.tags = slices.DeleteFunc(rq.db.tags, func(o *tag) bool { return o == t })
	return noContent{}, nil
}

func (rq *request) tagMachines() (any, error) {
	t, err := rq.tagFor()
	if err != nil {
		return nil, err
	}
	out := []any{}
	for _, m := range rq.db.machines {
		if slices.Contains(m.tags, t) && rq.among(rq.user, m, mayView) {
			out = append(out, rq.renderMachine(m))
		}
	}
	return out, nil
}

// tagForNodes returns the tag of update_nodes. Up to 3.4 rack controllers may change it, too, and so everybody learns
// whether there is one.
func (rq *request) tagForNodes() (*tag, error) {
	if rq.version.AtLeast(3, 5, 0) {
		return rq.tagToEdit()
	}
	t, err := rq.tagFor()
	if err == nil && !rq.user.admin {
		return nil, forbidden("Must be a superuser or supply a rack_controller")
	}
	return t, err
}

// updateTagNodes adds the tag to machines and removes it from others, whoever has them. It passes over ids that no
// machine has.
func (rq *request) updateTagNodes() (any, error) {
	t, err := rq.tagForNodes()
	if err != nil {
		return nil, err
	}
	added, removed := 0, 0
	for _, m := range rq.db.machines {
		if slices.Contains(rq.data.list("add"), m.systemID) {
			added++
			if !slices.Contains(m.tags, t) {
				m.tags = append(m.tags, t)
			}
		}
		if slices.Contains(rq.data.list("remove"), m.systemID) {
			removed++
			m.tags = slices.DeleteFunc(m.tags, func(o *tag) bool { return o == t })
		}
	}
	return object{"added": added, "removed": removed}, nil
}
