// SPDX-License-Identifier: Apache-2.0

package lxdnode

import (
	"net/http"
	"sync/atomic"
	"testing"

	lxdbed "github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/lxdtest"
)

// LXD may need half a minute to find out that it can't make something. The reason stays, and LXD is asked again when
// something else is wanted, or when it was restarted.
func TestWhatLXDRefusedToMakeIsNotAskedForEachTime(t *testing.T) {
	t.Parallel()
	d := lxdtest.Start(t, lxdbed.Options{})
	between := startProxy(t, d.Socket())
	refuses, pid := atomic.Bool{}, atomic.Int64{}
	refuses.Store(true)
	asked := atomic.Int32{}
	between.set(func(lxd http.Handler) http.Handler {
		restarted := metadata(func(server map[string]any) {
			if p := pid.Load(); p != 0 {
				server["environment"].(map[string]any)["server_pid"] = p
			}
		})(lxd)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost && r.URL.Path == "/1.0/storage-pools" {
				asked.Add(1)
				if refuses.Load() {
					answer(w, http.StatusInternalServerError, "no device mapper")
					return
				}
			}
			restarted.ServeHTTP(w, r)
		})
	})
	refusals := &Refusals{}
	config := goodConfig()
	config.StorageBackend = "btrfs"
	// Each pass connects anew.
	prepare := func(sizeGB int, want int32) {
		t.Helper()
		n := connectNode(t, between.socket)
		n.Remember(refusals)
		config.StorageSizeGB = sizeGB
		_, err := n.Prepare(t.Context(), config)
		if refuses.Load() {
			wantMentioned(t, stepError(t, err, StepPool).Problem, "no device mapper")
		} else if err != nil {
			t.Error(err)
		}
		if got := asked.Load(); got != want {
			t.Errorf("LXD was asked %d times, want %d", got, want)
		}
	}
	prepare(1, 1)
	prepare(1, 1)
	prepare(2, 2)
	prepare(2, 2)
	pid.Store(1)
	prepare(2, 3)
	refuses.Store(false)
	pid.Store(2)
	prepare(2, 4)
	prepare(2, 4)
}
