// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"maps"
	"math"
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
var vmHostConstraints = []string{"pod", "not_pod", "not_pod_type"}

// machineFilter parses constraints. Each must be one of known; a wrong value is a 400 that names it.
func (s *Simulator) machineFilter(f form, known map[string]filterField) (*machineQuery, error) {
	q, errs := &machineQuery{described: map[string]string{}}, formErrors{}
	for _, name := range f.order {
		field, ok := known[name]
		if !ok || slices.Contains(vmHostConstraints, name) && !s.hasVMHosts() {
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

// filterField turns a filter's values into a constraint, its description, or a complaint. An empty value counts as a
// value; without a constraint the values mean nothing.
type filterField func(s *Simulator, values []string) (constraint, string, string)

// listFilters are those of GET machines/, allocateFilters those of op=allocate, as far as somebody here sends them.
var listFilters, allocateFilters map[string]filterField

func init() {
	common := map[string]filterField{
		"system_id":    oneOf(func(m *machine) []string { return []string{m.systemID} }),
		"zone":         existing("zone", zoneExists, func(m *machine) []string { return []string{m.zone.name} }),
		"pool":         existing("pool", poolExists, poolNames),
		"pod":          oneOf(hostNames),
		"not_pod":      opposite(oneOf(hostNames)),
		"not_pod_type": opposite(oneOf(func(m *machine) []string { return []string{m.powerType} })),
		"tags":         tagFilter,
		"not_tags":     opposite(oneOf(func(m *machine) []string { return tagNames(m.tags) })),
		"arch":         archFilter,
		"cpu_count": atLeast("Invalid CPU count: number required.",
			func(m *machine) float64 { return float64(m.cpuCount) }),
		"mem": atLeast("Invalid memory: number of MiB required.",
			func(m *machine) float64 { return float64(m.memory) }),
		"storage":    storageFilter,
		"interfaces": interfacesFilter,
	}
	listFilters, allocateFilters = maps.Clone(common), common
	listFilters["id"] = common["system_id"]
	listFilters["hostname"] = oneOf(func(m *machine) []string { return []string{m.hostname} })
	listFilters["mac_address"] = macFilter
	listFilters["agent_name"] = oneOf(func(m *machine) []string { return []string{m.agentName} })
	listFilters["not_agent_name"] = opposite(listFilters["agent_name"])
	listFilters["status"] = choice(statusShortNames(), func(m *machine) []string { return []string{statuses[m.status].short} })
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
		if !slices.ContainsFunc(s.architectures(), func(arch string) bool { return value == arch || value == firstPart(arch, '/') }) {
			return nil, "", "Architecture not recognised."
		}
	}
	return func(m *machine) bool {
		return slices.Contains(values, m.architecture) || slices.Contains(values, firstPart(m.architecture, '/'))
	}, joined(values), ""
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

func statusShortNames() []string {
	var out []string
	for _, info := range statuses {
		out = append(out, info.short)
	}
	return out
}
