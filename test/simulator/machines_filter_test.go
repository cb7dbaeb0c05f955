// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"net/http"
	"testing"
)

func TestAllocatePicksTheCheapest(t *testing.T) {
	b := newBed(t)
	for _, want := range []string{"small", "big"} {
		got := b.do(post, "machines/", "op", "allocate", "not_pod_type", "lxd", "mem", "8000").object(t)
		if got["hostname"] != want {
			t.Errorf("allocated %v, want %s", got["hostname"], want)
		}
	}
	if got := b.do(post, "machines/", "op", "allocate", "not_pod_type", "lxd", "mem", "8000"); got.status != http.StatusConflict {
		t.Errorf("nothing is left, but: %d %s", got.status, got.body)
	}
}
