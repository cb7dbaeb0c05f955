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

// IsQuarantine reports whether a tag of a machine, or the note on one, is of a quarantine.
func IsQuarantine(tag string) bool { return strings.HasPrefix(tag, quarantine.Tag) }

// WithoutQuarantines returns a state of MAAS without the tags of quarantines, which outlast clusters: on machines, and in the list of tags.
func WithoutQuarantines(state []byte) ([]byte, error) {
	var all map[string]any
	decoder := json.NewDecoder(bytes.NewReader(state))
	decoder.UseNumber()
	if err := decoder.Decode(&all); err != nil {
		return nil, fmt.Errorf("reading the state of MAAS: %w", err)
	}
	if tags, ok := all["tags"].([]any); ok {
		all["tags"] = slices.DeleteFunc(tags, func(tag any) bool {
			fields, _ := tag.(map[string]any)
			return IsQuarantine(fmt.Sprint(fields["name"]))
		})
	}
	machines, _ := all["machines"].([]any)
	for _, m := range machines {
		fields, _ := m.(map[string]any)
		if names, ok := fields["tag_names"].([]any); ok {
			fields["tag_names"] = slices.DeleteFunc(names, func(name any) bool { return IsQuarantine(fmt.Sprint(name)) })
		}
	}
	cleaned, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("writing the state of MAAS: %w", err)
	}
	return append(cleaned, '\n'), nil
}
