// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"bytes"
	"fmt"
	"testing"
)

func FuzzDeriveMAC(f *testing.F) {
	f.Add("", "")
	f.Add("owner1", "machine-1")
	f.Add("own", "er1machine-1")
	f.Fuzz(func(t *testing.T, owner, name string) {
		mac := DeriveMAC(owner, name)
		if !bytes.HasPrefix(mac, []byte{0x00, 0x16, 0x3e}) || len(mac) != 6 {
			t.Errorf("%s has not LXD's prefix", mac)
		}
		if mac[0]&1 != 0 {
			t.Errorf("%s is not one interface's", mac)
		}
		if again := DeriveMAC(owner, name); !bytes.Equal(mac, again) {
			t.Errorf("first %s, then %s", mac, again)
		}
	})
}

// What is stored in MAAS and LXD must be found by later versions.
func TestDeriveMACStaysTheSame(t *testing.T) {
	t.Parallel()
	for pair, want := range map[[2]string]string{
		{"", ""}:                   "00:16:3e:af:55:70",
		{"owner1", "machine-1"}:    "00:16:3e:7b:3d:ae",
		{"owner1m", "achine-1"}:    "00:16:3e:48:59:68",
		{"owner1", "machine-\xff"}: "00:16:3e:ca:8a:59",
	} {
		if got := DeriveMAC(pair[0], pair[1]).String(); got != want {
			t.Errorf("%q: got %s, want %s", pair, got, want)
		}
	}
}

func TestDeriveMACSpreads(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	const many = 1000
	for i := range many {
		seen[DeriveMAC(fmt.Sprintf("owner%d", i%10), fmt.Sprintf("machine-%d", i/10)).String()] = true
	}
	if len(seen) < many-2 {
		t.Errorf("%d VMs have %d MAC addresses", many, len(seen))
	}
}
