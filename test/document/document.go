// SPDX-License-Identifier: Apache-2.0

// Package document runs the commands of the project's documents.
package document

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

// StepTimeout bounds one step of a document.
const StepTimeout = 6 * time.Minute

// Shell runs the steps of a document, one after the other in the same directory.
type Shell struct {
	// Dir is where the steps run, and Home the user's directory.
	Dir, Home string
	// Unmarked is the number of the document's blocks sh that are no steps.
	Unmarked int
	steps    map[string]string
	env      []string
}

// A step is a block of commands after a comment that names it: all of a block sh, or what follows "$ " in a block console.
var (
	marked = regexp.MustCompile("(?s)<!-- run: ([a-z]+) -->\n```(sh|console)\n(.*?)```")
	fenced = regexp.MustCompile("(?m)^```sh$")
	typed  = regexp.MustCompile(`(?m)^\$ (.*\n)`)
)

// Open reads a document. Its steps find the tools of `make tools` and `make build`, and the variables env.
func Open(t *testing.T, file string, env ...string) *Shell {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s := &Shell{Dir: t.TempDir(), Home: t.TempDir(), Unmarked: len(fenced.FindAll(text, -1)), steps: map[string]string{}}
	for _, found := range marked.FindAllStringSubmatch(string(text), -1) {
		name, language, script := found[1], found[2], found[3]
		switch language {
		case "sh":
			s.Unmarked--
		case "console":
			lines := typed.FindAllStringSubmatch(script, -1)
			script = ""
			for _, line := range lines {
				script += line[1]
			}
		}
		s.steps[name] = script
	}
	bin, assets := os.Getenv("CAPMAAS_BIN"), os.Getenv("KUBEBUILDER_ASSETS")
	if bin == "" || assets == "" {
		t.Fatal("CAPMAAS_BIN or KUBEBUILDER_ASSETS is not set: they are where the tools are (`make test` sets them)")
	}
	s.env = append([]string{
		"PATH=" + strings.Join([]string{s.Home, bin, assets, os.Getenv("PATH")}, string(os.PathListSeparator)),
		"HOME=" + s.Home, "XDG_CONFIG_HOME=" + s.Home,
		// For kubectl and a workload cluster, whose names and addresses only the sandbox's network has.
		"HTTPS_PROXY=" + os.Getenv("HTTPS_PROXY"), "NO_PROXY=127.0.0.1",
	}, env...)
	return s
}

// Set sets a variable for all further steps.
func (s *Shell) Set(name, value string) { s.env = append(s.env, name+"="+value) }

// Rename replaces what an example is called by the name that it has here.
func (s *Shell) Rename(example, name string) {
	for step, script := range s.steps {
		s.steps[step] = strings.ReplaceAll(script, example, name)
	}
}

// Write writes a file below the user's directory. What is executable there, the steps find.
func (s *Shell) Write(t *testing.T, name string, content []byte, mode os.FileMode) {
	t.Helper()
	file := filepath.Join(s.Home, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, content, mode); err != nil {
		t.Fatal(err)
	}
}

// Command is a step that was not run yet; more variables precede those of the shell.
func (s *Shell) Command(ctx context.Context, t *testing.T, step string, env ...string) *exec.Cmd {
	t.Helper()
	script, known := s.steps[step]
	if !known {
		t.Fatalf("the document has no step %q", step)
	}
	command := exec.CommandContext(ctx, "sh", "-euc", script)
	command.Dir, command.Env = s.Dir, append(slices.Clone(s.env), env...)
	return command
}

// Try runs a step, and returns its output and whether it succeeded.
func (s *Shell) Try(t *testing.T, step string) (stdout, stderr string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), StepTimeout)
	defer cancel()
	command := s.Command(ctx, t, step)
	var out, says bytes.Buffer
	command.Stdout, command.Stderr = &out, &says
	began := time.Now()
	err = command.Run()
	t.Logf("%s took %s", step, time.Since(began).Round(100*time.Millisecond))
	return out.String(), says.String(), err
}

// Run runs a step that must succeed, and returns its output.
func (s *Shell) Run(t *testing.T, step string) string {
	t.Helper()
	out, says, err := s.Try(t, step)
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", step, err, out, says)
	}
	return out
}
