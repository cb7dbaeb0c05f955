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

func (rq *request) zoneFor() (*zone, error) {
	if z := rq.zoneByName(rq.vars[0]); z != nil {
		return z, nil
	}
	return nil, notFound("Zone")
}

func (rq *request) readZone() (any, error) {
	z, err := rq.zoneFor()
	if err != nil {
		return nil, err
	}
	return renderZone(z), nil
}

func (rq *request) createZone() (any, error) {
	if err := rq.check(editGlobalEntities, adminOnly()); err != nil {
		return nil, err
	}
	z := &zone{}
	if err := rq.editZone(z); err != nil {
		return nil, err
	}
	z.id = rq.db.next("zone")
	rq.db.zones = append(rq.db.zones, z)
	return renderZone(z), nil
}

func (rq *request) editZone(z *zone) error {
	name := orDefault(rq.data.get("name"), z.name)
	switch other := rq.zoneByName(name); {
	case name == "":
		return invalidField("name", "This field is required.")
	case !modelName.MatchString(name):
		return invalidField("name", badModelName)
	case other != nil && other != z:
		return invalidField("name", "Physical zone with this Name already exists.")
	case z == rq.db.zones[0] && name != z.name:
		return invalidField("name", "This zone is the default zone, it cannot be renamed.")
	}
	z.name = name
	if rq.data.has("description") {
		z.description = rq.data.get("description")
	}
	return nil
}

func (rq *request) updateZone() (any, error) {
	if err := rq.check(editGlobalEntities, adminOnly()); err != nil {
		return nil, err
	}
	z, err := rq.zoneFor()
	if err != nil {
		return nil, err
	}
	if err := rq.editZone(z); err != nil {
		return nil, err
	}
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
	if z == first {
		return nil, badRequest("This zone is the default zone, it cannot be deleted.")
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
