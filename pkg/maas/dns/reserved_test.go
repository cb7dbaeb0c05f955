// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// MAAS reserves what a record names and no machine has, as when a machine was released a moment ago.
func TestWhatWasReservedForTheRecordIsFreeWithoutIt(t *testing.T) {
	const kept = "10.77.0.63"
	for name, tc := range map[string]struct {
		before func(*testing.T, *virtualBed)
		free   bool
	}{
		"for us": {func(*testing.T, *virtualBed) {}, true},
		"for another user": {func(t *testing.T, b *virtualBed) {
			reserve(t, b.other, virtualIP, "")
		}, false},
		"for us, as a virtual IP": {func(t *testing.T, b *virtualBed) {
			reserve(t, b.ours, virtualIP, "other.maas.sim")
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, b *virtualBed) {
				tc.before(t, b)
				for _, addresses := range [][]string{{virtualIP, kept}, {kept}} {
					if _, wrote, err := b.ours.Ensure(t.Context(), virtualName, false, unrecorded, want(addresses...)); err != nil || !wrote {
						t.Fatalf("wrote %v: %t, %v", addresses, wrote, err)
					}
				}
				if free := b.isFree(t, virtualIP); free != tc.free || b.isFree(t, kept) {
					t.Errorf("what left the record is free: %t, want %t; or what is in it is free", free, tc.free)
				}
				if err := b.ours.Delete(t.Context(), maas.Unrecorded("a test"), virtualName); err != nil {
					t.Fatal(err)
				}
				if !b.isFree(t, kept) {
					t.Error("what was in the record is reserved after the record was deleted")
				}
			})
		})
	}
}
