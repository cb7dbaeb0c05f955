// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// What is here is maasserver/api/usergroups.py.

const (
	onMAAS = "maas"
	onPool = "pool"
)

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
	name := rq.data.get("name")
	if name == "" {
		return nil, badRequest("Name is required.")
	}
	return renderGroup(rq.newGroup(name, rq.data.get("description"))), nil
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

func (rq *request) readGroup() (any, error) {
	g, err := rq.groupFor(viewIdentities)
	if err != nil {
		return nil, err
	}
	return renderGroup(g), nil
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
	name := rq.data.get("username")
	if name == "" {
		return nil, nil, badRequest("username is required.")
	}
	u := rq.userByName(name)
	if u == nil {
		return nil, nil, notFoundText("User '%s' not found.", name)
	}
	return g, u, nil
}

func (rq *request) addMember() (any, error) {
	g, u, err := rq.memberFor()
	if err != nil {
		return nil, err
	}
	if slices.Contains(g.members, u) {
		return nil, conflict("User `%s` is already a member of the group with ID `%d`.", u.name, g.id)
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

func (rq *request) listEntitlements() (any, error) {
	g, err := rq.groupFor(viewIdentities)
	if err != nil {
		return nil, err
	}
	out := []any{}
	for _, has := range g.grants {
		one := object{"resource_type": onMAAS, "resource_id": 0, "entitlement": string(has.entitlement)}
		if has.pool != nil {
			one["resource_type"], one["resource_id"] = onPool, has.pool.id
		}
		out = append(out, one)
	}
	return out, nil
}

// grantFor returns the group of the path, and the entitlement of the form. The pool is nil if there is none with its id.
func (rq *request) grantFor() (*group, grant, error) {
	var given grant
	g, err := rq.groupFor(editIdentities)
	if err != nil {
		return nil, given, err
	}
	f := rq.data
	id, bad := strconv.Atoi(f.get("resource_id"))
	switch {
	case f.get("resource_type") == "":
		return nil, given, badRequest("resource_type is required.")
	case !f.has("resource_id"):
		return nil, given, badRequest("resource_id is required.")
	case bad != nil:
		return nil, given, badRequest("resource_id must be an integer.")
	case f.get("entitlement") == "":
		return nil, given, badRequest("entitlement is required.")
	}
	given.entitlement = entitlement(f.get("entitlement"))
	valid := map[string][]entitlement{onMAAS: maasEntitlements, onPool: poolEntitlements}[f.get("resource_type")]
	if !slices.Contains(valid, given.entitlement) {
		return nil, given, badRequest("%s", undefinedEntitlement(given.entitlement, f.get("resource_type"), valid))
	}
	if f.get("resource_type") == onPool {
		at := slices.IndexFunc(rq.db.pools, func(p *pool) bool { return p.id == id })
		if at < 0 {
			return nil, given, notFoundText("ResourcePool with id %d not found.", id)
		}
		given.pool = rq.db.pools[at]
	} else if id != 0 {
		return nil, given, badRequest("resource_id must be 0 for 'maas' type.")
	}
	return g, given, nil
}

// undefinedEntitlement is MAAS's complaint about a kind of resource that it does not know, or an entitlement that this
// kind does not have.
func undefinedEntitlement(e entitlement, kind string, valid []entitlement) string {
	if valid == nil {
		return fmt.Sprintf("Resource type %s is not defined. Valid resource types are: "+
			"[<OpenFGAEntitlementResourceType.MAAS: 'maas'>, <OpenFGAEntitlementResourceType.POOL: 'pool'>]", kind)
	}
	names := make([]string, 0, len(valid))
	for _, v := range valid {
		names = append(names, pythonText(string(v)))
	}
	return fmt.Sprintf("Entitlement %s is not defined the requested resource type. Valid entitlements are: [%s]",
		e, strings.Join(names, ", "))
}

func (rq *request) addEntitlement() (any, error) {
	g, given, err := rq.grantFor()
	if err != nil {
		return nil, err
	}
	if !slices.Contains(g.grants, given) {
		g.grants = append(g.grants, given)
	}
	return allOK, nil
}

func (rq *request) removeEntitlement() (any, error) {
	g, given, err := rq.grantFor()
	if err != nil {
		return nil, err
	}
	g.grants = slices.DeleteFunc(g.grants, func(o grant) bool { return o == given })
	return noContent{}, nil
}

// listCommissioningScripts is the only call that reads, and that an editor of MAAS's global entities alone may make
// (commissioning_scripts_handler in maasserver/urls_api.py).
func (rq *request) listCommissioningScripts() (any, error) {
	if !rq.may(rq.user, editGlobalEntities) {
		return nil, textError(http.StatusForbidden, "User is not allowed access to this API.")
	}
	return []string{"20-maas-01-install-lldpd", "20-maas-02-dhcp-unconfigured-ifaces", "50-maas-01-commissioning"}, nil
}
