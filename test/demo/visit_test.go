// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

const visitRegion = `
users: [{name: admin, admin: true, keys: ["admin:token:secret"]}]
machines: [{names: [metal-a1], cores: 8, memory: 16384, disks: [100]}]
vm_hosts: [{name: lxd-a1, cores: 8, memory: 16384, storage_pools: [{name: default, size: 500}]}]
`

// A shell gets the variables of the sandbox that runs, and its servers can be broken and mended.
func TestASandboxIsVisited(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv("CAPMAAS_BIN", "/the bin")
	t.Setenv(controlVariable, "")
	refused(t, 0)
	region, err := simulator.LoadRegion(strings.NewReader(visitRegion))
	if err != nil {
		t.Fatal(err)
	}
	sim, err := simulator.New(region, simulator.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	server := httptest.NewServer(sim.Handler())
	t.Cleanup(server.Close)
	gone := httptest.NewServer(nil)
	gone.Close()
	run := func(name, control, from string) string {
		dir := filepath.Join(os.TempDir(), "capmaas-sandbox-"+name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		t.Chdir(from)
		if err := writeVariables(dir, [][2]string{{"KUBECONFIG", "it's here"}, {controlVariable, control}}); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	here, elsewhere := t.TempDir(), t.TempDir()
	other := httptest.NewServer(sim.Handler())
	t.Cleanup(other.Close)
	run("elsewhere", other.URL+"/control", elsewhere)
	t.Chdir(here)
	refused(t, 1) // It is another directory's.
	// One that was killed is newer, and does not answer.
	run("killed", gone.URL, here)
	run("here", server.URL+"/control", here)
	var env, said bytes.Buffer
	if err := visit(t.Context(), &env, []string{"env"}); err != nil {
		t.Fatal(err)
	}
	shell := exec.CommandContext(t.Context(), "/bin/sh", "-c", env.String()+`echo "$KUBECONFIG|${PATH%%:*}"`)
	if out, err := shell.CombinedOutput(); err != nil || string(out) != "it's here|/the bin\n" {
		t.Errorf("the shell says %q, %v", out, err)
	}
	for word, power := range map[string]string{"mend": "on", "break": "off"} {
		if err := visit(t.Context(), &said, []string{word, "metal-a1"}); err != nil {
			t.Errorf("%s: %v", word, err)
		}
		if got := sim.Machines()[0].Power; got != power {
			t.Errorf("%s: the power is %s", word, got)
		}
	}
	if err := visit(t.Context(), &said, []string{"break", "nosuch"}); !errors.Is(err, errNoSuch) {
		t.Errorf("a server that is not there: %v", err)
	}
	second := run("second", other.URL+"/control", here)
	refused(t, 2) // Both are of this directory.
	t.Setenv(controlVariable, server.URL+"/control")
	if err := visit(t.Context(), &said, []string{"mend", "metal-a1"}); err != nil {
		t.Errorf("the one that the variable names: %v", err)
	}
	t.Setenv(controlVariable, gone.URL)
	refused(t, 3) // It is gone, and no other is taken for it.
	if err := os.RemoveAll(second); err != nil {
		t.Fatal(err)
	}
	for _, words := range [][]string{{"env", "x"}, {"break"}, {"help"}} {
		if err := visit(t.Context(), &said, words); err == nil || !strings.Contains(err.Error(), "mend NAME") {
			t.Errorf("%q: %v", words, err)
		}
	}
}

// refused wants that no sandbox is acted on, and that a number of others are named.
func refused(t *testing.T, others int) {
	t.Helper()
	for _, words := range [][]string{{"env"}, {"break", "metal-a1"}} {
		var said bytes.Buffer
		var choice *choiceError
		err := visit(t.Context(), &said, words)
		if !errors.As(err, &choice) || len(choice.others) != others || said.Len() > 0 {
			t.Errorf("%q with %d others: %v", words, others, err)
		}
		if got := strings.Count(fmt.Sprint(err), "export "+controlVariable+"="); got != others {
			t.Errorf("the message has %d choices, want %d: %v", got, others, err)
		}
	}
}

// A VM host that loses its power takes its VMs with it, and they come back with it.
func TestAHostIsBrokenWithItsVMs(t *testing.T) {
	region, err := simulator.LoadRegion(strings.NewReader(visitRegion))
	if err != nil {
		t.Fatal(err)
	}
	sim, err := simulator.New(region, simulator.Options{TimeScale: 2000})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	server := httptest.NewServer(sim.Handler())
	t.Cleanup(server.Close)
	c, err := maas.NewClient(maas.Config{Endpoint: server.URL + "/MAAS", APIKey: "admin:token:secret"})
	if err != nil {
		t.Fatal(err)
	}
	hosts, err := c.ListVMHosts(t.Context())
	if err != nil || len(hosts) != 1 {
		t.Fatalf("%d hosts (%v)", len(hosts), err)
	}
	id, err := c.Compose(t.Context(), maas.Unrecorded("a test"), hosts[0].ID, maas.ComposeParams{
		Hostname: "vm", Cores: 1, Memory: 2048, Storage: "root:8", ZoneID: hosts[0].Zone.ID, PoolID: hosts[0].Pool.ID, SkipCommissioning: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, breaks := range []bool{false, true, false} {
		var said bytes.Buffer
		if err := breakOrMend(t.Context(), &said, server.URL+"/control", "lxd-a1", breaks); err != nil {
			t.Fatal(err)
		}
		vm, _ := sim.Machine(id)
		if host := sim.VMHosts()[0]; vm.Running == breaks || host.Unreachable != breaks || !strings.Contains(said.String(), "1 VM") {
			t.Errorf("broken is %t: the VM runs: %t, its host is unreachable: %t; it says %s", breaks, vm.Running, host.Unreachable, &said)
		}
	}
}
