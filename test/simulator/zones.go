// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"regexp"
	"slices"
	"sort"
)

// modelName is the pattern of names of zones, pools and tags.
var modelName = regexp.MustCompile(`^\w[ \w-]*$`)

const badModelName = "Enter a valid value."

func (rq *request) listZones() (any, error) {
	zones := slices.Clone(rq.db.zones)
	sort.Slice(zones, func(i, j int) bool { return zones[i].name < zones[j].name })
	out := []any{}
	for _, z := range zones {
		out = append(out, renderZone(z))
	}
	return out, nil
}

func (rq *request) createZone() (any, error) {
	if err := rq.check(editGlobalEntities, adminOnly()); err != nil {
		return nil, err
	}
	if rq.data.get("name") == "" {
		return nil, invalidField("name", "This field is required.")
	}
	z := &zone{name: rq.data.get("name"), description: rq.data.get("description")}
	z.id = rq.db.next("zone")
	rq.db.zones = append(rq.db.zones, z)
	return renderZone(z), nil
}

// deleteZone moves the zone's objects to the default one.
func (rq *request) deleteZone() (any, error) {
	if err := rq.check(editGlobalEntities, adminOnly()); err != nil {
		return nil, err
	}
	first, z := rq.db.zones[0], rq.zoneByName(rq.vars[0])
	if z == nil {
		return noContent{}, nil // it does not exist, as wanted
	}
	for _, m := range rq.nodes() {
		if m.zone == z {
			m.zone = first
		}
	}
	for _, h := range rq.db.hosts {
		if h.zone == z {
			h.zone = first
		}
	}
	rq.db.zones = slices.DeleteFunc(rq.db.zones, func(o *zone) bool { return o == z })
	return noContent{}, nil
}
