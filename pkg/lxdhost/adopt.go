// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/canonical/lxd/shared/api"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
)

// Adopt gives marks to a VM without any, for example one that MAAS composed. Its interfaces must have the MAC
// addresses, in any order, and no other. A VM that carries the marks already is left as it is; without addresses, only
// that one is adopted.
//
// It calls GET /1.0/instances/NAME, and PATCH instances/NAME with its ETag, after which it may have to read the VM
// again. The error is an *Error: KindNotFound, KindConflict if the VM has other marks or other addresses, or one of the
// connection or of LXD.
func (h *Host) Adopt(ctx context.Context, name string, marks Marks, addresses []string) error {
	return h.in(ctx, "adopt", "adopting the VM "+name, func(s *session) error { return s.adopt(name, marks, addresses) })
}

func (s *session) adopt(name string, marks Marks, addresses []string) error {
	found, etag, err := s.prove(name, marks)
	ours := err == nil
	if !ours && KindOf(err) != KindConflict {
		return err
	}
	if !ours && (found.Type != string(api.InstanceTypeVM) || marksOf(found.Config) != (Marks{}) || len(addresses) == 0) {
		return err
	}
	if has := slices.Collect(maps.Values(macs(found))); len(addresses) > 0 && !sameAddresses(has, addresses) {
		return problem(KindConflict, "there is a VM %s with other MAC addresses (%s) than ours (%s)",
			name, strings.Join(has, ", "), strings.Join(addresses, ", "))
	}
	if ours {
		return nil
	}
	given := map[string]any{"config": marks.config()} // LXD merges the configuration
	changed := s.client.Patch(s.client.Path("instances", name), given, etag)
	if changed == nil {
		return nil
	}
	// LXD informs a running VM afterwards, and fails where no agent of LXD runs in it.
	if _, _, err := s.prove(name, marks); err == nil {
		return nil
	}
	return sent(changed)
}

func sameAddresses(a, b []string) bool {
	normal := func(all []string) []string {
		lower := list.Each(all, strings.ToLower)
		slices.Sort(lower)
		return slices.Compact(lower)
	}
	return slices.Equal(normal(a), normal(b))
}
