// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"context"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
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
				if err := b.ours.Delete(t.Context(), maas.Unrecorded("a test"), unrecorded.Free, virtualName); err != nil {
					t.Fatal(err)
				}
				if !b.isFree(t, kept) {
					t.Error("what was in the record is reserved after the record was deleted")
				}
			})
		})
	}
}

// While an earlier release may come late, the next one waits, and the record is as it should be all the same.
func TestWhatMayNotBeFreedYetIsFreedLater(t *testing.T) {
	const kept = "10.77.0.63"
	onBoth(t, func(t *testing.T, b *virtualBed) {
		ensure := func(calls Calls, addresses ...string) {
			t.Helper()
			if got, _, err := b.ours.Ensure(t.Context(), virtualName, true, calls, want(addresses...)); err != nil || len(got) != len(addresses) {
				t.Errorf("the record has %v, want %v: %v", got, addresses, err)
			}
		}
		isReserved := func() bool {
			t.Helper()
			reserved, err := b.ours.reservedFor(t.Context(), 0, []string{virtualIP})
			if err != nil {
				t.Fatal(err)
			}
			return len(reserved) > 0
		}
		waits := unrecorded
		waits.Free = func(context.Context, func(context.Context, maas.ReleasePermit) error) error { return nil }
		ensure(waits, virtualIP, kept)
		ensure(waits, kept)
		ensure(waits, kept)
		if !isReserved() {
			t.Error("it is freed though it may not be")
		}
		ensure(unrecorded, kept)
		if isReserved() {
			t.Error("it is reserved still")
		}
	})
}

// A release or a write whose outcome is not known is made up for, though the record is as it should be by then.
func TestWhatCouldNotBeFreedIsFreedLater(t *testing.T) {
	const kept = "10.77.0.63"
	ensure := func(t *testing.T, b *virtualBed, addresses ...string) error {
		_, _, err := b.ours.Ensure(t.Context(), virtualName, true, unrecorded, want(addresses...))
		return err
	}
	for name, tc := range map[string]struct {
		fault simulator.Fault
		then  func(*testing.T, *virtualBed) error
		kept  bool // is in the record in the end
		free  bool // virtualIP is free in the end
	}{
		"a release, then the next reconcile": {simulator.Fault{Op: "release", DropBefore: true},
			func(t *testing.T, b *virtualBed) error { return ensure(t, b, kept) }, true, true},
		"a write, then the next reconcile": {simulator.Fault{Method: "PUT", DropAfter: true},
			func(t *testing.T, b *virtualBed) error { return ensure(t, b, kept) }, true, true},
		"a release, then the record's end": {simulator.Fault{Op: "release", DropBefore: true},
			func(t *testing.T, b *virtualBed) error {
				return b.ours.Delete(t.Context(), maas.Unrecorded("a test"), unrecorded.Free, virtualName)
			}, false, true},
		"a release, then the address comes back": {simulator.Fault{Op: "release", DropBefore: true},
			func(t *testing.T, b *virtualBed) error {
				if err := ensure(t, b, virtualIP, kept); err != nil {
					return err
				}
				return ensure(t, b, virtualIP, kept)
			}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, b *virtualBed) {
				if err := ensure(t, b, virtualIP, kept); err != nil {
					t.Fatal(err)
				}
				fault, err := b.maas.AddFault(tc.fault)
				if err != nil {
					t.Fatal(err)
				}
				if err := ensure(t, b, kept); err == nil {
					t.Fatal("the fault was not noticed")
				}
				b.maas.RemoveFault(fault)
				if err := tc.then(t, b); err != nil {
					t.Fatal(err)
				}
				if free := b.isFree(t, virtualIP); free != tc.free || b.isFree(t, kept) == tc.kept {
					t.Errorf("what left the record is free: %t, want %t; or what is in it is free", free, tc.free)
				}
			})
		})
	}
}
