// SPDX-License-Identifier: Apache-2.0

package process_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/process"
)

// The test binary is also the parent that dies, selected by this variable, which names a directory.
const parentVariable = "PROCESS_TEST_PARENT"

func TestMain(m *testing.M) {
	if dir := os.Getenv(parentVariable); dir != "" {
		p, err := process.Start(process.Spec{Name: "child", Path: "/bin/sleep", Args: []string{"60"}, LogFile: filepath.Join(dir, "child.log")})
		if err != nil {
			panic(err)
		}
		fmt.Println(p.PID())
		select {}
	}
	os.Exit(m.Run())
}

func shell(t *testing.T, script string) *process.Process {
	t.Helper()
	p, err := process.Start(process.Spec{
		Name: "script", Path: "/bin/sh", Args: []string{"-c", script}, Dir: t.TempDir(), LogFile: filepath.Join(t.TempDir(), "log"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill() })
	return p
}

func TestEnds(t *testing.T) {
	for name, test := range map[string]struct {
		script string
		end    func(*process.Process) error
		want   int
	}{
		"by itself":        {"exit 3", func(*process.Process) error { return nil }, 3},
		"killed":           {"exec sleep 60", (*process.Process).Kill, 137},
		"stopped":          {"exec sleep 60", func(p *process.Process) error { return p.Stop(time.Minute) }, 143},
		"stopped too late": {"trap '' TERM; echo ready; while :; do sleep 0.1; done", stopStubborn, 137},
	} {
		t.Run(name, func(t *testing.T) {
			p := shell(t, test.script)
			if err := test.end(p); err != nil {
				t.Fatal(err)
			}
			<-p.Done()
			if got := p.ExitCode(); got != test.want {
				t.Errorf("exit code %d, want %d", got, test.want)
			}
			if p.Err() == nil {
				t.Error("Err = nil")
			}
		})
	}
}

// stopStubborn gives the shell time to set its trap, which it reports.
func stopStubborn(p *process.Process) error {
	for {
		status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.PID()), "status"))
		if err != nil {
			return err
		}
		if ignoresTerm(string(status)) {
			return p.Stop(10 * time.Millisecond)
		}
	}
}

func ignoresTerm(status string) bool {
	for line := range strings.Lines(status) {
		if mask, ok := strings.CutPrefix(line, "SigIgn:"); ok {
			bits, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
			return err == nil && bits&(1<<(uint(syscall.SIGTERM)-1)) != 0
		}
	}
	return false
}

func TestStartMissing(t *testing.T) {
	_, err := process.Start(process.Spec{Name: "missing", Path: filepath.Join(t.TempDir(), "missing"), LogFile: filepath.Join(t.TempDir(), "log")})
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Start = %v, want %v", err, os.ErrNotExist)
	}
}

// TestDiesWithParent kills the parent as hard as can be.
func TestDiesWithParent(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	parent := exec.CommandContext(t.Context(), program)
	parent.Env = append(os.Environ(), parentVariable+"="+t.TempDir())
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var child int
	if _, err := fmt.Fscan(io.LimitReader(out, 20), &child); err != nil {
		t.Fatal(err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	t.Cleanup(func() {
		if t.Failed() {
			_ = syscall.Kill(child, syscall.SIGKILL)
		}
	})
	eventually.True(t, "the process has ended with its parent", func() bool { return !alive(child) })
}

// alive reports whether a process runs. A zombie, for which its parent did not wait yet, does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}
