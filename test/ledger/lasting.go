// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/quarantine"
)

// isLasting reports whether a tag outlasts clusters. That of exclusions does, but no machine keeps it.
func isLasting(tag string) bool { return IsQuarantine(tag) || tag == quarantine.ExcludeTag }

// IsQuarantine reports whether a tag of a machine, or the note on one, is of a quarantine.
func IsQuarantine(tag string) bool { return strings.HasPrefix(tag, quarantine.Tag) }

// Lasting returns a state of MAAS without what differs before and after clusters although nobody left anything: the tags
// of quarantines and exclusions, which outlast clusters, and what MAAS takes for network cards of a host when it reads the host while
// VMs run there.
func Lasting(state []byte) ([]byte, error) {
	var all map[string]any
	decoder := json.NewDecoder(bytes.NewReader(state))
	decoder.UseNumber()
	if err := decoder.Decode(&all); err != nil {
		return nil, fmt.Errorf("reading the state of MAAS: %w", err)
	}
	if tags, ok := all["tags"].([]any); ok {
		all["tags"] = slices.DeleteFunc(tags, func(tag any) bool { return isLasting(fmt.Sprint(field(tag, "name"))) })
	}
	machines, _ := all["machines"].([]any)
	for _, m := range machines {
		if machine, ok := m.(map[string]any); ok {
			remove(machine, "tag_names", func(name any) bool { return IsQuarantine(fmt.Sprint(name)) })
			removeTaps(machine)
		}
	}
	lasting, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("writing the state of MAAS: %w", err)
	}
	return append(lasting, '\n'), nil
}

// removeTaps removes the network cards of VMs from a machine. MAAS makes interfaces of them (metadata server,
// builtin_scripts/network.py: update_node_interfaces), and a bridge has the address of one of its ports.
func removeTaps(machine map[string]any) {
	remove(machine, "interface_set", func(nic any) bool { return isTap(field(nic, "name")) })
	nics, _ := machine["interface_set"].([]any)
	for _, one := range nics {
		nic, _ := one.(map[string]any)
		remove(nic, "parents", isTap)
		if nic["type"] == "bridge" {
			delete(nic, "mac_address")
		}
	}
}

func isTap(name any) bool { return strings.HasPrefix(fmt.Sprint(name), "tap") }

// remove removes elements of a list in an object.
func remove(object map[string]any, name string, unwanted func(any) bool) {
	if list, ok := object[name].([]any); ok {
		object[name] = slices.DeleteFunc(list, unwanted)
	}
}

func field(object any, name string) any {
	fields, _ := object.(map[string]any)
	return fields[name]
}
