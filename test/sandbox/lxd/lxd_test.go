// SPDX-License-Identifier: Apache-2.0

package lxd_test

import (
	"bytes"
	gocmp "cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	lxdclient "github.com/canonical/lxd/client"
	"github.com/canonical/lxd/shared/api"
	"github.com/google/go-cmp/cmp"

	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/lxdtest"
)

// The test binary is also the program that dies with a daemon, selected by this variable.
const parentVariable = "LXD_TEST_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(parentVariable) != "" {
		d, err := lxd.Start(context.Background(), lxd.Options{})
		if err != nil {
			panic(err)
		}
		fmt.Println(d.Dir())
		select {}
	}
	os.Exit(m.Run())
}

func connect(t *testing.T, d *lxd.Daemon) lxdclient.InstanceServer {
	t.Helper()
	return lxdtest.Connect(t, d.Socket())
}

// As on a node of Kubernetes: LXD reports the node's ends, nothing behind them, and none that is named veth*.
func TestInterfacesOfPods(t *testing.T) {
	const mac = "ee:ee:ee:ee:ee:ee"
	d := lxdtest.Start(t, lxd.Options{Card: "enp1s0"})
	for _, i := range []lxd.Interface{
		{Name: "cni0", Bridge: true, Address: netip.MustParsePrefix("10.244.1.1/24")}, {Name: "veth1", In: "cni0"}, {Name: "cali1", MAC: mac},
	} {
		if err := d.AddInterface(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
	server := connect(t, d)
	got := map[string]string{}
	listed, err := server.GetNetworks()
	if err != nil {
		t.Fatal(err)
	}
	for _, network := range listed {
		got[network.Name] = network.Type
	}
	want := map[string]string{"lo": "loopback", "enp1s0": "unknown", "br0": "bridge", "cni0": "bridge", "cali1": "unknown"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("LXD's networks (-want +got):\n%s", diff)
	}
	if state, err := server.GetNetworkState("cni0"); err != nil || !slices.Equal(state.Bridge.UpperDevices, []string{"veth1"}) {
		t.Errorf("cni0 is %+v, %v", state, err)
	}
	if state, err := server.GetNetworkState("cali1"); err != nil || state.Hwaddr != mac {
		t.Errorf("cali1 is %+v, %v", state, err)
	}
}

// Without this, tests with another LXD would be tests with the machine's.
func TestVariableChoosesTheLXD(t *testing.T) {
	const variable = "CAPMAAS_LXD"
	lxdtest.Require(t)
	dir := t.TempDir()
	program, ran := filepath.Join(dir, "other"), filepath.Join(dir, "ran")
	script := fmt.Sprintf("#!/bin/sh\n: >%s\nexec \"%s\" \"$@\"\n", ran, gocmp.Or(os.Getenv(variable), "lxd"))
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv(variable, program)
	lxdtest.Start(t, lxd.Options{})
	if _, err := os.Stat(ran); err != nil {
		t.Errorf("another LXD was started: %v", err)
	}
	t.Setenv(variable, filepath.Join(dir, "none"))
	if err := lxd.Missing(); !errors.Is(err, lxd.ErrMissing) {
		t.Errorf("without that LXD: %v", err)
	}
}

func makePool(t *testing.T, server lxdclient.InstanceServer) {
	t.Helper()
	pool := api.StoragePoolsPost{Name: "default", Driver: "btrfs", StoragePoolPut: api.StoragePoolPut{Config: map[string]string{"size": "2GiB"}}}
	if err := server.CreateStoragePool(pool); err != nil {
		t.Fatal(err)
	}
}

// Newer LXDs make operations of what LXD's client takes for done.
func TestWhatAClientChangesHasBeenChanged(t *testing.T) {
	t.Parallel()
	server := connect(t, lxdtest.Start(t, lxd.Options{Plays: "6.9"}))
	for range 3 {
		makePool(t, server)
		if pool, _, err := server.GetStoragePool("default"); err != nil || pool.Status != api.StoragePoolStatusCreated {
			t.Errorf("made, it is %+v, %v", pool, err)
		}
		again := api.StoragePoolsPost{Name: "default", Driver: "btrfs"}
		if err := server.CreateStoragePool(again); !api.StatusErrorCheck(err, http.StatusConflict) {
			t.Errorf("made again: %v", err)
		}
		if err := server.DeleteStoragePool("default"); err != nil {
			t.Error(err)
		}
		if _, _, err := server.GetStoragePool("default"); !api.StatusErrorCheck(err, http.StatusNotFound) {
			t.Errorf("deleted: %v", err)
		}
	}
}

func TestStopLeavesNothing(t *testing.T) {
	lxdtest.Require(t)
	d, err := lxd.Start(t.Context(), lxd.Options{})
	if err != nil {
		t.Fatal(err)
	}
	makePool(t, connect(t, d))
	for range 2 {
		if err := d.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	expectNothing(t, filepath.Dir(d.Dir()))
	if _, err := os.Stat(filepath.Dir(d.Dir())); !os.IsNotExist(err) {
		t.Errorf("the directory is left: %v", err)
	}
	if _, err := d.Dial(t.Context(), "tcp", "127.0.0.1:8443"); err == nil {
		t.Error("the node answers")
	}
}

func TestDiesWithItsProgram(t *testing.T) {
	lxdtest.Require(t)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	parent := exec.CommandContext(t.Context(), program)
	parent.Env = append(os.Environ(), parentVariable+"=1")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var dir string
	if _, err := fmt.Fscan(io.LimitReader(out, 1000), &dir); err != nil {
		t.Fatal(err)
	}
	base := filepath.Dir(dir)
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	if len(running(t, base)) == 0 {
		t.Error("nothing runs before")
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	expectNothing(t, base)
	lxdtest.Start(t, lxd.Options{})
	if _, err := os.Stat(base); !os.IsNotExist(err) {
		t.Errorf("the directory is left when the next daemon has started: %v", err)
	}
}

// expectNothing waits until no process of a daemon and none of its mounts and loop devices is left.
func expectNothing(t *testing.T, base string) {
	t.Helper()
	err := eventually.Wait(t.Context(), "all of the daemon to go", func() (bool, string, error) {
		left := running(t, base)
		mounts, err := os.ReadFile("/proc/self/mounts")
		if bytes.Contains(mounts, []byte(base)) {
			left = append(left, string(mounts))
		}
		return len(left) == 0, strings.Join(left, "\n"), err
	})
	if err != nil {
		t.Error(err)
	}
}

// running are the command lines and environments that name a daemon's directory.
func running(t *testing.T, base string) (found []string) {
	t.Helper()
	for _, name := range []string{"cmdline", "environ"} {
		files, err := filepath.Glob("/proc/[0-9]*/" + name)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err == nil && bytes.Contains(text, []byte(base)) {
				found = append(found, string(bytes.ReplaceAll(text, []byte{0}, []byte{' '})))
			}
		}
	}
	return found
}
