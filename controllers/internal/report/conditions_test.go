// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestBriefMakesOneShortLine(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"as it is":         {"no room in the pool", "no room in the pool"},
		"several lines":    {"no room\nin the\tpool\r\n", "no room in the pool"},
		"no text":          {"a\x00b \xff c", "a b ? c"},
		"too long":         {strings.Repeat("x", maxForeign+1), strings.Repeat("x", maxForeign) + "..."},
		"cut in character": {"x" + strings.Repeat("é", maxForeign), "x" + strings.Repeat("é", (maxForeign-1)/2) + "..."},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Brief(tc.text); got != tc.want || !utf8.ValidString(got) {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}
