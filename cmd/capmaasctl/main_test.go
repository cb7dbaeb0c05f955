// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
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

// newProgram returns a run of the program, and its commands; args begin with its name.
func newProgram(s surroundings, args ...string) (*program, *cobra.Command) {
	title, words := calledAs(args[0])
	p := &program{surroundings: s, title: title}
	root := p.root()
	p.args = flagsLast(root, append(words, args[1:]...))
	return p, root
}

func TestTheProgramIsNamedForWhatItDoes(t *testing.T) {
	for line, want := range map[string]string{
		"lxd-test --apply":                                        "capmaasctl check lxd",
		"/root/lxd-test-linux --apply":                            "capmaasctl check lxd",
		"./vmhost-test-linux":                                     "capmaasctl check vm-host",
		"maas-test --timeout 3s":                                  "capmaasctl check maas",
		"maas-test.exe":                                           "capmaasctl check maas",
		"capmaasctl check lxd -o json":                            "capmaasctl check lxd",
		"capmaasctl -o json check lxd":                            "capmaasctl check lxd",
		"capmaasctl check --apply lxd":                            "capmaasctl check lxd",
		"capmaasctl --apply --timeout 3s check --output=json lxd": "capmaasctl check lxd",
		"capmaasctl -n default plan -f x":                         "capmaasctl plan",
		"capmaasctl plan -n default upgrade c1":                   "capmaasctl plan upgrade",
		"capmaasctl --help host drain":                            "capmaasctl host drain",
		"/usr/bin/kubectl-capmaas host drain a":                   "kubectl capmaas host drain",
		"kubectl_complete-capmaas host":                           "kubectl capmaas __complete",
	} {
		p, root := newProgram(surroundings{}, strings.Fields(line)...)
		c, _, err := root.Find(p.args)
		got := c.CommandPath()
		if len(p.args) > 0 && p.args[0] == "__complete" {
			got += " __complete"
		}
		if err != nil || got != want {
			t.Errorf("%s is %q with the arguments %q (%v), want %q", line, got, p.args, err, want)
		}
	}
}

func TestExitCodesWithoutACheck(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		code int
		said string
	}{
		"nothing":               {nil, exitOK, "check maas"},
		"check alone":           {[]string{"check"}, exitUsage, "vm-host"},
		"another check":         {[]string{"check", "ceph"}, exitUsage, "ceph"},
		"a slip":                {[]string{"chekc", "lxd"}, exitUsage, "did you mean capmaasctl check?"},
		"a slip below":          {[]string{"host", "darin", "a"}, exitUsage, "did you mean capmaasctl host drain?"},
		"a slip below a plan":   {[]string{"plan", "upgrad", "c1"}, exitUsage, "did you mean capmaasctl plan upgrade?"},
		"a word of elsewhere":   {[]string{"cordon", "a"}, exitUsage, "did you mean capmaasctl host cordon?"},
		"a check without check": {[]string{"lxd"}, exitUsage, "capmaasctl check lxd"},
		"no check":              {[]string{"check", "orphans"}, exitUsage, "capmaasctl orphans"},
		"an argument too many":  {[]string{"check", "lxd", "br0"}, exitUsage, "1 argument(s) too many"},
		"a flag alone":          {[]string{"--bogus"}, exitUsage, "--bogus"},
		"help of a slip":        {[]string{"help", "chekc"}, exitUsage, "chekc"},
		"help of orphans":       {[]string{"orphans", "--help"}, exitOK, "--settle-time"},
		"version":               {[]string{"--version"}, exitOK, version},
		"version, too":          {[]string{"version"}, exitOK, version},
		"help":                  {[]string{"--help"}, exitOK, "check maas"},
		"help of help":          {[]string{"help", "host", "drain"}, exitOK, "--timeout"},
		"help of check":         {[]string{"check", "-h"}, exitOK, "vm-host"},
		"help of a check":       {[]string{"check", "vm-host", "--help"}, exitOK, "--node-ip"},
	} {
		t.Run(name, func(t *testing.T) {
			got := call(t, "", nil, append([]string{"capmaasctl"}, tc.args...)...)
			if got.code != tc.code || !strings.Contains(got.stdout+got.err, tc.said) {
				t.Errorf("%+v, want exit code %d, and %q", got, tc.code, tc.said)
			}
			if said, silent := got.stdout, got.err; (tc.code == exitOK) != (said != "" && silent == "") {
				t.Errorf("help belongs on standard output, errors on standard error; got %q and %q", got.stdout, got.err)
			}
		})
	}
}
