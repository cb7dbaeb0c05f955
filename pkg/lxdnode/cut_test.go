// SPDX-License-Identifier: Apache-2.0

package lxdnode

import (
	"net/http"
	"sync"
	"testing"

	"github.com/canonical/lxd/shared/api"

	lxdbed "github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/lxdtest"
)

// everything is a configuration that makes all that can be made. Bridges' names are short.
func everything(name string) Config {
	config := named(name)
	config.NetworkBridge, config.CreateBridge = "br-"+name, true
	return config
}

// LXD never finishes a pool that it was making when it died. The remedy in the error has to be enough.
func TestRemedyHelpsAfterADaemonThatDiedMakingThePool(t *testing.T) {
	t.Parallel()
	d := lxdtest.Start(t, lxdbed.Options{})
	between := startProxy(t, d.Socket())
	n := &Node{socket: between.socket}
	config := named("half")
	config.StorageBackend, config.StorageSizeGB = "btrfs", 2
	change, _ := atWrite(1, true, func(lxd http.Handler, w http.ResponseWriter, r *http.Request) {
		// The daemon dies as soon as it shows the pool, which is before the pool is made.
		var wait sync.WaitGroup
		wait.Go(func() {
			client := lxdtest.Connect(t, d.Socket())
			for t.Context().Err() == nil {
				if _, _, err := client.GetStoragePool(config.StoragePool); !notFound(err) {
					break
				}
			}
			if err := d.Kill(); err != nil {
				t.Error(err)
			}
		})
		defer wait.Wait()
		// A response, if there is one, arrives when the daemon is dead.
		rewrite(lxd, w, r, func(status int, _ map[string]any) int { wait.Wait(); return status })
	})
	between.set(change)
	if _, err := n.Prepare(t.Context(), config); err == nil || Permanent(err) {
		t.Errorf("with a daemon that dies: %v", err)
	}
	between.set(nil)
	if err := d.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	client := lxdtest.Connect(t, d.Socket())
	report, err := n.Prepare(t.Context(), config)
	if err != nil {
		if e := stepError(t, err, StepPool); !e.Permanent {
			t.Errorf("nothing but a person can help here: %#v", e)
		}
		wantMentioned(t, stepError(t, err, StepPool).Remedy, "lxc storage delete "+config.StoragePool)
		if err := client.DeleteStoragePool(config.StoragePool); err != nil {
			t.Fatal(err)
		}
		report, err = n.Prepare(t.Context(), config)
	}
	if err != nil || !ready(report) {
		t.Errorf("after the remedy: %+v, %v", report, err)
	}
}

func TestPartOfTheStepsIsDoneWhenAnotherFails(t *testing.T) {
	t.Parallel()
	d := lxdtest.Start(t, lxdbed.Options{})
	between := startProxy(t, d.Socket())
	n := &Node{socket: between.socket}
	config := everything("part")
	change, _ := atWrite(1, false, func(_ http.Handler, w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusServiceUnavailable, "LXD is starting up")
	})
	between.set(change)
	report, err := n.Prepare(t.Context(), config)
	e := stepError(t, err, StepPool)
	if e.Permanent || !api.StatusErrorCheck(err, http.StatusServiceUnavailable) {
		t.Errorf("got %#v", e)
	}
	wantStates(t, report, with(allIn(Changed), StepPool, Failed))
	between.set(nil)
	if report, err = n.Prepare(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	wantStates(t, report, with(allIn(OK), StepPool, Changed))
}
