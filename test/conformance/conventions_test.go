// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"net/http"
	"strings"
	"testing"
)

func TestPathWithoutTrailingSlashIsUnknown(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		m.get(t, "machines").refuses(t, http.StatusNotFound, "Unknown API endpoint: /MAAS/api/2.0/machines.")
	})
}

func TestUnknownPathIsUnknownEndpoint(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		m.get(t, "no-such-thing/").refuses(t, http.StatusNotFound, "Unknown API endpoint: /MAAS/api/2.0/no-such-thing/.")
	})
}

func TestUnknownOperationIsUnrecognisedSignature(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		m.op(t, "machines/", "frob").refuses(t, http.StatusBadRequest, "Unrecognised signature: method=POST op=frob")
		m.get(t, "machines/", "op", "frob").refuses(t, http.StatusBadRequest, "Unrecognised signature: method=GET op=frob")
	})
}

func TestOperationWithTheWrongMethodIsUnrecognisedSignature(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		m.get(t, "machines/", "op", "allocate").
			refuses(t, http.StatusBadRequest, "Unrecognised signature: method=GET op=allocate")
		m.op(t, "machines/", "list_allocated").
			refuses(t, http.StatusBadRequest, "Unrecognised signature: method=POST op=list_allocated")
	})
}

func TestOperationMayStandInTheBody(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		tag := m.newTag(t)
		got := m.create(t, "tags/"+tag+"/", "op", "update_nodes").object(t)
		if got.num("added") != 0 || got.num("removed") != 0 {
			t.Errorf("update_nodes without nodes: %v, want nothing added or removed", got)
		}
	})
}

func TestCollectionsCannotBeDeletedOrUpdated(t *testing.T) {
	for _, path := range []string{"machines/", "zones/", "dnsresources/", "tags/", "resourcepools/", "subnets/"} {
		t.Run(strings.TrimSuffix(path, "/"), func(t *testing.T) {
			each(t, func(t *testing.T, m *maas) {
				m.delete(t, path).wants(t, http.StatusMethodNotAllowed)
				m.put(t, path, "name", "x").wants(t, http.StatusMethodNotAllowed)
			})
		})
	}
}

func TestCreationAnswers200(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		name := uniqueName()
		m.deleteAfter(t, "zones/"+name+"/")
		m.create(t, "zones/", "name", name).wants(t, http.StatusOK)
	})
}

func TestBooleansHaveManySpellings(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		systemID := m.spare(t).str("system_id")
		for _, spelling := range []string{"true", "True", "t", "yes", "y", "on", "1"} {
			m.allocate(t, "system_id", systemID, "dry_run", spelling).object(t)
		}
		m.allocate(t, "system_id", systemID, "dry_run", "maybe").refuses(t, http.StatusBadRequest, "Invalid dry_run: ")
		if got := m.machine(t, systemID).str("status_name"); got != "Ready" {
			t.Errorf("%s after dry runs, want Ready", got)
		}
	})
}

func TestResponsesCarryMAASHeaders(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		got := m.get(t, "zones/").ok(t)
		if got.header.Get("X-MAAS-API-Hash") == "" {
			t.Error("no X-MAAS-API-Hash header")
		}
		if kind := got.header.Get("Content-Type"); kind != "application/json; charset=utf-8" {
			t.Errorf("Content-Type %q, want application/json; charset=utf-8", kind)
		}
	})
}

// needsOf is what the calls below a path need.
func needsOf(path string) []need {
	if strings.HasPrefix(path, "vm-hosts/") {
		return []need{vmHosts}
	}
	return nil
}

func TestUnknownObjectsAreNotFoundByTheirModelsName(t *testing.T) {
	tests := []struct{ name, path, text string }{
		{"machine", "machines/nosuch/", "No Machine matches the given query."},
		{"subnet", "subnets/999999/", "No Subnet matches the given query."},
		{"resource pool", "resourcepool/999999/", "No ResourcePool matches the given query."},
		{"domain", "domains/999999/", "No Domain matches the given query."},
		{"DNS resource", "dnsresources/999999/", "No DNSResource matches the given query."},
		{"VM host", "vm-hosts/999999/", "Not Found"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			eachWith(t, needsOf(test.path), func(t *testing.T, m *maas) {
				m.get(t, test.path).refuses(t, http.StatusNotFound, test.text)
			})
		})
	}
}

