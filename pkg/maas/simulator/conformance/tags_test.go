// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTagsAreListedAndRead(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		name := uniqueName()
		m.deleteAfter(t, "tags/"+name+"/")
		made := m.create(t, "tags/", "name", name, "comment", "of the suite", "kernel_opts", "nomodeset").object(t)
		checkShape(t, "tag", made, shapes["tag"])
		alone := m.get(t, "tags/"+name+"/").object(t)
		if alone.str("comment") != "of the suite" || alone.str("kernel_opts") != "nomodeset" {
			t.Errorf("tag %v, want its comment and kernel options", alone)
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
		for _, op := range []string{"machines", "nodes"} {
			if ids := systemIDs(m.get(t, path, "op", op).list(t)); !cmp.Equal(ids, systemIDs([]object{b})) {
				t.Errorf("%s of the tag: %v, want %s", op, ids, b.str("system_id"))
			}
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
