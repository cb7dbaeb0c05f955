// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/capmaas/cluster-api-provider-maas/test/golden"
)

// mainVariable makes the test binary the program itself, so that tests see it as a process of its own.
const mainVariable = "CAPMAASCTL_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(mainVariable) != "" {
		main()
	}
	code := m.Run()
	if err := endManagement(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// outcome is the result of a run of the program.
type outcome struct {
	code        int
	stdout, err string
}

// call runs the program within the test. env are KEY=value pairs; ~ is the user's directory, whatever HOME is.
func call(t *testing.T, stdin string, env []string, args ...string) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	getenv := func(name string) string {
		for _, pair := range env {
			if value, ok := strings.CutPrefix(pair, name+"="); ok {
				return value
			}
		}
		return ""
	}
	code := run(t.Context(), args, surroundings{
		in: strings.NewReader(stdin), out: &stdout, err: &stderr, getenv: getenv, home: getenv("~"),
	})
	return outcome{code, stdout.String(), stderr.String()}
}

// newProgram returns a run of the program, its commands, and what is asked of them; args begin with its name.
func newProgram(s surroundings, args ...string) (p *program, root *cobra.Command, words []string) {
	title, words := calledAs(args[0])
	p = &program{surroundings: s, title: title}
	return p, p.root(), append(words, args[1:]...)
}

func TestTheProgramIsNamedForWhatItDoes(t *testing.T) {
	for line, want := range map[string]string{
		"lxd-test --apply":                      "capmaasctl check lxd",
		"/root/lxd-test-linux --apply":          "capmaasctl check lxd",
		"./vmhost-test-linux":                   "capmaasctl check vm-host",
		"maas-test --timeout 3s":                "capmaasctl check maas",
		"maas-test.exe":                         "capmaasctl check maas",
		"capmaasctl check lxd -o json":          "capmaasctl check lxd",
		"capmaasctl -o json check lxd":          "capmaasctl check lxd",
		"capmaasctl -n default plan -f x":       "capmaasctl plan",
		"capmaasctl plan -n default upgrade c1": "capmaasctl plan upgrade",
		"/usr/bin/kubectl-capmaas host drain a": "kubectl capmaas host drain",
	} {
		_, root, words := newProgram(surroundings{}, strings.Fields(line)...)
		if c, _, err := root.Find(words); err != nil || c.CommandPath() != want {
			t.Errorf("%s is %q (%v), want %q", line, c.CommandPath(), err, want)
		}
	}
}

func TestExitCodesWithoutACheck(t *testing.T) {
	sentences := map[string]string{}
	for name, tc := range map[string]struct {
		args []string
		code int
		said string // if it does not fail
	}{
		"nothing":               {nil, exitOK, "check "},
		"check alone":           {[]string{"check"}, exitUsage, ""},
		"another check":         {[]string{"check", "ceph"}, exitUsage, ""},
		"a slip":                {[]string{"chekc", "lxd"}, exitUsage, ""},
		"a slip below":          {[]string{"host", "darin", "a"}, exitUsage, ""},
		"a slip below a plan":   {[]string{"plan", "upgrad", "c1"}, exitUsage, ""},
		"a check without check": {[]string{"lxd"}, exitUsage, ""},
		"no check":              {[]string{"check", "orphans"}, exitUsage, ""},
		"an argument too many":  {[]string{"check", "lxd", "br0"}, exitUsage, ""},
		"no argument":           {[]string{"host", "drain"}, exitUsage, ""},
		"a flag alone":          {[]string{"--bogus"}, exitUsage, ""},
		"help of orphans":       {[]string{"orphans", "--help"}, exitOK, "--settle-time"},
		"version":               {[]string{"version"}, exitOK, version},
		"help":                  {[]string{"--help"}, exitOK, "check "},
		"help of help":          {[]string{"help", "host", "drain"}, exitOK, "--timeout"},
		"help of check":         {[]string{"check", "-h"}, exitOK, "vm-host"},
		"help of a check":       {[]string{"check", "vm-host", "--help"}, exitOK, "--node-ip"},
	} {
		got := call(t, "", nil, append([]string{"capmaasctl"}, tc.args...)...)
		if got.code != tc.code || !strings.Contains(got.stdout, tc.said) {
			t.Errorf("%s: %+v, want exit code %d, and %q", name, got, tc.code, tc.said)
		}
		if said, silent := got.stdout, got.err; (tc.code == exitOK) != (said != "" && silent == "") {
			t.Errorf("%s: help belongs on standard output, errors on standard error; got %q and %q", name, got.stdout, got.err)
		}
		if tc.code != exitOK {
			sentences[name] = got.err
		}
	}
	golden.Sentences(t, "capmaasctl-words.txt", sentences)
}
