// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// constraint reports whether a machine is wanted.
type constraint func(*machine) bool

// machineQuery is a checked set of constraints. Its description is that of MAAS's refusals.
type machineQuery struct {
	all       []constraint
	described map[string]string
}

func (q *machineQuery) matches(m *machine) bool {
	for _, c := range q.all {
		if !c(m) {
			return false
		}
	}
	return true
}

// String describes the constraints as MAAS does: sorted, "name=a,b".
func (q *machineQuery) String() string {
	names := make([]string, 0, len(q.described))
	for name := range q.described {
		names = append(names, name)
	}
	sort.Strings(names)
	parts := make([]string, 0, len(names))
	for _, name := range names {
		parts = append(parts, name+"="+q.described[name])
	}
	return strings.Join(parts, " ")
}

// ignoredConstraints may be sent to any filter and mean nothing there.
var ignoredConstraints = []string{
	"comment", "dry_run", "op", "agent_name",
}

// vmHostConstraints are those of a MAAS with VM hosts.
var vmHostConstraints = []string{"pod", "not_pod", "pod_type", "not_pod_type"}

// machineFilter parses constraints. Each must be one of known; a wrong value is a 400 that names it.
func (s *Simulator) machineFilter(f form, known map[string]filterField) (*machineQuery, error) {
	q, errs := &machineQuery{described: map[string]string{}}, formErrors{}
	for _, name := range f.order {
		field, ok := known[name]
		switch {
		case strings.HasSuffix(name, "deployment_target"):
			ok = ok && s.version.AtLeast(3, 5, 0)
		case slices.Contains(vmHostConstraints, name):
			ok = ok && s.hasVMHosts()
		}
		if !ok {
			if !slices.Contains(ignoredConstraints, name) {
				errs.add(name, "No such constraint.")
			}
			continue
		}
		match, described, complaint := field(s, slices.Clone(f.list(name)))
		if complaint != "" {
			errs.add(name, "%s", complaint)
			continue
		}
		if match != nil {
			q.all = append(q.all, match)
			q.described[name] = described
		}
	}
	return q, errs.err()
}

// queryError returns the error that MAAS finds only when it queries its database with well-formed constraints
// (filter_nodes in maasserver/node_constraint_filter_forms.py).
func (s *Simulator) queryError(f form) error {
	for _, name := range []string{"simple_status", "not_simple_status"} {
		if f.has(name) {
			return textError(http.StatusInternalServerError, "Cannot resolve keyword 'simple_status' into field.")
		}
	}
	return s.interfacesError(f.get("interfaces"))
}

// filterField turns a filter's values into a constraint, its description, or a complaint. An empty value counts as a
// value; without a constraint the values mean nothing.
type filterField func(s *Simulator, values []string) (constraint, string, string)

// listFilters are those of GET machines/, allocateFilters those of op=allocate.
var listFilters, allocateFilters map[string]filterField

func init() {
	common := map[string]filterField{
		"system_id": oneOf(func(m *machine) []string { return []string{m.systemID} }),
		"zone":      existing("zone", zoneExists, func(m *machine) []string { return []string{m.zone.name} }),
		"pool":      existing("pool", poolExists, poolNames),
		"pod":       oneOf(hostNames),
		"pod_type":  oneOf(hostKinds),
		"tags":      tagFilter,
		"arch":      archFilter,
		"owner":     ownerFilter,
		"cpu_count": atLeast("Invalid CPU count: number required.",
			func(m *machine) float64 { return float64(m.cpuCount) }),
		"cpu_speed": atLeast("Invalid CPU speed: number required.",
			func(m *machine) float64 { return float64(m.cpuSpeed) }),
		"mem": atLeast("Invalid memory: number of MiB required.",
			func(m *machine) float64 { return float64(m.memory) }),
		"link_speed":     atLeast("Invalid link speed: number required.", func(*machine) float64 { return 0 }),
		"subnets":        subnetFilter,
		"vlans":          vlanFilter,
		"fabrics":        oneOf(fabricNames),
		"fabric_classes": oneOf(func(*machine) []string { return nil }),
		"power_state": choice([]string{"on", "off", "unknown", "error"},
			func(m *machine) []string { return []string{m.powerState} }),
		"deployment_target": choice([]string{"disk", "memory"}, deploymentTarget),
		"storage":           storageFilter,
		"interfaces":        interfacesFilter,
		"devices":           devicesFilter,
	}
	opposites := map[string]string{
		"not_in_zone": "zone", "not_in_pool": "pool", "not_pod": "pod", "not_pod_type": "pod_type", "not_tags": "tags",
		"not_subnets": "subnets", "not_vlans": "vlans",
		"not_fabrics": "fabrics", "not_fabric_classes": "fabric_classes", "not_power_state": "power_state",
		"not_deployment_target": "deployment_target",
	}
	for name, of := range opposites {
		common[name] = opposite(common[of])
	}
	common["not_tags"] = opposite(oneOf(func(m *machine) []string { return tagNames(m.tags) }))
	common["not_arch"] = opposite(oneOf(func(m *machine) []string { return []string{m.architecture} }))
	common["not_owner"] = opposite(oneOf(ownerNames))
	common["not_pod"], common["not_pod_type"] = opposite(oneOf(hostNames)), opposite(oneOf(hostKinds))

	listFilters, allocateFilters = map[string]filterField{}, map[string]filterField{}
	for name, field := range common {
		listFilters[name], allocateFilters[name] = field, field
	}
	allocateFilters["name"] = nameFilter
	listFilters["id"] = listFilters["system_id"]
	listFilters["not_id"] = opposite(listFilters["system_id"])
	listFilters["hostname"] = oneOf(func(m *machine) []string { return []string{m.hostname} })
	listFilters["not_hostname"] = opposite(listFilters["hostname"])
	listFilters["mac_address"] = macFilter
	listFilters["domain"] = oneOf(func(m *machine) []string { return []string{m.domain.name} })
	listFilters["not_domain"] = opposite(listFilters["domain"])
	listFilters["agent_name"] = oneOf(func(m *machine) []string { return []string{m.agentName} })
	listFilters["not_agent_name"] = opposite(listFilters["agent_name"])
	listFilters["status"] = choice(statusShortNames(), func(m *machine) []string { return []string{statuses[m.status].short} })
	listFilters["not_status"] = opposite(listFilters["status"])
	listFilters["simple_status"] = choice(simpleStatusNames, func(*machine) []string { return nil }) // See queryError.
	listFilters["not_simple_status"] = listFilters["simple_status"]
}

