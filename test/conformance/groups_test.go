// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// entitlement is what a group may do: in a resource pool, or, without one, in all of MAAS.
type entitlement struct {
	name string
	pool object
}

func (e entitlement) pairs() []string {
	if e.pool == nil {
		return []string{"resource_type", "maas", "resource_id", "0", "entitlement", e.name}
	}
	return []string{"resource_type", "pool", "resource_id", e.pool.id("id"), "entitlement", e.name}
}

func groupPath(group object) string { return "groups/" + group.id("id") + "/" }

func (m *maas) newGroup(t *testing.T) object {
	t.Helper()
	name := uniqueName()
	m.removeAfter(t, "groups/", "name", name, "groups/")
	return m.create(t, "groups/", "name", name, "description", "made by the conformance suite").object(t)
}

// asMember is the same MAAS, used by a user whose only group has just these entitlements.
func (m *maas) asMember(t *testing.T, entitlements ...entitlement) *maas {
	t.Helper()
	plain := m.asPlainUser(t)
	name := plain.me(t)
	for _, group := range m.get(t, "groups/").list(t) {
		if has(m.get(t, groupPath(group), "op", "list_members").list(t), "username", name) {
			m.op(t, groupPath(group), "remove_member", "username", name).gone(t)
			t.Cleanup(func() { m.op(t, groupPath(group), "add_member", "username", name).wants(t, http.StatusOK) })
		}
	}
	group := m.newGroup(t)
	m.op(t, groupPath(group), "add_member", "username", name).wants(t, http.StatusOK)
	for _, e := range entitlements {
		m.op(t, groupPath(group), "add_entitlement", e.pairs()...).wants(t, http.StatusOK)
	}
	return plain
}

// refusesWithout checks the refusal of who lacks an entitlement.
func (a *answer) refusesWithout(t *testing.T, name string) {
	t.Helper()
	a.refuses(t, http.StatusForbidden,
		"User does not have permission to perform this operation. The user should have permission '"+name+"'")
}

func TestGroupsCameWithEntitlements(t *testing.T) {
	eachWith(t, []need{noEntitlements}, func(t *testing.T, m *maas) {
		m.get(t, "groups/").refuses(t, http.StatusNotFound, "Unknown API endpoint: /MAAS/api/2.0/groups/.")
	})
}

