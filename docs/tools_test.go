// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Everything that tests and documents call, and that hack/tools/build.sh can build, is built by `make test` and `make demo`
// themselves: a program that only another target builds is missing for everybody who runs these two alone.
func TestMakeTestAndMakeDemoBuildWhatIsCalled(t *testing.T) {
	known := words(t, `(?m)^(?:control_plane|tools)="(?:\$control_plane )?([^"]*)"`, read(t, filepath.Join("..", "hack", "tools", "build.sh")))
	called := calledTools(t, known)
	for _, must := range []string{"helm", "kubectl", "clusterctl", "kube-apiserver"} {
		if called[must] == "" {
			t.Errorf("no call of %s was found: the search is wrong", must)
		}
	}
	for _, target := range []string{"test", "demo"} {
		built := builtBy(t, target)
		for tool, caller := range called {
			if !slices.Contains(built, tool) {
				t.Errorf("%s calls %s, which `make %s` does not build: add it to TEST_TOOLS", caller, tool, target)
			}
		}
	}
}

// A list of packages that lacks some would let their tests pass unseen.
func TestMakeFailsIfAPackageCanNotBeListed(t *testing.T) {
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "go"), []byte("#!/bin/sh\necho listed\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
	for _, target := range []string{"test-packages", "unit", "race"} {
		if out, err := dryRun(t, target); err == nil {
			t.Errorf("make %s tests what was listed:\n%s", target, out)
		} else if !strings.Contains(out, "go list fails") {
			t.Errorf("make %s: %v\n%s", target, err, out)
		}
	}
}

// Continuous integration builds nothing before `make test`.
func TestContinuousIntegrationBeginsWithTheTests(t *testing.T) {
	stages := regexp.MustCompile(`(?m)^stage make (.*)$`).FindStringSubmatch(read(t, filepath.Join("..", ".ci", "run")))
	if stages == nil || !slices.Contains(strings.Fields(stages[1]), "test") {
		t.Errorf("the first target of .ci/run is %q, not test", stages)
	}
}

// words are those that a pattern's groups match.
func words(t *testing.T, pattern, text string) (all []string) {
	t.Helper()
	for _, found := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		all = append(all, strings.Fields(found[1])...)
	}
	if len(all) == 0 {
		t.Fatalf("nothing matches %s", pattern)
	}
	return all
}

// builtBy are the tools that a target of the Makefile builds, by make's own account.
func builtBy(t *testing.T, target string) []string {
	t.Helper()
	out, err := dryRun(t, target)
	if err != nil {
		t.Fatalf("make --dry-run %s: %v\n%s", target, err, out)
	}
	return words(t, `(?m)hack/tools/build\.sh (.*)$`, out)
}

// dryRun returns what make would do for a target.
func dryRun(t *testing.T, target string) (string, error) {
	t.Helper()
	dry := exec.CommandContext(t.Context(), "make", "--dry-run", target)
	dry.Dir = ".."
	// What the make that runs this test was told is not for this one.
	dry.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "MAKE") || strings.HasPrefix(v, "MFLAGS") })
	out, err := dry.CombinedOutput()
	return string(out), err
}

// calledTools maps each tool that is called to one of its callers.
func calledTools(t *testing.T, known []string) map[string]string {
	t.Helper()
	called := map[string]string{}
	for _, c := range commands(t) {
		if slices.Contains(known, c.words[0]) {
			called[c.words[0]] = c.document
		}
	}
	for _, dir := range []string{"cmd", "controllers", "docs", "e2e", "hack", "pkg", "test"} {
		err := filepath.WalkDir(filepath.Join("..", dir), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() && d.Name() == "fetch" {
				return filepath.SkipDir // It names all tools, and calls none.
			}
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
				return err
			}
			for _, text := range literals(t, path) {
				// A program's name alone, or a command line as directions show one.
				first, _, _ := strings.Cut(strings.TrimSpace(text), " ")
				if slices.Contains(known, first) && (text == first || strings.HasPrefix(text, " ")) {
					called[first] = path
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return called
}

// literals are the strings in a Go file.
func literals(t *testing.T, path string) (all []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if l, is := n.(*ast.BasicLit); is && l.Kind == token.STRING {
			if text, err := strconv.Unquote(l.Value); err == nil {
				all = append(all, text)
			}
		}
		return true
	})
	return all
}
