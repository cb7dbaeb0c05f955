// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"slices"
	"strconv"
)

// What is here is maasserver/api/usergroups.py.

// onPool is the resource type of entitlements in a pool.
const onPool = "pool"

// allOK is piston's rc.ALL_OK.
const allOK = textReply("OK")

func renderGroup(g *group) object {
	return object{
		"id": g.id, "name": g.name, "description": g.description,
		"resource_uri": fmt.Sprintf("%sgroups/%d/", apiRoot, g.id),
	}
}

func (rq *request) listGroups() (any, error) {
	if err := rq.check(viewIdentities, nil); err != nil {
		return nil, err
	}
	out := []any{}
	for _, g := range rq.db.groups {
		out = append(out, renderGroup(g))
	}
	return out, nil
}

func (rq *request) createGroup() (any, error) {
	if err := rq.check(editIdentities, nil); err != nil {
		return nil, err
	}
	return renderGroup(rq.newGroup(rq.data.get("name"), rq.data.get("description"))), nil
}

// groupFor returns the group of the path for who has an entitlement.
func (rq *request) groupFor(wanted entitlement) (*group, error) {
	if err := rq.check(wanted, nil); err != nil {
		return nil, err
	}
	at := slices.IndexFunc(rq.db.groups, func(g *group) bool { return strconv.Itoa(g.id) == rq.vars[0] })
	if at < 0 {
		return nil, notFoundText("UserGroup with id %s not found.", rq.vars[0])
	}
	return rq.db.groups[at], nil
}

func (rq *request) deleteGroup() (any, error) {
	g, err := rq.groupFor(editIdentities)
	if err != nil {
		return nil, err
	}
	rq.db.groups = slices.DeleteFunc(rq.db.groups, func(o *group) bool { return o == g })
	return noContent{}, nil
}

func (rq *request) listMembers() (any, error) {
	g, err := rq.groupFor(viewIdentities)
	if err != nil {
		return nil, err
	}
	out := []any{}
	for _, u := range g.members {
		out = append(out, object{"username": u.name, "email": u.email})
	}
	return out, nil
}

// memberFor returns the group of the path, and the user of the form.
func (rq *request) memberFor() (*group, *user, error) {
	g, err := rq.groupFor(editIdentities)
	if err != nil {
		return nil, nil, err
	}
	u := rq.userByName(rq.data.get("username"))
	if u == nil {
		return nil, nil, notFoundText("User '%s' not found.", rq.data.get("username"))
	}
	return g, u, nil
}

func (rq *request) addMember() (any, error) {
	g, u, err := rq.memberFor()
	if err != nil {
		return nil, err
	}
	g.members = append(g.members, u)
	return allOK, nil
}

func (rq *request) removeMember() (any, error) {
	g, u, err := rq.memberFor()
	if err != nil {
		return nil, err
	}
	g.members = slices.DeleteFunc(g.members, func(o *user) bool { return o == u })
	return noContent{}, nil
}

// addEntitlement takes what the provider's rights are made of.
func (rq *request) addEntitlement() (any, error) {
	g, err := rq.groupFor(editIdentities)
	if err != nil {
		return nil, err
	}
	given := grant{entitlement: entitlement(rq.data.get("entitlement"))}
	if rq.data.get("resource_type") == onPool {
		at := slices.IndexFunc(rq.db.pools, func(p *pool) bool { return strconv.Itoa(p.id) == rq.data.get("resource_id") })
		if at < 0 {
			return nil, notFoundText("ResourcePool with id %s not found.", rq.data.get("resource_id"))
		}
		given.pool = rq.db.pools[at]
	}
	if !slices.Contains(g.grants, given) {
		g.grants = append(g.grants, given)
	}
	return allOK, nil
}