// What each call needs in all of MAAS. Who has the entitlement gets another answer than 403: the calls that would change
// something lack a field, or name what does not exist.
func TestEntitlementsForAllOfMAAS(t *testing.T) {
	eachWith(t, []need{entitlements}, func(t *testing.T, m *maas) {
		domain, subnet := m.defaultDomain(t), m.subnetWithRoom(t)
		record := m.newDNSResource(t)
		calls := map[string]func(*maas) *answer{
			"tags: make":        func(u *maas) *answer { return u.create(t, "tags/") },
			"tags: delete":      func(u *maas) *answer { return u.delete(t, "tags/nosuch-"+prefix+"/") },
			"tags: tag":         func(u *maas) *answer { return u.op(t, "tags/nosuch-"+prefix+"/", "update_nodes", "add", "nosuch") },
			"domains: make":     func(u *maas) *answer { return u.create(t, "domains/") },
			"domains: change":   func(u *maas) *answer { return u.put(t, "domains/"+domain.id("id")+"/", "ttl", "x") },
			"domains: read":     func(u *maas) *answer { return u.get(t, "domains/"+domain.id("id")+"/") },
			"records: make":     func(u *maas) *answer { return u.create(t, "dnsresources/") },
			"records: read":     func(u *maas) *answer { return u.get(t, "dnsresources/"+record.id("id")+"/") },
			"records: find":     func(u *maas) *answer { return u.get(t, "dnsresources/", "fqdn", record.str("fqdn")) },
			"records: change":   func(u *maas) *answer { return u.put(t, "dnsresources/"+record.id("id")+"/", "address_ttl", "x") },
			"subnets: make":     func(u *maas) *answer { return u.create(t, "subnets/") },
			"subnets: read":     func(u *maas) *answer { return u.get(t, subnetPath(subnet)) },
			"subnets: use":      func(u *maas) *answer { return u.get(t, subnetPath(subnet), "op", "ip_addresses") },
			"subnets: free":     func(u *maas) *answer { return u.get(t, subnetPath(subnet), "op", "unreserved_ip_ranges") },
			"VLANs":             func(u *maas) *answer { return u.get(t, "fabrics/"+subnet.id("vlan", "fabric_id")+"/vlans/") },
			"zones: make":       func(u *maas) *answer { return u.create(t, "zones/") },
			"pools: make":       func(u *maas) *answer { return u.create(t, "resourcepools/") },
			"images: make":      func(u *maas) *answer { return u.create(t, "boot-resources/") },
			"power of machines": func(u *maas) *answer { return u.get(t, "machines/", "op", "power_parameters", "id", "nosuch") },
			"groups":            func(u *maas) *answer { return u.get(t, "groups/") },
			"groups: make":      func(u *maas) *answer { return u.create(t, "groups/") },
		}
		for name, may := range map[string][]string{
			"can_view_available_machines": {},
			"can_view_global_entities": {
				"VLANs", "domains: read", "records: find", "records: read", "subnets: free", "subnets: read", "subnets: use",
			},
			"can_edit_global_entities": {
				"VLANs", "domains: change", "domains: make", "domains: read", "records: change", "records: find", "records: make",
				"records: read", "subnets: free", "subnets: make", "subnets: read", "subnets: use", "tags: delete",
				"tags: make", "tags: tag", "zones: make",
			},
			"can_edit_machines":      {"pools: make", "power of machines"},
			"can_edit_boot_entities": {"images: make"},
			"can_view_identities":    {"groups"},
			"can_edit_identities":    {"groups", "groups: make"},
		} {
			t.Run(name, func(t *testing.T) {
				user := m.asMember(t, entitlement{name: name})
				done := []string{}
				for call, send := range calls {
					if got := send(user); got.status != http.StatusForbidden {
						done = append(done, call)
					}
				}
				slices.Sort(done)
				if diff := cmp.Diff(may, done); diff != "" {
					t.Errorf("who has %s may (-want +got):\n%s", name, diff)
				}
			})
		}
	})
}

// How the refusals are worded: who may not do a kind of thing at all learns what is missing, who may not do it to this
// object does not (check_permission in maasserver/api/support.py, PermissionDenied elsewhere).
func TestRefusalsNameTheMissingEntitlement(t *testing.T) {
	eachWith(t, []need{entitlements}, func(t *testing.T, m *maas) {
		domain := m.defaultDomain(t)
		user := m.asMember(t)
		user.create(t, "dnsresources/", "fqdn", uniqueName()+"."+domain.str("name")).refusesWithout(t, "can_edit_global_entities")
		user.create(t, "tags/", "name", uniqueName()).refusesWithout(t, "can_edit_global_entities")
		user.create(t, "boot-resources/").refusesWithout(t, "can_edit_boot_entities")
		user.get(t, "machines/", "op", "power_parameters").refusesWithout(t, "can_edit_machines")
		user.get(t, "groups/").refusesWithout(t, "can_view_identities")
		user.create(t, "groups/", "name", uniqueName()).refusesWithout(t, "can_edit_identities")
		user.get(t, "domains/"+domain.id("id")+"/").refusesSilently(t, http.StatusForbidden)
		user.get(t, "dnsresources/", "fqdn", "nosuch."+domain.str("name")).refusesSilently(t, http.StatusForbidden)
		user.create(t, "resourcepools/", "name", uniqueName()).refusesSilently(t, http.StatusForbidden)
	})
}