func joined(values []string) string { return strings.Join(values, ",") }

// oneOf requires one of the machine's values among the given ones.
func oneOf(of func(*machine) []string) filterField {
	return func(_ *Simulator, values []string) (constraint, string, string) {
		return func(m *machine) bool { return containsAny(of(m), values) }, joined(values), ""
	}
}

// opposite requires what the other filter excludes.
func opposite(field filterField) filterField {
	return func(s *Simulator, values []string) (constraint, string, string) {
		match, described, complaint := field(s, values)
		if complaint != "" {
			return nil, "", complaint
		}
		return func(m *machine) bool { return !match(m) }, described, ""
	}
}

// existing is oneOf with values that must be names of something.
func existing(what string, exists func(*Simulator, string) bool, of func(*machine) []string) filterField {
	return func(s *Simulator, values []string) (constraint, string, string) {
		var unknown []string
		for _, value := range values {
			if !exists(s, value) {
				unknown = append(unknown, value)
			}
		}
		if len(unknown) > 0 {
			sort.Strings(unknown)
			return nil, "", fmt.Sprintf("No such %s(s): %s.", what, strings.Join(unknown, ", "))
		}
		return func(m *machine) bool { return containsAny(of(m), values) }, joined(values), ""
	}
}

func zoneExists(s *Simulator, name string) bool { return s.zoneByName(name) != nil }
func poolExists(s *Simulator, name string) bool { return s.poolByName(name) != nil }

// poolNames returns a machine's pool; a device is in none.
func poolNames(m *machine) []string {
	if m.device {
		return nil
	}
	return []string{m.pool.name}
}

// choice is oneOf with values from a list.
func choice(choices []string, of func(*machine) []string) filterField {
	return func(_ *Simulator, values []string) (constraint, string, string) {
		for i, value := range values {
			values[i] = strings.TrimPrefix(value, "=")
			if !slices.Contains(choices, values[i]) {
				return nil, "", fmt.Sprintf("Select a valid choice. %s is not one of the available choices.", values[i])
			}
		}
		return func(m *machine) bool { return containsAny(of(m), values) }, joined(values), ""
	}
}

// atLeast requires a number that is not smaller than the smallest of the given ones.
func atLeast(complaint string, of func(*machine) float64) filterField {
	return func(_ *Simulator, values []string) (constraint, string, string) {
		least := math.Inf(1)
		texts := make([]string, 0, len(values))
		for _, value := range values {
			n, ok := parseFloat(value)
			if !ok {
				return nil, "", complaint
			}
			least = min(least, n)
			texts = append(texts, pythonFloat(n))
		}
		return func(m *machine) bool { return of(m) >= least }, joined(texts), ""
	}
}

