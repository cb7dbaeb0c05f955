// SPDX-License-Identifier: Apache-2.0

package clusterctl_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// stepTimeout bounds one step of the document.
const stepTimeout = 6 * time.Minute

// shell runs the document's steps, one after the other in the same directory.
type shell struct {
	dir, home string
	steps     map[string]string
	env       []string
}

// marked finds the steps: what follows a comment that names it.
var (
	marked = regexp.MustCompile("(?s)<!-- run: ([a-z]+) -->\n```sh\n(.*?)```")
	fenced = regexp.MustCompile("(?m)^```sh$")
)

func newShell(t *testing.T) *shell {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	s := &shell{dir: t.TempDir(), home: t.TempDir(), steps: map[string]string{}}
	for _, found := range marked.FindAllStringSubmatch(string(text), -1) {
		s.steps[found[1]] = found[2]
	}
	if all := len(fenced.FindAll(text, -1)); all != len(s.steps)+1 { // One is for the Cluster API Operator.
		t.Errorf("%d of the document's %d commands are run, want all but one", len(s.steps), all)
	}
	bin, assets := os.Getenv("CAPMAAS_BIN"), os.Getenv("KUBEBUILDER_ASSETS")
	if bin == "" || assets == "" {
		t.Fatal("CAPMAAS_BIN or KUBEBUILDER_ASSETS is not set: they are where clusterctl and kubectl are (`make test` sets them)")
	}
	s.env = []string{
		"PATH=" + strings.Join([]string{bin, assets, os.Getenv("PATH")}, string(os.PathListSeparator)),
		"HOME=" + s.home, "XDG_CONFIG_HOME=" + s.home, "CLUSTERCTL_DISABLE_VERSIONCHECK=true",
		"WEST=" + west.KubeconfigPath, "EAST=" + east.KubeconfigPath,
		// For kubectl and a workload cluster, whose names and addresses only the sandbox's network has.
		"HTTPS_PROXY=" + os.Getenv("HTTPS_PROXY"), "NO_PROXY=127.0.0.1",
	}
	return s
}

// set sets a variable for all further steps.
func (s *shell) set(name, value string) { s.env = append(s.env, name+"="+value) }

// configure writes clusterctl's configuration.
func (s *shell) configure(t *testing.T, content []byte) {
	t.Helper()
	dir := filepath.Join(s.home, "cluster-api")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "clusterctl.yaml"), content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// command is a step that was not run yet; more variables precede those of the shell.
func (s *shell) command(ctx context.Context, t *testing.T, step string, env ...string) *exec.Cmd {
	t.Helper()
	script, known := s.steps[step]
	if !known {
		t.Fatalf("the document has no step %q", step)
	}
	command := exec.CommandContext(ctx, "sh", "-euc", script)
	command.Dir, command.Env = s.dir, append(slices.Clone(s.env), env...)
	return command
}

// try runs a step, and returns its output and whether it succeeded.
func (s *shell) try(t *testing.T, step string) (stdout, stderr string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), stepTimeout)
	defer cancel()
	command := s.command(ctx, t, step)
	var out, says bytes.Buffer
	command.Stdout, command.Stderr = &out, &says
	began := time.Now()
	err = command.Run()
	t.Logf("%s took %s", step, time.Since(began).Round(100*time.Millisecond))
	return out.String(), says.String(), err
}

// run runs a step that must succeed, and returns its output.
func (s *shell) run(t *testing.T, step string) string {
	t.Helper()
	out, says, err := s.try(t, step)
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", step, err, out, says)
	}
	return out
}
