// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"regexp"
	"strings"
	"testing"
)

func TestHostname(t *testing.T) {
	label := regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)
	long := strings.Repeat("a-long-name-", 10)
	seen := map[string]string{}
	for _, in := range [][2]string{
		{"cp-0", "owner1"}, {"cp-0", "owner2"}, {"cp.0", "owner1"}, {"cp-1", "owner1"},
		{long + "1", "owner1"}, {long + "2", "owner1"}, {strings.Repeat("a", 53) + "---", "owner1"},
	} {
		got := Hostname(in[0], in[1])
		if !label.MatchString(got) || len(got) > 63 {
			t.Errorf("Hostname(%q, %q) = %q, which is no DNS label", in[0], in[1], got)
		}
		if got != Hostname(in[0], in[1]) {
			t.Errorf("Hostname(%q, %q) differs from call to call", in[0], in[1])
		}
		if other, ok := seen[got]; ok {
			t.Errorf("%q and %q share the name %q", in, other, got)
		}
		seen[got] = in[0]
	}
}