// A virtual IP needs no right but to see the domain of its name.
func TestWhoSeesTheNetworkReservesUnderAName(t *testing.T) {
	eachWith(t, []need{entitlements}, func(t *testing.T, m *maas) {
		subnet, domain := m.subnetWithRoom(t), m.defaultDomain(t).str("name")
		reserve := func(user *maas) (fqdn string, got *answer) {
			fqdn, address := uniqueName()+"."+domain, m.freeAddress(t, subnet)
			m.freeAfter(t, address)
			m.removeAfter(t, "dnsresources/", "fqdn", fqdn, "dnsresources/")
			return fqdn, user.op(t, "ipaddresses/", "reserve", "ip", address, "hostname", fqdn)
		}
		_, refused := reserve(m.asMember(t))
		refused.refusesSilently(t, http.StatusForbidden)
		user := m.asMember(t, entitlement{name: "can_view_global_entities"})
		fqdn, made := reserve(user)
		address := made.object(t).str("ip")
		if !has(user.get(t, "dnsresources/", "fqdn", fqdn).list(t), "fqdn", fqdn) {
			t.Errorf("%s is not found", fqdn)
		}
		user.op(t, "ipaddresses/", "release", "ip", address, "force", "true").refuses(t, http.StatusForbidden, "Force-releasing")
		user.op(t, "ipaddresses/", "release", "ip", address).gone(t)
	})
}

// inPool makes a machine that is Ready and nobody's, in a pool.
func (m *maas) inPool(t *testing.T, pool object) object {
	t.Helper()
	machine := m.disksOf(t, midDisk)
	return m.put(t, machinePath(machine.str("system_id")), "pool", pool.str("name")).object(t)
}

// Lists and allocate go by the pools in which the user has an entitlement (get_nodes in maasserver/models/node.py); a
// machine that he names by the permission on it (has_perm in maasserver/auth/local.py), which everybody has on what nobody
// owns.
func TestEntitlementsInAPool(t *testing.T) {
	eachWith(t, []need{entitlements}, func(t *testing.T, m *maas) {
		pool, elsewhere := m.newPool(t), m.newPool(t)
		ids := map[string]string{
			"free": m.inPool(t, pool).str("system_id"), "elsewhere": m.inPool(t, elsewhere).str("system_id"),
			"others'": m.newDeployedMachine(t, "pool", pool.str("name")).str("system_id"),
		}
		type rights struct{ listed, allocated, edited, read, poolRead []string }
		for name, want := range map[string]rights{
			"": {read: []string{"elsewhere", "free"}},
			"can_view_available_machines": {
				listed: []string{"free"}, read: []string{"elsewhere", "free"}, poolRead: []string{"pool"},
			},
			"can_view_machines": {
				listed: []string{"free", "others'"}, read: []string{"elsewhere", "free", "others'"}, poolRead: []string{"pool"},
			},
			"can_deploy_machines": {allocated: []string{"free"}, read: []string{"elsewhere", "free"}},
			"can_edit_machines": {
				listed: []string{"free", "others'"}, allocated: []string{"free"}, edited: []string{"free", "others'"},
				read: []string{"elsewhere", "free", "others'"}, poolRead: []string{"pool"},
			},
		} {
			t.Run(name, func(t *testing.T) {
				var given []entitlement
				if name != "" {
					given = append(given, entitlement{name, pool})
				}
				user := m.asMember(t, given...)
				var got rights
				listed := systemIDs(user.machines(t))
				for what, id := range ids {
					note := func(to *[]string, may bool) {
						if may {
							*to = append(*to, what)
							slices.Sort(*to)
						}
					}
					note(&got.listed, slices.Contains(listed, id))
					note(&got.allocated, user.allocate(t, "system_id", id, "dry_run", "true").status == http.StatusOK)
					note(&got.read, user.get(t, machinePath(id)).status == http.StatusOK)
					power := user.get(t, machinePath(id), "op", "power_parameters")
					note(&got.edited, power.status == http.StatusOK)
					if power.status != http.StatusOK {
						power.refusesSilently(t, http.StatusForbidden)
					}
				}
				for what, p := range map[string]object{"pool": pool, "elsewhere": elsewhere} {
					if user.get(t, "resourcepool/"+p.id("id")+"/").status == http.StatusOK {
						got.poolRead = append(got.poolRead, what)
					}
				}
				if diff := cmp.Diff(want, got, cmp.AllowUnexported(rights{})); diff != "" {
					t.Errorf("who has %q in the pool may (-want +got):\n%s", name, diff)
				}
			})
		}
	})
}

