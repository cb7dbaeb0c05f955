// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"net/http"
	"strings"
	"testing"
	"time"
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

// A DPU is Ready at once, and runs on; MAAS erases none.
func TestReleaseOfADPU(t *testing.T) {
	for version, status := range map[string]int{"3.7": http.StatusBadRequest, "3.8": http.StatusInternalServerError} {
		t.Run(version, func(t *testing.T) {
			b := newBedWith(t, strings.Replace(testRegion, "{name: small,", "{name: small, dpu: true,", 1), Options{Version: version})
			id := b.named("small").SystemID
			path := "machines/" + id + "/"
			b.do(post, "machines/", "op", "allocate", "system_id", id).object(t)
			b.do(post, path, "op", "deploy").object(t)
			b.pass(6 * time.Minute)
			if got := b.do(post, path, "op", "release", "erase", "true"); got.status != status || !strings.Contains(got.body, "disabled for DPUs") {
				t.Errorf("%d %s, want %d", got.status, got.body, status)
			}
			if got := b.do(post, path, "op", "release").object(t); got["status_name"] != "Ready" || got["power_state"] != "on" {
				t.Errorf("%v, power %v, want Ready and on", got["status_name"], got["power_state"])
			}
		})
	}
}
