// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// mainVariable makes the test binary the program itself, so that tests see it as a process of its own.
const mainVariable = "CAPMAASCTL_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(mainVariable) != "" {
		main()
	}
	os.Exit(m.Run())
}

// outcome is the result of a run of the program.
type outcome struct {
	code        int
	stdout, err string
}

// call runs the program within the test. env are KEY=value pairs.
func call(t *testing.T, stdin string, env []string, args ...string) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), args, surroundings{
		in: strings.NewReader(stdin), out: &stdout, err: &stderr,
		getenv: func(name string) string {
			for _, pair := range env {
				if value, ok := strings.CutPrefix(pair, name+"="); ok {
					return value
				}
			}
			return ""
		},
	})
	return outcome{code, stdout.String(), stderr.String()}
}

func TestTheProgramIsNamedForWhatItDoes(t *testing.T) {
	for program, want := range map[string]string{
		"lxd-test": "lxd", "/root/lxd-test-linux": "lxd", "./vmhost-test-linux": "vm-host", "vmhost-test": "vm-host",
		"maas-test-linux": "maas", "maas-test": "maas",
	} {
		chosen, done, code := choose([]string{program, "--apply"}, surroundings{})
		if done || code != exitOK || chosen.name != want {
			t.Errorf("%s is %q (done %v, code %d), want %q", program, chosen.name, done, code, want)
		}
		if len(chosen.rest) != 1 || chosen.rest[0] != "--apply" {
			t.Errorf("%s is left with the arguments %q", program, chosen.rest)
		}
	}
	for words, name := range map[string]string{"check lxd": "lxd", "check vm-host": "vm-host", "check maas": "maas", "orphans": "orphans"} {
		args := append(append([]string{"capmaasctl"}, strings.Fields(words)...), "-o", "json")
		chosen, done, _ := choose(args, surroundings{})
		if done || chosen.name != name || len(chosen.rest) != 2 {
			t.Errorf("%s is %q with the arguments %q", words, chosen.name, chosen.rest)
		}
	}
}

func TestExitCodesWithoutACheck(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		code int
	}{
		"nothing":               {nil, exitUsage},
		"check alone":           {[]string{"check"}, exitUsage},
		"another check":         {[]string{"check", "ceph"}, exitUsage},
		"a check without check": {[]string{"lxd"}, exitUsage},
		"no check":              {[]string{"check", "orphans"}, exitUsage},
		"help of orphans":       {[]string{"orphans", "--help"}, exitOK},
		"version":               {[]string{"--version"}, exitOK},
		"help":                  {[]string{"--help"}, exitOK},
		"help of check":         {[]string{"check", "-h"}, exitOK},
		"help of a check":       {[]string{"check", "vm-host", "--help"}, exitOK},
	} {
		t.Run(name, func(t *testing.T) {
			got := call(t, "", nil, append([]string{"capmaasctl"}, tc.args...)...)
			if got.code != tc.code {
				t.Errorf("exit code %d, want %d", got.code, tc.code)
			}
			if said, silent := got.stdout, got.err; (tc.code == exitOK) != (said != "" && silent == "") {
				t.Errorf("help belongs on standard output, errors on standard error; got %q and %q", got.stdout, got.err)
			}
		})
	}
}
