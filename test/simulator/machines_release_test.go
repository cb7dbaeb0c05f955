// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"testing"
)

// What is off, or has its disks erased first, is not switched off by the request.
func TestReleaseThatSwitchesNothingOffTakesNoPowerFailure(t *testing.T) {
	b := newBed(t)
	path := "machines/" + b.named("small").SystemID + "/"
	b.do(post, "machines/", "op", "allocate", "system_id", b.named("small").SystemID).object(t)
	b.control(post, "fail-next", `{"operation": "power"}`)
	b.do(post, path, "op", "release").object(t)
	if m := b.named("small"); m.Status != "Ready" {
		t.Errorf("%s, want Ready", m.Status)
	}
}
