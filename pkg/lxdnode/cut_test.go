// SPDX-License-Identifier: Apache-2.0

package lxdnode

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	lxd "github.com/canonical/lxd/client"
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

// remove removes what was made for a configuration: many bridges make a daemon slow, and the next case must set the
// address, too.
func remove(t *testing.T, client lxd.InstanceServer, config Config) {
	t.Helper()
	setConfig(t, client, listenKey, "")
	setConfig(t, client, ownListenKey, "")
	for _, err := range []error{
		client.UseProject(config.Project).DeleteProfile(profileName), client.DeleteProject(config.Project),
		client.DeleteNetwork(config.NetworkBridge), client.DeleteStoragePool(config.StoragePool),
	} {
		if err != nil {
			t.Error(err)
		}
	}
}

// resumeTimeout bounds how long LXD may be busy with what was interrupted: on a busy machine, it is still starting its
// bridges a while after it responds again.
const resumeTimeout = 2 * time.Minute

// prepareUntilReady prepares again and again, as the initializer does, until that succeeds or can't.
func prepareUntilReady(t *testing.T, n *Node, config Config) (report []Check, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), resumeTimeout)
	defer cancel()
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for {
		report, err = n.Prepare(ctx, config)
		if err == nil || Permanent(err) {
			return report, err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return report, err
		}
	}
}

// wantResumed prepares again after an interruption, and once more: the wanted state must be reached and stay.
func wantResumed(t *testing.T, n *Node, client lxd.InstanceServer, config Config) {
	t.Helper()
	report, err := prepareUntilReady(t, n, config)
	if err != nil || !ready(report) {
		t.Fatalf("after the interruption: %+v, %v", report, err)
	}
	if report, err = n.Prepare(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	wantStates(t, report, allIn(OK))
	now, err := readListen(client)
	if err != nil || now.address != config.ListenAddress || now.mark != config.ListenAddress {
		t.Errorf("LXD listens on %q, mark %q (%v)", now.address, now.mark, err)
	}
	profile, _, err := client.UseProject(config.Project).GetProfile(profileName)
	if err != nil || len(profile.Devices) > 0 {
		t.Errorf("the profile is %+v, %v", profile, err)
	}
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

func TestTwoThatPrepareOneNodeAtOnceAgree(t *testing.T) {
	t.Parallel()
	d := lxdtest.Start(t, lxdbed.Options{})
	client := lxdtest.Connect(t, d.Socket())
	config := everything("two")
	config.StorageBackend, config.StorageSizeGB = "btrfs", 2
	errs := make([]error, 2)
	var wait sync.WaitGroup
	for i := range errs {
		wait.Go(func() { _, errs[i] = (&Node{socket: d.Socket()}).Prepare(t.Context(), config) })
	}
	wait.Wait()
	if err := errors.Join(errs...); Permanent(err) {
		t.Errorf("a lost race is no permanent error: %v", err)
	}
	wantResumed(t, &Node{socket: d.Socket()}, client, config)
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
