// SPDX-License-Identifier: Apache-2.0

package chaos_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// history is what a finding is explained by: what MAAS was asked to do with the machines that it names, and what the
// manager logged about anything that it names.
func history(finding string) string {
	logged, err := managerLog()
	if err != nil {
		logged = []string{err.Error()}
	}
	return explained(finding, box.MAAS.Calls().Log, logged)
}

func explained(finding string, calls []simulator.Call, logged []string) string {
	words := word.FindAllString(finding, -1)
	named := namesAmong(words)
	var lines strings.Builder
	for _, call := range calls {
		if call.Method != http.MethodGet && slices.Contains(words, call.SystemID) {
			named = append(named, call.SystemID)
			fmt.Fprintf(&lines, "\n\t%s %s: %s %s %s: %d", call.Time.Format(time.StampMilli), call.User, call.Method, call.Path, call.Op, call.Status)
		}
	}
	about := lastAbout(logged, named)
	if len(about) == 0 {
		fmt.Fprintf(&lines, "\n\tthe manager logged nothing about any of %q, and last:", named)
		about = last(logged)
	}
	for _, line := range about {
		lines.WriteString("\n" + line)
	}
	return lines.String()
}

// word is what may be a name, an id or an address.
var word = regexp.MustCompile(`[0-9A-Za-z]([0-9A-Za-z.:-]*[0-9A-Za-z])?`)

// ownerHash is what follows the name of an object in that of its machine or endpoint.
var ownerHash = regexp.MustCompile(`-[0-9a-z]{13}$`)

// namesAmong returns the words that name something: an object by its own name, also where MAAS has a machine or a DNS
// record of it.
func namesAmong(words []string) (named []string) {
	for _, found := range words {
		_, err := netip.ParseAddr(found)
		isName := strings.ContainsAny(found, "abcdefghijklmnopqrstuvwxyz") && strings.ContainsAny(found, "0123456789-")
		if err != nil && !isName {
			continue
		}
		named = append(named, found)
		if label, _, _ := strings.Cut(found, "."); err != nil && ownerHash.MatchString(label) {
			named = append(named, ownerHash.ReplaceAllString(label, ""))
		}
	}
	return named
}

// lastAbout returns the last lines with one of the names in them. That of another object may begin with it: "m1" is not in
// "m10".
func lastAbout(logged, named []string) []string {
	if len(named) == 0 {
		return nil
	}
	quoted := make([]string, 0, len(named))
	for _, name := range named {
		quoted = append(quoted, regexp.QuoteMeta(name))
	}
	about := regexp.MustCompile(`(^|[^0-9A-Za-z])(` + strings.Join(quoted, "|") + `)($|[^0-9A-Za-z])`)
	return last(slices.DeleteFunc(slices.Clone(logged), func(line string) bool { return !about.MatchString(line) }))
}

func last(lines []string) []string { return lines[max(0, len(lines)-lastLines):] }

// Whatever a finding is about, its history has what the manager logged about it, and nothing else.
func TestHistoryHasTheLogOfWhatAFindingIsAbout(t *testing.T) {
	t.Parallel()
	logged := []string{
		`{"msg":"one","MaasMachine":{"name":"chaos-3-m1","namespace":"default"}}`,
		`{"msg":"ten","MaasMachine":{"name":"chaos-3-m10","namespace":"default"}}`,
		`{"msg":"The cluster","MaasCluster":{"name":"chaos-3","namespace":"default"}}`,
		`{"msg":"Allocated","systemID":"477hgk"}`,
		`{"msg":"A claim is left","address":"10.77.0.60"}`,
		`{"msg":"A tag is left","tag":"capmaas-quarantine-a"}`,
		`{"msg":"Refreshed","host":"lxd-b1"}`,
		`{"msg":"Connected","LXDHost":{"name":"direct-a0"}}`,
		`{"msg":"Leading"}`,
	}
	for finding, want := range map[string][]string{
		"machine abc (477hgk, Ready) was never ours, and is gone":                             {"Allocated"},
		"no object claims device other (477hgk), which is ours by its hostname":               {"Allocated"},
		"machine 477hgk was never ours, and is gone":                                          {"Allocated"},
		"MaasMachine default/chaos-3-m1 is still there":                                       {"one"},
		"MaasCluster default/chaos-3 is still there":                                          {"one", "ten", "The cluster"},
		"MAAS does not know VM chaos-3-m10-0123456789abc on host lxd-a1":                      {"ten"},
		"VM chaos-3-m1-0123456789abc is left in the LXD direct-b0":                            {"one"},
		"VM theirs in the LXD direct-a0 changed from theirs 1 to theirs 2":                    {"Connected"},
		"VM host lxd-b1 does not answer":                                                      {"Refreshed"},
		"10.77.0.60 is reserved in MAAS, and was not":                                         {"A claim is left"},
		"chaos-3-0123456789abc.maas.sim is left, and leads to \"10.77.0.60\"":                 {"one", "ten", "The cluster", "A claim is left"},
		`+ tags: {"name":"capmaas-quarantine-a","resource_uri":"/MAAS/api/2.0/tags/x/"}`:      {"A tag is left"},
		"the zones of MAAS changed from [] to [default]":                                      {"logged nothing", "Leading"},
		"machine x (7pf3dc, Ready) was never ours, and MaasMachine default/chaos-9-m1 has it": {"logged nothing", "Leading"},
	} {
		got := explained(finding, nil, logged)
		for _, text := range want {
			if !strings.Contains(got, text) {
				t.Errorf("the history of %q lacks %q:%s", finding, text, got)
			}
		}
		if lines := strings.Count(got, "\n"); !slices.Contains(want, "Leading") && lines != len(want) {
			t.Errorf("the history of %q has %d lines, want %d:%s", finding, lines, len(want), got)
		}
	}
	calls := []simulator.Call{
		{Method: http.MethodPost, Op: "release", SystemID: "abcdef"}, {Method: http.MethodPost, Op: "deploy", SystemID: "477hgk"},
	}
	// An id may be a word like others.
	got := explained("device other (abcdef) is left", calls, []string{"Tagged abcdef"})
	if !strings.Contains(got, "release") || !strings.Contains(got, "Tagged") || strings.Contains(got, "deploy") {
		t.Errorf("the history of abcdef is %s", got)
	}
}
