// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
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

// interfaceKeys are the keys of an interfaces constraint.
var interfaceKeys = []string{
	"id", "not_id", "fabric", "not_fabric", "fabric_class", "not_fabric_class", "ip", "not_ip", "mode", "name", "not_name",
	"hostname", "not_hostname", "subnet", "not_subnet", "space", "not_space", "subnet_cidr", "not_subnet_cidr", "type",
	"vlan", "not_vlan", "vid", "not_vid", "tag", "not_tag", "link_speed",
}

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

func interfacesFilter(s *Simulator, values []string) (constraint, string, string) {
	wishes, complaint := parseInterfaces(values[len(values)-1])
	if complaint != "" {
		return nil, "", complaint
	}
	if len(wishes) == 0 {
		return nil, "", ""
	}
	return func(m *machine) bool { return s.matchInterfaces(m, wishes) != nil }, values[len(values)-1], ""
}

// undefinedSpace is the space of a VLAN without one.
const undefinedSpace = "undefined"

// wishError refuses what only the database shows to be wrong: a space that does not exist.
func (s *Simulator) wishError(wish interfaceWish) error {
	for _, key := range []string{"space", "not_space"} {
		for _, name := range wish.keys[key] {
			known := slices.ContainsFunc(s.db.vlans, func(v *vlan) bool { return v.space == strings.TrimPrefix(name, "name:") })
			if name != undefinedSpace && !known {
				return notFound("Space")
			}
		}
	}
	return nil
}

// interfacesError returns MAAS's error for an interfaces constraint when it searches machines, if any.
func (s *Simulator) interfacesError(text string) error {
	wishes, _ := parseInterfaces(text)
	for _, wish := range wishes {
		if err := s.wishError(wish); err != nil {
			return err
		}
		for _, mode := range wish.keys["mode"] {
			if !strings.EqualFold(strings.TrimSpace(mode), "unconfigured") {
				return badRequest("The only valid value for 'mode' is 'unconfigured'.")
			}
		}
	}
	return nil
}

// matchInterfaces returns the interfaces for each wish by label, or nil.
func (s *Simulator) matchInterfaces(m *machine, wishes []interfaceWish) map[string][]int {
	out := map[string][]int{}
	for _, wish := range wishes {
		for _, nic := range m.ifaces {
			if s.fits(nic, wish) {
				out[wish.label] = append(out[wish.label], nic.id)
			}
		}
		if len(out[wish.label]) == 0 {
			return nil
		}
	}
	return out
}

// fits reports whether an interface matches a wish.
func (s *Simulator) fits(nic *iface, wish interfaceWish) bool {
	for key, values := range wish.keys {
		plain, negated := strings.CutPrefix(key, "not_")
		if plain == "ip" || plain == "mode" || plain == "link_speed" {
			if plain == "ip" && !s.onSubnetOf(nic, values) {
				return false
			}
			continue
		}
		if containsAny(nic.facts(plain), values) == negated {
			return false
		}
	}
	return true
}

func (s *Simulator) onSubnetOf(nic *iface, ips []string) bool {
	return slices.ContainsFunc(nic.links, func(a *address) bool {
		return a.subnet != nil && slices.ContainsFunc(ips, func(text string) bool {
			ip, err := parseIP(text)
			return err == nil && a.subnet.cidr.Contains(ip)
		})
	})
}

// facts returns an interface's values for one of interfaceKeys.
func (nic *iface) facts(key string) []string {
	var out []string
	switch key {
	case "id":
		return []string{strconv.Itoa(nic.id)}
	case "name":
		return []string{nic.name}
	case "type":
		return []string{nic.kind}
	case "tag":
		return nic.tags
	case "hostname":
		return []string{nic.machine.hostname}
	case "subnet", "subnet_cidr":
		for _, link := range nic.links {
			if link.subnet != nil {
				out = append(out, link.subnet.cidr.String(), link.subnet.name, strconv.Itoa(link.subnet.id),
					"name:"+link.subnet.name, "cidr:"+link.subnet.cidr.String(), "id:"+strconv.Itoa(link.subnet.id))
			}
		}
		return out
	}
	if nic.vlan == nil {
		return nil
	}
	switch key {
	case "fabric":
		return []string{nic.vlan.fabric, strconv.Itoa(nic.vlan.fabricID), "name:" + nic.vlan.fabric}
	case "space":
		return []string{nic.vlan.space, "name:" + nic.vlan.space}
	case "vlan":
		return []string{nic.vlan.name, strconv.Itoa(nic.vlan.id), "name:" + nic.vlan.name}
	case "vid":
		return []string{strconv.Itoa(nic.vlan.vid)}
	}
	return nil
}

// devicesFilter checks the keys; simulated machines have no PCI devices, so nothing matches.
func devicesFilter(_ *Simulator, values []string) (constraint, string, string) {
	if values[len(values)-1] == "" {
		return nil, "", ""
	}
	known := []string{"vendor_id", "product_id", "vendor_name", "product_name", "commissioning_driver"}
	for _, value := range values {
		for pair := range strings.SplitSeq(value, ",") {
			if key := firstPart(pair, '='); !slices.Contains(known, key) {
				return nil, "", fmt.Sprintf("Unknown devices constraint: '%s", key)
			}
		}
	}
	return func(*machine) bool { return false }, joined(values), ""
}
