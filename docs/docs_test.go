// SPDX-License-Identifier: Apache-2.0

// Package docs_test checks what the documents say of the code.
package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var (
	declared = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	named    = regexp.MustCompile("`((?:Test|Fuzz)[A-Z]\\w*)`")
)

// A promise whose test was renamed or removed is none.
func TestTheTestsThatDocumentsNameExist(t *testing.T) {
	tests := map[string]bool{}
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, found := range declared.FindAllStringSubmatch(string(source), -1) {
			tests[found[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	documents, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	names := 0
	for _, document := range documents {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range named.FindAllStringSubmatch(string(text), -1) {
			names++
			if !tests[found[1]] {
				t.Errorf("%s names %s, which does not exist", document, found[1])
			}
		}
	}
	if names == 0 {
		t.Error("no document names a test: the pattern is wrong")
	}
}

// reasonsOf are the values of the exported constants of a package that end in Reason.
func reasonsOf(t *testing.T, dir string) (reasons []string) {
	t.Helper()
	sources, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range sources {
		file, err := parser.ParseFile(token.NewFileSet(), source, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(node ast.Node) bool {
			spec, ok := node.(*ast.ValueSpec)
			if !ok || !spec.Names[0].IsExported() || !strings.HasSuffix(spec.Names[0].Name, "Reason") || len(spec.Values) != 1 {
				return true
			}
			if literal, ok := spec.Values[0].(*ast.BasicLit); ok {
				reason, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Fatal(err)
				}
				reasons = append(reasons, reason)
			}
			return true
		})
	}
	return reasons
}
