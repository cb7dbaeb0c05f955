// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// runProcess runs the program as a process called name. While it works, its command line is read as everybody on the
// machine can.
func runProcess(t *testing.T, name, stdin string, env []string, args ...string) (seen string, code int) {
	t.Helper()
	b := newBed(t, testRegion, simulator.Options{})
	started, seenBy := make(chan int), make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if pid, ok := <-started; ok { // the first request: the program is at work, and waits for the response
			line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			if err != nil {
				t.Error(err)
			}
			seenBy <- string(bytes.ReplaceAll(line, []byte{0}, []byte{' '}))
			close(started)
		}
		b.Handler().ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)

	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Args = append([]string{name}, args...)
	cmd.Env = append([]string{mainVariable + "=1", "MAAS_ENDPOINT=" + server.URL + "/MAAS"}, env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // Its exit code is what counts.
	}()
	select {
	case started <- cmd.Process.Pid:
		<-ended
	case <-ended:
		t.Fatalf("it ended without asking MAAS: %s%s", &stdout, &stderr)
	}
	if strings.Contains(stdout.String()+stderr.String(), secret) {
		t.Errorf("it prints the key: %s%s", &stdout, &stderr)
	}
	return <-seenBy, cmd.ProcessState.ExitCode()
}

func TestTheKeyIsInNoProcessList(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(adminKey), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		stdin   string
		env     []string
		args    []string
		visible bool
	}{
		"file":           {args: []string{"--maas-api-key-file=" + file}},
		"environment":    {env: []string{"MAAS_API_KEY=" + adminKey}},
		"standard input": {stdin: adminKey, args: []string{"--maas-api-key-file", "-"}},
		"command line":   {args: []string{"--maas-api-key=" + adminKey}, visible: true},
	} {
		t.Run(name, func(t *testing.T) {
			seen, code := runProcess(t, "maas-test-linux", tc.stdin, tc.env, tc.args...)
			if !strings.Contains(seen, "maas-test-linux") {
				t.Fatalf("%q is not the program's command line", seen)
			}
			if strings.Contains(seen, secret) != tc.visible {
				t.Errorf("the key is in %q: %v, want %v", seen, !tc.visible, tc.visible)
			}
			if code != exitOK {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

func TestExitCodesOfTheProcess(t *testing.T) {
	if _, code := runProcess(t, "vmhost-test", "", []string{"MAAS_API_KEY=" + adminKey}, "--node-ip=10.254.0.9"); code != exitFailed {
		t.Errorf("of a check that failed: %d, want %d", code, exitFailed)
	}
}
