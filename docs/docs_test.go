// SPDX-License-Identifier: Apache-2.0

// Package docs_test checks what the documents say of the code.
package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
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
