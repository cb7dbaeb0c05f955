// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"slices"
	"strings"
)

// entitlement is what a group may do. MAAS has groups and entitlements from 3.8 on (maascommon/openfga/base.py);
// before, a user is an administrator or not.
type entitlement string

const (
	editMachines          entitlement = "can_edit_machines"
	deployMachines        entitlement = "can_deploy_machines"
	viewMachines          entitlement = "can_view_machines"
	viewAvailableMachines entitlement = "can_view_available_machines"
	editGlobalEntities    entitlement = "can_edit_global_entities"
	viewGlobalEntities    entitlement = "can_view_global_entities"
	editBootEntities      entitlement = "can_edit_boot_entities"
	viewBootEntities      entitlement = "can_view_boot_entities"
	editIdentities        entitlement = "can_edit_identities"
	viewIdentities        entitlement = "can_view_identities"
	viewControllers       entitlement = "can_view_controllers"
	viewIPAddresses       entitlement = "can_view_ipaddresses"
	viewDevices           entitlement = "can_view_devices"
)

// poolEntitlements can be given for one resource pool.
var poolEntitlements = []entitlement{editMachines, deployMachines, viewMachines, viewAvailableMachines}

// implies reports whether who has the entitlement has the other one, too (00001_add_model.go in maasopenfga). Who may
// deploy machines does not see any by that.
func (e entitlement) implies(other entitlement) bool {
	what, edits := strings.CutPrefix(string(e), "can_edit_")
	return e == other || e == editMachines && slices.Contains(poolEntitlements, other) ||
		e == viewMachines && other == viewAvailableMachines ||
		edits && what != "operations" && string(other) == "can_view_"+what
}

// The groups that MAAS has from the beginning. A new user gets into one of them.
const (
	administratorsGroup = "Administrators"
	usersGroup          = "Users"
)

var (
	administratorsEntitlements = []entitlement{
		editMachines, editGlobalEntities, "can_edit_controllers", editIdentities, "can_edit_configurations",
		"can_edit_notifications", editBootEntities, "can_edit_license_keys", viewDevices, viewIPAddresses,
		"can_view_dnsrecords", "can_view_operations", "can_edit_operations",
	}
	usersEntitlements = []entitlement{deployMachines, viewAvailableMachines, viewGlobalEntities, viewBootEntities}
)

// grant is an entitlement of a group, for a resource pool or, without one, for all of MAAS.
type grant struct {
	entitlement entitlement
	pool        *pool
}

type group struct {
	id                int
	name, description string
	grants            []grant
	members           []*user
}

func (s *Simulator) newGroup(name, description string, grants ...grant) *group {
	g := &group{id: s.db.next("group"), name: name, description: description, grants: grants}
	s.db.groups = append(s.db.groups, g)
	return g
}

func everywhere(entitlements []entitlement) []grant {
	grants := make([]grant, 0, len(entitlements))
	for _, e := range entitlements {
		grants = append(grants, grant{entitlement: e})
	}
	return grants
}

// buildGroups makes MAAS's groups, and for each user with entitlements of his own one that has them.
func (s *Simulator) buildGroups(region *Region) {
	administrators := s.newGroup(administratorsGroup, "", everywhere(administratorsEntitlements)...)
	users := s.newGroup(usersGroup, "", everywhere(usersEntitlements)...)
	for i, described := range region.Users {
		in := users
		switch {
		case len(described.Entitlements) > 0:
			in = s.newGroup(described.Name, "")
			for _, e := range described.Entitlements {
				in.grants = append(in.grants, grant{entitlement(e.Name), s.poolByName(e.Pool)})
			}
		case described.Admin:
			in = administrators
		}
		in.members = append(in.members, s.db.users[i])
	}
}

// may reports whether a user has an entitlement for all of MAAS. Before 3.8, administrators have all, and everybody sees
// the network.
func (s *Simulator) may(u *user, wanted entitlement) bool {
	if !s.hasEntitlements() {
		return u.admin || wanted == viewGlobalEntities
	}
	return s.mayIn(u, wanted, nil)
}

// mayIn reports whether a user has an entitlement for the machines of a pool; what he has for all of MAAS is for each
// pool. Before 3.8, administrators have all.
func (s *Simulator) mayIn(u *user, wanted entitlement, p *pool) bool {
	if !s.hasEntitlements() {
		return u.admin
	}
	return slices.ContainsFunc(s.db.groups, func(g *group) bool {
		return slices.Contains(g.members, u) && slices.ContainsFunc(g.grants, func(has grant) bool {
			return has.entitlement.implies(wanted) && (has.pool == nil || has.pool == p)
		})
	})
}

// check refuses who lacks an entitlement as MAAS's decorator check_permission does (maasserver/api/support.py); before is
// how versions without entitlements refuse.
func (rq *request) check(wanted entitlement, before *apiError) error {
	switch {
	case rq.may(rq.user, wanted):
		return nil
	case rq.hasEntitlements():
		return forbidden("User does not have permission to perform this operation. The user should have permission '" +
			string(wanted) + "'")
	}
	return before
}

// need refuses who lacks an entitlement without a word.
func (rq *request) need(wanted entitlement) error {
	if !rq.may(rq.user, wanted) {
		return forbidden("")
	}
	return nil
}

// allowed implements MAAS's permissions on one machine or device without RBAC (has_perm in maasserver/auth/local.py). Who
// knows a machine that nobody has may change it, whatever his entitlements.
func (s *Simulator) allowed(u *user, m *machine, want permission) bool {
	if m.device {
		return s.allowedDevice(u, m, want)
	}
	own, p := m.owner == nil || m.owner == u, m.pool
	edits := s.mayIn(u, editMachines, p)
	switch want {
	case mayView:
		return own || s.mayIn(u, viewMachines, p)
	case mayEdit:
		return !m.locked && (own || edits)
	case mayLock:
		return own || edits
	case mayAdminRead:
		return edits
	default:
		return !m.locked && edits
	}
}

// allowedDevice is allowed for a device, which is in no pool: everybody who knows it may view it. With entitlements, nobody
// may edit another user's: MAAS asks for the entitlement in a pool that does not exist.
func (s *Simulator) allowedDevice(u *user, d *machine, want permission) bool {
	switch want {
	case mayView:
		return true
	case mayEdit:
		return d.owner == nil || d.owner == u || (!s.hasEntitlements() && u.admin)
	default:
		return s.may(u, editMachines)
	}
}

// amongDevices reports whether a device is among those that MAAS lists for a user.
func (s *Simulator) amongDevices(u *user, d *machine) bool {
	if s.hasEntitlements() {
		return d.owner == u || s.may(u, viewDevices)
	}
	return d.owner == nil || d.owner == u || u.admin
}

// among reports whether a machine is among those that MAAS finds for a user (get_nodes in maasserver/models/node.py). From
// 3.8 on he does not find all that he may view or edit if he knows them: not even his own without an entitlement.
func (s *Simulator) among(u *user, m *machine, want permission) bool {
	if !s.hasEntitlements() {
		return s.allowed(u, m, want)
	}
	own, free := m.owner == nil || m.owner == u, viewAvailableMachines
	switch want {
	case mayView:
		if s.mayIn(u, viewMachines, m.pool) {
			return true
		}
	case mayEdit:
		if m.locked {
			return false
		}
		free = deployMachines
	default:
		own = false
	}
	return own && s.mayIn(u, free, m.pool) || s.mayIn(u, editMachines, m.pool)
}
