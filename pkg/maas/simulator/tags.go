// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"regexp"
	"slices"
	"sort"
)

// tagName is the pattern of names of tags.
var tagName = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

func renderTag(t *tag) object {
	return object{
		"name": t.name, "comment": t.comment, "definition": t.definition, "kernel_opts": t.kernelOpts,
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

func (rq *request) readTag() (any, error) {
	t, err := rq.tagFor()
	if err != nil {
		return nil, err
	}
	return renderTag(t), nil
}

func (rq *request) createTag() (any, error) {
	if !rq.user.admin {
		return nil, forbidden("")
	}
	t := &tag{}
	if err := rq.editTag(t); err != nil {
		return nil, err
	}
	rq.db.tags = append(rq.db.tags, t)
	return renderTag(t), nil
}

func (rq *request) editTag(t *tag) error {
	name := orDefault(rq.data.get("name"), t.name)
	switch other := rq.tagByName(name); {
	case name == "":
		return invalidField("name", "This field is required.")
	case !tagName.MatchString(name):
		return invalidField("name", "Enter a valid value.")
	case other != nil && other != t:
		return invalidField("name", "Tag with this Name already exists.")
	}
	t.name = name
	for key, to := range map[string]*string{"comment": &t.comment, "definition": &t.definition, "kernel_opts": &t.kernelOpts} {
		if rq.data.has(key) {
			*to = rq.data.get(key)
		}
	}
	return nil
}

func (rq *request) updateTag() (any, error) {
	t, err := rq.tagFor()
	if err != nil {
		return nil, err
	}
	if !rq.user.admin {
		return nil, forbidden("")
	}
	if err := rq.editTag(t); err != nil {
		return nil, err
	}
	return renderTag(t), nil
}

func (rq *request) deleteTag() (any, error) {
	t, err := rq.tagFor()
	if err != nil {
		return nil, err
	}
	if !rq.user.admin {
		return nil, forbidden("")
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
		if slices.Contains(m.tags, t) && allowed(rq.user, m, mayView) {
			out = append(out, rq.renderMachine(m))
		}
	}
	return out, nil
}

// updateTagNodes adds the tag to machines and removes it from others.
func (rq *request) updateTagNodes() (any, error) {
	t, err := rq.tagFor()
	if err != nil {
		return nil, err
	}
	if !rq.user.admin {
		return nil, forbidden("Must be a superuser or supply a rack_controller")
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
