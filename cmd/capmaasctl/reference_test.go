// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra/doc"

	"github.com/capmaas/cluster-api-provider-maas/test/golden"
)

// The reference is what cobra makes of the commands, behind an introduction. `make generate` writes it.
func TestReference(t *testing.T) {
	introduction, err := os.ReadFile(filepath.Join("testdata", "reference.md"))
	if err != nil {
		t.Fatal(err)
	}
	page := bytes.NewBuffer(introduction)
	_, root, _ := newProgram(surroundings{}, "capmaasctl")
	root.DisableAutoGenTag = true
	link := func(file string) string {
		return "#" + strings.ReplaceAll(strings.TrimSuffix(file, ".md"), "_", "-")
	}
	for _, c := range everyCommand(root) {
		if err := doc.GenMarkdownCustom(c, page, link); err != nil {
			t.Fatal(err)
		}
	}
	// The headings within a command are no headings of the page.
	want := regexp.MustCompile(`(?m)^### (.*)$`).ReplaceAll(page.Bytes(), []byte("**$1**"))
	want = bytes.Replace(want, []byte("## capmaasctl\n"), []byte("## Commands\n"), 1)
	want = regexp.MustCompile(`More: docs/(\S+)`).ReplaceAll(want, []byte("More: [$1]($1)"))
	want = append(bytes.TrimSpace(want), '\n')
	golden.Compare(t, filepath.Join("..", "..", "docs", "capmaasctl.md"), string(want))
}
