// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTagsAreListed(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		name := uniqueName()
		m.deleteAfter(t, "tags/"+name+"/")
		made := m.create(t, "tags/", "name", name, "comment", "of the suite").object(t)
		checkShape(t, "tag", made, shapes["tag"])
		if made.str("comment") != "of the suite" {
			t.Errorf("tag %v, want its comment", made)
		}
		if !has(m.get(t, "tags/").list(t), "name", name) {
			t.Errorf("tags/ does not list %s", name)
		}
	})
}

func TestDuplicateTagIsRefused(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		m.create(t, "tags/", "name", m.newTag(t)).refusesField(t, "name", "Tag with this Name already exists.")
	})
}

func TestTagWithABadNameIsRefused(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		m.create(t, "tags/", "name", "a b").refusesField(t, "name", "Enter a valid value.")
		m.create(t, "tags/", "name", strings.Repeat("x", 257)).refusesField(t, "name", "Ensure this value has at most 256 characters (it has 257).")
		m.create(t, "tags/", "comment", "nameless").refusesField(t, "name", "This field is required.")
	})
}

// A field that the request does not have keeps its value (APIEditMixin in maasserver/forms/__init__.py).
func TestCommentOfATagIsChanged(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		name := uniqueName()
		m.deleteAfter(t, "tags/"+name+"/")
		m.create(t, "tags/", "name", name, "comment", "before").object(t)
		changed := m.put(t, "tags/"+name+"/", "comment", " after: a=b; c, d ").object(t)
		if changed.str("comment") != "after: a=b; c, d" || changed.str("name") != name {
			t.Errorf("%v, want only another comment", changed)
		}
		m.put(t, "tags/nosuch-"+name+"/", "comment", "x").refuses(t, http.StatusNotFound, "No Tag matches the given query.")
	})
}

func TestMissingTagIsNotFound(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		path := "tags/" + uniqueName() + "/"
		for _, got := range []*answer{
			m.get(t, path, "op", "machines"), m.delete(t, path), m.op(t, path, "update_nodes", "add", m.newMachine(t).str("system_id")),
		} {
			got.refuses(t, http.StatusNotFound, "No Tag matches the given query.")
		}
	})
}

// Everybody may read tags, and only administrators change them and which machines have them (TagsHandler and TagHandler in
// maasserver/api/tags.py).
func TestTagsAreChangedByAdministrators(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		plain, machine := m.asPlainUser(t), m.newMachine(t)
		tag := m.newTag(t, machine)
		path, missing := "tags/"+tag+"/", "tags/"+uniqueName()+"/"
		refuses := func(got *answer) {
			t.Helper()
			if m.facts.entitlements {
				got.refuses(t, http.StatusForbidden, "can_edit_global_entities")
				return
			}
			got.refusesSilently(t, http.StatusForbidden)
		}
		refuses(plain.create(t, "tags/", "name", uniqueName()))
		for _, path := range []string{path, missing} {
			refuses(plain.put(t, path, "comment", "mine"))
			refuses(plain.delete(t, path))
		}
		for path, status := range map[string]int{path: http.StatusForbidden, missing: http.StatusNotFound} {
			got := plain.op(t, path, "update_nodes", "remove", machine.str("system_id"))
			if m.facts.tagsOfRacks {
				got.refuses(t, status)
				continue
			}
			refuses(got)
		}
		if ids := systemIDs(plain.get(t, path, "op", "machines").list(t)); !cmp.Equal(ids, systemIDs([]object{machine})) {
			t.Errorf("machines of the tag: %v, want %s", ids, machine.str("system_id"))
		}
		if !has(plain.get(t, "tags/").list(t), "name", tag) {
			t.Errorf("tags/ does not list %s", tag)
		}
	})
}

func TestUpdateNodesPassesOverUnknownMachines(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		machine, path := m.newMachine(t).str("system_id"), "tags/"+m.newTag(t)+"/"
		for range 2 { // Again, and it is no error.
			got := m.op(t, path, "update_nodes", "add", machine, "add", "nosuch").object(t)
			if got.num("added") != 1 || got.num("removed") != 0 {
				t.Errorf("%v, want 1 added and 0 removed", got)
			}
		}
	})
}

// not_tags excludes machines that have any of the tags, and a tag that does not exist excludes none
// (maasserver/node_constraint_filter_forms.py: NODE_EXCLUDES).
func TestAllocateWithoutTaggedMachines(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		machine, missing := m.spare(t), uniqueName()
		tag := m.newTag(t, machine)
		constraints := []string{"system_id", machine.str("system_id"), "dry_run", "true", "not_tags", missing}
		if got := m.allocate(t, constraints...).object(t); got.str("system_id") != machine.str("system_id") {
			t.Errorf("allocated %s, want %s", got.str("system_id"), machine.str("system_id"))
		}
		m.allocate(t, append(constraints, "not_tags", tag)...).refuses(t, http.StatusConflict)
	})
}

func TestTagIsPutOnMachinesAndTakenOff(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		a, b, tag := m.newMachine(t), m.newMachine(t), m.newTag(t)
		path := "tags/" + tag + "/"
		got := m.op(t, path, "update_nodes", "add", a.str("system_id"), "add", b.str("system_id")).object(t)
		if got.num("added") != 2 || got.num("removed") != 0 {
			t.Errorf("%v, want 2 added and 0 removed", got)
		}
		got = m.op(t, path, "update_nodes", "remove", a.str("system_id")).object(t)
		if got.num("added") != 0 || got.num("removed") != 1 {
			t.Errorf("%v, want 0 added and 1 removed", got)
		}
		if ids := systemIDs(m.get(t, path, "op", "machines").list(t)); !cmp.Equal(ids, systemIDs([]object{b})) {
			t.Errorf("machines of the tag: %v, want %s", ids, b.str("system_id"))
		}
		if tags := m.machine(t, b.str("system_id")).strings("tag_names"); !slices.Contains(tags, tag) {
			t.Errorf("tags %v of the machine, want %s among them", tags, tag)
		}
	})
}

func TestDeletedTagIsOffItsMachines(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		machine := m.newMachine(t)
		tag := m.newTag(t, machine)
		m.delete(t, "tags/"+tag+"/").gone(t)
		if tags := m.machine(t, machine.str("system_id")).strings("tag_names"); slices.Contains(tags, tag) {
			t.Errorf("tags %v of the machine, want %s gone", tags, tag)
		}
	})
}