// pythonFloat returns a float as Python prints it: never without a point.
func pythonFloat(n float64) string {
	text := strconv.FormatFloat(n, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}

// tagFilter requires all tags; one value may have several, separated by commas or spaces.
func tagFilter(s *Simulator, values []string) (constraint, string, string) {
	var names []string
	for _, value := range values {
		for _, name := range splitList(value) {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	var unknown []string
	for _, name := range names {
		if s.tagByName(name) == nil {
			unknown = append(unknown, "'"+name+"'")
		}
	}
	if len(unknown) > 0 {
		return nil, "", fmt.Sprintf("No such tag(s): %s.", strings.Join(unknown, ", "))
	}
	if len(names) == 0 {
		return nil, "", ""
	}
	sort.Strings(names)
	return func(m *machine) bool {
		for _, name := range names {
			if !m.hasTag(name) {
				return false
			}
		}
		return true
	}, joined(names), ""
}

// archFilter accepts "amd64/generic" and "amd64".
func archFilter(s *Simulator, values []string) (constraint, string, string) {
	for _, value := range values {
		if !slices.Contains(s.architectures(), value) && !slices.Contains(mainArchitectures(s.architectures()), value) {
			return nil, "", "Architecture not recognised."
		}
	}
	return func(m *machine) bool {
		return slices.Contains(values, m.architecture) || slices.Contains(values, firstPart(m.architecture, '/'))
	}, joined(s.expandArchitectures(values)), ""
}

// architectures returns those for which the region has images.
func (s *Simulator) architectures() []string {
	list := []string{"amd64/generic"}
	for _, im := range s.db.images {
		for _, arch := range []string{im.arch() + "/generic", im.architecture} {
			if !slices.Contains(list, arch) {
				list = append(list, arch)
			}
		}
	}
	return list
}

func mainArchitectures(list []string) []string {
	var out []string
	for _, arch := range list {
		out = append(out, firstPart(arch, '/'))
	}
	return out
}

func (s *Simulator) expandArchitectures(values []string) []string {
	var out []string
	for _, arch := range s.architectures() {
		if slices.Contains(values, arch) || slices.Contains(values, firstPart(arch, '/')) {
			out = append(out, arch)
		}
	}
	return out
}

func ownerFilter(s *Simulator, values []string) (constraint, string, string) {
	for _, value := range values {
		if s.userByName(value) == nil {
			return nil, "", fmt.Sprintf("No such owner: '%s'.", value)
		}
	}
	return oneOf(ownerNames)(s, values)
}

func ownerNames(m *machine) []string {
	if m.owner == nil {
		return nil
	}
	return []string{m.owner.name}
}

// subnetFilter requires a link on each of the subnets.
func subnetFilter(s *Simulator, values []string) (constraint, string, string) {
	var wanted []*subnet
	for _, value := range values {
		if sn := s.subnetBySpecifier(value); sn != nil {
			wanted = append(wanted, sn)
		}
	}
	if len(wanted) == 0 {
		return nil, "", "No matching subnets found."
	}
	var ids []string
	for _, sn := range wanted {
		ids = append(ids, strconv.Itoa(sn.id))
	}
	return func(m *machine) bool {
		return slices.ContainsFunc(m.ifaces, func(nic *iface) bool {
			return slices.ContainsFunc(nic.links, func(a *address) bool { return slices.Contains(wanted, a.subnet) })
		})
	}, joined(ids), ""
}

func vlanFilter(s *Simulator, values []string) (constraint, string, string) {
	var wanted []*vlan
	var ids []string
	for _, v := range s.db.vlans {
		id := strconv.Itoa(v.id)
		if slices.Contains(values, id) || slices.Contains(values, v.name) || slices.Contains(values, "vid:"+strconv.Itoa(v.vid)) ||
			slices.Contains(values, "id:"+id) || slices.Contains(values, "name:"+v.name) {
			wanted, ids = append(wanted, v), append(ids, id)
		}
	}
	if len(wanted) == 0 {
		return nil, "", "No matching VLANs found."
	}
	return func(m *machine) bool {
		return slices.ContainsFunc(m.ifaces, func(nic *iface) bool { return slices.Contains(wanted, nic.vlan) })
	}, joined(ids), ""
}

// nameFilter accepts a hostname or a fqdn.
func nameFilter(_ *Simulator, values []string) (constraint, string, string) {
	return func(m *machine) bool {
		return slices.Contains(values, m.hostname) || slices.Contains(values, m.fqdn())
	}, joined(values), ""
}

func macFilter(_ *Simulator, values []string) (constraint, string, string) {
	wanted := make([]string, 0, len(values))
	for _, value := range values {
		if !validMAC(value) {
			return nil, "", fmt.Sprintf("'%s' is not a valid MAC address.", value)
		}
		wanted = append(wanted, strings.ToLower(value))
	}
	return func(m *machine) bool {
		return slices.ContainsFunc(m.ifaces, func(nic *iface) bool { return slices.Contains(wanted, nic.mac) })
	}, joined(values), ""
}

func hostNames(m *machine) []string {
	if m.host == nil {
		return nil
	}
	return []string{m.host.name}
}

func hostKinds(m *machine) []string { return []string{m.powerType} }

func fabricNames(m *machine) []string {
	var out []string
	for _, nic := range m.ifaces {
		if nic.vlan != nil {
			out = append(out, nic.vlan.fabric)
		}
	}
	return out
}

func deploymentTarget(m *machine) []string {
	if m.ephemeral {
		return []string{"memory"}
	}
	return []string{"disk"}
}

func statusShortNames() []string {
	var out []string
	for _, info := range statuses {
		out = append(out, info.short)
	}
	return out
}

var simpleStatusNames = []string{"failed", "new", "broken", "other", "ready", "allocated", "deployed", "deploying", "commissioning", "testing"}
