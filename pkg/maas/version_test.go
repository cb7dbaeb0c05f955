// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestVersionsAreUnderstood(t *testing.T) {
	for text, want := range map[string]Version{
		"3.6.5": {3, 6, 5}, "3.7.0~beta1": {3, 7, 0}, "3.8": {3, 8, 0}, "2.9.2": {2, 9, 2}, "4.0": {4, 0, 0}, "3.10-rc1": {3, 10, 0}, "3.7.12-g1": {3, 7, 12},
	} {
		if got, err := ParseVersion(text); err != nil || got != want {
			t.Errorf("%s is %s, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "3", "three.six", "3.x", "03.6", "0.0.0"} {
		if got, err := ParseVersion(text); err == nil || got.Known() {
			t.Errorf("%q is %s, and no version", text, got)
		}
	}
}

func TestVersionsAreCompared(t *testing.T) {
	ordered := []Version{{}, {2, 9, 2}, {3, 3, 0}, {3, 3, 11}, {3, 6, 5}, {3, 10, 0}, {4, 0, 0}, {4, 0, 1}}
	if !slices.IsSortedFunc(ordered, Version.Compare) {
		t.Errorf("%v is not the order", ordered)
	}
	for i, v := range ordered {
		for j, other := range ordered {
			if v.AtLeast(other.Major, other.Minor, other.Point) != (i >= j) {
				t.Errorf("%s is at least %s: %v", v, other, i < j)
			}
		}
	}
}

// FuzzVersion parses any version that a MAAS may report.
func FuzzVersion(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ParseVersion(text)
		if err != nil {
			return
		}
		first, rest, _ := strings.Cut(text, ".")
		digits := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
		wantMajor, err1 := strconv.Atoi(first)
		wantMinor, err2 := strconv.Atoi(digits)
		if err1 != nil || err2 != nil || got.Major != wantMajor || got.Minor != wantMinor {
			t.Errorf("%q is read as %s", text, got)
		}
	})
}
