// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"slices"
	"sort"
	"strconv"
)

func (rq *request) listPools() (any, error) {
	pools := slices.Clone(rq.db.pools)
	sort.Slice(pools, func(i, j int) bool { return pools[i].name < pools[j].name })
	out := []any{}
	for _, p := range pools {
		out = append(out, renderPool(p))
	}
	return out, nil
}

func (rq *request) poolFor() (*pool, error) {
	id, err := strconv.Atoi(rq.vars[0])
	for _, p := range rq.db.pools {
		if err == nil && p.id == id {
			return p, nil
		}
	}
	return nil, notFound("ResourcePool")
}

func (rq *request) readPool() (any, error) {
	p, err := rq.poolFor()
	if err != nil {
		return nil, err
	}
	if rq.hasEntitlements() && !rq.mayIn(rq.user, viewAvailableMachines, p) {
		return nil, forbidden("")
	}
	return renderPool(p), nil
}

func (rq *request) createPool() (any, error) {
	if err := rq.need(editMachines); err != nil {
		return nil, err
	}
	p := &pool{id: -1}
	if err := rq.editPool(p); err != nil {
		return nil, err
	}
	p.id = rq.db.next("pool")
	rq.db.pools = append(rq.db.pools, p)
	return renderPool(p), nil
}

func (rq *request) editPool(p *pool) error {
	name := orDefault(rq.data.get("name"), p.name)
	switch other := rq.poolByName(name); {
	case name == "":
		return invalidField("name", "This field is required.")
	case !modelName.MatchString(name):
		return invalidField("name", badModelName)
	case other != nil && other != p:
		return invalidField("name", "Resource pool with this Name already exists.")
	}
	p.name = name
	if rq.data.has("description") {
		p.description = rq.data.get("description")
	}
	return nil
}

func (rq *request) updatePool() (any, error) {
	p, err := rq.poolFor()
	if err != nil {
		return nil, err
	}
	if !rq.mayIn(rq.user, editMachines, p) {
		return nil, forbidden("")
	}
	if err := rq.editPool(p); err != nil {
		return nil, err
	}
	return renderPool(p), nil
}

func (rq *request) deletePool() (any, error) {
	p, err := rq.poolFor()
	if err != nil {
		return nil, err
	}
	if err := rq.need(editMachines); err != nil {
		return nil, err
	}
	for _, g := range rq.db.groups {
		g.grants = slices.DeleteFunc(g.grants, func(has grant) bool { return has.pool == p })
	}
	rq.db.pools = slices.DeleteFunc(rq.db.pools, func(o *pool) bool { return o == p })
	return noContent{}, nil
}