func TestOperationsOnUnknownObjectsAreNotFound(t *testing.T) {
	tests := []struct{ name, path, op, text string }{
		{"deploy", "machines/nosuch/", "deploy", "No Machine matches the given query."},
		{"release", "machines/nosuch/", "release", "No Machine matches the given query."},
		{"compose", "vm-hosts/999999/", "compose", "No Pod matches the given query."},
		{"refresh", "vm-hosts/999999/", "refresh", "No Pod matches the given query."},
		{"update nodes", "tags/nosuch-tag/", "update_nodes", "No Tag matches the given query."},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			eachWith(t, needsOf(test.path), func(t *testing.T, m *maas) {
				m.op(t, test.path, test.op).refuses(t, http.StatusNotFound, test.text)
			})
		})
	}
}

func TestDeletionOfUnknownObjectsIsNotFound(t *testing.T) {
	tests := []struct{ name, path, text string }{
		{"machine", "machines/nosuch/", "No Machine matches the given query."},
		{"VM host", "vm-hosts/999999/", "No Pod matches the given query."},
		{"DNS resource", "dnsresources/999999/", "No DNSResource matches the given query."},
		{"resource pool", "resourcepool/999999/", "No ResourcePool matches the given query."},
		{"tag", "tags/nosuch-tag/", "No Tag matches the given query."},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			eachWith(t, needsOf(test.path), func(t *testing.T, m *maas) {
				m.delete(t, test.path).refuses(t, http.StatusNotFound, test.text)
			})
		})
	}
}

func TestAdminCallsAreRefusedToPlainUsers(t *testing.T) {
	const reserved = "This method is reserved for admin users."
	tests := []struct {
		name string
		call func(t *testing.T, m *maas) *answer
	}{
		{"create a zone", func(t *testing.T, m *maas) *answer { return m.create(t, "zones/", "name", uniqueName()) }},
		{"create a DNS resource", func(t *testing.T, m *maas) *answer {
			return m.create(t, "dnsresources/", "fqdn", uniqueName()+".nosuch.test")
		}},
		{"create a VM host", func(t *testing.T, m *maas) *answer {
			return m.create(t, "vm-hosts/", "type", "lxd", "power_address", unreachable)
		}},
		{"refresh a VM host", func(t *testing.T, m *maas) *answer { return m.op(t, "vm-hosts/999999/", "refresh") }},
		{"compose", func(t *testing.T, m *maas) *answer { return m.op(t, "vm-hosts/999999/", "compose") }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			eachWith(t, []need{noEntitlements}, func(t *testing.T, m *maas) {
				test.call(t, m.asPlainUser(t)).refuses(t, http.StatusForbidden, reserved)
			})
		})
	}
}

// With entitlements, MAAS looks for the VM host before it asks whether the user may edit it (maasserver/api/pods.py).
func TestCallsOfVMHostsByPlainUsersWithEntitlements(t *testing.T) {
	eachWith(t, []need{vmHosts, entitlements}, func(t *testing.T, m *maas) {
		plain := m.asPlainUser(t)
		plain.create(t, "vm-hosts/", "type", "lxd", "power_address", unreachable).refusesSilently(t, http.StatusForbidden)
		for _, op := range []string{"refresh", "compose"} {
			plain.op(t, "vm-hosts/999999/", op).refuses(t, http.StatusNotFound, "No Pod matches the given query.")
		}
		plain.op(t, vmHostPath(m.vmHostWithRoom(t)), "refresh").wants(t, http.StatusForbidden)
	})
}

func TestTagsAreRefusedToPlainUsersWithoutAReason(t *testing.T) {
	eachWith(t, []need{noEntitlements}, func(t *testing.T, m *maas) {
		m.asPlainUser(t).create(t, "tags/", "name", uniqueName()).refusesSilently(t, http.StatusForbidden)
	})
}