// Who may deploy does not see in lists what he has then, but may use it by its id.
func TestWhoDeploysKeepsWhatIsHis(t *testing.T) {
	eachWith(t, []need{entitlements}, func(t *testing.T, m *maas) {
		pool := m.newPool(t)
		machine := m.inPool(t, pool)
		id := machine.str("system_id")
		user := m.asMember(t, entitlement{"can_deploy_machines", pool})
		user.allocate(t, "pool", pool.str("name")).object(t)
		user.annotate(t, machine, "a", "b").object(t)
		if got := systemIDs(user.machines(t)); slices.Contains(got, id) {
			t.Errorf("%v are listed, want %s not among them", got, id)
		}
		user.put(t, machinePath(id), "description", "x").refusesSilently(t, http.StatusForbidden)
		user.machineOp(t, machine, "set_storage_layout", "storage_layout", "flat").refusesSilently(t, http.StatusForbidden)
		nic := machine.objects("interface_set")[0].id("id")
		user.delete(t, "nodes/"+id+"/interfaces/"+nic+"/").refusesSilently(t, http.StatusForbidden)
		user.delete(t, machinePath(id)).refusesSilently(t, http.StatusForbidden)
		user.release(t, machine).object(t)
	})
}

// Only who may edit the machines of all pools reads how MAAS switches machines (power_parameters of MachinesHandler in
// maasserver/api/nodes.py).
func TestPowerParametersOfMachinesNeedAnEntitlementForAllOfMAAS(t *testing.T) {
	eachWith(t, []need{entitlements}, func(t *testing.T, m *maas) {
		pool := m.newPool(t)
		id := m.inPool(t, pool).str("system_id")
		for name, tt := range map[string]struct {
			given entitlement
			reads bool
		}{
			"the pool":  {given: entitlement{"can_edit_machines", pool}},
			"all pools": {given: entitlement{name: "can_edit_machines"}, reads: true},
		} {
			t.Run(name, func(t *testing.T) {
				for _, pairs := range [][]string{{"op", "power_parameters"}, {"op", "power_parameters", "id", id}} {
					if got := m.asMember(t, tt.given).get(t, "machines/", pairs...); (got.status != http.StatusForbidden) == tt.reads {
						continue
					}
					t.Errorf("%q: who has the right in %s reads them: %v", pairs, name, !tt.reads)
				}
			})
		}
	})
}

// VM hosts go by the pool that they are in, and everybody sees them; only who may edit machines of all pools registers them
// (_perm_pod in maasserver/auth/local.py, get_pods in maasserver/models/bmc.py).
func TestEntitlementsForVMHosts(t *testing.T) {
	eachWith(t, []need{vmHosts, entitlements}, func(t *testing.T, m *maas) {
		host := m.vmHostWithRoom(t)
		for name, tt := range map[string]struct {
			given     []entitlement
			edits     bool
			registers bool
		}{
			"nothing":          {},
			"deploy":           {given: []entitlement{{"can_deploy_machines", host.part("pool")}}},
			"its pool":         {given: []entitlement{{"can_edit_machines", host.part("pool")}}, edits: true},
			"another pool":     {given: []entitlement{{"can_edit_machines", m.newPool(t)}}},
			"all pools":        {given: []entitlement{{name: "can_edit_machines"}}, edits: true, registers: true},
			"global entities":  {given: []entitlement{{name: "can_edit_global_entities"}}},
			"see all machines": {given: []entitlement{{name: "can_view_machines"}}},
		} {
			t.Run(name, func(t *testing.T) {
				user := m.asMember(t, tt.given...)
				if !has(user.get(t, "vm-hosts/").list(t), "name", host.str("name")) {
					t.Errorf("%s is not listed", host.str("name"))
				}
				user.get(t, vmHostPath(host)).object(t)
				for what, got := range map[string]*answer{
					"parameters": user.get(t, vmHostPath(host), "op", "parameters"),
					"compose":    user.composeOn(t, host, "cores", "x"),
					"change":     user.put(t, vmHostPath(host), "cpu_over_commit_ratio", "x"),
				} {
					if (got.status != http.StatusForbidden) != tt.edits {
						t.Errorf("%s: %d", what, got.status)
					}
				}
				registered := user.create(t, "vm-hosts/")
				if (registered.status != http.StatusForbidden) != tt.registers {
					t.Errorf("registration: %d", registered.status)
				}
				if !tt.registers {
					registered.refusesSilently(t, http.StatusForbidden)
				}
			})
		}
	})
}
