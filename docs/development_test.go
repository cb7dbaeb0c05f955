// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const developmentPage = "development.md"

// goPackages are the directories below the module's root that hold Go files, by their paths from there.
func goPackages(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() && (name == "bin" || name == "out" || name == "testdata" || (strings.HasPrefix(name, ".") && name != "..")) {
			return fs.SkipDir
		}
		if !entry.IsDir() && strings.HasSuffix(name, ".go") {
			dir, err := filepath.Rel("..", filepath.Dir(path))
			if err != nil {
				return err
			}
			found[filepath.ToSlash(dir)] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

var (
	quoted = regexp.MustCompile("`([^`\n]+)`")
	fenced = regexp.MustCompile("(?ms)^```.*?^```")
)

// Whoever looks for a package finds what it is for in its doc comment.
func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	for dir := range goPackages(t) {
		sources, err := filepath.Glob(filepath.Join("..", dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		sources = slices.DeleteFunc(sources, func(name string) bool { return strings.HasSuffix(name, "_test.go") })
		if len(sources) > 0 && !slices.ContainsFunc(sources, func(name string) bool { return packageComment(t, name) }) {
			t.Errorf("%s has no package comment", dir)
		}
	}
}

// packageComment reports whether a file describes its package.
func packageComment(t *testing.T, name string) bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.PackageClauseOnly|parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(file.Doc.Text()) != ""
}

// path is what looks like a file or directory of the repository.
var path = regexp.MustCompile(`^(?:(?:api|charts|cmd|clusterclass|controllers|docs|e2e|hack|internal|pkg|templates|test)/[\w./-]*|[A-Z]\w*\.md|Makefile|go\.mod)$`)

// Whoever follows a list finds each file it names.
func TestFilesThatDevelopmentNamesExist(t *testing.T) {
	for _, document := range []string{developmentPage, securityPage, filepath.Join("..", "CONTRIBUTING.md")} {
		names := 0
		for _, name := range quoted.FindAllStringSubmatch(fenced.ReplaceAllString(read(t, document), ""), -1) {
			if !path.MatchString(name[1]) || strings.Contains(name[1], "...") {
				continue
			}
			names++
			if _, err := os.Stat(filepath.Join("..", filepath.FromSlash(name[1]))); err != nil {
				t.Errorf("%s names %s: %v", document, name[1], err)
			}
		}
		if names == 0 {
			t.Errorf("%s names no file: the pattern is wrong", document)
		}
	}
}

var function = regexp.MustCompile(`(?m)^func (?:\([^)]*\) )?(\w+)[\[(]|^(?:var|const|type|\t)\s*(\w+)(?:, \w+)*\s+(?:=|struct|interface|\[)`)

// The names of functions, lists and tables in the lists of development.md are those of the code.
func TestCodeThatDevelopmentNamesExists(t *testing.T) {
	known := map[string]bool{}
	for dir := range goPackages(t) {
		sources, err := filepath.Glob(filepath.Join("..", dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, source := range sources {
			for _, found := range function.FindAllStringSubmatch(read(t, source), -1) {
				known[found[1]], known[found[2]] = true, true
			}
		}
	}
	_, lists, found := strings.Cut(read(t, developmentPage), "## How a MaasMachine is reconciled")
	if !found {
		t.Fatal("the section is gone")
	}
	identifier := regexp.MustCompile(`^[a-zA-Z]\w*[a-z][A-Z]\w*$`)
	names := 0
	for _, name := range quoted.FindAllStringSubmatch(fenced.ReplaceAllString(lists, ""), -1) {
		if !identifier.MatchString(name[1]) {
			continue
		}
		names++
		if !known[name[1]] {
			t.Errorf("%s names %s, which does not exist", developmentPage, name[1])
		}
	}
	if names < 15 {
		t.Errorf("only %d names were found: the pattern is wrong", names)
	}
}

func TestADecisionSaysWhyAndWhatWasRefused(t *testing.T) {
	records, err := filepath.Glob(filepath.Join("adr", "[0-9]*.md"))
	if err != nil || len(records) == 0 {
		t.Fatalf("%d records: %v", len(records), err)
	}
	for _, record := range records {
		number := strings.TrimLeft(filepath.Base(record)[:4], "0")
		if !strings.HasPrefix(read(t, record), "# "+number+". ") {
			t.Errorf("%s does not begin with its number", record)
		}
		for _, part := range []string{"**Context.**", "**Decision.**", "**Consequences.**", "**Refused.**"} {
			if !strings.Contains(read(t, record), "\n"+part) {
				t.Errorf("%s has no %s", record, part)
			}
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
