// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strconv"
	"strings"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// FuzzVersion parses any version that a MAAS may report.
func FuzzVersion(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string) {
		major, minor, _, ok := maas.ParseVersion(text)
		if !ok {
			return
		}
		first, rest, _ := strings.Cut(text, ".")
		digits := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
		wantMajor, err1 := strconv.Atoi(first)
		wantMinor, err2 := strconv.Atoi(digits)
		if err1 != nil || err2 != nil || major != wantMajor || minor != wantMinor {
			t.Errorf("%q is read as %d.%d", text, major, minor)
		}
	})
}
