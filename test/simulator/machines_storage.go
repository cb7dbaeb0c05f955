// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
)

// storageWish is one disk of a storage constraint "label:SIZE(tag,...)".
type storageWish struct {
	label string
	size  int64 // bytes
	tags  []string
}

// maxDisk is the largest disk that can be requested, in GB. More bytes would overflow.
const maxDisk = math.MaxInt64 / 1e9 / 2

var storagePattern = regexp.MustCompile(`(?:([a-zA-Z0-9]+):)?([0-9.]+)(?:\(([^)]+)\))?`)

// parseStorage parses a storage constraint; it returns a complaint if it can't.
func parseStorage(text string) ([]storageWish, string) {
	malformed := fmt.Sprintf("Malformed storage constraint, \"%s\".", text)
	var wishes []storageWish
	var again []string
	for _, found := range storagePattern.FindAllStringSubmatch(text, -1) {
		again = append(again, found[0])
		size, ok := parseFloat(found[2])
		if !ok || size > maxDisk {
			return nil, malformed
		}
		wish := storageWish{label: found[1], size: int64(size * 1e9)}
		if found[3] != "" {
			wish.tags = strings.Split(found[3], ",")
		}
		wishes = append(wishes, wish)
	}
	if len(wishes) == 0 || strings.Join(again, ",") != text {
		return nil, malformed
	}
	// get_storage_constraints_from_string in maasserver/node_constraint_filter_forms.py: behind the boot disk, those
	// with most tags come first.
	slices.SortStableFunc(wishes[1:], func(a, b storageWish) int { return len(b.tags) - len(a.tags) })
	return wishes, ""
}

// storageFilter wants a disk for each wish, the first of them the boot disk.
func storageFilter(_ *Simulator, values []string) (constraint, string, string) {
	if values[len(values)-1] == "" {
		return nil, "", ""
	}
	wishes, complaint := parseStorage(values[len(values)-1])
	if complaint != "" {
		return nil, "", complaint
	}
	return func(m *machine) bool { return matchDisks(m, wishes) != nil }, values[len(values)-1], ""
}

// matchDisks returns a disk for each wish, or nil.
func matchDisks(m *machine, wishes []storageWish) []*disk {
	var chosen []*disk
	for i, wish := range wishes {
		at := slices.IndexFunc(m.disks, func(d *disk) bool {
			return !slices.Contains(chosen, d) && d.size >= wish.size && hasAll(d.tags, wish.tags)
		})
		if at < 0 || (i == 0 && at != 0) {
			return nil
		}
		chosen = append(chosen, m.disks[at])
	}
	return chosen
}

func hasAll(list, wanted []string) bool {
	for _, text := range wanted {
		if !slices.Contains(list, text) {
			return false
		}
	}
	return true
}

// interfaceWish is one labelled interface of an interfaces constraint: keys and their values.
type interfaceWish struct {
	label string
	keys  map[string][]string
}

// interfaceKeys are the keys of an interfaces constraint that the simulator has.
var interfaceKeys = []string{"name", "subnet_cidr", "hostname", "not_hostname"}

// constraintLabel is the name of an interface in a constraint.
var constraintLabel = regexp.MustCompile(`^[a-zA-Z0-9]+[a-zA-Z0-9_-]*$`)

// parseInterfaces parses "label:key=value,key=value;label2:..."; it returns a complaint if it can't
// (parse_labeled_constraint_map in provisioningserver/utils/constraints.py).
func parseInterfaces(text string) ([]interfaceWish, string) {
	var wishes []interfaceWish
	if len(text) <= 1 {
		return nil, ""
	}
	for part := range strings.SplitSeq(text, ";") {
		label, rest, ok := strings.Cut(part, ":")
		switch {
		case !ok:
			return nil, fmt.Sprintf("Malformed constraint: '%s' (required format: '<label>:<key>=<value>[,<key2>=<value2>[,...]]')", part)
		case !constraintLabel.MatchString(label):
			return nil, fmt.Sprintf("Invalid label name: '%s' (Must begin with an alphanumeric character, "+
				"and include only alphanumeric characters, dashes, and underscores.)", label)
		case slices.ContainsFunc(wishes, func(w interfaceWish) bool { return w.label == label }):
			return nil, fmt.Sprintf("Constraint label defined more than once: '%s'", label)
		}
		wish := interfaceWish{label: label, keys: map[string][]string{}}
		for pair := range strings.SplitSeq(rest, ",") {
			key, value, ok := strings.Cut(pair, "=")
			if !ok {
				return nil, fmt.Sprintf("Malformed key/value pair in constraint: '%s'", pair)
			}
			if !slices.Contains(interfaceKeys, key) {
				return nil, fmt.Sprintf("Unknown interfaces constraint: '%s", key)
			}
			wish.keys[key] = append(wish.keys[key], value)
		}
		wishes = append(wishes, wish)
	}
	return wishes, ""
}

func interfacesFilter(_ *Simulator, values []string) (constraint, string, string) {
	wishes, complaint := parseInterfaces(values[len(values)-1])
	if complaint != "" {
		return nil, "", complaint
	}
	if len(wishes) == 0 {
		return nil, "", ""
	}
	return func(m *machine) bool { return m.matchInterfaces(wishes) }, values[len(values)-1], ""
}

// matchInterfaces reports whether a machine has an interface for each wish.
func (m *machine) matchInterfaces(wishes []interfaceWish) bool {
	return !slices.ContainsFunc(wishes, func(wish interfaceWish) bool { return !slices.ContainsFunc(m.ifaces, wish.fits) })
}

// fits reports whether an interface matches a wish.
func (w interfaceWish) fits(nic *iface) bool {
	for key, values := range w.keys {
		plain, negated := strings.CutPrefix(key, "not_")
		if containsAny(nic.facts(plain), values) == negated {
			return false
		}
	}
	return true
}

// facts returns an interface's values for one of interfaceKeys.
func (nic *iface) facts(key string) (facts []string) {
	switch key {
	case "name":
		return []string{nic.name}
	case "hostname":
		return []string{nic.machine.hostname}
	}
	for _, link := range nic.links {
		if link.subnet != nil {
			facts = append(facts, link.subnet.cidr.String())
		}
	}
	return facts
}
