// SPDX-License-Identifier: Apache-2.0

// Package document runs the commands of the project's documents.
package document

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/test/program"
)

// StepTimeout bounds one step of a document.
const StepTimeout = 20 * time.Minute

// Shell runs the steps of a document, one after the other in the same directory.
type Shell struct {
	// Dir is where the steps run: it has the directories of the sources, as a reader's checkout. Home is the user's
	// directory.
	Dir, Home string
	steps     map[string]string
	env       []string
}

// operators is the operator's program, which steps also call by its path, bin/capmaasctl.
const operators = "capmaasctl"

// checkout are the directories of the sources that commands read.
var checkout = []string{"charts", "clusterclass", "docs", "templates"}

// Block is a block of commands: one of the languages sh, bash, shell and console.
type Block struct {
	// Step is the name that the comment above the block gives it, <!-- run: NAME -->, or empty.
	Step string
	// Script is what a reader types: all of the block, or what follows "$ " in a block console.
	Script string
}

var (
	fenced = regexp.MustCompile("(?ms)(?:^[ >]*<!-- run: ([a-z0-9-]+) -->\n)?^([ >]*)```(sh|bash|shell|console)\n(.*?)^[ >]*```$")
	typed  = regexp.MustCompile(`(?m)^\$ (.*\n)`)
	// watches are endless; what they show first is enough.
	watches = regexp.MustCompile(`(?m) --watch$`)
)

// Blocks returns the blocks of commands of a document's text, in their order.
func Blocks(text string) (blocks []Block) {
	for _, found := range fenced.FindAllStringSubmatch(text, -1) {
		step, indent, language, script := found[1], found[2], found[3], found[4]
		script = strings.TrimPrefix(strings.ReplaceAll("\n"+script, "\n"+indent, "\n"), "\n")
		if language == "console" {
			lines := typed.FindAllStringSubmatch(script, -1)
			script = ""
			for _, line := range lines {
				script += line[1]
			}
		}
		blocks = append(blocks, Block{step, script})
	}
	return blocks
}

// Open reads a document. Its steps find the tools of `make tools` and `make build`, and the variables env.
func Open(t *testing.T, file string, env ...string) *Shell {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s := &Shell{Dir: t.TempDir(), Home: t.TempDir(), steps: map[string]string{}}
	root, calls := rootOf(t, file), false
	for _, block := range Blocks(string(text)) {
		if block.Step != "" {
			s.steps[block.Step] = watches.ReplaceAllString(block.Script, "")
			calls = calls || strings.Contains(block.Script, operators)
		}
	}
	links := map[string]string{}
	for _, name := range checkout {
		links[name] = filepath.Join(root, name)
	}
	if calls {
		if links[filepath.Join("bin", operators)], err = program.Build(t.Context(), root, operators); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range links {
		link := filepath.Join(s.Dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o700), os.Symlink(target, link)); err != nil {
			t.Fatal(err)
		}
	}
	bin, assets := os.Getenv("CAPMAAS_BIN"), os.Getenv("KUBEBUILDER_ASSETS")
	if bin == "" || assets == "" {
		t.Fatal("CAPMAAS_BIN or KUBEBUILDER_ASSETS is not set: they are where the tools are (`make test` sets them)")
	}
	s.env = append([]string{
		"PATH=" + strings.Join([]string{s.Home, filepath.Join(s.Dir, "bin"), bin, assets, os.Getenv("PATH")}, string(os.PathListSeparator)),
		"HOME=" + s.Home, "XDG_CONFIG_HOME=" + s.Home, "CLUSTERCTL_DISABLE_VERSIONCHECK=true",
		// For kubectl and a workload cluster, whose names and addresses only the sandbox's network has.
		"HTTPS_PROXY=" + os.Getenv("HTTPS_PROXY"), "NO_PROXY=127.0.0.1",
	}, env...)
	return s
}

// rootOf returns the root of the sources that a file is in.
func rootOf(t *testing.T, file string) string {
	t.Helper()
	root, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	for {
		up := filepath.Dir(root)
		if up == root {
			t.Fatalf("%s is not in the sources", file)
		}
		root = up
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			return root
		}
	}
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
	return s.command(ctx, t, []string{step}, env...)
}

func (s *Shell) command(ctx context.Context, t *testing.T, steps []string, env ...string) *exec.Cmd {
	t.Helper()
	script := ""
	for _, step := range steps {
		one, known := s.steps[step]
		if !known {
			t.Fatalf("the document has no step %q", step)
		}
		script += one
	}
	command := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script)
	command.Dir, command.Env = s.Dir, append(slices.Clone(s.env), env...)
	return command
}

// Try runs steps in one shell, and returns their output and whether all succeeded.
func (s *Shell) Try(t *testing.T, steps ...string) (stdout, stderr string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), StepTimeout)
	defer cancel()
	command := s.command(ctx, t, steps)
	var out, says bytes.Buffer
	command.Stdout, command.Stderr = &out, &says
	began := time.Now()
	err = command.Run()
	t.Logf("%v took %s", steps, time.Since(began).Round(100*time.Millisecond))
	return out.String(), says.String(), err
}

// Run runs steps in one shell, as what the first exports is for the next; all must succeed. It returns their output.
func (s *Shell) Run(t *testing.T, steps ...string) string {
	t.Helper()
	out, says, err := s.Try(t, steps...)
	if err != nil {
		t.Fatalf("%v: %v\n%s%s", steps, err, out, says)
	}
	return out
}
