// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"net/http"
	"strings"
	"testing"
)

// anyImages are the boot resources, at least one.
func (m *maas) anyImages(t *testing.T) []object {
	t.Helper()
	images := m.get(t, "boot-resources/").list(t)
	if len(images) == 0 {
		lacks(t, "there are no boot resources")
	}
	return images
}

func TestBootResourcesHaveTheirShape(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		for _, image := range m.anyImages(t) {
			checkShape(t, "boot resource "+image.str("name"), image, shapes["boot resource"])
			value, told := image["last_deployed"]
			if told != m.facts.lastDeployed || told && !fits(jsonType(value), "s?") {
				t.Errorf("last_deployed is there: %v (%v), want %v in MAAS %s", told, value, m.facts.lastDeployed, m.facts.version)
			}
			if want := "/MAAS/api/2.0/boot-resources/" + image.id("id") + "/"; image.str("resource_uri") != want {
				t.Errorf("resource_uri %q, want %q", image.str("resource_uri"), want)
			}
			if image.str("type") == "Synced" && !strings.Contains(image.str("name"), "/") {
				t.Errorf("synced boot resource %q, want its system and its release", image.str("name"))
			}
		}
	})
}

func TestBootResourcesByType(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		all := m.anyImages(t)
		found := 0
		for query, shown := range map[string]string{"synced": "Synced", "uploaded": "Uploaded"} {
			for _, image := range m.get(t, "boot-resources/", "type", query).list(t) {
				found++
				if image.str("type") != shown {
					t.Errorf("type=%s lists %s %q", query, image.str("type"), image.str("name"))
				}
			}
		}
		if found != len(all) {
			t.Errorf("%d boot resources by type, %d in all", found, len(all))
		}
		m.get(t, "boot-resources/", "type", "nosuch").
			refuses(t, http.StatusBadRequest, "'nosuch' is not a valid boot resource type.")
	})
}

func TestBootResourceAloneHasItsSets(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		image := m.anyImages(t)[0]
		alone := m.get(t, "boot-resources/"+image.id("id")+"/").object(t)
		if alone.part("sets") == nil || alone.str("name") != image.str("name") {
			t.Errorf("%q with sets %v, want %q with an object", alone.str("name"), alone["sets"], image.str("name"))
		}
		if _, listed := image["sets"]; listed {
			t.Error("the list has sets as well")
		}
	})
}
