// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// nginx before MAAS accepts 8 KiB for a request line, of which a quarter is reserved for a longer URL than ours.
func TestJoinedFiltersFitIntoARequestLine(t *testing.T) {
	for name, tc := range map[string]struct {
		agentName string
		machines  int
		lists     int
	}{
		"none":        {"x", 0, 0},
		"one":         {"x", 1, 1},
		"short names": {"capmaas/x7k2m9qwzc4t/cp-0", 100, 1},
		"long names":  {"capmaas/x7k2m9qwzc4t/" + strings.Repeat("a", 230), 100, 5},
		"escapes":     {strings.Repeat("/", 250), 100, 15},
		"too long":    {strings.Repeat("a", maxQuery), 3, 3},
	} {
		t.Run(name, func(t *testing.T) {
			var longest, lists int
			client := serve(t, func(w http.ResponseWriter, r *http.Request) {
				lists, longest = lists+1, max(longest, len(r.Method+" "+r.RequestURI+" "+r.Proto+"\r\n"))
				fmt.Fprint(w, "[]")
			})
			var each, all []MachineFilter
			var ids []string
			for i := range tc.machines {
				ids = append(ids, fmt.Sprintf("ab%04d", i))
				each = append(each, MachineFilter{SystemIDs: ids[i : i+1], AgentNames: []string{tc.agentName}})
			}
			all = JoinFilters(each)
			var asked []string
			for _, filter := range all {
				if asked = append(asked, filter.SystemIDs...); len(filter.AgentNames) != len(filter.SystemIDs) {
					t.Errorf("%d ids and %d names", len(filter.SystemIDs), len(filter.AgentNames))
				}
				if _, err := client.ListMachines(t.Context(), filter); err != nil {
					t.Fatal(err)
				}
			}
			if !slices.Equal(asked, ids) {
				t.Errorf("%d machines are asked for, want %d", len(asked), len(ids))
			}
			if lists != tc.lists || (longest > 6<<10 && len(tc.agentName) < maxQuery) {
				t.Errorf("%d lists, want %d; the longest request line has %d bytes", lists, tc.lists, longest)
			}
		})
	}
}

func TestJoinedFiltersHaveAllFields(t *testing.T) {
	one := MachineFilter{
		SystemIDs: []string{"a"}, Hostnames: []string{"b"}, AgentNames: []string{"c"}, NotAgentNames: []string{"d"}, VMHosts: []string{"e"},
	}
	want := MachineFilter{
		SystemIDs: []string{"a", "a"}, Hostnames: []string{"b", "b"}, AgentNames: []string{"c", "c"}, NotAgentNames: []string{"d", "d"},
		VMHosts: []string{"e", "e"},
	}
	if diff := cmp.Diff([]MachineFilter{want}, JoinFilters([]MachineFilter{one, one})); diff != "" {
		t.Errorf("the filter differs (-want +got):\n%s", diff)
	}
}
