// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The host of these tests is a directory. ssh and scp stand for the real ones: they write down their arguments, and run
// the command, or copy the file, there.
const (
	fakeSSH = `#!/bin/sh
printf '%s\n' ssh "$@" >>"$TRANSFER_LOG"
while [ "$1" != -- ]; do shift; done
[ -z "$TRANSFER_REFUSE" ] || exit 255
cd "$TRANSFER_HOME" && exec sh -c "$3"
`
	fakeSCP = `#!/bin/sh
printf '%s\n' scp "$@" | sed "s,^/.*/capmaasctl$,BUILT," >>"$TRANSFER_LOG"
while [ "$1" != -- ]; do shift; done
exec cp "$2" "$TRANSFER_HOME/${3##*:}"
`
	fakeUname = `#!/bin/sh
echo "$TRANSFER_UNAME"
`
	// fakeGo builds a program that prints how it was built.
	fakeGo = `#!/bin/sh
out=
for arg; do [ "$previous" != -o ] || out=$arg; previous=$arg; done
printf '#!/bin/sh\necho %s\n' "$CGO_ENABLED $GOOS $GOARCH" >"$out"
`
)

// transfer is one run of the script.
type transfer struct {
	home, calls, output string
	code                int
}

func runTransfer(t *testing.T, programs map[string]string, env []string, args ...string) transfer {
	t.Helper()
	dir := t.TempDir()
	home, bin, log := filepath.Join(dir, "home"), filepath.Join(dir, "bin"), filepath.Join(dir, "log")
	for _, d := range []string{home, bin} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range programs {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var output bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "../../hack/build-and-transfer.sh", args...)
	cmd.Env = append(os.Environ(), append([]string{"PATH=" + bin + ":" + os.Getenv("PATH"), "TMPDIR=" + dir,
		"TRANSFER_HOME=" + home, "TRANSFER_LOG=" + log}, env...)...)
	cmd.Stdout, cmd.Stderr = &output, &output
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "tmp.*"))
	if err != nil || len(left) > 0 {
		t.Errorf("it left %q behind (%v)", left, err)
	}
	calls, err := os.ReadFile(log)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return transfer{home, string(calls), output.String(), cmd.ProcessState.ExitCode()}
}

func TestTransferBuildsAndCopies(t *testing.T) {
	got := runTransfer(t, map[string]string{"ssh": fakeSSH, "scp": fakeSCP}, nil, "--host=node1")
	if got.code != 0 {
		t.Fatalf("exit code %d: %s", got.code, got.output)
	}
	for _, name := range []string{"capmaasctl", "lxd-test-linux", "vmhost-test-linux", "maas-test-linux"} {
		said, err := exec.CommandContext(t.Context(), filepath.Join(got.home, name), "--help").Output()
		if err != nil || !strings.Contains(string(said), "Usage:") {
			t.Errorf("%s --help: %v: %s", name, err, said)
		}
	}
	program, err := elf.Open(filepath.Join(got.home, "capmaasctl"))
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	if libraries, err := program.ImportedLibraries(); err != nil || len(libraries) > 0 {
		t.Errorf("it is not static: %q %v", libraries, err)
	}
}

func TestTransferBuildsForTheTargetAndLogsIn(t *testing.T) {
	key := filepath.Join(t.TempDir(), "the key.pem")
	if err := os.WriteFile(key, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	programs := map[string]string{"ssh": fakeSSH, "scp": fakeSCP, "uname": fakeUname, "go": fakeGo}
	for name, tc := range map[string]struct {
		uname, built string
		args         []string
		login        []string // options and login of ssh
		target       string
	}{
		"plain": {"Linux x86_64", "0 linux amd64", []string{"--host", "node1"}, []string{"--", "node1"}, "node1"},
		"user and key": {"Linux aarch64", "0 linux arm64", []string{"--user=ubuntu", "--key", key, "--host=node1.example.com"},
			[]string{"-i", key, "-o", "IdentitiesOnly=yes", "--", "ubuntu@node1.example.com"}, "ubuntu@node1.example.com"},
		"IPv6": {"Linux s390x", "0 linux s390x", []string{"--host=fd00::1", "--user", "root"}, []string{"--", "root@fd00::1"}, "root@[fd00::1]"},
	} {
		t.Run(name, func(t *testing.T) {
			got := runTransfer(t, programs, []string{"TRANSFER_UNAME=" + tc.uname}, tc.args...)
			if got.code != 0 {
				t.Fatalf("exit code %d: %s", got.code, got.output)
			}
			said, err := exec.CommandContext(t.Context(), filepath.Join(got.home, "maas-test-linux")).Output()
			if err != nil || strings.TrimSpace(string(said)) != tc.built {
				t.Errorf("it was built with %q (%v), want %q", said, err, tc.built)
			}
			options := append([]string{"-o", "ConnectTimeout=15"}, tc.login[:len(tc.login)-1]...)
			want := strings.Join(append(append([]string{"scp", "-q"}, options...), "BUILT", tc.target+":capmaasctl.new"), "\n")
			if !strings.Contains(got.calls, want+"\n") {
				t.Errorf("scp was not called as wanted: %s", cmp.Diff(want, got.calls))
			}
			want = strings.Join(append(append([]string{"ssh", "-n", "-o", "ConnectTimeout=15"}, tc.login...), "uname -sm"), "\n")
			if !strings.HasPrefix(got.calls, want+"\n") {
				t.Errorf("ssh was not called as wanted: %s", cmp.Diff(want, got.calls))
			}
		})
	}
}

func TestTransferRefuses(t *testing.T) {
	programs := map[string]string{"ssh": fakeSSH, "scp": fakeSCP, "uname": fakeUname, "go": fakeGo}
	for name, tc := range map[string]struct {
		env, args []string
		code      int
		says      []string
		calls     bool // it asked the host
	}{
		"nothing given":     {code: 2, says: []string{"--host is missing"}},
		"all that's wrong":  {args: []string{"--port=22", "--key=/none/there", "--user=a b", "--host"}, code: 2, says: []string{"--port", "--key", "--user", "--host"}},
		"an option as host": {args: []string{"--host=-oProxyCommand=reboot"}, code: 2, says: []string{"--host"}},
		"a command as host": {args: []string{"--host=node1 reboot"}, code: 2, says: []string{"--host"}},
		"another system": {args: []string{"--host=mac"}, env: []string{"TRANSFER_UNAME=Darwin arm64"}, code: 1,
			says: []string{"Darwin arm64"}, calls: true},
		"no login": {args: []string{"--host=node1"}, env: []string{"TRANSFER_REFUSE=1"}, code: 1, says: []string{"can't log in at node1"}, calls: true},
		"help":     {args: []string{"--help"}, says: []string{"Usage: hack/build-and-transfer.sh"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := runTransfer(t, programs, tc.env, tc.args...)
			if got.code != tc.code || (got.calls != "") != tc.calls {
				t.Errorf("exit code %d, calls %q", got.code, got.calls)
			}
			for _, want := range tc.says {
				if !strings.Contains(got.output, want) {
					t.Errorf("it does not say %q: %s", want, got.output)
				}
			}
		})
	}
}
