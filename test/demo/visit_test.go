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

	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

const visitRegion = `
users: [{name: admin, admin: true, keys: ["admin:token:secret"]}]
machines: [{names: [metal-a1], cores: 8, memory: 16384, disks: [100]}]
`

// A shell gets the variables of the sandbox that runs, and its servers can be broken and mended.
func TestASandboxIsVisited(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv("CAPMAAS_BIN", "/the bin")
	if err := visit(t.Context(), &bytes.Buffer{}, []string{"env"}); !errors.Is(err, errNoSandbox) {
		t.Errorf("without a sandbox: %v", err)
	}
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
	// One that was killed is newer, and does not answer.
	for i, control := range []string{server.URL + "/control", gone.URL} {
		dir := filepath.Join(os.TempDir(), fmt.Sprintf("capmaas-sandbox-%d", i))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := writeVariables(dir, [][2]string{{"KUBECONFIG", "it's here"}, {controlVariable, control}}); err != nil {
			t.Fatal(err)
		}
	}
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
	if matches, err := filepath.Glob(filepath.Join(os.TempDir(), "*", envFile)); err != nil || len(matches) != 2 {
		t.Errorf("the files are %q, %v", matches, err)
	}
}
